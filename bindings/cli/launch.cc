#include "launch.h"

namespace kachel::cli {

Outcome<Launch> prepare_launch(const Options& options, int32_t policy, ProgressReporter* progress,
                               const std::string& target) {
  Launch launch;
  KACHEL_CLI_LET(session, Session::open(options, progress, target));
  launch.session = std::move(session);
  KACHEL_CLI_LET(program, load_program(*launch.session, options));
  launch.program = std::move(program);
  KACHEL_CLI_LET(device, launch.session->device(options.device));
  launch.device = device;
  KACHEL_CLI_LET(arguments, Arguments::make(*launch.session, launch.program, device.device, options));
  launch.arguments = std::move(arguments);
  launch.options.struct_size = sizeof launch.options;
  launch.options.policy = policy;
  launch.options.configuration = options.configuration.empty() ? nullptr : options.configuration.c_str();
  return launch;
}

std::string serving_configuration(const Launch& launch) {
  kachel_text* text = nullptr;
  auto got = attempt([&](kachel_error** err) {
    return kachel_explain(launch.program.kernel.get(), launch.arguments->data(), launch.arguments->size(),
                          &launch.options, KACHEL_EXPLAIN_CONFIGURATION, &text, err);
  });
  if (!got.ok()) return "";
  std::string configuration(kachel_text_data(text), kachel_text_size(text));
  kachel_text_release(text);
  return configuration;
}

}  // namespace kachel::cli
