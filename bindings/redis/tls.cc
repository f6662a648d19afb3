// TLS by OpenSSL, which sees the socket through a BIO of our own: its own one raises SIGPIPE.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>

#include "transport.h"

namespace kachel::redis {
namespace {

struct Deleter {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using Context = std::unique_ptr<SSL_CTX, Deleter>;

int socket_of(BIO* bio) {
  return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
}

int finished(BIO* bio, ssize_t moved, int retry) {
  BIO_clear_retry_flags(bio);
  if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
  if (moved == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(moved);
}

BIO_METHOD* socket_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "kachel socket");
    if (!made) return made;
    BIO_meth_set_write(made, [](BIO* bio, const char* bytes, int size) {
      const auto count = static_cast<size_t>(size);
      return finished(bio, ::send(socket_of(bio), bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT), BIO_FLAGS_WRITE);
    });
    BIO_meth_set_read(made, [](BIO* bio, char* to, int size) {
      return finished(bio, ::recv(socket_of(bio), to, static_cast<size_t>(size), MSG_DONTWAIT), BIO_FLAGS_READ);
    });
    BIO_meth_set_ctrl(made, [](BIO* bio, int command, long, void*) -> long {
      if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
      return command == BIO_CTRL_FLUSH;
    });
    return made;
  }();
  return method;
}

std::string latest_reason() {
  const unsigned long error = ERR_peek_last_error();
  const char* reason = ERR_reason_error_string(error);
  return reason ? reason : error ? "OpenSSL cannot say why" : "out of memory";
}

Context context_for(const Address& address, std::string& why) {
  // This process's threads may be in a connection when its exit handlers run.
  static const int initialised = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  ERR_clear_error();
  Context context(initialised ? SSL_CTX_new(TLS_client_method()) : nullptr);
  SSL_CTX* raw = context.get();
  if (!raw || SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION) != 1) {
    why = "TLS is not available: " + latest_reason();
    return nullptr;
  }
  SSL_CTX_set_verify(raw, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_options(raw, SSL_OP_IGNORE_UNEXPECTED_EOF);  // lengths are in the protocol
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE);
  // Nobody is asked for a password.
  SSL_CTX_set_default_passwd_cb(raw, [](char*, int, int, void*) { return -1; });
  auto read = [&](const char* option, const std::string& path, auto&& load) {
    if (::access(path.c_str(), R_OK) != 0)
      why = fmt::format("{}={}: {}", option, path, std::strerror(errno));
    else if (load() != 1)
      why = fmt::format("{}={}: {}; it is to be in PEM, a key without a password", option, path, latest_reason());
    return why.empty();
  };
  why.clear();
  if (address.ca.empty())
    SSL_CTX_set_default_verify_paths(raw);
  else if (!read("ca", address.ca, [&] { return SSL_CTX_load_verify_locations(raw, address.ca.c_str(), nullptr); }))
    return nullptr;
  if (address.certificate.empty()) return context;
  if (!read("cert", address.certificate,
            [&] { return SSL_CTX_use_certificate_chain_file(raw, address.certificate.c_str()); }) ||
      !read("key", address.key,
            [&] { return SSL_CTX_use_PrivateKey_file(raw, address.key.c_str(), SSL_FILETYPE_PEM); }))
    return nullptr;
  return context;
}

class Tls final : public Transport {
 public:
  explicit Tls(std::unique_ptr<SSL, Deleter> ssl) : ssl_(std::move(ssl)) {}

  Progress begin() override {
    return progress([&] { return SSL_connect(ssl_.get()); });
  }
  Progress send(std::string_view bytes) override {
    const int size = static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX));
    Progress sent = progress([&] { return SSL_write(ssl_.get(), bytes.data(), size); });
    if (sent.kind != Progress::Kind::kClosed) return sent;
    // Why it has closed may have come before.
    char byte;
    Progress left = receive(&byte, 1);
    return left.kind == Progress::Kind::kFailed ? left : sent;
  }
  Progress receive(char* to, size_t size) override {
    return progress([&] { return SSL_read(ssl_.get(), to, static_cast<int>(std::min<size_t>(size, INT_MAX))); });
  }

 private:
  template <class Step>
  Progress progress(Step&& step) {
    ERR_clear_error();
    errno = 0;
    const int moved = step();
    const int error = errno;
    if (moved > 0) return {Progress::Kind::kMoved, static_cast<size_t>(moved), {}};
    switch (SSL_get_error(ssl_.get(), moved)) {
      case SSL_ERROR_WANT_READ:
        return {Progress::Kind::kWantsRead, 0, {}};
      case SSL_ERROR_WANT_WRITE:
        return {Progress::Kind::kWantsWrite, 0, {}};
      case SSL_ERROR_ZERO_RETURN:
        return {Progress::Kind::kClosed, 0, {}};
      case SSL_ERROR_SYSCALL:
        if (error == 0 || error == EPIPE || error == ECONNRESET) return {Progress::Kind::kClosed, 0, {}};
        return {Progress::Kind::kFailed, 0, std::strerror(error)};
      default:
        return {Progress::Kind::kFailed, 0, failure()};
    }
  }

  std::string failure() const {
    const long verdict = SSL_get_verify_result(ssl_.get());
    if (verdict != X509_V_OK) {
      const bool stranger = verdict == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY ||
                            verdict == X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN ||
                            verdict == X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT;
      return fmt::format("the server's certificate is not accepted: {}{}", X509_verify_cert_error_string(verdict),
                         stranger ? "; name a file with its authority's certificate: ca=FILE" : "");
    }
    switch (ERR_GET_REASON(ERR_peek_last_error())) {
      case SSL_R_WRONG_VERSION_NUMBER:
        return "the server does not speak TLS on this port; use another port, or redis://";
      case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return "the server asks for a certificate of the client's: cert=FILE and key=FILE";
      default:
        return "TLS: " + latest_reason();
    }
  }

  const std::unique_ptr<SSL, Deleter> ssl_;
};

bool is_numeric(const std::string& host) {
  unsigned char bytes[16];
  return ::inet_pton(AF_INET, host.c_str(), bytes) == 1 || ::inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

}  // namespace

std::string check_tls(const Address& address) {
  std::string why;
  (void)context_for(address, why);
  return why;
}

std::unique_ptr<Transport> tls_transport(int socket, const Address& address, std::string& why) {
  const Context context = context_for(address, why);
  if (!context) return nullptr;
  std::unique_ptr<SSL, Deleter> ssl(SSL_new(context.get()));
  BIO* bio = ssl && socket_method() ? BIO_new(socket_method()) : nullptr;
  if (!bio) {
    why = "TLS is not available: " + latest_reason();
    return nullptr;
  }
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl.get(), bio, bio);
  const std::string& host = address.host;
  const bool named = is_numeric(host) ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), host.c_str()) == 1
                                      : SSL_set1_host(ssl.get(), host.c_str()) == 1 &&
                                            SSL_set_tlsext_host_name(ssl.get(), host.c_str()) == 1;
  if (!named) {
    why = "the host's name is none that a certificate can have";
    return nullptr;
  }
  return std::make_unique<Tls>(std::move(ssl));
}

}  // namespace kachel::redis
