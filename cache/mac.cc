#include "cache/mac.h"

#include <blake2.h>
#include <fmt/format.h>
#include <string.h>

namespace kachel::cache {
namespace {

// Keys of the same bytes that serve something else are other keys.
constexpr std::string_view kPurpose = "kachel record key 1";

Mac mac_of(std::string_view bytes, const std::array<uint8_t, 32>& key) {
  Mac mac;
  blake2b(mac.data(), bytes.data(), key.data(), mac.size(), bytes.size(), key.size());
  return mac;
}

}  // namespace

Result<std::shared_ptr<const MacKeys>> MacKeys::create(const std::vector<std::string_view>& secrets) {
  if (secrets.empty()) return invalid("a key for records is needed; none was given");
  std::shared_ptr<MacKeys> keys(new MacKeys);
  keys->keys_.reserve(secrets.size());  // no copies are left behind
  for (std::string_view secret : secrets) {
    if (secret.size() < kLeastBytes || secret.size() > kMostBytes)
      return invalid(fmt::format("a key for records has {} bytes; use {} to {}, 32 of them random", secret.size(),
                                 kLeastBytes, kMostBytes));
    // One length for all secrets: a key of BLAKE2b is.
    blake2b(keys->keys_.emplace_back().data(), secret.data(), kPurpose.data(), 32, secret.size(), kPurpose.size());
  }
  return std::shared_ptr<const MacKeys>(std::move(keys));
}

MacKeys::~MacKeys() {
  for (auto& key : keys_) ::explicit_bzero(key.data(), key.size());
}

Mac MacKeys::sign(std::string_view bytes) const {
  return mac_of(bytes, keys_.front());
}

bool MacKeys::accepts(std::string_view bytes, std::string_view mac) const {
  if (mac.size() != sizeof(Mac)) return false;
  for (const auto& key : keys_) {
    const Mac right = mac_of(bytes, key);
    volatile uint8_t difference = 0;
    for (size_t i = 0; i < right.size(); ++i) difference = difference | (right[i] ^ static_cast<uint8_t>(mac[i]));
    if (difference == 0) return true;
  }
  return false;
}

}  // namespace kachel::cache
