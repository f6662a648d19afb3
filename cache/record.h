// The record: the envelope in which an entry lies on disk. See FORMAT.md, "Records".
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "cache/key.h"
#include "support/status.h"

namespace kachel::cache {

// Views into the bytes that were decoded.
struct Record {
  Kind kind;
  uint64_t created_us;  // since 1970, UTC
  std::string_view key;
  std::string_view payload;
};

std::string encode(const Key& key, std::string_view payload, uint64_t created_us);

// Accepts exactly what encode() wrote: any other bytes, however hostile, give a Status of Code::kStore that says what
// is wrong with them. Never reads outside `bytes`.
Result<Record> decode(std::string_view bytes);

}  // namespace kachel::cache
