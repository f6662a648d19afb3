// Why these bounds. Let u be the unit of the narrowest rounding on the way and U the output's own.
//
//  - The last rounding to the output type may fall on either side of a tie: 2 U relative.
//  - A sum of n terms in f32 in another order moves by about n * 2^-24 of the sum of magnitudes. Against the largest
//    output that is below 2^-13 for any n up to 2^20 of random sign, hence at least that much absolute.
//  - Where intermediates are rounded to a narrow type at a point that depends on the configuration (the probabilities
//    of a blocked softmax, scaled to another running maximum), each term moves by u; the sum moves by u of its
//    magnitudes, at most a few u of the largest output: 4 u absolute.
//
// A wrong candidate (a lost tile, a race, a shifted index) is off by the order of the values themselves; even for 8-bit
// intermediates, where 4 u is a quarter, most of its elements are outside.
#include "runtime/engine/tuning/output_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/numerics.h"

namespace kachel::runtime {
namespace {

using ir::DType;

constexpr int64_t kCompareAll = int64_t{8} << 20;
constexpr int64_t kPiece = int64_t{32} << 10;

// Half the distance of neighbours at 1.
double unit(DType type) {
  switch (type) {
    case DType::F16:
      return std::ldexp(1, -11);
    case DType::BF16:
      return std::ldexp(1, -8);
    case DType::F8E4M3:
      return std::ldexp(1, -4);
    case DType::F8E5M2:
      return std::ldexp(1, -3);
    default:
      return std::ldexp(1, -24);
  }
}

class Roundings {
 public:
  Roundings(const KernelModel& model, uint64_t types) : model_(model), types_(types) {}

  DType narrowest() {
    for (const ir::Param& param : model_.kernel.params)
      if (param.tensor && param.tensor->direction != ir::Direction::kIn) add(param.tensor->type);
    block(model_.kernel.body);
    return narrowest_;
  }

 private:
  DType resolve(const ir::TypeRef& type) const {
    if (!type.symbol) return type.dtype;
    const auto found = std::find(model_.types.begin(), model_.types.end(), type.symbol->name);
    const auto bound = static_cast<DType>(types_ >> (4 * (found - model_.types.begin())) & 15);
    return type.accumulator ? ir::accumulator_type(bound) : bound;
  }
  void add(const ir::TypeRef& type) {
    const DType resolved = resolve(type);
    if (ir::is_float(resolved) && unit(resolved) > unit(narrowest_)) narrowest_ = resolved;
  }
  void casts(const ir::ExprRef& expr) {
    ir::visit(expr, [this](const ir::ExprRef& node) {
      if (node->kind == ir::ExprKind::kCast) add(node->cast_type);
    });
  }
  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) {
        if (resolve(copy->dst.buffer->type) != resolve(copy->src.buffer->type)) add(copy->dst.buffer->type);
      } else if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) {
        // tf32 keeps as many bits as f16. Sums of 8-bit floats keep 13 behind the leading one: where all terms are of
        // one sign, runs of them lose as much as bf16 does, and long ones a quarter.
        const DType operand = resolve(gemm->a.buffer->type);
        if (gemm->precision == ir::Precision::kTf32 && operand == DType::F32) add({DType::F16, nullptr});
        if (ir::is_float8(operand) && ir::is_float8(resolve(gemm->b.buffer->type)))
          add({gemm->precision == ir::Precision::kFast ? DType::F8E4M3 : DType::BF16, nullptr});
      } else if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) {
        add(assign->buffer->type);
        casts(assign->value);
      } else if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) {
        casts(let->value);
      } else if (const auto* parallel = std::get_if<ir::ParallelStmt>(&stmt.node)) {
        block(parallel->body);
      } else if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
        block(loop->body);
      } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        block(branch->then_body);
        block(branch->else_body);
      }
    }
  }

  const KernelModel& model_;
  uint64_t types_;
  DType narrowest_ = DType::F32;
};

// Elements as floats: types of up to 16 bits through a table, since millions of them are read.
class Decoder {
 public:
  explicit Decoder(DType type) : width_(ir::bits(type)) {
    if (width_ > 16) return;
    table_.resize(size_t{1} << width_);
    for (size_t i = 0; i < table_.size(); ++i)
      table_[i] = static_cast<float>(ir::decode_float(type, static_cast<uint32_t>(i)));
  }
  // Elements first .. first + count of the piece, at most kBatch.
  void operator()(const OutputPiece& piece, int64_t first, int64_t count, float* out) const {
    const char* from = piece.bytes.data() + first * (width_ / 8);
    if (width_ > 16) {
      std::memcpy(out, from, static_cast<size_t>(count) * sizeof(float));
    } else if (width_ == 16) {
      std::array<uint16_t, kBatch> raw;
      std::memcpy(raw.data(), from, static_cast<size_t>(count) * 2);
      for (int64_t i = 0; i < count; ++i) out[i] = table_[raw[static_cast<size_t>(i)]];
    } else {
      for (int64_t i = 0; i < count; ++i) out[i] = table_[static_cast<uint8_t>(from[i])];
    }
  }
  static constexpr int64_t kBatch = 2048;

 private:
  int width_;
  std::vector<float> table_;
};

int64_t elements_in(DType type, const OutputPiece& piece) {
  return static_cast<int64_t>(piece.bytes.size()) * 8 / ir::bits(type);
}

}  // namespace

Tolerance tolerance_for(DType output, DType narrowest) {
  if (!ir::is_float(output)) return {};
  return {2 * 2 * unit(output), std::max(4 * unit(narrowest), std::ldexp(1, -13))};
}

DType narrowest_rounding(const KernelModel& model, uint64_t types) {
  return Roundings(model, types).narrowest();
}

namespace {

// Counts elements for which `wrong` holds and words the first of them.
template <class Wrong, class Word>
std::string tally(DType type, const std::vector<OutputPiece>& expected, const std::vector<OutputPiece>& actual,
                  const Wrong& wrong, const Word& word) {
  int64_t count = 0, total = 0;
  std::string first;
  for (size_t p = 0; p < expected.size(); ++p) {
    const int64_t n = elements_in(type, expected[p]);
    total += n;
    if (expected[p].bytes == actual[p].bytes) continue;
    for (int64_t i = 0; i < n; ++i)
      if (wrong(expected[p], actual[p], i) && count++ == 0)
        first = fmt::format("element {} is {}, the reference has {}", expected[p].first_byte * 8 / ir::bits(type) + i,
                            word(actual[p], i), word(expected[p], i));
  }
  if (count == 0) return "";
  return fmt::format("{} of {} elements are wrong; {}", count, total, first);
}

// Without branches on the values: in millions of elements of which half are off by a bit, those cost most.
std::string compare_floats(DType type, const Tolerance& tolerance, const std::vector<OutputPiece>& expected,
                           const std::vector<OutputPiece>& actual) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  const Decoder decode(type);
  std::array<float, Decoder::kBatch> want, got;
  auto in_batches = [&](const OutputPiece& piece, const auto& batch) {
    const int64_t all = elements_in(type, piece);
    for (int64_t first = 0; first < all; first += Decoder::kBatch) batch(first, std::min(all - first, Decoder::kBatch));
  };
  float largest = 0;
  for (const OutputPiece& piece : expected)
    in_batches(piece, [&](int64_t first, int64_t count) {
      decode(piece, first, count, want.data());
      for (int64_t i = 0; i < count; ++i) {
        const float magnitude = std::abs(want[static_cast<size_t>(i)]);
        largest = magnitude > largest && magnitude <= static_cast<float>(kLargest) ? magnitude : largest;
      }
    });
  const double absolute = tolerance.absolute * largest;
  auto is_wrong = [&](size_t i) {
    const double a = want[i], b = got[i], off = std::abs(a - b);
    const bool close = off <= tolerance.relative * std::max(std::abs(a), std::abs(b)) + absolute;
    const bool finite = (std::abs(a) <= kLargest) & (std::abs(b) <= kLargest);
    return !((a == b) | ((a != a) & (b != b)) | (finite & close));
  };
  int64_t wrong = 0, total = 0;
  std::string first_wrong;
  for (size_t p = 0; p < expected.size(); ++p) {
    total += elements_in(type, expected[p]);
    if (expected[p].bytes == actual[p].bytes) continue;
    in_batches(expected[p], [&](int64_t first, int64_t count) {
      decode(expected[p], first, count, want.data());
      decode(actual[p], first, count, got.data());
      int64_t here = 0;
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) here += is_wrong(i);
      if (here && !wrong) {
        size_t i = 0;
        while (!is_wrong(i)) ++i;
        first_wrong =
            fmt::format("element {} is {}, the reference has {}",
                        expected[p].first_byte * 8 / ir::bits(type) + first + static_cast<int64_t>(i), got[i], want[i]);
      }
      wrong += here;
    });
  }
  return wrong ? fmt::format("{} of {} elements are wrong; {}", wrong, total, first_wrong) : "";
}

}  // namespace

std::string compare_pieces(DType type, const Tolerance& tolerance, const std::vector<OutputPiece>& expected,
                           const std::vector<OutputPiece>& actual) {
  using Piece = const OutputPiece&;
  if (!ir::is_float(type)) {
    auto value = [type](Piece piece, int64_t i) { return ir::load_element(type, piece.bytes.data(), i).i; };
    return tally(
        type, expected, actual, [&](Piece want, Piece got, int64_t i) { return value(want, i) != value(got, i); },
        value);
  }
  return compare_floats(type, tolerance, expected, actual);
}

std::vector<ByteRange> pieces_to_compare(int64_t bytes) {
  if (bytes <= kCompareAll) return {{0, bytes}};
  std::vector<ByteRange> pieces;
  const int64_t count = kCompareAll / kPiece;
  for (int64_t i = 0; i < count; ++i) {
    // Multiples of 16 bytes, so that pieces hold whole elements; the last one ends with the span.
    int64_t first = static_cast<int64_t>(static_cast<double>(bytes - kPiece) * static_cast<double>(i) /
                                         static_cast<double>(count - 1));
    pieces.push_back({first / 16 * 16, kPiece});
  }
  const int64_t tail = pieces.back().first;
  pieces.back().size = bytes - tail;
  return pieces;
}

}  // namespace kachel::runtime
