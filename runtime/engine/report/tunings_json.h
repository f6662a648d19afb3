// Tunings as a text that other programs read and another store takes in: decisions and samples, without binaries.
//
//   { "kachel_tunings": 1, "bodies": ["kernel <T0>(..."], "entries": [ {
//       "kind": "tuning" | "sample", "kernel": "matmul", "description": "BM=64,BN=128 on NVIDIA H200",
//       "key_values": [4096, 4096], "device": "NVIDIA H200", "driver": "580.65/cuda-13.0",
//       of a tuning  "candidates": 12, "ranked": [ {"median_ns": ..., "low_ns": ..., "high_ns": ...} ],
//       of a sample  "state": "measured", "message": "", "median_ns": ..., "sessions": [ [ns, ...] ],
//       "body": 0, "body_at": 31, "key": "...", "record": "..." } ] }
//
// What is taken in is the last line: in hexadecimal the store's key without the program's canonical body, which stands
// once in `bodies`, and the record. All else is there to be read.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "cache/store.h"
#include "support/status.h"

namespace kachel::runtime {

Result<std::string> tunings_to_json(cache::Store& store);
// All of them or, where one is not what this library writes, none: kInvalid, with which. How many were stored.
Result<uint64_t> tunings_from_json(cache::Store& store, std::string_view text);

}  // namespace kachel::runtime
