// Prefix reductions: on a GPU by the layout of their region (layout_scan.h), elsewhere each row by one thread. See
// tile_lowering.h.
#include <limits>

#include "lowering/lower/layout_scan.h"
#include "lowering/tile_ir/hoist_reductions.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;

namespace {

constexpr int64_t kMostHeld = 128;  // elements
constexpr int64_t kPiece = 8;       // on the CPU: additions of one element each would take the latency of one each

// Of what stands before the first element.
ExprRef least_of(ir::ReduceOp op, DType type) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!ir::is_extreme(op) || !ir::is_float(type)) return neutral_element(op, type);
  return ir::make_float(op == ir::ReduceOp::kMax ? -kInfinity : kInfinity);
}

}  // namespace

// By the layout where a thread can hold what it has of the tile.
void TileLowering::scan(const ir::ParallelStmt& region, const ir::Expr& scan, const FragmentLayout* layout) {
  const ir::BufferRef &to = std::get<ir::AssignStmt>(region.body[0].node).buffer, &from = scan.args[0]->buffer;
  if (layout && (layout->registers() <= kMostHeld || in_registers(to) || in_registers(from)))
    return scan_in_layout(region, scan, *layout);
  for (const ir::IterVar& iter : region.iters)
    if (iter.var == scan.args[1]->var) scan_rows(scan, iter, region.iters, to);
}

void TileLowering::scan_in_layout(const ir::ParallelStmt& region, const ir::Expr& scan, const FragmentLayout& layout) {
  const auto& assign = std::get<ir::AssignStmt>(region.body[0].node);
  const size_t rank = region.iters.size();
  std::vector<std::string> names;
  std::vector<size_t> axes;
  size_t axis = 0;
  for (size_t i = 0; i < rank; ++i) {
    axes.push_back(i);
    names.push_back(region.iters[i].var->name);
    if (region.iters[i].var == scan.args[1]->var) axis = i;
  }
  const ir::BufferRef values = temporary("values", scan.type, ir::Scope::kRegister, layout.registers());
  bool ragged = false;
  for (size_t i : axes) ragged |= layout.ragged(i);
  if (ragged)
    unrolled("r", layout.registers(),
             [&](ExprRef at) { store(values, at, neutral_element(scan.reduce, scan.type), nullptr); });
  each_in(layout, names, 1, [&](const Site& site) {
    for (size_t i = 0; i < rank; ++i) values_[region.iters[i].var.get()] = site.coords[i];
    store(values, register_of(layout, axes, site), scalar(scan.args[0], &site), nullptr);
  });
  LayoutScan::Values elements;
  for (int64_t reg = 0; reg < layout.registers(); ++reg)
    elements[reg] = let("value", ir::make_load(values, {int32(reg)}));
  const LayoutScan::Values made = LayoutScan(this, layout, axis, scan.reduce, scan.type).run(elements, scan.inclusive);
  const bool direct = in_registers(assign.buffer);
  const ExprRef least = least_of(scan.reduce, scan.type);
  for (int64_t reg = 0; reg < layout.registers(); ++reg) {
    const auto found = made.find(reg);
    ExprRef value = found == made.end() ? least : found->second;
    if (found != made.end() && !scan.inclusive && ir::is_extreme(scan.reduce) && ir::is_float(scan.type))
      value = combined(scan.reduce, value, least);
    store(direct ? storage(assign.buffer) : values, int32(reg), value, nullptr);
  }
  if (direct) return;
  each_in(layout, names, 1, [&](const Site& site) {
    store(storage(assign.buffer), offset(assign.buffer, site.coords, &site),
          ir::make_load(values, {register_of(layout, axes, site)}), site.owner);
  });
}

ir::BufferRef TileLowering::scan_into_temporary(const ir::Expr& scan, const std::vector<ir::IterVar>& outer) {
  auto tile = std::make_shared<ir::Buffer>(
      ir::Buffer{"scanned", ir::Scope::kShared, ir::Direction::kInOut, {scan.type, nullptr}, {}, {}});
  int64_t elements = 1;
  for (const ir::IterVar& iter : outer) {
    tile->shape.push_back(iter.extent);
    elements *= iter.extent->int_value;
  }
  storage_[tile.get()] = temporary("scanned", scan.type, ir::Scope::kShared, elements);
  scan_rows(scan, scan.iters[0], outer, tile);
  return tile;
}

// Rows side by side, each in order. The operand names its place along the row by `along`.
void TileLowering::scan_rows(const ir::Expr& scan, const ir::IterVar& along, const std::vector<ir::IterVar>& outer,
                             const ir::BufferRef& tile) {
  const DType type = scan.type;
  std::vector<int64_t> rows;
  std::vector<std::string> names;
  for (const ir::IterVar& iter : outer) {
    if (iter.var == scan.args[1]->var) continue;
    rows.push_back(iter.extent->int_value);
    names.push_back(iter.var->name);
  }
  if (rows.empty()) rows.push_back(1), names.push_back("row");
  const ir::BufferRef sum = temporary("sum", type, ir::Scope::kRegister, 1);
  const ExprRef zero = ir::make_int(0, DType::I32);
  const ExprRef first = scan.inclusive ? neutral_element(scan.reduce, type) : least_of(scan.reduce, type);
  each(rows, names, false, [&](const Site& site) {
    size_t row = 0;
    std::vector<ExprRef> coords;
    for (const ir::IterVar& iter : outer) {
      const bool scanned = iter.var == scan.args[1]->var;
      coords.push_back(scanned ? nullptr : site.coords[row++]);
      if (!scanned) values_[iter.var.get()] = coords.back();
    }
    // So many elements from `from` on: their own prefixes do not wait for what stands before the first of them.
    auto piece = [&](const ExprRef& from, int64_t length) {
      const ExprRef before = let("before", ir::make_load(sum, {zero}));
      ExprRef own;
      for (int64_t i = 0; i < length; ++i) {
        const ExprRef k = i ? let("k", plus(from, int64(i))) : from;
        values_[along.var.get()] = k;
        std::vector<ExprRef> at = coords;
        for (ExprRef& coord : at)
          if (!coord) coord = k;
        const ExprRef earlier = own, value = let("value", scalar(scan.args[0], &site));
        own = own ? let("own", combined(scan.reduce, own, value)) : value;
        ExprRef result = scan.inclusive ? own : earlier;
        result = result ? combined(scan.reduce, before, result) : before;
        store(storage(tile), offset(tile, at, &site), result, nullptr);
      }
      store(sum, zero, combined(scan.reduce, before, own), nullptr);
    };
    store(sum, zero, first, nullptr);
    const int64_t extent = along.extent->int_value;
    const int64_t length = on_cpu() && !target_.generic && extent > kPiece ? kPiece : 1;
    const std::string& name = along.var->name;
    serial(name, int64(extent / length), false,
           [&](ExprRef number) { piece(length == 1 ? number : let(name, times(number, length)), length); });
    if (extent % length) piece(int64(extent / length * length), extent % length);
  });
}

}  // namespace kachel::lowering
