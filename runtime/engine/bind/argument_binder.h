// Checks the arguments of a launch against the kernel's signature and binds what they determine: types to type symbols,
// shapes to dimensions, scalars to slots, and the facts that hold. Allocates only to word a failure; every message says
// which parameter, what was expected and how to mend it.
#pragma once
#include <span>

#include "runtime/engine/bind/arguments.h"
#include "runtime/engine/bind/kernel_model.h"

namespace kachel::runtime {

inline constexpr int64_t kMaxTensorBytes = int64_t{1} << 62;  // from the first to the last

struct BoundTensor {
  char* data;  // byte_offset added
  ir::DType dtype;
  int64_t shape[kMaxRank];    // logical: of 4-bit types in elements, whatever the container
  int64_t strides[kMaxRank];  // in elements, >= 0
  int64_t elements;           // product of the shape
  int64_t bytes;              // from data to the end of the last element
};

// On the stack of every launch: left uninitialised but for what bind_arguments() fills in.
struct BoundArguments {
  static constexpr uint8_t kNoDim = kMaxDims;

  DeviceRef device;              // of the tensors; {0, 0} where the kernel has none
  uint64_t types;                // of the type symbols, four bits each
  uint64_t facts;                // bit i: KernelModel::facts[i] holds
  int64_t dims[kMaxDims + 1];    // the last one takes what no dimension stands for
  uint64_t scalars[kMaxParams];  // by parameter
  BoundTensor tensors[kMaxParams];

  ir::DType type_of(int symbol) const { return static_cast<ir::DType>(types >> (4 * symbol) & 15); }
  HostInputs inputs(const int64_t* tunables = nullptr) const { return {dims, scalars, tunables}; }
};
static_assert(ir::kDTypeCount <= 16 && kMaxTypes * 4 <= 64);

// Any arguments, with the reason where they are refused.
Status bind_completely(const KernelModel& model, std::span<const Arg> args, BoundArguments& out);

// What launches nearly always have: valid arguments, non-empty tensors of whole bytes, outputs whose bytes lie apart
// from all others and whose strides descend. True: `out` is as bind_completely() makes it. False: that one decides.
bool bind_quickly(const KernelModel& model, std::span<const Arg> args, BoundArguments& out);

inline Status bind_arguments(const KernelModel& model, std::span<const Arg> args, BoundArguments& out) {
  if (bind_quickly(model, args, out)) [[likely]]
    return {};
  return bind_completely(model, args, out);
}

// What the signature demands of the scalars of a bound launch, which are new each time; everything else has been
// checked. kInvalid where it does not hold.
Status admit_scalars(const KernelModel& model, const HostInputs& inputs);

// The interpreter's arguments are not launched: what memory they overlap does not matter, nor which device they name.
Status bind_host_arguments(const KernelModel& model, std::span<const Arg> args, BoundArguments& out);

}  // namespace kachel::runtime
