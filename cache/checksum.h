// The one hash of the cache: XXH3-128. It names keys and detects damage; it authenticates nothing.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace kachel::cache {

using Digest = std::array<uint8_t, 16>;

// In the canonical (big-endian) byte order of xxHash, the same on every machine.
Digest digest_of(std::string_view bytes);

}  // namespace kachel::cache
