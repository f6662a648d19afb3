#include "lowering/plan/shared_sums.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "lowering/machine/machine.h"
#include "lowering/plan/gemm_choice.h"

namespace kachel::lowering {

int64_t groups_of_rows(const std::vector<const ir::GemmStmt*>& gemms, const Target& target) {
  if (!target.group_products || !has_group_mma(target.architecture)) return 0;
  int64_t groups = 0;
  for (const ir::GemmStmt* gemm : gemms) {
    const int64_t rows = gemm->c.buffer->shape[0]->int_value;
    if (may_take_mma(*gemm, target) && rows % kGroupRows == 0) groups = std::gcd(groups, rows / kGroupRows);
  }
  return groups;
}

int64_t warps_that_share(int64_t groups, const Target& target) {
  return groups ? std::max<int64_t>(groups, 2) * kGroupWarps : target.threads / (kGroupThreads / kGroupWarps);
}

SumShape least_shared(SumShape sums, int64_t warps) {
  constexpr int64_t kMostCopied = 64;  // a thread
  if (!warps || sums.rows % kGroupRows == 0 || warp_grid(sums.rows, sums.columns, warps, Sharing::kBoth)) return sums;
  const auto copied = copied_grid(sums.rows, sums.columns, warps);
  const int64_t sharing = copied ? warps / copied->copies : 1;
  if (sums.rows * sums.columns <= kMostCopied * kGroupThreads / kGroupWarps * sharing) return sums;
  std::optional<SumShape> least;
  for (int64_t m = 1; m <= warps; ++m) {
    if (warps % m) continue;
    const SumShape grown = {rounded_up(sums.rows, kMmaRows * m), rounded_up(sums.columns, kMmaColumns * (warps / m))};
    if (!least || grown.rows * grown.columns < least->rows * least->columns) least = grown;
  }
  return *least;
}

SumShape shared_by_groups(SumShape sums, const ir::GemmStmt& gemm, int64_t groups) {
  if (!groups) return sums;
  // With k down its rows B is cut at whole slabs.
  const int64_t cut = gemm.transpose_b ? kMmaColumns : kSlabBytes * 8 / ir::bits(gemm.b.buffer->type.dtype);
  const SumShape grown = {rounded_up(sums.rows, kGroupRows), rounded_up(sums.columns, cut * 2 * groups)};
  const bool wasteful = grown.rows > 2 * sums.rows || grown.columns > 2 * sums.columns;
  return wasteful ? sums : grown;
}

}  // namespace kachel::lowering
