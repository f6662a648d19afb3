// One block at a time of a simulated launch, beside the other one of its cluster if there are clusters. Private to the
// simulator: simulate.cc runs clusters, blocks and warps, simulate_thread.cc what a thread does by itself,
// simulate_async.cc copies, simulate_warp.cc what a warp does together.
//
// A thread is a machine of its own: its values, its registers and a stack of the block-level loops and branches that it
// is in, so that it can stop for others and go on later. What holds no stop runs to its end at once.
#pragma once
#include <array>
#include <deque>
#include <map>
#include <random>
#include <span>
#include <tuple>

#include "tests/lowering/simulated_memory.h"

namespace kachel::lowering {

inline constexpr size_t kLanes = 32, kWarpsOfGroup = 4;

// Adds up the extra rounds of accesses to shared memory by a warp. `addresses`: in bytes, -1 for a lane that takes no
// part; `bytes`: each.
int64_t bank_conflicts(std::span<const int64_t> addresses, int64_t bytes);

class Machine {
 public:
  // All borrowed; `cluster`: the machines of one, this among them, which run its blocks beside each other.
  Machine(const LoopKernel& kernel, const SimProgram& program, const std::vector<int64_t>& params,
          const std::vector<Allocation>& memory, const std::vector<MappedTensor>& maps, std::deque<Machine>& cluster,
          ThreadOrder order, Simulation* result)
      : kernel_(kernel),
        maps_(maps),
        program_(program),
        params_(params),
        cluster_(cluster),
        order_(order),
        result_(*result),
        memory_(kernel, program, params, memory, result) {}

  void begin(uint32_t block);
  bool ended() const { return ended_; }
  // A step of one of the warps; false if all wait for what only a copy or another block can bring.
  bool advance();
  // The copy engine brings the oldest copy that is under way; false if there is none.
  bool bring() {
    if (boxes_.empty()) return false;
    finish_box(0);
    return true;
  }
  // After all blocks of the cluster: nothing may be under way.
  void end();

 private:
  using Access = SimMemory::Access;
  struct Level {
    const SimBlock* block;
    size_t at = 0;
    const SimStmt* loop = nullptr;
    int64_t value = 0, end = 0;
  };
  struct Copy {  // asynchronous
    const SimStmt* stmt;
    int64_t to, from;
    bool inside;                   // else zeros are written
    std::array<uint8_t, 16> seen;  // the source at issue
  };
  struct Thread {
    int32_t number = 0;
    std::vector<ir::Scalar> values;
    std::vector<uint8_t> registers;
    std::vector<Level> stack;
    std::vector<Copy> open;                // since the last commit
    std::deque<std::vector<Copy>> groups;  // under way, oldest first
  };
  using Warp = std::span<Thread>;

  void fail(const std::string& message) { memory_.fail(message); }
  bool stopped() const { return !result_.status.ok(); }

  // simulate.cc
  void start(Thread& thread, int32_t number, uint32_t block);
  const SimStmt* run_lanes(Warp warp);  // until each waits for others
  const SimStmt* run_to_stop(Thread& thread);
  bool together(const Thread& a, const SimStmt* at_a, const Thread& b, const SimStmt* at_b);

  // Threads of a team and of the producer number from 0, and thread loops are dealt out to each of them by themselves.
  int32_t consumers() const { return kernel_.teams * kernel_.threads; }
  bool produces(const Thread& thread) const { return thread.number >= consumers(); }
  bool first_producer(const Thread& thread) const { return thread.number == consumers(); }
  int32_t sharers(const Thread& thread) const { return produces(thread) ? kernel_.copiers : kernel_.threads; }
  int32_t place_of(const Thread& thread) const {
    return produces(thread) ? thread.number - consumers() : thread.number % kernel_.threads;
  }

  // simulate_thread.cc
  void execute(const SimBlock& block, Thread& thread);
  void execute(const SimStmt& stmt, Thread& thread);
  ir::Scalar eval(int node, Thread& thread);
  ir::Scalar apply(const SimNode& node, Thread& thread);
  void set(Thread& thread, int slot, const ir::Scalar& value) { thread.values[static_cast<size_t>(slot)] = value; }
  const SimBuffer& buffer(int number) const { return program_.buffers[static_cast<size_t>(number)]; }
  ir::DType type_of(int number) const { return buffer(number).type; }
  uint8_t* element(int number, int64_t at, Thread& thread, Access kind);
  uint8_t* vector(const SimStmt::Operand& operand, int64_t at, int64_t alignment, Thread& thread, Access kind);
  void add_vector(const SimStmt& stmt, Thread& thread);
  void convert_pair(const SimStmt& stmt, Thread& thread);
  void dot4(const SimStmt& stmt, Thread& thread);
  void unpack(const SimStmt& stmt, Thread& thread);
  void store_row(const SimStmt& stmt, Thread& thread);
  void packed_math(const SimStmt& stmt, Thread& thread);

  // simulate_async.cc
  int64_t bytes_of(const SimStmt& stmt) const;
  bool guarded(const SimStmt& stmt, Thread& thread) { return stmt.a < 0 || eval(stmt.a, thread).i; }
  void copy_vector(const SimStmt& stmt, Thread& thread);
  void copy_async(const SimStmt& stmt, Thread& thread);
  void load_shifted(const SimStmt& stmt, Thread& thread);
  void store_shifted(const SimStmt& stmt, Thread& thread);
  void wait(Thread& thread, size_t groups);
  void finish(const Copy& copy, Thread& thread);
  void note_vector(const SimStmt& stmt, const Thread& thread, int64_t address);
  void count_vectors();

  // simulate_warp.cc
  void warp_operation(const SimStmt& stmt, Warp warp);
  void shuffle(const SimStmt& stmt, Warp warp);
  void quad_exchange(const SimStmt& stmt, Warp warp);
  void quad_join(const SimStmt& stmt, Warp warp);
  void turn_matrix(const SimStmt& stmt, Warp warp);
  void load_matrix(const SimStmt& stmt, Warp warp);
  void store_matrix(const SimStmt& stmt, Warp warp);
  void mma(const SimStmt& stmt, Warp warp);

  // simulate_group.cc
  struct GroupProduct {  // one instruction under way
    const SimStmt* stmt;
    int64_t at, base_a, base_b;  // first accumulator; addresses in shared memory, or the first register
    std::vector<uint8_t> a, b;   // the operands at issue, 32 bytes a row of A or column of B
    bool over = false;           // another warp of its group has waited for it
  };
  struct Group {  // a warp's part of its warp group's work
    bool fenced = false;
    int64_t committed = 0;  // batches so far
    std::vector<GroupProduct> open;
    std::deque<std::vector<GroupProduct>> batches;                           // oldest first
    std::map<std::tuple<int, int64_t, int32_t>, std::vector<uint8_t>> sums;  // by buffer, first register, lane
  };
  void group_operation(const SimStmt& stmt, Warp warp);
  void group_mma(const SimStmt& stmt, Warp warp);
  bool group_ready(const SimStmt& stmt, const Thread& thread) const;
  void group_wait(const SimStmt& stmt, Warp warp);
  void finish_products(const std::vector<GroupProduct>& products, Group& group);
  std::vector<uint8_t> left_registers(const SimStmt::Operand& operand, int64_t first, Warp warp);
  void reread(GroupProduct& product, Warp warp);
  const uint8_t* matrix_element(const SimStmt::Operand& operand, int64_t base, const LoopIntrinsic::MatrixView& view,
                                int64_t mn, int64_t k, const Thread& thread);

  // simulate_phases.cc
  struct Phase {                                             // a barrier of phases
    int64_t arrivals = 0, awaited = 0, bytes = 0, over = 0;  // of a phase; still missing; still missing; phases gone by
  };
  struct Box {  // of the copy engine, under way; or copies of a thread, at the end of which it arrives
    const SimStmt* stmt;
    int64_t at;
    std::vector<int64_t> coordinates;
    Phase* phase;
    std::vector<Copy> copies;
    Thread* thread = nullptr;
  };
  void start_phases();
  Phase* phase_of(const SimStmt::Operand& operand, Thread& thread);
  void arrive(const SimStmt& stmt, Warp warp);
  void end_phase_if_complete(Phase& phase);
  std::vector<Machine*> peers_of(const SimStmt& stmt);
  void phase_operation(const SimStmt& stmt, Thread& thread);
  bool phase_over(const SimStmt& stmt, Thread& thread);
  void phase_copied(const SimStmt& stmt, Thread& thread);
  void bulk_copy(const SimStmt& stmt, Thread& thread);
  void expect(Box box, const std::pair<int, int64_t>& phase, int32_t thread);
  void finish_box(size_t index);
  bool is_box(const SimStmt& stmt, int64_t elements, const std::vector<int64_t>& coordinates);
  struct StoredBox {  // on its way to a tensor
    const SimStmt* stmt;
    int64_t at;
    std::vector<int64_t> coordinates;
  };
  void bulk_store(const SimStmt& stmt, Warp warp);
  void finish_stores(size_t warp, size_t left);
  int64_t box_bytes(const SimStmt& stmt) const;

  // simulate.cc: a set of lanes that go on together, and what they wait for.
  struct Runner {
    Warp warp;
    const SimStmt* waits = nullptr;
    bool producer = false, done = false;
  };
  bool is_over(const SimStmt& wait, Thread& thread);
  bool step(Runner& runner, const SimStmt** reached);
  void meet();

  const LoopKernel& kernel_;
  const std::vector<MappedTensor>& maps_;
  const SimProgram& program_;
  const std::vector<int64_t>& params_;
  std::deque<Machine>& cluster_;
  const ThreadOrder order_;
  Simulation& result_;
  SimMemory memory_;
  std::vector<Thread> threads_;
  std::vector<Runner> runners_;
  const SimStmt* reached_ = nullptr;  // the barrier that some have reached; null: they are done
  const Thread* first_ = nullptr;     // one of those; null: nobody has
  bool ended_ = true;
  int64_t steps_ = 0;
  std::vector<Group> groups_;                        // by warp
  std::map<std::pair<int, int64_t>, Phase> phases_;  // by buffer and element
  std::vector<Box> boxes_;
  std::vector<std::deque<StoredBox>> stores_;  // by warp, oldest first
  std::mt19937 random_{1};
  // Vector accesses to shared memory since the last barrier: by statement and warp, the addresses of each round.
  struct Rounds {
    std::array<size_t, kLanes> next{};
    std::vector<std::array<int64_t, kLanes>> addresses;
  };
  std::map<std::pair<const SimStmt*, size_t>, Rounds> vectors_;
};

}  // namespace kachel::lowering
