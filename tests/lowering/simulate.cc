#include "tests/lowering/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "tests/lowering/simulated_machine.h"

namespace kachel::lowering {

using ir::DType;
using ir::Scalar;

void Machine::start(Thread& thread, int32_t number, uint32_t block) {
  thread.number = number;
  thread.values.assign(static_cast<size_t>(program_.slots), Scalar{});
  thread.registers.assign(static_cast<size_t>(program_.register_bytes), kPoison);
  for (const SimBuffer& buffer : program_.buffers)
    if (buffer.zeroed)
      std::fill_n(thread.registers.begin() + buffer.offset, ir::storage_bytes(buffer.type, buffer.elements),
                  uint8_t{0});
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
  if (program_.rank >= 0)
    set(thread, program_.rank, {DType::I32, block % static_cast<uint32_t>(blocks_of(kernel_.cluster)), 0});
  if (program_.thread >= 0) set(thread, program_.thread, {DType::I32, number % kernel_.threads, 0});
  if (program_.team >= 0) set(thread, program_.team, {DType::I32, number / kernel_.threads, 0});
}

bool Machine::is_over(const SimStmt& wait, Thread& thread) {
  return wait.kind == SimStmt::Kind::kGroupWait ? group_ready(wait, thread) : phase_over(wait, thread);
}

// True if it went on; `reached`: a barrier of the block, or null where it is done.
bool Machine::step(Runner& runner, const SimStmt** reached) {
  *reached = nullptr;
  if (runner.waits && !is_over(*runner.waits, runner.warp[0])) return false;
  if (runner.waits && runner.waits->kind == SimStmt::Kind::kGroupWait) group_wait(*runner.waits, runner.warp);
  runner.waits = nullptr;
  const SimStmt* at = run_lanes(runner.warp);
  if (stopped()) return true;
  if (!at || at->kind == SimStmt::Kind::kBarrier) {
    runner.done = true;
    *reached = at;
  } else if (at->kind == SimStmt::Kind::kPhaseWait || at->kind == SimStmt::Kind::kGroupWait) {
    runner.waits = at;
  } else if (at->kind == SimStmt::Kind::kPhaseArrive) {
    arrive(*at, runner.warp);
  } else {
    warp_operation(*at, runner.warp);
  }
  return true;
}

// All warps have reached the barrier, or all and the producer's their end.
void Machine::meet() {
  count_vectors();
  memory_.barrier();
  for (Runner& runner : runners_) runner.done &= runner.producer;
  ended_ = !reached_;
  reached_ = nullptr;
  first_ = nullptr;
}

bool Machine::advance() {
  if (ended_) return false;
  std::vector<Runner*> open;
  bool all_there = true;
  for (Runner& runner : runners_) {
    if (runner.done) continue;
    open.push_back(&runner);
    all_there &= runner.producer;
  }
  if (open.empty() || (all_there && reached_)) {
    meet();
    return true;
  }
  if (order_ == ThreadOrder::kShuffled) {
    std::shuffle(open.begin(), open.end(), random_);
    if (!boxes_.empty() && random_() % 4 == 0) finish_box(random_() % boxes_.size());
  }
  for (Runner* runner : open) {
    const SimStmt* at = nullptr;
    if (!step(*runner, &at)) continue;
    if (!runner->done || runner->producer || stopped()) return true;
    if (first_ && !together(*first_, reached_, runner->warp[0], at)) return true;
    first_ = &runner->warp[0];
    reached_ = at;
    return true;
  }
  return false;
}

void Machine::begin(uint32_t block) {
  memory_.start_block();
  memory_.barrier();
  const auto consumers = static_cast<size_t>(this->consumers()), producers = static_cast<size_t>(kernel_.copiers);
  groups_.assign((consumers + kLanes - 1) / kLanes, {});
  start_phases();
  const bool produces = !kernel_.producer.empty();
  threads_.assign(consumers + (produces ? producers : 0), {});
  for (size_t i = 0; i < threads_.size(); ++i) start(threads_[i], static_cast<int32_t>(i), block);
  runners_.clear();
  for (size_t first = 0; first < consumers; first += kLanes)
    runners_.push_back({Warp(threads_).subspan(first, std::min(kLanes, consumers - first))});
  for (size_t first = 0; produces && first < producers; first += kLanes) {
    const Warp warp = Warp(threads_).subspan(consumers + first, std::min(kLanes, producers - first));
    for (Thread& thread : warp) thread.stack.assign(1, Level{&program_.producer});
    runners_.push_back({warp, nullptr, true});
  }
  if (order_ == ThreadOrder::kReversed) std::reverse(runners_.begin(), runners_.end());
  reached_ = nullptr;
  first_ = nullptr;
  ended_ = false;
}

void Machine::end() {
  for (size_t warp = 0; warp < stores_.size(); ++warp) finish_stores(warp, 0);
  if (!boxes_.empty()) fail("the block ends before the copies of its producer");
  for (const Thread& thread : threads_)
    if (!thread.open.empty() ||
        std::any_of(thread.groups.begin(), thread.groups.end(), [](const auto& group) { return !group.empty(); }))
      fail(fmt::format("thread {} ends before its asynchronous copies", thread.number));
}

const SimStmt* Machine::run_lanes(Warp warp) {
  std::array<size_t, kLanes> turn{};
  for (size_t i = 0; i < warp.size(); ++i) turn[i] = order_ == ThreadOrder::kReversed ? warp.size() - 1 - i : i;
  if (order_ == ThreadOrder::kShuffled)
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
    fail(fmt::format(
        "threads {} and {} {}", a.number, b.number,
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

namespace {

// The blocks of a cluster side by side, one as far as it goes before the next, or in any order.
void run_cluster(std::deque<Machine>& machines, uint32_t first, ThreadOrder order, Simulation* result,
                 std::mt19937& random) {
  std::vector<Machine*> turn;
  for (Machine& machine : machines) turn.push_back(&machine);
  for (size_t i = 0; i < turn.size(); ++i) turn[i]->begin(first + static_cast<uint32_t>(i));
  if (order == ThreadOrder::kReversed) std::reverse(turn.begin(), turn.end());
  auto ended = [](const Machine* machine) { return machine->ended(); };
  while (result->status.ok() && !std::all_of(turn.begin(), turn.end(), ended)) {
    if (order == ThreadOrder::kShuffled) std::shuffle(turn.begin(), turn.end(), random);
    if (std::any_of(turn.begin(), turn.end(), [](Machine* machine) { return machine->advance(); })) continue;
    if (std::any_of(turn.begin(), turn.end(), [](Machine* machine) { return machine->bring(); })) continue;
    result->status = internal("all threads wait for barriers of phases that nothing ends");
  }
  for (Machine& machine : machines) machine.end();
}

}  // namespace

Simulation simulate(const LoopKernel& kernel, const std::vector<int64_t>& params, const std::vector<Allocation>& memory,
                    uint32_t blocks, ThreadOrder order, const std::vector<MappedTensor>& maps) {
  Simulation result;
  std::mt19937 random{2};
  const SimProgram program = compile(kernel, blocks);
  const auto size = static_cast<uint32_t>(blocks_of(kernel.cluster)), clusters = blocks / size;
  std::deque<Machine> machines;
  for (uint32_t i = 0; i < size; ++i)
    machines.emplace_back(kernel, program, params, memory, maps, machines, order, &result);
  for (uint32_t i = 0; i < clusters && result.status.ok(); ++i)
    run_cluster(machines, (order == ThreadOrder::kForward ? i : clusters - 1 - i) * size, order, &result, random);
  return result;
}

}  // namespace kachel::lowering
