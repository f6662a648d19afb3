// conformance [--device cpu|cuda|simulated|ptx|assembled] [--examples DIR | --no-examples] [--programs N] [--seed N]
//             [--only NAME] [--every N] [--coverage] [--most-undecided PERCENT] [--dump NAME] [--verbose]
//
// Runs the kernels of examples/ and N generated programs on a device and compares with the interpreter. `simulated`
// executes the loop IR that a GPU's code is made from (tests/lowering/simulate.h); `ptx` the PTX that it becomes
// (tests/lowering/ptx_machine.h), and skips cases that have none or need an instruction which the machine lacks;
// `assembled` compiles the text for sm_90a, which takes no GPU, and runs nothing. Exit status 0 if every case passed.
// --every takes each N-th case of the examples.
// --coverage generates the programs without running them and fails if they leave out a feature.
// --dump prints a case, a generated program named p<seed> or one of the examples' (matmul#3 of --seed), and what it is
// lowered to for the simulated GPU, as loops and as text.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include "lowering/emit/emit.h"
#include "tests/conformance/coverage.h"
#include "tests/conformance/examples.h"
#include "tests/conformance/generator.h"
#include "tests/lowering/ptx_case.h"
#include "tests/lowering/simulated_case.h"

using namespace kachel;

namespace {

struct Options {
  std::string device = "cpu", examples = "examples", only, dump;
  uint64_t seed = 1;
  int64_t programs = 0, every = 1;
  double most_undecided = 100;
  bool verbose = false, coverage = false;
};

bool read(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i];
    auto next = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (flag == "--device")
      options->device = next();
    else if (flag == "--examples")
      options->examples = next();
    else if (flag == "--no-examples")
      options->examples.clear();
    else if (flag == "--programs")
      options->programs = std::strtoll(next(), nullptr, 10);
    else if (flag == "--every")
      options->every = std::max<int64_t>(1, std::strtoll(next(), nullptr, 10));
    else if (flag == "--seed")
      options->seed = std::strtoull(next(), nullptr, 10);
    else if (flag == "--only")
      options->only = next();
    else if (flag == "--dump")
      options->dump = next();
    else if (flag == "--most-undecided")
      options->most_undecided = std::strtod(next(), nullptr);
    else if (flag == "--coverage")
      options->coverage = true;
    else if (flag == "--verbose")
      options->verbose = true;
    else {
      std::fprintf(stderr, "unknown option %s\n", flag.c_str());
      return false;
    }
  }
  return true;
}

// In each order of threads, then as it is lowered to be compared with, in one order; the first that fails.
conformance::Report simulate(const conformance::Case& test) {
  conformance::Report report;
  auto prepared = conformance::Prepared::make(test);
  if (!prepared.ok()) {
    report.status = prepared.status();
    return report;
  }
  using Orders = std::initializer_list<lowering::ThreadOrder>;
  auto each_order = [&](bool generic, Orders orders) {
    auto kernel = lowering::lower_case(**prepared, generic);
    if (!kernel.ok()) {
      report.status = kernel.status();
      return false;
    }
    return std::all_of(orders.begin(), orders.end(), [&](lowering::ThreadOrder order) {
      report = lowering::simulate_case(**prepared, *kernel, order);
      return report.passed();
    });
  };
  using lowering::ThreadOrder;
  if (!each_order(false, {ThreadOrder::kForward, ThreadOrder::kReversed, ThreadOrder::kShuffled})) return report;
  if (!each_order(true, {ThreadOrder::kShuffled}))
    report.status = internal("lowered plainly: " + (report.status.ok() ? report.describe() : report.status.message()));
  return report;
}

// In both orders of threads; the first that fails. kUnsupported: there is no PTX, or none that the machine knows.
conformance::Report execute_ptx(const conformance::Case& test) {
  conformance::Report report;
  auto prepared = conformance::Prepared::make(test);
  if (!prepared.ok()) {
    report.status = prepared.status();
    return report;
  }
  const auto lowered = lowering::lower_for_ptx(**prepared);
  if (!lowered.ok()) {
    report.status = lowered.status();
    return report;
  }
  for (lowering::ThreadOrder order : {lowering::ThreadOrder::kForward, lowering::ThreadOrder::kReversed}) {
    report = lowering::ptx_case(**prepared, *lowered, order);
    if (!report.passed()) break;
  }
  return report;
}

// Whether NVRTC takes what the case is lowered to.
conformance::Report assemble(const conformance::Case& test, runtime::Compiler& compiler) {
  conformance::Report report;
  auto prepared = conformance::Prepared::make(test);
  if (!prepared.ok()) {
    report.status = prepared.status();
    return report;
  }
  const auto text = lowering::lower_text(**prepared);
  report.status = text.ok() ? compiler.compile({*text, lowering::kEntry, "sm_90a", 0}).status() : text.status();
  return report;
}

class Suite {
 public:
  // Runs cases on the device, else hands them to the compiler, else executes their PTX or simulates a GPU.
  Suite(const Options& options, runtime::Device* device, runtime::Compiler* compiler)
      : options_(options), device_(device), compiler_(compiler) {}

  // `text` of a generated program.
  void run(const conformance::Case& test, const std::string& text) {
    if (!options_.only.empty() && test.name.find(options_.only) == std::string::npos) return;
    conformance::Report report = device_                    ? conformance::run_case(*device_, test)
                                 : compiler_                ? assemble(test, *compiler_)
                                 : options_.device == "ptx" ? execute_ptx(test)
                                                            : simulate(test);
    if (options_.device == "ptx" && report.status.code() == Code::kUnsupported) {
      ++skipped_;
      if (options_.verbose) std::printf("skipped %s: %s\n", test.name.c_str(), report.status.message().c_str());
      return;
    }
    elements_ += report.elements;
    undecided_ += report.undecided;
    report.passed() ? ++passed_ : ++failed_;
    if (report.passed() && !options_.verbose) return;
    std::printf("%s %s: %s (median bound %.1f ulp)\n", report.passed() ? "ok" : "FAILED", test.name.c_str(),
                report.describe().c_str(), report.median_bound_ulps);
    if (!report.passed()) std::printf("%s%s\n", conformance::describe(test).c_str(), text.c_str());
    std::fflush(stdout);
  }
  void refuse(const Status& status) {
    ++failed_;
    std::printf("FAILED %s\n", status.message().c_str());
  }
  bool finish() const {
    const double share = elements_ ? 100.0 * static_cast<double>(undecided_) / static_cast<double>(elements_) : 0;
    std::printf("%s: %lld elements compared, %lld (%.2f%%) undecided\n%d passed, %d failed",
                device_                    ? device_->properties().name.c_str()
                : compiler_                ? "assembler"
                : options_.device == "ptx" ? "PTX"
                                           : "simulated GPU",
                static_cast<long long>(elements_), static_cast<long long>(undecided_), share, passed_, failed_);
    if (skipped_) std::printf(", %d skipped", skipped_);
    std::printf("\n");
    if (share > options_.most_undecided) std::printf("FAILED: more than %.1f%% undecided\n", options_.most_undecided);
    return failed_ == 0 && passed_ > 0 && share <= options_.most_undecided;
  }

 private:
  const Options& options_;
  runtime::Device* device_;
  runtime::Compiler* compiler_;
  int passed_ = 0, failed_ = 0, skipped_ = 0;
  int64_t elements_ = 0, undecided_ = 0;
};

bool cover(const Options& options) {
  conformance::Coverage coverage;
  bool accepted = true;
  for (int64_t i = 0; i < options.programs; ++i) {
    auto program = conformance::generate(options.seed + static_cast<uint64_t>(i));
    if (!program.ok()) {
      std::printf("FAILED %s\n", program.status().message().c_str());
      accepted = false;
      continue;
    }
    coverage.add(program->test, program->concrete);
    auto prepared = conformance::Prepared::make(program->test);
    auto kernel = prepared.ok() ? lowering::lower_case(**prepared) : Result<lowering::LoopKernel>(prepared.status());
    if (kernel.ok()) coverage.add(*kernel);
    accepted &= kernel.ok();
  }
  std::printf("%s", coverage.report().c_str());
  for (const std::string& feature : coverage.missing()) std::printf("MISSING %s\n", feature.c_str());
  return accepted && coverage.missing().empty();
}

// The case that --dump names.
Result<conformance::Case> named(const Options& options) {
  if (options.dump.find('#') == std::string::npos) {
    KACHEL_ASSIGN(auto program, conformance::generate(std::strtoull(options.dump.c_str() + 1, nullptr, 10)));
    std::printf("%s\n", program.text.c_str());
    return program.test;
  }
  KACHEL_ASSIGN(auto cases, conformance::example_cases(options.examples, options.seed));
  for (conformance::Case& test : cases)
    if (test.name == options.dump) return std::move(test);
  return invalid(options.examples + " has no case " + options.dump);
}

bool dump(const Options& options) {
  auto test = named(options);
  auto prepared = test.ok() ? conformance::Prepared::make(*test) : test.status();
  auto kernel = prepared.ok() ? lowering::lower_case(**prepared) : prepared.status();
  if (test.ok()) std::printf("%s", conformance::describe(*test).c_str());
  std::printf("%s\n", kernel.ok() ? lowering::print(*kernel).c_str() : kernel.status().message().c_str());
  if (const auto text = kernel.ok() ? lowering::lower_text(**prepared) : kernel.status(); text.ok())
    std::printf("%s\n", text->c_str());
  return kernel.ok();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!read(argc, argv, &options)) return 2;
  if (!options.dump.empty()) return dump(options) ? 0 : 1;
  if (options.coverage) return cover(options) ? 0 : 1;

  std::unique_ptr<runtime::Device> device;
  std::unique_ptr<runtime::Compiler> compiler;
  if (options.device == "assembled") {
    compiler = runtime::make_cuda_compiler({});
    const auto made = compiler->compile({"extern \"C\" __global__ void f() {}", "f", "sm_90a", 0});
    if (!made.ok()) {
      std::fprintf(stderr, "SKIPPED: %s\n", made.status().message().c_str());
      return 1;
    }
  } else if (options.device != "simulated" && options.device != "ptx") {
    auto opened = options.device == "cuda" ? runtime::open_cuda_device(0, {}) : runtime::open_cpu_device({});
    if (!opened.ok()) {
      const bool absent = opened.status().code() == Code::kNoDevice;
      std::fprintf(stderr, "%s%s: %s\n", absent ? "SKIPPED: " : "", options.device.c_str(),
                   opened.status().message().c_str());
      return 1;
    }
    device = std::move(*opened);
  }
  Suite suite(options, device.get(), compiler.get());
  if (!options.examples.empty()) {
    auto cases = conformance::example_cases(options.examples, options.seed);
    if (!cases.ok()) {
      std::fprintf(stderr, "%s\n", cases.status().message().c_str());
      return 1;
    }
    for (size_t i = 0; i < cases->size(); i += static_cast<size_t>(options.every)) suite.run((*cases)[i], "");
  }
  for (int64_t i = 0; i < options.programs; ++i) {
    auto program = conformance::generate(options.seed + static_cast<uint64_t>(i));
    if (!program.ok())
      suite.refuse(program.status());
    else
      suite.run(program->test, program->text);
  }
  return suite.finish() ? 0 : 1;
}
