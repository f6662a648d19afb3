// libFuzzer entry for the decoders of what lies on disk. Whatever decodes must encode to the same bytes.
#include <cstdlib>

#include "cache/key.h"
#include "cache/record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kachel::cache;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (auto record = decode(bytes); record.ok()) {
    Key key{record->kind, digest_of(record->key), std::string(record->key)};
    if (encode(key, record->payload, record->created_us) != bytes) std::abort();
  }
  // A fuzzer does not guess checksums, so that the part behind them gets inputs of its own.
  std::string sealed(bytes);
  kachel::cache::Digest sum = digest_of(sealed);
  sealed.append(reinterpret_cast<const char*>(sum.data()), sum.size());
  if (auto record = decode(sealed); record.ok() && record->key.size() + record->payload.size() > size) std::abort();
  (void)describe_key(bytes);
  return 0;
}
