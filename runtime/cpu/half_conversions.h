// The conversions that LLVM calls by name on machines without the instruction, rounding to nearest, ties to even.
//
// The x86-64 ABI passes and returns a half or bfloat in the low 16 bits of an SSE register. Compilers differ in which
// of them have these types in C++, so a `float` whose low 16 bits hold the value stands in for them; its upper bits are
// ignored on the way in and zero on the way out.
#pragma once
#include <cstdint>

namespace kachel::runtime {

uint16_t half_from_double(double value);
uint16_t bfloat_from_double(double value);
float float_from_half(uint16_t bits);

// __extendhfsf2, __truncsfhf2, __truncdfhf2, __truncsfbf2, __truncdfbf2
float call_extend_half(float half);
float call_half_from_float(float value);
float call_half_from_double(double value);
float call_bfloat_from_float(float value);
float call_bfloat_from_double(double value);

}  // namespace kachel::runtime
