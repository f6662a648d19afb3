// An engine over fake devices, with a fake lowering whose "kernels" are host functions: what the engine decides is seen
// in the fake device's counters, and time is the fake device's.
#pragma once
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ir/parse.h"
#include "ir/print.h"
#include "runtime/engine/launch/kernel_handle.h"
#include "tests/runtime/fake_device.h"

namespace kachel::runtime {

inline constexpr DeviceRef kFakeRef{static_cast<int32_t>(DeviceKind::kFake), 0};

// C = A * s, tiled; what a fake kernel can be told to do from the tile extents in its text.
inline constexpr const char* kScale = R"(tile 1
kernel scale<T: f32 | f16>(A: T[M, N], C: out T[M, N], s: f32)
key M, N
tune BM = 16 | 32 | 64, BN = 16 | 32
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  fragment x: T[BM, BN]
  x = A[by*BM +: BM, bx*BN +: BN]
  parallel i < BM, j < BN { x[i, j] = x[i, j] * s }
  C[by*BM +: BM, bx*BN +: BN] = x
}
)";

// A directory of its own, gone with the test.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A contiguous f32 tensor in host memory, which is the fake device's.
struct HostTensorF32 {
  HostTensorF32(std::vector<int64_t> extents, float value, DeviceRef device = kFakeRef);
  std::vector<float> data;
  std::vector<int64_t> shape, strides;
  TensorArg arg;
  Arg tensor() { return Arg{Arg::kTensor, 0, {&arg}}; }
};

inline Arg float_arg(double value) {
  Arg arg{Arg::kFloat, 0, {}};
  arg.f = value;
  return arg;
}
inline Arg int_arg(int64_t value) {
  Arg arg{Arg::kInt, 0, {}};
  arg.i = value;
  return arg;
}

class EngineFixture {
 public:
  // Several fixtures may share a store by its path.
  explicit EngineFixture(std::string store_path = "", const FakeOptions& device = {});

  // Opens the device and gives its state.
  FakeState& state();
  std::shared_ptr<KernelHandle> kernel(const std::string& text = kScale, std::vector<ConstValue> consts = {});
  LaunchSettings settings(tuner::Policy policy) const;
  // C = A * s with the given policy; checks that C is right and nothing beside it was written.
  Status scale(KernelHandle& kernel, int64_t m, int64_t n, tuner::Policy policy, void* stream = nullptr);

  EngineOptions options;  // change before the first use
  std::shared_ptr<Engine> engine();

  // Tile extents whose kernel writes wrong values.
  std::string wrong_tile;
  // Elements hang on rounding: an other order of sums changes a sixteenth of them, `hangs_more` candidates half.
  bool hangs = false, hangs_more = false;
  // Elements are differences of long sums: by how much another order of sums moves them, and candidates do.
  float drift = 0, candidates_drift = 0;
  // Nanoseconds of a launch, from the tile extents in its text; 10 us unless changed.
  std::function<int64_t(int64_t bm, int64_t bn, const FakeLaunch&)> cost;
  int64_t workspace_bytes = 0, shared_bytes = 0;  // what the lowering asks for
  int threads = 128;                              // of a block
  int blocks = 0;                                 // lowering::Lowered::blocks; above 1 the text says "close"
  std::string refused_tile;                       // tile extents that the lowering refuses
  std::string long_tile;                          // tile extents whose text is long
  bool has_compact_form = false;                  // the lowering heeds Target::compact
  bool predicts = false;                          // lowered kernels say what work they are
  std::atomic<int> lowered = 0;

 private:
  std::shared_ptr<Engine> engine_;
  FakeDevice* device_ = nullptr;
  std::shared_ptr<FakeState> unused_;
  FakeOptions device_options_;
};

// "32, 16" of a lowered text.
std::string tile_of(std::string_view text);

}  // namespace kachel::runtime
