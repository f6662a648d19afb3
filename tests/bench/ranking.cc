// How well the cost model orders configurations, against a tuning that measured them all on a device; needs no GPU.
//
//   bench_ranking FILE.tile TUNED.json [--kernel NAME] [--bind NAME=VALUE,...] [--arch 90] [--multiprocessors 132]
//   [--all]
//
// TUNED.json is what `kachel tune --json` printed; its dimensions are taken. Types and consts are bound by --bind.
// Prints the best measured time among the first 1, 4, 8 and 12 predicted and listed configurations, as a share of the
// best of all; with --all every configuration in the predicted order. Configurations without a time count as 0.05.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ir/instantiate.h"
#include "ir/parse.h"
#include "lowering/lower.h"
#include "lowering/machine/machine.h"
#include "runtime/engine/specialise/prediction.h"
#include "tests/bench/options.h"

using namespace kachel;

namespace {

struct Options {
  std::string file, tuned, kernel, bind;
  int architecture = 90, multiprocessors = 132;
  bool all = false;
};

struct Candidate {
  std::string configuration;
  double measured_ns = 0;  // 0: none
  std::optional<runtime::LaunchPrediction> predicted;
};

using Names = std::map<std::string, std::string>;

Names names_of(const std::string& text) {
  Names names;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');)
    names[part.substr(0, part.find('='))] = part.substr(part.find('=') + 1);
  return names;
}

int64_t number(const Names& names, const std::string& name) {
  const auto found = names.find(name);
  return found == names.end() ? 0 : found->second == "true" ? 1 : std::atoll(found->second.c_str());
}

// Times of finalists are from longer runs, in which the clock is lower: those of the others are from the message that
// says by how much they lost, or scaled by what such messages say of the best in short runs.
std::vector<Candidate> measured(const nlohmann::json& tuned) {
  const nlohmann::json& list = tuned["candidates"];
  const double best_ns = list[tuned["winner"].get<size_t>()]["median_ns"];
  auto factor = [](const nlohmann::json& one) {
    const std::string message = one["message"];
    return message.rfind("took ", 0) == 0 ? std::atof(message.c_str() + 5) : 0;
  };
  double short_ns = best_ns;
  for (const nlohmann::json& one : list)
    if (factor(one) > 0 && !one["median_ns"].is_null()) short_ns = one["median_ns"].get<double>() / factor(one);
  std::vector<Candidate> candidates;
  for (const nlohmann::json& one : list) {
    Candidate& candidate = candidates.emplace_back();
    candidate.configuration = one["configuration"];
    if (one["median_ns"].is_null()) continue;
    const double ns = one["median_ns"];
    candidate.measured_ns =
        one["state"] == "measured" ? ns : best_ns * (factor(one) > 0 ? factor(one) : std::max(1.0, ns / short_ns));
  }
  return candidates;
}

double score(const std::vector<Candidate>& order, size_t count) {
  double best = 0, first = 0.05;
  for (const Candidate& candidate : order)
    if (candidate.measured_ns > 0) best = best > 0 ? std::min(best, candidate.measured_ns) : candidate.measured_ns;
  for (size_t i = 0; i < std::min(count, order.size()); ++i)
    if (order[i].measured_ns > 0) first = std::max(first, best / order[i].measured_ns);
  return first;
}

std::optional<runtime::LaunchPrediction> predict(const Options& options, const ir::Kernel& kernel, const Names& names,
                                                 double* lowering_ms) {
  ir::Bindings bindings;
  for (const ir::TypeSymbolRef& symbol : kernel.type_symbols) {
    bindings.types[symbol->name] = symbol->options[0];
    for (ir::DType option : symbol->options)
      if (names.count(symbol->name) && ir::name(option) == names.at(symbol->name))
        bindings.types[symbol->name] = option;
  }
  for (const ir::VarRef& var : kernel.consts) {
    bindings.int_consts[var->name] = number(names, var->name);
    bindings.float_consts[var->name] = static_cast<double>(number(names, var->name));
  }
  for (const ir::Tunable& tunable : kernel.tunables)
    bindings.tunables[tunable.var->name] = number(names, tunable.var->name);
  for (const ir::VarRef& dim : kernel.dims) bindings.dims[dim->name] = number(names, dim->name);
  const auto concrete = ir::instantiate(kernel, bindings);
  if (!concrete.ok()) return std::nullopt;
  lowering::Target target;
  target.architecture = options.architecture;
  target.shared_limit = lowering::machine_of(options.architecture).shared_per_block;
  for (const ir::Tunable& tunable : kernel.tunables) {
    const int value = static_cast<int>(bindings.tunables[tunable.var->name]);
    if (tunable.var->name == "cluster") target.cluster = value;
    if (tunable.var->name == "cluster_columns") target.cluster_columns = value;
  }
  const auto start = std::chrono::steady_clock::now();
  const auto lowered = lowering::lower(*concrete, target, ~uint64_t{0});
  ir::HostEnv env;
  std::vector<int64_t> dims, grid;
  int64_t tiles = 1;
  for (const ir::VarRef& dim : concrete->dims) {
    dims.push_back(number(names, dim->name));
    env[dim.get()] = {.i = dims.back()};
  }
  for (const ir::IterVar& axis : concrete->grid) {
    const auto extent = ir::evaluate_int(axis.extent, env);
    grid.push_back(extent.ok() ? *extent : 1);
    tiles *= grid.back();
  }
  if (!lowered.ok()) return std::nullopt;
  auto predicted =
      runtime::predict_launch(*lowered, options.architecture, options.multiprocessors, {dims, {}, grid, tiles});
  *lowering_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return predicted;
}

int run(const Options& options) {
  std::stringstream text;
  text << std::ifstream(options.file).rdbuf();
  const auto module = ir::load(text.str(), options.file);
  if (!module.ok()) {
    fmt::print("{}\n", module.status().message());
    return 2;
  }
  const nlohmann::json tuned = nlohmann::json::parse(std::ifstream(options.tuned), nullptr, false);
  if (tuned.is_discarded() || tuned["winner"].get<int>() < 0) {
    fmt::print("{} holds no tuning\n", options.tuned);
    return 2;
  }
  const ir::Kernel* kernel = module->find(options.kernel);
  if (!kernel) kernel = &module->kernels[0];
  Names names = names_of(options.bind);
  for (const auto& [name, value] : tuned["dims"].items()) names[name] = std::to_string(value.get<int64_t>());

  const std::vector<Candidate> listed = measured(tuned);
  std::vector<Candidate> order = listed;
  double lowering_ms = 0;
  for (Candidate& candidate : order) {
    Names all = names;
    all.merge(names_of(candidate.configuration));
    candidate.predicted = predict(options, *kernel, all, &lowering_ms);
  }
  std::stable_sort(order.begin(), order.end(), [](const Candidate& a, const Candidate& b) {
    auto class_of = [](const Candidate& c) { return !c.predicted ? 1 : c.predicted->flawed ? 2 : 0; };
    if (class_of(a) != class_of(b)) return class_of(a) < class_of(b);
    return a.predicted && a.predicted->time.ns < b.predicted->time.ns;
  });
  fmt::print("{:<26}", options.tuned.substr(options.tuned.rfind('/') + 1));
  auto print_scores = [](const std::vector<Candidate>& which) {
    for (size_t count : {1, 4, 8, 12}) fmt::print(" {:.3f}", score(which, count));
    fmt::print(" |");
  };
  print_scores(order);
  print_scores(listed);
  fmt::print(" {} configurations, {:.2f} ms each\n", order.size(), lowering_ms / static_cast<double>(order.size()));
  if (!options.all) return 0;
  for (const Candidate& candidate : order) {
    fmt::print("  {:<36} {:>9.1f} us measured", candidate.configuration, candidate.measured_ns / 1000);
    if (candidate.predicted)
      fmt::print(" {:>9.1f} us predicted, {} blocks a multiprocessor, {:.2f} waves, {}{}",
                 candidate.predicted->time.ns / 1000, candidate.predicted->residency.blocks,
                 candidate.predicted->time.waves, candidate.predicted->time.bound,
                 candidate.predicted->flawed ? ", flawed" : "");
    fmt::print("\n");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  bench::read_options(
      argc, argv,
      {bench::text("--kernel", &options.kernel), bench::text("--bind", &options.bind),
       bench::number("--arch", &options.architecture), bench::number("--multiprocessors", &options.multiprocessors),
       bench::flag("--all", &options.all)},
      [&](const std::string& word) { (options.file.empty() ? options.file : options.tuned) = word; });
  return run(options);
}
