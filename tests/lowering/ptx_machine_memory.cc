// Accesses to memory by a thread.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/lowering/ptx_machine_state.h"

namespace kachel::lowering {
namespace {

const char* name_of(PtxSpace space) {
  return space == PtxSpace::kParam ? "the parameters" : space == PtxSpace::kGlobal ? "the tensors" : "shared memory";
}

}  // namespace

uint8_t* PtxMachine::memory(const PtxInstruction& code, Thread& thread, PtxSpace space, int32_t word, int64_t offset,
                            int64_t bytes) {
  const uint64_t address = thread.file[word] + static_cast<uint64_t>(offset), size = static_cast<uint64_t>(bytes);
  const auto within = [&](uint64_t begin, uint64_t length) {
    return address >= begin && length >= size && address - begin <= length - size;
  };
  const auto refuse = [&](const std::string& where) {
    fail(code, thread, fmt::format("{} bytes at {} {}", bytes, address, where));
    return nullptr;
  };
  if (address % size) return refuse("are not aligned");
  if (space == PtxSpace::kShared || space == PtxSpace::kCluster) {
    const bool own = space == PtxSpace::kShared;
    const uint64_t rank = own ? rank_of(thread) : address / kPtxClusterWindow - 1;
    const uint64_t begin = start_[kPtxShared] + (own ? 0 : (rank + 1) * kPtxClusterWindow);
    const auto all = static_cast<uint64_t>(launch_.shared_bytes);
    if (rank < launch_.cluster && within(begin, all)) return shared_.data() + rank * all + (address - begin);
  } else if (space == PtxSpace::kGlobal) {
    for (const Allocation& allocation : launch_.memory)
      if (const auto begin = std::bit_cast<uint64_t>(allocation.data); within(begin, allocation.bytes))
        return static_cast<uint8_t*>(allocation.data) + (address - begin);
  }
  return refuse(fmt::format("lie outside of {}", name_of(space)));
}

void PtxMachine::load(const PtxInstruction& code, Thread& thread) {
  const auto bytes = static_cast<size_t>(code.bytes), all = bytes * code.results;
  const uint8_t* from = nullptr;
  if (code.space == PtxSpace::kParam) {
    const auto at = static_cast<uint64_t>(code.offsets[0]);
    if (at % bytes || at + all > 8 * launch_.params.size()) return fail(code, thread, "lies outside of the parameters");
    from = reinterpret_cast<const uint8_t*>(launch_.params.data()) + at;
  } else {
    from = memory(code, thread, code.space, code.last(), code.offsets[0], static_cast<int64_t>(all));
  }
  if (!from) return;
  for (size_t i = 0; i < code.results; ++i) {
    uint64_t value = 0;
    std::memcpy(&value, from + i * bytes, bytes);
    if (code.is_signed) {
      const auto shift = static_cast<int>(64 - 8 * bytes);
      value = static_cast<uint64_t>(static_cast<int64_t>(value << shift) >> shift);
    }
    set(thread, code.words[i], value);
  }
}

void PtxMachine::store(const PtxInstruction& code, Thread& thread) {
  const auto bytes = static_cast<size_t>(code.bytes);
  uint8_t* to =
      memory(code, thread, code.space, code.words[0], code.offsets[0], code.bytes * static_cast<int64_t>(code.results));
  for (size_t i = 0; to && i < code.results; ++i) std::memcpy(to + i * bytes, thread.file + code.words[i + 1], bytes);
}

void PtxMachine::reduce(const PtxInstruction& code, Thread& thread) {
  const int64_t each = code.bytes * code.count;  // of a word, which may be a pair
  uint8_t* at = memory(code, thread, code.space, code.words[0], code.offsets[0], each * code.results);
  const auto bytes = static_cast<size_t>(code.bytes);
  for (size_t word = 0; at && word < code.results; ++word)
    for (int64_t part = 0; part < code.count; ++part, at += bytes) {
      const int32_t both[] = {0, 1};
      uint64_t operands[] = {0, thread.file[code.words[word + 1]] >> (8 * bytes * static_cast<size_t>(part))};
      operands[1] &= bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * bytes)) - 1;
      std::memcpy(operands, at, bytes);
      const uint64_t result = code.function({operands, both});
      std::memcpy(at, &result, bytes);
    }
}

// atom.space.cas.b32 old, [at], expected, wanted
void PtxMachine::compare_swap(const PtxInstruction& code, Thread& thread) {
  uint8_t* at = memory(code, thread, code.space, code.words[1], code.offsets[0], code.bytes);
  if (!at) return;
  const auto bytes = static_cast<size_t>(code.bytes);
  const uint64_t expected = thread.file[code.words[2]], wanted = thread.file[code.words[3]];
  uint64_t old = 0;
  std::memcpy(&old, at, bytes);
  if (old == expected) std::memcpy(at, &wanted, bytes);
  set(thread, code.words[0], old);
}

// cp.async [to], [from], bytes{, read}
void PtxMachine::copy_async(const PtxInstruction& code, Thread& thread) {
  const auto bytes = static_cast<size_t>(thread.file[code.words[2]]);
  const size_t read = code.operands > 3 ? static_cast<uint32_t>(thread.file[code.words[3]]) : bytes;
  if ((bytes != 4 && bytes != 8 && bytes != 16) || read > bytes)
    return fail(code, thread, "copies another number of bytes than it may");
  uint8_t* to = memory(code, thread, PtxSpace::kShared, code.words[0], code.offsets[0], static_cast<int64_t>(bytes));
  if (!to) return;
  const uint8_t* from = nullptr;
  if (read) {
    from = memory(code, thread, PtxSpace::kGlobal, code.words[1], code.offsets[1], static_cast<int64_t>(bytes));
    if (!from) return;
  }
  thread.open.push_back({to, from, bytes, read});
}

void PtxMachine::finish_copies(Thread& thread, size_t but) {
  for (; thread.groups.size() > but; thread.groups.pop_front())
    for (const Copy& copy : thread.groups.front()) {
      std::memset(copy.to, 0, copy.bytes);
      if (copy.read) std::memcpy(copy.to, copy.from, copy.read);
    }
}

}  // namespace kachel::lowering
