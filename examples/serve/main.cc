// An inference server without a network: requests arrive over time, prompts and next tokens run through a module of
// tile programs, and the latencies under each tuning policy are compared, with an empty store and with a filled one.
//
//   serve layer.tile [--requests N] [--rate R] [--policy off|blocking|background] [--store FOLDER]
//                    [--plot FILE.svg] [--json] [--no-graphs]
//   serve layer.tile --check
//
// On a GPU, steps for next tokens are replayed as CUDA graphs unless --no-graphs says otherwise.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>

#include "plot.h"
#include "traffic.h"

namespace serve {
namespace {

struct Options {
  std::string file, store, policy, plot;  // policy "": all of them, one after the other
  Traffic traffic;
  bool check = false, json = false, graphs = true;
};

struct Policy {
  const char* name;
  int32_t value;
};
constexpr Policy kPolicies[] = {
    {"off", KACHEL_POLICY_OFF}, {"blocking", KACHEL_POLICY_BLOCKING}, {"background", KACHEL_POLICY_BACKGROUND}};

Handle<kachel_engine> open_engine(const std::string& store, int32_t policy) {
  auto options = sized<kachel_engine_options>();
  options.store_path = store.c_str();
  options.policy = policy;
  options.tune_budget_ns = 2'000'000'000;
  kachel_engine* engine = nullptr;
  must([&](kachel_error** error) { return kachel_engine_create(&options, &engine, error); });
  return Handle<kachel_engine>(engine);
}

kachel_device first_device(kachel_engine* engine) {
  auto info = sized<kachel_device_info>();
  must([&](kachel_error** error) { return kachel_engine_device_info(engine, 0, &info, error); });
  return info.device;
}

kachel_stats stats_of(kachel_engine* engine) {
  auto stats = sized<kachel_stats>();
  must(kachel_engine_stats(engine, &stats), nullptr);
  return stats;
}

std::string text_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error(file + ": cannot be read");
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Tokens of a full batch a second, once everything has been seen.
double full_speed(Model& model, const Shape& shape) {
  std::vector<int32_t> slots, positions;
  for (int32_t slot = 0; slot < shape.slots; ++slot) {
    model.prefill(slot, 100);
    slots.push_back(slot);
    positions.push_back(100);
  }
  constexpr int kWarm = 10, kSteps = 100;
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kWarm + kSteps; ++i) {
    if (i == kWarm) start = std::chrono::steady_clock::now();
    model.decode(slots, positions);
    for (int32_t& position : positions) ++position;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return static_cast<double>(kSteps * shape.slots) / seconds;
}

struct Row {
  std::string policy, store;
  Served served;
  double full_speed = 0;
  kachel_stats stats{};
};

Row run(const Options& options, const Policy& policy, const std::string& store, const char* state) {
  const Shape shape;
  Handle<kachel_engine> engine = open_engine(store, policy.value);
  Model model(engine.get(), first_device(engine.get()), text_of(options.file), shape, options.graphs);
  // Bound calls keep what they were bound to: whenever something has been tuned since, they are bound anew.
  uint64_t seen = 0;
  auto rebind = [&] {
    const uint64_t tuned = stats_of(engine.get()).background_tunings;
    if (tuned == seen) return;
    seen = tuned;
    model.rebind();
  };
  Row row{policy.name, state, serve(model, shape, options.traffic, rebind), 0, {}};
  must([&](kachel_error** error) { return kachel_engine_wait(engine.get(), -1, error); });
  model.rebind();
  full_speed(model, shape);  // its keys are tuned, or wait to be
  must([&](kachel_error** error) { return kachel_engine_wait(engine.get(), -1, error); });
  model.rebind();
  row.full_speed = full_speed(model, shape);
  row.stats = stats_of(engine.get());
  return row;
}

void print(const Row& row, bool json) {
  const Served& s = row.served;
  if (json) {
    std::printf(
        "{\"policy\": \"%s\", \"store\": \"%s\", \"request_ms\": [%.3f, %.3f, %.3f], \"first_token_ms\": [%.3f, %.3f, "
        "%.3f], "
        "\"prompt_step_ms\": [%.3f, %.3f, %.3f], \"token_step_ms\": [%.3f, %.3f, %.3f], \"tokens_per_second\": %.1f, "
        "\"full_speed\": %.1f, \"compiles\": %llu, \"tunings\": %llu}\n",
        row.policy.c_str(), row.store.c_str(), s.request.p50, s.request.p99, s.request.worst, s.first_token.p50,
        s.first_token.p99, s.first_token.worst, s.prompt_step.p50, s.prompt_step.p99, s.prompt_step.worst,
        s.token_step.p50, s.token_step.p99, s.token_step.worst, s.tokens_per_second, row.full_speed,
        static_cast<unsigned long long>(row.stats.compiles), static_cast<unsigned long long>(row.stats.tunings));
    return;
  }
  auto three = [](const Spread& spread) {
    char text[64];
    std::snprintf(text, sizeof text, "%.1f / %.1f / %.0f", spread.p50, spread.p99, spread.worst);
    return std::string(text);
  };
  std::printf("%-11s %-6s %22s %22s %22s %22s %9.0f %9.0f %9llu %8llu\n", row.policy.c_str(), row.store.c_str(),
              three(s.request).c_str(), three(s.first_token).c_str(), three(s.prompt_step).c_str(),
              three(s.token_step).c_str(), s.tokens_per_second, row.full_speed,
              static_cast<unsigned long long>(row.stats.compiles), static_cast<unsigned long long>(row.stats.tunings));
  std::fflush(stdout);
}

void compare(const Options& options) {
  namespace fs = std::filesystem;
  if (!options.json)
    std::printf("%-11s %-6s %22s %22s %22s %22s %9s %9s %9s %8s\n", "policy", "store", "request ms", "first token ms",
                "prompt step ms", "token step ms", "tokens/s", "full", "compiles", "tunings");
  std::string folder = options.store;
  if (folder.empty()) {
    folder = (fs::temp_directory_path() / "kachel-serve-XXXXXX").string();
    if (!mkdtemp(folder.data())) throw std::runtime_error("no temporary folder");
  }
  std::vector<PlotLine> lines;
  for (const Policy& policy : kPolicies) {
    if (!options.policy.empty() && options.policy != policy.name) continue;
    for (const char* state : {"empty", "filled"}) {
      const Row row = run(options, policy, folder + "/" + policy.name, state);
      print(row, options.json);
      lines.push_back({row.policy + ", " + state + " store", row.served});
    }
  }
  if (!options.plot.empty()) {
    std::ofstream out(options.plot, std::ios::binary);
    if (!(out << plot("A serving host: latency by tuning policy", lines) << std::flush))
      throw std::runtime_error(options.plot + ": cannot be written");
  }
  if (options.store.empty()) fs::remove_all(folder);
}

// A prompt of n tokens must make the same of its last one as a prompt of n - 1 and a token more; and a graph the same,
// to the last bit, as the launches that it was made of, when it is made and whenever it is replayed.
bool agree(const Options& options) {
  const Shape shape;
  Handle<kachel_engine> engine = open_engine("", KACHEL_POLICY_OFF);
  const kachel_device device = first_device(engine.get());
  const std::string text = text_of(options.file);
  Model model(engine.get(), device, text, shape, options.graphs), plain(engine.get(), device, text, shape, false);
  double worst = 0, scale = 0;
  bool same = true;
  for (int64_t tokens : {2, 17, 100, 130, 131}) {
    model.prefill(3, tokens);
    const std::vector<float> all = model.output(tokens);
    std::vector<float> one;
    for (Model* each : {&model, &plain}) {
      each->prefill(3, tokens - 1);
      each->decode({3}, {static_cast<int32_t>(tokens - 1)});
      if (each == &model) one = each->output(1);
    }
    same = same && one == plain.output(1);
    for (size_t i = 0; i < one.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(one[i]) - all[all.size() - one.size() + i]));
      scale = std::max(scale, std::abs(static_cast<double>(one[i])));
    }
  }
  std::printf("prompts and single tokens agree within %.2g of %.2g; %lld steps were graphs, %s\n", worst, scale,
              static_cast<long long>(model.replays()), same ? "equal to plain launches" : "UNEQUAL to plain launches");
  // bf16 has 8 bits, and a layer rounds to it several times.
  return same && worst <= (device.type == KACHEL_CPU ? 1e-4 : 0.05 * scale) && worst >= 0;
}

int main_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    auto value = [&]() -> std::string {
      if (i + 1 == argc) throw std::runtime_error(option + " needs a value");
      return argv[++i];
    };
    if (option == "--requests")
      options.traffic.requests = std::stoi(value());
    else if (option == "--rate")
      options.traffic.per_second = std::stod(value());
    else if (option == "--policy")
      options.policy = value();
    else if (option == "--store")
      options.store = value();
    else if (option == "--plot")
      options.plot = value();
    else if (option == "--check")
      options.check = true;
    else if (option == "--json")
      options.json = true;
    else if (option == "--no-graphs")
      options.graphs = false;
    else if (option[0] == '-' || !options.file.empty())
      throw std::runtime_error(option + " is not an option; see the head of main.cc");
    else
      options.file = option;
  }
  if (options.file.empty()) throw std::runtime_error("usage: serve layer.tile [options]; see the head of main.cc");
  const bool known = std::any_of(std::begin(kPolicies), std::end(kPolicies),
                                 [&](const Policy& policy) { return options.policy == policy.name; });
  if (!known && !options.policy.empty())
    throw std::runtime_error("--policy " + options.policy + ": use off, blocking or background");
  if (options.check) return agree(options) ? 0 : 1;
  compare(options);
  return 0;
}

}  // namespace
}  // namespace serve

int main(int argc, char** argv) {
  try {
    return serve::main_of(argc, argv);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "serve: %s\n", failure.what());
    return 2;
  }
}
