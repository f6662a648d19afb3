// Canonical bytes: little-endian, length-prefixed. Keys and records are written with ByteWriter and read with
// ByteReader, which never reads past its input: a short or malformed input turns ok() false and yields zeros.
#pragma once
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace kachel {

class ByteWriter {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  void put(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes_.append(raw, sizeof(T));
  }
  void put_bytes(std::string_view bytes) {
    put<uint64_t>(bytes.size());
    bytes_.append(bytes);
  }
  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <class T>
    requires std::is_arithmetic_v<T>
  T get() {
    T value{};
    if (rest_.size() < sizeof(T)) {
      fail();
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return value;
  }
  // Views into the input: as many bytes as it says itself, and `size` of them.
  std::string_view get_bytes() { return get_raw(get<uint64_t>()); }
  std::string_view get_raw(uint64_t size) {
    if (size > rest_.size()) {
      fail();
      return {};
    }
    std::string_view value = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return value;
  }
  // A count of items of at least `item_size` bytes each; an absurd count fails instead of allocating.
  uint64_t get_count(size_t item_size) {
    uint64_t count = get<uint64_t>();
    if (item_size == 0 || count > rest_.size() / item_size) {
      if (count != 0) fail();
      return 0;
    }
    return count;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }

 private:
  void fail() {
    ok_ = false;
    rest_ = {};
  }
  std::string_view rest_;
  bool ok_ = true;
};

// Lower-case hex of any bytes, for logs and listings.
std::string to_hex(std::string_view bytes);
// Nothing unless it is an even number of hexadecimal digits, of either case.
std::optional<std::string> from_hex(std::string_view text);

}  // namespace kachel
