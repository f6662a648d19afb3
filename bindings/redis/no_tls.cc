// In place of tls.cc where there is no OpenSSL.
#include "transport.h"

namespace kachel::redis {

std::string check_tls(const Address&) {
  return "libkachel_redis was built without OpenSSL; install libssl-dev and build it again, or use redis:// over a "
         "tunnel (stunnel, ssh)";
}

std::unique_ptr<Transport> tls_transport(int, const Address& address, std::string& why) {
  why = check_tls(address);
  return nullptr;
}

}  // namespace kachel::redis
