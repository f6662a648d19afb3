// A variable is determined if its value follows from the components. Repeatedly: a component in which the variables
// not yet determined occur linearly, v1*c1 + v2*c2 + ... + rest, determines all of them if its coefficients form a
// mixed radix: in some order |c1| >= 1 and |c(n+1)| >= |cn| * extent(vn). One variable with coefficient +-1 is the
// common case; `i*BN + j` with j < BN is the other. Variables of extent 1 are determined from the start.
//
// Bounds on symbolic coefficients use that tunables are at least their smallest listed value, or 1. A dimension counts
// as 0 or more, which is why `i*N` alone determines nothing while `i*N + j` with j < N does: for N = 0 no iteration
// runs.
#include "ir/injective.h"

#include <algorithm>

namespace kachel::ir {
namespace {

constexpr size_t kMaxRadix = 5;

class Solver {
 public:
  Solver(PolyContext& polys, const IterationSpace& space) : polys_(polys), space_(space) {}

  bool run(const std::vector<Poly>& components, std::vector<const Var*>& doubtful) {
    for (const IterVar& iter : space_.iters)
      if (polys_.of(iter.extent) != PolyContext::constant(1)) open_.push_back(&iter);
    for (bool progress = true; progress && !open_.empty();) {
      progress = false;
      for (const Poly& component : components) progress |= determine(component);
    }
    for (const IterVar* iter : open_) doubtful.push_back(iter->var.get());
    return open_.empty();
  }

 private:
  struct Digit {
    const IterVar* iter;
    Poly coefficient;
  };

  // Takes the open variables of `component` off the list if it determines them.
  bool determine(const Poly& component) {
    std::vector<Digit> digits;
    for (const IterVar* iter : open_)
      if (polys_.mentions(component, iter->var.get())) digits.push_back({iter, {}});
    if (digits.empty() || digits.size() > kMaxRadix) return false;
    Poly rest = component;
    for (Digit& digit : digits) {
      Poly next;
      if (!polys_.linear(rest, digit.iter->var.get(), digit.coefficient, next)) return false;
      for (const Digit& other : digits)
        if (polys_.mentions(digit.coefficient, other.iter->var.get())) return false;
      rest = std::move(next);
    }
    if (!radix(digits, PolyContext::constant(1))) return false;
    for (const Digit& digit : digits) open_.erase(std::find(open_.begin(), open_.end(), digit.iter));
    return true;
  }

  bool radix(const std::vector<Digit>& digits, const Poly& base) {
    if (digits.empty()) return true;
    for (size_t i = 0; i < digits.size(); ++i) {
      Poly size = digits[i].coefficient;
      if (!at_least(size, base)) {
        size = polys_.add({}, size, -1);
        if (!at_least(size, base)) continue;
      }
      std::vector<Digit> others = digits;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      if (radix(others, polys_.multiply(size, polys_.of(digits[i].iter->extent)))) return true;
    }
    return false;
  }

  // a >= b for all values of the atoms, and a >= 1 unless a and b are equal.
  bool at_least(const Poly& a, const Poly& b) {
    if (a == b) return true;
    Poly difference = polys_.add(a, b, -1);
    int64_t least = 0;
    for (const auto& [product, coefficient] : difference.terms) {
      int64_t value = coefficient;
      for (int atom : product) {
        const Var* var = polys_.variable(atom);
        if (coefficient < 0 || !var) return false;
        auto it = space_.least.find(var);
        if (it == space_.least.end() && var->kind != VarKind::kDim) return false;
        if (__builtin_mul_overflow(value, it == space_.least.end() ? 0 : it->second, &value)) return false;
      }
      if (__builtin_add_overflow(least, value, &least)) return false;
    }
    return least >= 0 && b != Poly{};
  }

  PolyContext& polys_;
  const IterationSpace& space_;
  std::vector<const IterVar*> open_;
};

}  // namespace

bool injective(PolyContext& polys, const IterationSpace& space, const std::vector<Poly>& components,
               std::vector<const Var*>& doubtful) {
  return Solver(polys, space).run(components, doubtful);
}

}  // namespace kachel::ir
