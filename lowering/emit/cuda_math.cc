#include "lowering/emit/emit.h"

namespace kachel::lowering {

const char* const kCudaMath = R"cuda(
KACHEL_DEVICE float kachel_rcp_ftz(float a) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a)); return y; }
)cuda"
#define KACHEL_CUDA_MATH(...) #__VA_ARGS__ "\n"
#include "lowering/emit/cuda_math.inc"
    ;

}  // namespace kachel::lowering
