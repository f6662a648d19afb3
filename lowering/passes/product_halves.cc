#include "lowering/passes/product_halves.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lowering/loop_ir/loop_build.h"
#include "lowering/passes/product_forms.h"

namespace kachel::lowering {

using ir::ExprRef;
using Kind = LoopIntrinsic::Kind;
using Buffers = std::set<const ir::Buffer*>;

namespace {

// Whether it reads integers of stages, as where those are weights of few bits.
bool unpacks(const LoopBlock& work, const Buffers& stages) {
  bool found = false;
  for_each_statement(work, [&](const LoopStmt& stmt) {
    const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node);
    found |= intrinsic && intrinsic->kind == Kind::kUnpack;
    for_each_access(stmt, [&](const ir::BufferRef& buffer, bool) {
      found |= stages.count(buffer.get()) != 0 && ir::is_integer(buffer->type.dtype);
    });
  });
  return found;
}

int64_t elements_of(const ir::BufferRef& registers) {
  return registers->shape[0]->int_value;
}

enum class Half { kFirst, kSecond };

// Whether all that the statements write of `left` is in that half of it.
bool writes_within(const LoopBlock& body, Half half, const Buffers& left, Ranges ranges) {
  const auto is_within = [&](const ir::BufferRef& buffer, const ExprRef& index, int64_t elements) {
    if (!left.count(buffer.get())) return true;
    const Interval at = ranges.of(index);
    const int64_t middle = elements_of(buffer) / 2;
    return half == Half::kFirst ? at.hi <= middle - elements : at.lo >= middle;
  };
  return std::all_of(body.begin(), body.end(), [&](const LoopStmt& stmt) {
    const auto inside = [&](const LoopBlock& inner) { return writes_within(inner, half, left, ranges); };
    if (const auto* loop = std::get_if<LoopFor>(&stmt.node)) {
      if (loop->begin->kind == ir::ExprKind::kInt && loop->end->kind == ir::ExprKind::kInt)
        ranges.set(loop->var, {loop->begin->int_value, loop->end->int_value - 1});
      return inside(loop->body);
    }
    if (const auto* threads = std::get_if<LoopThreads>(&stmt.node)) return inside(threads->body);
    if (const auto* branch = std::get_if<LoopIf>(&stmt.node))
      return inside(branch->then_body) && inside(branch->else_body);
    if (const auto* store = std::get_if<LoopStore>(&stmt.node)) return is_within(store->buffer, store->index, 1);
    const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node);
    return !intrinsic || std::all_of(intrinsic->operands.begin(), intrinsic->operands.end(), [&](const auto& operand) {
      return !operand.write || is_within(operand.buffer, operand.index, operand.elements);
    });
  });
}

// Whether the statements of one block touch what those of another one write.
bool touches(const LoopBlock& block, const LoopBlock& writers) {
  Buffers written;
  for_each_statement(writers, [&](const LoopStmt& stmt) {
    for_each_access(stmt, [&](const ir::BufferRef& buffer, bool write) {
      if (write) written.insert(buffer.get());
    });
  });
  bool found = false;
  for_each_statement(block, [&](const LoopStmt& stmt) {
    for_each_access(stmt, [&](const ir::BufferRef& buffer, bool) { found |= written.count(buffer.get()) != 0; });
  });
  return found;
}

// A thread loop that ends in one that is written out: the halves of that one.
std::optional<std::pair<LoopStmt, LoopStmt>> cut(const LoopStmt& stmt) {
  const auto* threads = std::get_if<LoopThreads>(&stmt.node);
  const auto* loop = threads && !threads->body.empty() ? std::get_if<LoopFor>(&threads->body.back().node) : nullptr;
  if (!loop || !loop->unroll || loop->begin->kind != ir::ExprKind::kInt || loop->end->kind != ir::ExprKind::kInt)
    return std::nullopt;
  const int64_t begin = loop->begin->int_value, count = loop->end->int_value - begin;
  if (count < 2 || count % 2) return std::nullopt;
  for (size_t i = 0; i + 1 < threads->body.size(); ++i)
    if (!is_inert(threads->body[i])) return std::nullopt;
  const ExprRef middle = ir::make_int(begin + count / 2, loop->begin->type);
  std::pair<LoopStmt, LoopStmt> halves{stmt, stmt};
  std::get<LoopFor>(std::get<LoopThreads>(halves.first.node).body.back().node).end = middle;
  std::get<LoopFor>(std::get<LoopThreads>(halves.second.node).body.back().node).begin = middle;
  return halves;
}

}  // namespace

std::optional<Halves> product_halves(const LoopPipeline& node, const Ranges& ranges) {
  constexpr int64_t kLeastStages = 3;  // one is released half an iteration late
  const LoopBlock& body = node.consume;
  const size_t last = first_product(body);
  const LoopBlock work(body.begin(), body.begin() + static_cast<std::ptrdiff_t>(last));
  Halves form;
  Buffers stages, left, touched, sums;
  for (const ir::BufferRef& buffer : node.buffers) stages.insert(buffer.get());
  if (node.depth < kLeastStages || issues(work) || !unpacks(work, stages)) return std::nullopt;
  for (size_t i = last; i < body.size(); ++i) {
    const LoopIntrinsic* mma = group_mma(body[i]);
    if (!mma) {
      form.behind.push_back(body[i]);
      continue;
    }
    const LoopIntrinsic::Operand& operand = mma->operands[1];
    const bool in_registers = operand.buffer->scope == ir::Scope::kRegister;
    if (!in_registers || operand.index->kind != ir::ExprKind::kInt || !stages.count(mma->operands[2].buffer.get()))
      return std::nullopt;
    if (left.insert(operand.buffer.get()).second) form.left.push_back(operand.buffer);
    sums.insert(mma->operands[0].buffer.get());
    const bool first = operand.index->int_value + operand.elements <= elements_of(operand.buffer) / 2;
    if (!first && operand.index->int_value < elements_of(operand.buffer) / 2) return std::nullopt;
    (first ? form.first_products : form.second_products).push_back(body[i]);
  }
  if (form.first_products.empty() || form.second_products.empty()) return std::nullopt;

  size_t unpacked = 0;  // statements in halves
  LoopBlock behind;
  for (const LoopStmt& stmt : work) {
    bool makes = false, reads = false, apart = true;
    for_each_statement(stmt, [&](const LoopStmt& inner) {
      for_each_access(inner, [&](const ir::BufferRef& buffer, bool write) {
        makes |= write && left.count(buffer.get());
        reads |= !write && left.count(buffer.get());
        apart &= !write || buffer->scope == ir::Scope::kRegister;
        touched.insert(buffer.get());
      });
    });
    if (reads || !apart) return std::nullopt;
    if (!makes) {
      (unpacked ? behind : form.before).push_back(stmt);
      continue;
    }
    auto halves = cut(stmt);
    // What stands between two of them comes in front of both, if neither touches what the other writes.
    if (!halves || touches(form.first, behind) || touches(behind, form.first)) return std::nullopt;
    form.before.insert(form.before.end(), behind.begin(), behind.end());
    behind.clear();
    if (!writes_within({halves->first}, Half::kFirst, left, ranges) ||
        !writes_within({halves->second}, Half::kSecond, left, ranges))
      return std::nullopt;
    form.first.push_back(std::move(halves->first));
    form.second.push_back(std::move(halves->second));
    ++unpacked;
  }
  if (unpacked != form.left.size()) return std::nullopt;
  if (std::any_of(sums.begin(), sums.end(), [&](const ir::Buffer* sum) { return touched.count(sum) != 0; }))
    return std::nullopt;
  behind.insert(behind.end(), form.behind.begin(), form.behind.end());
  form.behind = std::move(behind);
  return form;
}

}  // namespace kachel::lowering
