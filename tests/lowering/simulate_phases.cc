// The copy engine and the barriers of phases that it works with. Sources: PTX ISA, "mbarrier" and
// "cp.async.bulk.tensor".
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/lowering/simulated_machine.h"

namespace kachel::lowering {
namespace {

// Calls fn(address, element) on each element of a box: where it is in shared memory, from `base` on, and in the tensor;
// null outside of it.
template <class Fn>
void for_each_in_box(const TensorMap& map, const MappedTensor& tensor, const std::vector<int64_t>& coordinates,
                     int64_t base, const Fn& fn) {
  const int64_t width = ir::bits(tensor.type) / 8, rank = static_cast<int64_t>(map.box.size());
  int64_t elements = 1;
  for (int32_t extent : map.box) elements *= extent;
  for (int64_t i = 0; i < elements; ++i) {
    int64_t offset = 0, rest = i;
    bool inside = true;
    for (int64_t axis = rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      const int64_t at = coordinates[static_cast<size_t>(rank - 1 - axis)] + rest % map.box[a];
      rest /= map.box[a];
      inside &= at >= 0 && at < tensor.shape[a];
      offset += at * tensor.strides[a];
    }
    int64_t address = base + i * width;
    address ^= (address >> 7 & (map.swizzle / 16 - 1)) << 4;
    fn(address, inside ? static_cast<uint8_t*>(tensor.data) + offset * width : nullptr);
  }
}

}  // namespace

void Machine::start_phases() {
  phases_.clear();
  boxes_.clear();
  stores_.assign(groups_.size(), {});
  for (const auto& [number, phases] : program_.phases)
    for (int64_t i = 0; i < phases.count; ++i) phases_[{number, i}] = {phases.arrivals, phases.arrivals, 0, 0};
}

Machine::Phase* Machine::phase_of(const SimStmt::Operand& operand, Thread& thread) {
  auto it = phases_.find({operand.buffer, eval(operand.index, thread).i});
  if (it != phases_.end()) return &it->second;
  fail(fmt::format("`{}` holds no such barrier of phases", buffer(operand.buffer).name));
  return nullptr;
}

void Machine::end_phase_if_complete(Phase& phase) {
  if (phase.awaited < 0) return fail("more arrivals at a barrier than its phase awaits");
  if (phase.awaited || phase.bytes) return;
  phase.awaited = phase.arrivals;
  ++phase.over;
}

bool Machine::phase_over(const SimStmt& stmt, Thread& thread) {
  const Phase* phase = phase_of(stmt.operands[0], thread);
  return !phase || (phase->over & 1) != eval(stmt.coordinates[0], thread).i;
}

void Machine::phase_operation(const SimStmt& stmt, Thread& thread) {
  Phase* phase = phase_of(stmt.operands[0], thread);
  if (!phase) return;
  phase->bytes += stmt.immediate;
  --phase->awaited;
  end_phase_if_complete(*phase);
}

// The machines of the blocks that a block of the cluster copies to or tells, itself alone where it says nothing. One
// that has come to its end stays until the others have.
std::vector<Machine*> Machine::peers_of(const SimStmt& stmt) {
  size_t rank = 0;
  while (&cluster_[rank] != this) ++rank;
  const uint64_t peers = stmt.peers ? stmt.peers >> (8 * rank) & 0xff : uint64_t{1} << rank;
  std::vector<Machine*> machines;
  for (size_t i = 0; i < 8; ++i) {
    if (!(peers >> i & 1)) continue;
    if (i < cluster_.size())
      machines.push_back(&cluster_[i]);
    else
      fail("a peer that is no block of the cluster");
  }
  return machines;
}

void Machine::arrive(const SimStmt& stmt, Warp warp) {
  if (stmt.by_group && static_cast<size_t>(warp[0].number) / kLanes % kWarpsOfGroup) return;
  if (!phase_of(stmt.operands[0], warp[0])) return;
  const std::pair place(stmt.operands[0].buffer, eval(stmt.operands[0].index, warp[0]).i);
  for (Machine* block : peers_of(stmt)) {
    Phase& phase = block->phases_.at(place);
    --phase.awaited;
    block->end_phase_if_complete(phase);
  }
}

void Machine::phase_copied(const SimStmt& stmt, Thread& thread) {
  boxes_.push_back({&stmt, 0, {}, phase_of(stmt.operands[0], thread), std::move(thread.open), &thread});
  thread.open.clear();
}

int64_t Machine::box_bytes(const SimStmt& stmt) const {
  return stmt.operands[0].elements * ir::bits(type_of(stmt.operands[0].buffer)) / 8;
}

bool Machine::is_box(const SimStmt& stmt, int64_t elements, const std::vector<int64_t>& coordinates) {
  const TensorMap& map = kernel_.maps[static_cast<size_t>(stmt.immediate)];
  int64_t all = 1;
  for (int32_t extent : map.box) all *= extent;
  if (all != elements || coordinates.size() != map.box.size()) fail("a box of another size than its memory");
  if (coordinates[0] * (ir::bits(maps_[static_cast<size_t>(stmt.immediate)].type) / 8) % 16)
    fail("a box that begins between two 16-byte columns");
  return !stopped();
}

// A copy to several blocks of the cluster goes to the same place in each and counts at the barrier of each.
void Machine::bulk_copy(const SimStmt& stmt, Thread& thread) {
  const SimStmt::Operand &to = stmt.operands[0], &barrier = stmt.operands[2];
  Box box{&stmt, eval(to.index, thread).i, {}, nullptr};
  for (int coordinate : stmt.coordinates) box.coordinates.push_back(eval(coordinate, thread).i);
  if (!is_box(stmt, to.elements, box.coordinates)) return;
  const std::pair phase(barrier.buffer, eval(barrier.index, thread).i);
  for (Machine* block : peers_of(stmt)) block->expect(box, phase, thread.number);
}

// The target is written at any time from here to the end of the phase.
void Machine::expect(Box box, const std::pair<int, int64_t>& phase, int32_t thread) {
  const SimStmt::Operand& to = box.stmt->operands[0];
  if (ended_) return fail("a copy to the shared memory of a block that has ended");
  const auto found = phases_.find(phase);
  if (found == phases_.end()) return fail("a copy that counts at no barrier of phases");
  box.phase = &found->second;
  uint8_t* target = memory_.vector(to.buffer, box.at, to.elements, 128, {thread, nullptr, false}, Access::kFill);
  if (!target) return;
  memory_.check_fenced(to.buffer, box.at, to.elements);
  memory_.mark_pending(to.buffer, box.at, to.elements, thread);
  std::memset(target, kPoison, static_cast<size_t>(box_bytes(*box.stmt)));
  boxes_.push_back(std::move(box));
}

void Machine::finish_box(size_t index) {
  const Box box = boxes_[index];
  boxes_.erase(boxes_.begin() + static_cast<std::ptrdiff_t>(index));
  if (box.thread) {
    for (const Copy& copy : box.copies) finish(copy, *box.thread);
    --box.phase->awaited;
    return end_phase_if_complete(*box.phase);
  }
  const SimStmt::Operand& to = box.stmt->operands[0];
  const TensorMap& map = kernel_.maps[static_cast<size_t>(box.stmt->immediate)];
  const MappedTensor& tensor = maps_[static_cast<size_t>(box.stmt->immediate)];
  const int64_t width = ir::bits(tensor.type) / 8;
  memory_.arrived(to.buffer, box.at, to.elements, false);
  for_each_in_box(map, tensor, box.coordinates, memory_.shared_address(to.buffer, box.at),
                  [&](int64_t address, uint8_t* element) {
                    uint8_t* target = memory_.untracked(to.buffer) - memory_.shared_address(to.buffer, 0) + address;
                    if (element)
                      std::memcpy(target, element, static_cast<size_t>(width));
                    else
                      std::memset(target, 0, static_cast<size_t>(width));
                  });
  box.phase->bytes -= box_bytes(*box.stmt);
  end_phase_if_complete(*box.phase);
}

// Shared memory is read as late as it may be.
void Machine::bulk_store(const SimStmt& stmt, Warp warp) {
  const SimStmt::Operand& from = stmt.operands[1];
  StoredBox box{&stmt, eval(from.index, warp[0]).i, {}};
  for (int coordinate : stmt.coordinates) box.coordinates.push_back(eval(coordinate, warp[0]).i);
  if (!is_box(stmt, from.elements, box.coordinates)) return;
  if (!memory_.vector(from.buffer, box.at, from.elements, 128, {warp[0].number, nullptr, true, true}, Access::kRead))
    return;
  stores_[static_cast<size_t>(warp[0].number) / kLanes].push_back(std::move(box));
}

void Machine::finish_stores(size_t warp, size_t left) {
  for (std::deque<StoredBox>& boxes = stores_[warp]; boxes.size() > left; boxes.pop_front()) {
    const StoredBox& box = boxes.front();
    const auto map = static_cast<size_t>(box.stmt->immediate);
    const int from = box.stmt->operands[1].buffer;
    const int64_t width = ir::bits(maps_[map].type) / 8;
    for_each_in_box(kernel_.maps[map], maps_[map], box.coordinates, memory_.shared_address(from, box.at),
                    [&](int64_t address, uint8_t* element) {
                      const uint8_t* source = memory_.untracked(from) - memory_.shared_address(from, 0) + address;
                      if (!element) return;
                      if (!box.stmt->adds) return void(std::memcpy(element, source, static_cast<size_t>(width)));
                      const ir::DType type = maps_[map].type;
                      const ir::Scalar both[] = {ir::load_element(type, element, 0), ir::load_element(type, source, 0)};
                      ir::store_element(type, element, 0, ir::apply_op(ir::Op::kAdd, both));
                    });
  }
}

}  // namespace kachel::lowering
