#include "json.h"

#include <cstdio>

#include "format.h"

namespace kachel::cli {

Json json_of(const kachel_stats& stats) {
  return {
      {"launches", stats.launches},
      {"compiles", stats.compiles},
      {"loads", stats.loads},
      {"measurements", stats.measurements},
      {"tunings", stats.tunings},
      {"lowerings", stats.lowerings},
      {"specialisations", stats.specialisations},
      {"store_hits", stats.store_hits},
      {"store_misses", stats.store_misses},
      {"store_puts", stats.store_puts},
      {"store_damaged", stats.store_damaged},
      {"store_layer_hits", stats.store_layer_hits},
      {"workers", stats.workers},
      {"workers_lost", stats.workers_lost},
      {"store_refused_macs", stats.store_refused_macs},
      {"remote_hits", stats.remote_hits},
      {"remote_misses", stats.remote_misses},
      {"remote_puts", stats.remote_puts},
      {"remote_errors", stats.remote_errors},
      {"remote_skipped", stats.remote_skipped},
      {"nvrtc_opened", stats.nvrtc_opened != 0},
      {"llvm_opened", stats.llvm_opened != 0},
      {"last_load_ns", stats.last_load_ns},
  };
}

Json json_of(const kachel_device_info& info) {
  return {
      {"device", device_name(info.device)}, {"name", info.name},
      {"architecture", info.architecture},  {"driver", info.driver},
      {"compiler", info.compiler},          {"multiprocessors", info.multiprocessors},
      {"memory_bytes", info.memory_bytes},  {"shared_bytes_per_block", info.shared_bytes_per_block},
      {"l2_bytes", info.l2_bytes},
  };
}

Json json_of(const kachel_candidate& candidate) {
  Json json = {
      {"configuration", candidate.configuration},
      {"state", candidate_state_name(candidate.state)},
      {"samples", candidate.samples},
      {"median_ns", nullptr},
      {"low_ns", nullptr},
      {"high_ns", nullptr},
      {"predicted_ns", nullptr},
      {"compile_ns", candidate.compile_ns},
      {"registers", candidate.registers},
      {"shared_bytes", candidate.shared_bytes},
      {"spill_bytes", candidate.spill_bytes},
      {"message", candidate.message},
  };
  if (candidate.samples > 0) {
    json["median_ns"] = candidate.median_ns;
    json["low_ns"] = candidate.low_ns;
    json["high_ns"] = candidate.high_ns;
  }
  if (candidate.predicted_ns > 0) json["predicted_ns"] = candidate.predicted_ns;
  return json;
}

Json json_of(const kachel_check_result& result) {
  return {
      {"elements", result.elements},   {"mismatches", result.mismatches},
      {"undecided", result.undecided}, {"median_bound_ulps", result.median_bound_ulps},
      {"first", result.first},
  };
}

Json json_of(const Program& program) {
  Json dims = Json::object(), tensors = Json::array();
  for (size_t i = 0; i < program.dims.size(); ++i) dims[program.dim_names[i]] = program.dims[i];
  for (const Parameter& parameter : program.parameters)
    if (parameter.kind != KACHEL_SCALAR)
      tensors.push_back({{"name", parameter.name}, {"type", parameter.type}, {"shape", parameter.shape}});
  return {{"kernel", program.name()}, {"dims", std::move(dims)}, {"tensors", std::move(tensors)}};
}

void print_json(const Json& json) {
  std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace kachel::cli
