#include "address.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

namespace kachel::redis {
namespace {

constexpr std::string_view kForm =
    "redis://[user:password@]host[:port][/database][?options], rediss:// for TLS, or unix:///path/to/socket";

// Everything up to the separator, which goes as well; all of `rest` where there is none.
std::string_view take_until(std::string_view& rest, char separator) {
  const size_t at = std::min(rest.find(separator), rest.size());
  const std::string_view taken = rest.substr(0, at);
  rest.remove_prefix(std::min(at + 1, rest.size()));
  return taken;
}

// %40 and the like; nothing where a % begins no byte, or stands for the byte 0.
std::optional<std::string> unescaped(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      bytes += text[i];
      continue;
    }
    unsigned byte = 0;
    if (i + 3 > text.size()) return std::nullopt;
    const char* end = text.data() + i + 3;
    if (auto [stop, error] = std::from_chars(text.data() + i + 1, end, byte, 16); error != std::errc() || stop != end)
      return std::nullopt;
    if (byte == 0) return std::nullopt;
    bytes += static_cast<char>(byte);
    i += 2;
  }
  return bytes;
}

template <class T>
bool read_number(std::string_view text, int64_t least, int64_t most, T& out) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most) return false;
  out = static_cast<T>(value);
  return true;
}

std::string read_option(std::string_view name, std::string_view text, Address& address) {
  struct Number {
    std::string_view name;
    int64_t least, most;
    int64_t* out;
  };
  int64_t database = address.database;
  const Number numbers[] = {{"connect_ms", 1, 60'000, &address.connect_ms},
                            {"command_ms", 1, 600'000, &address.command_ms},
                            {"ttl_s", 0, int64_t{1} << 32, &address.ttl_s},
                            {"db", 0, 1 << 20, &database}};
  for (const Number& number : numbers)
    if (name == number.name) {
      if (!read_number(text, number.least, number.most, *number.out))
        return fmt::format("option {} is a whole number from {} to {}", name, number.least, number.most);
      address.database = static_cast<int>(database);
      return {};
    }
  struct Text {
    std::string_view name;
    std::string* out;
    bool tls;
  };
  const Text texts[] = {{"prefix", &address.prefix, false},
                        {"ca", &address.ca, true},
                        {"cert", &address.certificate, true},
                        {"key", &address.key, true}};
  for (const Text& known : texts)
    if (name == known.name) {
      if (known.tls && !address.tls) return "ca, cert and key are for TLS, which is what rediss:// speaks";
      const auto bytes = unescaped(text);
      if (!bytes)
        return fmt::format("a % of {} is not followed by two hex digits, which stand for a byte other than 0", name);
      *known.out = *bytes;
      return {};
    }
  // Not quoted: a password with a ? in it would be.
  return "there is no such option behind the ?; there is: db, prefix, ttl_s, connect_ms, command_ms, and for rediss:// "
         "ca, cert, key";
}

std::string read_options(std::string_view text, Address& address) {
  while (!text.empty()) {
    std::string_view value = take_until(text, '&');
    if (value.empty()) continue;
    const std::string_view name = take_until(value, '=');
    if (std::string wrong = read_option(name, value, address); !wrong.empty()) return wrong;
  }
  if (address.certificate.empty() != address.key.empty())
    return "cert and key go together: a client's certificate and its key";
  return {};
}

std::string read_user(std::string_view text, Address& address) {
  const std::string_view name = take_until(text, ':');
  const auto user = unescaped(name), password = unescaped(text);
  if (!user || !password)
    return "a % of user or password is not followed by two hex digits; write %25 for a % that is meant";
  if (password->empty()) return "a user needs a password: user:password@, or :password@ without a user";
  address.user = *user;
  address.password = *password;
  return {};
}

std::string read_host(std::string_view text, Address& address) {
  if (text.starts_with('[')) {
    text.remove_prefix(1);
    const size_t end = text.find(']');
    if (end == text.npos) return "an address in brackets ends with ]";
    address.host = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (!text.empty() && text[0] != ':') return "behind ] stands a port, as [::1]:6379, or nothing";
    if (!text.empty()) text.remove_prefix(1);
  } else {
    const std::string_view host = take_until(text, ':');
    if (!host.empty()) address.host = host;
  }
  if (!text.empty() && !read_number(text, 1, 65535, address.port)) return "a port is a number from 1 to 65535";
  if (address.host.empty() || address.host.find('\0') != std::string::npos) return "the host is empty";
  return {};
}

std::string read(std::string_view text, Address& address) {
  const bool is_socket = text.starts_with("unix://");
  address.tls = text.starts_with("rediss://");
  if (!is_socket && !address.tls && !text.starts_with("redis://")) return fmt::format("an address is {}", kForm);
  std::string_view options = text.substr(text.find("://") + 3);
  std::string_view place = take_until(options, '?');
  // A password may hold anything but what ends it: the last @ does. Of a socket, the last one before its path.
  const std::string_view authority = is_socket ? place.substr(0, place.find('/')) : place;
  if (const size_t at = authority.rfind('@'); at != authority.npos) {
    if (std::string wrong = read_user(place.substr(0, at), address); !wrong.empty()) return wrong;
    place.remove_prefix(at + 1);
  }
  if (is_socket) {
    const auto path = unescaped(place);
    if (!path || !path->starts_with('/')) return "the path of a socket is absolute: unix:///path/to/socket";
    if (path->size() > 107) return "the path of a socket has at most 107 bytes";
    address.socket = *path;
  } else {
    if (std::string wrong = read_host(take_until(place, '/'), address); !wrong.empty()) return wrong;
    if (!place.empty() && !read_number(place, 0, 1 << 20, address.database))
      return "a database is a number: redis://host/0";
  }
  return read_options(options, address);
}

}  // namespace

std::string Address::name() const {
  if (!socket.empty()) return fmt::format("unix://{}", socket) + (database ? fmt::format("?db={}", database) : "");
  const bool brackets = host.find(':') != std::string::npos;
  return fmt::format("redis{}://{}{}{}:{}/{}", tls ? "s" : "", brackets ? "[" : "", host, brackets ? "]" : "", port,
                     database);
}

std::variant<Address, std::string> parse_address(std::string_view text) {
  Address address;
  std::string wrong = text.find('\0') != text.npos ? "an address has no zero byte" : read(text, address);
  if (!wrong.empty()) return wrong;
  return address;
}

}  // namespace kachel::redis
