// The mutation check: every planted bug must make a case fail, and without one none may. A case runs on the CPU device,
// where there is one, and through the lowering for a GPU in a simulator (simulate.h), which also sees races.
//
// For each bug the cases are tried in order until one fails; one whose lowered form the bug does not change is passed
// over. The table that comes out is printed. A bug that lets an access leave its memory runs on the CPU in a process of
// its own, where a crash counts as noticed.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "ir/parse.h"
#include "tests/conformance/examples.h"
#include "tests/conformance/generator.h"
#include "tests/lowering/cpu_device.h"
#include "tests/lowering/planted_groups.h"
#include "tests/lowering/planted_programs.h"
#include "tests/lowering/planted_reads.h"
#include "tests/lowering/planted_rows.h"
#include "tests/lowering/planted_scans.h"
#include "tests/lowering/planted_sums.h"
#include "tests/lowering/simulated_case.h"

namespace kachel::lowering {
namespace {

using conformance::Case;
using conformance::Prepared;
using conformance::Report;

constexpr const char* kChildVariable = "KACHEL_PLANTED_BUG";

struct Planting {
  explicit Planting(Planted bug) { plant(bug); }
  ~Planting() { plant(Planted::kNone); }
};

// A case and its lowered forms without a bug.
struct Entry {
  Case test;
  std::unique_ptr<Prepared> prepared;
  std::string loops, text;
};

struct Finding {
  bool noticed = false;
  std::string what = "not noticed";
};
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}
Finding finding(const Entry& entry, const Report& report) {
  std::string what = report.status.ok() ? report.first : report.status.message();
  if (report.status.ok() && what.empty()) what = fmt::format("{} bytes damaged", report.damaged);
  return {true, fmt::format("{}: {}", entry.test.name, first_line(what)).substr(0, 70)};
}

class Suite {
 public:
  Suite() {
    cpu_ = compiling_cpu();
    for (const char* name : kExamples) {
      const std::string file = fmt::format("{}/{}.tile", KACHEL_EXAMPLES, name);
      std::stringstream text;
      text << std::ifstream(file).rdbuf();
      add_program(name, text.str());
    }
    add_program("pack", kPackedProgram);
    add_program("before", kBefore);
    add_program("neighbours", kNeighbours);
    conformance::Wishes whole;
    whole.aligned = {"X", "R"};
    add_program("windows", kWindows, 24, whole);
    conformance::Wishes places;
    places.values = {{"H", 230}, {"W", 37}};  // more iterations than are loaded ahead
    places.threads = 64;
    add_program("divided places", kDividedPlaces, 24, places);
    conformance::Wishes pixels = whole;
    pixels.values = {{"N", 3}, {"C", 2}, {"H", 5}, {"W", 8}};
    pixels.aligned = {"X", "Y"};
    add_program("pixels", kPixels, 24, pixels);
    add_program("joined", kJoinedRows, 24, whole);
    add_program("sliding", kSliding, 24, whole);
    conformance::Wishes block;
    block.threads = 128;
    conformance::Wishes moved = block;
    moved.aligned = {"X", "Y"};
    add_program("direct", kDirect, 24, moved);
    add_program("next row", kNextRow, 24, block);
    conformance::Wishes long_rows = block;
    long_rows.values = {{"K", 200}};
    add_program("changed", kChanged, 24, long_rows);
    add_program("scalar groups", kScalarGroups, 24, block);
    add_program("few columns", kFewColumns, 24, block);
    add_program("scans", kScans, 24, block);
    add_program("many warps", kManyWarps);
    add_program("named columns", kNamedColumns, 24, block);
    add_program("exchanges", kExchanges, 24, block);
    add_program("words", kWordsOfK, 40, block);
    conformance::Wishes narrow = block;
    narrow.values = {{"KG", 5}, {"N", 14}};
    narrow.aligned = {"X", "W", "S", "V"};
    add_program("two operands", kTwoOperands, 24, block);
    add_program("narrow sums", kNarrowSums, 24, narrow);
    add_program("largest", kLargest);
    add_program("counted", kCounted, 24, block);
    add_program("grown", kGrown, 24, block);
    add_program("deeper", kDeeper, 24, block);
    add_program("matrices", kMatrices, 24, block);
    // Larger than the tiles and no multiples of them, so that every tail holds elements.
    conformance::Wishes tails;
    tails.values = {{"M", 29}, {"N", 170}, {"K", 325}};
    for (const char* program : kCpuPrograms) add_program("cpu", program, 110, tails);
    conformance::Wishes wishes;
    wishes.values = {{"S", 92}, {"K", 76}};
    wishes.aligned = {"Q", "K", "V", "A", "B"};
    wishes.threads = 128;
    wishes.architecture = 89;  // A in the registers of mma; "group chain" has it in those of wgmma
    add_program("chain", kChain, 24, wishes);
    conformance::Wishes few = wishes;
    few.values = {{"S", 140}};
    add_program("few rows", kFewRows, 24, few);
    wishes.architecture = 0;
    add_program("product", kProduct, 24, wishes);
    conformance::Wishes groups;
    groups.values = {{"S", 92}, {"K", 172}};  // rows of D and E are no multiples of 16 bytes: not for the copy engine
    groups.aligned = {"Q", "K", "V", "A", "B", "D", "E", "O"};
    groups.architecture = 90;
    groups.cluster = 1;
    groups.threads = 256;
    add_program("groups", kGroups, 24, groups);
    add_program("group turns", group_chain(128), 24, groups);
    groups.threads = 128;
    add_program("group chain", group_chain(64), 24, groups);
    add_program("short sums", kShortSums, 24, groups);
    add_program("blocks", kBlocks, 24, groups);
    groups.values = {{"K", 80}};
    groups.aligned.emplace("W"), groups.aligned.emplace("S");
    groups.values = {{"K", 96}};
    add_program("right", kRight, 24, groups);
    add_program("moved", kMoved, 24, groups);
    add_program("in turn", kInTurn, 24, groups);
    add_program("two masks", kTwoMasks, 24, groups);
    add_program("fold", kFold, 24, groups);
    add_program("groups of columns", kGroupsOfColumns, 24, groups);
    add_program("guarded", kGuarded, 24, groups);
    add_program("carried", kCarried, 24, groups);
    add_program("columns", kColumns, 24, groups);
    groups.values = {{"M", 60}, {"K", 320}};
    groups.threads = 128;
    for (int twice = 0; twice < 2; ++twice) add_program("made", kMade, 24, groups);
    for (int twice = 0; twice < 2; ++twice) add_program("unpacked left", kUnpackedLeft, 24, groups);
    add_program("odd rows", kOddRows, 24, groups);
    add_program("tables", kTables, 24, groups);
    for (const int64_t k : {1200, 1328}) {
      groups.values = {{"K", k}};
      add_program("runs", kRuns, 24, groups);
    }
    groups.values = {{"K", 80}};
    for (int twice = 0; twice < 2; ++twice) add_program("shifted", kShifted, 24, groups);
    add_program("bytes", kBytes, 24, groups);
    groups.values = {{"M", 1000}, {"K", 40}};
    for (int twice = 0; twice < 2; ++twice) add_program("handed", kHanded, 24, groups);
    groups.values = {{"M", 280}};
    add_program("bounded", kBounded, 24, groups);
    groups.threads = 96;
    groups.values = {{"N", 64}, {"K", 64}};
    add_program("own product", kOwnProduct, 24, groups);
    groups.threads = 256;
    add_program("stored before", kStoredBefore, 24, groups);
    groups.threads = 128;
    groups.values = {{"K", 80}};
    groups.teams = 2;
    groups.aligned.insert({"R", "C"});
    groups.values = {{"M", 300}, {"N", 72}, {"K", 200}};
    add_program("teams", kTeams, 24, groups);
    add_program("rows in teams", kTeamsOfRows, 24, groups);
    add_program("quotients", kQuotients);
    add_program("normalised heads", kNormalisedHeads);
    groups.values = {{"M", 100}, {"N", 40}, {"K", 200}, {"R", 80}};
    groups.teams = 0;
    conformance::Wishes empty = groups;
    empty.values = {{"M", 500}, {"N", 72}, {"K", 0}};  // nothing keeps the producer from running ahead
    add_program("no sums", kPairs, 24, empty);
    add_program("gathered", kGathered, 24, groups);
    add_program("numbered", kNumbered, 24, groups);
    add_program("made in part", kMadeInPart, 24, groups);
    add_program("residual", kResidual, 24, groups);
    groups.values = {{"M", 70}, {"N", 40}, {"K", 203}};
    add_program("anywhere", kAnywhere, 24, groups);
    groups.values = {{"M", 72}, {"N", 40}, {"K", 80}};
    groups.transposed = {"A", "B", "R"};
    add_program("transposed", kTransposed, 24, groups);
    groups.transposed.clear();
    for (const int cluster : {2, 4, 8}) {
      groups.cluster = cluster;
      groups.values = {{"M", 50 * cluster}, {"N", 72}, {"K", 200}};
      add_program("pairs", kPairs, 24, groups);
    }
    groups.cluster = 2;
    groups.values = {{"Z", 3}, {"M", 64}, {"N", 40}, {"K", 200}};
    for (int twice = 0; twice < 2; ++twice) add_program("batches", kBatches, 24, groups);
    groups.cluster = 1;
    groups.values = {{"S", 96}};  // a whole number of tiles, the last element of which is masked
    for (int thrice = 0; thrice < 3; ++thrice) add_program("group sums", kGroupSums, 24, groups);
    for (int thrice = 0; thrice < 3; ++thrice) add_program("backwards", kGroupSumsBackwards, 24, groups);
    for (uint64_t seed = 1; seed <= kPrograms; ++seed) {
      auto program = conformance::generate(seed);
      REQUIRE_MESSAGE(program.ok(), program.status().message());
      entries_.push_back(std::make_unique<Entry>());
      entries_.back()->test = std::move(program->test);
    }
  }
  bool has_cpu() const { return cpu_ != nullptr; }
  size_t size() const { return entries_.size(); }

  Finding simulated() {
    for (auto& entry : entries_) {
      prepare(*entry);
      auto kernel = lower_case(*entry->prepared);
      REQUIRE_MESSAGE(kernel.ok(), entry->test.name << ": " << kernel.status().message());
      if (!changed(print(*kernel), &entry->loops)) continue;
      for (ThreadOrder order : {ThreadOrder::kReversed, ThreadOrder::kShuffled, ThreadOrder::kForward}) {
        Report report = simulate_case(*entry->prepared, *kernel, order);
        if (!report.passed()) return finding(*entry, report);
      }
    }
    return {};
  }
  Finding on_cpu() {
    for (auto& entry : entries_) {
      prepare(*entry);
      auto lowered = lower(entry->prepared->kernel(), conformance::target_of(cpu_->properties(), entry->test),
                           entry->prepared->facts());
      REQUIRE(lowered.ok());
      if (!changed(lowered->text, &entry->text)) continue;
      Report report = conformance::run_lowered(*cpu_, *entry->prepared, *lowered);
      if (!report.passed()) return finding(*entry, report);
    }
    return {};
  }
  // Notes the lowered forms without a bug, which nothing else runs.
  void remember() {
    for (auto& entry : entries_) {
      prepare(*entry);
      auto kernel = lower_case(*entry->prepared);
      REQUIRE_MESSAGE(kernel.ok(), entry->test.name << ": " << kernel.status().message());
      entry->loops = print(*kernel);
      if (!has_cpu()) continue;
      auto lowered = lower(entry->prepared->kernel(), conformance::target_of(cpu_->properties(), entry->test),
                           entry->prepared->facts());
      REQUIRE(lowered.ok());
      entry->text = lowered->text;
    }
  }

 private:
  // False if `now` is what the case lowers to without a bug.
  static bool changed(const std::string& now, const std::string* before) { return now != *before; }

  void prepare(Entry& entry) {
    if (entry.prepared) return;
    auto prepared = Prepared::make(entry.test);
    REQUIRE_MESSAGE(prepared.ok(), prepared.status().message());
    entry.prepared = std::move(*prepared);
  }
  // Drawn from the name and the number of its repetitions alone, so that a new program leaves the others as they are.
  void add_program(const std::string& name, const std::string& text, int64_t largest = 24,
                   const conformance::Wishes& wishes = {}) {
    uint64_t seed = 7 + static_cast<uint64_t>(repetitions_[name]++);
    for (const char letter : name) seed = seed * 31 + static_cast<unsigned char>(letter);
    conformance::Random random(seed);
    auto module = ir::load(text, name);
    REQUIRE_MESSAGE(module.ok(), module.status().message());
    for (int attempt = 0, made = 0; attempt < 100 && made < 2; ++attempt) {
      auto test = conformance::random_case(module->kernels[0], largest, random, wishes);
      if (!test) continue;
      test->name = fmt::format("{}#{}", name, made++);
      entries_.push_back(std::make_unique<Entry>());
      entries_.back()->test = std::move(*test);
    }
  }

  std::unique_ptr<runtime::Device> cpu_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::map<std::string, int> repetitions_;
};

// The test case below in another process, which prints one line.
Finding in_another_process(Planted bug) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      fmt::format("{}={} '{}' --test-case='one bug on the CPU' 2>&1", kChildVariable, static_cast<int>(bug), self);
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string output;
  char part[512];
  while (size_t got = std::fread(part, 1, sizeof part, pipe)) output.append(part, got);
  const int status = pclose(pipe);
  const std::string mark = "finding: ";
  if (size_t at = output.find(mark); at != output.npos) return {true, first_line(output.substr(at + mark.size()))};
  if (output.find("SUCCESS") != output.npos) return {};
  return {status != 0, "the process crashed"};
}

TEST_CASE("one bug on the CPU" * doctest::skip(std::getenv(kChildVariable) == nullptr)) {
  Suite suite;
  REQUIRE(suite.has_cpu());
  suite.remember();
  Planting planting(static_cast<Planted>(std::atoi(std::getenv(kChildVariable))));
  const Finding found = suite.on_cpu();
  if (found.noticed) std::printf("finding: %s\n", found.what.c_str());
}

TEST_CASE("without a bug no case fails, and each planted bug makes one fail" *
          doctest::skip(std::getenv(kChildVariable) != nullptr)) {
  Suite suite;
  if (!suite.has_cpu()) MESSAGE("bugs are looked for in the simulator only");
  const Finding clean_simulated = suite.simulated(), clean_cpu = suite.has_cpu() ? suite.on_cpu() : Finding{};
  CHECK_MESSAGE(!clean_simulated.noticed, clean_simulated.what);
  CHECK_MESSAGE(!clean_cpu.noticed, clean_cpu.what);
  suite.remember();

  std::printf("%zu cases pass without a bug\n%-36s %-72s %s\n", suite.size(), "planted bug", "simulated GPU", "CPU");
  for (const PlantedRow& row : kPlantedRows) {
    Finding simulated{true, "-"}, cpu{true, "-"};
    {
      Planting planting(row.bug);
      if (row.cpu != OnCpu::kOnly) simulated = suite.simulated();
      if (suite.has_cpu() && (row.cpu == OnCpu::kSafe || row.cpu == OnCpu::kOnly)) cpu = suite.on_cpu();
    }
    if (suite.has_cpu() && row.cpu == OnCpu::kUnsafe) cpu = in_another_process(row.bug);
    std::printf("%-36s %-72s %s\n", row.what, simulated.what.c_str(), cpu.what.c_str());
    std::fflush(stdout);
    CHECK_MESSAGE(simulated.noticed, row.what);
    CHECK_MESSAGE(cpu.noticed, row.what);
  }
}

}  // namespace
}  // namespace kachel::lowering
