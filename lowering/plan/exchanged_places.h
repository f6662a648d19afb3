// Who holds the elements whose coordinate along an axis differs in some bits: x[i, d ^ 8].
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "lowering/plan/fragment_layout.h"

namespace kachel::lowering {

struct ExchangedPlaces {
  std::vector<int64_t> registers;  // by register of a thread: the other thread's
  int64_t thread_bits = 0;         // in which the other thread's number differs; 0: it is the same thread
};
// Nothing where the axis is ragged, or the bits are no bits of a thread's number.
std::optional<ExchangedPlaces> exchanged_places(const FragmentLayout& layout, size_t axis, int64_t bits);

}  // namespace kachel::lowering
