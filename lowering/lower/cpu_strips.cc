// Regions on the CPU in strips, so that memory is busy while they compute. See tile_lowering.h.
//
// Reading ahead: a worker takes tiles of the grid one after another, and the processor's own prefetching ends where a
// copy ends. So while regions and reductions work on what was copied, the lines that the same copy reads for the next
// tile are asked for, a few in each strip. Writing behind: see fuse_copy(). Where a core's stores past the caches are
// slower than its copies, results are stored into caches, and their lines are asked for in the same way, for this tile.
#include "ir/print.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/cpu_machine.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;

namespace {

bool mentions_grid(const ExprRef& expr) {
  bool found = false;
  ir::visit(expr, [&](const ExprRef& node) {
    found |= node->kind == ir::ExprKind::kVar && node->var->kind == ir::VarKind::kGrid;
  });
  return found;
}
bool reads_memory(const ExprRef& expr) {
  bool found = false;
  ir::visit(expr, [&](const ExprRef& node) {
    found |= node->kind == ir::ExprKind::kLoad || node->kind == ir::ExprKind::kReduce;
  });
  return found;
}
// Rows of a tensor, few enough to stay in a cache until they are used, that differ from tile to tile.
bool follows_tiles(const ir::TileRef& rows, const std::vector<int64_t>& shape) {
  const ir::BufferRef& tensor = rows.buffer;
  if (tensor->scope != ir::Scope::kGlobal || ir::bits(tensor->type.dtype) < 8 ||
      rows.axes.back().kind == ir::AxisSpec::Kind::kIndex ||
      product(shape) * ir::bits(tensor->type.dtype) / 8 > kAheadBytes)
    return false;
  bool moves = false;
  for (const ir::AxisSpec& axis : rows.axes) {
    if (axis.gather || (axis.start && reads_memory(axis.start))) return false;
    moves |= axis.start && mentions_grid(axis.start);
  }
  return moves;
}
// Known before the first statement.
bool known_at_once(const ExprRef& expr) {
  bool known = true;
  ir::visit(expr, [&](const ExprRef& node) {
    known &= node->kind != ir::ExprKind::kVar ||
             (node->var->kind != ir::VarKind::kLoop && node->var->kind != ir::VarKind::kLet);
  });
  return known;
}

}  // namespace

// Keeps where the results of `body` will be, for its first regions of the same shape.
void TileLowering::note_stores(const ir::Block& body) {
  if (!on_cpu() || target_.streaming_stores) return;
  for (const ir::Stmt& stmt : body) {
    const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
    if (!copy || copy->atomic != ir::AtomicOp::kNone || !follows_tiles(copy->dst, slice_shape(copy->dst)) ||
        !ir::is_int(strides_.at(copy->dst.buffer.get()).back(), 1))
      continue;
    const std::vector<ir::AxisSpec>& axes = copy->dst.axes;
    if (!std::all_of(axes.begin(), axes.end(),
                     [](const auto& axis) { return !axis.start || known_at_once(axis.start); }))
      continue;
    Ahead stores{&copy->dst, {}, slice_shape(copy->dst), true};
    for (const ir::AxisSpec& axis : axes) stores.starts.push_back(axis.start ? index(axis.start, nullptr) : int64(0));
    asked_ahead_.push_back(std::move(stores));
  }
}

// Keeps where `src` will be for the next tile, for the first region of the same shape.
void TileLowering::note_ahead(const ir::CopyStmt& copy) {
  if (loop_depth_ > 0 || !follows_tiles(copy.src, slice_shape(copy.src)) ||
      !ir::is_int(strides_.at(copy.src.buffer.get()).back(), 1))
    return;
  ExprRef rest = ir::make_typed(Op::kAdd, {ir::make_var(out_.tile), int64(1)});
  for (size_t i = kernel_.grid.size(); i-- > 0;) {
    const ir::VarRef& var = kernel_.grid[i].var;
    if (i == 0) {
      values_[var.get()] = let("next", rest);
      break;
    }
    ExprRef extent = grid_extents_[i];
    values_[var.get()] = let("next", ir::make_typed(Op::kMod, {rest, extent}));
    rest = let("rest", ir::make_typed(Op::kDiv, {rest, extent}));
  }
  Ahead ahead{&copy.src, {}, slice_shape(copy.src)};
  for (size_t i = 0; i < copy.src.axes.size(); ++i)
    ahead.starts.push_back(copy.src.axes[i].start ? index(copy.src.axes[i].start, nullptr) : int64(0));
  for (const ir::IterVar& axis : kernel_.grid) values_.erase(axis.var.get());
  asked_ahead_.push_back(std::move(ahead));
}

// Where a region ends in the rows of a tile that the next statement copies to a tensor, each strip is copied as soon as
// it is computed: the stores of one overlap the arithmetic of the next. False: nothing was lowered.
bool TileLowering::fuse_copy(const ir::ParallelStmt& region, const ir::CopyStmt& copy) {
  const ir::BufferRef &to = copy.dst.buffer, &from = copy.src.buffer;
  if (copy.atomic != ir::AtomicOp::kNone || to->scope != ir::Scope::kGlobal || ir::bits(to->type.dtype) < 8 ||
      from->scope == ir::Scope::kGlobal || !is_whole(copy.src) || from->shape.size() != region.iters.size())
    return false;
  for (size_t i = 0; i < region.iters.size(); ++i)
    if (!ir::same(region.iters[i].extent, from->shape[i])) return false;
  for (const ir::AxisSpec& axis : copy.dst.axes)
    if (axis.gather || (axis.start && reads_memory(axis.start))) return false;
  if (copy.dst.within_first && (reads_memory(copy.dst.within_first) || reads_memory(copy.dst.within_length)))
    return false;
  // The tile is written in the iterations' own elements only, and the tensor is not touched.
  bool fits = true;
  std::function<void(const ir::Block&)> check = [&](const ir::Block& body) {
    auto reads = [&](const ExprRef& expr) {
      ir::visit(expr, [&](const ExprRef& node) { fits &= node->kind != ir::ExprKind::kLoad || node->buffer != to; });
    };
    for (const ir::Stmt& stmt : body) {
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) reads(let->value);
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        reads(branch->condition);
        check(branch->then_body), check(branch->else_body);
      }
      const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
      if (!assign) continue;
      reads(assign->value);
      fits &= assign->buffer != to;
      for (size_t i = 0; i < assign->indices.size(); ++i) {
        reads(assign->indices[i]);
        fits &= assign->buffer != from ||
                (assign->indices[i]->kind == ir::ExprKind::kVar && assign->indices[i]->var == region.iters[i].var);
      }
    }
  };
  check(region.body);
  if (!fits) return false;

  auto fused = std::make_unique<FusedCopy>();
  fused->dst_slice = slice(copy.dst), fused->src_slice = slice(copy.src);
  LoopBlock bounds =
      nested([&] { fits = bounds_of(fused->dst_slice, &fused->dst) && bounds_of(fused->src_slice, &fused->src); });
  if (!fits || fused->src.panel_width) return false;
  for (LoopStmt& stmt : bounds) emit(std::move(stmt));
  fused->dst.streams = streams(fused->dst, fused->src);
  next_copy_ = std::move(fused);
  statement(region);
  if (!next_copy_) {
    comment(ir::print(copy.dst) + " = " + ir::print(copy.src) + ": in the loop above");
  } else {
    next_copy_.reset();
    statement(copy);
  }
  return true;
}

// What is still to be asked for of the next tile's rows, up to a share of them; the caller asks.
std::vector<AheadPart> TileLowering::take_ahead(size_t rank, int64_t columns, int64_t share) {
  std::vector<AheadPart> parts;
  for (Ahead& copy : asked_ahead_) {
    if (loop_depth_ > 0 || copy.shape.size() != rank || copy.shape.back() != columns) continue;
    const int64_t end = std::min(columns, copy.begun + share);
    if (end > copy.begun) parts.push_back({&copy, copy.begun, end});
    copy.begun = end;
  }
  return parts;
}

// Asks for the lines of step `at` of `steps` in the row of the next tile that `coords` name.
void TileLowering::ask_ahead(const std::vector<AheadPart>& parts, const std::vector<ExprRef>& coords, const ExprRef& at,
                             int64_t steps) {
  for (const AheadPart& part : parts) {
    const ir::BufferRef& buffer = part.copy->ref->buffer;
    const int64_t line = kCacheLine * 8 / ir::bits(buffer->type.dtype);
    const int64_t lines = (part.end - part.begin + steps * line - 1) / (steps * line);
    // Where there are fewer lines than steps, neighbouring steps ask for the same one.
    const int64_t stride = lines > 1 ? lines * line : (part.end - part.begin + steps - 1) / steps;
    for (int64_t i = 0; i < lines; ++i) {
      const ExprRef start = ir::make_typed(Op::kMul, {at, int64(stride)});
      std::vector<ExprRef> indices;
      size_t next = 0;
      for (size_t axis = 0; axis < part.copy->starts.size(); ++axis) {
        ExprRef index = part.copy->starts[axis];
        if (part.copy->ref->axes[axis].kind != ir::AxisSpec::Kind::kIndex) {
          const ExprRef coord =
              next < coords.size() ? coords[next] : ir::make_typed(Op::kAdd, {start, int64(part.begin + i * line)});
          ++next;
          index = ir::make_typed(Op::kAdd, {index, coord});
        }
        indices.push_back(index);
      }
      emit({LoopPrefetch{storage(buffer), offset(buffer, indices, nullptr), part.copy->write}});
    }
  }
}

// As each() on the CPU, in strips of the last axis where something is to be done between them; false if nothing is.
bool TileLowering::each_in_strips(const std::vector<int64_t>& shape, const std::vector<std::string>& names,
                                  const std::function<void(const Site&)>& body) {
  constexpr int64_t kLines = 4, kFusedLines = 16;  // in a strip; more for a copy, which has work at its ends
  const std::unique_ptr<FusedCopy> fused = std::move(fused_);
  // Reading beside arithmetic costs nothing, beside writing past the caches it slows both; else what counts is that
  // memory is as busy all the time. Reductions that follow have a share left.
  const int64_t heavy = target_.streaming_stores ? shape.back() - shape.back() / 4 : shape.back() / 2;
  const int64_t share = fused ? shape.back() : region_is_heavy_ ? heavy : 0;
  const std::vector<AheadPart> ahead = take_ahead(shape.size(), shape.back(), share);
  if (ahead.empty() && !fused) return false;
  int64_t strip = (fused ? kFusedLines : kLines) * kCacheLine / 4;
  strip = std::min(strip, shape.back());
  Site site;
  const int64_t strips = shape.back() / strip, rest = shape.back() % strip, parts = strips + (rest > 0);
  auto run_strip = [&](const std::string& name, const ExprRef& at, int64_t width, CpuSide dst, CpuSide src) {
    ask_ahead(ahead, site.coords, at, parts);
    const ExprRef first = let("first", ir::make_typed(Op::kMul, {at, int64(strip)}));
    serial("lane", int64(width), false, [&](ExprRef lane) {
      ExprRef coord = let(name, ir::make_typed(Op::kAdd, {first, lane}));
      out_.ranges.set(coord->var, {0, shape.back() - 1});
      site.coords.push_back(coord);
      body(site);
      site.coords.pop_back();
    });
    if (!fused) return;
    if (!dst.present) return copy_strip(dst, src, first, width, false);
    LoopBlock copied = nested([&] { copy_strip(dst, src, first, width, false); });
    emit({LoopIf{dst.present, std::move(copied), {}}});
  };
  std::function<void(size_t, CpuSide, CpuSide)> nest = [&](size_t axis, CpuSide dst, CpuSide src) {
    const std::string name = axis < names.size() ? names[axis] : "i";
    if (axis + 1 < shape.size()) {
      serial(name, int64(shape[axis]), false, [&](ExprRef coord) {
        if (fused) {
          set_coordinate(&dst, axis, coord), set_coordinate(&src, axis, coord);
          if (!dst.whole[axis])
            dst.present = let("present", both(dst.present, both(ir::make_typed(Op::kGe, {coord, dst.low[axis]}),
                                                                ir::make_typed(Op::kLt, {coord, dst.high[axis]}))));
        }
        site.coords.push_back(coord);
        nest(axis + 1, dst, src);
        site.coords.pop_back();
      });
      return;
    }
    serial("strip", int64(strips), false, [&](ExprRef at) { run_strip(name, at, strip, dst, src); });
    if (rest && !planted(Planted::kStripTail)) run_strip(name, int64(strips), rest, dst, src);
  };
  nest(0, fused ? fused->dst : CpuSide{}, fused ? fused->src : CpuSide{});
  return true;
}

}  // namespace kachel::lowering
