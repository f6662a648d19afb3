// How fast an architecture is: what the cost model turns a profile (work.h) into times with. The passes do not look
// here. The numbers order candidates, they promise nothing: time is measured.
#pragma once
#include <array>

#include "lowering/machine/work.h"

namespace kachel::lowering {

// Of one multiprocessor and clock, where nothing else is said.
struct Rates {
  int architecture;                                 // the first that this row describes
  std::array<double, kProductKinds> multiply_adds;  // by tensor cores, by ProductKind; 0: it has none
  double scalar_operations;                         // instructions of warps that are issued
  double special_operations;                        // of warps, by the special function units
  double shared_bytes;
  double l2_bytes;        // what its port takes from the L2
  double dram_bytes;      // its share of the memory's bandwidth, all of them busy
  double latency_clocks;  // of a read of memory that others wait for as well
  double barrier_clocks;  // from the last arrival until the others go on
  double clock_mhz;       // under load
};

// The row for an architecture: the last one not above it.
const Rates& rates_of(int architecture);

// Registers that a thread needs beside its arrays: for addresses and loops, least and usually.
inline constexpr int kLeastOtherRegisters = 6, kOtherRegisters = 28;

// Clocks from the launch of a kernel to its first instruction and from its last to its end.
inline constexpr double kLaunchClocks = 4000;

// Clocks between the beginnings of two blocks, on the whole device: 1.2 ns on an H200, whatever a block does (64000 and
// 250000 blocks of one warp took 77.5 and 301 us).
inline constexpr double kBlockClocks = 2.1;

// The same of what blocks of a cluster wait for each other in the beginning and the end; and of multiprocessors those
// that clusters of four and more find, since one lies within a part of the chip: 120 of 132. Found on an H200.
inline constexpr double kClusterClocks = 800, kReachedByClusters = 10.0 / 11;

// How many blocks a multiprocessor holds, for as many registers as the compiler is likely to take.
struct Residency {
  int blocks = 1;
  int registers = 0;    // a thread
  bool spills = false;  // its arrays alone need more registers than it can have
};
Residency residency_of(const WorkProfile& profile, int architecture);

}  // namespace kachel::lowering
