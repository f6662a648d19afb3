// Expressions, slices and statements as text; print.cc writes what surrounds them. Private: use print.h.
#pragma once
#include <string>
#include <unordered_map>

#include "ir/kernel.h"

namespace kachel::ir {

class Names {
 public:
  virtual ~Names() = default;
  virtual std::string of(const Var& var) { return var.name; }
  virtual std::string of(const Buffer& buffer) { return buffer.name; }
  virtual std::string of(const TypeSymbol& symbol) { return symbol.name; }
};

// Names by class and order of first use; whatever must keep its declared position is named before anything is written.
class Positions : public Names {
 public:
  std::string of(const Var& var) override;
  std::string of(const Buffer& buffer) override;
  std::string of(const TypeSymbol& symbol) override;

 private:
  std::string name(const void* what, const char* prefix);

  std::unordered_map<const void*, std::string> names_;
  std::unordered_map<std::string, int> counts_;
};

class Writer {
 public:
  explicit Writer(Names& names) : names_(names) {}

  // Parenthesised if it binds no tighter than `outer`.
  void expr(const ExprRef& expr, int outer = -1);
  void tile(const TileRef& tile);

  std::string text;

 protected:
  void list(const char* open, const std::vector<ExprRef>& exprs, const char* close);
  void iters(const std::vector<IterVar>& iters);
  void scanned(const Expr& scan);
  void type(const TypeRef& type);
  void block(const Block& block, int depth);
  void braces(const Block& body, int depth);

  Names& names_;

 private:
  void apply(const Expr& expr, int outer);
  void axis(const AxisSpec& axis);
  void atomic(AtomicOp op);
  void statement(const DeclStmt& stmt, int depth);
  void statement(const LetStmt& stmt, int depth);
  void statement(const CopyStmt& stmt, int depth);
  void statement(const FillStmt& stmt, int depth);
  void statement(const GemmStmt& stmt, int depth);
  void statement(const ParallelStmt& stmt, int depth);
  void statement(const AssignStmt& stmt, int depth);
  void statement(const ForStmt& stmt, int depth);
  void statement(const IfStmt& stmt, int depth);
};

}  // namespace kachel::ir
