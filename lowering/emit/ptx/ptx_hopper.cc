// What sm_90a has: the copy engine with its barriers of phases, and wgmma.
#include "lowering/emit/ptx/ptx_statements.h"
#include "lowering/machine/machine.h"

namespace kachel::lowering::ptx {

Value Statements::first_producer() {
  if (kernel_.copiers == 1) return Code::truth(true);
  return code_.compare("eq", "s32", tid_, Code::integer(consumers(), 32));
}
// The blocks, as bits.
Value Statements::peers(const LoopIntrinsic& node) {
  const Value rank = expressions_.of(ir::make_var(kernel_.rank));
  const Value all = code_.in_register(Code::integer(static_cast<int64_t>(node.peers), 64));
  const Value shifted = code_.shift(all, code_.mul(rank, Code::integer(8, 32)), false, false);
  return code_.bits("and", code_.narrowed(shifted), Code::integer(0xff, 32));
}
std::string Statements::coordinates(const LoopIntrinsic& node) {
  std::vector<std::string> out;
  for (const ir::ExprRef& coordinate : node.coordinates) out.push_back(expressions_.of(coordinate).text);
  return braced(out);
}

void Statements::bulk_copy(const LoopIntrinsic& node) {
  const std::string places = coordinates(node);
  const Value policy = code_.in_register(expressions_.of(node.l2_policy));
  std::string blocks;
  if (node.peers) blocks = ", " + code_.pure(Class::kB16, "cvt.u16.u32", {peers(node)}).text;
  const Place to = at(node, 0), barrier = at(node, 2);
  only_where(first_producer(),
             fmt::format("cp.async.bulk.tensor.{}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{}"
                         ".L2::cache_hint {}, [{}, {}], {}{}, {};",
                         node.coordinates.size(), node.peers ? ".multicast::cluster" : "", to.text(),
                         map(node.immediate).text, places, barrier.text(), blocks, policy.text));
}

void Statements::bulk_store(const LoopIntrinsic& node) {
  const std::string places = coordinates(node);
  const Place from = at(node, 1);
  const Value to = map(node.immediate), lane = first_of(32);
  code_.line("fence.proxy.async.shared::cta;");
  code_.line("bar.warp.sync -1;");
  only_where(lane, fmt::format("cp.{}async.bulk.tensor.{}d.global.shared::cta.{}tile.bulk_group [{}, {}], {};",
                               node.adds ? "reduce." : "", node.coordinates.size(), node.adds ? "add." : "", to.text,
                               places, from.text()));
  only_where(lane, "cp.async.bulk.commit_group;");
}

void Statements::wait_for_box_stores(int64_t left) {
  only_where(first_of(32), fmt::format("cp.async.bulk.wait_group.read {};", left));
  code_.line("bar.warp.sync -1;");
}

// Two groups meet at a barrier of the hardware's; 1 is that of all.
void Statements::turn(const char* operation, const LoopIntrinsic& node) {
  const Value group = code_.add(expressions_.of(node.operands[0].index), Code::integer(2, 32));
  code_.line("bar.{} {}, 256;", operation, group.text);
}

void Statements::phase_wait(const LoopIntrinsic& node) {
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
    code_.line("setp.gt.u64 {}, {}, 20000000000;", late.text, now.text);
    code_.line("@{} trap;", late.text);
  }
  code_.line("@!{} bra {};", over.text, head);
}

// Ors 0 to the registers: the highest bit of a clock of 64 bits, which the assembler does not know.
void Statements::group_fence(const LoopIntrinsic& node) {
  Value zero;
  for (const LoopIntrinsic::Operand& operand : node.operands) {
    if (zero.text.empty()) {
      zero = code_.fresh(Class::kB32);
      code_.line("mov.u32 {}, %%clock_hi;", zero.text);
      code_.line("shr.u32 {0}, {0}, 31;", zero.text);
    }
    const Place place = expressions_.place(operand.buffer, operand.index);
    const int64_t words = operand.elements * ir::bits(place.type) / 32;
    for (const std::string& word : memory_.words(place, words)) code_.line("or.b32 {0}, {0}, {1};", word, zero.text);
    memory_.written(place, words);
  }
  code_.line("wgmma.fence.sync.aligned;");
}

void Statements::phase_arrive(const LoopIntrinsic& node) {
  if (!node.by_group) code_.line("bar.warp.sync -1;");
  const Place barrier = at(node, 0);
  if (bounded_ && !node.peers)
    return code_.say(fmt::format("mbarrier.arrive.shared::cta.b64 _, {};", barrier.text()), true);
  const int64_t together = node.by_group ? kGroupThreads : 32;
  if (!node.peers)
    return only_where(code_.guarded(first_of(together)),
                      fmt::format("mbarrier.arrive.shared::cta.b64 _, {};", barrier.text()));
  // Those of the blocks that `block` (a number, or each lane's own) names, where it `can` be one.
  const auto tell = [&](const Value& block, const auto& can) {
    const Value one = Code::integer(1, 32);
    const Value told = code_.bits("and", code_.pure(Class::kB32, "shr.u32", {peers(node), block}), one);
    const Value tells = code_.guarded(code_.both(can(), code_.compare("ne", "s32", told, Code::integer(0, 32))));
    const Value address = code_.add(barrier.address, Code::integer(barrier.offset, 32));
    const Value there = code_.pure(Class::kB32, "mapa.shared::cluster.u32", {address, block});
    only_where(tells, fmt::format("mbarrier.arrive.shared::cluster.b64 _, [{}];", there.text));
  };
  if (bounded_) {
    for (int64_t block = 0; block < 8; ++block)
      if (node.peers & 0x0101010101010101u << block) tell(Code::integer(block, 32), [] { return Code::truth(true); });
    return;
  }
  const Value lane = code_.bits("and", tid_, Code::integer(together - 1, 32));
  tell(lane, [&] { return code_.compare("lt", "s32", lane, Code::integer(8, 32)); });
}

void Statements::group_products(const GroupRun& run) {
  products_.under_way = true;
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
  const std::string c = braced(memory_.words(sums, count));
  const std::optional<Value> a = registers ? std::nullopt : std::optional(matrix(1, mma.view_a));
  const Value b = matrix(2, mma.view_b);
  const std::string name = group_instruction(mma), flags = group_flags(mma);
  for (size_t i = 0; i < run.products.size(); ++i) {
    const GroupRun::Product& product = run.products[i];
    std::string left;
    if (registers) {
      Place place = at(mma, 1);
      place.element += product.a * 32 / ir::bits(mma.type);
      left = braced(memory_.words(place, 4));
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
