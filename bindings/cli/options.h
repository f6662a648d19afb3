// The command line as values. parse_options() is the only code that knows the option parser.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "outcome.h"

namespace kachel::cli {

enum class Command {
  kRun,
  kTune,
  kExplain,
  kCompile,
  kCheck,
  kCacheList,
  kCacheStat,
  kCacheClear,
  kCacheGc,
  kCacheVerify,
  kCacheExport,
  kCacheImport,
  kCacheTunings,
  kCacheLog,
  kDevices
};

// `NAME=VALUE` of --bind, --type, --const, --scalar and --range.
struct Assignment {
  std::string name, value;
};

struct Options {
  Command command = Command::kDevices;

  // Every command.
  std::optional<std::string> store_path;  // unset: the library's default; "": memory only
  std::string remote;                     // address of a store that machines share; "": none
  int verbosity = 0;                      // 1: the library's informative messages, 2: all of them
  bool log_json = false;                  // its messages as lines of JSON
  int cpu_threads = 0;
  bool json = false;
  bool stats = false;

  // Commands that take a program.
  std::vector<std::string> files;  // exactly one, except for check
  std::string kernel;              // "": the only one
  std::vector<Assignment> dims, types, consts, scalars, ranges;
  std::string device;  // "": the first there is
  uint64_t seed = 1;

  // run, tune, explain.
  int32_t policy = 0;         // KACHEL_POLICY_*
  std::string configuration;  // "": the policy's choice
  double budget_s = 0;        // 0: the library's default
  uint32_t trials = 0;        // 0: the library's default
  int repeat = 20;
  bool check = false;
  int32_t what = 0;                  // KACHEL_EXPLAIN_*
  std::vector<std::string> targets;  // of explain, at most one; architectures instead of the devices that are there
  uint32_t most = 0;                 // configurations to compile; 0: all

  // cache gc, export, import.
  uint64_t max_bytes = 0;
  std::string folder;
  uint64_t last = 0;  // of cache log: so many of the latest changes; 0: all
  std::string take;   // of cache tunings: a file to take in; "": print
};

// Unset where the process has nothing left to do (--help, --version): it has been printed.
Outcome<std::optional<Options>> parse_options(int argc, const char* const* argv);

}  // namespace kachel::cli
