// The schedule of a kernel, read off its tile ops: which warps do what (roles), and which buffers are filled ahead of
// their use (pipelines). A value with a printer; later passes only follow it.
#pragma once
#include <string>
#include <vector>

#include "ir/kernel.h"
#include "lowering/lower.h"

namespace kachel::lowering {

// A set of warps that runs its own part of the body.
struct Role {
  std::string name;  // "all", "producer", "consumer"
  int first_thread = 0, threads = 0;
  int registers = 0;  // budget per thread; 0: the compiler's choice
};

// Buffers that a pipelined loop fills `depth` iterations ahead. How a stage is acquired, committed, waited for and
// released is the realisation's; the synchronisation pass emits it.
struct Pipeline {
  enum class Realisation : uint8_t { kInOrder } realisation = Realisation::kInOrder;
  std::vector<ir::BufferRef> buffers;
  int depth = 1;
};

struct Schedule {
  std::vector<Role> roles;
  std::vector<Pipeline> pipelines;  // one for each pipelined loop, outermost first, in program order
  std::string print() const;
};

// One role of all threads; every pipelined loop runs in order at depth 1, whatever depth it asks for.
Schedule make_generic_schedule(const ir::Kernel& kernel, const Target& target);

}  // namespace kachel::lowering
