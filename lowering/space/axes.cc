#include "lowering/space/axes.h"

#include <algorithm>

#include "lowering/machine/machine.h"

namespace kachel::lowering {
namespace {

using Values = std::vector<int64_t>;

constexpr int64_t kMostExtent = 8192;
// Along k a stage holds whole swizzle patterns of a row, at least half of one; less only where that is all there is.
constexpr int kRowBytes[] = {kSlabBytes, kSlabBytes / 2, 2 * kSlabBytes};

Values powers(int64_t first, int64_t last) {
  Values values;
  for (int64_t value = first; value <= last; value *= 2) values.push_back(value);
  return values;
}

// Rows and columns of products: whole instructions. Of wgmma and mma the columns are finer than the rows.
Values product_extents(const Outline& outline, size_t tunable) {
  if (outline.is_cpu()) return {64, 128, 32, 256, 16};
  const ir::VarRef& var = outline.question().kernel.tunables[tunable].var;
  const bool rows = std::any_of(outline.products().begin(), outline.products().end(),
                                [&](const ProductOutline& product) { return ir::mentions(product.m.expr, var); });
  if (rows) return {128, 64, 256, 192, 32, 16};
  Values values;
  for (int64_t value = 16; value <= kGroupMostColumns; value += value < 128 ? 16 : 32) values.push_back(value);
  return values;
}

// Whether tiles of so many elements cover all that the tunable's tiles have to.
bool covers(const Outline& outline, size_t tunable, int64_t elements) {
  const ir::VarRef& var = outline.question().kernel.tunables[tunable].var;
  bool found = false, all = true;
  for (const CoverOutline& cover : outline.covers()) {
    if (!ir::mentions(cover.extent.expr, var)) continue;
    const auto total = outline.value(cover.total);
    found = true;
    all &= total && *total <= elements;
  }
  return found && all;
}

Values along_k(const Outline& outline, size_t tunable, int bits) {
  if (outline.is_cpu()) return {64, 128, 256};
  Values values;
  for (const int bytes : kRowBytes) values.push_back(bytes * 8 / bits);
  if (const int least = kMmaBytes * 8 / bits; covers(outline, tunable, least)) values.push_back(least);
  std::erase_if(values, [](int64_t value) { return value > kGroupMostColumns; });
  return values;
}

Values values_of(const Outline& outline, size_t tunable) {
  const ir::Tunable& declared = outline.question().kernel.tunables[tunable];
  if (!declared.automatic) return declared.values;
  const bool cpu = outline.is_cpu();
  switch (outline.roles()[tunable]) {
    case ir::TunableRole::kThreads:
      return cpu ? Values{kGroupThreads} : Values{128, 256, 64, 512};
    case ir::TunableRole::kCluster:
    case ir::TunableRole::kClusterColumns:
      if (cpu || !has_group_mma(outline.question().target.architecture)) return {1};
      return outline.rows_straddle() ? powers(1, kMostCluster) : Values{1, 2};
    case ir::TunableRole::kStages:
      return cpu ? Values{2} : Values{4, 3, 2, 6, 8, 5};
    case ir::TunableRole::kProduct:
      if (const int bits = outline.bits_along_k(tunable)) return along_k(outline, tunable, bits);
      return product_extents(outline, tunable);
    case ir::TunableRole::kExtent:
      return powers(1, kMostExtent);
    case ir::TunableRole::kParts:
      return cpu ? Values{8, 4, 1, 2, 16} : Values{8, 4, 16, 2, 32, 1, 64};
    case ir::TunableRole::kUnknown:
      break;
  }
  return {1};
}

}  // namespace

std::vector<std::vector<int64_t>> axes_of(const Outline& outline) {
  std::vector<Values> axes;
  const auto& tunables = outline.question().kernel.tunables;
  for (size_t i = 0; i < tunables.size(); ++i) axes.push_back(values_of(outline, i));
  const size_t most = std::min(kMostPoints, kMostWork / std::max<size_t>(outline.work(), 1));
  auto points = [&] {
    size_t points = 1;
    for (const Values& axis : axes) points = points > most ? points : points * axis.size();
    return points;
  };
  // Every other value of the longest axis; of listed ones only where nothing else is left.
  for (bool listed : {false, true})
    while (points() > most) {
      Values* longest = nullptr;
      for (size_t i = 0; i < axes.size(); ++i)
        if ((listed || tunables[i].automatic) && axes[i].size() > 1 && (!longest || axes[i].size() > longest->size()))
          longest = &axes[i];
      if (!longest) break;
      for (size_t at = 1; at < longest->size(); ++at)
        longest->erase(longest->begin() + static_cast<std::ptrdiff_t>(at));
    }
  return axes;
}

}  // namespace kachel::lowering
