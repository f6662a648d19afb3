// The rules of loop_ir.h. A violation is a defect of a pass, never of a program.
#include <fmt/format.h>

#include <bit>
#include <set>

#include "ir/print.h"
#include "lowering/loop_ir/loop_ir.h"
#include "lowering/passes/teams.h"
#include "lowering/plan/tile_blocks.h"

namespace kachel::lowering {
namespace {

class Verifier {
 public:
  std::string run(const LoopKernel& kernel) {
    for (const LoopParam& param : kernel.params) {
      if (param.var) visible_.insert(param.var.get());
      if (param.buffer) buffers_.insert(param.buffer.get());
    }
    for (const LoopBuffer& buffer : kernel.buffers) {
      buffers_.insert(buffer.buffer.get());
      if (ir::bits(buffer.buffer->type.dtype) == 4) fail("a local buffer of 4-bit elements: " + buffer.buffer->name);
    }
    visible_.insert(kernel.tile.get());
    if (kernel.thread) visible_.insert(kernel.thread.get());
    if (kernel.team) visible_.insert(kernel.team.get());
    if (kernel.rank) visible_.insert(kernel.rank.get());
    cpu_ = kernel.threads == 1;
    clusters_ = !kernel.cluster.empty();
    threads_ = kernel.threads;
    block(kernel.body, false);
    block(kernel.producer, false);
    block(kernel.passed_over, false);
    if (kernel.teams > 1 && !keeps_to_teams(kernel)) fail("teams that meet at a barrier or share memory");
    if (kernel.tile_blocks > 1 && (!can_part_tiles(kernel) || kernel.threads % kernel.tile_blocks))
      fail("blocks that compute a tile together and cannot");
    return message_;
  }

 private:
  void fail(std::string message) {
    if (message_.empty()) message_ = std::move(message);
  }
  void expr(const ir::ExprRef& root, bool in_threads) {
    if (!root) return fail("a missing expression");
    ir::visit(root, [&](const ir::ExprRef& node) {
      if (!node->typed) fail("an untyped expression: " + ir::print(node));
      if (ir::is_reduction(*node)) fail("a reduction: " + ir::print(node));
      if (node->kind == ir::ExprKind::kVar && !visible_.count(node->var.get()))
        fail("a variable out of its scope: " + node->var->name);
      if (node->kind == ir::ExprKind::kLoad) {
        if (node->args.size() != 1) fail("a load with more than one index: " + ir::print(node));
        access(node->buffer, node->args[0], in_threads);
      }
      if (node->kind == ir::ExprKind::kApply) operands(node);
    });
  }
  void operands(const ir::ExprRef& node) {
    const size_t first = node->op == ir::Op::kSelect ? 1 : 0;
    const bool shift = node->op == ir::Op::kShl || node->op == ir::Op::kShr;
    if (node->args.size() != static_cast<size_t>(ir::info(node->op).arity)) fail("wrong arity: " + ir::print(node));
    for (size_t i = first + 1; i < node->args.size() && !shift; ++i)
      if (node->args[i]->type != node->args[first]->type) fail("operands of two types: " + ir::print(node));
    if (node->op == ir::Op::kSelect && node->args[0]->type != ir::DType::Bool)
      fail("a condition that is no bool: " + ir::print(node));
  }
  void access(const ir::BufferRef& buffer, const ir::ExprRef& index, bool in_threads) {
    if (!buffers_.count(buffer.get())) fail("a buffer of another kernel: " + buffer->name);
    if (index && index->type != ir::DType::I32 && index->type != ir::DType::I64)
      fail("an index that is neither i32 nor i64 into " + buffer->name);
    (void)in_threads;
  }

  void block(const LoopBlock& body, bool in_threads) {
    std::vector<const ir::Var*> declared;
    auto declare = [&](const ir::VarRef& var) {
      if (!visible_.insert(var.get()).second) fail("a variable declared twice: " + var->name);
      declared.push_back(var.get());
    };
    for (const LoopStmt& stmt : body) {
      for_each_expr(stmt, [&](const ir::ExprRef& e) { expr(e, in_threads); });
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) {
        declare(let->var);
        if (ir::compute_type(let->var->type.dtype) != let->value->type)
          fail("a value of another type than its name: " + let->var->name);
      } else if (const auto* store = std::get_if<LoopStore>(&stmt.node)) {
        access(store->buffer, store->index, in_threads);
        if (store->value && store->value->type != ir::compute_type(store->buffer->type.dtype))
          fail("a store of another type into " + store->buffer->name);
        if (!in_threads && !cpu_ && store->buffer->scope != ir::Scope::kRegister)
          fail("every thread stores to " + store->buffer->name);
      } else if (const auto* atomic = std::get_if<LoopAtomic>(&stmt.node)) {
        access(atomic->buffer, atomic->index, in_threads);
        if (!in_threads && !cpu_) fail("every thread updates " + atomic->buffer->name);
      } else if (const auto* loop = std::get_if<LoopFor>(&stmt.node)) {
        visible_.insert(loop->var.get());
        block(loop->body, in_threads);
        visible_.erase(loop->var.get());
      } else if (const auto* threads = std::get_if<LoopThreads>(&stmt.node)) {
        if (in_threads || cpu_) fail("a thread loop in a thread loop");
        visible_.insert(threads->index.get());
        visible_.insert(threads->slot.get());
        block(threads->body, true);
        visible_.erase(threads->index.get());
        visible_.erase(threads->slot.get());
      } else if (const auto* branch = std::get_if<LoopIf>(&stmt.node)) {
        block(branch->then_body, in_threads);
        block(branch->else_body, in_threads);
      } else if (const auto* micro = std::get_if<LoopMicroKernel>(&stmt.node)) {
        if (!cpu_) fail("a micro-kernel on a GPU");
        if (micro->lanes < 1 || micro->rows < 1 || micro->columns < 1 || micro->columns % micro->lanes)
          fail("a micro-kernel of incomplete vectors");
        const std::pair<const ir::BufferRef&, const ir::ExprRef&> operands[] = {
            {micro->c, micro->c_at}, {micro->a, micro->a_at}, {micro->b, micro->b_at}};
        for (const auto& [buffer, at] : operands) {
          access(buffer, at, in_threads);
          const bool pairs = micro->pairs != Target::Dot16::kNone;
          if (buffer->type.dtype != (pairs ? ir::DType::I32 : ir::DType::F32))
            fail("a micro-kernel on a buffer of another type: " + buffer->name);
        }
      } else if (const auto* stream = std::get_if<LoopStream>(&stmt.node)) {
        if (!cpu_) fail("a streaming copy on a GPU");
        access(stream->to, stream->to_at, in_threads);
        access(stream->from, stream->from_at, in_threads);
        if (stream->to->type.dtype != stream->from->type.dtype || ir::bits(stream->to->type.dtype) < 8)
          fail("a streaming copy that would have to convert: " + stream->to->name);
      } else if (const auto* transpose = std::get_if<LoopTranspose>(&stmt.node)) {
        if (!cpu_) fail("a transposing copy on a GPU");
        access(transpose->to, transpose->to_at, in_threads);
        access(transpose->from, transpose->from_at, in_threads);
        if (transpose->to->type.dtype != (ir::is_float(transpose->from->type.dtype) ? ir::DType::F32 : ir::DType::I32))
          fail("a transposing copy to another type: " + transpose->to->name);
        if (transpose->lanes < 1 || (transpose->lanes & (transpose->lanes - 1)))
          fail("a transposing copy of odd blocks");
      } else if (const auto* prefetch = std::get_if<LoopPrefetch>(&stmt.node)) {
        if (!cpu_) fail("a prefetch on a GPU");
        access(prefetch->buffer, prefetch->index, in_threads);
      } else if (std::get_if<LoopBarrier>(&stmt.node)) {
        if (in_threads) fail("a barrier inside a thread loop");
      } else if (const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node)) {
        this->intrinsic(*intrinsic, in_threads);
      } else if (const auto* shuffle = std::get_if<LoopShuffle>(&stmt.node)) {
        if (in_threads || cpu_) fail("a shuffle inside a thread loop");
        declare(shuffle->var);
      } else if (const auto* pipeline = std::get_if<LoopPipeline>(&stmt.node)) {
        if (in_threads || cpu_ || pipeline->depth < 2) fail("a pipeline in a thread loop or of one stage");
        for (const auto* part : {&pipeline->produce, &pipeline->consume}) {
          const bool produce = part == &pipeline->produce;
          const ir::Var* vars[] = {produce ? pipeline->ahead.get() : pipeline->var.get(),
                                   produce ? pipeline->into.get() : pipeline->from.get()};
          for (const ir::Var* var : vars) visible_.insert(var);
          block(*part, in_threads);
          for (const ir::Var* var : vars) visible_.erase(var);
        }
      }
    }
    for (const ir::Var* var : declared) visible_.erase(var);
  }

  void whole_vector(const LoopIntrinsic::Operand& operand) {
    const int64_t bits = operand.elements * ir::bits(operand.buffer->type.dtype);
    if (!std::has_single_bit(static_cast<uint64_t>(bits)))
      fail(fmt::format("a vector of {} bits: {}", bits, operand.buffer->name));
  }
  void intrinsic(const LoopIntrinsic& node, bool in_threads) {
    using Kind = LoopIntrinsic::Kind;
    if (cpu_) fail("an intrinsic of GPUs");
    const bool group = node.kind >= Kind::kGroupMma && node.kind <= Kind::kGroupWait;
    const bool warp = group || node.kind == Kind::kQuadExchange || node.kind == Kind::kQuadJoin ||
                      node.kind == Kind::kTurnMatrix || node.kind == Kind::kLoadMatrix || node.kind == Kind::kMma ||
                      node.kind == Kind::kStoreMatrix || node.kind == Kind::kBulkStore ||
                      node.kind == Kind::kBulkStoreWait;
    if (warp && in_threads) fail("a warp's operation inside a thread loop");
    if (group && threads_ % 128) fail("an operation of warp groups in a block that is not made of them");
    const size_t arity[] = {2, 2, 0, 0, 2, 3, 2, 3, 0, 0, 0, 0, 3, 1, 1, 1,
                            1, 1, 1, 3, 2, 2, 0, 0, 2, 3, 2, 3, 2, 2, 2, 2};
    const bool less = node.kind == Kind::kUnpack && node.operands.size() == 3;
    const bool any = node.kind == Kind::kGroupWait || node.kind == Kind::kGroupFence;
    if (!any && !less && node.operands.size() != arity[static_cast<int>(node.kind)])
      return fail("an intrinsic of wrong arity");
    for (const LoopIntrinsic::Operand& operand : node.operands) {
      access(operand.buffer, operand.index, in_threads);
      if (operand.write && !in_threads && operand.buffer->scope != ir::Scope::kRegister && node.kind < Kind::kBulkCopy)
        fail("every thread writes to " + operand.buffer->name);
    }
    const bool copy = node.kind == Kind::kCopyVector || node.kind == Kind::kCopyAsync;
    if ((copy || node.kind == Kind::kAddVector) &&
        (node.operands[0].buffer->type.dtype != node.operands[1].buffer->type.dtype ||
         node.operands[0].elements != node.operands[1].elements))
      fail("a vector copy between types or of two lengths: " + node.operands[0].buffer->name);
    if (copy) whole_vector(node.operands[0]);
    if ((node.kind == Kind::kBulkCopy) != (node.l2_policy != nullptr))
      fail("a policy of the L2 that no box asks for, or a box without");
    packed(node);
    if (node.kind == Kind::kAddVector && (node.operands[0].buffer->scope != ir::Scope::kGlobal || !in_threads))
      fail("a vector that is added to other than a tensor, or by every thread");
    if (node.kind == Kind::kStoreRow &&
        (!in_threads || node.coordinates.size() != 1 || ir::bits(node.operands[0].buffer->type.dtype) != 16 ||
         node.operands[0].buffer->type.dtype != node.operands[1].buffer->type.dtype))
      fail("a row that is stored by other than threads, or between types");
    const bool shifted = node.kind == Kind::kLoadShifted || node.kind == Kind::kStoreShifted;
    if (shifted && !node.guard) fail("a shifted copy that does not say what it may load");
    if (node.guard && !copy && !shifted) fail("a guard on an intrinsic that takes none");
    if (node.peers && (!clusters_ || (node.kind != Kind::kBulkCopy && node.kind != Kind::kPhaseArrive)))
      fail("peers of what is no cluster's");
    if (node.by_group && (node.kind != Kind::kPhaseArrive || threads_ % 128)) fail("arrivals of no warp group");
  }

  // Of pairs, in registers.
  void packed(const LoopIntrinsic& node) {
    using Kind = LoopIntrinsic::Kind;
    if (node.kind != Kind::kUnpack && node.kind != Kind::kPackedMath) return;
    const int64_t elements = node.operands[0].elements;
    if (elements % 2 || (node.kind == Kind::kUnpack && elements > 8)) fail("packed elements that are no pairs");
    const bool of_words = node.kind == Kind::kUnpack && ir::bits(node.type_b) == 32;
    const bool of_quad = node.kind == Kind::kUnpack && node.immediate && !of_words;
    if (of_words && (node.immediate < 1 || node.immediate > (node.type == ir::DType::F16 ? 10 : 7)))
      fail("words of more bits than a mantissa has");
    if (!node.table.empty() && (node.table.size() != 16 || node.operands.size() != 2)) fail("a table of 4 bits");
    if (of_quad && (node.immediate != 4 || elements != 2 || ir::bits(node.type_b) != 4)) fail("pairs of no quad");
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const LoopIntrinsic::Operand& operand = node.operands[i];
      const bool bytes = node.kind == Kind::kUnpack && i == 1;
      if (operand.buffer->scope != ir::Scope::kRegister) fail("packed elements in memory: " + operand.buffer->name);
      const bool one = i > 0 && !bytes && operand.elements == 1;
      const bool narrow = bytes && ir::bits(node.type_b) == 4;
      const ir::DType source = narrow ? ir::DType::U8 : node.type_b;
      if (operand.buffer->type.dtype != (bytes ? source : one ? ir::DType::F32 : node.type))
        fail("packed elements of another type: " + operand.buffer->name);
      const int64_t wanted = of_quad && bytes ? node.immediate : narrow ? elements / 2 : elements;
      if (!one && operand.elements != wanted) fail("packed operands of two lengths");
    }
    if (node.op != ir::Op::kAdd && node.op != ir::Op::kSub && node.op != ir::Op::kMul) fail("a packed operation");
  }

  std::set<const ir::Var*> visible_;
  std::set<const ir::Buffer*> buffers_;
  bool cpu_ = false, clusters_ = false;
  int threads_ = 1;
  std::string message_;
};

}  // namespace

std::string verify(const LoopKernel& kernel) {
  return Verifier().run(kernel);
}

}  // namespace kachel::lowering
