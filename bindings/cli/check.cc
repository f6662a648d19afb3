#include <fmt/format.h>

#include "commands.h"
#include "json.h"
#include "program.h"

namespace kachel::cli {

// Every file is looked at, so that one run shows all that is wrong.
Outcome<Exit> check(const Options& options) {
  Options quiet = options;
  quiet.store_path = "";  // nothing here is worth opening the user's store for
  KACHEL_CLI_LET(session, Session::open(quiet, nullptr));
  Exit worst = Exit::kOk;
  Json results = Json::array();
  for (const std::string& file : options.files) {
    auto module = load_module(*session, file);
    if (!module.ok()) {
      const Failure& failure = module.failure();
      if (failure.exit != Exit::kRefused) return failure;
      worst = Exit::kRefused;
      if (!options.json) fmt::print(stderr, "{}\n", failure.message);
      results.push_back({{"file", file}, {"ok", false}, {"message", failure.message}});
      continue;
    }
    std::vector<std::string> names;
    for (int32_t i = 0; i < kachel_module_kernel_count(module->get()); ++i)
      names.push_back(kachel_module_kernel_name(module->get(), i));
    if (!options.json) {
      fmt::print("{}: ok:", file);
      for (const std::string& name : names) fmt::print(" {}", name);
      fmt::print("\n");
    }
    results.push_back({{"file", file}, {"ok", true}, {"kernels", names}});
  }
  if (options.json) print_json(results);
  return worst;
}

}  // namespace kachel::cli
