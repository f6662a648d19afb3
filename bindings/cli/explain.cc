#include <cstdio>

#include "commands.h"
#include "json.h"
#include "launch.h"

namespace kachel::cli {

Outcome<Exit> explain(const Options& options) {
  KACHEL_CLI_LET(launch, prepare_launch(options, KACHEL_POLICY_OFF, nullptr,
                                        options.targets.empty() ? "" : options.targets.front()));
  kachel_text* made = nullptr;
  KACHEL_CLI_TRY(attempt([&](kachel_error** err) {
    return kachel_explain(launch.program.kernel.get(), launch.arguments->data(), launch.arguments->size(),
                          &launch.options, options.what, &made, err);
  }));
  TextHandle text(made);
  if (options.json) {
    Json json = json_of(launch.program);
    json["device"] = device_name(launch.device.device);
    json["text"] = std::string(kachel_text_data(made), kachel_text_size(made));
    if (options.stats) json["stats"] = json_of(launch.session->stats());
    print_json(json);
    return Exit::kOk;
  }
  size_t size = kachel_text_size(made);
  std::fwrite(kachel_text_data(made), 1, size, stdout);
  if (size > 0 && kachel_text_data(made)[size - 1] != '\n') std::fputc('\n', stdout);
  if (options.stats) print_stats(launch.session->stats());
  return Exit::kOk;
}

}  // namespace kachel::cli
