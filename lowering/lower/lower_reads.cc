// What regions over fragments read of tensors. See tile_lowering.h.
//
// An element R[x + i, y + j] of an iteration (i, j) is loaded together with its neighbours along j, where the thread
// has those iterations too. What follows fewer axes than the region has, b[y + j], is loaded once, in front of the
// region, and not again for every i; where that takes too many registers, once for the rows that are walked within j.
// A tile of 16-bit elements of which each iteration reads its own is loaded by ldmatrix.
#include <algorithm>
#include <bit>
#include <numeric>

#include "ir/parallel.h"
#include "ir/tunable_role.h"
#include "lowering/loop_ir/region_index.h"
#include "lowering/lower/nibble_table.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/machine.h"
#include "lowering/plan/gemm_choice.h"
#include "lowering/plan/packed_tiles.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/long_rows.h"

namespace kachel::lowering {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

namespace {

constexpr int64_t kWarp = 32;

// Long iterations are worked on so few at a time. Left to itself the compiler does a step of all of them, then the next
// step, at full rate on registers that it has to find beside the sums; the products of another team come to a stop
// beside that (gelu behind 4096^3 in tiles of 128 x 128, an H200: 244 us, 214 so). In front of products the warp groups
// have nothing else to do, and all at once is quicker.
constexpr int64_t kFewLong = 8;

// And of a long row, which otherwise comes all at once to registers that another block's row could have.
constexpr int64_t kFewOfRow = 16;

}  // namespace

// Iterations whose loads are under way together, a power of two: as many as registers have room for beside the sums.
// Each waits for the L2 or the memory, one after the other if alone.
int64_t TileLowering::loads_together(const std::vector<const RegionRead*>& reads, int64_t width) const {
  constexpr int64_t kMost = 8, kMostOfThread = 255;
  constexpr int64_t kBeside = 56;  // registers of a thread: addresses, and what an element's value takes
  int threads = 0;
  for (const Role& role : schedule_.roles) threads += role.threads;
  const int64_t alike =
      machine_of(target_.architecture).registers_per_sm / (std::max(threads, out_.threads) / out_.tile_blocks);
  const int given = schedule_.roles[0].registers;
  const int64_t registers = given ? given : std::min(alike, kMostOfThread);
  int64_t each = 0;
  for (const RegionRead* read : reads)
    each += std::max<int64_t>(
        width * read->stride * ir::bits(read->value ? read->unpacked : read->load->buffer->type.dtype) / 32, 1);
  int64_t held = fragment_registers(placements_);
  for (const ir::DeclStmt* decl : unbegun_)
    if (const Placement& of = placements_.at(decl->buffer.get()); !of.turned)
      held -= (of.elements() * ir::bits(of.storage) + 31) / 32;
  const int64_t room = (registers - held - kBeside) / std::max<int64_t>(each, 1);
  return std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(room, 1, kMost)));
}

void TileLowering::each_with_reads(const std::vector<RegionRead>& reads, const std::vector<ir::IterVar>& iters,
                                   const FragmentLayout& layout, const std::vector<std::string>& names,
                                   const std::function<void(const Site&)>& body, const PackedBody& packed,
                                   const Behind& behind) {
  const size_t rank = iters.size();
  std::vector<const RegionRead*> with_neighbours;
  std::unordered_map<const ir::Buffer*, ir::BufferRef> loaded;  // tile -> registers
  int64_t width = behind.width;
  std::vector<HeldRead> words;
  for (const RegionRead& read : reads) {
    if (read.matrices) {
      std::vector<size_t> all(rank);
      std::iota(all.begin(), all.end(), size_t{0});
      ir::BufferRef& tile = loaded[read.load->buffer.get()];
      if (!tile) tile = load_matrices(read.load->buffer, layout);
      fetched_[read.load] = [this, tile, layout, all](const Site& site) {
        return ir::make_load(tile, {register_of(layout, all, site)});
      };
      continue;
    }
    if (read.words) {
      words.push_back(fetch_words(read, iters, layout, names));
      width = std::max(width, read.width);
      continue;
    }
    if (!read.once) {
      with_neighbours.push_back(&read);
      width = std::max(width, read.width);
      continue;
    }
    fetch_once(read, iters, layout, names);
  }
  bool ragged = false;
  for (size_t axis = 0; axis < rank; ++axis) ragged |= layout.ragged(axis);
  WalkOptions options;
  options.most_unrolled = region_written_out_;
  const bool long_rows = has_long_rows(kernel_, out_.tile_blocks);
  const bool many = fragment_registers(placements_) > kFewRegisters;
  // What is apart is kept so by a barrier of the warp, all of whose lanes come there unless some are outside.
  if (!ragged && layout.threads() % kWarp == 0 && (many || long_rows))
    options.apart = width > 1 && !with_neighbours.empty() ? loads_together(with_neighbours, width)
                    : region_is_long_                     ? kFewLong
                    : long_rows                           ? kFewOfRow
                                                          : 0;
  // What follows fewer axes is loaded once for those of the others that are walked within.
  for (const RegionRead* read : with_neighbours)
    if (read->axes.size() < rank && options.early.empty() && !ragged) options.early = read->axes;
  const std::vector<size_t> last_axis{rank - 1};
  if (packed.in_front && options.early.empty() && !ragged) options.early = last_axis;
  const auto along = [&](const RegionRead& read) {  // the axis of the vector, whichever index follows it
    return std::find(read.axes.begin(), read.axes.end(), rank - 1) != read.axes.end();
  };
  std::vector<HeldRead> held;
  const auto as_numbers = [&](HeldRead* one, int64_t count) {
    if (packed.body) return;
    const std::vector<double>& table = one->read->table;
    const bool half =
        ir::bits(one->read->unpacked) == 8 ? ir::is_float8(one->read->unpacked) : are_numbers(ir::DType::F16, table);
    const ir::DType type = half ? ir::DType::F16 : ir::DType::BF16;
    const ir::BufferRef numbers = temporary("numbers", type, ir::Scope::kRegister, count);
    unpack({numbers, int32(0), count}, *one, nullptr);
    one->raw = numbers;
    one->first = nullptr;
  };
  const auto load_each = [&](const Site& first, bool in_front) {
    for (const RegionRead* read : with_neighbours) {
      if (in_front != (read->axes == options.early)) continue;
      for (size_t axis : read->axes) values_[iters[axis].var.get()] = first.coords[axis];
      const int64_t count = along(*read) ? width : 1, per_slot = read->width * read->stride / read->loaded();
      const RegionRead::Elements elements = read->elements(count);
      const int64_t slots = (elements.end - elements.begin) / per_slot;
      held.push_back({read, temporary("raw", read->load->buffer->type.dtype, ir::Scope::kRegister, slots), nullptr});
      for (int64_t at = elements.begin; at < elements.end; at += read->width * read->stride) {
        Site site = first;
        if (at) site.coords.back() = let("at", plus(first.coords.back(), int64(at / read->stride)));
        if (along(*read)) values_[iters.back().var.get()] = site.coords.back();
        const ExprRef inside = fetch(*read, held.back().raw, int32((at - elements.begin) / per_slot), site);
        if (!read->padded || elements.end - elements.begin != read->width * read->stride) continue;
        if (read->window.empty()) inside_[read->load] = inside;
        for (const auto& [load, place] : read->window) inside_[load] = inside;
      }
      if (read->value && ir::is_float(read->value->type)) as_numbers(&held.back(), count);
    }
    for (HeldRead one : in_front ? std::vector<HeldRead>() : words) {
      one.first = times(register_of(*one.read, part_of(*one.read, layout), first), kNibbles / 2);
      as_numbers(&one, one.read->width);
      held.push_back(std::move(one));
    }
  };
  const auto take = [&](const ExprRef& number) {
    for (const auto& [read, raw, from] : held) {
      ExprRef at = along(*read) ? number : int32(0);
      if (along(*read) && planted(Planted::kReadNeighbours)) at = ir::make_typed(Op::kSub, {int32(width - 1), number});
      if (read->value && !ir::is_float(read->value->type) && ir::bits(read->unpacked) == 4)
        fetched_[read->value] = [value = nibble(ir::make_load(raw, {ir::make_typed(Op::kDiv, {number, int32(2)})}),
                                                number, read->unpacked)](const Site&) { return value; };
      else if (read->window.empty())
        fetched_[read->stands_for()] = [raw = raw, at](const Site&) { return ir::make_load(raw, {at}); };
      for (const auto& [load, place] : read->window) {
        const int64_t begin = read->elements(width).begin;
        fetched_[load] = [raw = raw, slot = plus(times(at, read->stride), int32(place - begin))](const Site&) {
          return ir::make_load(raw, {slot});
        };
      }
    }
  };
  const auto enter = [&](const Site& first, const ExprRef& number) {
    Site site = first;
    site.coords.back() = let(names.back(), plus(first.coords.back(), ir::make_cast({ir::DType::I64, nullptr}, number)));
    out_.ranges.set(site.coords.back()->var, {0, layout.shape().back() - 1});
    ExprRef& digit = site.digits.back().front();
    digit = ir::is_int(digit, 0) ? number : plus(digit, number);
    site.neighbour = number;
    values_[iters.back().var.get()] = site.coords.back();
    take(number);
    return site;
  };
  size_t held_in_front = 0;
  options.enter = [&](const Site& first) {
    load_each(first, true);
    held_in_front = held.size();
    if (!packed.in_front || options.early != last_axis) return;
    values_[iters.back().var.get()] = first.coords.back();
    packed.in_front(first, width, held, [&](const ExprRef& number) { return enter(first, number); });
  };
  each_in(
      layout, names, width,
      [&](const Site& first) {
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(held_in_front), held.end());
        for (size_t axis = 0; axis < rank; ++axis) values_[iters[axis].var.get()] = first.coords[axis];
        load_each(first, false);
        values_[iters.back().var.get()] = first.coords.back();
        const auto enter_here = [&](const ExprRef& number) { return enter(first, number); };
        if (packed.body) return packed.body(first, width, held, enter_here);
        if (width == 1) return take(int32(0)), body(first);
        unrolled(names.back() + "_v", width, [&](const ExprRef& number) { body(enter_here(number)); });
        if (behind.body) behind.body(first, width);
      },
      options);
  fetched_.clear();
  inside_.clear();
  read_as_.clear();
}

}  // namespace kachel::lowering
