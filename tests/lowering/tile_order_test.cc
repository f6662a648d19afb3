// The order in which blocks come to tiles of unequal length, worked out from the emitted loop IR.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <vector>

#include "lowering/pipeline.h"
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

constexpr char kCausal[] = R"(tile 1
kernel attend(Q: f16[B, M, 128], K: f16[B, M, 128], V: f16[B, M, 128], O: out f16[B, M, 128])
tune BM = 128
grid i < ceildiv(M, BM), b < B
{
  shared q: f16[BM, 128], k: f16[64, 128], v: f16[64, 128]
  fragment s: f32[BM, 64], p: f16[BM, 64], o: f32[BM, 128] = 0
  q = Q[b, i*BM +: BM, :]
  pipelined n < ceildiv(min(M, (i + 1) * BM), 64), 2 {
    k = K[b, n*64 +: 64, :]
    v = V[b, n*64 +: 64, :]
    s = q @ k^T
    p = s
    o += p @ v
  }
  O[b, i*BM +: BM, :] = o
}
)";

// The grid point of each tile of a launch on B matrices of M rows.
std::vector<std::array<int64_t, 2>> places(const Lowering& lowering, int64_t rows, int64_t matrices) {
  const std::map<std::string, int64_t> sizes = {
      {"M", rows}, {"B", matrices}, {"i_extent", (rows + 127) / 128}, {"b_extent", matrices}};
  const int64_t tiles = sizes.at("i_extent") * matrices;
  std::vector<std::array<int64_t, 2>> found;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    ir::HostEnv env = {{lowering.loops.tile.get(), {.i = tile}}, {lowering.loops.tiles.get(), {.i = tiles}}};
    for (const LoopParam& param : lowering.loops.params)
      if (param.var && sizes.count(param.var->name)) env[param.var.get()] = {.i = sizes.at(param.var->name)};
    std::array<int64_t, 2> at = {-1, -1};
    for (const LoopStmt& stmt : lowering.loops.producer) {
      const auto* let = std::get_if<LoopLet>(&stmt.node);
      if (!let || (at[0] >= 0 && at[1] >= 0)) break;
      const auto value = ir::evaluate(let->value, env);
      REQUIRE_MESSAGE(value.ok(), value.status().message());
      env[let->var.get()] = *value;
      if (let->var->name == "i") at[0] = value->i;
      if (let->var->name == "b") at[1] = value->i;
    }
    found.push_back(at);
  }
  return found;
}

// How long the busiest of `blocks` is at work, in terms of their mean, where a tile takes `lengths[tile]`.
double imbalance(const std::vector<double>& lengths, size_t blocks) {
  std::vector<double> busy(blocks);
  for (size_t first = 0, round = 0; first < lengths.size(); first += blocks, ++round) {
    const size_t count = std::min(blocks, lengths.size() - first);
    for (size_t block = 0; block < count; ++block)
      busy[block] += lengths[first + (round % 2 ? count - 1 - block : block)];
  }
  const double all = std::accumulate(busy.begin(), busy.end(), 0.0);
  return *std::max_element(busy.begin(), busy.end()) / (all / static_cast<double>(blocks));
}

TEST_CASE("every tile has its turn, and blocks that walk them back and forth have as much to do as each other") {
  const auto module = ir::load(kCausal);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  const auto concrete = ir::instantiate(module->kernels[0], {.tunables = {{"BM", 128}}});
  REQUIRE_MESSAGE(concrete.ok(), concrete.status().message());
  const Target target = {.kind = Target::Kind::kCuda, .architecture = 90, .shared_limit = 227 * 1024};
  const auto lowering = lower_to_loops(*concrete, target, ~uint64_t{0});
  REQUIRE_MESSAGE(lowering.ok(), lowering.status().message());
  REQUIRE(lowering->loops.back_and_forth);
  struct {
    int64_t rows, matrices;
    double most;
  } const shapes[] = {{128, 1, 132},    {100, 3, 44},      {1024, 64, 1.05}, {2048, 64, 1.05}, {4096, 64, 1.02},
                      {8192, 64, 1.01}, {16384, 16, 1.02}, {3000, 40, 1.05}, {4096, 24, 1.1},  {16384, 5, 1.1}};
  for (const auto& shape : shapes) {
    CAPTURE(shape.rows);
    CAPTURE(shape.matrices);
    const auto at = places(*lowering, shape.rows, shape.matrices);
    const int64_t columns = (shape.rows + 127) / 128;
    CHECK(std::set(at.begin(), at.end()).size() == static_cast<size_t>(columns * shape.matrices));
    std::vector<double> lengths;
    for (const auto& [column, matrix] : at) {
      CHECK(column >= 0);
      CHECK(column < columns);
      CHECK(matrix >= 0);
      CHECK(matrix < shape.matrices);
      lengths.push_back(static_cast<double>(column) + 3);
    }
    CHECK(imbalance(lengths, 132) <= shape.most);
    CHECK(lengths.back() == 3);  // what takes least comes last
  }
}

}  // namespace
}  // namespace kachel::lowering
