#include "tests/lowering/ptx_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tests/lowering/ptx_machine_state.h"

namespace kachel::lowering {
namespace {

constexpr size_t kWarp = 32;
// Where shared memory begins. Not at 0, so that offsets alone are no addresses.
constexpr uint64_t kSharedBase = 1024;

}  // namespace

PtxMachine::PtxMachine(const PtxProgram& program, const PtxLaunch& launch) : program_(program), launch_(launch) {
  for (const uint64_t mask : program.masks) start_.push_back(kPoison & mask);
  for (const auto& [word, value] : program.literals) start_[static_cast<size_t>(word)] = value;
  start_[kPtxBlocks] = launch.blocks;
  start_[kPtxRows] = 1;
  start_[kPtxShared] = kSharedBase;
  start_[kPtxNone] = 0;
}

Status PtxMachine::run() {
  const uint32_t clusters = launch_.blocks / launch_.cluster;
  for (uint32_t i = 0; i < clusters && !failed_; ++i)
    run_cluster((launch_.order == ThreadOrder::kForward ? i : clusters - 1 - i) * launch_.cluster);
  return status_;
}

void PtxMachine::fail(const PtxInstruction& code, const Thread& thread, const std::string& message) {
  if (failed_) return;
  failed_ = true;
  status_ = internal(fmt::format("thread {} of block {}: {}: `{}`", thread.number % launch_.threads,
                                 first_block_ + rank_of(thread), message, program_.lines[code.line]));
}

std::vector<size_t> PtxMachine::turns(size_t count) {
  std::vector<size_t> out(count);
  std::iota(out.begin(), out.end(), size_t{0});
  if (launch_.order == ThreadOrder::kReversed) std::reverse(out.begin(), out.end());
  if (launch_.order == ThreadOrder::kShuffled) std::shuffle(out.begin(), out.end(), random_);
  return out;
}

void PtxMachine::run_cluster(uint32_t first) {
  first_block_ = first;
  const size_t words = start_.size(), count = size_t{launch_.threads} * launch_.cluster;
  files_.resize(words * count);
  shared_.assign(static_cast<size_t>(launch_.shared_bytes) * launch_.cluster, static_cast<uint8_t>(kPoison));
  threads_.assign(count, {});
  for (size_t i = 0; i < threads_.size(); ++i) {
    Thread& thread = threads_[i];
    thread.number = static_cast<uint32_t>(i);
    thread.budget = launch_.budget;
    thread.file = files_.data() + words * i;
    std::copy(start_.begin(), start_.end(), thread.file);
    thread.file[kPtxThread] = i % launch_.threads;
    thread.file[kPtxBlock] = first + rank_of(thread);
  }
  while (!failed_) {
    for (const size_t warp : turns((threads_.size() + kWarp - 1) / kWarp)) {
      run_warp(Warp(threads_).subspan(warp * kWarp, std::min(kWarp, threads_.size() - warp * kWarp)));
      if (failed_) return;
    }
    const PtxInstruction* barrier = meet(threads_);
    if (!barrier) return;
    for (Thread& thread : threads_) {
      // Hardware would not wait for it; no kernel means that.
      if (thread.ended) return fail(*barrier, thread, "ends before a barrier that others wait at");
      ++thread.at;
    }
  }
}

const PtxInstruction* PtxMachine::meet(std::span<Thread> threads) {
  const Thread* first = nullptr;
  for (const Thread& thread : threads) {
    if (thread.ended) continue;
    if (!first) first = &thread;
    if (thread.at == first->at) continue;
    fail(program_.code[thread.at], thread,
         fmt::format("does not meet thread {}, which waits at `{}`", first->number,
                     program_.lines[program_.code[first->at].line]));
    return nullptr;
  }
  return first ? &program_.code[first->at] : nullptr;
}

// To a barrier of the block or the cluster, or the end.
void PtxMachine::run_warp(Warp warp) {
  while (!failed_) {
    for (const size_t lane : turns(warp.size())) {
      run_to_stop(warp[lane]);
      if (failed_) return;
    }
    const PtxInstruction* reached = meet(warp);
    if (!reached || reached->kind == PtxKind::kBarrier || reached->kind == PtxKind::kClusterBarrier) return;
    warp_operation(*reached, warp);
    for (Thread& lane : warp)
      if (!lane.ended) ++lane.at;
  }
}

void PtxMachine::run_to_stop(Thread& thread) {
  uint64_t* file = thread.file;
  while (!thread.ended) {
    const PtxInstruction& code = program_.code[thread.at];
    if (--thread.budget < 0) return fail(code, thread, "does not end");
    if (code.guard >= 0 && (file[code.guard] != 0) == code.negated) {
      ++thread.at;
      continue;
    }
    if (code.kind == PtxKind::kFunction) {
      file[code.words[0]] = code.function({file, code.words.data() + 1}) & code.mask;
      ++thread.at;
      continue;
    }
    if (stops(code.kind)) return;
    ++thread.at;
    execute(code, thread);
    if (failed_) return;
  }
  const auto full = [](const std::vector<Copy>& group) { return !group.empty(); };
  if (full(thread.open) || std::any_of(thread.groups.begin(), thread.groups.end(), full))
    fail(program_.code.back(), thread, "ends before its asynchronous copies");
}

void PtxMachine::execute(const PtxInstruction& code, Thread& thread) {
  uint64_t* file = thread.file;
  switch (code.kind) {
    case PtxKind::kPack: {
      uint64_t value = 0;
      const auto bits = static_cast<size_t>(8 * code.bytes);
      for (size_t i = 1; i < code.operands; ++i) {
        const uint64_t part = file[code.words[i]] & ((uint64_t{1} << bits) - 1);
        value |= part << bits * (i - 1);
      }
      return set(thread, code.words[0], value);
    }
    case PtxKind::kUnpack: {
      const uint64_t value = file[code.last()];
      for (size_t i = 0; i < code.results; ++i)
        set(thread, code.words[i], value >> static_cast<size_t>(8 * code.bytes) * i);
      return;
    }
    case PtxKind::kBranch:
      thread.at = code.target;
      return;
    case PtxKind::kExit:
      thread.ended = true;
      return;
    case PtxKind::kTrap:
      return fail(code, thread, "a trap");
    case PtxKind::kLoad:
      return load(code, thread);
    case PtxKind::kStore:
      return store(code, thread);
    case PtxKind::kReduce:
      return reduce(code, thread);
    case PtxKind::kCompareSwap:
      return compare_swap(code, thread);
    case PtxKind::kCopyAsync:
      return copy_async(code, thread);
    case PtxKind::kAsyncCommit:
      thread.groups.push_back(std::move(thread.open));
      thread.open.clear();
      return;
    case PtxKind::kAsyncWait:
      return finish_copies(thread, static_cast<size_t>(code.count));
    default:
      return;
  }
}

Status run_ptx(const PtxProgram& program, const PtxLaunch& launch) {
  return PtxMachine(program, launch).run();
}

}  // namespace kachel::lowering
