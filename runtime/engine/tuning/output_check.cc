#include "runtime/engine/tuning/output_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/numerics.h"

namespace kachel::runtime {
namespace {

using ir::DType;

constexpr int64_t kCompareAll = int64_t{8} << 20;
constexpr int64_t kPiece = int64_t{32} << 10;

// Elements as floats, a batch at a time. Loops without branches and of constant length, which compilers vectorise:
// millions of elements are read for each candidate, while others compile.
class Decoder {
 public:
  static constexpr size_t kBatch = 2048;
  using Batch = std::array<float, kBatch>;

  explicit Decoder(DType type) : type_(type) {
    if (ir::bits(type) != 8) return;
    for (uint32_t i = 0; i < table_.size(); ++i) table_[i] = static_cast<float>(ir::decode_float(type, i));
  }
  // Elements first .. first + count of the sample, count <= kBatch; zeros behind them.
  void operator()(const OutputSample& sample, int64_t first, int64_t count, Batch* out) const {
    const int64_t width = ir::bits(type_) / 8;
    const char* from = sample.bytes.data() + first * width;
    const auto bytes = static_cast<size_t>(count * width);
    if (width == 4) {
      if (bytes < sizeof(*out)) out->fill(0);
      std::memcpy(out->data(), from, bytes);
    } else if (width == 2) {
      std::array<uint16_t, kBatch> raw;
      if (bytes < sizeof(raw)) raw.fill(0);
      std::memcpy(raw.data(), from, bytes);
      type_ == DType::BF16 ? of_bf16(raw, out) : of_f16(raw, out);
    } else {
      out->fill(0);
      for (size_t i = 0; i < bytes; ++i) (*out)[i] = table_[static_cast<uint8_t>(from[i])];
    }
  }

 private:
  static void of_bf16(const std::array<uint16_t, kBatch>& raw, Batch* out) {
    for (size_t i = 0; i < kBatch; ++i) (*out)[i] = std::bit_cast<float>(uint32_t{raw[i]} << 16);
  }
  // The exponent's bias is 15, not 127: as f32 the same bits are too small by 2^112, subnormal ones too.
  static void of_f16(const std::array<uint16_t, kBatch>& raw, Batch* out) {
    for (size_t i = 0; i < kBatch; ++i) {
      const uint32_t bits = raw[i], sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
      const uint32_t infinite = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
      const uint32_t scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
      (*out)[i] = std::bit_cast<float>(sign | scaled | infinite);
    }
  }

  DType type_;
  std::array<float, 256> table_{};  // of 8-bit types
};

int64_t elements_in(DType type, const OutputSample& sample) {
  return static_cast<int64_t>(sample.bytes.size()) * 8 / ir::bits(type);
}

// Where element i of the sample stands in its output.
int64_t index_in_output(DType type, const OutputSample& sample, int64_t i) {
  for (const ByteRange& place : sample.places) {
    const int64_t count = place.size * 8 / ir::bits(type);
    if (i < count) return place.first * 8 / ir::bits(type) + i;
    i -= count;
  }
  return i;
}

Mismatch compare_integers(DType type, const Tolerance& tolerance, const OutputSample& expected,
                          const OutputSample& actual) {
  auto value = [&](const OutputSample& sample, int64_t i) { return ir::load_element(type, sample.bytes.data(), i).i; };
  const int64_t total = elements_in(type, expected);
  int64_t neighbours = 0, others = 0;
  std::string first;
  const bool equal = expected.bytes == actual.bytes;
  for (int64_t i = 0; !equal && i < total; ++i) {
    const int64_t want = value(expected, i), got = value(actual, i);
    if (want == got) continue;
    const uint64_t apart = want > got ? static_cast<uint64_t>(want) - static_cast<uint64_t>(got)
                                      : static_cast<uint64_t>(got) - static_cast<uint64_t>(want);
    if (neighbours + others == 0)
      first = fmt::format("element {} is {}, the reference has {}", index_in_output(type, expected, i), got, want);
    ++(apart == 1 ? neighbours : others);
  }
  constexpr int64_t kFew = 16;
  auto allowed = [&](double share) { return static_cast<int64_t>(share * static_cast<double>(total)); };
  const int64_t spare = tolerance.others > 0 && total >= kFew ? 1 : 0;
  if (others <= std::max(allowed(tolerance.others), spare) &&
      neighbours + others <= std::max(allowed(tolerance.neighbours), spare))
    return {0, total, {}};
  return {neighbours + others, total,
          fmt::format("{} of {} elements are wrong; {}", neighbours + others, total, first)};
}

bool is_finite(float x) {
  return std::abs(x) <= std::numeric_limits<float>::max();
}

// Calls batch(first, count) on all elements.
template <class Fn>
void in_batches(DType type, const OutputSample& sample, const Fn& batch) {
  constexpr auto kMost = static_cast<int64_t>(Decoder::kBatch);
  const int64_t all = elements_in(type, sample);
  for (int64_t first = 0; first < all; first += kMost) batch(first, std::min(all - first, kMost));
}

float largest_of(DType type, const OutputSample& sample) {
  const Decoder decode(type);
  Decoder::Batch values;
  float largest = 0;
  in_batches(type, sample, [&](int64_t first, int64_t count) {
    decode(sample, first, count, &values);
    for (const float value : values) largest = is_finite(value) ? std::max(largest, std::abs(value)) : largest;
  });
  return largest;
}

// Whether all are close, and none an infinity or no number; some that are close may be missed, since the smaller of two
// magnitudes bounds how far apart they may be, and what is infinitely far apart is not less than anything.
bool all_surely_close(const Decoder::Batch& want, const Decoder::Batch& got, float relative, float absolute) {
  int32_t doubtful = 0;
  for (size_t i = 0; i < Decoder::kBatch; ++i) {
    const float a = std::abs(want[i]), b = std::abs(got[i]), smaller = b < a ? b : a;
    doubtful += !(std::abs(want[i] - got[i]) < relative * smaller + absolute);
  }
  return doubtful == 0;
}

Mismatch compare_floats(DType type, float relative, float absolute, const OutputSample& expected,
                        const OutputSample& actual) {
  const Decoder decode(type);
  Decoder::Batch want, got;
  auto is_wrong = [&](size_t i) {
    const float a = want[i], b = got[i];
    const bool close = std::abs(a - b) <= relative * std::max(std::abs(a), std::abs(b)) + absolute;
    return !((a == b) | ((a != a) & (b != b)) | (is_finite(a) & is_finite(b) & close));
  };
  int64_t wrong = 0;
  std::string first_wrong;
  in_batches(type, expected, [&](int64_t first, int64_t count) {
    const size_t from = static_cast<size_t>(first * ir::bits(type) / 8),
                 bytes = static_cast<size_t>(count * ir::bits(type) / 8);
    if (std::memcmp(&expected.bytes[from], &actual.bytes[from], bytes) == 0) return;
    decode(expected, first, count, &want);
    decode(actual, first, count, &got);
    if (all_surely_close(want, got, relative, absolute)) return;
    int32_t here = 0;
    for (size_t i = 0; i < Decoder::kBatch; ++i) here += is_wrong(i);
    if (here && !wrong) {
      size_t i = 0;
      while (!is_wrong(i)) ++i;
      first_wrong = fmt::format("element {} is {}, the reference has {}",
                                index_in_output(type, expected, first + static_cast<int64_t>(i)), got[i], want[i]);
    }
    wrong += here;
  });
  const int64_t total = elements_in(type, expected);
  if (!wrong) return {0, total, {}};
  return {wrong, total, fmt::format("{} of {} elements are wrong; {}", wrong, total, first_wrong)};
}

}  // namespace

OutputReference::OutputReference(DType type, OutputSample sample)
    : type_(type), sample_(std::move(sample)), largest_(ir::is_float(type) ? largest_of(type, sample_) : 0) {}

Mismatch OutputReference::compare(const Tolerance& tolerance, const OutputSample& actual) const {
  if (ir::is_float(type_))
    return compare_floats(type_, static_cast<float>(tolerance.relative),
                          static_cast<float>(tolerance.absolute * static_cast<double>(largest_)), sample_, actual);
  return compare_integers(type_, tolerance, sample_, actual);
}

double OutputReference::distance(const OutputSample& actual) const {
  if (!ir::is_float(type_) || largest_ == 0) return 0;
  const Decoder decode(type_);
  Decoder::Batch want, got;
  float most = 0;
  in_batches(type_, sample_, [&](int64_t first, int64_t count) {
    decode(sample_, first, count, &want);
    decode(actual, first, count, &got);
    for (size_t i = 0; i < Decoder::kBatch; ++i) {
      const float apart = std::abs(want[i] - got[i]);
      most = is_finite(apart) ? std::max(most, apart) : most;
    }
  });
  return static_cast<double>(most) / static_cast<double>(largest_);
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
