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
#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/machine.h"
#include "lowering/plan/gemm_choice.h"
#include "lowering/plan/packed_tiles.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

namespace {

// Registers that the parts which are loaded in front of a region may take, each: with few fragments, and where these
// take more registers than `kFew`.
constexpr int64_t kMostHeld = 64, kMostHeldBesideMany = 16, kFew = 96;
constexpr int64_t kWidest = 16;  // bytes of one access
constexpr int64_t kWarp = 32;
constexpr int64_t kNibbles = 8;    // that are loaded together
constexpr int64_t kFarthest = 64;  // of a window, from the iteration's own element

// Long iterations are worked on so few at a time. Left to itself the compiler does a step of all of them, then the next
// step, at full rate on registers that it has to find beside the sums; the products of another team come to a stop
// beside that (gelu behind 4096^3 in tiles of 128 x 128, an H200: 244 us, 214 so). In front of products the warp groups
// have nothing else to do, and all at once is quicker.
constexpr int64_t kFewLong = 8;

// Elements of one access to a row of a tile.
int64_t row_vector(const Layout& layout, int64_t bytes) {
  int64_t width = kWidest / bytes;
  for (size_t axis = 0; axis + 1 < layout.shape().size(); ++axis)
    while (layout.axis_stride(axis) % width) width /= 2;
  while (layout.shape().back() % width) width /= 2;
  return width;
}

int64_t most_held(const Placements& placements) {
  return fragment_registers(placements) > kFew ? kMostHeldBesideMany : kMostHeld;
}

bool is_unwritten(const ir::Buffer& buffer) {
  return buffer.scope == ir::Scope::kGlobal && buffer.direction == ir::Direction::kIn;
}

// Whether it is the same wherever it is evaluated.
bool reads_unwritten(const ExprRef& expr) {
  bool all = true;
  ir::visit(expr, [&](const ExprRef& node) {
    all &= node->kind != ExprKind::kReduce && (node->kind != ExprKind::kLoad || is_unwritten(*node->buffer));
  });
  return all;
}

// Whether each iteration reads its own element.
bool as_it_lies(const RegionIndexes& indexes, const ir::Expr& load, size_t rank) {
  bool same = load.args.size() == rank;
  for (size_t axis = 0; same && axis < rank; ++axis) {
    const std::optional<RegionIndex> index = indexes.split(indexes.inlined(load.args[axis]));
    same = index && index->axis == axis && !index->base;
  }
  return same;
}

}  // namespace

// Iterations whose loads are under way together, a power of two: as many as registers have room for beside the sums.
// Each waits for the L2 or the memory, one after the other if alone.
int64_t TileLowering::loads_together(const std::vector<const RegionRead*>& reads, int64_t width) const {
  constexpr int64_t kMost = 8, kMostOfThread = 255;
  constexpr int64_t kBeside = 56;  // registers of a thread: addresses, and what an element's value takes
  int threads = 0;
  for (const Role& role : schedule_.roles) threads += role.threads;
  const int64_t alike = machine_of(target_.architecture).registers_per_sm / std::max(threads, out_.threads);
  const int given = schedule_.roles[0].registers;
  const int64_t registers = given ? given : std::min(alike, kMostOfThread);
  int64_t each = 0;
  for (const RegionRead* read : reads)
    each += std::max<int64_t>(
        width * read->stride * ir::bits(read->value ? read->nibbles : read->load->buffer->type.dtype) / 32, 1);
  const int64_t room = (registers - fragment_registers(placements_) - kBeside) / std::max<int64_t>(each, 1);
  return std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(room, 1, kMost)));
}

bool TileLowering::makes_operand(const ir::ForwardedRegion& region) const {
  return std::any_of(region.stores.begin(), region.stores.end(), [&](const ir::GuardedStore& guarded) {
    return std::any_of(placements_.gemms.begin(), placements_.gemms.end(), [&](const auto& entry) {
      return entry.first->a.buffer == guarded.store.buffer || entry.first->b.buffer == guarded.store.buffer;
    });
  });
}

struct TileLowering::ReadsOfRegion {
  const std::vector<ir::IterVar>& iters;
  const RegionIndexes& indexes;
  const FragmentLayout& layout;
  // What is made for a product stands in its loop, where pairs, kept apart from each other, measured no faster on an
  // H200.
  const bool operand;
  std::set<const ir::Expr*> padded;
  std::vector<RegionRead> reads;
};

std::vector<TileLowering::RegionRead> TileLowering::reads_of(const ir::ForwardedRegion& region,
                                                             const std::unordered_map<const ir::Var*, ExprRef>& lets,
                                                             const FragmentLayout& layout) {
  const RegionIndexes indexes(region.iters, lets);
  ReadsOfRegion found{region.iters, indexes, layout, makes_operand(region), {}, {}};
  for (const ir::LetStmt& let : region.lets) {
    note_nibbles(let.value, indexes, layout, &found.reads);
    ir::visit(let.value, [&](const ExprRef& node) { found.padded.insert(padded_load(*node).get()); });
    for_each_certain_load(let.value, [&](const ExprRef& load) {
      const ir::BufferRef& tensor = load->buffer;
      const bool written = std::any_of(region.stores.begin(), region.stores.end(),
                                       [&](const ir::GuardedStore& guarded) { return guarded.store.buffer == tensor; });
      // Functions are evaluated a few elements at a time where each is loaded for itself: with all in registers the
      // compiler does all of one step first (exact silu in front of wgmma, an H200: 1.2 times as slow).
      if (!written && !region_is_heavy_ && as_it_lies(indexes, *load, region.iters.size()) &&
          suits_matrices(tensor, layout)) {
        RegionRead whole{load.get(), {}, {}};
        whole.matrices = true;
        found.reads.push_back(std::move(whole));
        return;
      }
      const bool shared = tensor->scope == ir::Scope::kShared && !in_registers(tensor);
      const bool row = shared && found.operand && !written && tensor->shape.size() == 1;
      const bool tile = row || (shared && !found.operand && layout.quad_rows());
      if ((tile || is_unwritten(*tensor)) && tensor->type.dtype != ir::DType::Bool && !note_read(load, true, &found))
        note_read(load, false, &found);
    });
  }
  merge_windows(&found.reads);
  return std::move(found.reads);
}

// Adds an index and the axes that it follows. False: the load has to be evaluated where it stands.
bool TileLowering::note_index(const ExprRef& index, bool in_groups, const ReadsOfRegion& region, RegionRead* read) {
  int64_t group = 1;
  ExprRef at = in_groups ? settled(index, region.iters, region.indexes, region.layout, &group) : index;
  if (!region.indexes.split(at)) {
    if (group > 1 || !reads_unwritten(at)) return false;
    // What registers hold for an iteration stands for loads of the region's, not for this one.
    at = ir::rewrite(at, [](const ExprRef& node) {
      return node->kind == ExprKind::kLoad ? ir::make_load(node->buffer, node->args) : node;
    });
  }
  for (const size_t axis : region.indexes.axes_of(at)) {
    const auto known = std::find(read->axes.begin(), read->axes.end(), axis);
    if (known == read->axes.end()) {
      read->axes.push_back(axis);
      read->groups.push_back(group);
    } else if (group > 1 || read->groups[static_cast<size_t>(known - read->axes.begin())] > 1) {
      return false;
    }
  }
  read->indices.push_back(std::move(at));
  return true;
}

// How many iterations, neighbours along the region's last axis, an access serves. What lies between their elements, or
// between two accesses, is loaded too, and may be what other loads want (`window`).
void TileLowering::widen(const ReadsOfRegion& region, bool tile, RegionRead* read) {
  const ir::BufferRef& tensor = read->load->buffer;
  const size_t last = region.iters.size() - 1;
  const int64_t bytes = ir::bits(tensor->type.dtype) / 8;
  if (!bytes || read->axes.back() != last || read->groups.back() != 1 || !region.layout.whole_vectors()) return;
  for (size_t i = 0; i + 1 < read->indices.size(); ++i)
    if (ir::mentions(read->indices[i], region.iters[last].var)) return;
  std::optional<ScaledIndex> row = region.indexes.scaled(read->indices.back());
  const bool rebuilt = row.has_value();  // else the index stays as it is
  if (const auto simple = row ? std::nullopt : region.indexes.split(read->indices.back()); simple)
    row = ScaledIndex{simple->axis, 1, 0, simple->base};
  if (!row || row->axis != last || !row->is_dense()) return;
  const FragmentLayout part = part_of(*read, region.layout);
  const bool windows = rebuilt && !tile && part.registers() == region.layout.registers();
  if (!windows || std::abs(row->constant) > kFarthest) {
    if (row->scale != 1) return;
    if (row->constant) row->base = plus(row->base, int64(std::exchange(row->constant, 0)));
  }
  const int64_t neighbours = std::gcd(region.layout.vector(), part.vector());
  const int64_t multiple = row->base ? out_.ranges.multiple_of(scalar(row->base, nullptr)) : 0;
  const int64_t widest = std::min(kWidest / bytes, tile ? row_vector(placements_.at(tensor.get()).layout, bytes)
                                                        : vector_bytes(kernel_, fact_mask_, tensor) / bytes);
  int64_t width = std::min(neighbours, widest / row->scale);
  while (width && (neighbours % width || multiple % (width * row->scale))) --width;
  if (width * row->scale <= 1) return;
  read->width = width;
  read->stride = row->scale;
  read->row = row;
  if (row->scale == 1 && row->constant % width == 0) return;
  read->window = {{read->load, planted(Planted::kStridedPart) ? 0 : row->constant}};
  read->indices.back() = plus(row->base, times(ir::make_var(region.iters[last].var), row->scale));
}

// Whether an access at most lies between an element of the window and this one.
bool TileLowering::is_near(const RegionRead& read, int64_t element) {
  return std::any_of(read.window.begin(), read.window.end(),
                     [&](const auto& other) { return std::abs(other.second - element) <= read.width * read.stride; });
}

// One for those whose elements are not far from each other.
void TileLowering::merge_windows(std::vector<RegionRead>* reads) {
  const auto joins = [](const RegionRead& one, const RegionRead& other) {
    if (one.load->buffer != other.load->buffer || one.width != other.width || one.stride != other.stride ||
        !other.row || other.once ||
        !std::equal(one.indices.begin(), one.indices.end() - 1, other.indices.begin(), ir::same))
      return false;
    const ExprRef &a = one.row->base, &b = other.row->base;
    if (a ? !b || !ir::same(a, b) : b != nullptr) return false;
    return is_near(one, other.row->constant);
  };
  for (size_t i = 0; i < reads->size(); ++i)
    for (size_t j = 0; j < reads->size() && !(*reads)[i].window.empty(); ++j) {
      RegionRead &one = (*reads)[i], &other = (*reads)[j];
      if (i == j || !joins(one, other)) continue;
      if (other.window.empty()) other.window = {{other.load, other.row->constant}};
      one.padded |= other.padded;
      one.window.insert(one.window.end(), other.window.begin(), other.window.end());
      reads->erase(reads->begin() + static_cast<std::ptrdiff_t>(j));
      i = j = ~size_t{0};  // from the beginning
      break;
    }
}

// With `in_groups` neighbours that read the same share it, if it is loaded in front of the region. False: it cannot be
// so.
bool TileLowering::note_read(const ExprRef& load, bool in_groups, ReadsOfRegion* region) {
  const ir::BufferRef& tensor = load->buffer;
  const bool tile = tensor->scope == ir::Scope::kShared;
  RegionRead read{load.get(), {}, {}};
  for (const ExprRef& arg : load->args)
    if (!note_index(region->indexes.inlined(arg), in_groups, *region, &read)) return false;
  if (read.axes.empty()) return true;
  widen(*region, tile, &read);
  const auto equal = std::find_if(region->reads.begin(), region->reads.end(), [&](const RegionRead& one) {
    return !one.value && !one.matrices && one.load->buffer == tensor && one.window.empty() == read.window.empty() &&
           (read.window.empty() || is_near(one, read.window[0].second)) &&
           std::equal(one.indices.begin(), one.indices.end(), read.indices.begin(), ir::same);
  });
  read.padded = region->padded.count(load.get()) != 0;
  if (equal != region->reads.end()) {
    equal->padded |= read.padded;
    if (read.window.empty())
      read_as_[load.get()] = equal->load;
    else
      equal->window.push_back(read.window[0]);
    return true;
  }
  bool follows_loop = false, own_names = false;
  const bool in_pipeline = ahead_.pipeline && ahead_.depth == loop_depth_;
  for (const ExprRef& index : read.indices) {
    ir::visit(index, [&](const ExprRef& node) {
      own_names |= node->kind == ExprKind::kVar && ahead_.names.count(node->var.get());
      own_names |= node->kind == ExprKind::kLoad;
    });
    follows_loop |= in_pipeline && ir::mentions(index, ahead_.pipeline->var);
  }
  const int64_t all = region->layout.registers(), held = part_of(read, region->layout).registers();
  const bool bytes_only = ir::bits(tensor->type.dtype) < 8, row = tile && region->operand;
  read.once = (row || !tile) && held < all && held <= most_held(placements_);
  read.ahead = read.once && follows_loop && !own_names && !tile;
  const bool grouped = std::any_of(read.groups.begin(), read.groups.end(), [](int64_t size) { return size > 1; });
  if (grouped && !read.once) return false;
  if (bytes_only && !read.ahead) return true;
  if (read.once || read.width > 1 || read.stride > 1 || held < all) region->reads.push_back(std::move(read));
  return true;
}

// The outermost form of each: converted to floats, if it is.
void TileLowering::note_nibbles(const ExprRef& expr, const RegionIndexes& indexes, const FragmentLayout& layout,
                                std::vector<RegionRead>* reads) {
  if (std::optional<RegionRead> read = nibbles_of(expr, indexes, layout)) return reads->push_back(std::move(*read));
  for (const ExprRef& arg : expr->args) note_nibbles(arg, indexes, layout, reads);
}

// q[i, x + j] or T(q[i, x + j]) of a shared tile: the bytes of neighbours together.
std::optional<TileLowering::RegionRead> TileLowering::nibbles_of(const ExprRef& expr, const RegionIndexes& indexes,
                                                                 const FragmentLayout& layout) {
  const size_t rank = layout.shape().size();
  const bool converted = expr->kind == ExprKind::kCast && ir::is_float(expr->cast_type.dtype);
  const std::optional<NibbleRead> nibble = nibble_read(converted ? *expr->args[0] : *expr);
  if (!nibble || nibble->byte->buffer->scope != ir::Scope::kShared || layout.ragged(rank - 1)) return std::nullopt;
  RegionRead read{nibble->byte, {}, {}};
  read.value = expr.get();
  read.nibbles = nibble->type;
  const std::vector<ExprRef>& at = nibble->byte->args;
  ExprRef base;  // of the column
  for (size_t i = 0; i < at.size(); ++i) {
    const bool column = i + 1 == at.size();
    read.indices.push_back(indexes.inlined(at[i]));
    const std::optional<RegionIndex> index = indexes.split(column ? indexes.inlined(nibble->column) : read.indices[i]);
    if (!index || (index->axis == rank - 1) != column) return std::nullopt;
    if (index->axis != RegionIndex::kNone) read.axes.push_back(index->axis);
    base = index->base;
  }
  int64_t multiple = 0;  // divides the column of the first iteration
  read.width = std::min({layout.vector(), 2 * row_vector(placements_.at(read.load->buffer.get()).layout, 1), kNibbles});
  if (base) multiple = out_.ranges.multiple_of(scalar(base, nullptr));
  while (!std::has_single_bit(static_cast<uint64_t>(read.width)) || layout.vector() % read.width ||
         multiple % read.width)
    --read.width;
  if (read.width == 1) return std::nullopt;
  if (converted && read.width == 2 && layout.pairs_in_quads() && multiple % kNibbles == 0) {
    read.groups.assign(read.axes.size(), 1);
    read.groups.back() = kNibbles;
    const FragmentLayout part = part_of(read, layout).merged();
    read.words = std::min(row_vector(placements_.at(read.load->buffer.get()).layout, 1) / 4, part.vector());
    while (read.words && (part.vector() % read.words || multiple % (kNibbles * read.words))) --read.words;
    if (part.registers() > most_held(placements_)) read.words = 0;
    if (!read.words) read.groups.clear();
  }
  return read;
}

// Counted from the first iteration's: whole accesses that hold what `count` iterations read.
TileLowering::Elements TileLowering::elements_of(const RegionRead& read, int64_t count) {
  const int64_t access = read.width * read.stride;
  Elements elements{0, (count - 1) * read.stride + 1};
  if (!read.window.empty()) {
    const auto [first, last] =
        std::minmax_element(read.window.begin(), read.window.end(),
                            [](const auto& one, const auto& other) { return one.second < other.second; });
    elements.begin = first->second, elements.end += last->second;
  }
  const auto floor = [access](int64_t at) { return at - (at % access + access) % access; };
  return {floor(elements.begin), floor(elements.end + access - 1)};
}

void TileLowering::each_with_reads(const std::vector<RegionRead>& reads, const std::vector<ir::IterVar>& iters,
                                   const FragmentLayout& layout, const std::vector<std::string>& names,
                                   const std::function<void(const Site&)>& body, const PackedBody& packed) {
  const size_t rank = iters.size();
  std::vector<const RegionRead*> with_neighbours;
  std::unordered_map<const ir::Buffer*, ir::BufferRef> loaded;  // tile -> registers
  int64_t width = 1;
  std::vector<std::function<void()>> afterwards;
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
    fetch_once(read, iters, layout, names, &afterwards);
  }
  bool ragged = false;
  for (size_t axis = 0; axis < rank; ++axis) ragged |= layout.ragged(axis);
  if (!ragged && layout.threads() % kWarp == 0 && fragment_registers(placements_) > kFew)
    apart_ = width > 1 ? loads_together(with_neighbours, width) : region_is_long_ ? kFewLong : 0;

  // What follows fewer axes is loaded once for those of the others that are walked within.
  WalkOptions options;
  for (const RegionRead* read : with_neighbours)
    if (read->axes.size() < rank && options.early.empty() && !ragged) options.early = read->axes;
  const auto along = [&](const RegionRead& read) {  // the axis of the vector, whichever index follows it
    return std::find(read.axes.begin(), read.axes.end(), rank - 1) != read.axes.end();
  };
  std::vector<HeldRead> held;
  const auto as_numbers = [&](HeldRead* one, int64_t count) {
    if (packed) return;
    const ir::BufferRef numbers = temporary("numbers", ir::DType::F16, ir::Scope::kRegister, count);
    unpack({numbers, int32(0), count}, *one, nullptr);
    one->raw = numbers;
    one->first = nullptr;
  };
  const auto load_each = [&](const Site& first, bool in_front) {
    for (const RegionRead* read : with_neighbours) {
      if (in_front != (read->axes == options.early)) continue;
      for (size_t axis : read->axes) values_[iters[axis].var.get()] = first.coords[axis];
      const int64_t count = along(*read) ? width : 1, per_slot = read->value ? 2 : 1;
      const Elements elements = elements_of(*read, count);
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
  size_t held_in_front = 0;
  options.enter = [&](const Site& first) {
    load_each(first, true);
    held_in_front = held.size();
  };
  each_in(
      layout, names, width,
      [&](const Site& first) {
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(held_in_front), held.end());
        for (size_t axis = 0; axis < rank; ++axis) values_[iters[axis].var.get()] = first.coords[axis];
        load_each(first, false);
        values_[iters.back().var.get()] = first.coords.back();
        if (packed) return packed(first, width, held);
        const auto one = [&](const Site& site, const ExprRef& number) {
          for (const auto& [read, raw, from] : held) {
            ExprRef at = along(*read) ? number : int32(0);
            if (along(*read) && planted(Planted::kReadNeighbours))
              at = ir::make_typed(Op::kSub, {int32(width - 1), number});
            if (read->value && !ir::is_float(read->value->type))
              fetched_[read->value] = [value =
                                           nibble(ir::make_load(raw, {ir::make_typed(Op::kDiv, {number, int32(2)})}),
                                                  number, read->nibbles)](const Site&) { return value; };
            else if (read->window.empty())
              fetched_[read->stands_for()] = [raw = raw, at](const Site&) { return ir::make_load(raw, {at}); };
            for (const auto& [load, place] : read->window) {
              const int64_t begin = elements_of(*read, width).begin;
              fetched_[load] = [raw = raw, slot = plus(times(at, read->stride), int32(place - begin))](const Site&) {
                return ir::make_load(raw, {slot});
              };
            }
          }
          body(site);
        };
        if (width == 1) return one(first, int32(0));
        unrolled(names.back() + "_v", width, [&](ExprRef number) {
          Site site = first;
          site.coords.back() =
              let(names.back(), plus(first.coords.back(), ir::make_cast({ir::DType::I64, nullptr}, number)));
          out_.ranges.set(site.coords.back()->var, {0, layout.shape().back() - 1});
          ExprRef& digit = site.digits.back().front();
          digit = ir::is_int(digit, 0) ? number : plus(digit, number);
          one(site, number);
        });
      },
      options);
  fetched_.clear();
  inside_.clear();
  read_as_.clear();
  for (const std::function<void()>& load : afterwards) load();
}

}  // namespace kachel::lowering
