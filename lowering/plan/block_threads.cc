#include "lowering/plan/block_threads.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "lowering/tile_ir/exchanges.h"
#include "lowering/tile_ir/hoist_reductions.h"

namespace kachel::lowering {
namespace {

using Choices = std::map<const ir::GemmStmt*, GemmChoice>;

constexpr int64_t kMostThreads = 1024;
// Of all sums of products of a thread.
constexpr int64_t kMostSums = 160;
// Of wgmma's accumulators, of which the instruction can hold 128 at once, and of those of all products of a thread,
// which has 255 registers, some of them for addresses.
constexpr int64_t kGroupAccumulators = 128, kAllAccumulators = 224;

bool can_share_groups(const Choices& choices, int64_t groups) {
  return std::all_of(choices.begin(), choices.end(), [&](const auto& entry) {
    return !entry.second.group || group_grid(*entry.first, groups, false).has_value();
  });
}

struct Sums {
  int64_t largest = 0, total = 0;  // elements of C, each tile once
};
// Of the products whose choice passes.
template <class Passes>
Sums sums_of(const Choices& choices, const Passes& passes) {
  std::map<const ir::Buffer*, int64_t> tiles;
  for (const auto& [gemm, choice] : choices)
    if (passes(*gemm, choice)) tiles[gemm->c.buffer.get()] = product(tile_shape(gemm->c.buffer));
  Sums sums;
  for (const auto& [tile, elements] : tiles) {
    sums.largest = std::max(sums.largest, elements);
    sums.total += elements;
  }
  return sums;
}

// A warp group for each 64 rows of wgmma's C, of which a thread holds half a row; 0 without wgmma. Three groups at most
// where registers allow it.
int group_threads(const Choices& choices) {
  int64_t groups = 0;
  for (const auto& [gemm, choice] : choices) {
    if (!choice.group) continue;
    const int64_t rows = tile_shape(gemm->c.buffer)[0] / kGroupRows;
    groups = groups ? std::gcd(groups, rows) : rows;
  }
  if (!groups) return 0;
  const auto [largest, total] = sums_of(choices, [](const auto&, const auto& choice) { return choice.group; });
  const int64_t registers = largest / kGroupThreads, all = total / kGroupThreads;
  int64_t used = groups;
  for (int64_t fewer = groups - 1; fewer >= 1 && used > 3; --fewer)
    if (groups % fewer == 0 && registers / fewer <= kGroupAccumulators) used = fewer;
  while (used > 8) used /= 2;
  // Columns are shared where there are too few rows.
  const bool crowded = registers / used > kGroupAccumulators || all / used > kAllAccumulators;
  if (crowded && used <= 2 && can_share_groups(choices, 2 * used)) used *= 2;
  return static_cast<int>(used * kGroupThreads);
}

// Sums of fma in a thread: as many as are wanted, and as there may be of all products.
constexpr int64_t kWantedSums = 64, kMostFmaSums = 128;

// Without tensor cores; 0 where no product has its sums in registers.
int fma_threads(const Choices& choices) {
  const auto [largest, total] =
      sums_of(choices, [](const auto& gemm, const auto&) { return gemm.c.buffer->scope == ir::Scope::kFragment; });
  if (!largest) return 0;
  int64_t threads = std::clamp<int64_t>(std::bit_ceil(static_cast<uint64_t>(largest / kWantedSums)), 128, 256);
  while (total / threads > kMostFmaSums && threads < 512) threads *= 2;
  return static_cast<int>(threads);
}

// Of so many blocks of rows each warp has as many: eight warps, or fewer, and more only where else there were hardly
// any.
int64_t warps_for(int64_t rows) {
  constexpr int64_t kUsual = 8, kFew = 4, kMost = 16;
  int64_t warps = kUsual;
  while (rows % warps) --warps;
  for (int64_t more = kUsual + 1; warps < kFew && more <= std::min(kMost, rows); ++more)
    if (rows % more == 0) return more;
  return warps;
}

int64_t power_above(int64_t value) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(value)));
}

// Iterations of the largest region, with what it adds up, or `least`.
int64_t largest_space(const ir::Block& body, int64_t least) {
  for (const ir::Stmt& stmt : body) {
    if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) {
      int64_t iterations = 1;
      const ir::Expr* reduction = reduction_of(*region);
      for (const ir::IterVar& iter : region->iters) iterations *= iter.extent->int_value;
      for (size_t i = 0; reduction && i < reduction->iters.size(); ++i)
        iterations *= reduction->iters[i].extent->int_value;
      least = std::max(least, iterations);
    }
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) least = largest_space(loop->body, least);
    if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node))
      least = largest_space(branch->else_body, largest_space(branch->then_body, least));
  }
  return least;
}

bool can_share(const Choices& choices, int64_t warps, const SharingOf& sharing_of) {
  return std::all_of(choices.begin(), choices.end(), [&](const auto& entry) {
    const auto& [gemm, choice] = entry;
    if (!choice.mma) return true;
    const std::vector<int64_t> shape = tile_shape(gemm->c.buffer);
    const Sharing sharing = sharing_of(*gemm);
    if (sharing == Sharing::kDepth) return depth_grid(*gemm, *choice.mma, warps).has_value();
    return warp_grid(shape[0], shape[1], warps, sharing == Sharing::kColumns ? sharing : Sharing::kBoth).has_value();
  });
}

// As many warps or somewhat more that can share all tiles, of 80 columns five in place of four; if none, fewer.
int64_t nearest_that_share(const Choices& choices, int64_t warps, const SharingOf& sharing_of) {
  for (int64_t more = warps; more < 2 * warps; ++more)
    if (can_share(choices, more, sharing_of)) return more;
  int64_t fewer = warps - 1;
  while (fewer > 1 && !can_share(choices, fewer, sharing_of)) --fewer;
  return std::max<int64_t>(fewer, 1);
}

}  // namespace

// As many warps as give each 64 x 64 of the largest C, from four to eight where the tiles can be shared so; without
// tensor cores as fma's sums want, without products 32 elements of the largest tile a thread, or 64 where several
// blocks compute it, in four warps or more: in fewer only what leaves a thread less than four elements, since warps
// that share sums wait for each other.
int choose_threads(const ir::Kernel& kernel, const Choices& choices, const SharingOf& sharing_of, int blocks) {
  if (const int threads = group_threads(choices)) return threads;
  int64_t fragment = 0;
  for (const ir::Stmt& stmt : kernel.body)
    if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node))
      fragment = std::max(fragment, product(tile_shape(decl->buffer)));
  const auto [largest, total] = sums_of(choices, [](const auto&, const auto& choice) { return choice.mma; });
  if (const int threads = largest ? 0 : fma_threads(choices)) return threads;
  if (!largest) {
    const int64_t part = (fragment + blocks - 1) / blocks;
    const int64_t fewest = std::clamp<int64_t>(power_above(largest_space(kernel.body, fragment) / blocks / 4), 32, 128);
    int64_t threads = std::clamp<int64_t>(power_above(part / (blocks > 1 ? 64 : 32)), fewest, 512);
    const int64_t exchanged = exchanged_elements(kernel);
    while (threads < kMostThreads && exchanged > kMostExchanged * threads) threads *= 2;
    return static_cast<int>(threads);
  }
  int64_t warps = std::clamp<int64_t>(std::bit_ceil(static_cast<uint64_t>(largest / 4096)), 4, 8);
  // A chain through registers keeps both products in them: as many warps as there are rows for.
  for (const auto& [gemm, choice] : choices)
    if (choice.mma && sharing_of(*gemm) == Sharing::kRows) {
      const int64_t rows = tile_shape(gemm->c.buffer)[0] / kMmaRows;
      warps = warps_for(rows);
      break;
    }
  // Computing an operand is most of the work.
  for (const auto& [gemm, choice] : choices)
    if (choice.b_in_registers) warps = 8;
  warps = nearest_that_share(choices, warps, sharing_of);
  // Several products side by side keep all of their sums in registers.
  while (total / (32 * warps) > kMostSums && warps < 16 && can_share(choices, 2 * warps, sharing_of)) warps *= 2;
  return static_cast<int>(32 * warps);
}

}  // namespace kachel::lowering
