#include "tests/runtime/device_conformance.h"
#include "tests/runtime/fake_device.h"

namespace kachel::runtime {
namespace {

constexpr char kLlvmScale[] = R"(
define void @probe_scale(ptr %params, i64 %begin, i64 %end, i64 %blocks, ptr %arena) {
entry:
  %in = load ptr, ptr %params
  %out.at = getelementptr i8, ptr %params, i64 8
  %out = load ptr, ptr %out.at
  %count.at = getelementptr i8, ptr %params, i64 16
  %count = load i64, ptr %count.at
  %factor.at = getelementptr i8, ptr %params, i64 24
  %factor = load i32, ptr %factor.at
  %offset.at = getelementptr i8, ptr %params, i64 28
  %offset = load i32, ptr %offset.at
  br label %block
block:
  %b = phi i64 [ %begin, %entry ], [ %b.next, %block.end ]
  %more = icmp slt i64 %b, %end
  br i1 %more, label %element, label %done
element:
  %i = phi i64 [ %b, %block ], [ %i.next, %body ]
  %inside = icmp slt i64 %i, %count
  br i1 %inside, label %body, label %block.end
body:
  %in.at = getelementptr i32, ptr %in, i64 %i
  %value = load i32, ptr %in.at
  %scaled = mul i32 %value, %factor
  %shifted = add i32 %scaled, %offset
  %sum.at = getelementptr i32, ptr %out, i64 %i
  %before = load i32, ptr %sum.at
  %sum = add i32 %before, %shifted
  store i32 %sum, ptr %sum.at
  %i.next = add i64 %i, %blocks
  br label %element
block.end:
  %b.next = add i64 %b, 1
  br label %block
done:
  ret void
}
)";

constexpr char kLlvmArena[] = R"(
define void @probe_arena(ptr %params, i64 %begin, i64 %end, i64 %blocks, ptr %arena) {
entry:
  %out = load ptr, ptr %params
  %bytes.at = getelementptr i8, ptr %params, i64 8
  %bytes = load i64, ptr %bytes.at
  %address = ptrtoint ptr %arena to i64
  %low = and i64 %address, 63
  %aligned = icmp eq i64 %low, 0
  %penalty = select i1 %aligned, i32 0, i32 1000000
  br label %block
block:
  %b = phi i64 [ %begin, %entry ], [ %b.next, %store ]
  %more = icmp slt i64 %b, %end
  br i1 %more, label %fill, label %done
fill:
  %mark = trunc i64 %b to i8
  call void @llvm.memset.p0.i64(ptr %arena, i8 %mark, i64 %bytes, i1 true)
  br label %compare
compare:
  %i = phi i64 [ 0, %fill ], [ %i.next, %look ]
  %wrong = phi i32 [ %penalty, %fill ], [ %wrong.next, %look ]
  %inside = icmp slt i64 %i, %bytes
  br i1 %inside, label %look, label %store
look:
  %at = getelementptr i8, ptr %arena, i64 %i
  %seen = load volatile i8, ptr %at
  %differs = icmp ne i8 %seen, %mark
  %one = zext i1 %differs to i32
  %wrong.next = add i32 %wrong, %one
  %i.next = add i64 %i, 1
  br label %compare
store:
  %out.at = getelementptr i32, ptr %out, i64 %b
  store i32 %wrong, ptr %out.at
  %b.next = add i64 %b, 1
  br label %block
done:
  ret void
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
)";

constexpr char kCudaScale[] = R"(
struct Params { const int* in; int* out; long long count; int factor; int offset; };
extern "C" __global__ void probe_scale(const __grid_constant__ Params p) {
  if (threadIdx.x != 0) return;
  for (long long i = blockIdx.x; i < p.count; i += gridDim.x) p.out[i] += p.in[i] * p.factor + p.offset;
}
)";

constexpr char kCudaArena[] = R"(
struct Params { int* out; long long bytes; };
extern __shared__ unsigned char arena[];
extern "C" __global__ void probe_arena(const __grid_constant__ Params p) {
  // Nothing else lies in shared memory, so that the launch may ask for all of it.
  if (threadIdx.x == 0) p.out[blockIdx.x] = ((unsigned long long)__cvta_generic_to_shared(arena) & 15) ? 1000000 : 0;
  for (long long i = threadIdx.x; i < p.bytes; i += blockDim.x) arena[i] = (unsigned char)blockIdx.x;
  __syncthreads();
  int mine = 0;
  for (long long i = p.bytes - 1 - threadIdx.x; i >= 0; i -= blockDim.x) mine += arena[i] != (unsigned char)blockIdx.x;
  atomicAdd(&p.out[blockIdx.x], mine);
}
)";

// The host functions behind the fake device's kernels.
void fake_scale(const FakeLaunch& launch) {
  const auto& p = *static_cast<const ScaleParams*>(launch.params);
  for (int64_t block = 0; block < launch.dims.blocks; ++block)
    for (int64_t i = block; i < p.count; i += launch.dims.blocks) p.out[i] += p.in[i] * p.factor + p.offset;
}

void fake_arena(const FakeLaunch& launch) {
  const auto& p = *static_cast<const ArenaParams*>(launch.params);
  for (int64_t block = 0; block < launch.dims.blocks; ++block)
    p.out[block] = p.bytes <= launch.dims.shared_bytes ? 0 : static_cast<int32_t>(p.bytes);
}

}  // namespace

ConformanceTarget cpu_conformance_target(const DeviceOptions& options) {
  ConformanceTarget target;
  target.name = "cpu";
  target.open = [options] { return open_cpu_device(options); };
  target.scale_text = kLlvmScale;
  target.arena_text = kLlvmArena;
  target.broken_text = "define void @probe_scale(ptr %params, i64 %begin) {\n  ret i32 %nothing\n}\n";
  return target;
}

ConformanceTarget fake_conformance_target() {
  ConformanceTarget target;
  target.name = "fake";
  target.open = []() -> Result<std::unique_ptr<Device>> {
    auto device = std::make_unique<FakeDevice>();
    device->state().set_kernel("probe_scale", fake_scale);
    device->state().set_kernel("probe_arena", fake_arena);
    device->state().set_cost([](const FakeLaunch& launch) { return 1000 + launch.dims.blocks; });
    device->state().reject_texts_with("syntax error");
    return std::unique_ptr<Device>(std::move(device));
  };
  target.scale_text = "scale";
  target.arena_text = "arena";
  target.broken_text = "scale with a syntax error";
  return target;
}

ConformanceTarget cuda_conformance_target(const DeviceOptions& options) {
  ConformanceTarget target;
  target.name = "cuda";
  target.open = [options] { return open_cuda_device(0, options); };
  target.scale_text = kCudaScale;
  target.arena_text = kCudaArena;
  target.broken_text = "extern \"C\" __global__ void probe_scale( { nothing; }\n";
  target.threads = 64;
  return target;
}

}  // namespace kachel::runtime
