// Loop IR as text, for golden tests and `explain`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/print.h"
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {
namespace {

constexpr const char* kAtomicNames[] = {"", "add", "max", "min"};
constexpr const char* kSlotNames[] = {"pointer", "stride", "dim", "scalar", "grid", "blocks", "workspace"};

const char* name_of(LoopIntrinsic::Kind kind) {
  constexpr const char* kNames[] = {
      "copy_vector", "copy_async",      "async_commit", "async_wait",   "load_matrix",   "mma",       "convert_pair",
      "group_mma",   "group_fence",     "group_commit", "group_wait",   "proxy_fence",   "bulk_copy", "phase_expect",
      "phase_bytes", "phase_wait",      "phase_arrive", "phase_copied", "quad_exchange", "dot4",      "store_matrix",
      "bulk_store",  "bulk_store_wait", "in_order",     "load_shifted", "store_shifted", "unpack",    "packed",
      "add_vector",  "quad_join",       "turn_matrix",  "store_row"};
  return kNames[static_cast<int>(kind)];
}

class Printer {
 public:
  void block(const LoopBlock& block, int depth) {
    for (const LoopStmt& stmt : block) {
      text_.append(2 * static_cast<size_t>(depth), ' ');
      std::visit([&](const auto& node) { statement(node, depth); }, stmt.node);
    }
  }
  std::string text_;

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }
  void close(int depth) { text_ += std::string(2 * static_cast<size_t>(depth), ' ') + "}\n"; }

  void statement(const LoopLet& let, int) {
    line("let {}: {} = {}", let.var->name, ir::name(let.value->type), ir::print(let.value));
  }
  void statement(const LoopStore& store, int) {
    line("{}[{}] = {}", store.buffer->name, ir::print(store.index), ir::print(store.value));
  }
  void statement(const LoopAtomic& atomic, int) {
    line("atomic {} {}[{}], {}", kAtomicNames[static_cast<int>(atomic.op)], atomic.buffer->name,
         ir::print(atomic.index), ir::print(atomic.value));
  }
  void statement(const LoopFor& loop, int depth) {
    line("for {} in {} .. {}{}{}{}{} {{", loop.var->name, ir::print(loop.begin), ir::print(loop.end),
         loop.unroll ? " unroll" : "", loop.reassociate ? " reassociate" : "",
         loop.apart ? fmt::format(" apart by {}", loop.apart) : "",
         loop.ahead ? fmt::format(" loads {} ahead", loop.ahead) : "");
    block(loop.body, depth + 1);
    close(depth);
  }
  void statement(const LoopThreads& threads, int depth) {
    line("threads {} < {}, slot {}{} {{", threads.index->name, threads.extent, threads.slot->name,
         threads.unroll ? " unroll" : "");
    block(threads.body, depth + 1);
    close(depth);
  }
  void statement(const LoopIf& branch, int depth) {
    line("if {} {{", ir::print(branch.condition));
    block(branch.then_body, depth + 1);
    if (!branch.else_body.empty()) {
      text_ += std::string(2 * static_cast<size_t>(depth), ' ') + "} else {\n";
      block(branch.else_body, depth + 1);
    }
    close(depth);
  }
  void statement(const LoopBarrier&, int) { line("barrier"); }
  void statement(const LoopIntrinsic& node, int) {
    std::string text = name_of(node.kind);
    const bool group = node.kind == LoopIntrinsic::Kind::kGroupMma;
    if (group || node.kind == LoopIntrinsic::Kind::kMma || node.kind == LoopIntrinsic::Kind::kDot4 ||
        node.kind == LoopIntrinsic::Kind::kUnpack)
      text += fmt::format(" {} {}", ir::name(node.type), ir::name(node.type_b));
    if (!node.table.empty()) text += fmt::format(" of {{{}}}", fmt::join(node.table, ", "));
    if (node.kind == LoopIntrinsic::Kind::kPackedMath) text += fmt::format(" {}", ir::info(node.op).spelling);
    if (group && !node.accumulate) text += " clear";
    if (node.widened) text += " widened";
    if (node.adds) text += " adds";
    if (node.by_group) text += " by group";
    if (node.view_a.swizzle) text += " a" + print(node.view_a);
    if (node.view_b.swizzle) text += " b" + print(node.view_b);
    if (node.transpose) text += " transpose";
    if (node.immediate) text += fmt::format(" {}", node.immediate);
    for (const LoopIntrinsic::Operand& operand : node.operands)
      text += fmt::format("{} {}[{} +: {}]", &operand == &node.operands.front() ? "" : ",", operand.buffer->name,
                          ir::print(operand.index), operand.elements);
    for (const ir::ExprRef& coordinate : node.coordinates)
      text += fmt::format("{}{}", &coordinate == &node.coordinates.front() ? " at " : ", ", ir::print(coordinate));
    if (node.guard) text += " if " + ir::print(node.guard);
    if (node.peers) text += fmt::format(" peers {:x}", node.peers);
    if (node.l2_policy) text += " kept by " + ir::print(node.l2_policy);
    line("{}", text);
  }
  static std::string print(const LoopIntrinsic::MatrixView& view) {
    return fmt::format("({} swizzle, {} stride, {} slab{})", view.swizzle, view.stride, view.slab,
                       view.transpose ? ", k down" : "");
  }
  void statement(const LoopShuffle& node, int) {
    if (node.lane_mask == kAnyLane) return line("let {}: bool = any_lane {}", node.var->name, ir::print(node.value));
    line("let {}: {} = shuffle_xor {}, {}", node.var->name, ir::name(node.value->type), node.lane_mask,
         ir::print(node.value));
  }
  void statement(const LoopPipeline& node, int depth) {
    std::string names;
    for (const ir::BufferRef& buffer : node.buffers) names += (names.empty() ? "" : ", ") + buffer->name;
    line("{}pipeline {} in {} .. {}, {} stages of {}, ahead {} into {} {{", node.bulk ? "bulk " : "", node.var->name,
         ir::print(node.begin), ir::print(node.end), node.depth, names, node.ahead->name, node.into->name);
    block(node.produce, depth + 1);
    text_ += std::string(2 * static_cast<size_t>(depth), ' ') + "} consume from " + node.from->name + " {\n";
    block(node.consume, depth + 1);
    close(depth);
  }
  void statement(const LoopMicroKernel& micro, int) {
    auto matrix = [](const ir::BufferRef& buffer, const ir::ExprRef& at, int64_t rows, int64_t columns, int64_t row,
                     int64_t column) {
      return fmt::format("{}[{}: {} by {}, {} by {}]", buffer->name, ir::print(at), rows, row, columns, column);
    };
    line("micro {} {} {} * {}, {} lanes{}", matrix(micro.c, micro.c_at, micro.rows, micro.columns, micro.c_row, 1),
         micro.accumulate ? "+=" : "=", matrix(micro.a, micro.a_at, micro.rows, micro.depth, micro.a_row, micro.a_step),
         matrix(micro.b, micro.b_at, micro.depth, micro.columns, micro.b_step, 1), micro.lanes,
         micro.pairs == Target::Dot16::kNone ? "" : " of pairs");
  }
  void statement(const LoopStream& stream, int) {
    line("stream {}[{}] = {}[{}], {} elements", stream.to->name, ir::print(stream.to_at), stream.from->name,
         ir::print(stream.from_at), ir::print(stream.count));
  }
  void statement(const LoopTranspose& transpose, int) {
    line("transpose {}[{} by {}] = {}[{} by {}], {} lanes", transpose.to->name, ir::print(transpose.to_at),
         ir::print(transpose.to_row), transpose.from->name, ir::print(transpose.from_at), ir::print(transpose.from_row),
         transpose.lanes);
  }
  void statement(const LoopPrefetch& prefetch, int) {
    line("prefetch {}{}[{}]", prefetch.write ? "for writing " : "", prefetch.buffer->name, ir::print(prefetch.index));
  }
  void statement(const LoopComment& comment, int) { line("# {}", comment.text); }
};

}  // namespace

std::string print(const LoopKernel& kernel) {
  Printer printer;
  printer.text_ = fmt::format("threads {}{}, shared {} bytes, workspace {} bytes\n", kernel.threads,
                              kernel.teams > 1         ? fmt::format(" in each of {} teams", kernel.teams)
                              : kernel.tile_blocks > 1 ? fmt::format(" in {} blocks", kernel.tile_blocks)
                                                       : "",
                              kernel.shared_bytes, kernel.workspace_bytes);
  for (const LoopParam& param : kernel.params) {
    const char* slot = kSlotNames[static_cast<int>(param.slot.kind)];
    if (param.buffer)
      printer.text_ += fmt::format("param {} {}: {}\n", slot, param.buffer->name, ir::name(param.buffer->type.dtype));
    else
      printer.text_ += fmt::format("param {} {}: {}\n", slot, param.var->name, ir::name(param.var->type.dtype));
  }
  for (const LoopBuffer& buffer : kernel.buffers)
    printer.text_ +=
        fmt::format("{} {}: {}[{}]{}\n",
                    buffer.buffer->scope == ir::Scope::kRegister ? "registers"
                    : buffer.spilled                             ? "workspace"
                                                                 : "shared",
                    buffer.buffer->name, ir::name(buffer.buffer->type.dtype), buffer.elements,
                    buffer.buffer->scope == ir::Scope::kRegister ? "" : fmt::format(" at {}", buffer.byte_offset));
  for (size_t i = 0; i < kernel.maps.size(); ++i)
    printer.text_ += fmt::format("map {} of parameter {}: boxes [{}], {} swizzle\n", i, kernel.maps[i].param,
                                 fmt::join(kernel.maps[i].box, ", "), kernel.maps[i].swizzle);
  for (const LoopPhases& phases : kernel.phases)
    printer.text_ += fmt::format("phases {}: {} of {} arrivals\n", phases.buffer->name, phases.count, phases.arrivals);
  printer.text_ += fmt::format("for tile {}{} {{\n", kernel.tile->name,
                               kernel.one_tile         ? ", one a block"
                               : kernel.back_and_forth ? ", back and forth"
                                                       : "");
  printer.block(kernel.body, 1);
  if (kernel.teams > 1) {
    printer.text_ += "} of another team {\n";
    printer.block(kernel.passed_over, 1);
  }
  if (!kernel.producer.empty()) {
    printer.text_ += fmt::format("}}\nproducer, for tile {} {{\n", kernel.tile->name);
    printer.block(kernel.producer, 1);
  }
  printer.text_ += "}\n";
  return printer.text_;
}

}  // namespace kachel::lowering
