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
  const int64_t width = read.words ? kWordBytes * read.words : read.loaded();
  ExprRef guard = in_bounds(tensor, indices, nullptr);
  if (read.padded && guard) guard = let("inside", guard);
  const ExprRef reader = read.written && !planted(Planted::kReplicasRead) ? site.owner : nullptr;
  if (width == 1 && !read.ahead) {
    store(to, slot, convert(load(tensor, indices, &site), to->type.dtype), reader);
    return guard;
  }
  const ExprRef wanted = read.guard ? let("wanted", scalar(read.guard, &site)) : nullptr;
  ExprRef from = offset(tensor, indices, &site);
  const bool bytes = ir::bits(tensor->type.dtype) == 4;
  if (bytes) from = ir::make_typed(Op::kShr, {from, ir::make_int(1, from->type)});
  move(LoopIntrinsic::Kind::kCopyVector, to, slot, bytes ? packed_.at(tensor.get()) : storage(tensor), from, width,
       both(both(reader, wanted), guard));
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

// Into registers in front of the region, or of the pipeline. What is loaded ahead is there already: it moves to where
// the region reads it, and the next iteration's is loaded at once, beside all that this one does. A load that is waited
// for takes as long as the products of a tile; so narrow elements have a register each, since to join two is to wait.
void TileLowering::fetch_once(const RegionRead& read, const std::vector<ir::IterVar>& iters,
                              const FragmentLayout& layout, const std::vector<std::string>& names) {
  const FragmentLayout part = part_of(read, layout);
  const bool nibbles = ir::bits(read.load->buffer->type.dtype) == 4;
  const ir::BufferRef source = nibbles ? packed_.at(read.load->buffer.get()) : storage(read.load->buffer);
  const bool raw = read.ahead && read.width == 1 && ir::bits(source->type.dtype) < 32;
  const auto registers = [&](const char* suffix) {
    const ir::BufferRef made =
        temporary(read.load->buffer->name + suffix, source->type.dtype, ir::Scope::kRegister, part.registers());
    out_.buffers.back().raw = raw;
    return made;
  };
  const ir::BufferRef held = registers("_part");
  const auto [part_names, all] = axes_of(read.axes, names);
  const auto load_all = [this, &read, &iters, &part, &part_names = part_names, &all = all](const ir::BufferRef& to) {
    each_in(part, part_names, read.width, [&](const Site& site) {
      for (size_t i = 0; i < read.axes.size(); ++i) values_[iters[read.axes[i]].var.get()] = site.coords[i];
      fetch(read, to, register_of(part, all, site), site);
    });
  };
  if (read.ahead) {
    const LoopPipeline& pipeline = *ahead_.pipeline;
    const ir::BufferRef further = registers("_next");
    values_[pipeline.var.get()] = pipeline.begin;
    LoopBlock* const here = std::exchange(current_, &ahead_.first);
    load_all(further);
    current_ = here;
    const int64_t together = raw ? 1 : std::gcd(part.registers(), std::max(32 / ir::bits(source->type.dtype), 1));
    for (int64_t i = 0; i < part.registers(); i += together)
      move(LoopIntrinsic::Kind::kCopyVector, held, int32(i), further, int32(i), together, nullptr);
    // Of the last iteration once more, behind it.
    const ExprRef next = let(
        "next", ir::make_typed(Op::kMin, {plus(ir::make_var(pipeline.var), int64(1)), plus(pipeline.end, int64(-1))}));
    if (next->kind == ExprKind::kVar) {
      out_.ranges.set(next->var, out_.ranges.of(ir::make_var(pipeline.var)));
      out_.ranges.set_limit(next->var, pipeline.end);
    }
    values_[pipeline.var.get()] = planted(Planted::kSameAgain) ? ir::make_var(pipeline.var) : next;
    load_all(further);
    values_.erase(pipeline.var.get());
  } else if (read.unchanging) {
    LoopBlock* const here = std::exchange(current_, &ahead_.first);
    load_all(held);
    current_ = here;
  } else {
    load_all(held);
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

}  // namespace kachel::lowering
