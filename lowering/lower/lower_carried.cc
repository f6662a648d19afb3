// Sums that a loop carries along in parts, one in each of the threads that share a result. See deferred_sums.h and
// tile_lowering.h.
#include <numeric>

#include "lowering/lower/tile_lowering.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/deferred_sums.h"

namespace kachel::lowering {

using ir::ExprRef;
using ir::Op;

std::vector<CarriedSum> TileLowering::open_sums(const ir::ForStmt& loop) {
  std::vector<CarriedSum> carried;
  if (on_cpu() || target_.generic) return carried;
  for (const DeferredSum& each : deferred_sums(kernel_, loop)) {
    const auto region = placements_.regions.find(each.reduction);
    const auto place = placements_.tiles.find(each.sum.get());
    if (region == placements_.regions.end() || place == placements_.tiles.end() || !place->second.fragment) continue;
    std::vector<size_t> kept(each.reduction->iters.size());
    std::iota(kept.begin(), kept.end(), size_t{0});
    const FragmentLayout results = region->second.keep(kept);
    const ir::BufferRef& part = std::get<ir::AssignStmt>(each.reduction->body[0].node).buffer;
    Sharers sharers = sharers_of(region->second, kept.size());
    const bool alike = results.axes() == place->second.fragment->axes() &&
                       results.threads() == place->second.fragment->threads() && in_registers(part);
    if (!alike || (sharers.rest.empty() && sharers.masks.empty())) continue;
    int bits = 0;
    for (int mask : sharers.masks) bits |= mask;
    const ExprRef thread = ir::make_var(out_.thread);
    ExprRef first;
    if (bits) first = ir::make_typed(Op::kEq, {ir::make_typed(Op::kBitAnd, {thread, int32(bits)}), int32(0)});
    for (const FragmentLayout::Digit& digit : sharers.rest)
      first = both(first, ir::make_typed(Op::kEq, {digit_of(thread, digit, results.threads()), int32(0)}));
    const ir::BufferRef sum = storage(each.sum);
    const ExprRef none = neutral_element(each.op, sum->type.dtype);
    unrolled("r", results.registers(), [&](ExprRef at) {
      if (planted(Planted::kSumRepeated) || ir::is_extreme(each.op)) return;  // extremes may be taken twice
      store(sum, at, ir::make_typed(Op::kSelect, {first, ir::make_load(sum, {at}), none}), nullptr);
    });
    parts_.insert(each.reduction);
    carried.push_back({sum, each.op, results, std::move(sharers)});
  }
  return carried;
}

void TileLowering::close_sums(const std::vector<CarriedSum>& carried) {
  for (const CarriedSum& each : carried) combine_shared(each.op, each.sum, each.layout, each.sharers);
}

}  // namespace kachel::lowering
