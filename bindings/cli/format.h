// Numbers as people read them.
#pragma once
#include <cstdint>
#include <string>

namespace kachel::cli {

std::string format_ns(double ns);           // three digits: "12.3 us"
std::string format_bytes(int64_t bytes);    // "1.50 MiB"; "-" if negative
std::string format_time(int64_t unix_s);    // local time: "2030-01-31 09:15"
std::string format_time_s(int64_t unix_s);  // "2030-01-31 09:15:07"
// A CPU's architecture without its list of features, also inside a sentence: "x86-64/x86-64-v4/..".
std::string without_features(std::string text);
const char* candidate_state_name(int32_t state);

}  // namespace kachel::cli
