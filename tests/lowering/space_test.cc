// The space that `tune auto` stands for.
#include "lowering/space/space.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "ir/parse.h"
#include "lowering/machine/machine.h"
#include "lowering/space/axes.h"
#include "lowering/space/outline.h"

namespace kachel::lowering {
namespace {

using Values = std::vector<int64_t>;
using Space = std::vector<Values>;

std::string program(const std::string& name) {
  std::stringstream text;
  text << std::ifstream(fmt::format("{}/auto_{}.tile", KACHEL_PROGRAMS, name)).rdbuf();
  return text.str();
}

struct Asked {
  std::string text;
  int architecture = 90;  // 0: a CPU
  std::map<std::string, int64_t> dims = {};
  ir::DType type = ir::DType::F16;
  std::function<bool(const Values&)> admitted = {};
};

struct Answer {
  explicit Answer(ir::Kernel asked) : kernel(std::move(asked)), question{.kernel = kernel} {}
  Answer(const Answer&) = delete;
  ir::Kernel kernel;
  SpaceQuestion question;
  Space space;

  std::map<std::string, int64_t> named(const Values& values) const {
    std::map<std::string, int64_t> all;
    for (size_t i = 0; i < values.size(); ++i) all[kernel.tunables[i].var->name] = values[i];
    return all;
  }
  bool has(const Values& values) const { return std::find(space.begin(), space.end(), values) != space.end(); }
  std::set<int64_t> of(size_t tunable) const {
    std::set<int64_t> values;
    for (const Values& each : space) values.insert(each[tunable]);
    return values;
  }
};

std::unique_ptr<Answer> derived(const Asked& asked) {
  auto module = ir::load(asked.text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  auto answer = std::make_unique<Answer>(module->kernels[0]);
  SpaceQuestion& question = answer->question;
  for (const ir::TypeSymbolRef& symbol : answer->kernel.type_symbols) {
    const auto& options = symbol->options;
    const bool has = std::find(options.begin(), options.end(), asked.type) != options.end();
    question.bindings.types[symbol->name] = has ? asked.type : options[0];
  }
  for (const ir::VarRef& var : answer->kernel.consts) question.bindings.int_consts[var->name] = 0;
  question.bindings.dims = asked.dims;
  question.admitted = asked.admitted;
  if (asked.architecture == 0) {
    question.target = {.kind = Target::Kind::kCpu, .architecture = 0, .shared_limit = 1 << 20, .vector_bits = 512};
  } else {
    question.target.architecture = asked.architecture;
    question.target.shared_limit = machine_of(asked.architecture).shared_per_block;
    question.multiprocessors = 132;
  }
  answer->space = derive_space(question);
  return answer;
}

const std::map<std::string, int64_t> kProduct = {{"M", 2048}, {"N", 2048}, {"K", 2048}};
const std::map<std::string, int64_t> kAttention = {{"B", 2},  {"Sq", 2048}, {"Sk", 2048}, {"H", 16},
                                                   {"G", 16}, {"D", 128},   {"E", 128}};

const Asked kAll[] = {{program("matmul"), 90, kProduct},
                      {program("matmul"), 80, kProduct},
                      {program("matmul"), 90, kProduct, ir::DType::F8E4M3},
                      {program("matmul"), 90, kProduct, ir::DType::F32},
                      {program("matmul"), 0, kProduct, ir::DType::F32},
                      {program("attention"), 90, kAttention},
                      {program("attention"), 80, kAttention},
                      {program("attention"), 0, kAttention},
                      {program("softmax"), 90, {{"N", 4096}, {"D", 1000}}},
                      {program("softmax"), 0, {{"N", 4096}, {"D", 1000}}},
                      {program("rows"), 90, {{"N", 4096}, {"K", 4096}}},
                      {program("rows"), 0, {{"N", 4096}, {"K", 4096}}},
                      {program("rows"), 80}};

TEST_CASE("a derived space is not empty, not too large, without repetition, and always the same") {
  for (const Asked& asked : kAll) {
    CAPTURE(asked.text);
    CAPTURE(asked.architecture);
    const auto answer = derived(asked);
    CHECK(answer->space.size() >= 4);
    CHECK(answer->space.size() <= (asked.architecture ? kMostDerived : kMostDerivedCpu));
    CHECK(std::set<Values>(answer->space.begin(), answer->space.end()).size() == answer->space.size());
    CHECK(derived(asked)->space == answer->space);
    for (const Values& values : answer->space)
      for (size_t i = 0; i < values.size(); ++i) {
        const int64_t most = ir::most_automatic(ir::roles_of(answer->kernel)[i]);
        CHECK((values[i] >= 1 && values[i] <= most));
      }
  }
}

TEST_CASE("every configuration instantiates, lowers and fits the machine") {
  for (const Asked& asked : kAll) {
    CAPTURE(asked.text);
    CAPTURE(asked.architecture);
    const auto answer = derived(asked);
    const size_t step = answer->space.size() / 24 + 1;
    for (size_t at = 0; at < answer->space.size(); at += step) {
      ir::Bindings bindings = answer->question.bindings;
      bindings.tunables = answer->named(answer->space[at]);
      for (const ir::VarRef& dim : answer->kernel.dims) bindings.dims.try_emplace(dim->name, 512);
      for (const auto& [name, value] : bindings.tunables) CAPTURE(fmt::format("{}={}", name, value));
      const auto concrete = ir::instantiate(answer->kernel, bindings);
      REQUIRE_MESSAGE(concrete.ok(), concrete.status().message());
      const auto lowered = lower(*concrete, answer->question.target, ~uint64_t{0});
      REQUIRE_MESSAGE(lowered.ok(), lowered.status().message());
      CHECK(lowered->shared_bytes <= answer->question.target.shared_limit);
    }
  }
}

TEST_CASE("names of tunables, tiles and dimensions do not matter") {
  const std::pair<std::string, std::string> names[] = {{"BM", "stage"}, {"BN", "splits"}, {"BK", "rows"},
                                                       {"As", "acc0"},  {"Bs", "q"},      {"matmul", "softmax"}};
  std::string renamed = program("matmul");
  for (const auto& [from, to] : names)
    for (size_t at = 0; (at = renamed.find(from, at)) != renamed.npos; at += to.size())
      renamed.replace(at, from.size(), to);
  for (int architecture : {90, 80, 0})
    CHECK(derived({renamed, architecture, kProduct})->space ==
          derived({program("matmul"), architecture, kProduct})->space);
}

// Measured on an H200: docs/measurements/tuning.md.
TEST_CASE("what was measured to be best is in the space") {
  struct Best {
    int64_t m, n, k;
    Values values;  // BM, BN, BK, stages, cluster
  };
  for (const Best& best : {Best{1024, 1024, 1024, {64, 128, 64, 8, 1}}, Best{2048, 2048, 2048, {128, 128, 64, 6, 1}},
                           Best{4096, 4096, 4096, {128, 256, 64, 4, 1}}, Best{128, 8192, 8192, {64, 128, 64, 8, 1}},
                           Best{4096, 4096, 4088, {128, 256, 64, 4, 2}}, Best{512, 512, 512, {64, 64, 64, 8, 1}}}) {
    CAPTURE(best.m);
    CHECK(derived({program("matmul"), 90, {{"M", best.m}, {"N", best.n}, {"K", best.k}}})->has(best.values));
  }
  std::map<std::string, int64_t> narrow = kAttention;
  narrow["D"] = narrow["E"] = 64;
  CHECK(derived({program("attention"), 90, narrow})->has({192, 128, 5}));
  for (const Values& values : {Values{128, 128, 2}, {128, 128, 3}, {128, 160, 2}, {192, 80, 4}, {64, 128, 3}})
    CHECK(derived({program("attention"), 90, kAttention})->has(values));
}

TEST_CASE("where prunes before the best are taken") {
  Asked asked{program("matmul"), 90, kProduct};
  asked.admitted = [](const Values& values) { return values[0] == 16 && values[1] == 48; };
  const auto answer = derived(asked);
  CHECK(!answer->space.empty());
  CHECK(answer->of(0) == std::set<int64_t>{16});
  CHECK(answer->of(1) == std::set<int64_t>{48});
  asked.admitted = [](const Values&) { return false; };
  CHECK(derived(asked)->space.empty());
}

TEST_CASE("lists stand beside derived values") {
  std::string text = program("matmul");
  const std::string clause = "tune auto BM, BN, BK, stages, cluster";
  text.replace(text.find(clause), clause.size(),
               "tune BM = 48 | 64\ntune auto BN\ntune BK = 64, stages = 2 | 3, cluster = 1");
  const auto answer = derived({text, 90, kProduct});
  CHECK(answer->of(0) == std::set<int64_t>{48, 64});
  CHECK(answer->of(1).size() > 4);
  CHECK(answer->of(2) == std::set<int64_t>{64});
  CHECK(answer->of(3) == std::set<int64_t>{2, 3});
}

TEST_CASE("tiles are no larger than what there is, where that is known") {
  const auto small = derived({program("matmul"), 90, {{"M", 20}, {"N", 100}, {"K", 64}}});
  CHECK(*small->of(0).rbegin() == 32);
  CHECK(*small->of(1).rbegin() == 112);
  CHECK(*small->of(2).rbegin() == 64);
  const auto unknown = derived({program("matmul"), 90});
  CHECK(unknown->of(0).count(128) == 1);
  CHECK(*derived({program("softmax"), 90, {{"N", 3}, {"D", 64}}})->of(0).rbegin() == 4);
}

TEST_CASE("rows of products are whole instructions and steps along k whole lines") {
  for (const auto& [type, bytes] : {std::pair(ir::DType::F16, 2), {ir::DType::F8E4M3, 1}, {ir::DType::F32, 4}}) {
    const auto answer = derived({program("matmul"), 90, kProduct, type});
    for (int64_t m : answer->of(0)) CHECK(m % 16 == 0);
    for (int64_t n : answer->of(1)) CHECK((n % 16 == 0 && n <= 256));
    for (int64_t k : answer->of(2)) CHECK(k * bytes % 64 == 0);
  }
}

TEST_CASE("pipelines are as deep as memory allows, for each number of blocks a multiprocessor") {
  const auto answer = derived({program("matmul"), 90, kProduct});
  Outline outline(answer->question);
  std::map<std::pair<Values, int64_t>, std::pair<int, int64_t>> depths;
  for (const Values& values : answer->space) {
    outline.set(values);
    const Footprint footprint = footprint_of(outline);
    CHECK(footprint.shared_bytes <= answer->question.target.shared_limit);
    CHECK(footprint.shared_bytes == (values[0] + values[1]) * values[2] * 2 * values[3]);
    auto& [count, most] = depths[{{values[0], values[1], values[2], values[4]}, resident_of(outline, footprint)}];
    ++count, most = std::max(most, footprint.shared_bytes);
  }
  // A second one where the deepest leaves little room beside the tiles.
  for (const auto& [point, kept] : depths) {
    const bool crowded = point.second == 1 && answer->question.target.shared_limit - kept.second < 24 * 1024;
    CHECK(kept.first <= (crowded ? 2 : 1));
  }
}

TEST_CASE(
    "blocks share copies for large products, for small ones where lines are asked for twice, and where there are "
    "clusters") {
  const auto answer = derived({program("matmul"), 90, kProduct});
  for (const Values& values : answer->space) CHECK((values[4] == 1 || values[0] * values[1] >= 128 * 256));
  const auto between = derived({program("matmul"), 90, {{"M", 1000}, {"N", 1032}, {"K", 1000}}});
  for (int64_t cluster : {1, 4, 8}) CHECK(between->of(4).count(cluster));
  for (const Values& values : between->space)
    CHECK((values[4] <= 2 || (values[0] * values[1] >= 64 * 64 && values[0] * values[1] <= 128 * 128)));
  CHECK(derived({program("matmul"), 80, kProduct})->of(4) == std::set<int64_t>{1});
}

TEST_CASE("clusters are rectangles") {
  std::string text = program("matmul");
  const std::string clause = "tune auto BM, BN, BK, stages, cluster";
  text.replace(text.find(clause), clause.size(), clause + ", cluster_columns");
  const auto answer = derived({text, 90, {{"M", 1000}, {"N", 1032}, {"K", 1000}}});
  std::set<std::pair<int64_t, int64_t>> shapes;
  for (const Values& values : answer->space) shapes.emplace(values[4], values[5]);
  for (const auto& [cluster, columns] : shapes) CHECK((cluster % columns == 0 && 2 * columns * columns >= cluster));
  for (const std::pair<int64_t, int64_t> shape : {std::pair{1, 1}, {4, 2}, {8, 2}, {8, 4}}) CHECK(shapes.count(shape));
  // Of a listed cluster too.
  text.replace(text.find(clause), text.find('\n', text.find(clause)) - text.find(clause),
               "tune auto BM, BN, BK, stages, cluster_columns\ntune cluster = 4");
  const auto listed = derived({text, 90, {{"M", 1000}, {"N", 1032}, {"K", 1000}}});
  CHECK(listed->of(4) == std::set<int64_t>{2, 4});
  for (int architecture : {80, 0})  // where it changes nothing
    CHECK(derived({text, architecture, {{"M", 1000}, {"N", 1032}, {"K", 1000}}})->of(4) == std::set<int64_t>{1});
}

TEST_CASE("many tunables are looked at in a limited number of points") {
  std::string text =
      "tile 1\nkernel k(A: out f32[N])\nkey N\ntune auto a, b, c, d, e, f\ngrid n < ceildiv(N, a)\n{ fragment ";
  for (char name : {'b', 'c', 'd', 'e', 'f'}) text += fmt::format("t{0}: f32[{0}] = 0, ", name);
  text += "x: f32[a] = 0\n  A[n*a +: a] = x }";
  const auto answer = derived({text, 90, {{"N", 100000}}});
  CHECK(answer->space.size() == kMostDerived);
}

TEST_CASE("points are the fewer, the more there is to evaluate of each, conditions included") {
  std::string conditions = "N > 0";
  for (int i = 0; i < 2000; ++i) conditions += fmt::format(", a + b + c != {}", i);
  size_t asked = 0;
  const auto answer =
      derived({"tile 1\nkernel k(A: out f32[N])\nkey N\nwhere " + conditions +
                   "\ntune auto a, b, c\ngrid n < ceildiv(N, a)\n{ fragment t: f32[b] = 0, u: f32[c] = 0, "
                   "x: f32[a] = 0\n  A[n*a +: a] = x }",
               90,
               {{"N", 100000}},
               ir::DType::F16,
               [&](const Values&) { return ++asked > 0; }});
  CHECK(!answer->space.empty());
  CHECK(asked * 2000 * 7 <= kMostWork);
}

TEST_CASE("extents are typed once, not whenever they are evaluated") {
  const auto answer = derived({program("matmul"), 90, kProduct});
  const Outline outline(answer->question);
  for (const Extent& extent : outline.grid()) CHECK(extent.expr->typed);
  for (const TileOutline& tile : outline.tiles())
    for (const Extent& extent : tile.extents) CHECK(extent.expr->typed);
  for (const ProductOutline& product : outline.products()) CHECK(product.m.expr->typed);
  for (const CoverOutline& cover : outline.covers()) CHECK((cover.total.expr->typed && cover.extent.expr->typed));
}

TEST_CASE("tiles beyond any memory fit nowhere, and no number of bytes of them overflows") {
  std::string tiles;
  for (int i = 0; i < 31; ++i) tiles += fmt::format("  shared a{}: i64[16777216]\n", i);
  for (int i = 0; i < 7; ++i) tiles += fmt::format("  shared b{}: i8[16777216]\n", i);
  for (const std::string& declared :
       {std::string("  shared huge: i8[4294967296, 4294967295]\n") + tiles + "  shared c: i8[16776191]\n",
        std::string("  shared huge: i8[9223372036854775807, 9223372036854775807]\n"), tiles}) {
    const auto answer =
        derived({"tile 1\nkernel k(A: f16[M], C: out f16[M])\ntune auto BM\ngrid b < ceildiv(M, BM)\n{\n" + declared +
                 "  fragment x: f16[BM]\n  x = A[b*BM +: BM]\n  C[b*BM +: BM] = x\n}\n"});
    CHECK(answer->space.empty());
  }
}

TEST_CASE("along a short k tiles are as narrow as an instruction") {
  const auto along_k = [](int64_t k, ir::DType type) {
    const auto answer = derived({program("matmul"), 90, {{"M", 2048}, {"N", 2048}, {"K", k}}, type});
    return answer->of(2);
  };
  CHECK(along_k(8, ir::DType::F16) == std::set<int64_t>{16});
  CHECK(along_k(32, ir::DType::F8E4M3) == std::set<int64_t>{32});
  CHECK(along_k(17, ir::DType::F16) == std::set<int64_t>{32});
  CHECK(!along_k(2048, ir::DType::F16).count(16));
}

TEST_CASE("a program's parts") {
  auto module = ir::load(program("sum"));
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  SpaceQuestion question{.kernel = module->programs[0].header, .is_program = true};
  const Space space = derive_space(question);
  REQUIRE(space.size() >= 5);
  CHECK(space[0] == Values{8});
  CHECK(std::find(space.begin(), space.end(), Values{1}) != space.end());
}

}  // namespace
}  // namespace kachel::lowering
