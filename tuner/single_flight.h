// One tuning per key at a time in this process. Between processes the store decides who writes first.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace kachel::tuner {

// Thread-safe. Must outlive its tickets.
class SingleFlight {
 public:
  static constexpr int64_t kForever = -1;

  enum class Role {
    kLeader,  // the key is this ticket's until the ticket goes away: tune, store, then drop it
    kWaited,  // another thread held the key and has let it go: look into the store again, join again if it has nothing
    kBusy,    // another thread still holds the key
  };

  // Movable; going out of scope lets the key go and wakes those who wait, whether the tuning succeeded or not.
  class Ticket {
   public:
    Ticket(Ticket&& other) noexcept;
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { release(); }

    Role role() const { return role_; }
    // Lets the key go early. Harmless on a ticket that holds none.
    void release();

   private:
    friend class SingleFlight;
    Ticket(SingleFlight* owner, Role role, std::string key) : owner_(owner), role_(role), key_(std::move(key)) {}

    SingleFlight* owner_;  // null once released and for any role but kLeader
    Role role_;
    std::string key_;
  };

  SingleFlight() = default;
  SingleFlight(const SingleFlight&) = delete;
  SingleFlight& operator=(const SingleFlight&) = delete;

  // `key` is any bytes, as a digest or text. Waits at most `max_wait_ns` of real time for a key that another thread
  // holds: 0 answers at once, kForever never gives up. REQUIRES: this thread does not itself hold `key`, if it waits.
  Ticket join(std::string_view key, int64_t max_wait_ns);

  // Keys held now, for counters.
  size_t in_flight() const;

 private:
  struct Flight {
    std::condition_variable landed;
    bool done = false;
  };

  void land(const std::string& key);

  mutable std::mutex mutex_;
  // Shared with the waiters, since a key may be taken anew before all of them have woken.
  std::unordered_map<std::string, std::shared_ptr<Flight>> flights_;
};

}  // namespace kachel::tuner
