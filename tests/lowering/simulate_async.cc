// Wide and asynchronous copies of a thread, and the banks of shared memory that they meet.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "tests/lowering/simulated_machine.h"

namespace kachel::lowering {

int64_t bank_conflicts(std::span<const int64_t> addresses, int64_t bytes) {
  constexpr int64_t kWord = 4, kBanks = 32;
  const auto together = static_cast<size_t>(kBanks * kWord / std::max(bytes, kWord));
  int64_t conflicts = 0;
  for (size_t first = 0; first < addresses.size(); first += together) {
    std::array<std::set<int64_t>, kBanks> words;
    for (size_t i = first; i < std::min(first + together, addresses.size()); ++i)
      for (int64_t at = addresses[i] / kWord; addresses[i] >= 0 && at * kWord < addresses[i] + bytes; ++at)
        words[static_cast<size_t>(at % kBanks)].insert(at);
    size_t most = 1;
    for (const auto& bank : words) most = std::max(most, bank.size());
    conflicts += static_cast<int64_t>(most) - 1;
  }
  return conflicts;
}

int64_t Machine::bytes_of(const SimStmt& stmt) const {
  return stmt.operands[0].elements * ir::bits(type_of(stmt.operands[0].buffer)) / 8;
}

void Machine::copy_vector(const SimStmt& stmt, Thread& thread) {
  const SimStmt::Operand &to = stmt.operands[0], &from = stmt.operands[1];
  const int64_t bytes = bytes_of(stmt);
  if (bytes != 16 && bytes != 8 && bytes != 4 && bytes != 2 && bytes != 1) return fail(fmt::format("a copy of {} bytes", bytes));
  const bool inside = guarded(stmt, thread);
  uint8_t value[16] = {};
  if (inside) {
    const int64_t at = eval(from.index, thread).i;
    const uint8_t* source = vector(from, at, bytes, thread, Access::kRead);
    if (!source) return;
    std::memcpy(value, source, static_cast<size_t>(bytes));
    note_vector(stmt, thread, memory_.shared_address(from.buffer, at));
  }
  const int64_t at = eval(to.index, thread).i;
  uint8_t* target = vector(to, at, bytes, thread, Access::kWrite);
  if (!target) return;
  std::memcpy(target, value, static_cast<size_t>(bytes));
  note_vector(stmt, thread, memory_.shared_address(to.buffer, at));
}

// As far as anyone may rely on: the registers hold the elements, behind them nothing.
void Machine::load_shifted(const SimStmt& stmt, Thread& thread) {
  const SimStmt::Operand &to = stmt.operands[0], &from = stmt.operands[1];
  const int64_t width = ir::bits(type_of(from.buffer)) / 8, bytes = to.elements * width;
  if (bytes != 32 || from.elements * 2 != to.elements) return fail("a shifted load of other than 32 bytes for 16");
  uint8_t* target = vector(to, eval(to.index, thread).i, 16, thread, Access::kWrite);
  if (!target) return;
  std::memset(target, kPoison, static_cast<size_t>(bytes));
  if (!guarded(stmt, thread)) return;
  // All that the guard says is there is looked at.
  const uint8_t* source = memory_.vector(from.buffer, eval(from.index, thread).i, to.elements, width,
                                         {thread.number, thread.registers.data(), false}, Access::kRead);
  if (source) std::memcpy(target, source, static_cast<size_t>(bytes / 2));
}

void Machine::store_shifted(const SimStmt& stmt, Thread& thread) {
  const SimStmt::Operand &to = stmt.operands[0], &loaded = stmt.operands[1], &from = stmt.operands[2];
  const int64_t width = ir::bits(type_of(from.buffer)) / 8;
  if (bytes_of(stmt) != 16) return fail("a shifted store of other than 16 bytes");
  uint8_t value[16] = {};
  if (guarded(stmt, thread)) {
    const uint8_t* source = vector(loaded, eval(loaded.index, thread).i, 16, thread, Access::kRead);
    if (!source) return;
    std::memcpy(value, source, sizeof(value));
  } else {
    const int64_t at = eval(from.index, thread).i;
    const int64_t first = eval(stmt.coordinates[0], thread).i, end = eval(stmt.coordinates[1], thread).i;
    for (int64_t i = std::max<int64_t>(first, 0); i < std::min(end, to.elements); ++i) {
      const uint8_t* source = element(from.buffer, at + i, thread, Access::kRead);
      if (!source) return;
      std::memcpy(value + i * width, source + (at + i) * width, static_cast<size_t>(width));
    }
  }
  const int64_t at = eval(to.index, thread).i;
  uint8_t* target = vector(to, at, 16, thread, Access::kMake);
  if (!target) return;
  std::memcpy(target, value, sizeof(value));
  note_vector(stmt, thread, memory_.shared_address(to.buffer, at));
}

// The target is written at any time from here to the wait: nobody else may touch it now, nobody at all until then.
void Machine::copy_async(const SimStmt& stmt, Thread& thread) {
  const SimStmt::Operand &to = stmt.operands[0], &from = stmt.operands[1];
  const int64_t bytes = bytes_of(stmt);
  if (bytes != 16 && bytes != 8 && bytes != 4) return fail(fmt::format("an asynchronous copy of {} bytes", bytes));
  if (buffer(to.buffer).kind != SimBuffer::Kind::kShared || buffer(from.buffer).kind != SimBuffer::Kind::kGlobal)
    return fail(fmt::format("an asynchronous copy from `{}` to `{}`, which are not a tensor and shared memory",
                            buffer(from.buffer).name, buffer(to.buffer).name));
  Copy copy{&stmt, eval(to.index, thread).i, eval(from.index, thread).i, guarded(stmt, thread), {}};
  if (copy.inside) {
    const uint8_t* source = vector(from, copy.from, bytes, thread, Access::kRead);
    if (!source) return;
    std::memcpy(copy.seen.data(), source, static_cast<size_t>(bytes));
  }
  uint8_t* target = vector(to, copy.to, bytes, thread, produces(thread) ? Access::kFill : Access::kWrite);
  if (!target) return;
  memory_.mark_pending(to.buffer, copy.to, to.elements, thread.number);
  std::memset(target, kPoison, static_cast<size_t>(bytes));
  note_vector(stmt, thread, memory_.shared_address(to.buffer, copy.to));
  thread.open.push_back(copy);
}

void Machine::wait(Thread& thread, size_t groups) {
  while (thread.groups.size() > groups && !stopped()) {
    for (const Copy& copy : thread.groups.front()) finish(copy, thread);
    thread.groups.pop_front();
  }
}

void Machine::finish(const Copy& copy, Thread& thread) {
  const SimStmt::Operand &to = copy.stmt->operands[0], &from = copy.stmt->operands[1];
  const auto bytes = static_cast<size_t>(bytes_of(*copy.stmt));
  memory_.arrived(to.buffer, copy.to, to.elements, produces(thread));
  uint8_t* target =
      vector(to, copy.to, bytes_of(*copy.stmt), thread, produces(thread) ? Access::kFill : Access::kWrite);
  if (!target) return;
  std::memset(target, 0, bytes);
  if (!copy.inside) return;
  const uint8_t* source = vector(from, copy.from, bytes_of(*copy.stmt), thread, Access::kRead);
  if (!source) return;
  if (std::memcmp(source, copy.seen.data(), bytes) && result_.races++ == 0)
    result_.first_race = fmt::format("`{}` changes while thread {} copies it", buffer(from.buffer).name, thread.number);
  std::memcpy(target, source, bytes);
}

void Machine::note_vector(const SimStmt& stmt, const Thread& thread, int64_t address) {
  if (address < 0) return;
  const auto number = static_cast<size_t>(thread.number);
  Rounds& rounds = vectors_[{&stmt, number / kLanes}];
  const size_t round = rounds.next[number % kLanes]++;
  if (rounds.addresses.size() <= round) rounds.addresses.emplace_back().fill(-1);
  rounds.addresses[round][number % kLanes] = address;
}

void Machine::count_vectors() {
  for (const auto& [key, rounds] : vectors_)
    for (const auto& addresses : rounds.addresses)
      result_.vector_conflicts += bank_conflicts(addresses, bytes_of(*key.first));
  vectors_.clear();
}

}  // namespace kachel::lowering
