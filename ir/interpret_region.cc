// Parallel regions. Iterations run one after another; what they must not see of each other is kept from them: writes to
// memories that the region also reads wait in `pending_` until all iterations are done. Every element remembers which
// iteration wrote it, so that two that write the same one leave it undecided.
#include "ir/interpreter.h"

namespace kachel::ir {

void Interpreter::region(const Node& node) {
  ++serial_;
  iteration_ = 0;
  int64_t count = 1;
  for (const SlotExtent& iter : node.iters) {
    count *= iter.extent;
    at(iter.slot) = Cell::integer(0);
  }
  for (int memory : node.deferred) deferred_[static_cast<size_t>(memory)] = 1;
  for (int64_t step = 0; step < count && !stopped_; ++step) {
    ++iteration_;
    for (int forward : node.region_forwards) forward_set_[static_cast<size_t>(forward)] = 0;
    iteration(node.body, false);
    for (size_t axis = node.iters.size(); axis-- > 0;) {
      Cell& index = at(node.iters[axis].slot);
      if (++index.i < node.iters[axis].extent) break;
      index.i = 0;
    }
  }
  for (const Pending& pending : pending_) write(pending);
  pending_.clear();
  for (int memory : node.deferred) deferred_[static_cast<size_t>(memory)] = 0;
}

// `maybe`: an enclosing condition is undecided.
void Interpreter::iteration(const Nodes& nodes, bool maybe) {
  for (const Node& node : nodes) {
    if (!spend(static_cast<int64_t>(node.value.code.size()) + 1)) return;
    switch (node.kind) {
      case Node::Kind::kLet:
        evaluate(node.value.code);
        at(node.slot) = at(node.value.slot);
        break;
      case Node::Kind::kAssign:
        assign(node, maybe);
        break;
      case Node::Kind::kIf: {
        evaluate(node.value.code);
        const Cell condition = at(node.value.slot);
        if (condition.e != 0 || condition.i != 0) iteration(node.body, maybe || condition.e != 0);
        if (condition.e != 0 || condition.i == 0) iteration(node.otherwise, maybe || condition.e != 0);
        break;
      }
      default:
        break;  // regions hold nothing else
    }
  }
}

void Interpreter::assign(const Node& node, bool maybe) {
  evaluate(node.value.code);
  const LoadInfo& element = program_.elements[static_cast<size_t>(node.element)];
  const Memory& memory = memories_[static_cast<size_t>(node.memory)];
  Cell value = convert_cell(at(node.value.slot), compute_type(memory.type()), memory.type());
  // A product that the iteration reads back may be fused with what is added to it: it is not rounded in between.
  const Cell seen = memory.type() == DType::F32 ? at(node.value.slot) : value;
  if (node.forward >= 0) {
    auto number = static_cast<size_t>(node.forward);
    Cell& visible = at(program_.forwards[number].slot);
    if (maybe) {
      Cell old = forward_set_[number] ? visible : load_memory(element);
      visible = is_float(memory.type()) ? hull(old, seen) : hull_integer(old, seen);
    } else {
      visible = seen;
    }
    forward_set_[number] = 1;
  }
  int64_t offset;
  bool unknown;
  if (!offset_of(element, offset, unknown)) return;
  if (unknown) {
    write_anywhere(element);
    return;
  }
  Pending write_now{node.memory, node.atomic, offset, value, iteration_, maybe};
  if (deferred_[static_cast<size_t>(node.memory)])
    pending_.push_back(write_now);
  else
    write(write_now);
}

void Interpreter::write(const Pending& pending) {
  Memory& memory = memories_[static_cast<size_t>(pending.memory)];
  if (pending.atomic != AtomicOp::kNone)
    memory.combine(pending.atomic, pending.offset, pending.value, block_, pending.maybe);
  else
    memory.store_once(pending.offset, pending.value, block_, pending.maybe, serial_, pending.iteration);
}

// An element whose index is undecided: every one that the decided indices leave may have been written.
void Interpreter::write_anywhere(const LoadInfo& info) {
  Memory& memory = memories_[static_cast<size_t>(info.memory)];
  int64_t index[5] = {};
  for (int axis = 0; axis < info.rank; ++axis) {
    if (memory.extent(axis) == 0) return;
    const Cell& known = at(info.index[axis]);
    if (known.e == 0) index[axis] = known.i;
  }
  for (;;) {
    int64_t offset = 0;
    for (int axis = 0; axis < info.rank; ++axis) offset += index[axis] * memory.stride(axis);
    if (!spend(1)) return;
    memory.store(offset, Cell::undecided(), block_, true);
    int axis = info.rank;
    for (;; --axis) {
      if (axis == 0) return;
      if (at(info.index[axis - 1]).e == 0) continue;
      if (++index[axis - 1] < memory.extent(axis - 1)) break;
      index[axis - 1] = 0;
    }
  }
}

}  // namespace kachel::ir
