#include "lowering/machine.h"

#include <algorithm>
#include <iterator>

namespace kachel::lowering {
namespace {

using ir::DType;

constexpr Machine kMachines[] = {
    {80, 65536, 255, 164 * 1024, 163 * 1024, 2048, 40 << 20},  {86, 65536, 255, 100 * 1024, 99 * 1024, 1536, 6 << 20},
    {87, 65536, 255, 164 * 1024, 163 * 1024, 1536, 4 << 20},   {89, 65536, 255, 100 * 1024, 99 * 1024, 1536, 48 << 20},
    {90, 65536, 255, 228 * 1024, 227 * 1024, 2048, 50 << 20},  {100, 65536, 255, 228 * 1024, 227 * 1024, 2048, 126 << 20},
    {120, 65536, 255, 100 * 1024, 99 * 1024, 1536, 48 << 20},
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

}  // namespace

bool has_dot4(int architecture, DType a, DType b, DType c) {
  return std::any_of(std::begin(kDots), std::end(kDots), [&](const DotShape& shape) {
    return shape.a == a && shape.b == b && shape.c == c && shape.since <= architecture;
  });
}

const Machine& machine_of(int architecture) {
  const Machine* found = &kMachines[0];
  for (const Machine& machine : kMachines)
    if (machine.architecture <= architecture) found = &machine;
  return *found;
}

const MmaShape* find_mma(int architecture, DType a, DType b, DType c, ir::Precision precision,
                        const char** reason) {
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
