#include "lowering/passes/product_forms.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "ir/expansion.h"
#include "ir/query.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/passes/simplify.h"

namespace kachel::lowering {

using ir::ExprRef;

namespace {

// Whether a part can run an iteration later than the others: it uses no names of theirs, which would be another
// iteration's by then, and loads nothing.
bool stands_alone(const LoopBlock& part, std::initializer_list<const LoopBlock*> others) {
  std::set<const ir::Var*> made;
  for (const LoopBlock* other : others)
    for (const LoopStmt& stmt : *other)
      if (const auto* let = std::get_if<LoopLet>(&stmt.node)) made.insert(let->var.get());
  bool alone = true;
  for (const LoopStmt& stmt : part)
    for_each_expr(stmt, [&](const ExprRef& expr) {
      ir::visit(expr, [&](const ExprRef& node) {
        if (node->kind == ir::ExprKind::kVar) alone &= !made.count(node->var.get());
        alone &= node->kind != ir::ExprKind::kLoad;
      });
    });
  return alone;
}

// Whether all that is stored to the registers is f32 that is rounded there.
bool rounded_from_f32(const LoopBlock& work, const ir::BufferRef& registers) {
  bool rounded = ir::bits(registers->type.dtype) == 16 && ir::is_float(registers->type.dtype);
  for_each_statement(work, [&](const LoopStmt& stmt) {
    const auto* store = std::get_if<LoopStore>(&stmt.node);
    const auto* intrinsic = std::get_if<LoopIntrinsic>(&stmt.node);
    if (store && store->buffer == registers) rounded &= store->value->type == ir::DType::F32;
    if (intrinsic && intrinsic->operands.size() && intrinsic->operands[0].buffer == registers)
      rounded &= intrinsic->kind == LoopIntrinsic::Kind::kConvertPair;
  });
  return rounded;
}

}  // namespace

bool may_stand_with_products(const LoopStmt& stmt) {
  return group_mma(stmt) || is_inert(stmt);
}

size_t first_product(const LoopBlock& body) {
  size_t first = body.size();
  while (first > 0 && may_stand_with_products(body[first - 1])) --first;
  return first;
}

bool only_products(const LoopBlock& body) {
  bool products = false;
  for (const LoopStmt& stmt : body) {
    const LoopIntrinsic* mma = group_mma(stmt);
    if (!mma && !is_inert(stmt)) return false;
    if (mma && mma->operands[1].buffer->scope == ir::Scope::kRegister) return false;
    products |= mma != nullptr;
  }
  return products;
}

std::optional<Skew> skewed(const LoopPipeline& node) {
  if (!node.may_skew) return std::nullopt;
  const LoopBlock& body = node.consume;
  size_t first = 0, last = body.size();
  while (first < body.size() && may_stand_with_products(body[first])) ++first;
  while (last > first && may_stand_with_products(body[last - 1])) --last;
  // Names in front of the second products may be of the work.
  Skew skew{{body.begin(), body.begin() + static_cast<std::ptrdiff_t>(first)},
            {body.begin() + static_cast<std::ptrdiff_t>(first), body.begin() + static_cast<std::ptrdiff_t>(last)},
            {body.begin() + static_cast<std::ptrdiff_t>(last), body.end()}};
  if (skew.work.empty() || issues(skew.work) || !issues(skew.first) || !issues(skew.second)) return std::nullopt;
  std::set<const ir::Buffer*> stages, sums;
  for (const ir::BufferRef& buffer : node.buffers) stages.insert(buffer.get());
  auto collect = [&](const LoopBlock& part, bool second) {
    for (const LoopStmt& stmt : part) {
      const LoopIntrinsic* mma = group_mma(stmt);
      if (!mma) continue;
      // The first products may not need what the second make, nor write what those read.
      if (second && (sums.count(mma->operands[0].buffer.get()) || sums.count(mma->operands[1].buffer.get())))
        return false;
      if (!second) sums.insert(mma->operands[0].buffer.get());
      for (size_t i : {1, 2}) {
        const ir::Buffer* operand = mma->operands[i].buffer.get();
        if (operand->scope == ir::Scope::kRegister) {
          if (!second) return false;
        } else if (second && !stages.count(operand)) {
          return false;
        }
      }
    }
    return true;
  };
  if (!collect(skew.first, false) || !collect(skew.second, true)) return std::nullopt;
  if (!stands_alone(skew.second, {&skew.first, &skew.work}) || node.depth < 2) return std::nullopt;
  return skew;
}

bool makes_operands(const LoopPipeline& node) {
  const LoopBlock& body = node.consume;
  if (node.alternating.empty() || node.depth < 3) return false;
  const size_t first = first_product(body);
  std::set<const ir::Buffer*> touched, sums, left;
  for (size_t i = 0; i < first; ++i) {
    if (issues({body[i]})) return false;
    for_each_statement(body[i], [&](const LoopStmt& stmt) {
      for_each_access(stmt, [&](const ir::BufferRef& buffer, bool) { touched.insert(buffer.get()); });
    });
  }
  bool made = false;  // an operand
  for (size_t i = first; i < body.size(); ++i)
    if (const LoopIntrinsic* mma = group_mma(body[i])) {
      sums.insert(mma->operands[0].buffer.get());
      if (mma->operands[1].buffer->scope == ir::Scope::kRegister) return false;
      for (const ir::BufferRef& half : node.alternating)
        made |= half == mma->operands[1].buffer || half == mma->operands[2].buffer;
    }
  return made && std::none_of(sums.begin(), sums.end(), [&](const ir::Buffer* sum) { return touched.count(sum) != 0; });
}

std::optional<Prepared> prepared(const LoopPipeline& node) {
  const LoopBlock& body = node.consume;
  const size_t first = first_product(body);
  const auto middle = body.begin() + static_cast<std::ptrdiff_t>(first);
  Prepared form{{body.begin(), middle}, {middle, body.end()}, {}};
  if (node.depth < 2 || form.work.empty() || issues(form.work) || !issues(form.products) ||
      !stands_alone(form.products, {&form.work}))
    return std::nullopt;
  std::set<const ir::Buffer*> stages, sums, touched, operands;
  for (const ir::BufferRef& buffer : node.buffers) stages.insert(buffer.get());
  std::set<const ir::Buffer*> made, read;
  bool apart = true;
  for_each_statement(form.work, [&](const LoopStmt& stmt) {
    for_each_access(stmt, [&](const ir::BufferRef& buffer, bool write) {
      touched.insert(buffer.get());
      (write ? made : read).insert(buffer.get());
      apart &= !write || buffer->scope == ir::Scope::kRegister;
    });
  });
  for (const LoopStmt& stmt : form.products) {
    const LoopIntrinsic* mma = group_mma(stmt);
    if (!mma) continue;
    sums.insert(mma->operands[0].buffer.get());
    for (size_t i : {1, 2}) {
      const ir::BufferRef& operand = mma->operands[i].buffer;
      const bool in_registers = operand->scope == ir::Scope::kRegister;
      apart &= in_registers || stages.count(operand.get());
      if (in_registers && operands.insert(operand.get()).second && made.count(operand.get()))
        form.operands.push_back(operand);
    }
  }
  for (const ir::Buffer* sum : sums) apart &= !touched.count(sum) && !operands.count(sum);
  for (const ir::BufferRef& operand : form.operands)
    apart &= !read.count(operand.get()) && rounded_from_f32(form.work, operand);
  if (!apart) return std::nullopt;
  return form;
}

std::optional<Run> single_run(const LoopPipeline& node) {
  std::set<const ir::Buffer*> stages;
  for (const ir::BufferRef& buffer : node.buffers) stages.insert(buffer.get());
  Run form;
  bool fits = node.depth >= 2;
  auto product = [&](const LoopIntrinsic& mma) {
    const bool begins = form.products.empty();
    if (begins) form.sums = mma.operands[0].buffer;
    fits &= mma.operands[0].buffer == form.sums && mma.accumulate != begins && form.work.empty();
    for (size_t i : {1, 2}) fits &= stages.count(mma.operands[i].buffer.get()) != 0;
  };
  auto in_registers = [&](const LoopStmt& stmt) {
    fits &= !std::holds_alternative<LoopBarrier>(stmt.node) && !std::holds_alternative<LoopPipeline>(stmt.node) &&
            !group_mma(stmt);
    for_each_access(stmt, [&](const ir::BufferRef& buffer, bool write) {
      const bool input = buffer->scope == ir::Scope::kGlobal && buffer->direction == ir::Direction::kIn;
      fits &= input || (buffer->scope == ir::Scope::kRegister && !(write && buffer == form.sums));
    });
  };
  constexpr uint64_t kMostInlined = 64;  // nodes of a name, written out where it is used
  ir::Expansion expansion;
  std::unordered_map<const ir::Var*, ExprRef> names;
  for (const LoopStmt& stmt : node.consume) {
    if (const auto* let = std::get_if<LoopLet>(&stmt.node)) {
      expansion.define(let->var.get(), let->value);
      if (loads(let->value) || expansion.size(let->value) > kMostInlined) return std::nullopt;
      names[let->var.get()] = ir::rewrite(let->value, [&](const ExprRef& part) {
        const auto found = part->kind == ir::ExprKind::kVar ? names.find(part->var.get()) : names.end();
        return found == names.end() ? part : found->second;
      });
    } else if (const LoopIntrinsic* mma = group_mma(stmt)) {
      product(*mma);
      form.products.push_back(stmt);
    } else if (!is_inert(stmt)) {
      fits &= !form.products.empty();
      for_each_statement(stmt, in_registers);
      form.work.push_back(stmt);
    }
  }
  if (!fits || form.work.empty()) return std::nullopt;
  form.products = substituted(form.products, names);
  form.work = substituted(form.work, names);
  return form;
}

}  // namespace kachel::lowering
