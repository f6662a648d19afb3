// Tensors whose last two axes a kernel counts as one: wherever it names an element, the last two indices are quotient
// and remainder of a number, as of an image's pixels that are counted through,
//
//   Y[n, c, p / W, p % W]   X[m / (H * W), m / W % H, m % W, ...]        of shapes [.., H, W]
//
// Where those axes lie as one in memory, too, p is the element's place along that one, and m % (H * W) is.
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "ir/kernel.h"

namespace kachel::ir {

class OneAxis {
 public:
  // REQUIRES: verify() has passed the kernel, which outlives this.
  explicit OneAxis(const Kernel& kernel);

  struct Place {
    ExprRef number;    // which is counted
    bool modulo_both;  // of which the remainder by both extents is the place
  };
  // Of the last two of an element's indices; none if they are of another form.
  std::optional<Place> place(const Buffer& tensor, const std::vector<ExprRef>& indices) const;
  // Whether regions name the tensor's elements, all of them so, and nothing else does anything with it.
  bool counts(const Buffer& tensor) const;

 private:
  ExprRef resolved(ExprRef expr) const;
  ExprRef index(const ExprRef& expr) const;
  bool same_value(const ExprRef& a, const ExprRef& b, int* budget) const;
  bool is_by(const ExprRef& expr, Op op, const ExprRef& divisor) const;

  const Kernel& kernel_;
  std::map<const Var*, ExprRef> names_;
};

}  // namespace kachel::ir
