// How many blocks a launch has. Blocks of few threads have little to do, and may be over before the device has begun as
// many as it holds: it begins one each 1.2 ns (H200). They go on to further tiles where the grid has many for each that
// runs at once; not where it has fewer, since the device deals out tiles as blocks end, and a block only its own.
#pragma once
#include <algorithm>
#include <cstdint>

namespace kachel::lowering {

inline constexpr int kFewThreads = 64, kTilesOfFew = 8;

// Of kernels that are not resident (Lowered::resident). `at_once`: blocks that the device holds.
inline int64_t launched_blocks(int64_t tiles, int threads, int64_t at_once) {
  return threads <= kFewThreads ? std::min(tiles, kTilesOfFew * at_once) : tiles;
}

}  // namespace kachel::lowering
