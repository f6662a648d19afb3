// Lowers the kernels of .tile files for GPU architectures and compiles them with NVRTC; no GPU is needed. Prints
// registers, spills, shared memory and the compile time of each, and on request the stages of the lowering.
//
//   bench_compile FILE.tile [--kernel NAME] [--arch 90a,80] [--bind NAME=VALUE,...] [--threads N] [--facts MASK]
//                 [--text] [--loops] [--notes] [--generic] [--no-ptx] [--source FILE] [--cubin FILE]
//
// VALUE is a number (consts, tunables, static dimensions) or a type (type symbols); what is not bound takes the first
// value listed (of `tune auto` 64, or the largest it can be), dimensions 1024. Exits with 1 if something does not
// compile or spills, with 77 where there is no NVRTC.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "ir/instantiate.h"
#include "ir/parse.h"
#include "ir/tunable_role.h"
#include "lowering/lower.h"
#include "runtime/device.h"
#include "tests/bench/options.h"

using namespace kachel;

namespace {

struct Options {
  std::string file, kernel, bind, source, cubin, archs = "90a";
  lowering::Target target;
  uint64_t facts = ~uint64_t{0};
  bool text = false, loops = false, notes = false, no_ptx = false;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

ir::Bindings bindings_of(const ir::Kernel& kernel, const std::string& bind) {
  std::map<std::string, std::string> given;
  for (const std::string& part : split(bind)) given[part.substr(0, part.find('='))] = part.substr(part.find('=') + 1);
  auto number = [&](const std::string& name, int64_t otherwise) {
    return given.count(name) ? std::atoll(given[name].c_str()) : otherwise;
  };
  ir::Bindings bindings;
  for (const ir::TypeSymbolRef& symbol : kernel.type_symbols) {
    bindings.types[symbol->name] = symbol->options[0];
    for (ir::DType option : symbol->options)
      if (given.count(symbol->name) && ir::name(option) == given[symbol->name]) bindings.types[symbol->name] = option;
  }
  for (const ir::VarRef& var : kernel.consts) {
    bindings.int_consts[var->name] = number(var->name, 0);
    bindings.float_consts[var->name] = static_cast<double>(number(var->name, 0));
  }
  const std::vector<ir::TunableRole> roles = ir::roles_of(kernel);
  for (size_t i = 0; i < roles.size(); ++i) {
    const ir::Tunable& tunable = kernel.tunables[i];
    bindings.tunables[tunable.var->name] = number(
        tunable.var->name, tunable.automatic ? std::min<int64_t>(64, ir::most_automatic(roles[i])) : tunable.values[0]);
  }
  for (const ir::VarRef& dim : kernel.dims) bindings.dims[dim->name] = number(dim->name, 1024);
  return bindings;
}

int compile(const Options& options, const ir::Kernel& kernel, runtime::Compiler& compiler) {
  auto concrete = ir::instantiate(kernel, bindings_of(kernel, options.bind));
  if (!concrete.ok()) {
    fmt::print("{}: {}\n", kernel.name, concrete.status().message());
    return 1;
  }
  int failures = 0;
  for (const std::string& arch : split(options.archs)) {
    lowering::Target target = options.target;
    target.architecture = std::atoi(arch.c_str());
    target.shared_limit = target.architecture == 86 || target.architecture == 89 || target.architecture == 120
                              ? 99 * 1024
                          : target.architecture < 90 ? 163 * 1024
                                                     : 227 * 1024;
    auto lowered = lowering::lower(*concrete, target, options.facts, {.keep_stages = true});
    if (!lowered.ok()) {
      fmt::print("{} sm_{}: {}\n", kernel.name, arch, lowered.status().message());
      ++failures;
      continue;
    }
    if (options.notes) fmt::print("{}", lowered->notes);
    if (options.loops) fmt::print("{}", lowered->loop_ir);
    if (options.text) fmt::print("{}", lowered->text.substr(lowered->text.find("\nstruct kachel_params")));
    if (!options.source.empty()) std::ofstream(options.source) << lowered->text;
    auto compiled = compiler.compile({lowered->text, lowered->entry, "sm_" + arch, 60'000'000'000});
    if (!compiled.ok()) {
      fmt::print("{} sm_{}: {}\n{}\n", kernel.name, arch, compiled.status().message(), compiled.status().log());
      ++failures;
      continue;
    }
    fmt::print("{:<24} sm_{:<5} {:>4} threads {:>4} registers {:>5} B spilled {:>7} B shared {:>4} ms\n", kernel.name,
               arch, lowered->threads, compiled->usage.registers, compiled->usage.spill_bytes, lowered->shared_bytes,
               compiled->compile_ns / 1'000'000);
    for (const std::string& loss : compiled->losses) fmt::print("  {}\n", loss);
    failures += !compiled->losses.empty();
    if (!options.cubin.empty()) std::ofstream(options.cubin, std::ios::binary) << compiled->binary;
    failures += compiled->usage.spill_bytes > 0;
  }
  return failures;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  bench::read_options(
      argc, argv,
      {bench::text("--kernel", &options.kernel),
       bench::text("--arch", &options.archs),
       bench::text("--bind", &options.bind),
       bench::number("--threads", &options.target.threads),
       bench::number("--cluster", &options.target.cluster),
       {"--facts", [&](const std::string& value) { options.facts = std::strtoull(value.c_str(), nullptr, 0); }},
       bench::text("--cubin", &options.cubin),
       bench::text("--source", &options.source),
       bench::flag("--text", &options.text),
       bench::flag("--loops", &options.loops),
       bench::flag("--notes", &options.notes),
       bench::flag("--no-ptx", &options.no_ptx),
       bench::flag("--generic", &options.target.generic)},
      [&](const std::string& word) { options.file = word; });
  options.target.ptx = !options.no_ptx;
  std::stringstream text;
  text << std::ifstream(options.file).rdbuf();
  auto module = ir::load(text.str(), options.file);
  if (!module.ok()) {
    fmt::print("{}\n", module.status().message());
    return 2;
  }
  auto compiler = runtime::make_cuda_compiler({});
  const std::string probe = "extern \"C\" __global__ void f() {}";
  if (auto made = compiler->compile({probe, "f", "sm_80", 0}); !made.ok() && made.status().code() == Code::kNoDevice) {
    fmt::print("SKIPPED: {}\n", made.status().message());
    return 77;
  }
  int failures = 0;
  for (const ir::Kernel& kernel : module->kernels)
    if (options.kernel.empty() || kernel.name == options.kernel) failures += compile(options, kernel, *compiler);
  return failures ? 1 : 0;
}
