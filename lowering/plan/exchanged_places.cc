#include "lowering/plan/exchanged_places.h"

#include <bit>
#include <numeric>

namespace kachel::lowering {
namespace {

bool is_power_of_two(int64_t value) {
  return std::has_single_bit(static_cast<uint64_t>(value));
}

}  // namespace

std::optional<ExchangedPlaces> exchanged_places(const FragmentLayout& layout, size_t axis, int64_t bits) {
  if (layout.ragged(axis)) return std::nullopt;
  ExchangedPlaces places;
  places.registers.resize(static_cast<size_t>(layout.registers()));
  std::iota(places.registers.begin(), places.registers.end(), 0);
  for (const FragmentLayout::Digit& digit : layout.axes()[axis]) {
    if (!is_power_of_two(digit.radix)) return std::nullopt;
    const int64_t own = bits & (digit.radix - 1);
    bits /= digit.radix;
    if (!own) continue;
    if (digit.in_thread) {
      if (!is_power_of_two(digit.stride)) return std::nullopt;
      places.thread_bits |= own * digit.stride;
      continue;
    }
    for (size_t i = 0; i < places.registers.size(); ++i) {
      const int64_t value = static_cast<int64_t>(i) / digit.stride % digit.radix;
      places.registers[i] += ((value ^ own) - value) * digit.stride;
    }
  }
  return bits ? std::nullopt : std::optional(places);
}

}  // namespace kachel::lowering
