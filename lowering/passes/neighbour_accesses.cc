#include "lowering/passes/neighbour_accesses.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "ir/poly.h"
#include "ir/visit.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/passes/input_loads.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

constexpr int64_t kWidest = 16;      // bytes of an access
constexpr size_t kMostOfBlock = 96;  // accesses that are compared with each other

struct Access {
  const ir::Expr* node = nullptr;  // of a load: it, or the selection around it
  ir::BufferRef buffer;
  ExprRef index, guard;  // guard: null where it is certain
  size_t at = 0;         // of the block's statements
  int part = 0;          // accesses of two parts do not pass what lies between
  size_t group = 0;      // of those whose places differ by numbers, and this one's
  int64_t offset = 0;
  bool taken = false;
};
struct Group {
  ir::BufferRef buffer;
  ir::Poly guard;
  int part;
  ir::Poly base;
  bool operator==(const Group&) const = default;
};

// Elements beside each other, from the first on: numbers of accesses.
using Window = std::vector<size_t>;

class Joiner {
 public:
  Joiner(LoopKernel* kernel, const std::map<const ir::Buffer*, int64_t>& aligned)
      : kernel_(*kernel), ranges_(kernel->ranges), aligned_(aligned) {
    for (const LoopBuffer& buffer : kernel->buffers)
      if (buffer.buffer->scope == ir::Scope::kShared) aligned_[buffer.buffer.get()] = buffer.alignment;
    for (const LoopParam& param : kernel->params) note_stride(param);
  }

  void block(LoopBlock* body) {
    for (LoopStmt& stmt : *body) {
      if (const auto* let = std::get_if<LoopLet>(&stmt.node); let && ir::is_integer(let->value->type)) {
        if (is_settled(let->value)) polys_.define(let->var, let->value);
        ranges_.set_multiple(let->var, ranges_.multiple_of(let->value));
      }
      for_each_block(&stmt, [this](LoopBlock* inner) { block(inner); });
    }
    join_loads(body);
    join_stores(body);
  }

 private:
  // Whether it is the same wherever it is evaluated. Of a place in memory that is written a name keeps what was there.
  static bool is_settled(const ExprRef& value) {
    bool settled = true;
    ir::visit(value,
              [&settled](const ExprRef& node) { settled &= node->kind != ExprKind::kLoad || is_input(node->buffer); });
    return settled;
  }

  // Whether it writes registers and names alone.
  static bool is_of_registers(const LoopStmt& stmt) {
    const auto* store = std::get_if<LoopStore>(&stmt.node);
    return std::holds_alternative<LoopLet>(stmt.node) || std::holds_alternative<LoopComment>(stmt.node) ||
           (store && store->buffer->scope == ir::Scope::kRegister);
  }
  // Rows that begin at multiples of so many bytes are so far apart.
  void note_stride(const LoopParam& param) {
    if (param.slot.kind != Slot::Kind::kStride || !param.var) return;
    for (const LoopParam& other : kernel_.params) {
      if (other.slot.kind != Slot::Kind::kPointer || other.slot.index != param.slot.index) continue;
      const auto bytes = aligned_.find(other.buffer.get());
      if (bytes == aligned_.end()) continue;
      const int64_t elements = bytes->second * 8 / ir::bits(other.buffer->type.dtype);
      if (elements > 1) ranges_.set_multiple(param.var, elements);
      return;
    }
  }

  // Elements of the widest access to a buffer.
  int64_t widest(const ir::Buffer& buffer) const {
    const auto bytes = aligned_.find(&buffer);
    const int bits = ir::bits(buffer.type.dtype);
    if (bytes == aligned_.end() || bits < 8 || buffer.type.dtype == ir::DType::Bool) return 1;
    return std::min(bytes->second, kWidest) * 8 / bits;
  }

  // False: it stays as it is.
  bool add(Access access, std::vector<Access>* found) {
    if (found->size() == kMostOfBlock || widest(*access.buffer) < 2) return false;
    bool fixed = true;
    for (const ExprRef& expr : {access.index, access.guard})
      ir::visit(expr, [&](const ExprRef& node) { fixed &= node->kind != ExprKind::kLoad; });
    if (!fixed) return false;
    ir::Poly base = polys_.of(access.index);
    access.offset = base.constant_term();
    base = polys_.add(base, ir::PolyContext::constant(access.offset), -1);
    Group group{access.buffer, access.guard ? polys_.of(access.guard) : ir::Poly(), access.part, std::move(base)};
    const auto known = std::find(groups_.begin(), groups_.end(), group);
    access.group = static_cast<size_t>(known - groups_.begin());
    if (known == groups_.end()) groups_.push_back(std::move(group));
    found->push_back(std::move(access));
    return true;
  }

  // Of an expression, what it loads wherever it is evaluated.
  void note_loads(const ExprRef& expr, size_t at, int part, std::vector<Access>* found) {
    const ir::Expr* load = input_read(*expr);
    const bool guarded = load && load != expr.get();
    if (guarded && !ir::is_zero_constant(expr->args[2])) return;
    if (load) {
      add({expr.get(), load->buffer, load->args[0], guarded ? expr->args[0] : nullptr, at, 0}, found);
      return;
    }
    if (expr->kind == ExprKind::kLoad && expr->buffer->scope == ir::Scope::kShared) {
      add({expr.get(), expr->buffer, expr->args[0], nullptr, at, part}, found);
      return;
    }
    for (size_t arg = 0; arg < (ir::is_lazy(*expr) ? 1 : expr->args.size()); ++arg)
      note_loads(expr->args[arg], at, part, found);
  }

  static bool is_beside(const Access& first, const Access& other, int64_t distance) {
    return !other.taken && other.group == first.group && other.offset - first.offset == distance;
  }

  // The largest first; each access is in one.
  std::vector<Window> windows(std::vector<Access>* accesses) {
    std::vector<Window> found;
    for (int64_t width = kWidest; width > 1; width /= 2)
      for (size_t first = 0; first < accesses->size(); ++first) {
        Access& begin = (*accesses)[first];
        if (begin.taken || width > widest(*begin.buffer)) continue;
        Window window{first};
        for (int64_t distance = 1; distance < width; ++distance)
          for (size_t other = 0; other < accesses->size(); ++other)
            if (is_beside(begin, (*accesses)[other], distance)) {
              window.push_back(other);
              break;
            }
        if (static_cast<int64_t>(window.size()) != width || ranges_.multiple_of(begin.index) % width != 0) continue;
        for (const size_t one : window) (*accesses)[one].taken = true;
        found.push_back(std::move(window));
      }
    return found;
  }

  void join_loads(LoopBlock* body) {
    std::vector<Access> accesses;
    groups_.clear();
    int part = 0;
    for (size_t at = 0; at < body->size(); ++at) {
      const LoopStmt& stmt = (*body)[at];
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) note_loads(let->value, at, part, &accesses);
      if (const auto* store = std::get_if<LoopStore>(&stmt.node)) note_loads(store->value, at, part, &accesses);
      part += !is_of_registers(stmt);
    }
    std::map<size_t, LoopBlock> in_front;                          // of statements
    std::map<std::pair<const ir::Expr*, size_t>, ExprRef> loaded;  // of a node in a statement
    for (const Window& window : windows(&accesses)) {
      const Access& begin = accesses[window[0]];
      std::vector<size_t> all = window;  // and what else is of these elements
      for (size_t i = 0; i < accesses.size(); ++i) {
        const int64_t distance = accesses[i].offset - begin.offset;
        if (!accesses[i].taken && accesses[i].group == begin.group && distance >= 0 &&
            distance < static_cast<int64_t>(window.size()))
          all.push_back(i);
      }
      const size_t early = *std::min_element(all.begin(), all.end(),
                                             [&](size_t a, size_t b) { return accesses[a].at < accesses[b].at; });
      const Access& first = accesses[early];
      const int64_t place = first.offset - begin.offset;
      const auto width = static_cast<int64_t>(window.size());
      const ir::BufferRef near = add_registers(&kernel_, "near", first.buffer->type.dtype, width);
      LoopIntrinsic copy{LoopIntrinsic::Kind::kCopyVector, {}, first.guard};
      copy.operands = {{near, int32(0), width, true}, {first.buffer, moved(first.index, -place), width, false}};
      copy.type = first.buffer->type.dtype;
      in_front[first.at].push_back({std::move(copy)});
      for (const size_t one : all) {
        const int64_t slot = accesses[one].offset - begin.offset;
        accesses[one].taken = true;
        loaded[{accesses[one].node, accesses[one].at}] =
            ir::make_load(near, {int32(planted(Planted::kNeighbourSlot) ? width - 1 - slot : slot)});
      }
    }
    if (in_front.empty()) return;
    const auto with_loaded = [&](const ExprRef& expr, size_t at) {
      return replaced(expr, [&](const ExprRef& node) -> ExprRef {
        const auto found = loaded.find({node.get(), at});
        return found == loaded.end() ? nullptr : found->second;
      });
    };
    LoopBlock out;
    for (size_t at = 0; at < body->size(); ++at) {
      if (const auto found = in_front.find(at); found != in_front.end())
        for (LoopStmt& copy : found->second) out.push_back(std::move(copy));
      LoopStmt& stmt = (*body)[at];
      if (auto* let = std::get_if<LoopLet>(&stmt.node)) let->value = with_loaded(let->value, at);
      if (auto* store = std::get_if<LoopStore>(&stmt.node)) store->value = with_loaded(store->value, at);
      out.push_back(std::move(stmt));
    }
    *body = std::move(out);
  }

  static ExprRef moved(const ExprRef& index, int64_t by) {
    return by ? plus(index, ir::make_int(by, index->type)) : index;
  }

  // The statement under a condition; null: there is none.
  static LoopStmt where(const ExprRef& guard, LoopStmt stmt) {
    if (!guard) return stmt;
    LoopIf branch{guard, {}, {}};
    branch.then_body.push_back(std::move(stmt));
    return {std::move(branch)};
  }

  // A store to a tensor, or one that is all of a branch. Null: it is neither.
  static const LoopStore* store_of(const LoopStmt& stmt, ExprRef* guard) {
    const auto* branch = std::get_if<LoopIf>(&stmt.node);
    if (branch && (branch->then_body.size() != 1 || !branch->else_body.empty())) return nullptr;
    const auto* store = std::get_if<LoopStore>(branch ? &branch->then_body[0].node : &stmt.node);
    *guard = branch ? branch->condition : nullptr;
    return store && store->buffer->scope == ir::Scope::kGlobal ? store : nullptr;
  }

  void join_stores(LoopBlock* body) {
    std::vector<Access> accesses;
    groups_.clear();
    int part = 0;
    for (size_t at = 0; at < body->size(); ++at) {
      const LoopStmt& stmt = (*body)[at];
      ExprRef guard;
      const LoopStore* store = store_of(stmt, &guard);
      // What is stored late must not be what something else reads or writes meanwhile.
      bool reads = false;
      for_each_statement(stmt, [&](const LoopStmt& inner) {
        for_each_access(inner, [&](const ir::BufferRef& buffer, bool write) {
          reads |= !write && buffer->scope == ir::Scope::kGlobal && !is_input(buffer);
        });
      });
      if (reads || !(store || is_of_registers(stmt))) ++part;
      if (store && !reads && !add({nullptr, store->buffer, store->index, guard, at, part}, &accesses)) ++part;
    }
    std::map<size_t, std::pair<ir::BufferRef, int64_t>> made;  // of statements: where their value goes
    std::map<size_t, LoopStmt> behind;
    for (const Window& window : windows(&accesses)) {
      std::set<size_t> places;
      for (const size_t one : window) places.insert(accesses[one].at);
      // Another store to the tensor in between may be to the same element.
      const bool alone = std::all_of(accesses.begin(), accesses.end(), [&](const Access& other) {
        return other.buffer != accesses[window[0]].buffer || places.count(other.at) || other.at < *places.begin() ||
               other.at > *places.rbegin();
      });
      if (!alone) continue;
      const Access& first = accesses[window[0]];
      const Access& last = *std::find_if(accesses.begin(), accesses.end(),
                                         [&](const Access& one) { return one.at == *places.rbegin(); });
      const int64_t place = last.offset - first.offset;
      const auto width = static_cast<int64_t>(window.size());
      const ir::BufferRef registers = add_registers(&kernel_, "beside", first.buffer->type.dtype, width);
      for (int64_t i = 0; i < width; ++i)
        made[accesses[window[static_cast<size_t>(i)]].at] = {registers, planted(Planted::kNeighbourSlot) ? 0 : i};
      LoopIntrinsic copy{LoopIntrinsic::Kind::kCopyVector, {}, nullptr};
      copy.operands = {{first.buffer, moved(last.index, -place), width, true}, {registers, int32(0), width, false}};
      copy.type = first.buffer->type.dtype;
      behind[last.at] = where(last.guard, {std::move(copy)});
    }
    if (made.empty()) return;
    LoopBlock out;
    for (size_t at = 0; at < body->size(); ++at) {
      LoopStmt& stmt = (*body)[at];
      const auto found = made.find(at);
      if (found == made.end()) {
        out.push_back(std::move(stmt));
        continue;
      }
      ExprRef guard;
      const LoopStore store = *store_of(stmt, &guard);
      out.push_back(where(guard, {LoopStore{found->second.first, int32(found->second.second), store.value}}));
      if (const auto late = behind.find(at); late != behind.end()) out.push_back(std::move(late->second));
    }
    *body = std::move(out);
  }

  LoopKernel& kernel_;
  Ranges ranges_;
  std::map<const ir::Buffer*, int64_t> aligned_;
  ir::PolyContext polys_;
  std::vector<Group> groups_;  // of the block's accesses
};

}  // namespace

void neighbour_accesses(LoopKernel* kernel, const std::map<const ir::Buffer*, int64_t>& aligned) {
  Joiner(kernel, aligned).block(&kernel->body);
}

}  // namespace kachel::lowering
