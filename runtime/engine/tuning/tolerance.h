// How far what a candidate computes may be from the reference.
#pragma once
#include <cstdint>

#include "runtime/engine/bind/argument_binder.h"
#include "runtime/engine/bind/kernel_model.h"

namespace kachel::runtime {

// How far two correct results of one program may be apart. Both compute the same expressions; what differs between
// configurations is the order of sums and, where an algorithm rescales as it goes, the point at which intermediate
// values are rounded to a narrower type.
struct Tolerance {
  double relative = 0;  // of the larger of the two values
  double absolute = 0;  // of the largest finite magnitude in the reference
  // Integers: how many of all elements may differ by one, and by more.
  double neighbours = 0;
  double others = 0;
};

// What a program rounds on its way.
struct Roundings {
  // The narrowest float type that some computed value is rounded to: the element types of outputs, and of tiles that
  // are assigned or filled by conversion. Tiles that only hold copies of inputs of their own type do not count.
  ir::DType narrowest = ir::DType::F32;
  // Whether floats are computed at all, and not only moved, compared or rounded to integers.
  bool computes = false;
  bool products = false;  // of matrices of floats
  // Of programs with products, the largest extent of a tensor: none adds up more terms along one axis.
  int64_t longest = 0;
};
Roundings roundings_of(const KernelModel& model, uint64_t types);
int64_t longest_extent(const KernelModel& model, const BoundArguments& arguments);

// For outputs of type `output` of a program with such roundings.
Tolerance tolerance_for(ir::DType output, const Roundings& roundings);

}  // namespace kachel::runtime
