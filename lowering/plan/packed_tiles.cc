#include "lowering/plan/packed_tiles.h"

#include <map>
#include <set>

#include "lowering/loop_ir/range.h"
#include "lowering/loop_ir/region_index.h"
#include "lowering/plan/placement.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::BufferRef;
using ir::DType;
using ir::ExprRef;
using ir::Op;

// Bytes that rows and copies of them are made of: what cp.async moves at least.
constexpr int64_t kUnitBytes = 4;

bool is_packed(DType type) {
  return type == DType::I4 || type == DType::U4;
}

// Which tiles are used in no other way, and which tensors regions may read bytes of.
class Uses {
 public:
  Uses(const ir::Kernel& kernel, uint64_t fact_mask) : kernel_(kernel), fact_mask_(fact_mask) {
    note_multiples(kernel, &multiples_);
    block(kernel.body);
  }
  bool qualifies(const BufferRef& buffer) const {
    if (!is_packed(buffer->type.dtype)) return false;
    if (buffer->scope == ir::Scope::kGlobal) return has_bytes(buffer);
    return tile_shape(buffer).back() % (2 * kUnitBytes) == 0 && filled_.count(buffer.get()) &&
           !otherwise_.count(buffer.get());
  }

 private:
  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) std::visit([this](const auto& node) { statement(node); }, stmt.node);
  }
  void other(const ExprRef& expr) { note_loads(expr, &otherwise_); }
  void other(const ir::TileRef& tile) { note_uses(tile, &otherwise_); }

  // Rows that begin and end with whole bytes, of a tensor that nothing writes.
  bool has_bytes(const BufferRef& tensor) const {
    return tensor->direction == ir::Direction::kIn && vector_bytes(kernel_, fact_mask_, tensor) >= kUnitBytes;
  }
  bool fills(const ir::CopyStmt& copy) const {
    const BufferRef &to = copy.dst.buffer, &from = copy.src.buffer;
    if (!is_whole(copy.dst) || copy.atomic != ir::AtomicOp::kNone || copy.src.pad || copy.src.within_first)
      return false;
    if (from->scope != ir::Scope::kGlobal || from->type.dtype != to->type.dtype || !has_bytes(from)) return false;
    const ir::AxisSpec& last = copy.src.axes.back();
    if (last.kind == ir::AxisSpec::Kind::kWhole) return true;
    return last.kind == ir::AxisSpec::Kind::kRange && multiples_.multiple_of(last.start) % 2 == 0;
  }

  void statement(const ir::DeclStmt& decl) {
    if (decl.init) otherwise_.insert(decl.buffer.get());
  }
  void statement(const ir::LetStmt& let) { other(let.value); }
  void statement(const ir::CopyStmt& copy) {
    other(copy.src);
    if (fills(copy))
      filled_.insert(copy.dst.buffer.get());
    else
      other(copy.dst);
  }
  void statement(const ir::FillStmt& fill) { other(fill.dst), other(fill.value); }
  void statement(const ir::GemmStmt& gemm) { other(gemm.a), other(gemm.b), other(gemm.c); }
  // Reads are what this is about.
  void statement(const ir::ParallelStmt& region) { written(region.body); }
  void written(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) otherwise_.insert(assign->buffer.get());
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node))
        written(branch->then_body), written(branch->else_body);
    }
  }
  void statement(const ir::AssignStmt&) {}
  void statement(const ir::ForStmt& loop) {
    other(loop.begin), other(loop.end);
    block(loop.body);
  }
  void statement(const ir::IfStmt& branch) {
    other(branch.condition);
    block(branch.then_body), block(branch.else_body);
  }

  const ir::Kernel& kernel_;
  const uint64_t fact_mask_;
  Ranges multiples_;
  BufferSet filled_, otherwise_;
};

ExprRef half(const ExprRef& value) {
  return ir::make_typed(Op::kDiv, {value, ir::make_int(2, value->type)});
}

class Packer {
 public:
  explicit Packer(const Uses& uses) : uses_(uses) {}

  ir::Block block(ir::Block body) {
    for (ir::Stmt& stmt : body) {
      if (auto* decl = std::get_if<ir::DeclStmt>(&stmt.node)) decl->buffer = bytes_of(decl->buffer);
      if (auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) fill(copy);
      if (auto* region = std::get_if<ir::ParallelStmt>(&stmt.node))
        rewrite_region(&region->body, [this](const ExprRef& expr) { return nibbles(expr); });
      if (auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) loop->body = block(std::move(loop->body));
      if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        branch->then_body = block(std::move(branch->then_body));
        branch->else_body = block(std::move(branch->else_body));
      }
    }
    return body;
  }

 private:
  BufferRef bytes_of(const BufferRef& buffer) {
    const bool tensor = buffer->scope == ir::Scope::kGlobal;
    if (!tensor && !uses_.qualifies(buffer)) return buffer;
    BufferRef& made = bytes_[buffer.get()];
    if (!made) {
      ir::Buffer bytes = *buffer;
      bytes.type = {DType::U8, nullptr};
      bytes.shape.back() = tensor ? half(bytes.shape.back()) : ir::make_int(tile_shape(buffer).back() / 2);
      if (tensor) bytes.packed = buffer;
      made = std::make_shared<const ir::Buffer>(std::move(bytes));
    }
    return made;
  }
  void fill(ir::CopyStmt* copy) {
    if (!uses_.qualifies(copy->dst.buffer)) return;
    for (ir::TileRef* ref : {&copy->dst, &copy->src}) {
      ref->buffer = bytes_of(ref->buffer);
      ir::AxisSpec& last = ref->axes.back();
      if (last.kind != ir::AxisSpec::Kind::kRange) continue;
      last.start = half(last.start);
      last.extent = ir::make_int(last.extent->int_value / 2);
    }
  }
  ExprRef nibbles(const ExprRef& expr) {
    return ir::rewrite(expr, [this](const ExprRef& node) {
      if (node->kind != ir::ExprKind::kLoad || !uses_.qualifies(node->buffer)) return node;
      std::vector<ExprRef> indices = node->args;
      ExprRef column = indices.back();
      // q[i, 2*j + 1]: a place that layouts know.
      const bool held = node->buffer->scope != ir::Scope::kShared;
      const std::optional<PairIndex> pair = held ? pair_index(column) : std::nullopt;
      indices.back() = pair ? ir::make_var(pair->var) : half(column);
      if (pair) column = ir::make_int(pair->part, column->type);
      const ExprRef byte = ir::make_load(bytes_of(node->buffer), std::move(indices));
      return nibble(byte, column, node->buffer->type.dtype);
    });
  }

  const Uses& uses_;
  std::map<const ir::Buffer*, BufferRef> bytes_;
};

}  // namespace

ExprRef nibble(const ExprRef& byte, const ExprRef& column, DType type) {
  const ExprRef two = ir::make_int(2, column->type), four = ir::make_int(4, column->type);
  const ExprRef shift = ir::make_typed(Op::kMul, {ir::make_typed(Op::kMod, {column, two}), four});
  const ExprRef mask = ir::make_int(15, byte->type), eight = ir::make_int(8, byte->type);
  const ExprRef low = ir::make_typed(Op::kBitAnd, {ir::make_typed(Op::kShr, {byte, shift}), mask});
  if (type == DType::U4) return low;
  return ir::make_typed(Op::kSub, {ir::make_typed(Op::kBitXor, {low, eight}), eight});
}

std::optional<NibbleRead> nibble_read(const ir::Expr& expr) {
  const auto is = [](const ir::Expr& node, Op op, int64_t by) {
    return node.kind == ir::ExprKind::kApply && node.op == op && ir::is_int(node.args[1], by);
  };
  if (is(expr, Op::kSub, 8) && is(*expr.args[0], Op::kBitXor, 8)) {
    std::optional<NibbleRead> read = nibble_read(*expr.args[0]->args[0]);
    if (read) read->type = DType::I4;
    return read;
  }
  if (!is(expr, Op::kBitAnd, 15)) return std::nullopt;
  const ir::Expr& moved = *expr.args[0];
  if (moved.kind != ir::ExprKind::kApply || moved.op != Op::kShr) return std::nullopt;
  const ExprRef &byte = moved.args[0], &shift = moved.args[1];
  if (byte->kind != ir::ExprKind::kLoad || byte->buffer->type.dtype != DType::U8) return std::nullopt;
  if (!is(*shift, Op::kMul, 4) || !is(*shift->args[0], Op::kMod, 2)) return std::nullopt;
  const ExprRef &column = shift->args[0]->args[0], &at = byte->args.back();
  if (!is(*at, Op::kDiv, 2) || !ir::same(at->args[0], column)) return std::nullopt;
  return NibbleRead{byte.get(), column, DType::U4};
}

std::set<BufferRef> byte_tensors(const ir::Kernel& kernel) {
  std::set<BufferRef> found;
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& stmt) {
    const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
    if (copy && copy->src.buffer->packed) found.insert(copy->src.buffer);
  });
  for_each_node(kernel.body, [&](const ExprRef& node) {
    if (node->kind == ir::ExprKind::kLoad && node->buffer->packed) found.insert(node->buffer);
  });
  return found;
}

bool is_unpacked(DType type) {
  return is_packed(type) || type == DType::I8 || type == DType::U8 || ir::is_float8(type);
}

ir::Kernel packed_tiles(const ir::Kernel& kernel, uint64_t fact_mask) {
  const Uses uses(kernel, fact_mask);
  ir::Kernel out = kernel;
  out.body = Packer(uses).block(kernel.body);
  return out;
}

}  // namespace kachel::lowering
