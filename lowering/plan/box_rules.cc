#include "lowering/plan/box_rules.h"

#include <fmt/format.h>

#include "lowering/plan/placement.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

constexpr size_t kMostAxes = 5;
constexpr int64_t kColumnBytes = 16;  // a box begins at a multiple of it, or the copy engine traps (found on an H200)

}  // namespace

std::string refuses_boxes(const ir::Kernel& kernel, const ir::TileRef& slice, const Ranges& multiples,
                          uint64_t fact_mask) {
  const ir::BufferRef& tensor = slice.buffer;
  if (!has_fact(kernel, fact_mask, nullptr, Fact::Kind::kIndex32) &&
      !has_fact(kernel, fact_mask, nullptr, Fact::Kind::kExtent32))
    return "extents may not fit in 32 bits";
  if (tensor->shape.size() > kMostAxes) return fmt::format("{} has more than {} axes", tensor->name, kMostAxes);
  if (vector_bytes(kernel, fact_mask, tensor) < kColumnBytes)
    return fmt::format("the facts allow no 16-byte rows of {}", tensor->name);
  if (slice.within_first) return fmt::format("{} is bounded by `within`", tensor->name);
  for (const ir::AxisSpec& axis : slice.axes)
    if (axis.gather || axis.index) return fmt::format("rows of {} are named by an index", tensor->name);
  const ir::ExprRef& column = slice.axes.back().start;
  if (column && multiples.multiple_of(column) * ir::bits(tensor->type.dtype) / 8 % kColumnBytes &&
      !planted(Planted::kBulkColumn))
    return fmt::format("columns of {} may not begin at a multiple of {} bytes", tensor->name, kColumnBytes);
  return "";
}

}  // namespace kachel::lowering
