// Fields and bytes of words, and products of bytes.
#include <algorithm>

#include "tests/lowering/ptx_machine_functions.h"

namespace kachel::lowering {
namespace {

uint32_t ones(uint32_t count) {
  return count >= 32 ? ~0u : (1u << count) - 1;
}

// Past the word, a field is filled with its sign.
template <bool kSigned>
uint64_t extract(PtxOperands x) {
  const auto a = static_cast<uint32_t>(x[0]);
  const uint32_t first = x[1] & 0xff, count = x[2] & 0xff;
  if (count == 0) return 0;
  const uint32_t last = std::min(first + count - 1, 31u);
  const bool negative = kSigned && (a >> last & 1);
  const uint32_t field = first < 32 ? a >> first & ones(count) : 0;
  const uint32_t there = first < 32 ? std::min(count, 32 - first) : 0;
  return negative ? field | ~ones(there) : field;
}

uint64_t insert(PtxOperands x) {
  const auto from = static_cast<uint32_t>(x[0]), into = static_cast<uint32_t>(x[1]);
  const uint32_t first = x[2] & 0xff, count = x[3] & 0xff;
  if (first >= 32) return into;
  const uint32_t mask = ones(count) << first;
  return (into & ~mask) | (from << first & mask);
}

// A selector's fourth bit asks for the sign of its byte.
uint64_t permute(PtxOperands x) {
  const uint64_t bytes = (x[0] & 0xffffffff) | x[1] << 32;
  uint32_t out = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint64_t selector = x[2] >> 4 * i & 15;
    auto byte = static_cast<uint32_t>(bytes >> 8 * (selector & 7) & 0xff);
    if (selector & 8) byte = byte & 0x80 ? 0xff : 0;
    out |= byte << 8 * i;
  }
  return out;
}

// Bit 4 a + 2 b + c of the table.
uint64_t look_up(PtxOperands x) {
  uint32_t out = 0;
  for (uint32_t i = 0; i < 32; ++i) {
    const uint64_t row = 4 * (x[0] >> i & 1) + 2 * (x[1] >> i & 1) + (x[2] >> i & 1);
    out |= static_cast<uint32_t>(x[3] >> row & 1) << i;
  }
  return out;
}

uint64_t funnel_right(PtxOperands x) {
  return (x[1] << 32 | (x[0] & 0xffffffff)) >> (x[2] & 31);
}
uint64_t funnel_left(PtxOperands x) {
  return (x[1] << 32 | (x[0] & 0xffffffff)) << (x[2] & 31) >> 32;
}

template <class A, class B>
uint64_t dot(PtxOperands x) {
  auto sum = static_cast<uint32_t>(x[2]);
  for (uint32_t i = 0; i < 4; ++i) {
    const int32_t a = from_ptx<A>(x[0] >> 8 * i), b = from_ptx<B>(x[1] >> 8 * i);
    sum += static_cast<uint32_t>(a * b);
  }
  return sum;
}

}  // namespace

void define_bits(PtxFunctions* all) {
  (*all)["bfe.u32"] = extract<false>;
  (*all)["bfe.s32"] = extract<true>;
  (*all)["bfi.b32"] = insert;
  (*all)["prmt.b32"] = permute;
  (*all)["lop3.b32"] = look_up;
  (*all)["shf.r.wrap.b32"] = funnel_right;
  (*all)["shf.l.wrap.b32"] = funnel_left;
  (*all)["dp4a.s32.s32"] = dot<int8_t, int8_t>;
  (*all)["dp4a.u32.u32"] = dot<uint8_t, uint8_t>;
  (*all)["dp4a.s32.u32"] = dot<int8_t, uint8_t>;
  (*all)["dp4a.u32.s32"] = dot<uint8_t, int8_t>;
}

}  // namespace kachel::lowering
