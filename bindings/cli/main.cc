// kachel: the command. It stands on kachel.h alone, as any other host does.
#include <fmt/format.h>

#include "commands.h"
#include "options.h"

namespace kachel::cli {
namespace {

Outcome<Exit> dispatch(const Options& options) {
  switch (options.command) {
    case Command::kRun:
      return run(options);
    case Command::kTune:
      return tune(options);
    case Command::kExplain:
      return explain(options);
    case Command::kCompile:
      return compile(options);
    case Command::kCheck:
      return check(options);
    case Command::kCacheList:
    case Command::kCacheStat:
    case Command::kCacheClear:
    case Command::kCacheGc:
    case Command::kCacheVerify:
    case Command::kCacheExport:
    case Command::kCacheImport:
    case Command::kCacheTunings:
    case Command::kCacheLog:
      return cache(options);
    case Command::kDevices:
      return devices(options);
  }
  return Failure{};
}

Outcome<Exit> run_command(int argc, char** argv) {
  KACHEL_CLI_LET(options, parse_options(argc, argv));
  return options ? dispatch(*options) : Outcome<Exit>(Exit::kOk);
}

}  // namespace
}  // namespace kachel::cli

int main(int argc, char** argv) {
  auto outcome = kachel::cli::run_command(argc, argv);
  if (outcome.ok()) return static_cast<int>(*outcome);
  const kachel::cli::Failure& failure = outcome.failure();
  fmt::print(stderr, "kachel: {}\n", failure.message);
  if (!failure.log.empty()) fmt::print(stderr, "{}\n", failure.log);
  return static_cast<int>(failure.exit);
}
