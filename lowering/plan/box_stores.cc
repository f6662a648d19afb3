#include "lowering/plan/box_stores.h"

#include <fmt/format.h>

#include <algorithm>

#include "lowering/loop_ir/range.h"
#include "lowering/machine/machine.h"
#include "lowering/plan/box_rules.h"
#include "lowering/plan/pipeline_tiles.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

constexpr int64_t kRows = 16, kColumnStep = 16;  // of a box; what four matrices of stmatrix are
constexpr int64_t kRowBytes = 128;               // of a box at most
constexpr int64_t kBoxes = 2;                    // a warp, so that one is filled while the other one is read
constexpr int64_t kReserved = 1024;              // for barriers of phases and what reductions exchange

// Calls fn on each copy outside of loops, or on those within.
template <class Fn>
void for_each_copy(const ir::Stmt& stmt, bool in_loops, const Fn& fn, bool inside = false) {
  const auto within = [&](const ir::Block& body, bool looped) {
    for (const ir::Stmt& inner : body) for_each_copy(inner, in_loops, fn, looped);
  };
  if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node); copy && inside == in_loops) fn(*copy);
  if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node))
    within(branch->then_body, inside), within(branch->else_body, inside);
  // What is copied ahead of the rest of the body stands around it.
  if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) within(loop->body, inside || !is_single(*loop));
}

// Of one box for each warp.
int64_t box_bytes(const BoxStore& box, const ir::CopyStmt& copy, int64_t threads) {
  return threads / 32 * kRows * box.columns * ir::bits(copy.dst.buffer->type.dtype) / 8;
}

class Chooser {
 public:
  Chooser(const ir::Kernel& kernel, const Placements& placements, const Target& target, uint64_t fact_mask)
      : kernel_(kernel), placements_(placements), target_(target), fact_mask_(fact_mask) {
    note_multiples(kernel, &multiples_);
  }

  // Whether it stores accumulators as 16-bit elements, or adds them to such or to f32; then `columns` of a box, or why
  // there are none.
  bool choose(const ir::CopyStmt& copy, BoxStore* box) const {
    const ir::BufferRef &to = copy.dst.buffer, &fragment = copy.src.buffer;
    const bool adds = copy.atomic != ir::AtomicOp::kNone;
    const bool suits =
        adds ? most_stored(copy.atomic, to->type.dtype, target_.architecture) > 1 : ir::bits(to->type.dtype) == 16;
    if (to->scope != ir::Scope::kGlobal || !suits || fragment->scope == ir::Scope::kGlobal || !is_whole(copy.src))
      return false;
    const Placement& placement = placements_.at(fragment.get());
    if (placement.scope != ir::Scope::kRegister || !placement.fragment) return false;
    const auto rows = placement.fragment->matrix_rows();
    const bool converts = ir::is_float(to->type.dtype) && fragment->type.dtype == ir::DType::F32;
    if (!rows || !placement.fragment->replicas().empty() || !(converts || fragment->type.dtype == to->type.dtype))
      return false;
    box->reason = refuses(copy);
    if (!box->reason.empty()) return true;
    // Groups of 16 columns that lie beside each other in a warp, and in its registers.
    const FragmentLayout::Axis& columns = rows->axes()[1];
    const bool several = columns.size() > 2 && !columns[2].in_thread && columns[2].stride == 8;
    const int64_t groups = several ? columns[2].radix : 1;
    const int64_t most = kRowBytes * 8 / ir::bits(to->type.dtype) / kColumnStep;
    box->columns = kColumnStep * std::min<int64_t>(most, groups % 4 == 0 ? 4 : groups % 2 == 0 ? 2 : 1);
    return true;
  }

 private:
  std::string refuses(const ir::CopyStmt& copy) const {
    const ir::BufferRef& to = copy.dst.buffer;
    if (copy.dst.axes.back().kind == ir::AxisSpec::Kind::kIndex)
      return fmt::format("a column of {} is written", to->name);
    if (std::string why = refuses_boxes(kernel_, copy.dst, multiples_, fact_mask_); !why.empty()) return why;
    if (uses_of(to.get(), kernel_.body, Ways::kOne) != 1) return fmt::format("{} is touched more than once", to->name);
    return "";
  }

  const ir::Kernel& kernel_;
  const Placements& placements_;
  const Target& target_;
  const uint64_t fact_mask_;
  Ranges multiples_;
};

}  // namespace

int64_t added_bytes(const ir::Kernel& kernel, const Placements& placements, const Target& target, uint64_t fact_mask) {
  if (!has_group_mma(target.architecture)) return 0;
  const Chooser chooser(kernel, placements, target, fact_mask);
  int64_t bytes = 0;
  for (const ir::Stmt& stmt : kernel.body)
    for_each_copy(stmt, true, [&](const ir::CopyStmt& copy) {
      BoxStore box;
      if (copy.atomic != ir::AtomicOp::kNone && chooser.choose(copy, &box))
        bytes += kBoxes * box_bytes(box, copy, placements.threads);
    });
  return bytes ? bytes + kReserved : 0;
}

void choose_box_stores(const ir::Kernel& kernel, const Schedule& schedule, Placements* placements, const Target& target,
                       uint64_t fact_mask) {
  if (!has_group_mma(target.architecture)) return;
  const Chooser chooser(kernel, *placements, target, fact_mask);
  const int64_t peak = peak_bytes(kernel, schedule, *placements, target) + kReserved;
  int64_t boxes = 0;
  const auto choose = [&](size_t at, bool in_loops) {
    // Where there is no next tile, boxes may lie where stages were.
    const bool behind = target.one_tile && !in_loops;
    const int64_t here = behind ? peak_bytes(kernel, schedule, *placements, target, at) + kReserved : peak;
    for_each_copy(kernel.body[at], in_loops, [&](const ir::CopyStmt& copy) {
      BoxStore box;
      if ((in_loops && copy.atomic == ir::AtomicOp::kNone) || !chooser.choose(copy, &box)) return;
      const int64_t each = box_bytes(box, copy, schedule.teams * placements->threads);
      const auto bytes = [&] { return std::max(peak, here + boxes + box.buffers * each); };
      for (box.buffers = box.columns ? kBoxes : 0; box.buffers > 0; --box.buffers)
        if (bytes() <= target.shared_limit && resident_by_shared(bytes(), target.architecture) >=
                                                  resident_by_shared(std::max(peak, here + boxes), target.architecture))
          break;
      if (box.columns && !box.buffers) {
        box.columns = 0;
        box.reason = "shared memory has no room for its boxes";
      }
      boxes += box.buffers * each;
      placements->boxes.emplace(&copy, std::move(box));
    });
  };
  // What every iteration adds comes first.
  for (size_t at = 0; at < kernel.body.size(); ++at) choose(at, true);
  for (size_t at = 0; at < kernel.body.size(); ++at) choose(at, false);
}

}  // namespace kachel::lowering
