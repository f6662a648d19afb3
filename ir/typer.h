// The expression half of typecheck.h. Private to the type checker.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>

#include "ir/typecheck.h"

namespace kachel::ir {

class Typer {
 public:
  // Borrows both.
  Typer(const TypeAssignment& types, std::vector<Diagnostic>& diagnostics) : types_(types), diagnostics_(diagnostics) {}

  DType resolve(const TypeRef& type) const;

  // Makes a new variable of a concrete type that stands for `var` from now on.
  VarRef declare(const VarRef& var, DType type);
  // The same for a buffer; its shape is typed.
  BufferRef declare(const BufferRef& buffer);
  // What stands for them; themselves if nothing does.
  VarRef find(const VarRef& var) const;
  BufferRef find(const BufferRef& buffer) const;

  // Every function returns a typed expression; after a mistake it is a placeholder that causes no further diagnostics.
  ExprRef type(const ExprRef& expr);
  ExprRef index(const ExprRef& expr);      // an integer, as I64
  ExprRef condition(const ExprRef& expr);  // as Bool; numbers mean != 0
  // What a store to `to` needs: the compute type of `to`, converted there from any other type.
  ExprRef stored(const ExprRef& expr, DType to);
  ExprRef stored_typed(const ExprRef& value, DType to);
  ExprRef arithmetic(Op op, ExprRef a, ExprRef b, Loc loc);  // of typed operands
  IterVar iteration(const IterVar& iter);                    // declares the variable
  std::vector<ExprRef> indices(const std::vector<ExprRef>& list);

  bool is_mistake(const ExprRef& expr) const { return expr == mistake_; }
  void allow_bucket(bool allowed) { bucket_allowed_ = allowed; }
  ExprRef report(Loc loc, std::string message, std::string mend);  // returns the placeholder

 private:
  ExprRef type_apply(const ExprRef& expr);
  ExprRef type_shift(const ExprRef& expr, std::vector<ExprRef> args);
  ExprRef type_float_function(const ExprRef& expr, std::vector<ExprRef> args);
  ExprRef type_reduce(const ExprRef& expr);
  std::optional<DType> unify(Op op, const ExprRef& a, const ExprRef& b, Loc loc);
  ExprRef to_condition(const ExprRef& typed);
  ExprRef coerce(const ExprRef& typed, DType type);  // to a type that unify() chose
  ExprRef apply(const ExprRef& like, std::vector<ExprRef> args, DType type);

  const TypeAssignment& types_;
  std::vector<Diagnostic>& diagnostics_;
  std::unordered_map<const Var*, VarRef> vars_;
  std::unordered_map<const Buffer*, BufferRef> buffers_;
  const ExprRef mistake_ = make_int(0);
  bool bucket_allowed_ = false;
};

}  // namespace kachel::ir
