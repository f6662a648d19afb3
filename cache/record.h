// The record: the envelope in which an entry lies on disk. See FORMAT.md, "Records".
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "cache/key.h"
#include "cache/mac.h"
#include "support/status.h"

namespace kachel::cache {

// Views into the bytes that were decoded.
struct Record {
  Kind kind;
  uint64_t created_us;  // since 1970, UTC
  std::string_view key;
  std::string_view payload;
  std::string_view covered;  // what the MAC is of: all bytes before it
  std::string_view mac;      // "" without one
};

// With a MAC where there are keys; `keys` may be null.
std::string encode(const Key& key, std::string_view payload, uint64_t created_us, const MacKeys* keys = nullptr);

// Accepts exactly what encode() wrote: any other bytes, however hostile, give a Status of Code::kStore that says what
// is wrong with them. Never reads outside `bytes`. A MAC is found, not judged: see authentic().
Result<Record> decode(std::string_view bytes);

// Whether somebody who holds one of the keys has written it.
bool authentic(const Record& record, const MacKeys& keys);

}  // namespace kachel::cache
