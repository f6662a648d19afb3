// Messages over a connected stream socket. A message is a header of fixed size and a body:
//
//   u32 magic | u32 bytes of the body | u64 number of the call | u8 type | body
//
// in this machine's byte order, since both ends run on it. What does not begin like one is an error, and so is a body
// that is too large: whoever speaks like that is not to be listened to any further.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "support/status.h"

namespace kachel::runtime {

struct Message {
  uint64_t call = 0;
  uint8_t type = 0;
  std::string body;
};

// Any thread may send while one receives; one at a time does either.
class Channel {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr Time kNever = Time::max();
  static constexpr size_t kMostBytes = size_t{256} << 20;  // of a body

  explicit Channel(int socket) : socket_(socket) {}  // which it owns
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // kBusy past the deadline, kInternal where the other end is closed. Raises no SIGPIPE. After a failure nothing more
  // can be sent.
  Status send(const Message& message, Time deadline);
  // Nothing past the deadline; a part that has come by then is kept. kInternal where the other end is closed, kInvalid
  // where it says what is no message.
  Result<std::optional<Message>> receive(Time deadline);
  bool is_open() const;

 private:
  Result<std::optional<Message>> next();

  const int socket_;
  std::string received_;
};

}  // namespace kachel::runtime
