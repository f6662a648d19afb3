#include "transport.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace kachel::redis {
namespace {

class Plain final : public Transport {
 public:
  explicit Plain(int socket) : socket_(socket) {}

  Progress send(std::string_view bytes) override {
    return made(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT), Progress::Kind::kWantsWrite);
  }
  Progress receive(char* to, size_t size) override {
    Progress progress = made(::recv(socket_, to, size, MSG_DONTWAIT), Progress::Kind::kWantsRead);
    if (progress.kind == Progress::Kind::kMoved && progress.bytes == 0) progress.kind = Progress::Kind::kClosed;
    return progress;
  }

 private:
  static Progress made(ssize_t moved, Progress::Kind otherwise) {
    if (moved >= 0) return {Progress::Kind::kMoved, static_cast<size_t>(moved), {}};
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {otherwise, 0, {}};
    if (errno == EPIPE || errno == ECONNRESET) return {Progress::Kind::kClosed, 0, {}};
    return {Progress::Kind::kFailed, 0, std::strerror(errno)};
  }

  const int socket_;
};

}  // namespace

std::unique_ptr<Transport> plain_transport(int socket) {
  return std::make_unique<Plain>(socket);
}

}  // namespace kachel::redis
