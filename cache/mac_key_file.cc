#include "cache/mac_key_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cache/mac.h"

namespace kachel::cache {
namespace {

Result<std::string> read_open_file(int file, const std::string& path) {
  auto failed = [&] { return invalid(fmt::format("key file {}: {}", path, std::strerror(errno))); };
  struct stat info;
  if (::fstat(file, &info) != 0) return failed();
  if (!S_ISREG(info.st_mode)) return invalid(fmt::format("key file {} is not a regular file", path));
  if (info.st_uid != ::geteuid() && info.st_uid != 0)
    return invalid(fmt::format("key file {} belongs to user {}; use one of your own", path, info.st_uid));
  if ((info.st_mode & 0077) != 0)
    return invalid(fmt::format("others may read or write key file {} (mode {:04o}); chmod 600 it", path,
                               static_cast<unsigned>(info.st_mode & 07777)));
  std::string bytes(MacKeys::kMostBytes + 1, '\0');
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = ::read(file, bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed();
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace

Result<std::string> read_mac_key(const std::string& path) {
  // A pipe must not make us wait.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (file < 0) return invalid(fmt::format("key file {}: {}", path, std::strerror(errno)));
  Result<std::string> bytes = read_open_file(file, path);
  ::close(file);
  return bytes;
}

}  // namespace kachel::cache
