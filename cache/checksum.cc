#include "cache/checksum.h"

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kachel::cache {

Digest digest_of(std::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  Digest digest;
  static_assert(sizeof(canonical.digest) == sizeof(Digest));
  std::memcpy(digest.data(), canonical.digest, digest.size());
  return digest;
}

}  // namespace kachel::cache
