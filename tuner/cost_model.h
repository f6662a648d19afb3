// An estimate of how long a launch takes, from summaries of what its blocks do. It orders candidates, so that those
// worth trying come first (tuner.h); it decides nothing.
//
// A multiprocessor holds `resident` blocks at once. What they ask of one of its units adds up; what a block alone does
// one after the other does not get shorter by having neighbours. So as many blocks as are held at once take
//
//   wave(n) = max(latency of a block, n * its largest demand on a unit)
//
// and a launch takes full waves, then one of the n blocks that are left over, a little longer than the memory needs for
// every byte at the least, and than the device needs to begin all blocks. Every maximum here is a soft one: what comes second delays what comes first. Blocks of
// unequal length even out: there, whole waves count, and half of one in the end.
//
// The latency of a block has loops over stages that are filled ahead and the rest, which nothing overlaps but other
// blocks. In the loops either computing or the memory sets the pace:
//
//   computing  products, then the work on their results. Where stages are released an iteration later, half of the
//              products run beside that work. Warp groups that take turns each need only their part of the tensor
//              cores; several blocks of one group each take no turns, and lose half of the shorter of the two by that.
//   memory     a stage is asked for when it is released and needed `ahead` iterations later: `ahead` iterations take at
//              least the latency, the transfer, and the time for which the stage is held.
#pragma once
#include <cstdint>
#include <string_view>

namespace kachel::tuner {

// What one block does in a part of its course, in clocks that a multiprocessor would need which did nothing else.
struct PartCost {
  // Demands on units.
  double products = 0, operands = 0, shared = 0, scalar = 0, special = 0, l2 = 0;
  // One after the other.
  double thread = 0;  // instructions of the busiest thread
  double barriers = 0;
  double rounds = 0;    // times that memory is waited for; parts of one where copies run ahead
  double fills = 0;     // stages filled ahead
  double transfer = 0;  // clocks of all of these fills
};

struct LaunchCost {
  PartCost loops;  // over stages that are filled ahead; of the mean block
  PartCost rest;
  double longest = 1;  // the longest block's latency by the mean one's
  int64_t blocks = 0;
  int resident = 1;  // tiles that a multiprocessor works on at once: blocks, or teams of all blocks that it holds
  int multiprocessors = 1;
  bool persistent = false;      // a block goes on to further tiles, for which it loads ahead
  bool warp_groups = false;     // products are of warp groups, which run by themselves
  bool releases_later = false;  // stages, an iteration after they were used
  int groups = 1;               // that issue products
  double memory = 0;            // of the whole launch, clocks: every byte once, at the memory's bandwidth
  double latency = 0;           // of the memory, clocks
  double launch = 0;            // around the launch, clocks
  double begins = 0;            // from the first block's beginning to the last one's, if none takes any time, clocks
  double clock_mhz = 1000;
};

// What a launch takes of the multiprocessors' units beside its products, in clocks of all blocks. Its power follows
// from that: products are the same for all configurations.
struct Effort {
  double operands = 0, shared = 0, scalar = 0, l2 = 0;
};

// Whether two launches will be slowed down alike by what they draw: each unit's clocks differ by 5 % of all at most. No
// for efforts of which nothing is known, which are 0.
bool alike(const Effort& a, const Effort& b);

struct Prediction {
  double ns = 0;
  Effort effort;
  double waves = 0;
  // What sets the time: "products", "operands", "shared memory", "instructions", "special functions", "L2", "memory",
  // "the beginning of blocks", or "latency" where no unit is busy all the time.
  std::string_view bound;
  double bound_ns = 0;  // what the launch would take if nothing else did
};

Prediction predict(const LaunchCost& launch);

}  // namespace kachel::tuner
