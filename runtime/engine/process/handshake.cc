#include "runtime/engine/process/handshake.h"

#include "support/bytes.h"

namespace kachel::runtime {
namespace {

constexpr uint32_t kMagic = 0x6c65484b;  // "KHel"

}  // namespace

std::string encode_hello(const Hello& hello) {
  ByteWriter out;
  out.put(kMagic);
  out.put(hello.protocol);
  out.put_bytes(hello.build);
  return out.take();
}

std::optional<Hello> decode_hello(std::string_view bytes) {
  ByteReader in(bytes);
  if (in.get<uint32_t>() != kMagic) return std::nullopt;
  Hello hello;
  hello.protocol = in.get<uint32_t>();
  hello.build = in.get_bytes();
  // What a later version appends does not keep an earlier one from naming it.
  return in.ok() ? std::optional(std::move(hello)) : std::nullopt;
}

}  // namespace kachel::runtime
