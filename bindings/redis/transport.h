// Bytes to and from a connected socket that does not block, which stays the caller's: as they are, or through TLS.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "address.h"

namespace kachel::redis {

struct Progress {
  enum class Kind { kMoved, kWantsRead, kWantsWrite, kClosed, kFailed } kind = Kind::kMoved;
  size_t bytes = 0;  // that have moved
  std::string why;   // of a failure
};

// Raises no SIGPIPE.
class Transport {
 public:
  virtual ~Transport() = default;
  // What stands before the first byte, until it is kMoved.
  virtual Progress begin() { return {}; }
  virtual Progress send(std::string_view bytes) = 0;
  virtual Progress receive(char* to, size_t size) = 0;
};

std::unique_ptr<Transport> plain_transport(int socket);

// TLS 1.2 or newer. The server has to show a certificate for the host's name or address that was signed by one of those
// in `address.ca`, or by one that the system trusts. Files are read now. Null, and `why`, where they are of no use.
std::unique_ptr<Transport> tls_transport(int socket, const Address& address, std::string& why);
// What is wrong with the files; "" where nothing is.
std::string check_tls(const Address& address);

}  // namespace kachel::redis
