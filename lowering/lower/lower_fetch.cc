// How a region's reads of tensors come into registers: where each lies, in front of the region or an iteration of the
// pipeline ahead, and one for each group of neighbours that share it. See tile_lowering.h.
#include <algorithm>
#include <numeric>

#include "ir/parallel.h"
#include "lowering/loop_ir/region_index.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/plan/packed_tiles.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

namespace {

constexpr int64_t kWordBytes = 4;  // of eight 4-bit integers

// Of what follows some axes of a region alone: their names, and their numbers.
std::pair<std::vector<std::string>, std::vector<size_t>> axes_of(const std::vector<size_t>& axes,
                                                                 const std::vector<std::string>& names) {
  std::vector<std::string> own;
  for (size_t axis : axes) own.push_back(names[axis]);
  std::vector<size_t> numbers(axes.size());
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  return {std::move(own), std::move(numbers)};
}

}  // namespace

// The elements from the site's on, as they are in the tensor, to `to` from `slot` on.
ExprRef TileLowering::fetch(const RegionRead& read, const ir::BufferRef& to, const ExprRef& slot, const Site& site) {
  const ir::BufferRef& tensor = read.load->buffer;
  std::vector<ExprRef> indices;
  for (const ExprRef& expr : read.indices) indices.push_back(index(expr, &site));
  const int64_t width = read.words ? kWordBytes * read.words : read.value ? read.width / 2 : read.width * read.stride;
  ExprRef guard = in_bounds(tensor, indices, nullptr);
  if (read.padded && guard) guard = let("inside", guard);
  if (width == 1 && !read.ahead) {
    store(to, slot, convert(load(tensor, indices, &site), to->type.dtype), nullptr);
    return guard;
  }
  ExprRef from = offset(tensor, indices, &site);
  const bool bytes = ir::bits(tensor->type.dtype) == 4;
  if (bytes) from = ir::make_typed(Op::kShr, {from, ir::make_int(1, from->type)});
  move(LoopIntrinsic::Kind::kCopyVector, to, slot, bytes ? packed_.at(tensor.get()) : storage(tensor), from, width,
       guard);
  return guard;
}

// Words of eight 4-bit integers in front of the region: four lanes load the same, since each needs a pair of it.
HeldRead TileLowering::fetch_words(const RegionRead& read, const std::vector<ir::IterVar>& iters,
                                   const FragmentLayout& layout, const std::vector<std::string>& names) {
  const FragmentLayout part = part_of(read, layout).merged();
  const ir::BufferRef held =
      temporary(read.load->buffer->name + "_words", ir::DType::U8, ir::Scope::kRegister, kWordBytes * part.registers());
  const auto [part_names, all] = axes_of(read.axes, names);
  each_in(part, part_names, read.words, [&](const Site& site) {
    for (size_t i = 0; i < read.axes.size(); ++i)
      values_[iters[read.axes[i]].var.get()] = times(site.coords[i], read.groups[i]);
    fetch(read, held, times(register_of(part, all, site), kWordBytes), site);
  });
  return {&read, held, nullptr};
}

// Into registers in front of the region, or of the pipeline. What is loaded ahead is there already, and the next
// iteration's is loaded behind the region: a load that is waited for at once takes as long as the products of a tile.
void TileLowering::fetch_once(const RegionRead& read, const std::vector<ir::IterVar>& iters,
                              const FragmentLayout& layout, const std::vector<std::string>& names,
                              std::vector<std::function<void()>>* afterwards) {
  const FragmentLayout part = part_of(read, layout);
  const bool nibbles = ir::bits(read.load->buffer->type.dtype) == 4;
  const ir::BufferRef source = nibbles ? packed_.at(read.load->buffer.get()) : storage(read.load->buffer);
  const ir::BufferRef held =
      temporary(read.load->buffer->name + "_part", source->type.dtype, ir::Scope::kRegister, part.registers());
  const auto [part_names, all] = axes_of(read.axes, names);
  const auto load_all = [this, &read, &iters, part, part_names = part_names, all = all, held] {
    each_in(part, part_names, read.width, [&](const Site& site) {
      for (size_t i = 0; i < read.axes.size(); ++i) values_[iters[read.axes[i]].var.get()] = site.coords[i];
      fetch(read, held, register_of(part, all, site), site);
    });
  };
  if (read.ahead) {
    const LoopPipeline& pipeline = *ahead_.pipeline;
    values_[pipeline.var.get()] = pipeline.begin;
    LoopBlock* const here = std::exchange(current_, &ahead_.first);
    load_all();
    current_ = here;
    values_.erase(pipeline.var.get());
    afterwards->push_back([this, &pipeline, load_all] {
      // Of the last iteration once more, behind it.
      const ExprRef next =
          let("next",
              ir::make_typed(Op::kMin, {plus(ir::make_var(pipeline.var), int64(1)), plus(pipeline.end, int64(-1))}));
      if (next->kind == ExprKind::kVar) {
        out_.ranges.set(next->var, out_.ranges.of(ir::make_var(pipeline.var)));
        out_.ranges.set_limit(next->var, pipeline.end);
      }
      values_[pipeline.var.get()] = planted(Planted::kSameAgain) ? ir::make_var(pipeline.var) : next;
      load_all();
      values_.erase(pipeline.var.get());
    });
  } else if (read.unchanging) {
    LoopBlock* const here = std::exchange(current_, &ahead_.first);
    load_all();
    current_ = here;
  } else {
    load_all();
  }
  fetched_[read.load] = [this, &read, &iters, held, part, nibbles](const Site& site) {
    const ExprRef raw = ir::make_load(held, {planted(Planted::kReadOnce) ? int32(0) : register_of(read, part, site)});
    if (!nibbles) return raw;
    for (size_t i = 0; i < read.axes.size(); ++i)
      if (read.groups[i] > 1)
        values_[iters[read.axes[i]].var.get()] =
            ir::make_typed(Op::kDiv, {site.coords[read.axes[i]], int64(read.groups[i])});
    const ExprRef column = index(read.indices.back(), &site);
    for (size_t axis : read.axes) values_[iters[axis].var.get()] = site.coords[axis];
    return nibble(raw, column, read.load->buffer->type.dtype);
  };
}

// (x + j) / group, where that is the same for all j of the region, without j; else, where groups begin with the region,
// in the number of the group instead.
ExprRef TileLowering::settled(const ExprRef& index, const std::vector<ir::IterVar>& iters, const RegionIndexes& indexes,
                              const FragmentLayout& layout, int64_t* group) {
  return ir::rewrite(index, [&](const ExprRef& node) {
    if (node->kind != ExprKind::kApply || node->op != Op::kDiv || node->args[1]->kind != ExprKind::kInt) return node;
    const std::optional<RegionIndex> at = indexes.split(node->args[0]);
    const int64_t size = node->args[1]->int_value;
    if (!at || at->axis == RegionIndex::kNone || size <= 1 || *group > 1) return node;
    const ExprRef base = at->base ? scalar(at->base, nullptr) : int64(0);
    if (!out_.ranges.proves_nonnegative(base)) return node;
    const int64_t aligned = std::gcd(out_.ranges.multiple_of(base), size);
    const ExprRef first = at->base ? ir::make_typed(Op::kDiv, {at->base, node->args[1]}) : nullptr;
    if (layout.shape()[at->axis] <= aligned) return first ? first : ir::make_int(0, node->type);
    if (aligned < size || !layout.keep({at->axis}).grouped(0, size)) return node;
    *group = size;
    ExprRef number = ir::make_var(iters[at->axis].var);
    if (number->type != node->type) number = ir::make_cast({node->type, nullptr}, number);
    return plus(first, number);
  });
}

// What a thread holds of it.
FragmentLayout TileLowering::part_of(const RegionRead& read, const FragmentLayout& layout) {
  FragmentLayout part = layout.keep(read.axes);
  for (size_t i = 0; i < read.axes.size(); ++i)
    if (read.groups[i] > 1) part = *part.grouped(i, read.groups[i]);
  return part;
}

ExprRef TileLowering::register_of(const RegionRead& read, const FragmentLayout& part, const Site& site) const {
  if (std::all_of(read.groups.begin(), read.groups.end(), [](int64_t group) { return group == 1; }))
    return register_of(part, read.axes, site);
  ExprRef sum;
  for (size_t i = 0; i < read.axes.size(); ++i) {
    const FragmentLayout::Axis &digits = site.layout->axes()[read.axes[i]], &kept = part.axes()[i];
    int64_t scale = 1;
    size_t at = 0;
    for (size_t j = 0; j < digits.size(); ++j) {
      const int64_t next = scale * digits[j].radix, within = std::max<int64_t>(read.groups[i] / scale, 1);
      scale = next;
      if (next <= read.groups[i] && read.groups[i] > 1) continue;
      const ExprRef& digit = site.digits[read.axes[i]][j];
      if (!digits[j].in_thread && !ir::is_int(digit, 0))
        sum = plus(sum, times(within > 1 ? ir::make_typed(Op::kDiv, {digit, int32(within)}) : digit, kept[at].stride));
      ++at;
    }
  }
  return sum ? sum : int32(0);
}

}  // namespace kachel::lowering
