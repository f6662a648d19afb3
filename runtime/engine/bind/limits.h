// What one kernel may have; kernels beyond are refused with kUnsupported, so that a launch needs no allocation.
#pragma once

namespace kachel::runtime {

inline constexpr int kMaxParams = 64;
inline constexpr int kMaxDims = 64;
inline constexpr int kMaxTypes = 12;
inline constexpr int kMaxRank = 5;
inline constexpr int kMaxGrid = 8;
inline constexpr int kMaxSignature = 32;  // words of a dispatch signature

}  // namespace kachel::runtime
