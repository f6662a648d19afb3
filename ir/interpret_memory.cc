#include "ir/interpret_memory.h"

#include <cassert>
#include <cstring>
#include <memory>

#include "ir/numerics.h"

namespace kachel::ir {
namespace {

// Values of all f16 patterns; the other 8- and 16-bit types are decoded fast enough as they are.
const double* half_values() {
  static const std::unique_ptr<double[]> kTable = [] {
    auto table = std::make_unique<double[]>(65536);
    for (uint32_t raw = 0; raw < 65536; ++raw) table[raw] = decode_float(DType::F16, raw);
    return table;
  }();
  return kTable.get();
}

std::vector<int64_t> row_major(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t step = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = step;
    step *= shape[axis];
  }
  return strides;
}

// Calls fn(offset) for every element in row-major logical order.
template <class Fn>
void each_offset(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, const Fn& fn) {
  for (int64_t extent : shape)
    if (extent == 0) return;
  std::vector<int64_t> index(shape.size(), 0);
  int64_t offset = 0;
  for (;;) {
    fn(offset);
    size_t axis = shape.size();
    for (;; --axis) {
      if (axis == 0) return;
      offset += strides[axis - 1];
      if (++index[axis - 1] < shape[axis - 1]) break;
      offset -= strides[axis - 1] * shape[axis - 1];
      index[axis - 1] = 0;
    }
  }
}

int64_t product(const std::vector<int64_t>& shape) {
  int64_t total = 1;
  for (int64_t extent : shape) total *= extent;
  return total;
}

Cell decode_element(DType type, const void* raw, int64_t offset) {
  if (type == DType::F16) {
    uint16_t bits;
    std::memcpy(&bits, static_cast<const unsigned char*>(raw) + offset * 2, sizeof bits);
    return Cell::exact(half_values()[bits]);
  }
  Scalar value = load_element(type, raw, offset);
  return is_float(type) ? Cell::exact(value.f) : Cell::integer(value.i);
}

}  // namespace

Memory Memory::tile(DType type, std::vector<int64_t> shape) {
  Memory memory;
  memory.type_ = type;
  memory.shape_ = std::move(shape);
  memory.strides_ = row_major(memory.shape_);
  memory.cells_.assign(static_cast<size_t>(product(memory.shape_)), Cell::undecided());
  return memory;
}

Memory Memory::tensor(const HostTensor& tensor, Direction direction) {
  Memory memory;
  memory.type_ = tensor.type;
  memory.shape_ = tensor.shape;
  memory.output_ = direction != Direction::kIn;
  if (memory.output_) {
    memory.strides_ = row_major(tensor.shape);
    memory.racy_.assign(static_cast<size_t>(product(tensor.shape)), 0);
    memory.fill_from(tensor, direction);
  } else {
    memory.strides_ = tensor.strides;
    memory.raw_ = tensor.data;
  }
  return memory;
}

void Memory::fill_from(const HostTensor& tensor, Direction direction) {
  auto count = static_cast<size_t>(product(shape_));
  cells_.assign(count, Cell::undecided());
  writer_.assign(count, kNobody);
  reader_.assign(count, kNobody);
  written_.assign(count, 0);
  stamps_.clear();
  magnitude_.clear();
  additions_.clear();
  found_race_ = false;
  if (direction != Direction::kInOut) return;
  size_t at = 0;
  each_offset(tensor.shape, tensor.strides,
              [&](int64_t offset) { cells_[at++] = decode_element(type_, tensor.data, offset); });
}

void Memory::restart(const HostTensor& tensor, Direction direction) {
  if (output_) fill_from(tensor, direction);
}

void Memory::reset(const Cell& value) {
  cells_.assign(cells_.size(), value);
  std::fill(additions_.begin(), additions_.end(), 0);
}

Cell Memory::load(int64_t offset, uint32_t block) {
  if (raw_) return decode_element(type_, raw_, offset);
  auto at = static_cast<size_t>(offset);
  if (!output_) return cells_[at];
  if (reader_[at] != block) reader_[at] = reader_[at] == kNobody ? block : kMany;
  bool foreign = writer_[at] != kNobody && writer_[at] != block;
  return foreign || racy_[at] ? Cell::undecided() : cells_[at];
}

void Memory::note_write(int64_t offset, uint32_t block) {
  auto at = static_cast<size_t>(offset);
  written_[at] = 1;
  if (reader_[at] != kNobody && reader_[at] != block && !racy_[at]) {
    racy_[at] = 1;
    found_race_ = true;
  }
}

void Memory::store(int64_t offset, const Cell& value, uint32_t block, bool maybe) {
  auto at = static_cast<size_t>(offset);
  Cell& cell = cells_[at];
  if (output_) {
    note_write(offset, block);
    if (writer_[at] != kNobody && writer_[at] != block) {
      writer_[at] = kMany;
      cell = Cell::undecided();
      return;
    }
    writer_[at] = block;
  }
  if (maybe)
    cell = is_float(type_) ? hull(cell, value) : hull_integer(cell, value);
  else
    cell = value;
  if (!output_ && !additions_.empty()) additions_[at] = 0;
}

void Memory::store_once(int64_t offset, const Cell& value, uint32_t block, bool maybe, uint32_t set, uint32_t writer) {
  if (stamps_.empty()) stamps_.assign(cells_.size(), 0);
  uint64_t& stamp = stamps_[static_cast<size_t>(offset)];
  bool met = stamp >> 32 == set && static_cast<uint32_t>(stamp) != writer;
  stamp = uint64_t{set} << 32 | (met ? 0xFFFFFFFF : writer);
  store(offset, met ? Cell::undecided() : value, block, maybe);
}

namespace {

// Each of n additions in any order rounds a partial sum of at most the magnitude, which is that of the finite terms: of
// an infinite sum they may make the other infinity first.
Cell summed(DType type, const Cell& sum, double magnitude, uint32_t additions) {
  if (sum.is_undecided() || std::isnan(sum.v)) return sum;
  double unit = ulp_at(type, 1.0) / 2;
  double n = additions;
  double growth = n * unit * (magnitude + n * unit * magnitude);
  double e = sum.e + growth + n * ulp_at(type, 0) / 2;
  if (std::isinf(sum.v)) return magnitude + growth > largest_finite(type) ? Cell::undecided() : sum;
  if (magnitude + e > largest_finite(type)) return Cell::undecided();
  return Cell::of(sum.v, e);
}

}  // namespace

// Whether blocks have only combined the element so far, or this one alone has written it.
bool Memory::combines_with(size_t at, uint32_t block) {
  if (!output_) return true;
  note_write(static_cast<int64_t>(at), block);
  if (writer_[at] == kNobody) writer_[at] = kAtomic;
  if (writer_[at] == kAtomic || writer_[at] == block) return true;
  writer_[at] = kMany;
  return false;
}

void Memory::combine(AtomicOp op, int64_t offset, const Cell& value, uint32_t block, bool maybe) {
  auto at = static_cast<size_t>(offset);
  Cell& cell = cells_[at];
  if (!combines_with(at, block)) {
    cell = Cell::undecided();
    return;
  }
  if (maybe || cell.is_undecided() || value.is_undecided()) {
    cell = Cell::undecided();
    return;
  }
  if (!is_float(type_)) {
    Op integer = op == AtomicOp::kAdd ? Op::kAdd : op == AtomicOp::kMax ? Op::kMax : Op::kMin;
    cell.i = integer_op(integer, type_, cell.i, value.i);
  } else if (op == AtomicOp::kAdd) {
    if (magnitude_.empty()) {
      magnitude_.assign(cells_.size(), 0);
      additions_.assign(cells_.size(), 0);
      inexact_.assign(cells_.size(), 0);
    }
    const auto finite = [](const Cell& term) { return std::isfinite(term.v) ? std::abs(term.v) + term.e : 0; };
    if (additions_[at]++ == 0) {
      magnitude_[at] = finite(cell);
      inexact_[at] = cell.e;
    }
    magnitude_[at] += finite(value);
    inexact_[at] += value.e;
    cell = Cell::of(cell.v + value.v, output_ ? cell.e + value.e : inexact_[at]);
    if (!output_) cell = summed(type_, cell, magnitude_[at], additions_[at]);
  } else {
    cell = op == AtomicOp::kMax ? maximum(cell, value) : minimum(cell, value);
    if (!output_ && !additions_.empty()) additions_[at] = 0;
  }
}

void Memory::taint(uint32_t block) {
  for (size_t at = 0; at < cells_.size(); ++at) {
    cells_[at] = Cell::undecided();
    if (!output_) continue;
    note_write(static_cast<int64_t>(at), block);
    if (writer_[at] != block) writer_[at] = writer_[at] == kNobody ? block : kMany;
  }
}

void Memory::expect(std::vector<Expected>& out) const {
  out.resize(cells_.size());
  for (size_t at = 0; at < cells_.size(); ++at) {
    Expected& expected = out[at];
    Cell cell = cells_[at];
    expected.written = written_[at] != 0;
    if (!expected.written) continue;
    if (is_float(type_) && !additions_.empty() && additions_[at] != 0)
      cell = summed(type_, cell, magnitude_[at], additions_[at]);
    expected.undecided = cell.is_undecided();
    if (expected.undecided) continue;
    if (is_float(type_)) {
      expected.value = cell.v;
      expected.bound = cell.e;
    } else {
      expected.bits = cell.i;
    }
  }
}

}  // namespace kachel::ir
