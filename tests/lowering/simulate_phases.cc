// The copy engine and the barriers of phases that it works with. Sources: PTX ISA, "mbarrier" and
// "cp.async.bulk.tensor".
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/lowering/simulated_machine.h"

namespace kachel::lowering {

void Machine::start_phases() {
  phases_.clear();
  boxes_.clear();
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

int64_t Machine::box_bytes(const SimStmt& stmt) const {
  return stmt.operands[0].elements * ir::bits(type_of(stmt.operands[0].buffer)) / 8;
}

// The target is written at any time from here to the end of the phase.
void Machine::bulk_copy(const SimStmt& stmt, Thread& thread) {
  const SimStmt::Operand& to = stmt.operands[0];
  Box box{&stmt, eval(to.index, thread).i, {}, phase_of(stmt.operands[2], thread)};
  for (int coordinate : stmt.coordinates) box.coordinates.push_back(eval(coordinate, thread).i);
  const TensorMap& map = kernel_.maps[static_cast<size_t>(stmt.immediate)];
  int64_t elements = 1;
  for (int32_t extent : map.box) elements *= extent;
  if (elements != to.elements || box.coordinates.size() != map.box.size())
    return fail("a box of another size than its target");
  const MappedTensor& tensor = maps_[static_cast<size_t>(stmt.immediate)];
  if (box.coordinates[0] * (ir::bits(tensor.type) / 8) % 16)
    return fail("a box that begins between two 16-byte columns");
  uint8_t* target = vector(to, box.at, 128, thread, Access::kProduct);
  if (!target || !box.phase) return;
  memory_.check_fenced(to.buffer, box.at, to.elements);
  memory_.mark_pending(to.buffer, box.at, to.elements, thread.number);
  std::memset(target, kPoison, static_cast<size_t>(box_bytes(stmt)));
  boxes_.push_back(std::move(box));
}

void Machine::finish_box(size_t index) {
  const Box box = boxes_[index];
  boxes_.erase(boxes_.begin() + static_cast<std::ptrdiff_t>(index));
  const SimStmt::Operand& to = box.stmt->operands[0];
  const TensorMap& map = kernel_.maps[static_cast<size_t>(box.stmt->immediate)];
  const MappedTensor& tensor = maps_[static_cast<size_t>(box.stmt->immediate)];
  const int64_t width = ir::bits(tensor.type) / 8, rank = static_cast<int64_t>(map.box.size());
  memory_.mark_pending(to.buffer, box.at, to.elements, -1);
  const int64_t base = memory_.shared_address(to.buffer, box.at);
  uint8_t* begin = memory_.untracked(to.buffer) - memory_.shared_address(to.buffer, 0);
  for (int64_t i = 0; i < to.elements; ++i) {
    int64_t offset = 0, rest = i;
    bool inside = true;
    for (int64_t axis = rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      const int64_t at = box.coordinates[static_cast<size_t>(rank - 1 - axis)] + rest % map.box[a];
      rest /= map.box[a];
      inside &= at >= 0 && at < tensor.shape[a];
      offset += at * tensor.strides[a];
    }
    int64_t address = base + i * width;
    address ^= (address >> 7 & (map.swizzle / 16 - 1)) << 4;
    if (inside)
      std::memcpy(begin + address, static_cast<const uint8_t*>(tensor.data) + offset * width,
                  static_cast<size_t>(width));
    else
      std::memset(begin + address, 0, static_cast<size_t>(width));
  }
  box.phase->bytes -= box_bytes(*box.stmt);
  end_phase_if_complete(*box.phase);
}

}  // namespace kachel::lowering
