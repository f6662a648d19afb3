// Three groups: the memory functions that loops turn into, the mathematics that LLVM's intrinsics become where the
// processor has no instruction, and the compiler's own helpers for narrow floats and 128-bit integers.
#include "runtime/cpu/externals.h"

#include <math.h>  // with the GNU extensions, which g++ and clang++ enable on Linux
#include <string.h>

#include <algorithm>
#include <vector>

#include "runtime/cpu/half_conversions.h"

// libgcc's; the names are the ABI's.
extern "C" {
__int128 __divti3(__int128 a, __int128 b);
__int128 __modti3(__int128 a, __int128 b);
unsigned __int128 __udivti3(unsigned __int128 a, unsigned __int128 b);
unsigned __int128 __umodti3(unsigned __int128 a, unsigned __int128 b);
}

namespace kachel::runtime {
namespace {

template <class R, class... A>
const void* address_of(R (*function)(A...)) {
  return reinterpret_cast<const void*>(function);
}
using Float1 = float (*)(float);
using Float2 = float (*)(float, float);
using Float3 = float (*)(float, float, float);
using Double1 = double (*)(double);
using Double2 = double (*)(double, double);
using Double3 = double (*)(double, double, double);

// Both precisions of a function of <cmath>; the casts choose among C++'s overloads.
#define KACHEL_MATH(arity, name)                                    \
  {#name "f", address_of(static_cast<Float##arity>(&::name##f))}, { \
    #name, address_of(static_cast<Double##arity>(&::name))          \
  }

std::vector<External> make_list() {
  std::vector<External> list = {
      {"memcpy", address_of(&::memcpy)},
      {"memmove", address_of(&::memmove)},
      {"memset", address_of(&::memset)},
      KACHEL_MATH(1, acos),
      KACHEL_MATH(1, asin),
      KACHEL_MATH(1, atan),
      KACHEL_MATH(1, cbrt),
      KACHEL_MATH(1, ceil),
      KACHEL_MATH(1, cos),
      KACHEL_MATH(1, cosh),
      KACHEL_MATH(1, erf),
      KACHEL_MATH(1, erfc),
      KACHEL_MATH(1, exp),
      KACHEL_MATH(1, exp10),
      KACHEL_MATH(1, exp2),
      KACHEL_MATH(1, expm1),
      KACHEL_MATH(1, floor),
      KACHEL_MATH(1, log),
      KACHEL_MATH(1, log10),
      KACHEL_MATH(1, log1p),
      KACHEL_MATH(1, log2),
      KACHEL_MATH(1, nearbyint),
      KACHEL_MATH(1, rint),
      KACHEL_MATH(1, round),
      KACHEL_MATH(1, roundeven),
      KACHEL_MATH(1, sin),
      KACHEL_MATH(1, sinh),
      KACHEL_MATH(1, sqrt),
      KACHEL_MATH(1, tan),
      KACHEL_MATH(1, tanh),
      KACHEL_MATH(1, trunc),
      KACHEL_MATH(2, atan2),
      KACHEL_MATH(2, fmax),
      KACHEL_MATH(2, fmin),
      KACHEL_MATH(2, fmod),
      KACHEL_MATH(2, pow),
      KACHEL_MATH(3, fma),
      {"ldexpf", address_of(static_cast<float (*)(float, int)>(&::ldexpf))},
      {"ldexp", address_of(static_cast<double (*)(double, int)>(&::ldexp))},
      {"sincosf", address_of(&::sincosf)},
      {"sincos", address_of(&::sincos)},
      {"__extendhfsf2", address_of(&call_extend_half)},
      {"__truncsfhf2", address_of(&call_half_from_float)},
      {"__truncdfhf2", address_of(&call_half_from_double)},
      {"__truncsfbf2", address_of(&call_bfloat_from_float)},
      {"__truncdfbf2", address_of(&call_bfloat_from_double)},
      {"__divti3", address_of(&::__divti3)},
      {"__modti3", address_of(&::__modti3)},
      {"__udivti3", address_of(&::__udivti3)},
      {"__umodti3", address_of(&::__umodti3)},
  };
  std::sort(list.begin(), list.end(), [](const External& a, const External& b) { return a.name < b.name; });
  return list;
}

#undef KACHEL_MATH

}  // namespace

ExternalList all_externals() {
  static const std::vector<External> kList = make_list();
  return {kList.data(), kList.data() + kList.size()};
}

const void* find_external(std::string_view name) {
  ExternalList list = all_externals();
  const External* found = std::lower_bound(list.begin(), list.end(), name,
                                           [](const External& e, std::string_view n) { return e.name < n; });
  return found != list.end() && found->name == name ? found->address : nullptr;
}

}  // namespace kachel::runtime
