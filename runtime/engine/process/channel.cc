#include "runtime/engine/process/channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "support/bytes.h"

namespace kachel::runtime {
namespace {

constexpr uint32_t kMagic = 0x67734d4b;  // "KMsg"
constexpr size_t kHeaderBytes = 4 + 4 + 8 + 1;
constexpr size_t kReadBytes = size_t{64} << 10;

// False past the deadline.
bool wait_for(int socket, short events, Channel::Time deadline) {
  for (;;) {
    int timeout_ms = -1;
    if (deadline != Channel::kNever) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      timeout_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, std::numeric_limits<int>::max()));
    }
    pollfd waited{socket, events, 0};
    const int ready = ::poll(&waited, 1, timeout_ms);
    if (ready > 0) return true;
    if (ready == 0 && timeout_ms >= 0) return false;
    if (ready < 0 && errno != EINTR && errno != EAGAIN) return true;  // the call that follows says what is wrong
  }
}

}  // namespace

Channel::~Channel() {
  ::close(socket_);
}

Status Channel::send(const Message& message, Time deadline) {
  if (message.body.size() > kMostBytes)
    return internal(fmt::format("a message of {} bytes is too large", message.body.size()));
  ByteWriter header;
  header.put(kMagic);
  header.put(static_cast<uint32_t>(message.body.size()));
  header.put(message.call);
  header.put(message.type);
  for (std::string_view rest : {std::string_view(header.bytes()), std::string_view(message.body)})
    while (!rest.empty()) {
      const ssize_t sent = ::send(socket_, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        rest.remove_prefix(static_cast<size_t>(sent));
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (!wait_for(socket_, POLLOUT, deadline)) return {Code::kBusy, "the other end takes nothing"};
      } else if (errno != EINTR) {
        return internal(fmt::format("the connection is closed: {}", std::strerror(errno)));
      }
    }
  return {};
}

bool Channel::is_open() const {
  pollfd asked{socket_, POLLRDHUP, 0};
  return ::poll(&asked, 1, 0) == 0;
}

// The first that has come whole.
Result<std::optional<Message>> Channel::next() {
  if (received_.size() < kHeaderBytes) return std::optional<Message>();
  ByteReader header(received_);
  const bool known = header.get<uint32_t>() == kMagic;
  const uint32_t bytes = header.get<uint32_t>();
  if (!known || bytes > kMostBytes) return invalid("it said what is no message");
  if (received_.size() < kHeaderBytes + bytes) return std::optional<Message>();
  Message message;
  message.call = header.get<uint64_t>();
  message.type = header.get<uint8_t>();
  message.body = received_.substr(kHeaderBytes, bytes);
  received_.erase(0, kHeaderBytes + bytes);
  return std::optional(std::move(message));
}

Result<std::optional<Message>> Channel::receive(Time deadline) {
  for (;;) {
    KACHEL_ASSIGN(std::optional<Message> message, next());
    if (message) return message;
    if (!wait_for(socket_, POLLIN, deadline)) return std::optional<Message>();
    const size_t before = received_.size();
    received_.resize(before + kReadBytes);
    const ssize_t got = ::recv(socket_, received_.data() + before, kReadBytes, MSG_DONTWAIT);
    received_.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return internal("the connection is closed");
    if (got < 0 && errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)
      return internal(fmt::format("the connection is closed: {}", std::strerror(errno)));
  }
}

}  // namespace kachel::runtime
