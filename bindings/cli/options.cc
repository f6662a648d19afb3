#include "options.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cctype>
#include <iostream>
#include <map>

#include "kachel.h"

namespace kachel::cli {
namespace {

// What the option parser fills before it is checked and converted.
struct Raw {
  std::vector<std::string> dims, types, consts, scalars, ranges;
  std::string store_path, policy = "blocking", what = "summary";
  bool memory_only = false;
};

Outcome<> split(const char* option, const char* example, const std::vector<std::string>& texts,
                std::vector<Assignment>* out) {
  for (const std::string& text : texts) {
    size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      return usage(std::string(option) + ": `" + text + "` is not NAME=VALUE; write " + option + " " + example);
    Assignment assignment{text.substr(0, equals), text.substr(equals + 1)};
    for (const Assignment& earlier : *out)
      if (earlier.name == assignment.name)
        return usage(std::string(option) + ": `" + assignment.name + "` is given twice");
    out->push_back(std::move(assignment));
  }
  return {};
}

// NAME=VALUE lists, separated by commas or by repeating the option.
CLI::Option* add_list(CLI::App* command, const char* names, std::vector<std::string>* values, const char* help) {
  return command->add_option(names, *values, help)->delimiter(',')->allow_extra_args(false);
}

void add_program(CLI::App* command, Options* options, Raw* raw) {
  command->footer("Options that every command has: kachel --help");
  command->add_option("FILE", options->files, "Tile program; - reads standard input")->required()->expected(1);
  command->add_option("-k,--kernel", options->kernel, "Kernel to use; needed where the file holds several");
  add_list(command, "-b,--bind", &raw->dims, "Dimensions, as M=512,N=512");
  add_list(command, "-t,--type", &raw->types, "Type symbols, as T=f16; default: the first that is listed");
  add_list(command, "-c,--const", &raw->consts, "Compile-time parameters, as causal=true");
  add_list(command, "-s,--scalar", &raw->scalars, "Run-time scalar arguments, as scale=0.5");
  command->add_option("-d,--device", options->device, "cpu, cuda or cuda:N; default: the first CUDA device, else cpu");
}

void add_data(CLI::App* command, Options* options, Raw* raw) {
  add_list(command, "-r,--range", &raw->ranges, "Range of a tensor's random elements, as index=0:99 (both included)");
  command->add_option("--seed", options->seed, "Seed of the random elements")->capture_default_str();
  command->add_option("--budget", options->budget_s, "Most seconds to spend on tuning")->check(CLI::PositiveNumber);
  command
      ->add_option("--trials", options->trials,
                   "Measure so many configurations, those from which the cost model expects most")
      ->check(CLI::Range(1, 65535));
}

// What is wrong with the first word that looks like an option and is none of the command's, or like an option's value
// behind another one, if there is such a word. What follows an option with a value is that value, whatever it looks
// like.
std::string stray_word(const CLI::App& app, int argc, const char* const* argv) {
  if (app.get_subcommands().empty()) return "";
  const auto find = [&](const std::string& name) -> const CLI::Option* {
    for (const CLI::App* command = &app;; command = command->get_subcommands().front()) {
      if (const CLI::Option* option = command->get_option_no_throw(name)) return option;
      if (command->get_subcommands().empty()) return nullptr;
    }
  };
  for (int i = 1; i < argc && std::string(argv[i]) != "--"; ++i) {
    const std::string word = argv[i];
    const bool is_long = word.rfind("--", 0) == 0;
    if (word[0] != '-' && word.find('=') != std::string::npos && word.find('/') == std::string::npos)
      return "`" + word + "` stands alone; values of one option have commas between them: -b M=512,N=512";
    if (word.size() < 2 || word[0] != '-' || (!is_long && !std::isalpha(static_cast<unsigned char>(word[1])))) continue;
    const std::string name = is_long ? word.substr(0, word.find('=')) : word.substr(0, 2);
    const CLI::Option* option = find(name);
    if (!option) return "there is no option `" + name + "` here";
    if (name == word && option->get_items_expected_max() > 0) ++i;
  }
  return "";
}

}  // namespace

Outcome<std::optional<Options>> parse_options(int argc, const char* const* argv) {
  Options options;
  Raw raw;
  CLI::App app("Runs, tunes and inspects Kachel tile programs.", "kachel");
  app.set_version_flag("--version", std::string(kachel_version()));
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--store", raw.store_path,
                 "Store of binaries and tuning results; default: $KACHEL_CACHE or the user's");
  app.add_flag("--no-store", raw.memory_only, "Keep nothing: neither read nor write a store")->excludes("--store");
  app.add_option("--remote", options.remote,
                 "Store that machines share, as redis://host:port/0, rediss://, or unix:///path/to/socket; \"\": none")
      ->envname("KACHEL_REMOTE");
  app.add_option("--threads", options.cpu_threads, "Threads of the CPU device; default: all cores")
      ->check(CLI::Range(1, 4096));
  app.add_flag("--stats", options.stats, "Say at the end what the engine did");
  app.add_flag("--json", options.json, "Print JSON");
  app.add_flag("--log-json", options.log_json, "The library's messages as lines of JSON, with all their fields");
  app.add_flag("-v,--verbose", options.verbosity, "Show the library's messages; twice: all of them");

  CLI::App* run = app.add_subcommand("run", "Launch a kernel on random data, time it, and check it on request");
  add_program(run, &options, &raw);
  add_data(run, &options, &raw);
  run->add_option("--policy", raw.policy, "off: best known, never measure; cached_only: fail on a miss; blocking: tune")
      ->check(CLI::IsMember({"off", "cached_only", "blocking"}))
      ->capture_default_str();
  run->add_option("--config", options.configuration, "Use exactly this configuration, as BM=64,BN=128");
  run->add_option("--repeat", options.repeat, "Timed launches")->check(CLI::Range(0, 1000000))->capture_default_str();
  run->add_flag("--check", options.check, "Compare with the reference interpreter (slow for large shapes)");

  CLI::App* tune = app.add_subcommand("tune", "Find the best configuration for a shape and keep it in the store");
  add_program(tune, &options, &raw);
  add_data(tune, &options, &raw);

  CLI::App* explain = app.add_subcommand("explain", "Show what a launch would run, and why");
  add_program(explain, &options, &raw);
  explain->add_option("--config", options.configuration, "Explain this configuration, as BM=64,BN=128");
  explain->add_option("--what", raw.what, "The choice and its reasons, the emitted text, or a stage of lowering")
      ->check(CLI::IsMember({"summary", "source", "tile", "loop"}))
      ->capture_default_str();

  explain->add_option("--target", options.targets, "Explain for this architecture, as sm_90a, which need not be there")
      ->allow_extra_args(false)
      ->expected(1);

  CLI::App* compile = app.add_subcommand("compile", "Compile ahead, for GPUs that need not be there, into the store");
  add_program(compile, &options, &raw);
  add_list(compile, "--target", &options.targets, "Architectures, as sm_80,sm_90a; default: the device");
  auto* most = compile->add_option("--most", options.most, "So many configurations, the most promising; default: all");
  compile->add_option("--config", options.configuration, "Only this configuration, as BM=64,BN=128")->excludes(most);

  CLI::App* check = app.add_subcommand("check", "Parse and verify programs; compile nothing");
  check->add_option("FILE", options.files, "Tile programs; - reads standard input")->required();

  CLI::App* cache = app.add_subcommand("cache", "Look at the store, check, shrink, ship or empty it");
  cache->require_subcommand(1);
  CLI::App* list = cache->add_subcommand("ls", "List the entries");
  CLI::App* stat = cache->add_subcommand("stat", "Where it is and how full");
  CLI::App* clear = cache->add_subcommand("clear", "Remove every entry");
  CLI::App* gc = cache->add_subcommand("gc", "Remove entries that were used longest ago");
  gc->add_option("--max-size", options.max_bytes, "What may stay, as 500MB or 2GB")
      ->required()
      ->transform(CLI::AsSizeValue(false));
  CLI::App* verify = cache->add_subcommand("verify", "Read every entry, and remove what is damaged");
  CLI::App* ship = cache->add_subcommand("export", "Copy every entry to the store in a folder, made if missing");
  CLI::App* take = cache->add_subcommand("import", "Copy every entry from the store in a folder");
  for (CLI::App* command : {ship, take})
    command->add_option("FOLDER", options.folder, "Path of the other store")->required();
  CLI::App* tunings = cache->add_subcommand("tunings", "Print decisions and samples as JSON, or take in such a text");
  tunings->add_option("--take", options.take, "File that `cache tunings` printed; - reads standard input");
  CLI::App* log = cache->add_subcommand("log", "What was stored, evicted, imported and so on, by whom and when");
  log->add_option("--last", options.last, "So many of the latest changes; default: all")->check(CLI::PositiveNumber);
  log->add_option("-k,--kernel", options.kernel, "Only entries of this kernel, and what concerns all");
  CLI::App* devices = app.add_subcommand("devices", "List the devices");

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    app.exit(request, std::cout, std::cerr);
    return std::optional<Options>();
  } catch (const CLI::ParseError& error) {
    if (argc > 1 && std::string(argv[1]) == "help") {
      const CLI::App* about = &app;
      for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
        if (argc > 2 && command->get_name() == argv[2]) about = command;
      std::cout << about->help();
      return std::optional<Options>();
    }
    if (app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-')
      return usage(std::string("there is no command `") + argv[1] +
                   "`; there is: run, tune, explain, compile, check, cache, devices");
    const std::string stray = stray_word(app, argc, argv);
    return usage((stray.empty() ? std::string(error.what()) : stray) +
                 "\nRun `kachel --help`, or `kachel COMMAND --help`, for what there is.");
  }

  const std::pair<CLI::App*, Command> commands[] = {
      {run, Command::kRun},
      {tune, Command::kTune},
      {explain, Command::kExplain},
      {compile, Command::kCompile},
      {check, Command::kCheck},
      {list, Command::kCacheList},
      {stat, Command::kCacheStat},
      {clear, Command::kCacheClear},
      {gc, Command::kCacheGc},
      {verify, Command::kCacheVerify},
      {ship, Command::kCacheExport},
      {take, Command::kCacheImport},
      {tunings, Command::kCacheTunings},
      {log, Command::kCacheLog},
      {devices, Command::kDevices},
  };
  for (const auto& [parsed, command] : commands)
    if (parsed->parsed()) options.command = command;

  KACHEL_CLI_TRY(split("--bind", "M=512,N=512", raw.dims, &options.dims));
  KACHEL_CLI_TRY(split("--type", "T=f16", raw.types, &options.types));
  KACHEL_CLI_TRY(split("--const", "causal=true", raw.consts, &options.consts));
  KACHEL_CLI_TRY(split("--scalar", "scale=0.5", raw.scalars, &options.scalars));
  KACHEL_CLI_TRY(split("--range", "index=0:99", raw.ranges, &options.ranges));
  if (raw.memory_only) options.store_path = "";
  if (!raw.store_path.empty()) options.store_path = raw.store_path;
  const std::map<std::string, int32_t> policies = {
      {"off", KACHEL_POLICY_OFF}, {"cached_only", KACHEL_POLICY_CACHED_ONLY}, {"blocking", KACHEL_POLICY_BLOCKING}};
  options.policy = policies.at(raw.policy);
  const std::map<std::string, int32_t> whats = {{"summary", KACHEL_EXPLAIN_SUMMARY},
                                                {"source", KACHEL_EXPLAIN_SOURCE},
                                                {"tile", KACHEL_EXPLAIN_TILE_IR},
                                                {"loop", KACHEL_EXPLAIN_LOOP_IR}};
  options.what = whats.at(raw.what);
  return std::optional<Options>(std::move(options));
}

}  // namespace kachel::cli
