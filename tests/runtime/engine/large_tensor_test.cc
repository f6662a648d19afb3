// Tensors past 2^31 elements and grids past 65535 blocks, through the engine: every byte of the result is compared, and
// guards around it. What is expected depends on the position, so that a wrapped or shifted index cannot go unnoticed.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "ir/parse.h"
#include "runtime/engine/launch/kernel_handle.h"

namespace kachel::runtime {
namespace {

constexpr int64_t kChunk = int64_t{64} << 20;
constexpr int64_t kGuard = 4096;
constexpr int64_t kNeeded = int64_t{5} << 30;
constexpr uint8_t kGuardByte = 0xa5;

constexpr const char* kLine = R"(tile 1
kernel mark_line(X: u8[N], Y: out u8[N])
grid b < ceildiv(N, 4096)
{
  fragment x: u8[4096]
  x = X[b*4096 +: 4096]
  parallel i < 4096 {
    let p = b*4096 + i
    x[i] = x[i] * 3 ^ p ^ p >> 8 ^ p >> 16 ^ p >> 24
  }
  Y[b*4096 +: 4096] = x
}
)";

constexpr const char* kRows = R"(tile 1
kernel mark_rows(X: i8[M, N], Y: out i8[M, N])
grid by < M, bx < ceildiv(N, 4096)
{
  fragment x: i8[4096]
  x = X[by, bx*4096 +: 4096]
  parallel i < 4096 {
    let p = by*N + bx*4096 + i
    x[i] = x[i] * 3 ^ p ^ p >> 8 ^ p >> 16 ^ p >> 24
  }
  Y[by, bx*4096 +: 4096] = x
}
)";

uint8_t input_at(int64_t position) {
  return static_cast<uint8_t>(static_cast<uint64_t>(position) * 0x9e3779b97f4a7c15u >> 56);
}
uint8_t expected_at(int64_t p) {
  return static_cast<uint8_t>(input_at(p) * 3 ^ p ^ p >> 8 ^ p >> 16 ^ p >> 24);
}

// Guard, elements, guard in the device's memory.
class Bytes {
 public:
  Bytes(Device& device, int64_t count) : device_(device), count_(count) {
    auto base = device.allocate(static_cast<size_t>(count + 2 * kGuard));
    REQUIRE_MESSAGE(base.ok(), base.status().message());
    base_ = static_cast<char*>(*base);
    REQUIRE(device_.fill(base_, kGuardByte, static_cast<size_t>(count + 2 * kGuard), nullptr).ok());
  }
  ~Bytes() { device_.free(base_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  char* first() const { return base_ + kGuard; }

  void write(uint8_t (*byte_at)(int64_t)) {
    std::vector<uint8_t> chunk(kChunk);
    for (int64_t begin = 0; begin < count_; begin += kChunk) {
      const int64_t size = std::min(kChunk, count_ - begin);
      for (int64_t i = 0; i < size; ++i) chunk[static_cast<size_t>(i)] = byte_at(begin + i);
      move(first() + begin, chunk.data(), size);
    }
  }
  // The position of the first byte from `from` on that is not as it should be, the guards' included; count + kGuard if
  // there is none.
  int64_t first_wrong(uint8_t (*byte_at)(int64_t), int64_t from = -kGuard) const {
    std::vector<uint8_t> chunk(kChunk);
    for (int64_t begin = from; begin < count_ + kGuard; begin += kChunk) {
      const int64_t size = std::min(kChunk, count_ + kGuard - begin);
      move(chunk.data(), first() + begin, size);
      for (int64_t i = 0; i < size; ++i) {
        const int64_t position = begin + i;
        const bool inside = position >= 0 && position < count_;
        if (chunk[static_cast<size_t>(i)] != (inside ? byte_at(position) : kGuardByte)) return position;
      }
    }
    return count_ + kGuard;
  }

 private:
  void move(void* to, const void* from, int64_t size) const {
    REQUIRE(device_.copy(to, from, static_cast<size_t>(size), nullptr).ok());
    REQUIRE(device_.synchronize(nullptr).ok());
  }

  Device& device_;
  const int64_t count_;
  char* base_ = nullptr;
};

int64_t product(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

void check_kernel(const std::shared_ptr<Engine>& engine, DeviceRef ref, const char* text, ir::DType type,
                  std::vector<int64_t> shape) {
  const int64_t count = product(shape);
  Device& device = **engine->devices().get(ref);
  auto module = ir::load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  auto model = KernelModel::create(module->kernels[0], {});
  REQUIRE_MESSAGE(model.ok(), model.status().message());
  KernelHandle kernel(engine, *model);

  Bytes x(device, count), y(device, count);
  x.write(input_at);
  TensorArg tensors[2];
  Arg args[2];
  for (int i = 0; i < 2; ++i) {
    tensors[i] = {(i == 0 ? x : y).first(),
                  ref,
                  static_cast<int32_t>(shape.size()),
                  to_data_type(type),
                  shape.data(),
                  nullptr,
                  0};
    args[i] = Arg{Arg::kTensor, 0, {&tensors[i]}};
  }
  LaunchSettings settings;
  settings.policy = tuner::Policy::kOff;
  Status launched = kernel.launch(args, settings, nullptr);
  REQUIRE_MESSAGE(launched.ok(), launched.message());
  REQUIRE(device.synchronize(nullptr).ok());
  CHECK(y.first_wrong(expected_at) == count + kGuard);
  CHECK(x.first_wrong(input_at) == count + kGuard);

  // The comparison itself: one byte off is found where it is.
  for (int64_t spoiled : {-kGuard, int64_t{0}, (int64_t{1} << 31) + 1, count - 1, count, count + kGuard - 1}) {
    char* at = y.first() + spoiled;
    uint8_t kept = 0, other = 0;
    REQUIRE(device.copy(&kept, at, 1, nullptr).ok());
    REQUIRE(device.synchronize(nullptr).ok());
    other = static_cast<uint8_t>(kept ^ 1);
    REQUIRE(device.copy(at, &other, 1, nullptr).ok());
    REQUIRE(device.synchronize(nullptr).ok());
    CHECK(y.first_wrong(expected_at, std::max(spoiled - 1000, -kGuard)) == spoiled);
    REQUIRE(device.copy(at, &kept, 1, nullptr).ok());
    REQUIRE(device.synchronize(nullptr).ok());
  }
}

void check_device(DeviceRef ref) {
  auto engine = Engine::create({});
  REQUIRE_MESSAGE(engine.ok(), engine.status().message());
  auto device = (*engine)->devices().get(ref);
  if (!device.ok() && device.status().code() == Code::kNoDevice) {
    MESSAGE("SKIPPED: ", device.status().message());
    return;
  }
  REQUIRE_MESSAGE(device.ok(), device.status().message());
  if ((*device)->properties().memory_bytes < kNeeded) {
    MESSAGE("SKIPPED: ", (*device)->properties().name, " has less than 5 GiB of memory");
    return;
  }
  SUBCASE("one axis") {
    check_kernel(*engine, ref, kLine, ir::DType::U8, {(int64_t{1} << 31) + 4097});
  }
  SUBCASE("rows of odd length, more of them than 65535") {
    check_kernel(*engine, ref, kRows, ir::DType::I8, {65539, 32771});
  }
}

int64_t available_host_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (int64_t kib; file >> name >> kib;) {
    if (name == "MemAvailable:") return kib * 1024;
    std::getline(file, unit);
  }
  return 0;
}

TEST_CASE("large tensors on the CPU") {
  if (available_host_bytes() < kNeeded) {
    MESSAGE("SKIPPED: less than 5 GiB of memory are available");
    return;
  }
  check_device({static_cast<int32_t>(DeviceKind::kCpu), 0});
}

TEST_CASE("large tensors on a GPU") {
  check_device({static_cast<int32_t>(DeviceKind::kCuda), 0});
}

}  // namespace
}  // namespace kachel::runtime
