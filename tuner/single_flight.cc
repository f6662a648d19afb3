#include "tuner/single_flight.h"

#include <chrono>
#include <utility>

namespace kachel::tuner {

SingleFlight::Ticket::Ticket(Ticket&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)), role_(other.role_), key_(std::move(other.key_)) {}

SingleFlight::Ticket& SingleFlight::Ticket::operator=(Ticket&& other) noexcept {
  if (this != &other) {
    release();
    owner_ = std::exchange(other.owner_, nullptr);
    role_ = other.role_;
    key_ = std::move(other.key_);
  }
  return *this;
}

void SingleFlight::Ticket::release() {
  if (SingleFlight* owner = std::exchange(owner_, nullptr)) owner->land(key_);
}

SingleFlight::Ticket SingleFlight::join(std::string_view key, int64_t max_wait_ns) {
  std::string name(key);
  std::unique_lock lock(mutex_);
  auto [place, inserted] = flights_.try_emplace(name, nullptr);
  if (inserted) {
    place->second = std::make_shared<Flight>();
    return Ticket(this, Role::kLeader, std::move(name));
  }
  std::shared_ptr<Flight> flight = place->second;
  auto done = [&] { return flight->done; };
  if (max_wait_ns < 0)
    flight->landed.wait(lock, done);
  else if (max_wait_ns > 0)
    flight->landed.wait_for(lock, std::chrono::nanoseconds(max_wait_ns), done);
  return Ticket(nullptr, flight->done ? Role::kWaited : Role::kBusy, {});
}

void SingleFlight::land(const std::string& key) {
  std::lock_guard lock(mutex_);
  auto place = flights_.find(key);
  place->second->done = true;
  place->second->landed.notify_all();
  flights_.erase(place);
}

size_t SingleFlight::in_flight() const {
  std::lock_guard lock(mutex_);
  return flights_.size();
}

}  // namespace kachel::tuner
