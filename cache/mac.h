// Message authentication: whoever holds the key can tell what others that hold it have written. The MAC is keyed
// BLAKE2b-256; see FORMAT.md, "Authentication".
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "support/status.h"

namespace kachel::cache {

using Mac = std::array<uint8_t, 32>;

// Keys, never empty. Immutable; wiped when it goes.
class MacKeys {
 public:
  static constexpr size_t kLeastBytes = 16, kMostBytes = 4096;

  // The first signs, all are accepted, so that keys can be exchanged one after another. Each is any bytes that others
  // cannot guess. kInvalid for none, for one that is too short or too long.
  static Result<std::shared_ptr<const MacKeys>> create(const std::vector<std::string_view>& secrets);
  ~MacKeys();
  MacKeys(const MacKeys&) = delete;
  MacKeys& operator=(const MacKeys&) = delete;

  Mac sign(std::string_view bytes) const;
  // In a time that does not depend on where two MACs differ.
  bool accepts(std::string_view bytes, std::string_view mac) const;

 private:
  MacKeys() = default;
  std::vector<std::array<uint8_t, 32>> keys_;
};

}  // namespace kachel::cache
