// Stands between the command and the library (ld --wrap): launches as asked, then spoils element [3, 5] of the last
// argument, a matrix of 16-bit floats in memory that the host may write.
#include <cstdint>

#include "kachel.h"

extern "C" {

kachel_status __real_kachel_launch(kachel_kernel* kernel, const kachel_arg* args, size_t count,
                                   const kachel_launch_options* options, void* stream, kachel_error** err);

kachel_status __wrap_kachel_launch(kachel_kernel* kernel, const kachel_arg* args, size_t count,
                                   const kachel_launch_options* options, void* stream, kachel_error** err) {
  const kachel_status status = __real_kachel_launch(kernel, args, count, options, stream, err);
  const kachel_tensor& out = *args[count - 1].u.tensor;
  constexpr uint16_t kLargestExponentBit = 0x4000;
  static_cast<uint16_t*>(out.data)[3 * out.strides[0] + 5 * out.strides[1]] ^= kLargestExponentBit;
  return status;
}

}  // extern "C"
