// Integer expressions as polynomials, so that shapes and indices that are written differently compare equal.
#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/kernel.h"

namespace kachel::ir {

// Sum of coefficient x product of atoms; an atom is a variable or an operation that is not + - *. The product is a
// sorted list of atom numbers, repeated for powers; the empty list is the constant term. No coefficient is 0.
struct Poly {
  std::map<std::vector<int>, int64_t> terms;
  bool operator==(const Poly&) const = default;

  bool is_constant() const { return terms.empty() || (terms.size() == 1 && terms.begin()->first.empty()); }
  int64_t constant_term() const {
    auto it = terms.find({});
    return it == terms.end() ? 0 : it->second;
  }
};

// Owns the atoms; polynomials of one context only may be compared. `let` names are seen through once define() was
// called for them. Anything too large (24 terms, degree 8, coefficients beyond int64) becomes an atom, which can only
// make equal expressions look different.
class PolyContext {
 public:
  Poly of(const ExprRef& expr);
  void define(const VarRef& let, const ExprRef& value);
  // From now on `dim` is read as `expr`, as `where dim == expr` promises.
  void equate(const VarRef& dim, const ExprRef& expr);

  static Poly constant(int64_t value);
  Poly add(const Poly& a, const Poly& b, int64_t scale = 1);  // a + scale * b
  Poly multiply(const Poly& a, const Poly& b);
  bool equal(const ExprRef& a, const ExprRef& b) { return of(a) == of(b); }

  // The variable an atom is; null for other atoms.
  const Var* variable(int atom) const { return atoms_[static_cast<size_t>(atom)].var; }
  // Variables that occur anywhere in an atom or polynomial.
  bool mentions(int atom, const Var* var) const;
  bool mentions(const Poly& poly, const Var* var) const;

  // poly = coefficient * var + rest, both free of var. False if it is not of that form.
  bool linear(const Poly& poly, const Var* var, Poly& coefficient, Poly& rest);

 private:
  struct Atom {
    const Var* var = nullptr;
    std::unordered_set<const Var*> mentions;
  };
  Poly atom(const std::string& key, Atom atom);
  Poly opaque(const Expr& expr);
  Poly opaque(const Expr& expr, const std::vector<Poly>& args);  // which it has
  Poly variable_poly(const VarRef& var);
  std::string key(const Poly& poly) const;
  void collect(const Poly& poly, std::unordered_set<const Var*>& out) const;

  std::vector<Atom> atoms_;
  std::unordered_map<std::string, int> numbers_;
  std::unordered_map<const Var*, Poly> defined_;
};

}  // namespace kachel::ir
