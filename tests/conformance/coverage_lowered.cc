// Of how many programs each operation of the optimising lowering is a part.
#include <fmt/format.h>

#include "tests/conformance/coverage.h"

namespace kachel::conformance {
namespace {

using namespace lowering;

class Features {
 public:
  std::set<std::string> names;

  void block(const LoopBlock& body) {
    for (const LoopStmt& stmt : body) {
      for_each_expr(stmt, [&](const ir::ExprRef& expr) {
        ir::visit(expr, [&](const ir::ExprRef& node) {
          if (node->kind == ir::ExprKind::kLoad) index(node->args[0]);
        });
      });
      std::visit([this](const auto& node) { statement(node); }, stmt.node);
    }
  }

 private:
  template <class T>
  void statement(const T&) {}
  void statement(const LoopFor& loop) { block(loop.body); }
  void statement(const LoopThreads& threads) { block(threads.body); }
  void statement(const LoopIf& branch) {
    block(branch.then_body);
    block(branch.else_body);
  }
  void statement(const LoopShuffle& node) { names.insert(node.lane_mask == kAnyLane ? "vote" : "shuffle"); }
  void statement(const LoopIntrinsic& node) {
    using Kind = LoopIntrinsic::Kind;
    for (const LoopIntrinsic::Operand& operand : node.operands) index(operand.index);
    switch (node.kind) {
      case Kind::kCopyVector:
        vector(node);
        break;
      case Kind::kAddVector:
        names.insert(fmt::format("{} of {} added", node.operands[0].elements, ir::name(node.type)));
        break;
      case Kind::kCopyAsync:
        names.insert("asynchronous copies");
        break;
      case Kind::kAsyncCommit:
        break;
      case Kind::kAsyncWait:  // the last one of a loop waits for all
        if (std::exchange(waits_, true) && node.immediate == 0)
          waits_ = false;
        else
          names.insert(fmt::format("{} stages", node.immediate + 2));
        break;
      case Kind::kLoadMatrix:
        names.insert(node.transpose ? "matrix transposed" : "matrix");
        break;
      case Kind::kMma:
        names.insert(node.widened ? "widened" : fmt::format("mma {}", ir::name(node.type)));
        if (ir::bits(node.operands[1].buffer->type.dtype) < 32) names.insert("A in registers");
        break;
      case Kind::kConvertPair:
        names.insert("pair");
        break;
      case Kind::kUnpack:
        names.insert(fmt::format("unpack {} {}{}", ir::name(node.type_b), ir::name(node.type),
                                 node.immediate ? " of quads" : ""));
        break;
      case Kind::kPackedMath:
        names.insert(fmt::format("packed {}", ir::name(node.type)));
        break;
      case Kind::kGroupMma:
        names.insert(fmt::format("wgmma {}", ir::name(node.type)));
        if (node.operands[0].buffer->name == "run") names.insert("sums of runs");
        if (!node.view_a.swizzle) names.insert("A of wgmma in registers");
        if (node.view_a.transpose || node.view_b.transpose) names.insert("wgmma with k down the rows");
        break;
      case Kind::kGroupWait:
        if (node.immediate) names.insert("wgmma left under way");
        break;
      case Kind::kDot4:
        names.insert(fmt::format("dp4a {} {}", ir::name(node.type), ir::name(node.type_b)));
        break;
      case Kind::kStoreMatrix:
        names.insert("matrix stored");
        break;
      case Kind::kQuadExchange:
        names.insert("exchange in quads");
        break;
      case Kind::kQuadJoin:
        names.insert("bytes joined in quads");
        break;
      case Kind::kTurnMatrix:
        names.insert("matrices turned");
        break;
      case Kind::kBulkCopy:
        names.insert("bulk copies");
        break;
      case Kind::kBulkStore:
        names.insert("bulk stores");
        break;
      case Kind::kPhaseCopied:
        names.insert("copies by the producer's threads");
        break;
      case Kind::kInOrder:
        names.insert("work beside products");
        break;
      case Kind::kStoreRow:
        names.insert("rows at any address");
        break;
      case Kind::kStoreShifted:
        names.insert("copies from any address");
        break;
      case Kind::kLoadShifted:
      case Kind::kBulkStoreWait:
      case Kind::kPhaseExpect:
      case Kind::kPhaseBytes:
      case Kind::kPhaseWait:
      case Kind::kPhaseArrive:
      case Kind::kGroupFence:
      case Kind::kGroupCommit:
      case Kind::kProxyFence:
        break;
    }
  }
  void vector(const LoopIntrinsic& node) {
    const int64_t bytes = node.operands[0].elements * ir::bits(node.operands[0].buffer->type.dtype) / 8;
    names.insert(fmt::format("vector of {} bytes", bytes));
    if (node.guard) names.insert("guarded vector");
  }
  void index(const ir::ExprRef& at) {
    ir::visit(at, [&](const ir::ExprRef& node) {
      if (node->kind == ir::ExprKind::kApply && node->op == ir::Op::kBitXor) names.insert("swizzle");
    });
  }

  bool waits_ = false;
};

}  // namespace

void Coverage::add(const lowering::LoopKernel& loops) {
  Features features;
  features.block(loops.body);
  features.block(loops.producer);
  if (loops.teams > 1) features.names.insert("teams");
  if (loops.one_tile) features.names.insert("one tile a block");
  if (!loops.cluster.empty()) features.names.insert("cluster");
  for (const lowering::LoopBuffer& buffer : loops.buffers)
    if (buffer.buffer->name == "partial" && features.names.count("shuffle"))
      features.names.insert("reduction across warps");
  if (loops.workspace_bytes) features.names.insert("workspace");
  for (const std::string& name : features.names) ++counts_["lowered"][name];
}

}  // namespace kachel::conformance
