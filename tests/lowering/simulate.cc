#include "tests/lowering/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "tests/lowering/simulated_machine.h"

namespace kachel::lowering {

using ir::DType;
using ir::Scalar;

Simulation Machine::run(uint32_t blocks, ThreadOrder order) {
  for (uint32_t i = 0; i < blocks && !stopped(); ++i) run_block(order == ThreadOrder::kForward ? i : blocks - 1 - i, order);
  return std::move(result_);
}

void Machine::start(Thread& thread, int32_t number, uint32_t block) {
  thread.number = number;
  thread.values.assign(static_cast<size_t>(program_.slots), Scalar{});
  thread.registers.assign(static_cast<size_t>(program_.register_bytes), kPoison);
  for (const SimBuffer& buffer : program_.buffers)
    if (buffer.zeroed)
      std::fill_n(thread.registers.begin() + buffer.offset, ir::storage_bytes(buffer.type, buffer.elements), uint8_t{0});
  thread.stack.assign(1, Level{&program_.body});
  for (size_t i = 0; i < program_.param_slots.size(); ++i) {
    if (program_.param_slots[i] < 0) continue;
    const DType type = ir::compute_type(kernel_.params[i].var->type.dtype);
    Scalar& value = thread.values[static_cast<size_t>(program_.param_slots[i])];
    value.type = type;
    if (type == DType::F32)
      value.f = std::bit_cast<float>(static_cast<uint32_t>(params_[i]));
    else
      value.i = ir::wrap_integer(type, params_[i]);
  }
  set(thread, program_.first_tile, {DType::I64, block, 0});
  if (program_.thread >= 0) set(thread, program_.thread, {DType::I32, number % kernel_.threads, 0});
  if (program_.team >= 0) set(thread, program_.team, {DType::I32, number / kernel_.threads, 0});
}

// True if it went on; `reached`: a barrier of the block, or null where it is done.
bool Machine::step(Runner& runner, ThreadOrder order, const SimStmt** reached) {
  *reached = nullptr;
  if (runner.waits && !phase_over(*runner.waits, runner.warp[0])) return false;
  runner.waits = nullptr;
  const SimStmt* at = run_lanes(runner.warp, order);
  if (stopped()) return true;
  if (!at || at->kind == SimStmt::Kind::kBarrier) {
    runner.done = true;
    *reached = at;
  } else if (at->kind == SimStmt::Kind::kPhaseWait) {
    runner.waits = at;
  } else if (at->kind == SimStmt::Kind::kPhaseArrive) {
    phase_operation(*at, runner.warp[0]);
  } else {
    warp_operation(*at, runner.warp);
  }
  return true;
}

// All warps up to the barrier that they meet at; null: to their end, the producer's too.
const SimStmt* Machine::run_to_barrier(std::vector<Runner>& runners, ThreadOrder order) {
  const SimStmt* reached = nullptr;
  const Thread* first = nullptr;
  while (!stopped()) {
    std::vector<Runner*> open;
    bool all_there = true;
    for (Runner& runner : runners) {
      if (runner.done) continue;
      open.push_back(&runner);
      all_there &= runner.producer;
    }
    if (open.empty() || (all_there && reached)) break;
    if (order == ThreadOrder::kShuffled) {
      std::shuffle(open.begin(), open.end(), random_);
      if (!boxes_.empty() && random_() % 4 == 0) finish_box(random_() % boxes_.size());
    }
    const SimStmt* at = nullptr;
    Runner* ran = nullptr;
    for (size_t i = 0; i < open.size() && !ran; ++i)
      if (step(*open[i], order, &at)) ran = open[i];
    if (!ran) {
      if (boxes_.empty())
        fail("all threads wait for barriers of phases that nothing ends");
      else
        finish_box(0);
    } else if (ran->done && !ran->producer && !stopped()) {
      if (first && !together(*first, reached, ran->warp[0], at)) break;
      first = &ran->warp[0];
      reached = at;
    }
  }
  return reached;
}

void Machine::run_block(uint32_t block, ThreadOrder order) {
  memory_.start_block();
  const auto consumers = static_cast<size_t>(this->consumers()), producers = static_cast<size_t>(kernel_.copiers);
  groups_.assign((consumers + kLanes - 1) / kLanes, {});
  start_phases();
  const bool produces = !kernel_.producer.empty();
  std::vector<Thread> threads(consumers + (produces ? producers : 0));
  for (size_t i = 0; i < threads.size(); ++i) start(threads[i], static_cast<int32_t>(i), block);
  std::vector<Runner> runners;
  for (size_t first = 0; first < consumers; first += kLanes)
    runners.push_back({Warp(threads).subspan(first, std::min(kLanes, consumers - first))});
  for (size_t first = 0; produces && first < producers; first += kLanes) {
    const Warp warp = Warp(threads).subspan(consumers + first, std::min(kLanes, producers - first));
    for (Thread& thread : warp) thread.stack.assign(1, Level{&program_.producer});
    runners.push_back({warp, nullptr, true});
  }
  if (order == ThreadOrder::kReversed) std::reverse(runners.begin(), runners.end());
  const SimStmt* reached = nullptr;
  do {
    memory_.barrier();
    for (Runner& runner : runners) runner.done &= runner.producer;
    reached = run_to_barrier(runners, order);
    count_vectors();
  } while (reached && !stopped());
  for (size_t warp = 0; warp < stores_.size(); ++warp) finish_stores(warp, 0);
  if (!boxes_.empty()) fail("the block ends before the copies of its producer");
  for (const Thread& thread : threads)
    if (!thread.open.empty() || std::any_of(thread.groups.begin(), thread.groups.end(), [](const auto& group) {
          return !group.empty();
        }))
      fail(fmt::format("thread {} ends before its asynchronous copies", thread.number));
}

const SimStmt* Machine::run_lanes(Warp warp, ThreadOrder order) {
  std::array<size_t, kLanes> turn{};
  for (size_t i = 0; i < warp.size(); ++i) turn[i] = order == ThreadOrder::kReversed ? warp.size() - 1 - i : i;
  if (order == ThreadOrder::kShuffled)
    std::shuffle(turn.begin(), turn.begin() + static_cast<std::ptrdiff_t>(warp.size()), random_);
  const SimStmt* reached = run_to_stop(warp[turn[0]]);
  for (size_t i = 1; i < warp.size() && !stopped(); ++i)
    if (!together(warp[turn[0]], reached, warp[turn[i]], run_to_stop(warp[turn[i]]))) return nullptr;
  return reached;
}

// In the same iterations of all loops too.
bool Machine::together(const Thread& a, const SimStmt* at_a, const Thread& b, const SimStmt* at_b) {
  bool same = at_a == at_b && a.stack.size() == b.stack.size();
  for (size_t i = 0; same && i < a.stack.size(); ++i)
    same = a.stack[i].block == b.stack[i].block && a.stack[i].value == b.stack[i].value;
  auto waits = [](const SimStmt* at) { return !at || at->kind == SimStmt::Kind::kBarrier; };
  if (!same)
    fail(fmt::format("threads {} and {} {}", a.number, b.number,
                     waits(at_a) && waits(at_b) ? "wait at different barriers" : "do not meet at an operation of their warp"));
  return same;
}

// Null: the thread is done.
const SimStmt* Machine::run_to_stop(Thread& thread) {
  while (!thread.stack.empty() && !stopped()) {
    Level& top = thread.stack.back();
    if (top.at == top.block->size()) {
      if (top.loop && (top.value += top.loop->step) < top.end) {
        set(thread, top.loop->slot, {top.loop->type, top.value, 0});
        top.at = 0;
      } else {
        thread.stack.pop_back();
      }
      continue;
    }
    const SimStmt& stmt = (*top.block)[top.at++];
    if (!stmt.stops) {
      execute(stmt, thread);
    } else if (stmt.kind == SimStmt::Kind::kFor) {
      const int64_t begin = eval(stmt.a, thread).i, end = eval(stmt.b, thread).i;
      if (begin >= end) continue;
      set(thread, stmt.slot, {stmt.type, begin, 0});
      thread.stack.push_back({&stmt.body, 0, &stmt, begin, end});
    } else if (stmt.kind == SimStmt::Kind::kIf) {
      thread.stack.push_back({eval(stmt.a, thread).i ? &stmt.body : &stmt.otherwise});
    } else {
      return &stmt;
    }
  }
  return nullptr;
}

Simulation simulate(const LoopKernel& kernel, const std::vector<int64_t>& params, const std::vector<Allocation>& memory,
                    uint32_t blocks, ThreadOrder order, const std::vector<MappedTensor>& maps) {
  return Machine(kernel, params, memory, blocks, maps).run(blocks, order);
}

}  // namespace kachel::lowering
