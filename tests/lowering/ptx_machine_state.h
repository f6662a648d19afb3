// A launch under way. Private to the machine: ptx_machine.cc runs blocks, warps and threads, ptx_machine_memory.cc has
// accesses and copies, ptx_machine_warp.cc what a warp does together.
#pragma once
#include <deque>
#include <random>
#include <span>

#include "tests/lowering/ptx_machine.h"

namespace kachel::lowering {

class PtxMachine {
 public:
  PtxMachine(const PtxProgram& program, const PtxLaunch& launch);
  Status run();

 private:
  // An asynchronous copy: `read` bytes and zeros up to `bytes`.
  struct Copy {
    uint8_t* to;
    const uint8_t* from;
    size_t bytes, read;
  };
  struct Thread {
    uint32_t number = 0;  // in its cluster
    size_t at = 0;
    bool ended = false;
    int64_t budget = 0;
    uint64_t* file = nullptr;
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
  };
  using Warp = std::span<Thread>;
  static constexpr uint64_t kPoison = 0xA5A5A5A5A5A5A5A5;

  void run_cluster(uint32_t first);
  uint32_t rank_of(const Thread& thread) const { return thread.number / launch_.threads; }
  void run_warp(Warp warp);
  void run_to_stop(Thread& thread);
  // The stop at which all of them are who have not ended; null: all have.
  const PtxInstruction* meet(std::span<Thread> threads);
  std::vector<size_t> turns(size_t count);

  void execute(const PtxInstruction& code, Thread& thread);
  void load(const PtxInstruction& code, Thread& thread);
  void store(const PtxInstruction& code, Thread& thread);
  void reduce(const PtxInstruction& code, Thread& thread);
  void compare_swap(const PtxInstruction& code, Thread& thread);
  void copy_async(const PtxInstruction& code, Thread& thread);
  void finish_copies(Thread& thread, size_t but);
  // The bytes at an address word and its offset; null, and a failure, where there are none.
  uint8_t* memory(const PtxInstruction& code, Thread& thread, PtxSpace space, int32_t word, int64_t offset,
                  int64_t bytes);

  void warp_operation(const PtxInstruction& code, Warp warp);
  void shuffle(const PtxInstruction& code, Warp warp);
  void vote(const PtxInstruction& code, Warp warp);
  void load_matrices(const PtxInstruction& code, Warp warp);
  void store_matrices(const PtxInstruction& code, Warp warp);
  void mma(const PtxInstruction& code, Warp warp);

  void set(Thread& thread, int32_t word, uint64_t value) {
    thread.file[word] = value & program_.masks[static_cast<size_t>(word)];
  }
  void fail(const PtxInstruction& code, const Thread& thread, const std::string& message);

  const PtxProgram& program_;
  const PtxLaunch& launch_;
  Status status_;
  bool failed_ = false;
  uint32_t first_block_ = 0;  // of the cluster
  std::vector<uint64_t> start_, files_;
  std::vector<uint8_t> shared_;  // of each block of the cluster
  std::vector<Thread> threads_;
  std::mt19937 random_{2};
};

}  // namespace kachel::lowering
