#include "lowering/space/estimate.h"

#include <algorithm>
#include <cmath>

#include "lowering/machine/cpu_machine.h"
#include "lowering/machine/machine.h"
#include "lowering/machine/rates.h"

namespace kachel::lowering {
namespace {

double ceil_of(double value) {
  return std::ceil(value - 1e-9);
}

// How much more elements tiles cover than there are.
double padding(const Outline& outline) {
  double factor = 1;
  for (const CoverOutline& cover : outline.covers()) {
    const auto total = outline.value(cover.total), extent = outline.value(cover.extent);
    if (!total || !extent || *total < 1 || *extent < 1) continue;
    const auto all = static_cast<double>(*total), each = static_cast<double>(*extent);
    factor *= ceil_of(all / each) * each / all;
  }
  return factor;
}

// 0 where it cannot be known.
double blocks(const Outline& outline) {
  double count = 1;
  for (const Extent& axis : outline.grid()) {
    const auto extent = outline.value(axis);
    if (!extent) return 0;
    count *= static_cast<double>(std::max<int64_t>(*extent, 1));
  }
  return count;
}

// Of what multiprocessors could do, by what they do.
double idle(const Outline& outline) {
  const double waves = blocks(outline) / std::max(outline.question().multiprocessors, 1);
  return waves > 0 ? ceil_of(waves) / waves : 1;
}

struct Iteration {
  double products = 0;  // multiply-adds
  double bytes = 0;     // that loops fill tiles with
  double stages = 1;
};

Iteration iteration_of(const Outline& outline) {
  Iteration sum;
  for (const TileOutline& tile : outline.tiles()) {
    if (!tile.streamed) continue;
    sum.bytes += static_cast<double>(outline.elements(tile).value_or(0)) * tile.bits / 8;
    if (tile.stages) sum.stages = std::max(sum.stages, static_cast<double>(outline.value(*tile.stages).value_or(1)));
  }
  for (const ProductOutline& product : outline.products()) {
    const auto m = outline.value(product.m), n = outline.value(product.n), k = outline.value(product.k);
    if (m && n && k) sum.products += static_cast<double>(*m) * static_cast<double>(*n) * static_cast<double>(*k);
  }
  return sum;
}

// Multiply-adds in a clock of a multiprocessor.
double product_rate(const Outline& outline, const Rates& rates) {
  const ProductOutline& product = outline.products()[0];
  const int architecture = outline.question().target.architecture;
  auto rate = [&](ProductKind kind) { return rates.multiply_adds[static_cast<size_t>(kind)]; };
  const bool wide = product.bits >= 32, narrow = product.bits <= 8;
  // wgmma takes whole groups of 64 rows.
  const int64_t rows = outline.value(product.m).value_or(kGroupRows);
  const bool group = has_group_mma(architecture) && rows % kGroupRows == 0;
  const double found = group ? rate(wide     ? ProductKind::kGroup32
                                    : narrow ? ProductKind::kGroup8
                                             : ProductKind::kGroup16)
                             : rate(wide     ? ProductKind::kWarp32
                                    : narrow ? ProductKind::kWarp8
                                             : ProductKind::kWarp16);
  return std::max(found, 128.0);
}

double on_gpu(const Outline& outline, const Footprint& footprint) {
  constexpr double kIteration = 60;        // clocks for the barriers and indices of an iteration
  constexpr double kBlock = 2048;          // elements that take as long as a block's beginning and end
  constexpr double kOtherRegisters = 1.5;  // of those of fragments
  const int architecture = outline.question().target.architecture;
  const Rates& rates = rates_of(architecture);
  const double around = padding(outline) * idle(outline);
  if (outline.products().empty()) {
    const double elements = std::max(static_cast<double>(footprint.elements), 1.0);
    const double crowded = static_cast<double>(footprint.registers) / machine_of(architecture).registers_per_sm;
    return around * (1 + kBlock / elements + crowded);
  }
  const Iteration each = iteration_of(outline);
  const int64_t by_registers =
      machine_of(architecture).registers_per_sm /
      std::max<int64_t>(static_cast<int64_t>(kOtherRegisters * static_cast<double>(footprint.registers)), 1);
  const auto resident = static_cast<double>(std::clamp<int64_t>(by_registers, 1, resident_of(outline, footprint)));
  const double products = each.products / product_rate(outline, rates), bytes = each.bytes / rates.l2_bytes;
  const double waiting = (rates.latency_clocks + bytes) / (each.stages * resident);
  return around * (std::max({products, bytes, waiting}) + kIteration / resident) / std::max(each.products, 1.0);
}

double on_cpu(const Outline& outline, const Footprint& footprint) {
  constexpr double kLoop = 512;                   // elements that take as long as a block or an iteration by itself
  constexpr double kFirstLevel = 8192, kFew = 8;  // elements; blocks, of which some threads would get none
  double cost = padding(outline);
  if (const double count = blocks(outline); count > 0 && count < kFew) cost *= std::sqrt(kFew / count);
  if (outline.products().empty()) {
    const double elements = std::max(static_cast<double>(footprint.elements), 1.0);
    return cost * (1 + kLoop / elements + std::max(0.0, std::log2(elements / kFirstLevel)) / 8);
  }
  double used = 0;
  for (const ProductOutline& product : outline.products()) {
    const auto m = outline.value(product.m), n = outline.value(product.n), k = outline.value(product.k);
    if (!m || !n || !k) continue;
    used += 1.0 / static_cast<double>(*m) + 1.0 / static_cast<double>(*n) + 1.0 / static_cast<double>(*k);
  }
  const double held = static_cast<double>(footprint.shared_bytes + 4 * footprint.registers);
  const double beyond = std::max(0.0, std::log2(held / static_cast<double>(2 * kAheadBytes)));
  return cost * (1 + 4 * used) * (1 + beyond / 2);
}

}  // namespace

double estimate(const Outline& outline, const Footprint& footprint) {
  return outline.is_cpu() ? on_cpu(outline, footprint) : on_gpu(outline, footprint);
}

}  // namespace kachel::lowering
