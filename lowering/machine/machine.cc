#include "lowering/machine/machine.h"

#include <algorithm>
#include <iterator>

#include "lowering/machine/rates.h"

namespace kachel::lowering {
namespace {

using ir::DType;

constexpr Machine kMachines[] = {
    {80, 65536, 255, 164 * 1024, 163 * 1024, 2048, 32, 40 << 20, 108},
    {86, 65536, 255, 100 * 1024, 99 * 1024, 1536, 16, 6 << 20, 84},
    {87, 65536, 255, 164 * 1024, 163 * 1024, 1536, 16, 4 << 20, 16},
    {89, 65536, 255, 100 * 1024, 99 * 1024, 1536, 24, 48 << 20, 142},
    {90, 65536, 255, 228 * 1024, 227 * 1024, 2048, 32, 50 << 20, 132},
    {100, 65536, 255, 228 * 1024, 227 * 1024, 2048, 32, 126 << 20, 148},
    {120, 65536, 255, 100 * 1024, 99 * 1024, 1536, 24, 48 << 20, 188},
};

constexpr MmaShape kMma[] = {
    {DType::F16, DType::F16, DType::F32, 16, 80, false, true, false},
    {DType::BF16, DType::BF16, DType::F32, 16, 80, false, true, false},
    {DType::F32, DType::F32, DType::F32, 8, 80, true, false, false},
    {DType::I8, DType::I8, DType::I32, 32, 80, false, false, false},
    {DType::U8, DType::U8, DType::I32, 32, 80, false, false, false},
    {DType::I8, DType::U8, DType::I32, 32, 80, false, false, false},
    {DType::U8, DType::I8, DType::I32, 32, 80, false, false, false},
    {DType::F8E4M3, DType::F8E4M3, DType::F32, 32, 89, false, false, true},
    {DType::F8E5M2, DType::F8E5M2, DType::F32, 32, 89, false, false, true},
    {DType::F8E4M3, DType::F8E5M2, DType::F32, 32, 89, false, false, true},
    {DType::F8E5M2, DType::F8E4M3, DType::F32, 32, 89, false, false, true},
};

constexpr DotShape kDots[] = {
    {DType::I8, DType::I8, DType::I32, 61},
    {DType::U8, DType::U8, DType::I32, 61},
    {DType::I8, DType::U8, DType::I32, 61},
    {DType::U8, DType::I8, DType::I32, 61},
};

// The row for 9.0 alone was compared with measurements (an H200): latency and barriers are fitted, mma.sync has the
// rates of 8.0, the port to the L2 is 64 bytes wide, and what 8-bit floats by way of f16 cost is a guess. The other
// rows are meant to be the data sheets' (A100 40 GB, RTX 3090, Orin, RTX 4090, B200, RTX 5090), but were neither
// checked against them nor measured.
constexpr Rates kRates[] = {
    {80, {0, 0, 0, 1024, 2048, 512, 0}, 4, 0.5, 128, 64, 10, 1000, 40, 1410},
    {86, {0, 0, 0, 256, 1024, 128, 0}, 4, 0.5, 128, 64, 6.7, 1000, 40, 1700},
    {87, {0, 0, 0, 512, 1024, 256, 0}, 4, 0.5, 128, 64, 10, 1000, 40, 1300},
    {89, {0, 0, 0, 512, 1024, 256, 256}, 4, 0.5, 128, 64, 3.1, 1000, 40, 2500},
    {90, {2048, 4096, 1024, 1024, 2048, 512, 300}, 4, 0.5, 128, 64, 20, 1200, 40, 1755},
    {100, {0, 0, 0, 1024, 2048, 512, 300}, 4, 0.5, 128, 64, 28, 1200, 40, 1850},
    {120, {0, 0, 0, 512, 1024, 256, 256}, 4, 0.5, 128, 64, 4.4, 1000, 40, 2400},
};

}  // namespace

bool has_dot4(int architecture, DType a, DType b, DType c) {
  return std::any_of(std::begin(kDots), std::end(kDots), [&](const DotShape& shape) {
    return shape.a == a && shape.b == b && shape.c == c && shape.since <= architecture;
  });
}

const Rates& rates_of(int architecture) {
  const Rates* found = &kRates[0];
  for (const Rates& rates : kRates)
    if (rates.architecture <= architecture) found = &rates;
  return *found;
}

const Machine& machine_of(int architecture) {
  const Machine* found = &kMachines[0];
  for (const Machine& machine : kMachines)
    if (machine.architecture <= architecture) found = &machine;
  return *found;
}

int64_t most_registers(int threads, int architecture) {
  constexpr int64_t kSchedulers = 4, kWarp = 32, kUnit = 8;
  const Machine& machine = machine_of(architecture);
  const int64_t warps = (threads + kWarp - 1) / kWarp, of_one = (warps + kSchedulers - 1) / kSchedulers;
  const int64_t each = machine.registers_per_sm / kSchedulers / (of_one * kWarp);
  return std::min<int64_t>(each / kUnit * kUnit, machine.registers_per_thread);
}

int64_t resident_by_shared(int64_t bytes, int architecture) {
  constexpr int64_t kReserved = 1024;  // of each block, for the driver; CUDA programming guide, "compute capabilities"
  return machine_of(architecture).shared_per_sm / (bytes + kReserved);
}

const MmaShape* find_mma(int architecture, DType a, DType b, DType c, ir::Precision precision, const char** reason) {
  *reason = "no tensor core instruction multiplies these types";
  for (const MmaShape& shape : kMma) {
    if (shape.a != a || shape.b != b || shape.c != c) continue;
    if (shape.since > architecture) {
      *reason = "the architecture's tensor cores do not know these types";
      continue;
    }
    if (shape.needs_tf32 && precision != ir::Precision::kTf32) {
      *reason = "f32 operands; `precision tf32` would allow tensor cores";
      continue;
    }
    return &shape;
  }
  return nullptr;
}

}  // namespace kachel::lowering
