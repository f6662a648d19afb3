// Matrix products. An element of C += A @ B over floats is the float64 sum, with the bound
//
//   e = e_C + sum(|a| e_b + |b| e_a + e_a e_b) + (K + 2) 2^-23 (|c| + sum |a b|) + (K + 2) 2^-149
//
// K products, exact or rounded, and C are added in some order and grouping; each of these at most K + 1 additions is
// off by at most 2^-23 of a partial sum, which is twice what rounding to nearest needs and what truncating tensor cores
// keep; a partial sum never exceeds the sum of magnitudes. Where a partial sum may leave the f32 range the element is
// undecided. What tensor cores may lose beyond that, Loss:
//
//   tf32   (2^-9 + 2^-20) sum |a b|: operands are cut to 11 bits, which takes up to 2^-10 of each
//   f8     runs of products are added with 13 bits behind the leading one of the largest term: each of n terms, and at
//          every 16th the sum so far and the new one, are off by at most 2^-13 of a partial sum, of which the errors
//          are a part. A run is kF8Run products long, or with `precision fast` all of them and C
//
// A product of f32 with f16 or bf16 may be made of products of parts of its operands, so that an infinite operand makes
// it infinite or NaN: undecided.
//
// Infinities, NaNs and undecided operands are rare: they count as 0 in the fast loops, and the rows and columns that
// hold one are then done again element by element.
#include <cassert>

#include "ir/interpreter.h"
#include "ir/numerics.h"

namespace kachel::ir {

// rows x columns, row-major: A is M x K, B is K x N, with the transposition done.
struct Interpreter::Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<Cell> cells;
  std::vector<double> values, errors;  // floats; errors only if some are not zero
  bool has_errors = false;
  std::vector<uint8_t> special_rows, special_columns;  // empty: there are none
};

void Interpreter::read_matrix(int number, bool transpose, Matrix& out) {
  const TileInfo& tile = program_.tiles[static_cast<size_t>(number)];
  Memory& memory = memories_[static_cast<size_t>(tile.memory)];
  Place place;
  resolve(tile, place);
  int64_t rows = tile.extents[0], columns = tile.extents[1];
  out.rows = transpose ? columns : rows;
  out.columns = transpose ? rows : columns;
  out.cells.resize(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i) {
    int64_t row = place.axes[0][static_cast<size_t>(i)];
    for (int64_t j = 0; j < columns; ++j) {
      int64_t column = place.axes[1][static_cast<size_t>(j)];
      Cell cell = Cell::integer(0);
      if (!place.outside && row != kOutside && column != kOutside) {
        bool known = place.base != kUnknown && row != kUnknown && column != kUnknown;
        cell = known ? memory.load(place.base + row + column, block_) : Cell::undecided();
      }
      out.cells[static_cast<size_t>(transpose ? j * rows + i : i * columns + j)] = cell;
    }
  }
  if (!is_float(memory.type())) return;
  size_t count = out.cells.size();
  out.values.resize(count);
  for (size_t at = 0; at < count; ++at) {
    const Cell& cell = out.cells[at];
    bool special = cell.is_undecided() || !std::isfinite(cell.v);
    out.values[at] = special ? 0 : cell.v;
    if (special && out.special_rows.empty()) {
      out.special_rows.assign(static_cast<size_t>(out.rows), 0);
      out.special_columns.assign(static_cast<size_t>(out.columns), 0);
    }
    if (special) {
      out.special_rows[at / static_cast<size_t>(out.columns)] = 1;
      out.special_columns[at % static_cast<size_t>(out.columns)] = 1;
    } else if (cell.e != 0) {
      out.has_errors = true;
    }
  }
  if (!out.has_errors) return;
  out.errors.resize(count);
  for (size_t at = 0; at < count; ++at) out.errors[at] = out.cells[at].is_undecided() ? 0 : out.cells[at].e;
}

namespace {

// One row of C: sum of a[k] * B[k, :], of magnitudes, and of what the operands' errors come to.
struct Row {
  std::vector<double> sum, magnitude, error;
};

void accumulate(double a, const double* b, int64_t n, double* sum, double* magnitude) {
  const double size = std::abs(a);
  int64_t j = 0;
  for (; j + 4 <= n; j += 4)
    for (int lane = 0; lane < 4; ++lane) {  // a fixed count, for the vectoriser
      sum[j + lane] += a * b[j + lane];
      magnitude[j + lane] += size * std::abs(b[j + lane]);
    }
  for (; j < n; ++j) {
    sum[j] += a * b[j];
    magnitude[j] += size * std::abs(b[j]);
  }
}

// A sum with infinite, NaN or undecided terms.
class SpecialSum {
 public:
  void add(const Cell& a, const Cell& b) {
    if (a.is_undecided() || b.is_undecided()) return spoil();
    if (a.v != a.v || b.v != b.v) return term(a.v + b.v);
    if (!std::isinf(a.v) && !std::isinf(b.v)) return;
    const Cell& other = std::isinf(a.v) ? b : a;
    if (other.e != 0 && std::abs(other.v) <= other.e) return spoil();
    term(a.v * b.v);
  }
  void add(const Cell& c) {
    if (c.is_undecided()) return spoil();
    if (!std::isfinite(c.v)) term(c.v);
  }
  Cell result() const { return undecided_ ? Cell::undecided() : Cell::exact(total_); }

 private:
  void spoil() { undecided_ = true; }
  void term(double v) { total_ += v; }
  bool undecided_ = false;
  double total_ = 0;
};

}  // namespace

namespace {

// Relative to the sum of magnitudes of the products, and of those and C.
struct Loss {
  double of_products = 0, of_all = 0;
};
Loss loss_of(Precision precision, DType a, DType b, int64_t k) {
  if (precision == Precision::kTf32) return {0x1p-9 + 0x1p-20, 0};
  if (!is_float8(a) || !is_float8(b)) return {};
  const bool fast = precision == Precision::kFast;
  const auto run = static_cast<double>(fast ? k : std::min(k, kF8Run));
  const double lost = std::expm1((run + 2 * std::ceil(run / 16)) * 0x1p-13);
  return fast ? Loss{0, lost} : Loss{lost, 0};
}

}  // namespace

void Interpreter::gemm_floats(const Node& node, const Matrix& a, const Matrix& b, std::vector<Cell>& c) {
  const DType type_a = memories_[static_cast<size_t>(program_.tiles[static_cast<size_t>(node.tiles[1])].memory)].type();
  const DType type_b = memories_[static_cast<size_t>(program_.tiles[static_cast<size_t>(node.tiles[2])].memory)].type();
  const int64_t m = a.rows, k = a.columns, n = b.columns;
  const auto width = static_cast<size_t>(n);
  const double roundings = static_cast<double>(k + 2);
  const bool in_parts = (type_a == DType::F32 && bits(type_b) == 16) || (type_b == DType::F32 && bits(type_a) == 16);
  // Parts but for the first are 2^-8 of it and less; what is left out of them is 2^-24.
  const double of_parts = in_parts ? static_cast<double>(k) / 128 + 2 : 0;
  const double relative = (roundings + of_parts) * 0x1p-23 * (1 + 0x1p-20);
  const Loss loss = loss_of(node.precision, type_a, type_b, k);
  Row row;
  for (int64_t i = 0; i < m; ++i) {
    row.sum.assign(width, 0);
    row.magnitude.assign(width, 0);
    row.error.assign(width, 0);
    for (int64_t p = 0; p < k; ++p) {
      const auto left = static_cast<size_t>(i * k + p), right = static_cast<size_t>(p * n);
      double value = a.values[left];
      if (value != 0) accumulate(value, &b.values[right], n, row.sum.data(), row.magnitude.data());
      double size = std::abs(value), error = a.has_errors ? a.errors[left] : 0;
      if (error != 0)
        for (size_t j = 0; j < width; ++j) row.error[j] += error * std::abs(b.values[right + j]);
      if (b.has_errors)
        for (size_t j = 0; j < width; ++j) row.error[j] += (size + error) * b.errors[right + j];
    }
    bool special_row = !a.special_rows.empty() && a.special_rows[static_cast<size_t>(i)];
    for (size_t j = 0; j < width; ++j) {
      Cell& out = c[static_cast<size_t>(i) * width + j];
      const double magnitude = row.magnitude[j], error = row.error[j];
      bool special_column = !b.special_columns.empty() && b.special_columns[j];
      if (special_row || special_column || out.is_undecided() || !std::isfinite(out.v)) {
        SpecialSum sum;
        sum.add(out);
        for (int64_t p = 0; p < k; ++p)
          sum.add(a.cells[static_cast<size_t>(i * k + p)], b.cells[static_cast<size_t>(p * n) + j]);
        out = sum.result();
        if (in_parts && std::isinf(out.v) && (special_row || special_column)) out = Cell::undecided();
        // An infinity meets the opposite one where the finite products may overflow to it.
        if (std::isinf(out.v) && !out.is_undecided() && magnitude + error > kLargestF32) out = Cell::undecided();
        if (!std::isfinite(out.v) || out.is_undecided()) continue;
        assert(false && "a special operand makes a special sum");
      }
      // Adds zeros; where C is part of a run it is cut all the same.
      if (magnitude == 0 && error == 0 && (loss.of_all == 0 || out.v == 0)) continue;
      double whole = magnitude + error + std::abs(out.v) + out.e;
      double e = out.e + error + (magnitude + error) * loss.of_products + whole * loss.of_all + relative * whole +
                 roundings * 0x1p-149;
      out = whole + e <= kLargestF32 ? Cell::of(out.v + row.sum[j], e) : Cell::undecided();
    }
  }
}

void Interpreter::gemm_integers(const Matrix& a, const Matrix& b, DType type, std::vector<Cell>& c) {
  const int64_t m = a.rows, k = a.columns, n = b.columns;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < k; ++p) {
      const Cell& left = a.cells[static_cast<size_t>(i * k + p)];
      const Cell* right = &b.cells[static_cast<size_t>(p * n)];
      Cell* out = &c[static_cast<size_t>(i * n)];
      for (int64_t j = 0; j < n; ++j) {
        out[j].i = static_cast<int64_t>(static_cast<uint64_t>(out[j].i) +
                                        static_cast<uint64_t>(left.i) * static_cast<uint64_t>(right[j].i));
        out[j].e += left.e + right[j].e;
      }
    }
  for (Cell& cell : c) cell.i = wrap_integer(type, cell.i);
}

void Interpreter::gemm(const Node& node) {
  Matrix a, b, c;
  read_matrix(node.tiles[1], node.transpose_a, a);
  read_matrix(node.tiles[2], node.transpose_b, b);
  if (!spend(a.rows * a.columns * b.columns / 8 + 1)) return;  // a product costs less than a scalar operation
  const TileInfo& tile = program_.tiles[static_cast<size_t>(node.tiles[0])];
  Memory& memory = memories_[static_cast<size_t>(tile.memory)];
  read_matrix(node.tiles[0], false, c);
  if (!node.accumulate) c.cells.assign(c.cells.size(), Cell::integer(0));
  if (memory.type() == DType::F32)
    gemm_floats(node, a, b, c.cells);
  else
    gemm_integers(a, b, memory.type(), c.cells);
  Place place;
  resolve(tile, place);
  if (place.unknown) return memory.taint(block_);
  if (place.outside) return;
  const DType held = compute_type(memory.type());
  for (int64_t i = 0; i < c.rows; ++i)
    for (int64_t j = 0; j < c.columns; ++j) {
      int64_t row = place.axes[0][static_cast<size_t>(i)], column = place.axes[1][static_cast<size_t>(j)];
      if (row == kOutside || column == kOutside) continue;
      const Cell& cell = c.cells[static_cast<size_t>(i * c.columns + j)];
      memory.store(place.base + row + column, convert_cell(cell, held, memory.type()), block_, false);
    }
}

}  // namespace kachel::ir
