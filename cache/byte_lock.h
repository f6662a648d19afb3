// Open-file-description locks on single bytes of a file: what guard files and claims are made of. A lock belongs to the
// open file; the kernel drops it when that is closed for the last time.
#pragma once
#include <cstdint>
#include <functional>

namespace kachel::cache {

enum class ByteLock : short { kNone, kShared, kExclusive };

// False where somebody else's lock forbids it. Replaces what this open file holds there.
bool set_byte_lock(int descriptor, int64_t at, ByteLock lock);

// Tries until it succeeds, with pauses that double from the first to the last one, for at most `wait_us`. Polling, so
// that a stopped holder cannot hang its peers.
bool retry(uint64_t wait_us, uint64_t first_pause_us, uint64_t last_pause_us, const std::function<bool()>& attempt);

}  // namespace kachel::cache
