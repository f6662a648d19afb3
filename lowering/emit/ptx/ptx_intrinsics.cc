// Intrinsics: which function writes each, and those that take a line or a few.
#include "lowering/emit/ptx/ptx_statements.h"
#include "lowering/loop_ir/phases.h"

namespace kachel::lowering::ptx {

using Kind = LoopIntrinsic::Kind;

void Statements::statement(const LoopIntrinsic& node) {
  switch (node.kind) {
    case Kind::kCopyVector:
      return copy_vector(node);
    case Kind::kAddVector:
      return add_vector(node);
    case Kind::kCopyAsync:
      return copy_async(node);
    case Kind::kAsyncCommit:
      return code_.line("cp.async.commit_group;");
    case Kind::kAsyncWait:
      return code_.line("cp.async.wait_group {};", node.immediate);
    case Kind::kLoadShifted:
      return load_shifted(node);
    case Kind::kStoreShifted:
      return store_shifted(node);
    case Kind::kStoreRow:
      return store_row(node);
    case Kind::kLoadMatrix:
      return load_matrix(node);
    case Kind::kStoreMatrix:
      return code_.line("stmatrix.sync.aligned.m8n8.x4.shared.b16 {}, {};", at(node, 0).text(),
                        braced(memory_.words(at(node, 1), 4)));
    case Kind::kMma:
      return mma(node);
    case Kind::kDot4:
      return dot4(node);
    case Kind::kQuadExchange:
      return quad_exchange(node);
    case Kind::kQuadJoin:
      return quad_join(node);
    case Kind::kTurnMatrix:
      return turn_matrix(node);
    case Kind::kUnpack:
      return unpack(node);
    case Kind::kConvertPair:
      return convert_pair(node);
    case Kind::kPackedMath:
      return packed_math(node);
    case Kind::kGroupMma:
      return;  // written by block(), in runs
    case Kind::kGroupFence:
      return group_fence(node);
    case Kind::kGroupCommit:
      return code_.line("wgmma.commit_group.sync.aligned;");
    case Kind::kGroupWait:
      products_.under_way &= node.immediate > 0;
      return code_.line("wgmma.wait_group.sync.aligned {};", node.immediate);
    case Kind::kProxyFence:
      return code_.line("fence.proxy.async.shared::cta;");
    case Kind::kBulkCopy:
      return bulk_copy(node);
    case Kind::kBulkStore:
      return bulk_store(node);
    case Kind::kBulkStoreWait:
      return wait_for_box_stores(node.immediate);
    case Kind::kPhaseExpect:
      return only_where(first_producer(), fmt::format("mbarrier.arrive.expect_tx.shared::cta.b64 _, {}, {};",
                                                      at(node, 0).text(), node.immediate));
    case Kind::kPhaseBytes:
      return only_where(first_producer(), fmt::format("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 {}, {};",
                                                      at(node, 0).text(), node.immediate));
    case Kind::kPhaseWait:
      return turns_of(kernel_, node) ? turn("sync", node) : phase_wait(node);
    case Kind::kPhaseArrive:
      return turns_of(kernel_, node) ? turn("arrive", node) : phase_arrive(node);
    case Kind::kPhaseCopied:
      return code_.line("cp.async.mbarrier.arrive.noinc.shared::cta.b64 {};", at(node, 0).text());
    case Kind::kInOrder: {
      // A branch that is never taken, which the assembler's scheduler keeps to: grids have one dimension.
      const Value rows = code_.fresh(Class::kB32);
      code_.line("mov.u32 {}, %%nctaid.y;", rows.text);
      return when(code_.compare("gt", "u32", rows, Code::integer(1, 32)), [&] { code_.line("trap;"); });
    }
  }
}

int64_t Statements::bytes_of(const LoopIntrinsic& node) {
  return node.operands[0].elements * ir::bits(node.operands[0].buffer->type.dtype) / 8;
}

void Statements::copy_vector(const LoopIntrinsic& node) {
  const Value guard = condition(node.guard);
  const Place from = at(node, 1), to = at(node, 0);
  if (!memory_.copy(to, from, bytes_of(node), guard)) expressions_.lacks("a guarded copy of registers");
}

void Statements::copy_async(const LoopIntrinsic& node) {
  const int64_t bytes = bytes_of(node);
  const Value guard = condition(node.guard);
  const Place to = at(node, 0), from = at(node, 1);
  const char* const cache = bytes == 16 ? "cg" : "ca";
  if (guard.is(1)) return code_.line("cp.async.{}.shared.global {}, {}, {};", cache, to.text(), from.text(), bytes);
  const Value read = code_.select(guard, Code::integer(bytes, 32), Code::integer(0, 32));
  code_.line("cp.async.{}.shared.global {}, {}, {}, {};", cache, to.text(), from.text(), bytes, read.text);
}

}  // namespace kachel::lowering::ptx
