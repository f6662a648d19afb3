#include "lowering/cpu_gemm.h"
#include "lowering/cpu_machine.h"
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

// How a tile is used, apart from being written as a whole.
struct Uses {
  bool a = false, c = false, other = false;
  bool b[2] = {false, false};  // plain, transposed
  int64_t columns = 0;         // as B
};

class Collector {
 public:
  std::map<const ir::Buffer*, Uses> uses;

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
    if (!takes_micro_kernel(gemm)) return read(gemm.a), read(gemm.b), read(gemm.c);
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
};

}  // namespace

bool takes_micro_kernel(const ir::GemmStmt& gemm) {
  return gemm.c.buffer->type.dtype == ir::DType::F32 && ir::is_float(gemm.a.buffer->type.dtype) &&
         gemm.c.buffer->shape.size() == 2 && is_whole(gemm.c) && is_fixed_matrix(gemm.a) && is_fixed_matrix(gemm.b);
}

OperandMatrix operand_matrix(const ir::TileRef& ref, const Placement& placement) {
  OperandMatrix matrix;
  int next = 0;
  for (size_t i = 0; i < ref.axes.size(); ++i) {
    const AxisSpec& axis = ref.axes[i];
    const int64_t stride = placement.layout.axis_stride(i);
    if (axis.start) matrix.first += axis.start->int_value * stride;
    if (axis.kind == AxisSpec::Kind::kIndex) continue;
    matrix.extent[next] = axis.kind == AxisSpec::Kind::kRange ? axis.extent->int_value : ref.buffer->shape[i]->int_value;
    matrix.stride[next++] = stride;
  }
  return matrix;
}

void place_cpu_operands(const ir::Kernel& kernel, const Target& target, Placements* placements) {
  const CpuMachine machine = cpu_machine(target);
  Collector collector;
  collector.block(kernel.body);
  for (const auto& [buffer, uses] : collector.uses) {
    auto found = placements->tiles.find(buffer);
    const bool b = uses.b[0] || uses.b[1];
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
