// The space that `tune auto` derives for a kernel and a GPU architecture, in the order of the cost model, and what its
// first configurations compile to; needs no GPU.
//
//   bench_space FILE.tile [--kernel NAME] [--bind NAME=VALUE,...] [--arch 90] [--multiprocessors 132] [--top 16]
//               [--all] [--find "BM=128,BN=256"]...
//
// VALUE is a number (consts, dimensions, all of which are known to the derivation) or a type (type symbols). Compiles
// the --top first with NVRTC, where there is one. --find: the place of a configuration in that order. Exits with 1
// unless as many as --top compile without spills among the first --top + 8, with 77 where there is no NVRTC.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "ir/parse.h"
#include "lowering/machine/machine.h"
#include "lowering/space/space.h"
#include "runtime/engine/specialise/prediction.h"
#include "tests/bench/options.h"

using namespace kachel;

namespace {

constexpr int kMargin = 8;

struct Options {
  std::string file, kernel, bind;
  std::vector<std::string> find;
  int architecture = 90, multiprocessors = 132, top = 16;
  bool all = false;
};

struct Candidate {
  std::string text;
  lowering::Lowered lowered;
  std::optional<runtime::LaunchPrediction> predicted;
};

ir::Bindings bindings_of(const ir::Kernel& kernel, const std::string& bind) {
  std::map<std::string, std::string> given;
  std::stringstream stream(bind);
  for (std::string part; std::getline(stream, part, ',');)
    given[part.substr(0, part.find('='))] = part.substr(part.find('=') + 1);
  auto number = [&](const std::string& name) -> int64_t {
    return given.count(name) ? std::atoll(given[name].c_str()) : 0;
  };
  ir::Bindings bindings;
  for (const ir::TypeSymbolRef& symbol : kernel.type_symbols) {
    bindings.types[symbol->name] = symbol->options[0];
    for (ir::DType option : symbol->options)
      if (given.count(symbol->name) && ir::name(option) == given[symbol->name]) bindings.types[symbol->name] = option;
  }
  for (const ir::VarRef& var : kernel.consts) {
    bindings.int_consts[var->name] = number(var->name);
    bindings.float_consts[var->name] = static_cast<double>(number(var->name));
  }
  for (const ir::VarRef& dim : kernel.dims) bindings.dims[dim->name] = number(dim->name);
  return bindings;
}

// `where` with everything known.
bool admits(const ir::Kernel& kernel, const ir::Bindings& bindings, const std::vector<int64_t>& values) {
  ir::HostEnv env;
  for (const ir::VarRef& var : kernel.consts) env[var.get()] = {.i = bindings.int_consts.at(var->name)};
  for (const ir::VarRef& dim : kernel.dims) env[dim.get()] = {.i = bindings.dims.at(dim->name)};
  for (size_t i = 0; i < values.size(); ++i) env[kernel.tunables[i].var.get()] = {.i = values[i]};
  return std::all_of(kernel.where.begin(), kernel.where.end(), [&](const ir::ExprRef& condition) {
    const auto value = ir::evaluate(condition, env);
    return !value.ok() || value->i != 0;
  });
}

Candidate candidate_of(const Options& options, const ir::Kernel& kernel, ir::Bindings bindings, lowering::Target target,
                       const std::vector<int64_t>& values) {
  Candidate candidate;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string& name = kernel.tunables[i].var->name;
    bindings.tunables[name] = values[i];
    candidate.text += fmt::format("{}{}={}", i ? "," : "", name, values[i]);
    if (name == "threads") target.threads = static_cast<int>(values[i]);
    if (name == "cluster") target.cluster = static_cast<int>(values[i]);
    if (name == "cluster_columns") target.cluster_columns = static_cast<int>(values[i]);
  }
  const auto concrete = ir::instantiate(kernel, bindings);
  auto lowered = concrete.ok() ? lowering::lower(*concrete, target, ~uint64_t{0}) : concrete.status();
  if (!lowered.ok()) {
    fmt::print("{}: {}\n", candidate.text, lowered.status().message());
    std::exit(1);
  }
  candidate.lowered = *std::move(lowered);
  ir::HostEnv env;
  std::vector<int64_t> dims, grid;
  int64_t tiles = 1;
  for (const ir::VarRef& dim : concrete->dims) {
    dims.push_back(bindings.dims[dim->name]);
    env[dim.get()] = {.i = dims.back()};
  }
  for (const ir::IterVar& axis : concrete->grid) {
    const auto extent = ir::evaluate_int(axis.extent, env);
    grid.push_back(extent.ok() ? *extent : 1);
    tiles *= grid.back();
  }
  candidate.predicted = runtime::predict_launch(candidate.lowered, options.architecture, options.multiprocessors,
                                                {dims, std::vector<int64_t>(kernel.params.size()), grid, tiles});
  return candidate;
}

std::vector<Candidate> ordered(const Options& options, const ir::Kernel& kernel) {
  lowering::SpaceQuestion question{.kernel = kernel, .bindings = bindings_of(kernel, options.bind)};
  question.target.architecture = options.architecture;
  question.target.shared_limit = lowering::machine_of(options.architecture).shared_per_block;
  question.multiprocessors = options.multiprocessors;
  question.admitted = [&](const std::vector<int64_t>& values) { return admits(kernel, question.bindings, values); };
  const auto start = std::chrono::steady_clock::now();
  auto ms = [&] { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count(); };
  const auto space = lowering::derive_space(question);
  fmt::print("{} on sm_{}: {} configurations derived in {:.1f} ms", kernel.name, options.architecture, space.size(),
             ms());
  std::vector<Candidate> order;
  for (const std::vector<int64_t>& values : space)
    order.push_back(candidate_of(options, kernel, question.bindings, question.target, values));
  std::stable_sort(order.begin(), order.end(), [](const Candidate& a, const Candidate& b) {
    auto class_of = [](const Candidate& c) { return !c.predicted ? 1 : c.predicted->flawed ? 2 : 0; };
    if (class_of(a) != class_of(b)) return class_of(a) < class_of(b);
    return a.predicted && b.predicted && a.predicted->time.ns < b.predicted->time.ns;
  });
  // Of those that come to the same code the first stands for all.
  std::vector<Candidate> distinct;
  for (Candidate& candidate : order)
    if (std::none_of(distinct.begin(), distinct.end(),
                     [&](const Candidate& other) { return other.lowered.text == candidate.lowered.text; }))
      distinct.push_back(std::move(candidate));
  fmt::print(", {} of them different, {:.0f} ms\n", distinct.size(), ms());
  return distinct;
}

int compile(const Options& options, const std::vector<Candidate>& order, runtime::Compiler& compiler) {
  int tried = 0, good = 0;
  for (const Candidate& candidate : order) {
    if (good >= options.top || tried++ >= options.top + kMargin) break;
    const std::string arch = fmt::format("sm_{}{}", options.architecture, options.architecture == 90 ? "a" : "");
    auto compiled = compiler.compile({candidate.lowered.text, candidate.lowered.entry, arch, 60'000'000'000});
    if (!compiled.ok()) {
      fmt::print("{}: {}\n", candidate.text, compiled.status().message());
      continue;
    }
    const bool sound = compiled->usage.spill_bytes == 0 && compiled->losses.empty();
    good += sound;
    fmt::print("  {:<40} {:>9.1f} us predicted {:>4} threads {:>4} registers {:>5} B spilled {:>7} B shared{}\n",
               candidate.text, candidate.predicted ? candidate.predicted->time.ns / 1000 : 0, candidate.lowered.threads,
               compiled->usage.registers, compiled->usage.spill_bytes, candidate.lowered.shared_bytes,
               compiled->losses.empty() ? "" : ", " + compiled->losses[0]);
  }
  fmt::print("  {} of the first {} compile without a flaw\n", good, tried);
  return good >= std::min<int>(options.top, static_cast<int>(order.size())) ? 0 : 1;
}

int run(const Options& options) {
  std::stringstream text;
  text << std::ifstream(options.file).rdbuf();
  const auto module = ir::load(text.str(), options.file);
  if (!module.ok()) {
    fmt::print("{}\n", module.status().message());
    return 2;
  }
  const ir::Kernel* kernel = module->find(options.kernel);
  if (!kernel) kernel = &module->kernels[0];
  const std::vector<Candidate> order = ordered(options, *kernel);
  auto show = [&](size_t at) {
    fmt::print("  {:>4} {:<40} {:>9.1f} us predicted\n", at + 1, order[at].text,
               order[at].predicted ? order[at].predicted->time.ns / 1000 : 0);
  };
  for (size_t at = 0; options.all && at < order.size(); ++at) show(at);
  for (const std::string& wanted : options.find) {
    const auto found = std::find_if(order.begin(), order.end(), [&](const Candidate& c) { return c.text == wanted; });
    if (found == order.end())
      fmt::print("  {} is not in the space\n", wanted);
    else
      show(static_cast<size_t>(found - order.begin()));
  }
  if (options.top == 0) return 0;
  auto compiler = runtime::make_cuda_compiler({});
  const std::string probe = "extern \"C\" __global__ void f() {}";
  if (auto made = compiler->compile({probe, "f", "sm_80", 0}); !made.ok() && made.status().code() == Code::kNoDevice) {
    fmt::print("SKIPPED: {}\n", made.status().message());
    return 77;
  }
  return compile(options, order, *compiler);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  bench::read_options(argc, argv,
                      {bench::text("--kernel", &options.kernel),
                       bench::text("--bind", &options.bind),
                       bench::number("--arch", &options.architecture),
                       bench::number("--multiprocessors", &options.multiprocessors),
                       bench::number("--top", &options.top),
                       bench::flag("--all", &options.all),
                       {"--find", [&](const std::string& value) { options.find.push_back(value); }}},
                      [&](const std::string& word) { options.file = word; });
  return run(options);
}
