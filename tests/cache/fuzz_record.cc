// libFuzzer entry for the decoders of what lies on disk and comes from elsewhere. Whatever decodes must encode to the
// same bytes, and nothing that a fuzzer finds is authentic but what was signed here.
#include <cstdlib>

#include "cache/key.h"
#include "cache/record.h"

namespace {

using namespace kachel::cache;

const MacKeys& keys() {
  static const auto instance = *MacKeys::create({"the key of the fuzzer"});
  return *instance;
}

void look_at(std::string_view bytes) {
  auto record = decode(bytes);
  if (!record.ok()) return;
  if (record->key.size() + record->payload.size() + record->mac.size() > bytes.size()) std::abort();
  const Key key{record->kind, digest_of(record->key), std::string(record->key)};
  const bool has_mac = !record->mac.empty();
  const std::string again = encode(key, record->payload, record->created_us, has_mac ? &keys() : nullptr);
  if (!has_mac && again != bytes) std::abort();
  if (authentic(*record, keys()) != (has_mac && again == bytes)) std::abort();
  if (auto signed_here = decode(again); !signed_here.ok() || authentic(*signed_here, keys()) != has_mac) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  look_at(bytes);
  // A fuzzer guesses neither checksums nor MACs, so that the parts behind them get inputs of their own.
  auto sealed = [](std::string body) {
    const Digest sum = digest_of(body);
    return body.append(reinterpret_cast<const char*>(sum.data()), sum.size());
  };
  look_at(sealed(std::string(bytes)));
  const Mac mac = keys().sign(bytes);
  look_at(sealed(std::string(bytes).append(reinterpret_cast<const char*>(mac.data()), mac.size())));
  (void)describe_key(bytes);
  return 0;
}
