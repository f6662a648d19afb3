#include "ir/writer.h"

namespace kachel::ir {

void Writer::block(const Block& block, int depth) {
  for (const Stmt& stmt : block) {
    text.append(2 * depth, ' ');
    std::visit([&](const auto& node) { statement(node, depth); }, stmt.node);
    text += "\n";
  }
}

void Writer::braces(const Block& body, int depth) {
  text += " {\n";
  block(body, depth + 1);
  text.append(2 * depth, ' ');
  text += "}";
}

void Writer::statement(const DeclStmt& stmt, int) {
  text += (stmt.buffer->scope == Scope::kFragment ? "fragment " : "shared ") + names_.of(*stmt.buffer) + ": ";
  type(stmt.buffer->type);
  list("[", stmt.buffer->shape, "]");
  if (stmt.init) {
    text += " = ";
    expr(stmt.init);
  }
}
void Writer::statement(const LetStmt& stmt, int) {
  text += "let " + names_.of(*stmt.var) + " = ";
  expr(stmt.value);
}
void Writer::statement(const CopyStmt& stmt, int) {
  atomic(stmt.atomic);
  tile(stmt.dst);
  text += stmt.atomic == AtomicOp::kAdd ? " += " : " = ";
  tile(stmt.src);
}
void Writer::statement(const FillStmt& stmt, int) {
  tile(stmt.dst);
  text += " = ";
  expr(stmt.value);
}
void Writer::statement(const GemmStmt& stmt, int) {
  tile(stmt.c);
  text += stmt.accumulate ? " += " : " = ";
  tile(stmt.a);
  text += stmt.transpose_a ? "^T @ " : " @ ";
  tile(stmt.b);
  if (stmt.transpose_b) text += "^T";
  if (stmt.precision == Precision::kTf32) text += " precision tf32";
  if (stmt.precision == Precision::kFast) text += " precision fast";
}
void Writer::statement(const ParallelStmt& stmt, int depth) {
  text += "parallel ";
  iters(stmt.iters);
  braces(stmt.body, depth);
}
void Writer::statement(const AssignStmt& stmt, int) {
  static constexpr const char* kOps[] = {" = ", " += ", " -= ", " *= ", " /= "};
  atomic(stmt.atomic);
  text += names_.of(*stmt.buffer);
  list("[", stmt.indices, "]");
  text += kOps[static_cast<int>(stmt.op)];
  expr(stmt.value);
}
void Writer::statement(const ForStmt& stmt, int depth) {
  text += (stmt.pipelined ? "pipelined " : "for ") + names_.of(*stmt.var);
  if (is_int(stmt.begin, 0)) {
    text += " < ";
  } else {
    text += " in ";
    expr(stmt.begin);
    text += " .. ";
  }
  expr(stmt.end);
  if (stmt.stages) {
    text += ", ";
    expr(stmt.stages);
  }
  braces(stmt.body, depth);
}
void Writer::statement(const IfStmt& stmt, int depth) {
  text += "if ";
  expr(stmt.condition);
  braces(stmt.then_body, depth);
  if (stmt.else_body.empty()) return;
  text += " else";
  if (stmt.else_body.size() == 1) {
    if (const auto* chained = std::get_if<IfStmt>(&stmt.else_body[0].node)) {
      text += " ";
      statement(*chained, depth);
      return;
    }
  }
  braces(stmt.else_body, depth);
}

void Writer::atomic(AtomicOp op) {
  if (op == AtomicOp::kNone) return;
  text += op == AtomicOp::kAdd ? "atomic " : op == AtomicOp::kMax ? "atomic max " : "atomic min ";
}

}  // namespace kachel::ir
