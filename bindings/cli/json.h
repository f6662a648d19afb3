// JSON of what several commands report. Times are in nanoseconds, sizes in bytes; docs/command.md lists the fields.
#pragma once
#include <nlohmann/json.hpp>

#include "kachel.h"
#include "program.h"

namespace kachel::cli {

using Json = nlohmann::ordered_json;

Json json_of(const kachel_stats& stats);
Json json_of(const kachel_device_info& info);
Json json_of(const kachel_candidate& candidate);
Json json_of(const kachel_check_result& result);
Json json_of(const Program& program);  // kernel, dims, types of the tensors
void print_json(const Json& json);     // bytes that are not UTF-8 are replaced

}  // namespace kachel::cli
