// What a launch looks a specialisation up by: a few words on the stack.
#pragma once
#include <cstdint>

#include "runtime/engine/bind/argument_binder.h"

namespace kachel::runtime {

struct Signature {
  uint32_t count = 0;
  uint64_t hash = 0;
  uint64_t words[kMaxSignature];

  bool operator==(const Signature& other) const {
    bool same = hash == other.hash && count == other.count;
    for (uint32_t i = 0; same && i < count; ++i) same = words[i] == other.words[i];
    return same;
  }
};

// [device and policy, types, facts, static dimensions, key values, what conditions on configurations read, trials if
// any] `mode`: the policy in the low byte, what else of the settings decides in the two above it.
inline void make_signature(const BindTable& table, const BoundArguments& arguments, uint32_t mode, Signature& out) {
  uint32_t n = 0;
  out.words[n++] = static_cast<uint64_t>(static_cast<uint32_t>(arguments.device.type)) << 40 |
                   static_cast<uint64_t>(static_cast<uint32_t>(arguments.device.id)) << 8 | static_cast<uint8_t>(mode);
  out.words[n++] = arguments.types;
  out.words[n++] = arguments.facts;
  const HostInputs inputs = arguments.inputs();
  for (uint32_t i = 0; i < table.words; ++i) out.words[n++] = static_cast<uint64_t>(table.word[i].run(inputs));
  if (mode >> 8) [[unlikely]]
    out.words[n++] = mode >> 8;
  out.count = n;
  uint64_t hash = 0x9e3779b97f4a7c15ull;
  for (uint32_t i = 0; i < n; ++i) {
    hash = (hash ^ out.words[i]) * 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
  }
  out.hash = hash;
}

inline constexpr uint32_t kFactsWord = 2;  // its place in Signature::words

}  // namespace kachel::runtime
