#include "lowering/plan/placement.h"

#include <algorithm>
#include <bit>

#include "ir/parallel.h"
#include "ir/visit.h"
#include "lowering/loop_ir/loop_ir.h"
#include "lowering/plan/cpu_placement.h"

namespace kachel::lowering {
namespace {

// Registers of 32 bits that fragments may take per thread before the largest of them move to shared memory: half of
// what a thread can have, the rest being for addresses and temporaries.
int64_t fragment_registers(int threads) {
  constexpr int64_t kRegisterFile = 65536, kMostOfThread = 256;
  return std::min(kRegisterFile / threads, kMostOfThread) / 2;
}

// 32 elements of the largest tile a thread. What is in registers is written out element by element, so that few of them
// also make a text that compiles quickly.
int plain_threads(const ir::Kernel& kernel) {
  int64_t largest = 1;
  for (const ir::Stmt& stmt : kernel.body)
    if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node))
      largest = std::max(largest, product(tile_shape(decl->buffer)));
  return static_cast<int>(std::clamp<int64_t>(std::bit_ceil(static_cast<uint64_t>(largest)) / 32, 128, 512));
}

// Shared memory has 32 banks of 4 bytes. Rows an odd number of words apart put a column in 32 different banks, so that
// threads that walk a tile across its rows do not wait for each other.
Layout memory_layout(const std::vector<int64_t>& shape, ir::DType type, const Target& target) {
  if (target.kind == Target::Kind::kCpu || shape.size() < 2 || product(shape) == shape.back())
    return Layout::row_major(shape);
  const int64_t unit = std::max<int64_t>(1, 32 / ir::bits(type));
  int64_t words = (shape.back() + unit - 1) / unit;
  return Layout::padded(shape, (words | 1) * unit);
}

class Analysis {
 public:
  Analysis(Placements* placements, const Target& target) : placements_(placements->tiles), target_(target) {}

  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) std::visit([this](const auto& node) { statement(node); }, stmt.node);
  }

 private:
  void across(const ir::BufferRef& buffer, const char* reason) {
    auto it = placements_.find(buffer.get());
    if (it == placements_.end() || it->second.scope != ir::Scope::kRegister) return;
    it->second.scope = ir::Scope::kShared;
    it->second.layout = memory_layout(it->second.layout.shape(), it->second.storage, target_);
    it->second.reason = reason;
  }
  // All tiles that the expression reads outside of an aligned region, by way of the region's `let` as well: other
  // threads than the iteration's evaluate a reduction, and with it what it names.
  void reads(const ir::ExprRef& expr, const char* reason) {
    ir::visit(expr, [&](const ir::ExprRef& node) {
      if (node->kind == ir::ExprKind::kLoad) across(node->buffer, reason);
      if (node->kind != ir::ExprKind::kVar) return;
      if (auto let = lets_.find(node->var.get()); let != lets_.end()) reads(let->second, reason);
    });
  }
  void tile(const ir::TileRef& ref) {
    if (!is_whole(ref)) across(ref.buffer, "a slice of it is used");
    for (const ir::AxisSpec& axis : ref.axes) {
      reads(axis.start, "it is read as an index");
      if (axis.gather) {
        across(axis.gather->buffer, "it is read as an index");
        tile(*axis.gather);
      }
    }
    reads(ref.within_first, "it is read as a bound");
    reads(ref.within_length, "it is read as a bound");
  }

  void statement(const ir::DeclStmt&) {}
  void statement(const ir::LetStmt& let) { reads(let.value, "every thread reads it"); }
  void statement(const ir::CopyStmt& copy) {
    tile(copy.dst);
    tile(copy.src);
    // A 4-bit tensor is stored a byte, two elements, at a time.
    if (copy.dst.buffer->scope == ir::Scope::kGlobal && ir::bits(copy.dst.buffer->type.dtype) == 4)
      across(copy.src.buffer, "its elements are packed in pairs");
    if (!same_shape(copy.dst, copy.src)) {
      across(copy.dst.buffer, "it is copied between tiles of different rank");
      across(copy.src.buffer, "it is copied between tiles of different rank");
    }
  }
  void statement(const ir::FillStmt& fill) {
    tile(fill.dst);
    reads(fill.value, "every thread reads it");
  }
  void statement(const ir::GemmStmt& gemm) {
    tile(gemm.a), tile(gemm.b), tile(gemm.c);
    across(gemm.a.buffer, "it is a gemm operand");
    across(gemm.b.buffer, "it is a gemm operand");
  }
  void statement(const ir::ParallelStmt& region) {
    parallel(region, region.body);
    // Of an element that the iteration has assigned, a reduction computes the value.
    for (const ir::LetStmt& let : ir::forward_stores(region).lets) {
      lets_[let.var.get()] = let.value;
      ir::visit(let.value, [this](const ir::ExprRef& node) {
        if (ir::is_reduction(*node)) reads(node, "a reduction reads across it");
      });
    }
  }
  void statement(const ir::AssignStmt&) {}
  void statement(const ir::ForStmt& loop) {
    reads(loop.begin, "it is read as a bound");
    reads(loop.end, "it is read as a bound");
    block(loop.body);
  }
  void statement(const ir::IfStmt& branch) {
    reads(branch.condition, "every thread reads it");
    block(branch.then_body);
    block(branch.else_body);
  }

  // In registers an element is reachable only by the thread that runs the same iteration.
  bool aligned(const ir::ParallelStmt& region, const ir::BufferRef& buffer,
               const std::vector<ir::ExprRef>& indices) const {
    if (buffer->scope == ir::Scope::kGlobal || indices.size() != region.iters.size()) return false;
    std::vector<int64_t> shape = tile_shape(buffer);
    for (size_t i = 0; i < indices.size(); ++i)
      if (indices[i]->kind != ir::ExprKind::kVar || indices[i]->var != region.iters[i].var ||
          !ir::is_int(region.iters[i].extent, shape[i]))
        return false;
    return true;
  }
  void region_reads(const ir::ParallelStmt& region, const ir::ExprRef& expr) {
    if (!expr) return;
    if (ir::is_reduction(*expr)) {
      reads(expr, "a reduction reads across it");
      return;
    }
    if (expr->kind == ir::ExprKind::kLoad && !aligned(region, expr->buffer, expr->args))
      across(expr->buffer, "it is read in another order than it is held");
    for (const ir::ExprRef& arg : expr->args) region_reads(region, arg);
  }
  void parallel(const ir::ParallelStmt& region, const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) {
        region_reads(region, let->value);
        lets_[let->var.get()] = let->value;
      } else if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) {
        if (!aligned(region, assign->buffer, assign->indices))
          across(assign->buffer, "it is written in another order than it is held");
        for (const ir::ExprRef& index : assign->indices) region_reads(region, index);
        region_reads(region, assign->value);
      } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        region_reads(region, branch->condition);
        parallel(region, branch->then_body);
        parallel(region, branch->else_body);
      }
    }
  }
  static bool same_shape(const ir::TileRef& a, const ir::TileRef& b) {
    auto rank = [](const ir::TileRef& ref) {
      return std::count_if(ref.axes.begin(), ref.axes.end(),
                           [](const ir::AxisSpec& axis) { return axis.kind != ir::AxisSpec::Kind::kIndex; });
    };
    return rank(a) == rank(b);
  }

  std::map<const ir::Buffer*, Placement>& placements_;
  const Target& target_;
  std::map<const ir::Var*, ir::ExprRef> lets_;  // of regions
};

void collect_tiles(const ir::Block& body, const Target& target, Placements* placements) {
  for (const ir::Stmt& stmt : body) {
    const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
    if (!decl) continue;
    Placement placement;
    placement.storage = storage_type(decl->buffer->type.dtype);
    std::vector<int64_t> shape = tile_shape(decl->buffer);
    if (target.kind == Target::Kind::kCuda && decl->buffer->scope == ir::Scope::kFragment) {
      placement.scope = ir::Scope::kRegister;
      placement.layout = Layout::cyclic(shape, placements->threads);
    } else {
      placement.layout = memory_layout(shape, placement.storage, target);
      placement.reason = target.kind == Target::Kind::kCpu ? "the CPU keeps tiles in its cache" : "declared shared";
    }
    placements->tiles[decl->buffer.get()] = std::move(placement);
  }
}

// The largest fragments go first, in declaration order among equals, so that the result depends on shapes alone.
void limit_registers(const ir::Kernel& kernel, const Target& target, Placements* placements) {
  while (true) {
    int64_t total = 0;
    Placement* largest = nullptr;
    for (const ir::Stmt& stmt : kernel.body) {
      const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
      if (!decl) continue;
      Placement& placement = placements->tiles.at(decl->buffer.get());
      if (placement.scope != ir::Scope::kRegister) continue;
      int64_t registers = placement.layout.registers() * (ir::bits(placement.storage) == 64 ? 2 : 1);
      total += registers;
      if (!largest || registers > largest->layout.registers() * (ir::bits(largest->storage) == 64 ? 2 : 1))
        largest = &placement;
    }
    if (total <= fragment_registers(placements->threads)) return;
    largest->scope = ir::Scope::kShared;
    largest->layout = memory_layout(largest->layout.shape(), largest->storage, target);
    largest->reason = "the fragments need more registers than a thread has to spare";
  }
}

}  // namespace

std::vector<int64_t> tile_shape(const ir::BufferRef& tile) {
  std::vector<int64_t> shape;
  for (const ir::ExprRef& extent : tile->shape) shape.push_back(extent->int_value);
  return shape;
}

bool is_whole(const ir::TileRef& tile) {
  if (tile.within_first) return false;
  for (size_t i = 0; i < tile.axes.size(); ++i) {
    const ir::AxisSpec& axis = tile.axes[i];
    if (axis.kind == ir::AxisSpec::Kind::kWhole) continue;
    if (axis.kind != ir::AxisSpec::Kind::kRange || !ir::is_int(axis.start, 0) ||
        !ir::same(axis.extent, tile.buffer->shape[i]))
      return false;
  }
  return true;
}

std::optional<int64_t> start_of_part(const ir::TileRef& tile) {
  if (tile.within_first || tile.pad) return std::nullopt;
  for (size_t i = 0; i + 1 < tile.axes.size(); ++i)
    if (tile.axes[i].kind != ir::AxisSpec::Kind::kWhole) return std::nullopt;
  const ir::AxisSpec& last = tile.axes.back();
  if (last.kind != ir::AxisSpec::Kind::kRange || last.start->kind != ir::ExprKind::kInt) return std::nullopt;
  const int64_t first = last.start->int_value, extent = last.extent->int_value;
  const int64_t whole = tile.buffer->shape.back()->int_value;
  if (whole % extent || first % extent || first < 0 || first + extent > whole) return std::nullopt;
  return first;
}

int64_t Placement::elements() const {
  if (fragment) return fragment->registers();
  if (scope == ir::Scope::kRegister) return layout.registers();
  if (stages > 1) return stages * stage_elements();
  if (!panel_width) return layout.offset_extent() + slack;
  const std::vector<int64_t>& shape = layout.shape();
  return (shape[panel_axis] + panel_width - 1) / panel_width * panel_width * shape[1 - panel_axis];
}

int64_t Placement::stage_elements() const {
  const int64_t line = alignment / std::max(1, ir::bits(storage) / 8);
  return (layout.offset_extent() + line - 1) / line * line;
}

ir::DType storage_type(ir::DType type) {
  if (type == ir::DType::I4) return ir::DType::I8;
  if (type == ir::DType::U4) return ir::DType::U8;
  return type;
}

int vector_bytes(const ir::Kernel& kernel, uint64_t fact_mask, const ir::BufferRef& tensor) {
  if (tensor->packed) return vector_bytes(kernel, fact_mask, tensor->packed);
  int widest = std::max(1, ir::bits(tensor->type.dtype) / 8);
  const std::vector<Fact> facts = facts_of(kernel);
  for (size_t i = 0; i < facts.size(); ++i)
    if (facts[i].kind == Fact::Kind::kVector && fact_mask >> i & 1 &&
        kernel.params[static_cast<size_t>(facts[i].param)].tensor == tensor)
      widest = std::max(widest, facts[i].bytes);
  return widest;
}

std::map<const ir::Buffer*, int64_t> vector_bytes(const ir::Kernel& kernel, uint64_t fact_mask,
                                                  const LoopKernel& loops) {
  std::map<const ir::Buffer*, int64_t> bytes;
  for (const LoopParam& param : loops.params) {
    if (param.slot.kind != Slot::Kind::kPointer) continue;
    const ir::BufferRef& tensor = kernel.params[static_cast<size_t>(param.slot.index)].tensor;
    if (!tensor->transposed && param.buffer->type.dtype == tensor->type.dtype)
      bytes[param.buffer.get()] = vector_bytes(kernel, fact_mask, tensor);
  }
  return bytes;
}

bool has_fact(const ir::Kernel& kernel, uint64_t fact_mask, const ir::BufferRef& tensor, Fact::Kind kind) {
  const std::vector<Fact> facts = facts_of(kernel);
  for (size_t i = 0; i < facts.size(); ++i)
    if (facts[i].kind == kind && fact_mask >> i & 1 &&
        (!tensor || kernel.params[static_cast<size_t>(facts[i].param)].tensor == tensor))
      return true;
  return false;
}

bool suits_registers(const ir::Kernel& kernel, uint64_t fact_mask, const ir::BufferRef& tensor,
                     const ir::BufferRef& tile) {
  const int bits = ir::bits(tile->type.dtype);
  return bits <= 32 && tile_shape(tile).back() * bits / 8 % 16 == 0 &&
         has_fact(kernel, fact_mask, tensor, Fact::Kind::kUnitStride);
}

Placements plain_placements(const ir::Kernel& kernel, const Target& target) {
  Placements placements;
  placements.threads = target.kind == Target::Kind::kCpu ? 1 : target.threads ? target.threads : plain_threads(kernel);
  collect_tiles(kernel.body, target, &placements);
  Analysis(&placements, target).block(kernel.body);
  limit_registers(kernel, target, &placements);
  if (target.kind == Target::Kind::kCpu && !target.generic) place_cpu_operands(kernel, target, &placements);
  return placements;
}

Placements infer_placements(const ir::Kernel& kernel, const Target& target, const Schedule& schedule,
                            uint64_t fact_mask) {
  if (target.kind == Target::Kind::kCpu || target.generic) return plain_placements(kernel, target);
  return infer_layouts(kernel, target, schedule, fact_mask);
}

}  // namespace kachel::lowering
