// What sm_90a has: the copy engine with its barriers of phases, and wgmma.
#include "lowering/emit/ptx/ptx_statements.h"
#include "lowering/machine/machine.h"

namespace kachel::lowering::ptx {

using Kind = LoopIntrinsic::Kind;

Value Statements::first_producer() {
  if (kernel_.copiers == 1) return Code::truth(true);
  return code_.compare("eq", "s32", tid_, Code::integer(consumers(), 32));
}
const LoopPhases* Statements::turns(const LoopIntrinsic& node) const {
  for (const LoopPhases& phases : kernel_.phases)
    if (phases.turns && phases.buffer == node.operands[0].buffer) return &phases;
  return nullptr;
}
// The blocks, as bits.
Value Statements::peers(const LoopIntrinsic& node) {
  const Value rank = expressions_.of(ir::make_var(kernel_.rank));
  const Value all = code_.in_register(Code::integer(static_cast<int64_t>(node.peers), 64));
  const Value shifted = code_.shift(all, code_.mul(rank, Code::integer(8, 32)), false, false);
  return code_.bits("and", code_.narrowed(shifted), Code::integer(0xff, 32));
}

bool Statements::bulk(const LoopIntrinsic& node) {
  std::string coordinates;
  for (const ir::ExprRef& coordinate : node.coordinates)
    coordinates += (coordinates.empty() ? "" : ", ") + expressions_.of(coordinate).text;
  const size_t rank = node.coordinates.size();
  switch (node.kind) {
    case Kind::kBulkCopy: {
      const Value policy = code_.in_register(expressions_.of(node.l2_policy));
      std::string blocks;
      if (node.peers) {
        const Value narrow = code_.pure(Class::kB16, "cvt.u16.u32", {peers(node)});
        blocks = ", " + narrow.text;
      }
      const Place to = at(node, 0), barrier = at(node, 2);
      only_where(first_producer(),
                 fmt::format("cp.async.bulk.tensor.{}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{}"
                             ".L2::cache_hint {}, [{}, {{{}}}], {}{}, {};",
                             rank, node.peers ? ".multicast::cluster" : "", to.text(), map(node.immediate).text,
                             coordinates, barrier.text(), blocks, policy.text));
      return true;
    }
    case Kind::kBulkStore: {
      const Place from = at(node, 1);
      const Value to = map(node.immediate), lane = first_lane();
      code_.line("fence.proxy.async.shared::cta;");
      code_.line("bar.warp.sync -1;");
      only_where(lane, fmt::format("cp.async.bulk.tensor.{}d.global.shared::cta.tile.bulk_group [{}, {{{}}}], {};",
                                   rank, to.text, coordinates, from.text()));
      only_where(lane, "cp.async.bulk.commit_group;");
      return true;
    }
    case Kind::kBulkStoreWait:
      only_where(first_lane(), fmt::format("cp.async.bulk.wait_group.read {};", node.immediate));
      code_.line("bar.warp.sync -1;");
      return true;
    default:
      return false;
  }
}

bool Statements::phases(const LoopIntrinsic& node) {
  switch (node.kind) {
    case Kind::kPhaseExpect:
      only_where(first_producer(), fmt::format("mbarrier.arrive.expect_tx.shared::cta.b64 _, {}, {};",
                                               at(node, 0).text(), node.immediate));
      return true;
    case Kind::kPhaseWait: {
      if (turns(node)) {
        const Value group = code_.add(expressions_.of(node.operands[0].index), Code::integer(2, 32));
        code_.line("bar.sync {}, 256;", group.text);
        return true;
      }
      const Value parity = expressions_.of(node.coordinates[0]), over = code_.fresh(Class::kPred);
      const Place barrier = at(node, 0);
      const std::string head = code_.new_label();
      const Value begun = code_.fresh(Class::kB64);
      if (bounded_) code_.line("mov.u64 {}, %%globaltimer;", begun.text);
      code_.label(head);
      code_.line("mbarrier.try_wait.parity.shared::cta.b64 {}, {}, {};", over.text, barrier.text(), parity.text);
      if (bounded_) {
        const Value now = code_.fresh(Class::kB64), late = code_.fresh(Class::kPred);
        code_.line("mov.u64 {}, %%globaltimer;", now.text);
        code_.line("sub.u64 {0}, {0}, {1};", now.text, begun.text);
        code_.line("setp.gt.u64 {}, {}, 2000000000;", late.text, now.text);
        code_.line("@{} trap;", late.text);
      }
      code_.line("@!{} bra {};", over.text, head);
      return true;
    }
    case Kind::kPhaseArrive: {
      if (turns(node)) {
        const Value group = code_.add(expressions_.of(node.operands[0].index), Code::integer(2, 32));
        code_.line("bar.arrive {}, 256;", group.text);
        return true;
      }
      if (!node.by_group) code_.line("bar.warp.sync -1;");
      const Place barrier = at(node, 0);
      const int64_t together = node.by_group ? kGroupThreads : 32;
      const Value lane = code_.bits("and", tid_, Code::integer(together - 1, 32));
      if (!node.peers) {
        only_where(code_.compare("eq", "s32", lane, Code::integer(0, 32)),
                   fmt::format("mbarrier.arrive.shared::cta.b64 _, {};", barrier.text()));
        return true;
      }
      const Value told =
          code_.bits("and", code_.pure(Class::kB32, "shr.u32", {peers(node), lane}), Code::integer(1, 32));
      const Value tells = code_.both(code_.compare("lt", "s32", lane, Code::integer(8, 32)),
                                     code_.compare("ne", "s32", told, Code::integer(0, 32)));
      const Value address = code_.add(barrier.address, Code::integer(barrier.offset, 32));
      const Value there = code_.pure(Class::kB32, "mapa.shared::cluster.u32", {address, lane});
      only_where(tells, fmt::format("mbarrier.arrive.shared::cluster.b64 _, [{}];", there.text));
      return true;
    }
    case Kind::kPhaseCopied:
      code_.line("cp.async.mbarrier.arrive.noinc.shared::cta.b64 {};", at(node, 0).text());
      return true;
    case Kind::kProxyFence:
      code_.line("fence.proxy.async.shared::cta;");
      return true;
    case Kind::kInOrder: {
      // A branch that is never taken, which the assembler's scheduler keeps to: grids have one dimension.
      const Value rows = code_.fresh(Class::kB32);
      code_.line("mov.u32 {}, %%nctaid.y;", rows.text);
      when(code_.compare("gt", "u32", rows, Code::integer(1, 32)), [&] { code_.line("trap;"); });
      return true;
    }
    default:
      return false;
  }
}

bool Statements::warp_groups(const LoopIntrinsic& node) {
  switch (node.kind) {
    case Kind::kGroupFence:
      code_.line("wgmma.fence.sync.aligned;");
      return true;
    case Kind::kGroupCommit:
      code_.line("wgmma.commit_group.sync.aligned;");
      return true;
    case Kind::kGroupWait:
      code_.line("wgmma.wait_group.sync.aligned {};", node.immediate);
      return true;
    default:
      return false;
  }
}

void Statements::group_products(const GroupRun& run) {
  const LoopIntrinsic& mma = *run.first;
  const bool registers = !mma.view_a.swizzle;
  // Distances in 16 bytes, as in the descriptor itself.
  const auto matrix = [&](size_t operand, const LoopIntrinsic::MatrixView& view) {
    const Place place = at(mma, operand);
    const Value address = code_.add(place.address, Code::integer(place.offset, 32));
    const Value window = code_.bits("and", address, Code::integer(0x3ffff, 32));
    const Value rows = code_.shift(window, Code::integer(4, 32), false, false);
    return code_.bits("or", code_.widened(rows, false),
                      Code::integer(static_cast<int64_t>(matrix_descriptor(view)), 64));
  };
  const Place sums = at(mma, 0);
  const int64_t count = mma.immediate / 2;
  const std::string c = fmt::format("{{{}}}", fmt::join(memory_.words(sums, count), ", "));
  const std::optional<Value> a = registers ? std::nullopt : std::optional(matrix(1, mma.view_a));
  const Value b = matrix(2, mma.view_b);
  const std::string name = group_instruction(mma), flags = group_flags(mma);
  for (size_t i = 0; i < run.products.size(); ++i) {
    const GroupRun::Product& product = run.products[i];
    std::string left;
    if (registers) {
      Place place = at(mma, 1);
      place.element += product.a * 32 / ir::bits(mma.type);
      left = fmt::format("{{{}}}", fmt::join(memory_.words(place, 4), ", "));
    } else {
      left = code_.add(*a, Code::integer(product.a, 64)).text;
    }
    const Value right = code_.add(b, Code::integer(product.b, 64));
    const Value adds = code_.in_register(Code::truth(i > 0 || mma.accumulate));
    code_.line("{} {}, {}, {}, {}{};", name, c, left, right.text, adds.text, flags);
  }
  memory_.written(sums, count);
}

}  // namespace kachel::lowering::ptx
