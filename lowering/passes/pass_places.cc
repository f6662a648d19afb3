// A tile's place in the grid takes one division after another, in which a warp group does nothing else. The producer is
// some tiles ahead and has that time.
//
// There are kPlaces of them in a ring. Its barriers of phases: `given`, at which the producer arrives once its first
// thread has stored, and `taken`, at which each warp arrives that has loaded. Tile number i of a block uses place
// i % kPlaces; teams take tiles in turn.
#include "lowering/passes/pass_places.h"

#include <algorithm>
#include <unordered_set>

#include "ir/query.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/loop_ir/phases.h"
#include "lowering/machine/machine.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;
using Vars = std::unordered_set<const ir::Var*>;

constexpr int64_t kPlaces = 4;
constexpr int64_t kBytes = 8;  // of a value: I64
constexpr int64_t kAlignment = 128;

void note_vars(const ExprRef& expr, Vars* vars) {
  if (expr)
    ir::visit(expr, [&](const ExprRef& node) {
      if (node->kind == ExprKind::kVar) vars->insert(node->var.get());
    });
}

bool divides(const ExprRef& value, const Vars& known) {
  bool found = false;
  ir::visit(value, [&](const ExprRef& node) {
    if (node->kind == ExprKind::kVar) found |= known.count(node->var.get()) > 0;
    if (node->kind != ExprKind::kApply || ir::is_float(node->type)) return;
    const bool division = node->op == Op::kDiv || node->op == Op::kMod || node->op == Op::kCeilDiv;
    found |= division && node->args[1]->kind != ExprKind::kInt;
  });
  return found;
}

// The names that a block begins with and that need no memory.
std::vector<LoopLet> first_names(const LoopBlock& block) {
  std::vector<LoopLet> names;
  for (const LoopStmt& stmt : block) {
    const auto* let = std::get_if<LoopLet>(&stmt.node);
    if (!let || loads(let->value)) break;
    names.push_back(*let);
  }
  return names;
}

Vars used_behind(const LoopBlock& block, size_t from) {
  Vars used;
  for (size_t i = from; i < block.size(); ++i)
    for_each_statement(block[i], [&](const LoopStmt& stmt) {
      for_each_expr(stmt, [&](const ExprRef& expr) { note_vars(expr, &used); });
    });
  return used;
}

class Places {
 public:
  Places(LoopKernel* kernel, const Target& target) : kernel_(*kernel), target_(target) {}

  void run() {
    const std::vector<LoopLet> names = first_names(kernel_.body);
    const Vars used = used_behind(kernel_.body, names.size());
    Vars dividing;
    for (const LoopLet& name : names) {
      if (!divides(name.value, dividing)) continue;
      if (used.count(name.var.get()))
        passed_.push_back(name.var);
      else
        dividing.insert(name.var.get());
    }
    const std::vector<LoopLet> given = first_names(kernel_.producer);
    const bool all_given = std::all_of(passed_.begin(), passed_.end(), [&](const ir::VarRef& var) {
      return std::any_of(given.begin(), given.end(), [&](const LoopLet& name) { return name.var == var; });
    });
    if (passed_.empty() || !all_given || !make_room()) return;
    give(given.size());
    take(names, used);
  }

 private:
  bool make_room() {
    const int64_t begin = (kernel_.shared_bytes + kAlignment - 1) / kAlignment * kAlignment;
    const auto values = static_cast<int64_t>(passed_.size());
    const int64_t end = begin + kPlaces * (values + 2) * kBytes;
    if (end > target_.shared_limit ||
        resident_by_shared(end, target_.architecture) != resident_by_shared(kernel_.shared_bytes, target_.architecture))
      return false;
    places_ = shared("places", DType::I64, kPlaces * values, begin);
    given_ = shared("given", DType::U64, kPlaces, begin + kPlaces * values * kBytes);
    taken_ = shared("taken", DType::U64, kPlaces, begin + kPlaces * (values + 1) * kBytes);
    kernel_.phases.push_back({given_, kPlaces, producer_arrivals(kernel_)});
    kernel_.phases.push_back({taken_, kPlaces, kernel_.threads / 32});
    kernel_.shared_bytes = end;
    return true;
  }
  ir::BufferRef buffer(const char* name, DType type, ir::Scope scope, int64_t elements) {
    auto made = std::make_shared<ir::Buffer>(
        ir::Buffer{name, scope, ir::Direction::kInOut, {type, nullptr}, {int64(elements)}, {}});
    kernel_.buffers.push_back({made, elements});
    return made;
  }
  ir::BufferRef shared(const char* name, DType type, int64_t elements, int64_t offset) {
    ir::BufferRef made = buffer(name, type, ir::Scope::kShared, elements);
    kernel_.buffers.back().alignment = kBytes;
    kernel_.buffers.back().byte_offset = offset;
    return made;
  }

  struct Turn {
    ExprRef place, parity;  // I32: of the phases in which it is given
  };
  // The next tile's, of those that come in steps of `step` from number `first` on.
  Turn turn(const char* counter, const ExprRef& first, int64_t step, LoopBlock* out) {
    const ir::BufferRef counted = buffer(counter, DType::I32, ir::Scope::kRegister, 1);
    kernel_.buffers.back().zeroed = true;
    const ExprRef now = named("turn", ir::make_load(counted, {int32(0)}), out);
    out->push_back({LoopStore{counted, int32(0), plus(now, int32(1))}});
    const ExprRef number = named("number", plus(first, times(now, step)), out);
    const ExprRef round = apply(Op::kShr, number, int32(2));
    static_assert(kPlaces == 1 << 2);
    return {named("at", apply(Op::kBitAnd, number, int32(kPlaces - 1)), out),
            named("parity", apply(Op::kBitAnd, round, int32(1)), out)};
  }
  ExprRef slot(const Turn& turn, size_t value) const {
    return plus(times(turn.place, static_cast<int64_t>(passed_.size())), int32(static_cast<int64_t>(value)));
  }

  // Behind the producer's first `names` statements.
  void give(size_t names) {
    LoopBlock out;
    const Turn now = turn("places_given", int32(0), 1, &out);
    out.push_back(phase_operation(Kind::kPhaseWait, taken_, now.place, 0, apply(Op::kBitXor, now.parity, int32(1))));
    LoopBlock stores;
    for (size_t i = 0; i < passed_.size(); ++i)
      stores.push_back(
          {LoopStore{places_, slot(now, i), ir::make_cast({DType::I64, nullptr}, ir::make_var(passed_[i]))}});
    const LoopStmt first = by_first_thread(std::move(stores));
    if (!planted(Planted::kPlaceNotAwaited)) out.push_back(first);
    // All that wait for `taken` arrive, or one that comes late would find the next phase begun.
    out.push_back(producer_arrives(kernel_, given_, now.place));
    if (planted(Planted::kPlaceNotAwaited)) out.push_back(first);
    kernel_.producer.insert(kernel_.producer.begin() + static_cast<std::ptrdiff_t>(names), out.begin(), out.end());
  }

  // In the place of the body's first names, those of them that are worked out still included.
  void take(const std::vector<LoopLet>& names, Vars used) {
    LoopBlock out;
    const ExprRef team = kernel_.team ? ir::make_var(kernel_.team) : int32(0);
    const Turn now = turn("places_taken", team, kernel_.teams, &out);
    out.push_back(phase_operation(Kind::kPhaseWait, given_, now.place, 0, now.parity));
    if (planted(Planted::kPlaceTakenEarly)) out.push_back(phase_operation(Kind::kPhaseArrive, taken_, now.place));
    for (size_t i = 0; i < passed_.size(); ++i) {
      const ExprRef value = ir::make_load(places_, {slot(now, i)});
      out.push_back({LoopLet{passed_[i], from_i64(value, passed_[i]->type.dtype)}});
    }
    if (!planted(Planted::kPlaceTakenEarly)) out.push_back(phase_operation(Kind::kPhaseArrive, taken_, now.place));
    std::vector<const LoopLet*> kept;
    for (size_t i = names.size(); i-- > 0;) {
      const LoopLet& name = names[i];
      const bool passed = std::find(passed_.begin(), passed_.end(), name.var) != passed_.end();
      if (passed || !used.count(name.var.get())) continue;
      note_vars(name.value, &used);
      kept.push_back(&name);
    }
    for (size_t i = kept.size(); i-- > 0;) out.push_back({*kept[i]});
    kernel_.body.erase(kernel_.body.begin(), kernel_.body.begin() + static_cast<std::ptrdiff_t>(names.size()));
    kernel_.body.insert(kernel_.body.begin(), out.begin(), out.end());
  }

  LoopKernel& kernel_;
  const Target& target_;
  std::vector<ir::VarRef> passed_;
  ir::BufferRef places_, given_, taken_;
};

}  // namespace

void pass_places(LoopKernel* kernel, const Target& target) {
  if (kernel->producer.empty() || kernel->one_tile) return;
  Places(kernel, target).run();
}

}  // namespace kachel::lowering
