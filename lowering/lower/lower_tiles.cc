// The statement walk: signature, grid and control flow. See tile_lowering.h.
#include <algorithm>
#include <numeric>

#include "ir/print.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/plan/gemm_choice.h"
#include "lowering/plan/packed_tiles.h"
#include "lowering/plan/shared_stages.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/branch_copies.h"
#include "lowering/tile_ir/own_elements.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;
using ir::VarKind;

ExprRef both(const ExprRef& a, const ExprRef& b) {
  if (!a) return b;
  if (!b) return a;
  return ir::make_typed(Op::kAnd, {a, b});
}

ir::VarRef make_local(const std::string& name, DType type, VarKind kind) {
  return std::make_shared<ir::Var>(ir::Var{kind, name, {type, nullptr}, {}});
}

TileLowering::TileLowering(const ir::Kernel& kernel, const Target& target, const Schedule& schedule,
                           const Placements& placements, uint64_t fact_mask)
    : kernel_(kernel), target_(target), schedule_(schedule), placements_(placements), fact_mask_(fact_mask) {
  std::vector<Fact> facts = facts_of(kernel);
  for (size_t i = 0; i < facts.size(); ++i) {
    if (!(fact_mask >> i & 1)) continue;
    if (facts[i].kind == Fact::Kind::kIndex32) index32_ = extent32_ = true;
    if (facts[i].kind == Fact::Kind::kExtent32) extent32_ = true;
    if (facts[i].kind == Fact::Kind::kUnitStride) unit_stride_.insert(facts[i].param);
    if (facts[i].kind == Fact::Kind::kVector) {  // rows end with a wide access
      const ir::Buffer& tensor = *kernel.params[static_cast<size_t>(facts[i].param)].tensor;
      const ExprRef& extent = tensor.shape.back();
      const int64_t whole = std::max(8 * facts[i].bytes / ir::bits(tensor.type.dtype), 1);
      if (extent->kind == ir::ExprKind::kVar && !tensor.transposed)
        out_.ranges.set_multiple(extent->var, std::lcm(std::max<int64_t>(out_.ranges.multiple_of(extent), 1), whole));
    }
    if (facts[i].kind == Fact::Kind::kMultiple) {
      const ir::VarRef& scalar = kernel.params[static_cast<size_t>(facts[i].param)].scalar;
      const int64_t multiple = std::max<int64_t>(facts[i].bytes, out_.ranges.multiple_of(ir::make_var(scalar)));
      out_.ranges.set(scalar, {multiple, std::numeric_limits<int32_t>::max()});
      out_.ranges.set_multiple(scalar, multiple);
    }
  }
}

Result<LoopKernel> TileLowering::run() {
  out_.threads = copiers_ = placements_.threads;
  out_.copiers = std::max(1, schedule_.copiers);
  if (!on_cpu()) {
    out_.thread = make_local("thread", DType::I32, VarKind::kThread);
    out_.ranges.set(out_.thread, {0, out_.threads - 1});
  }
  out_.teams = schedule_.teams;
  if (out_.teams > 1) {
    out_.team = make_local("team", DType::I32, VarKind::kThread);
    out_.ranges.set(out_.team, {0, out_.teams - 1});
  }
  out_.tile_blocks = std::max(target_.tile_blocks, 1);
  out_.cluster = schedule_.cluster;
  if (!out_.cluster.empty()) {
    out_.rank = make_local("rank", DType::I32, VarKind::kThread);
    out_.ranges.set(out_.rank, {0, blocks_of(out_.cluster) - 1});
  }
  current_ = &out_.body;
  declare_params();
  declare_tiles();
  open_grid();
  note_stores(kernel_.body);
  block(kernel_.body);
  if (!status_.ok()) return status_;
  return std::move(out_);
}

void TileLowering::declare_params() {
  const std::set<ir::BufferRef> byte_views = byte_tensors(kernel_);
  const Interval dim_range{0, extent32_ ? (int64_t{1} << 30) - 1 : kMaxDim};
  for (size_t i = 0; i < kernel_.params.size(); ++i) {
    const ir::Param& param = kernel_.params[i];
    const int index = static_cast<int>(i);
    if (!param.tensor) {
      out_.params.push_back({{Slot::Kind::kScalar, index, 0}, param.scalar, nullptr});
      continue;
    }
    auto flat = [&](DType type, const char* suffix) {
      return std::make_shared<ir::Buffer>(ir::Buffer{
          param.tensor->name + suffix, ir::Scope::kGlobal, param.tensor->direction, {type, nullptr}, {int64(0)}, {}});
    };
    const DType type = param.tensor->type.dtype;
    ir::BufferRef buffer = flat(type, "");
    storage_[param.tensor.get()] = buffer;
    out_.params.push_back({{Slot::Kind::kPointer, index, 0}, nullptr, buffer});
    if (ir::bits(type) == 4) {
      ir::BufferRef bytes = flat(DType::U8, "_bytes");
      packed_[param.tensor.get()] = bytes;
      out_.params.push_back({{Slot::Kind::kPointer, index, 0}, nullptr, bytes});
    }
    const int rank = static_cast<int>(param.tensor->shape.size());
    if (extent32_)
      for (const ExprRef& extent : param.tensor->shape)
        if (extent->kind == ir::ExprKind::kApply && extent->type == DType::I64) out_.ranges.know(extent, dim_range);
    if (index32_) out_.ranges.know_shape(param.tensor->shape, dim_range.hi + 1);
    std::vector<ExprRef>& strides = strides_[param.tensor.get()];
    for (int axis = 0; axis < rank; ++axis) {
      // 4-bit tensors are packed along a unit-stride last axis by definition.
      if (axis == rank - 1 && (unit_stride_.count(index) || ir::bits(type) == 4)) {
        strides.push_back(int64(1));
        continue;
      }
      const bool exchanged = param.tensor->transposed && axis >= rank - 2 && !planted(Planted::kTransposedStrides);
      const int given = exchanged ? 2 * rank - 3 - axis : axis;
      ir::VarRef stride =
          make_local(param.tensor->name + "_stride" + std::to_string(given), DType::I64, VarKind::kScalar);
      out_.params.push_back({{Slot::Kind::kStride, index, given}, stride, nullptr});
      strides.push_back(ir::make_var(stride));
    }
    for (const ir::BufferRef& view : byte_views) {
      if (view->packed != param.tensor) continue;
      storage_[view.get()] = packed_.at(param.tensor.get());
      for (const ExprRef& stride : strides_[param.tensor.get()])
        strides_[view.get()].push_back(ir::is_int(stride, 1) ? stride : ir::make_typed(Op::kDiv, {stride, int64(2)}));
    }
  }
  for (size_t i = 0; i < kernel_.dims.size(); ++i) {
    out_.params.push_back({{Slot::Kind::kDim, static_cast<int>(i), 0}, kernel_.dims[i], nullptr});
    out_.ranges.set(kernel_.dims[i], dim_range);
  }
  note_dimensions(kernel_, &out_.ranges);
}

void TileLowering::declare_tiles() {
  const auto in_others = tiles_in_stages_of(schedule_);
  for (const ir::Stmt& stmt : kernel_.body) {
    const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
    if (!decl || in_others.count(decl->buffer.get())) continue;
    const Placement& placement = placements_.at(decl->buffer.get());
    storage_[decl->buffer.get()] =
        temporary(decl->buffer->name, placement.storage, placement.scope, placement.elements());
    out_.buffers.back().alignment = placement.alignment;
    if (ir::is_float(placement.storage) && placement.storage != decl->buffer->type.dtype)
      widened_[storage(decl->buffer).get()] = decl->buffer->type.dtype;
  }
  for (const auto& [tile, first] : in_others) storage_[tile] = storage_.at(first);
}

ExprRef TileLowering::let(const std::string& name, ExprRef value) {
  if (ir::is_const(value) || value->kind == ir::ExprKind::kVar) return value;
  ir::VarRef var = make_local(name, value->type);
  out_.ranges.set_value(var, value);
  emit({LoopLet{var, value}});
  return ir::make_var(var);
}

void TileLowering::store(const ir::BufferRef& buffer, ExprRef index, ExprRef value, ExprRef guard) {
  if (auto it = widened_.find(buffer.get()); it != widened_.end()) value = rounded(value, it->second);
  if (!guard) {
    emit({LoopStore{buffer, index, value}});
    return;
  }
  LoopBlock body;
  body.push_back({LoopStore{buffer, index, value}});
  emit({LoopIf{guard, std::move(body), {}}});
}

LoopBlock TileLowering::nested(const std::function<void()>& body) {
  LoopBlock block;
  LoopBlock* outer = std::exchange(current_, &block);
  body();
  current_ = outer;
  return block;
}

void TileLowering::each(const std::vector<int64_t>& shape, const std::vector<std::string>& names, bool in_registers,
                        const std::function<void(const Site&)>& body) {
  auto name_of = [&](size_t axis) { return axis < names.size() ? names[axis] : "i" + std::to_string(axis); };
  if (on_cpu()) {
    if (each_in_strips(shape, names, body)) return;
    Site site;
    std::function<void(size_t)> nest = [&](size_t axis) {
      if (axis == shape.size()) return body(site);
      serial(name_of(axis), int64(shape[axis]), false, [&](ExprRef coord) {
        site.coords.push_back(coord);
        nest(axis + 1);
        site.coords.pop_back();
      });
    };
    return nest(0);
  }
  LoopThreads loop;
  loop.index = make_local("e", DType::I32, VarKind::kThread);
  loop.slot = make_local("r", DType::I32, VarKind::kThread);
  loop.extent = product(shape);
  if (planted(Planted::kSkippedTail) && loop.extent > out_.threads) loop.extent -= loop.extent % out_.threads;
  loop.unroll = in_registers;
  out_.ranges.set(loop.index, {0, loop.extent - 1});
  out_.ranges.set(loop.slot, {0, (loop.extent - 1) / out_.threads});
  loop.body = nested([&] {
    Site site{{}, ir::make_var(loop.slot)};
    ExprRef linear = ir::make_var(loop.index);
    int64_t below = product(shape);
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      below /= shape[axis];
      if (shape[axis] == 1) {
        site.coords.push_back(int64(0));
        continue;
      }
      ExprRef coord = linear;
      if (below > 1) coord = ir::make_typed(Op::kDiv, {coord, ir::make_int(below, DType::I32)});
      if (axis > 0) coord = ir::make_typed(Op::kMod, {coord, ir::make_int(shape[axis], DType::I32)});
      ExprRef named = let(name_of(axis), ir::make_cast({DType::I64, nullptr}, coord));
      if (named->kind == ir::ExprKind::kVar) out_.ranges.set(named->var, {0, shape[axis] - 1});
      site.coords.push_back(named);
    }
    body(site);
  });
  emit({std::move(loop)});
}

void TileLowering::serial(const std::string& name, ExprRef extent, bool reassociate,
                          const std::function<void(ExprRef)>& body) {
  LoopFor loop;
  loop.var = make_local(name, DType::I64, VarKind::kLoop);
  loop.begin = int64(0);
  loop.end = extent;
  loop.reassociate = reassociate;
  Interval limit = out_.ranges.of(extent);
  out_.ranges.set(loop.var, {0, std::max<int64_t>(limit.hi, 1) - 1});
  out_.ranges.set_limit(loop.var, extent);
  loop.body = nested([&] { body(ir::make_var(loop.var)); });
  emit({std::move(loop)});
}

void TileLowering::block(const ir::Block& body) {
  for (size_t i = 0; i < body.size(); ++i) {
    if (!status_.ok()) return;
    begin_fragments(body[i]);
    following_ = std::span(body).subspan(i + 1);
    if (on_cpu() && i + 1 < body.size()) {
      const auto* region = std::get_if<ir::ParallelStmt>(&body[i].node);
      const auto* copy = std::get_if<ir::CopyStmt>(&body[i + 1].node);
      if (region && copy && fuse_copy(*region, *copy)) {
        ++i;
        continue;
      }
    }
    std::visit([this](const auto& node) { statement(node); }, body[i].node);
  }
}

// Fragments that begin as a number do so in front of what first touches them: their registers are free until then.
void TileLowering::statement(const ir::DeclStmt& decl) {
  if (!decl.init) return;
  const bool number = decl.init->kind == ir::ExprKind::kInt || decl.init->kind == ir::ExprKind::kFloat;
  if (!on_cpu() && number && in_registers(decl.buffer)) return unbegun_.push_back(&decl);
  begin(decl);
}

void TileLowering::begin_fragments(const ir::Stmt& stmt) {
  if (unbegun_.empty()) return;
  BufferSet used;
  note_uses(stmt, &used);
  for (size_t i = 0; i < unbegun_.size();) {
    const ir::DeclStmt* decl = unbegun_[i];
    if (!used.count(decl->buffer.get())) {
      ++i;
      continue;
    }
    unbegun_.erase(unbegun_.begin() + static_cast<std::ptrdiff_t>(i));
    begin(*decl);
  }
}

void TileLowering::begin(const ir::DeclStmt& decl) {
  ir::TileRef whole{decl.buffer, std::vector<ir::AxisSpec>(decl.buffer->shape.size()), nullptr, nullptr, nullptr, {}};
  statement(ir::FillStmt{std::move(whole), decl.init});
}

void TileLowering::statement(const ir::LetStmt& stmt) {
  ExprRef value = scalar(extract_reductions(stmt.value, {}, {}), nullptr);
  out_.ranges.set_value(stmt.var, value);
  emit({LoopLet{stmt.var, value}});
}

void TileLowering::statement(const ir::AssignStmt&) {
  status_ = internal("an assignment outside of a parallel region");
}

void TileLowering::statement(const ir::ForStmt& stmt) {
  const std::vector<CarriedSum> carried = open_sums(stmt);
  loop(stmt);
  close_sums(carried);
}

void TileLowering::loop(const ir::ForStmt& stmt) {
  const Pipeline* overlapped = stmt.pipelined ? schedule_.of(stmt) : nullptr;
  if (overlapped && overlapped->realisation != Pipeline::Realisation::kInOrder) return pipeline(stmt, *overlapped);
  LoopFor loop;
  loop.var = stmt.var;
  loop.begin = index(extract_reductions(stmt.begin, {}, {}), nullptr);
  loop.end = index(extract_reductions(stmt.end, {}, {}), nullptr);
  Interval begin = out_.ranges.of(loop.begin), end = out_.ranges.of(loop.end);
  out_.ranges.set(loop.var, {begin.lo, std::max(end.hi, begin.lo + (begin.lo < INT64_MAX)) - 1});
  out_.ranges.set_limit(loop.var, loop.end);
  ++loop_depth_;
  if (const int64_t together = side_by_side(stmt); together > 1) loop_side_by_side(stmt, together, &loop);
  loop.body = nested([&] { block(stmt.body); });
  if (!on_cpu() && !target_.generic) loop.disjoint = apart_in(stmt);
  --loop_depth_;
  emit({std::move(loop)});
}

// Not of those whose memory has another name.
std::vector<ir::BufferRef> TileLowering::apart_in(const ir::ForStmt& loop) const {
  std::vector<ir::BufferRef> apart;
  for (const ir::Buffer* buffer : own_elements(loop)) {
    const ir::BufferRef& kept = storage_.at(buffer);
    const auto has_it = [&](const auto& name) { return name.second == kept; };
    if (std::count_if(storage_.begin(), storage_.end(), has_it) == 1) apart.push_back(kept);
  }
  return apart;
}

void TileLowering::pipeline(const ir::ForStmt& stmt, const Pipeline& pipeline) {
  LoopPipeline node;
  node.var = stmt.var;
  node.ahead = make_local(stmt.var->name + "_ahead", DType::I64, VarKind::kLoop);
  node.from = make_local("from", DType::I32, VarKind::kLoop);
  node.into = make_local("into", DType::I32, VarKind::kLoop);
  node.begin = index(stmt.begin, nullptr);
  node.end = index(stmt.end, nullptr);
  node.depth = pipeline.depth;
  node.may_skew = fragment_registers(placements_) + joined_registers(placements_) <= kFragmentRegisters;
  node.compact = target_.compact;
  const Interval begin = out_.ranges.of(node.begin), end = out_.ranges.of(node.end);
  for (const ir::VarRef& var : {node.var, node.ahead}) {
    out_.ranges.set(var, {begin.lo, std::max(end.hi, begin.lo + (begin.lo < INT64_MAX)) - 1});
    out_.ranges.set_limit(var, node.end);
  }
  for (const ir::VarRef& stage : {node.from, node.into}) out_.ranges.set(stage, {0, node.depth - 1});
  auto in_stage = [&](const ir::VarRef& stage, const std::function<void()>& body) {
    for (const ir::BufferRef& buffer : pipeline.buffers) stage_[buffer.get()] = ir::make_var(stage);
    LoopBlock block = nested(body);
    for (const ir::BufferRef& buffer : pipeline.buffers) stage_.erase(buffer.get());
    return block;
  };
  for (const ir::BufferRef& buffer : pipeline.buffers) node.buffers.push_back(storage(buffer));
  if (pipeline.realisation == Pipeline::Realisation::kBulkCopies) node.bulk = bulk_state(pipeline);
  node.produce = in_stage(node.into, [&] {
    runs_ahead_ = true;
    values_[stmt.var.get()] = ir::make_var(node.ahead);
    if (node.bulk) bulk_ = {&node, &pipeline};
    copiers_ = node.bulk ? out_.copiers : out_.threads;
    std::vector<const ir::CopyStmt*> stored;
    const ir::IfStmt* unnamed = node.bulk ? guard_of(pipeline.producers) : nullptr;  // behind the names that it uses
    for (const ir::Stmt* producer : pipeline.producers) {
      if (unnamed && !std::holds_alternative<ir::LetStmt>(producer->node)) {
        const ExprRef guard = let("guard", scalar(std::exchange(unnamed, nullptr)->condition, nullptr));
        for (LoopPipeline::Bulk::Ring& ring : node.bulk->rings)
          if (ring.guarded_bytes[0] || ring.guarded_bytes[1]) ring.guard = guard;
      }
      const auto* copy = std::get_if<ir::CopyStmt>(&producer->node);
      if (copy && pipeline.stored && pipeline.by_threads.count(copy))
        stored.push_back(copy);
      else
        std::visit([this](const auto& part) { statement(part); }, producer->node);
    }
    if (!stored.empty()) copy_shifted(stored);
    values_.erase(stmt.var.get());
    runs_ahead_ = false;
  });
  bulk_ = {};
  copiers_ = out_.threads;
  AheadOf outer = std::exchange(ahead_, {&node, loop_depth_, {}, {}, {}, nullptr});
  for (const ir::Stmt& part : stmt.body)
    if (const auto* let = std::get_if<ir::LetStmt>(&part.node)) ahead_.names.insert(let->var.get());
  for (const ir::BufferRef& tile : pipeline.alternating) ahead_.alternating.push_back(storage(tile));
  const bool exchanges = std::any_of(stmt.body.begin(), stmt.body.end(), [this](const ir::Stmt& part) {
    const auto* region = std::get_if<ir::ParallelStmt>(&part.node);
    return region && exchanges_warps(*region);
  });
  node.consume = in_stage(node.from, [&] {
    if (!pipeline.alternating.empty() || exchanges) {
      // Goes on from one run of the loop to the next: the half that was read last is not written first.
      const ir::BufferRef turn = temporary("half", DType::I32, ir::Scope::kRegister, 1);
      out_.buffers.back().zeroed = true;
      const ExprRef half = ahead_.half = let("half", ir::make_load(turn, {int32(0)}));
      out_.ranges.set(half->var, {0, 1});
      store(turn, int32(0), ir::make_typed(Op::kBitXor, {half, int32(planted(Planted::kSameHalf) ? 0 : 1)}), nullptr);
      for (const ir::BufferRef& tile : pipeline.alternating) stage_[tile.get()] = half;
    }
    for (const ir::Stmt& part : stmt.body) {
      const bool copied =
          !std::holds_alternative<ir::LetStmt>(part.node) &&
          std::find(pipeline.producers.begin(), pipeline.producers.end(), &part) != pipeline.producers.end();
      if (!copied) std::visit([this](const auto& inner) { statement(inner); }, part.node);
    }
  });
  for (const ir::BufferRef& tile : pipeline.alternating) stage_.erase(tile.get());
  node.alternating = ahead_.alternating;
  if (!ahead_.first.empty())
    emit({LoopIf{ir::make_typed(Op::kLt, {node.begin, node.end}), std::move(ahead_.first), {}}});
  ahead_ = std::move(outer);
  emit({std::move(node)});
}

void TileLowering::statement(const ir::IfStmt& stmt) {
  LoopIf branch;
  branch.condition = scalar(extract_reductions(stmt.condition, {}, {}), nullptr);
  ++loop_depth_;
  branch.then_body = nested([&] { block(stmt.then_body); });
  branch.else_body = nested([&] { block(stmt.else_body); });
  --loop_depth_;
  emit({std::move(branch)});
}

}  // namespace kachel::lowering
