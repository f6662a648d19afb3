#include "tests/lowering/simulated_program.h"

#include <algorithm>

namespace kachel::lowering {
namespace {

class Compiler {
 public:
  explicit Compiler(const LoopKernel& kernel) : kernel_(kernel) {}

  SimProgram run(uint32_t blocks) {
    buffers();
    for (const LoopPhases& phases : kernel_.phases) out_.phases.emplace_back(numbers_.at(phases.buffer.get()), phases);
    for (const LoopParam& param : kernel_.params) out_.param_slots.push_back(param.var ? slot(param.var) : -1);
    // for tile in block, block + blocks, ... while tile < tiles
    out_.first_tile = out_.slots++;
    if (kernel_.rank) out_.rank = slot(kernel_.rank);
    if (kernel_.thread) out_.thread = slot(kernel_.thread);
    if (kernel_.team) out_.team = slot(kernel_.team);
    SimNode first{ir::ExprKind::kVar};
    first.slot = out_.first_tile;
    out_.nodes.push_back(first);
    const int first_tile = static_cast<int>(out_.nodes.size()) - 1;
    for (auto [from, to] : {std::pair(&kernel_.body, &out_.body), std::pair(&kernel_.producer, &out_.producer)}) {
      SimStmt walk{SimStmt::Kind::kFor};
      walk.a = first_tile;
      walk.b = expr(ir::make_var(kernel_.tiles));
      walk.slot = slot(kernel_.tile);
      walk.step = blocks;
      walk.body = kernel_.teams > 1 && from == &kernel_.body ? in_turn(blocks) : block(*from);
      walk.stops = stops(walk.body);
      to->push_back(std::move(walk));
    }
    return std::move(out_);
  }

 private:
  // The block's i-th tile is that of team i % teams.
  SimBlock in_turn(uint32_t blocks) {
    auto apply = [](ir::Op op, const ir::ExprRef& a, int64_t b) {
      return ir::make_typed(op, {a, ir::make_int(b, ir::DType::I64)});
    };
    const ir::ExprRef round = apply(ir::Op::kDiv, ir::make_var(kernel_.tile), blocks);
    const ir::ExprRef team = ir::make_cast({ir::DType::I32, nullptr}, apply(ir::Op::kMod, round, kernel_.teams));
    SimStmt turn{SimStmt::Kind::kIf};
    turn.a = expr(ir::make_typed(ir::Op::kEq, {team, ir::make_var(kernel_.team)}));
    turn.body = block(kernel_.body);
    turn.otherwise = block(kernel_.passed_over);
    turn.stops = stops(turn.body) || stops(turn.otherwise);
    SimBlock both;
    both.push_back(std::move(turn));
    return both;
  }
  void buffers() {
    auto add = [&](const ir::BufferRef& buffer, SimBuffer::Kind kind) -> SimBuffer& {
      numbers_[buffer.get()] = static_cast<int>(out_.buffers.size());
      SimBuffer& made = out_.buffers.emplace_back();
      made.kind = kind;
      made.name = buffer->name;
      made.type = buffer->type.dtype;
      return made;
    };
    for (size_t i = 0; i < kernel_.params.size(); ++i)
      if (kernel_.params[i].buffer) add(kernel_.params[i].buffer, SimBuffer::Kind::kGlobal).param = static_cast<int>(i);
    for (const LoopBuffer& local : kernel_.buffers) {
      const bool is_register = local.buffer->scope == ir::Scope::kRegister;
      SimBuffer& made = add(local.buffer, is_register     ? SimBuffer::Kind::kRegister
                                          : local.spilled ? SimBuffer::Kind::kWorkspace
                                                          : SimBuffer::Kind::kShared);
      made.elements = local.elements;
      made.zeroed = local.zeroed;
      made.handed = std::any_of(kernel_.handed.begin(), kernel_.handed.end(),
                                [&](const LoopHanded& handed) { return handed.place == local.buffer; });
      made.offset = is_register ? out_.register_bytes : local.byte_offset;
      if (is_register) out_.register_bytes += (ir::storage_bytes(made.type, made.elements) + 7) / 8 * 8;
    }
  }
  int slot(const ir::VarRef& var) {
    auto [it, fresh] = slots_.try_emplace(var.get(), out_.slots);
    if (fresh) ++out_.slots;
    return it->second;
  }
  int expr(const ir::ExprRef& e) {
    SimNode node{e->kind};
    node.op = e->op;
    node.type = e->type;
    switch (e->kind) {
      case ir::ExprKind::kInt:
      case ir::ExprKind::kBool:
        node.constant = {e->type, e->int_value, 0};
        break;
      case ir::ExprKind::kFloat:
        node.constant = {ir::DType::F32, 0, ir::round_float(ir::DType::F32, e->float_value)};
        break;
      case ir::ExprKind::kVar:
        node.slot = slot(e->var);
        break;
      case ir::ExprKind::kLoad:
        node.buffer = numbers_.at(e->buffer.get());
        break;
      case ir::ExprKind::kCast:
        node.cast = e->cast_type.dtype;
        break;
      case ir::ExprKind::kApply:
      case ir::ExprKind::kReduce:  // not in loop IR
      case ir::ExprKind::kScan:
        break;
    }
    for (const ir::ExprRef& arg : e->args) node.args[node.arity++] = expr(arg);
    out_.nodes.push_back(node);
    return static_cast<int>(out_.nodes.size()) - 1;
  }
  static bool stops(const SimBlock& body) {
    return std::any_of(body.begin(), body.end(), [](const SimStmt& stmt) { return stmt.stops; });
  }
  SimBlock block(const LoopBlock& in) {
    SimBlock out;
    for (const LoopStmt& stmt : in) std::visit([&](const auto& node) { statement(node, &out); }, stmt.node);
    return out;
  }
  void statement(const LoopLet& let, SimBlock* out) {
    SimStmt stmt{SimStmt::Kind::kLet};
    stmt.a = expr(let.value);
    stmt.slot = slot(let.var);
    out->push_back(std::move(stmt));
  }
  void statement(const LoopStore& store, SimBlock* out) {
    SimStmt stmt{SimStmt::Kind::kStore};
    stmt.a = expr(store.index);
    stmt.b = expr(store.value);
    stmt.buffer = numbers_.at(store.buffer.get());
    out->push_back(std::move(stmt));
  }
  void statement(const LoopAtomic& atomic, SimBlock* out) {
    SimStmt stmt{SimStmt::Kind::kAtomic};
    stmt.a = expr(atomic.index);
    stmt.b = expr(atomic.value);
    stmt.buffer = numbers_.at(atomic.buffer.get());
    stmt.atomic = atomic.op;
    out->push_back(std::move(stmt));
  }
  void statement(const LoopFor& loop, SimBlock* out) {
    SimStmt stmt{SimStmt::Kind::kFor};
    stmt.a = expr(loop.begin);
    stmt.b = expr(loop.end);
    stmt.slot = slot(loop.var);
    stmt.type = loop.var->type.dtype;
    stmt.body = block(loop.body);
    stmt.stops = stops(stmt.body);
    out->push_back(std::move(stmt));
  }
  void statement(const LoopThreads& threads, SimBlock* out) {
    SimStmt stmt{SimStmt::Kind::kThreads};
    stmt.slot = slot(threads.index);
    stmt.second = slot(threads.slot);
    stmt.extent = threads.extent;
    stmt.body = block(threads.body);
    out->push_back(std::move(stmt));
  }
  void statement(const LoopIf& branch, SimBlock* out) {
    SimStmt stmt{SimStmt::Kind::kIf};
    stmt.a = expr(branch.condition);
    stmt.body = block(branch.then_body);
    stmt.otherwise = block(branch.else_body);
    stmt.stops = stops(stmt.body) || stops(stmt.otherwise);
    out->push_back(std::move(stmt));
  }
  void statement(const LoopIntrinsic& intrinsic, SimBlock* out) {
    using Kind = SimStmt::Kind;
    constexpr Kind kKinds[] = {Kind::kCopy,        Kind::kCopyAsync,    Kind::kCommit,        Kind::kWait,
                               Kind::kLoadMatrix,  Kind::kMma,          Kind::kConvertPair,   Kind::kGroupMma,
                               Kind::kGroupFence,  Kind::kGroupCommit,  Kind::kGroupWait,     Kind::kProxyFence,
                               Kind::kBulkCopy,    Kind::kPhaseExpect,  Kind::kPhaseBytes,    Kind::kPhaseWait,
                               Kind::kPhaseArrive, Kind::kPhaseCopied,  Kind::kQuadExchange,  Kind::kDot4,
                               Kind::kStoreMatrix, Kind::kBulkStore,    Kind::kBulkStoreWait, Kind::kInOrder,
                               Kind::kLoadShifted, Kind::kStoreShifted, Kind::kUnpack,        Kind::kPackedMath,
                               Kind::kAddVector,   Kind::kQuadJoin,     Kind::kTurnMatrix,    Kind::kStoreRow};
    SimStmt stmt{kKinds[static_cast<int>(intrinsic.kind)]};
    for (const LoopIntrinsic::Operand& operand : intrinsic.operands)
      stmt.operands.push_back({numbers_.at(operand.buffer.get()), expr(operand.index), operand.elements});
    if (intrinsic.guard) stmt.a = expr(intrinsic.guard);
    stmt.immediate = intrinsic.immediate;
    stmt.transpose = intrinsic.transpose;
    stmt.type = intrinsic.type;
    stmt.type_b = intrinsic.type_b;
    stmt.table = intrinsic.table;
    stmt.op = intrinsic.op;
    stmt.accumulate = intrinsic.accumulate;
    stmt.adds = intrinsic.adds;
    stmt.widened = intrinsic.widened;
    stmt.peers = intrinsic.peers;
    stmt.by_group = intrinsic.by_group;
    stmt.view_a = intrinsic.view_a;
    stmt.view_b = intrinsic.view_b;
    stmt.stops = stmt.kind == Kind::kLoadMatrix || stmt.kind == Kind::kStoreMatrix || stmt.kind == Kind::kMma ||
                 (stmt.kind >= Kind::kGroupMma && stmt.kind <= Kind::kGroupWait) || stmt.kind == Kind::kPhaseWait ||
                 stmt.kind == Kind::kPhaseArrive || stmt.kind == Kind::kQuadExchange || stmt.kind == Kind::kQuadJoin ||
                 stmt.kind == Kind::kTurnMatrix || stmt.kind == Kind::kBulkStore || stmt.kind == Kind::kBulkStoreWait;
    for (const ir::ExprRef& coordinate : intrinsic.coordinates) stmt.coordinates.push_back(expr(coordinate));
    out->push_back(std::move(stmt));
  }
  void statement(const LoopShuffle& shuffle, SimBlock* out) {
    SimStmt stmt{SimStmt::Kind::kShuffle};
    stmt.a = expr(shuffle.value);
    stmt.slot = slot(shuffle.var);
    stmt.immediate = shuffle.lane_mask;
    stmt.stops = true;
    out->push_back(std::move(stmt));
  }
  void statement(const LoopPipeline&, SimBlock*) {}  // synchronise() leaves none
  void statement(const LoopBarrier&, SimBlock* out) {
    SimStmt stmt{SimStmt::Kind::kBarrier};
    stmt.stops = true;
    out->push_back(std::move(stmt));
  }
  void statement(const LoopComment&, SimBlock*) {}
  void statement(const LoopMicroKernel&, SimBlock*) {}  // not on a GPU
  void statement(const LoopStream&, SimBlock*) {}
  void statement(const LoopTranspose&, SimBlock*) {}
  void statement(const LoopPrefetch&, SimBlock*) {}

  const LoopKernel& kernel_;
  SimProgram out_;
  std::unordered_map<const ir::Var*, int> slots_;
  std::unordered_map<const ir::Buffer*, int> numbers_;
};

}  // namespace

SimProgram compile(const LoopKernel& kernel, uint32_t blocks) {
  return Compiler(kernel).run(blocks);
}

}  // namespace kachel::lowering
