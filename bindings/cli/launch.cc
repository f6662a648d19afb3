#include "launch.h"

namespace kachel::cli {

Outcome<Launch> prepare_launch(const Options& options, int32_t policy, ProgressReporter* progress) {
  Launch launch;
  KACHEL_CLI_LET(session, Session::open(options, progress));
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

std::string tuned_configuration(const Launch& launch) {
  kachel_tuning* found = nullptr;
  auto got = attempt([&](kachel_error** err) {
    return kachel_tuning_get(launch.program.kernel.get(), launch.arguments->data(), launch.arguments->size(), &found,
                             err);
  });
  TuningHandle tuning(found);
  kachel_candidate winner{};
  winner.struct_size = sizeof winner;
  if (!got.ok() || kachel_tuning_winner(found) < 0 ||
      kachel_tuning_candidate(found, kachel_tuning_winner(found), &winner) != KACHEL_OK)
    return "";
  return winner.configuration;
}

}  // namespace kachel::cli
