#include "lowering/plan/cpu_placement.h"
#include "lowering/machine/cpu_machine.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

using ir::AxisSpec;

// Constant places inside of the tile, rank 2.
bool is_fixed_matrix(const ir::TileRef& ref) {
  if (ref.within_first || ref.buffer->scope == ir::Scope::kGlobal) return false;
  int rank = 0;
  for (size_t i = 0; i < ref.axes.size(); ++i) {
    const AxisSpec& axis = ref.axes[i];
    if (axis.kind == AxisSpec::Kind::kGather) return false;
    rank += axis.kind != AxisSpec::Kind::kIndex;
    if (axis.kind == AxisSpec::Kind::kWhole) continue;
    const int64_t extent = axis.kind == AxisSpec::Kind::kRange ? axis.extent->int_value : 1;
    if (axis.start->kind != ir::ExprKind::kInt || axis.start->int_value < 0 ||
        axis.start->int_value > ref.buffer->shape[i]->int_value - extent)
      return false;
  }
  return rank == 2;
}

bool is_float_product(const ir::GemmStmt& gemm) {
  return gemm.c.buffer->type.dtype == ir::DType::F32 && ir::is_float(gemm.a.buffer->type.dtype) &&
         gemm.c.buffer->shape.size() == 2 && is_whole(gemm.c) && is_fixed_matrix(gemm.a) && is_fixed_matrix(gemm.b);
}
bool fits_i16(ir::DType type) {
  return !ir::is_float(type) && type != ir::DType::Bool && ir::bits(type) <= 16;
}
bool is_pair_product(const ir::GemmStmt& gemm) {
  return gemm.c.buffer->type.dtype == ir::DType::I32 && fits_i16(gemm.a.buffer->type.dtype) &&
         fits_i16(gemm.b.buffer->type.dtype) && gemm.c.buffer->shape.size() == 2 && gemm.a.buffer->shape.size() == 2 &&
         gemm.b.buffer->shape.size() == 2 && is_whole(gemm.c) && is_whole(gemm.a) && is_whole(gemm.b);
}

// How a tile is used, apart from being written as a whole.
struct Uses {
  bool a = false, c = false, other = false;
  bool b[2] = {false, false};  // plain, transposed
  bool a_pairs[2] = {false, false}, b_pairs[2] = {false, false};
  // Only ever one operand in one orientation.
  bool only_pairs() const {
    return !a && !c && !other && !b[0] && !b[1] && a_pairs[0] + a_pairs[1] + b_pairs[0] + b_pairs[1] == 1;
  }
  int64_t columns = 0;  // as B
};

class Collector {
 public:
  explicit Collector(bool pairs) : pairs_(pairs) {}
  std::map<const ir::Buffer*, Uses> uses;
  std::vector<const ir::GemmStmt*> pair_products;

  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) std::visit([this](const auto& node) { statement(node); }, stmt.node);
  }

 private:
  void reads(const ir::ExprRef& expr) {
    ir::visit(expr, [&](const ir::ExprRef& node) {
      if (node->kind == ir::ExprKind::kLoad) uses[node->buffer.get()].other = true;
    });
  }
  // What is read to find out where the slice is.
  void place(const ir::TileRef& ref) {
    for (const AxisSpec& axis : ref.axes) {
      reads(axis.start);
      if (axis.gather) read(*axis.gather);
    }
    reads(ref.within_first), reads(ref.within_length);
  }
  void read(const ir::TileRef& ref) {
    uses[ref.buffer.get()].other = true;
    place(ref);
  }
  void write(const ir::TileRef& ref) {
    if (!is_whole(ref)) uses[ref.buffer.get()].other = true;
    place(ref);
  }
  void statement(const ir::DeclStmt&) {}
  void statement(const ir::LetStmt& let) { reads(let.value); }
  void statement(const ir::CopyStmt& copy) { write(copy.dst), read(copy.src); }
  void statement(const ir::FillStmt& fill) { write(fill.dst), reads(fill.value); }
  void statement(const ir::GemmStmt& gemm) {
    if (pairs_ && is_pair_product(gemm)) {
      uses[gemm.a.buffer.get()].a_pairs[gemm.transpose_a] = true;
      uses[gemm.b.buffer.get()].b_pairs[gemm.transpose_b] = true;
      uses[gemm.c.buffer.get()].c = true;
      pair_products.push_back(&gemm);
      return;
    }
    if (!is_float_product(gemm)) return read(gemm.a), read(gemm.b), read(gemm.c);
    uses[gemm.a.buffer.get()].a = true;
    uses[gemm.c.buffer.get()].c = true;
    Uses& b = uses[gemm.b.buffer.get()];
    b.b[gemm.transpose_b] = true;
    b.columns = gemm.b.buffer->shape[gemm.transpose_b ? 0 : 1]->int_value;
    if (!is_whole(gemm.b)) b.other = true;
  }
  void statement(const ir::ParallelStmt& region) { block(region.body); }
  void statement(const ir::AssignStmt& assign) {
    uses[assign.buffer.get()].other = true;
    for (const ir::ExprRef& index : assign.indices) reads(index);
    reads(assign.value);
  }
  void statement(const ir::ForStmt& loop) {
    reads(loop.begin), reads(loop.end);
    block(loop.body);
  }
  void statement(const ir::IfStmt& branch) {
    reads(branch.condition);
    block(branch.then_body), block(branch.else_body);
  }

  const bool pairs_;
};

// Both operands of a product must be held in pairs, so one that cannot be takes the other with it.
void settle_pairs(Collector* collector) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const ir::GemmStmt* gemm : collector->pair_products) {
      Uses &a = collector->uses[gemm->a.buffer.get()], &b = collector->uses[gemm->b.buffer.get()];
      if (a.only_pairs() == b.only_pairs()) continue;
      a.other = b.other = changed = true;
    }
  }
}

void place_pairs(const CpuMachine& machine, const Uses& uses, Placement* placement) {
  const bool is_a = uses.a_pairs[0] || uses.a_pairs[1];
  std::vector<int64_t> shape = placement->layout.shape();
  placement->pair_axis = uses.a_pairs[0] || uses.b_pairs[1] ? 1 : 0;
  int64_t& depth = shape[static_cast<size_t>(placement->pair_axis)];
  depth = (depth + 1) / 2;
  placement->storage = ir::DType::I32;
  placement->layout = Layout::padded(shape, vector_pitch(machine, shape.back()));
  placement->reason = "pairs along k for the micro-kernel";
  if (is_a) return;
  placement->panel_axis = static_cast<size_t>(1 - placement->pair_axis);
  placement->panel_width = register_block(machine, 1, shape[placement->panel_axis]).vectors * machine.lanes;
  placement->reason = "panels of pairs along k for the micro-kernel";
}

}  // namespace

bool takes_micro_kernel(const ir::GemmStmt& gemm, const Placements& placements) {
  if (is_float_product(gemm)) return true;
  auto paired = [&](const ir::TileRef& ref) {
    auto it = placements.tiles.find(ref.buffer.get());
    return it != placements.tiles.end() && it->second.pair_axis >= 0;
  };
  return is_pair_product(gemm) && paired(gemm.a) && paired(gemm.b);
}

OperandMatrix operand_matrix(const ir::TileRef& ref, const Placement& placement) {
  OperandMatrix matrix;
  int next = 0;
  for (size_t i = 0; i < ref.axes.size(); ++i) {
    const AxisSpec& axis = ref.axes[i];
    const int64_t stride = placement.layout.axis_stride(i);
    if (axis.start) matrix.first += axis.start->int_value * stride;
    if (axis.kind == AxisSpec::Kind::kIndex) continue;
    matrix.extent[next] =
        axis.kind == AxisSpec::Kind::kRange ? axis.extent->int_value : ref.buffer->shape[i]->int_value;
    matrix.stride[next++] = stride;
  }
  return matrix;
}

void place_cpu_operands(const ir::Kernel& kernel, const Target& target, Placements* placements) {
  const CpuMachine machine = cpu_machine(target);
  Collector collector(target.dot16 != Target::Dot16::kNone);
  collector.block(kernel.body);
  settle_pairs(&collector);
  for (const auto& [buffer, uses] : collector.uses) {
    auto found = placements->tiles.find(buffer);
    const bool b = uses.b[0] || uses.b[1];
    if (found != placements->tiles.end() && uses.only_pairs()) place_pairs(machine, uses, &found->second);
    if (found == placements->tiles.end() || !(uses.a || uses.c || b)) continue;
    Placement& placement = found->second;
    if (ir::is_float(placement.storage)) placement.storage = ir::DType::F32;
    const std::vector<int64_t> shape = placement.layout.shape();
    if (shape.size() > 1) placement.layout = Layout::padded(shape, vector_pitch(machine, shape.back()));
    placement.reason = "rows of whole vectors for the micro-kernel";
    // The last vector of a row may begin inside of the matrix and end behind it.
    placement.slack = machine.lanes;
    if (!b || uses.a || uses.c || uses.other || (uses.b[0] && uses.b[1])) continue;
    placement.panel_axis = uses.b[1] ? 0 : 1;
    placement.panel_width = register_block(machine, 1, uses.columns).vectors * machine.lanes;
    placement.reason = "panels of columns for the micro-kernel";
  }
}

}  // namespace kachel::lowering
