#include "lowering/emit/emit_cuda_intrinsic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lowering/loop_ir/loop_build.h"
#include "lowering/loop_ir/phases.h"
#include "lowering/machine/machine.h"

namespace kachel::lowering {

std::string CudaIntrinsics::first_only() const {
  return kernel_.copiers == 1 ? "" : fmt::format("if (threadIdx.x == {}) ", kernel_.teams * kernel_.threads);
}

std::string CudaIntrinsics::peers(const LoopIntrinsic& node) {
  return fmt::format("(u32)({:#x}ull >> 8 * {}) & 0xff", node.peers, expressions_.name(kernel_.rank));
}

std::string CudaIntrinsics::at(const LoopIntrinsic& node, size_t i) {
  const LoopIntrinsic::Operand& operand = node.operands[i];
  return fmt::format("{} + {}", expressions_.name(operand.buffer), expressions_.text(operand.index, true));
}

std::vector<std::string> CudaIntrinsics::statements(const LoopIntrinsic& node) {
  out_.clear();
  using Kind = LoopIntrinsic::Kind;
  auto at = [&](size_t i) { return this->at(node, i); };
  // In bytes of the shared window, where sums of constants end up in the instruction.
  auto address = [&](size_t i) {
    const LoopIntrinsic::Operand& operand = node.operands[i];
    return fmt::format("kachel_shared_address({}) + {}u * (u32){}", expressions_.name(operand.buffer),
                       ir::bits(operand.buffer->type.dtype) / 8, expressions_.text(operand.index, true));
  };
  const std::string guard = node.guard ? expressions_.text(node.guard, false) : "true";
  const int64_t bytes =
      node.operands.empty() ? 0 : node.operands[0].elements * ir::bits(node.operands[0].buffer->type.dtype) / 8;
  switch (node.kind) {
    case Kind::kCopyVector:
      if (!node.guard)
        say("kachel_copy{}({}, {});", bytes, at(0), at(1));
      else
        say("if ({0}) kachel_copy{1}({2}, {3}); else kachel_zero{1}({2});", guard, bytes, at(0), at(1));
      break;
    case Kind::kAddVector:
      say("kachel_add{}_{}({}, (const u32*)({}));", bytes, ir::name(node.type), at(0), at(1));
      break;
    case Kind::kCopyAsync:
      say("kachel_copy_async{}({}, {}, {});", bytes, address(0), at(1), guard);
      break;
    case Kind::kAsyncCommit:
      say("kachel_async_commit();");
      break;
    case Kind::kAsyncWait:
      say("kachel_async_wait<{}>();", node.immediate);
      break;
    case Kind::kLoadMatrix:
      say("kachel_load_matrix{}_x{}((u32*)({}), {});", node.transpose ? "_trans" : "", node.immediate, at(0),
          address(1));
      break;
    case Kind::kMma:
      say("kachel_mma_{}{}_{}({}, (const u32*)({}), (const u32*)({}));", node.widened ? "widened_" : "",
          ir::name(node.type), ir::name(node.type_b), at(0), at(1), at(2));
      break;
    case Kind::kGroupMma:
      break;  // written by block(), in runs
    case Kind::kGroupFence:
      for (size_t i = 0; i < node.operands.size(); ++i)
        say("kachel_keep<{}>((u32*)({}));",
            node.operands[i].elements * ir::bits(node.operands[i].buffer->type.dtype) / 32, at(i));
      say("kachel_group_fence();");
      break;
    case Kind::kGroupCommit:
      say("kachel_group_commit();");
      break;
    case Kind::kGroupWait:
      say("kachel_group_wait<{}>();", node.immediate);
      for (size_t i = 0; i < node.operands.size(); ++i) say("kachel_pin<{}>({});", node.operands[i].elements, at(i));
      break;
    case Kind::kProxyFence:
      say("kachel_proxy_fence();");
      break;
    case Kind::kBulkCopy: {
      std::string coordinates;
      for (const ir::ExprRef& coordinate : node.coordinates) coordinates += ", " + expressions_.text(coordinate, false);
      say("{}kachel_bulk_{}_{}d({}, &p.maps[{}], {}, {}{}{});", first_only(), node.peers ? "multicast" : "copy",
          node.coordinates.size(), at(0), node.immediate, at(2), expressions_.text(node.l2_policy, false),
          node.peers ? ", " + peers(node) : "", coordinates);
      break;
    }
    case Kind::kPhaseExpect:
      say("{}kachel_phase_expect({}, {});", first_only(), at(0), node.immediate);
      break;
    case Kind::kPhaseBytes:
      say("{}kachel_phase_bytes({}, {});", first_only(), at(0), node.immediate);
      break;
    case Kind::kPhaseWait:
      if (turns_of(kernel_, node))
        say("kachel_take_turn({});", expressions_.text(node.operands[0].index, false));
      else
        say("kachel_phase_wait({}, {});", at(0), expressions_.text(node.coordinates[0], false));
      break;
    case Kind::kPhaseArrive:
      if (turns_of(kernel_, node))
        say("kachel_pass_turn({});", expressions_.text(node.operands[0].index, false));
      else if (node.peers)
        say("{}kachel_phase_tell<{}>({}, {});", node.by_group ? "" : "__syncwarp(), ",
            node.by_group ? kGroupThreads : 32, at(0), peers(node));
      else
        say("kachel_phase_arrive{}({});", node.by_group ? "_group" : "", at(0));
      break;
    case Kind::kPhaseCopied:
      say("kachel_phase_copied({});", at(0));
      break;
    case Kind::kBulkStore: {
      std::string coordinates;
      for (const ir::ExprRef& coordinate : node.coordinates) coordinates += ", " + expressions_.text(coordinate, false);
      say("kachel_bulk_{}_{}d(&p.maps[{}], {}{});", node.adds ? "add" : "store", node.coordinates.size(),
          node.immediate, at(1), coordinates);
      break;
    }
    case Kind::kBulkStoreWait:
      say("kachel_bulk_store_wait<{}>();", node.immediate);
      break;
    case Kind::kInOrder:
      say("kachel_in_order();");
      break;
    case Kind::kLoadShifted:
      say("kachel_load_shifted((u32*)({}), {}, {});", at(0), at(1), guard);
      break;
    case Kind::kStoreShifted:
      say("kachel_store_shifted({}, (const u32*)({}), {}, {}, {}, {});", at(0), at(1), at(2),
          expressions_.text(node.coordinates[0], false), expressions_.text(node.coordinates[1], false), guard);
      break;
    case Kind::kStoreRow:
      say("kachel_store_row<{}>({}, (const u16*)({}), {});", node.immediate, at(0), at(1),
          expressions_.text(node.coordinates[0], false));
      break;
    case Kind::kStoreMatrix:
      say("kachel_store_matrix_x4({}, (const u32*)({}));", address(0), at(1));
      break;
    case Kind::kQuadExchange:
      say("kachel_quad_exchange((u32*)({}));", at(0));
      break;
    case Kind::kQuadJoin:
      say("kachel_quad_join((u32*)({}), (const u32*)({}));", at(0), at(1));
      break;
    case Kind::kTurnMatrix:
      say("kachel_turn_matrix((u32*)({}), (const u32*)({}));", at(0), at(1));
      break;
    case Kind::kDot4:
      say("kachel_dot4_{}_{}({}, (const u32*)({}), (const u32*)({}));", ir::name(node.type), ir::name(node.type_b),
          at(0), at(1), at(2));
      break;
    case Kind::kConvertPair:
      say("kachel_pair_{}({}, {});", ir::name(node.type), at(0), at(1));
      break;
    case Kind::kUnpack:
      if (!node.table.empty()) {
        say("kachel_table<{}>((u32*)({}), {}, {});", node.immediate ? 0 : node.operands[0].elements, at(0), at(1),
            fmt::join(table_words(node), ", "));
        break;
      }
      if (ir::bits(node.type_b) == 32) {
        say("kachel_words_{}_{}<{}, {}>((u32*)({}), (const u32*)({}){});", ir::name(node.type), ir::name(node.type_b),
            node.operands[0].elements, (1 << node.immediate) - 1, at(0), at(1),
            node.operands.size() > 2 ? fmt::format(", *({})", at(2)) : "");
        break;
      }
      say("kachel_unpack_{}_{}<{}>((u32*)({}), (const u8*)({}){});", ir::name(node.type_b), ir::name(node.type),
          node.immediate ? 0 : node.operands[0].elements, at(0), at(1),
          node.operands.size() > 2 ? fmt::format(", *({})", at(2)) : "");
      break;
    case Kind::kPackedMath:
      packed_math(node);
      break;
  }
  return std::move(out_);
}

// An instruction a pair. Registers begin at even elements.
void CudaIntrinsics::packed_math(const LoopIntrinsic& node) {
  const auto pair = [&](size_t i, int64_t number) {
    if (node.operands[i].elements == 1) return fmt::format("kachel_both_{}(*({}))", ir::name(node.type), at(node, i));
    return fmt::format("((const u32*)({}))[{}]", at(node, i), number);
  };
  const char* op = node.op == ir::Op::kMul ? "mul" : node.op == ir::Op::kAdd ? "add" : "sub";
  for (int64_t number = 0; 2 * number < node.operands[0].elements; ++number)
    say("((u32*)({}))[{}] = kachel_packed_{}_{}({}, {});", at(node, 0), number, op, ir::name(node.type),
        pair(1, number), pair(2, number));
}

}  // namespace kachel::lowering
