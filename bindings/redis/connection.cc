#include "connection.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace kachel::redis {
namespace {

constexpr int kWholeFactor = 20;                  // of the longest pause, for a command as a whole
constexpr size_t kPieceBytes = 16384;             // what is read at once
constexpr size_t kMostBytes = size_t{512} << 20;  // of a reply; Redis' own limit

struct FormattedDeleter {
  void operator()(char* command) const { redisFreeCommand(command); }
};

template <class... Arguments>
void* refuse(Arguments...) {
  return nullptr;
}

// No command of ours is answered by an array, of which a few bytes can ask for any amount of memory.
redisReplyObjectFunctions* without_arrays(const redisReplyObjectFunctions& usual) {
  static redisReplyObjectFunctions functions = [&] {
    redisReplyObjectFunctions made = usual;
    made.createArray = refuse;
    return made;
  }();
  return &functions;
}

}  // namespace

Connection::Connection(const Address& address, redisContext* context) : idle_(address.command_ms), context_(context) {
  context_->reader->fn = without_arrays(*context_->reader->fn);
}

std::unique_ptr<Connection> Connection::open(const Address& address, std::string& why) {
  const timeval limit{address.connect_ms / 1000, address.connect_ms % 1000 * 1000};
  redisContext* context = address.socket.empty() ? redisConnectWithTimeout(address.host.c_str(), address.port, limit)
                                                 : redisConnectUnixWithTimeout(address.socket.c_str(), limit);
  if (!context || context->err != 0) {
    why = context ? context->errstr : "out of memory";
    if (context) redisFree(context);
    return nullptr;
  }
  std::unique_ptr<Connection> connection(new Connection(address, context));
  // From here on the waiting is done here.
  context->flags &= ~REDIS_BLOCK;
  const int flags = ::fcntl(context->fd, F_GETFL);
  (void)::fcntl(context->fd, F_SETFL, flags | O_NONBLOCK);
  (void)::fcntl(context->fd, F_SETFD, FD_CLOEXEC);
  if (!connection->begin(address, why) || !connection->greet(address, why)) return nullptr;
  return connection;
}

bool Connection::begin(const Address& address, std::string& why) {
  transport_ = address.tls ? tls_transport(context_->fd, address, why) : plain_transport(context_->fd);
  if (!transport_) return false;
  const Clock::time_point deadline = Clock::now() + idle_ * kWholeFactor;
  for (;;) {
    const Progress progress = transport_->begin();
    if (progress.kind == Progress::Kind::kMoved) return true;
    if (goes_on(progress, deadline, why)) continue;
    // Redis takes the first bytes of TLS for a command that has no end.
    if (progress.kind == Progress::Kind::kWantsRead) why += "; does the server speak TLS on this port?";
    return false;
  }
}

bool Connection::greet(const Address& address, std::string& why) {
  auto accepted = [&](const Reply& reply, const char* what) {
    if (!reply) return false;
    if (reply->type != REDIS_REPLY_ERROR) return true;
    why = fmt::format("{}: {}", what, std::string_view(reply->str, reply->len));
    return false;
  };
  if (!address.password.empty()) {
    const Reply reply = address.user.empty() ? command({"AUTH", address.password}, why)
                                             : command({"AUTH", address.user, address.password}, why);
    if (!accepted(reply, "the server refuses user or password")) return false;
  }
  if (address.database == 0) return true;
  return accepted(command({"SELECT", std::to_string(address.database)}, why), "the server refuses the database");
}

Reply Connection::command(std::initializer_list<std::string_view> words, std::string& why) {
  closed_ = false;
  std::vector<const char*> bytes;
  std::vector<size_t> sizes;
  for (std::string_view word : words) bytes.push_back(word.data()), sizes.push_back(word.size());
  char* text = nullptr;
  const int size = redisFormatCommandArgv(&text, static_cast<int>(bytes.size()), bytes.data(), sizes.data());
  if (size < 0) {
    why = "the value is too long for a command";
    return nullptr;
  }
  const std::unique_ptr<char, FormattedDeleter> owner(text);
  const Clock::time_point deadline = Clock::now() + idle_ * kWholeFactor;
  if (!send({text, static_cast<size_t>(size)}, deadline, why)) return nullptr;
  return receive(deadline, why);
}

bool Connection::goes_on(const Progress& progress, Clock::time_point deadline, std::string& why) {
  switch (progress.kind) {
    case Progress::Kind::kMoved:
      return true;
    case Progress::Kind::kWantsRead:
      return wait(POLLIN, deadline, why);
    case Progress::Kind::kWantsWrite:
      return wait(POLLOUT, deadline, why);
    case Progress::Kind::kClosed:
      closed_ = true;
      why = "the server has closed the connection";
      return false;
    case Progress::Kind::kFailed:
      why = progress.why;
      return false;
  }
  return false;
}

bool Connection::send(std::string_view bytes, Clock::time_point deadline, std::string& why) {
  while (!bytes.empty()) {
    const Progress progress = transport_->send(bytes);
    if (!goes_on(progress, deadline, why)) return false;
    bytes.remove_prefix(progress.bytes);
  }
  return true;
}

Reply Connection::receive(Clock::time_point deadline, std::string& why) {
  for (;;) {
    void* reply = nullptr;
    if (redisGetReplyFromReader(context_.get(), &reply) != REDIS_OK) {
      why = fmt::format("this is no Redis server: {}", context_->errstr);
      return nullptr;
    }
    if (reply) return Reply(static_cast<redisReply*>(reply));
    if (context_->reader->len > kMostBytes) {
      why = "the server's reply has no end";
      return nullptr;
    }
    char bytes[kPieceBytes];
    const Progress progress = transport_->receive(bytes, sizeof bytes);
    if (!goes_on(progress, deadline, why)) return nullptr;
    if (progress.bytes > 0 && redisReaderFeed(context_->reader, bytes, progress.bytes) != REDIS_OK) {
      why = context_->reader->errstr;
      return nullptr;
    }
  }
}

bool Connection::wait(short events, Clock::time_point deadline, std::string& why) {
  using std::chrono::ceil;
  using std::chrono::milliseconds;
  for (;;) {
    const auto left = std::min(ceil<milliseconds>(deadline - Clock::now()), idle_);
    pollfd file{context_->fd, events, 0};
    const int ready = left.count() > 0 ? ::poll(&file, 1, static_cast<int>(left.count())) : 0;
    if (ready > 0) return true;
    if (ready < 0 && errno == EINTR) continue;
    const auto limit = Clock::now() < deadline ? idle_ : idle_ * kWholeFactor;
    why = ready == 0 ? fmt::format("no answer within {} ms", limit.count()) : std::strerror(errno);
    return false;
  }
}

}  // namespace kachel::redis
