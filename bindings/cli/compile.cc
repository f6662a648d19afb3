#include <fmt/format.h>

#include "commands.h"
#include "json.h"
#include "launch.h"

namespace kachel::cli {
namespace {

struct Made {
  std::string architecture;
  kachel_compiled counts{};
};

Outcome<Made> compile_for(const Options& options, const std::string& target) {
  KACHEL_CLI_LET(launch, prepare_launch(options, KACHEL_POLICY_OFF, nullptr, target));
  Made made{launch.device.architecture, {}};
  made.counts.struct_size = sizeof made.counts;
  KACHEL_CLI_TRY(attempt([&](kachel_error** err) {
    return kachel_compile(launch.program.kernel.get(), launch.arguments->data(), launch.arguments->size(),
                          &launch.options, options.most, &made.counts, err);
  }));
  return made;
}

}  // namespace

Outcome<Exit> compile(const Options& options) {
  if (options.store_path && options.store_path->empty())
    return usage("compile keeps what it makes in the store; leave out --no-store");
  if (!options.targets.empty() && !options.device.empty())
    return usage("--target stands for a device that need not be there; leave out --device");
  const std::vector<std::string> here = {""};
  Json list = Json::array();
  for (const std::string& target : options.targets.empty() ? here : options.targets) {
    KACHEL_CLI_LET(made, compile_for(options, target));
    const kachel_compiled& counts = made.counts;
    if (options.json)
      list.push_back({{"architecture", made.architecture},
                      {"compiled", counts.compiled},
                      {"present", counts.present},
                      {"refused", counts.refused}});
    else
      fmt::print("{}: {} compiled, {} there before, {} cannot be built{}\n", made.architecture, counts.compiled,
                 counts.present, counts.refused, counts.refused && options.verbosity == 0 ? " (-v says why)" : "");
  }
  if (options.json) print_json(list);
  return Exit::kOk;
}

}  // namespace kachel::cli
