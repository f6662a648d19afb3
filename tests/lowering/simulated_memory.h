// The memory of a simulated launch, with a shadow of every byte of shared, workspace and tensor memory: which thread
// wrote it and which read it since the last barrier, and whose asynchronous copy to it is under way. Barriers are
// numbered through all blocks, so that a shadow of an earlier one is stale. Private to the simulator.
#pragma once
#include "tests/lowering/simulate.h"
#include "tests/lowering/simulated_program.h"

namespace kachel::lowering {

class SimMemory {
 public:
  // kProduct: a read by wgmma. kFill: a write that barriers of phases order, by the copy engine or a thread that
  // produces. kMake: such a thread's own store.
  enum class Access : uint8_t { kRead, kWrite, kAtomic, kProduct, kFill, kMake };
  // Who accesses: a thread, with its registers, or all lanes of its warp together.
  struct Agent {
    int32_t thread = 0;
    uint8_t* registers = nullptr;
    bool warp = false;
    bool met = false;  // the warp's lanes have waited for each other, and will again before they write there
  };

  SimMemory(const LoopKernel& kernel, const SimProgram& program, const std::vector<int64_t>& params,
            const std::vector<Allocation>& memory, Simulation* result);
  SimMemory(const SimMemory&) = delete;
  SimMemory& operator=(const SimMemory&) = delete;

  void start_block();
  void barrier() { ++barrier_; }
  // What the thread has written so far may be read by wgmma, and what it has read may be overwritten by the copy
  // engine.
  void fence(int32_t thread) { fences_[static_cast<size_t>(thread)] = ++clock_; }

  // Where the buffer begins, after the check of an access to one element; null, and a failure, if it is outside.
  uint8_t* element(int buffer, int64_t at, const Agent& agent, Access kind);
  // The first of `elements` elements accessed at once, at an address that is a multiple of `alignment` bytes.
  uint8_t* vector(int buffer, int64_t at, int64_t elements, int64_t alignment, const Agent& agent, Access kind);
  // Marks a vector as the target of the thread's copy under way; -1: of none.
  void mark_pending(int buffer, int64_t at, int64_t elements, int32_t thread);
  // The pending vector is there; `by_thread`: and to be seen by wgmma of those who fence after this.
  void arrived(int buffer, int64_t at, int64_t elements, bool by_thread);
  // Before the copy engine writes to these elements: a race where a thread has read them and not fenced since.
  void check_fenced(int buffer, int64_t at, int64_t elements);
  // Where a buffer in shared memory begins, for the copy engine, which no barrier orders.
  uint8_t* untracked(int buffer) const { return shared_.data + program_.buffers[static_cast<size_t>(buffer)].offset; }
  // Of an element in shared memory, in bytes; -1 elsewhere.
  int64_t shared_address(int buffer, int64_t at) const;

  void fail(const std::string& message) {
    if (result_.status.ok()) result_.status = internal(message);
  }

 private:
  struct Shadow {
    uint32_t written_at = 0, read_at = 0;  // barrier number; 0: never
    int32_t writer = -1, reader = -1, pending = -1;
    uint32_t clock = 0;  // at the last write
    uint32_t read_clock = 0;
    uint32_t copied_clock = 0;  // when a thread that produces had copied it; 0: it has not
    uint32_t made_clock = 0;    // at the last kMake, by
    int32_t maker = -1;
    int32_t last_reader = -1;  // but wgmma; of a warp its first lane
  };
  struct Region {  // memory with its shadow
    uint8_t* data = nullptr;
    std::vector<Shadow> shadows;
  };
  static constexpr int32_t kMany = -2, kAtomic = -3;

  Region* find_region(const SimBuffer& buffer, const std::vector<int64_t>& params);
  uint8_t* outside(const SimBuffer& buffer, int64_t at);
  // False, and a failure, if bytes [first, first + bytes) of the buffer are outside.
  bool inside(const SimBuffer& buffer, const Region* region, int64_t at, int64_t elements, int64_t end);
  void check(const SimBuffer& buffer, Region* region, int64_t at, int64_t first, int64_t bytes, const Agent& agent,
             Access kind);
  void note(Shadow& shadow, const Agent& agent, Access kind, const char** conflict, int32_t* other) const;
  void race(const std::string& message) {
    if (result_.races++ == 0) result_.first_race = message;
  }

  const SimProgram& program_;
  std::vector<Region> globals_;
  Region shared_, spilled_;
  std::vector<uint8_t> arena_, workspace_;
  std::vector<Region*> region_of_;  // by buffer
  uint32_t barrier_ = 0;
  uint32_t clock_ = 1;            // counts fences
  std::vector<uint32_t> fences_;  // by thread: its last one
  Simulation& result_;
};

}  // namespace kachel::lowering
