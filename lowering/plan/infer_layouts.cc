// Layouts of fragments. Every place where fragments meet is a space: a shape with the fragments that are accessed in
// it, each along some of its axes in its own order. Inside a space all fragments follow the layout of the space, so
// that no element has to change its thread.
//
//   strict   accumulators, and A operands in registers, have the layouts of their instruction
//   common   a fragment that spans a space gives it its layout; a space with a layout gives it to its other fragments
//   free     the largest fragment without one gets wide accesses along its last axis; then common again
//
// Where two demands differ the fragment moves to shared memory, and inference starts over: each time with one fragment
// fewer, or with one gemm fewer that adds runs of sums, so it ends. Before the first one does that is more than a right
// operand, warps no longer share k.
#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "lowering/plan/block_threads.h"
#include "lowering/plan/exchanged_places.h"
#include "lowering/plan/free_layouts.h"
#include "lowering/plan/gemm_layouts.h"
#include "lowering/plan/operand_slices.h"
#include "lowering/plan/own_layout.h"
#include "lowering/plan/placement.h"
#include "lowering/plan/region_vectors.h"
#include "lowering/plan/spaces.h"
#include "lowering/plan/tile_memory.h"
#include "lowering/tile_ir/deferred_sums.h"
#include "lowering/tile_ir/hoist_reductions.h"
#include "lowering/tile_ir/hoist_scans.h"
#include "lowering/tile_ir/live_fragments.h"

namespace kachel::lowering {
namespace {

// Of two fragments the smaller one moves to memory, so that a product keeps its own, if it is at least a fourth.
constexpr int64_t kWorthMoving = 4;

class Inference {
 public:
  Inference(const ir::Kernel& kernel, const Target& target, const Schedule& schedule, uint64_t fact_mask)
      : kernel_(kernel),
        target_(target),
        schedule_(schedule),
        fact_mask_(fact_mask),
        collected_(kernel),
        gemms_(collected_.gemms()),
        carried_(deferred_reductions(kernel)) {
    note_loop_ranges(kernel.body, &loops_);
  }

  Placements run() {
    const bool parted =
        std::any_of(gemms_.begin(), gemms_.end(), [](const auto* gemm) { return gemm->c.buffer->parted; });
    if (!parted) return infer(false);
    const Placements sharing = infer(true);
    const bool shares = depth_;
    const Placements apart = infer(false);
    // More warps that share columns are better than fewer that share k.
    return shares && sharing.threads >= apart.threads ? sharing : apart;
  }

 private:
  // `depth`: where sums are in parts, the warps share k, as long as that can be.
  Placements infer(bool depth) {
    memory_ = collected_.memory_tiles();
    without_runs_.clear();
    depth_ = depth;
    while (true) {
      spaces_ = collected_.spaces(memory_);
      part_sums();
      layouts_.clear();
      choices_.clear();
      link_groups();
      choose_gemms();
      const int blocks = std::max(target_.tile_blocks, 1);
      const auto sharing = [this](const auto& gemm) { return sharing_of(gemm); };
      threads_ = blocks * (target_.threads ? target_.threads : choose_threads(kernel_, choices_, sharing, blocks));
      if (strict() && propagate() && free_layouts() && within_budget()) break;
    }
    return result();
  }

  bool is_fragment(const ir::BufferRef& buffer) const {
    return buffer->scope == ir::Scope::kFragment && !memory_.count(buffer.get());
  }
  // Always false: inference starts over.
  bool demote(const ir::BufferRef& buffer, const std::string& reason) {
    if (depth_ && !is_right_operand_alone(gemms_, buffer)) return without_depth();
    memory_[buffer.get()] = reason;
    return false;
  }
  bool without_depth() { return depth_ = false; }
  // Where warps share k a copy from parts to their sum is no place where the two have to agree.
  void part_sums() {
    sums_.clear();
    if (!depth_) return;
    std::erase_if(spaces_, [this](const Space& space) {
      if (space.region || space.uses.size() != 2 || !space.uses[1].buffer->parted) return false;
      sums_[space.uses[1].buffer.get()] = space.uses[0].buffer;
      return true;
    });
  }

  // Fragments that share a space in full: if one of them is a register operand, all are dealt out by rows; or by
  // columns, where the warps of its product share k.
  void link_groups() {
    group_.clear();
    by_rows_.clear();
    by_columns_.clear();
    for (const Space& space : spaces_)
      for (size_t i = 1; i < space.uses.size(); ++i)
        if (space.uses[i].spanned() == space.uses[0].spanned()) join(space.uses[0].buffer, space.uses[i].buffer);
    for (const ir::GemmStmt* gemm : gemms_)
      if (is_fragment(gemm->a.buffer))
        (shares_depth(*gemm) ? by_columns_ : by_rows_).insert(root(gemm->a.buffer.get()));
  }
  const ir::Buffer* root(const ir::Buffer* buffer) const {
    for (auto it = group_.find(buffer); it != group_.end(); it = group_.find(buffer)) buffer = it->second;
    return buffer;
  }
  void join(const ir::BufferRef& a, const ir::BufferRef& b) {
    const ir::Buffer *first = root(a.get()), *second = root(b.get());
    if (first != second) group_[second] = first;
  }
  bool shares_depth(const ir::GemmStmt& gemm) const { return depth_ && gemm.c.buffer->parted; }
  Sharing sharing_of(const ir::GemmStmt& gemm) const {
    if (shares_depth(gemm)) return Sharing::kDepth;
    const ir::Buffer* group = root(gemm.c.buffer.get());
    if (is_fragment(gemm.a.buffer) || by_rows_.count(group)) return Sharing::kRows;
    if (choices_.at(&gemm).b_in_registers || by_columns_.count(group)) return Sharing::kColumns;
    return Sharing::kBoth;
  }

  void choose_gemms() {
    for (const ir::GemmStmt* gemm : gemms_) {
      GemmChoice choice =
          choose_gemm(*gemm, target_,
                      {is_fragment(gemm->a.buffer), is_fragment(gemm->b.buffer), !without_runs_.count(gemm), &loops_});
      if (choice.mma && !is_fragment(gemm->c.buffer)) {
        choice.mma = nullptr;
        choice.crowded_out = true;
        choice.reason = gemm->c.buffer->name + " is not in registers";
      }
      choices_[gemm] = choice;
    }
  }

  bool assign(const ir::BufferRef& buffer, const FragmentLayout& layout, const char* why) {
    auto [it, fresh] = layouts_.try_emplace(buffer.get(), layout);
    if (fresh || it->second == layout) return true;
    if (const ir::BufferRef operand = right_operand_beside(*buffer))
      return demote(operand, "it is made in another layout than its gemm reads");
    return demote(buffer, why);
  }

  // What a product reads best from registers can come from memory, other than what it is made of: sums of a product.
  ir::BufferRef right_operand_beside(const ir::Buffer& buffer) const {
    for (const auto& [gemm, choice] : choices_) {
      const ir::BufferRef& operand = gemm->b.buffer;
      if (choice.b_in_registers && is_fragment(operand) && operand.get() != &buffer &&
          root(operand.get()) == root(&buffer))
        return operand;
    }
    return nullptr;
  }

  bool strict() {
    for (const ir::GemmStmt* gemm : gemms_) {
      GemmChoice& choice = choices_.at(gemm);
      const std::vector<int64_t> shape = tile_shape(gemm->c.buffer);
      const Sharing sharing = sharing_of(*gemm);
      std::optional<WarpGrid> grid;
      if (choice.group) {
        if (threads_ % kGroupThreads == 0)
          grid = group_grid(*gemm, threads_ / kGroupThreads, sharing == Sharing::kRows);
        if (!grid) {
          choice.group = false;
          choice.reason = "the block's warp groups cannot share the tile of C";
          settle_sums(*gemm, target_.architecture, &choice);
        }
      }
      if (sharing == Sharing::kDepth) {
        if (choice.mma && threads_ > 32) grid = depth_grid(*gemm, *choice.mma, threads_ / 32);
        if (!grid || !sums_.count(gemm->c.buffer.get())) return without_depth();
      }
      if (choice.mma && sharing == Sharing::kColumns) grid = warp_grid(shape[0], shape[1], threads_ / 32, sharing);
      if (is_fragment(gemm->b.buffer) && !(grid && choice.b_in_registers))
        return demote(gemm->b.buffer, "it is the right operand of a gemm");
      if (choice.mma && !grid && sharing == Sharing::kRows)
        grid = warp_grid(shape[0], shape[1], threads_ / 32, sharing);
      if (choice.mma && !grid && is_fragment(gemm->a.buffer))
        return demote(gemm->a.buffer, "the warps cannot share the rows of its product");
      if (choice.mma && !grid) grid = warp_grid(shape[0], shape[1], threads_ / 32, Sharing::kBoth);
      if (choice.mma && !grid) grid = copied_grid(shape[0], shape[1], threads_ / 32);
      if (choice.mma && !grid) {
        choice.mma = nullptr;
        choice.crowded_out = true;
        choice.reason = "the block's warps cannot share the tile of C";
      }
      if (!choice.mma) {
        if (is_fragment(gemm->a.buffer)) return demote(gemm->a.buffer, "it is a gemm operand");
        if (is_fragment(gemm->c.buffer) && !layouts_.count(gemm->c.buffer.get()))
          layouts_[gemm->c.buffer.get()] = fma_layout(*gemm, threads_, columns_together(spaces_, *gemm->c.buffer));
        continue;
      }
      choice.warps_m = grid->m;
      choice.warps_n = grid->n;
      choice.warps_k = grid->k;
      choice.copies = grid->copies;
      const FragmentLayout layout = accumulator_layout(choice.group, shape, *grid);
      if (const ir::BufferRef operand = parting_operand(*gemm, layout))
        return demote(operand, "its product shares sums with one of another layout");
      if (!assign(gemm->c.buffer, layout, "two gemms want it in different layouts")) return false;
      if (grid->k > 1 && !assign(sums_.at(gemm->c.buffer.get()), accumulator_layout(false, shape, {1, grid->k, 1}),
                                 "two products have their sums in it"))
        return false;
      if (choice.b_in_registers && !assign(gemm->b.buffer, right_operand_layout(*gemm, grid->n),
                                           "it is made in another layout than its gemm reads"))
        return false;
      if (!is_fragment(gemm->a.buffer)) continue;
      const int64_t sharers = threads_ / (choice.group ? kGroupThreads : 32);
      const WarpGrid parts = grid->k > 1 ? WarpGrid{1, sharers, 1} : WarpGrid{sharers, 1, 1};
      if (!assign(gemm->a.buffer, accumulator_layout(choice.group, tile_shape(gemm->a.buffer), parts),
                  "it is made in another layout than its gemm reads"))
        return false;
    }
    for (const Turn& turn : collected_.turns(memory_)) {
      const auto held = layouts_.find(turn.from.get());
      const std::optional<FragmentLayout> turned = held == layouts_.end() ? std::nullopt : held->second.turned();
      if (!turned) return demote(turn.from, "its rows and columns are exchanged, and no warp holds 16 x 16 of it");
      if (!assign(turn.to, *turned, "it is made in another layout than what it is turned from")) return false;
    }
    return true;
  }

  // Where two products want the sums that they share in different layouts: a right operand that one of them has in
  // registers, without which they may agree.
  ir::BufferRef parting_operand(const ir::GemmStmt& gemm, const FragmentLayout& layout) const {
    const auto other = layouts_.find(gemm.c.buffer.get());
    if (other == layouts_.end() || other->second == layout) return nullptr;
    for (const ir::GemmStmt* one : gemms_)
      if (one->c.buffer == gemm.c.buffer && choices_.at(one).b_in_registers) return one->b.buffer;
    return nullptr;
  }

  // Nothing, and inference starts over, if a pair is parted.
  std::optional<FragmentLayout> held_in(const Space& space, const Space::Use& use) {
    std::optional<FragmentLayout> held = space.held(use, layouts_.at(use.buffer.get()));
    if (!held && use.pairs) demote(use.buffer, "neighbours that are used together are in different threads");
    if (!held && use.group > 1) demote(use.buffer, "its groups are no groups of what threads hold");
    return held;
  }

  // What a part of a fragment is copied to, which is then written to memory by whoever holds it.
  bool demote_part(const Space& space) {
    return demote(space.uses[0].buffer, "it is a part of what several threads hold");
  }

  // A use that lays a space out: of a fragment with a layout and all axes, else of words of which each takes its bits.
  const Space::Use* spanning(const Space& space) const {
    const Space::Use* words = nullptr;
    for (const Space::Use& use : space.uses) {
      if (!layouts_.count(use.buffer.get()) || use.spanned() != space.shape.size()) continue;
      if (!use.quotient) return &use;
      if (!words && use.group <= ir::bits(use.buffer->type.dtype)) words = &use;
    }
    return words;
  }

  bool propagate() {
    for (bool changed = true; changed;) {
      changed = false;
      for (Space& space : spaces_) {
        if (const Space::Use* use = space.layout ? nullptr : spanning(space)) {
          const std::optional<FragmentLayout> held =
              use->quotient ? layouts_.at(use->buffer.get()).of_groups(use->grouped, use->group) : held_in(space, *use);
          if (!held) return use->extent ? demote_part(space) : false;
          std::vector<size_t> inverse(space.shape.size());
          for (size_t i = 0; i < use->axes.size(); ++i)
            if (use->axes[i] != FragmentLayout::kNoAxis) inverse[use->axes[i]] = i;
          space.layout = held->keep(inverse);
          changed = true;
        }
        if (!space.layout) continue;
        if (space.exchange && is_fragment(space.exchange->from) &&
            !exchanged_places(*space.layout, space.exchange->axis, space.exchange->bits))
          return demote(space.exchange->from, "its elements are exchanged across threads that do not differ in bits");
        for (const Space::Use& use : space.uses) {
          if (use.extent) {
            if (layouts_.count(use.buffer.get()) && held_in(space, use) != space.layout) return demote_part(space);
            continue;
          }
          const size_t before = layouts_.size();
          const FragmentLayout part = space.layout->keep(use.axes);
          if (use.leading) {
            if (layouts_.count(use.buffer.get()) && held_in(space, use) != part)
              return demote(use.buffer, "it is used in two different layouts");
            continue;
          }
          if (use.group > 1) {
            const std::optional<FragmentLayout> found =
                use.quotient ? part.one_of_each(use.grouped, use.group) : std::optional(part.joined(use.grouped));
            const bool known = layouts_.count(use.buffer.get());
            const bool fits =
                found &&
                (!known || (use.quotient ? layouts_.at(use.buffer.get()) == *found : held_in(space, use) == part));
            if (!fits) return demote(use.buffer, "its groups are no groups of what threads hold");
            layouts_.try_emplace(use.buffer.get(), *found);
            changed |= !known;
            continue;
          }
          if (!assign(use.buffer, use.pairs ? part.of_pairs() : part, "it is used in two different layouts"))
            return false;
          changed |= layouts_.size() != before;
        }
      }
    }
    return true;
  }

  bool free_layouts() {
    while (true) {
      if (lay_out_by_operand(&spaces_, layouts_, carried_, threads_)) {
        if (!propagate()) return false;
        continue;
      }
      ir::BufferRef largest;
      const auto place = [this](const ir::BufferRef& fragment) {
        return std::make_tuple(!sums_that_share(&spaces_, *fragment, threads_), product(tile_shape(fragment)),
                               -sums_of(*fragment, spaces_, carried_));
      };
      for (const ir::Stmt& stmt : kernel_.body) {
        const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
        if (!decl || !is_fragment(decl->buffer) || layouts_.count(decl->buffer.get())) continue;
        // What is only a part of a space follows the space.
        if (!largest || place(decl->buffer) > place(largest)) largest = decl->buffer;
      }
      if (!largest) break;
      Space* sums = sums_that_share(&spaces_, *largest, threads_);
      if (auto of_results = sums && !sums->layout ? by_results(*sums, layouts_) : std::nullopt)
        sums->layout = std::move(of_results);
      else
        layouts_[largest.get()] = own_layout(kernel_, target_, fact_mask_, spaces_, memory_, largest, threads_);
      if (!propagate()) return false;
    }
    // Spaces that no fragment spans: what is left over of their axes goes to the replicas of the one in them that has
    // most axes, and of these most elements.
    for (Space& space : spaces_) {
      if (space.layout) continue;
      if (space.uses.empty()) {
        space.layout = layout_of_tensors(kernel_, target_, fact_mask_, space, threads_);
        continue;
      }
      const Space::Use& use = *std::max_element(space.uses.begin(), space.uses.end(), [](const auto& a, const auto& b) {
        return std::make_pair(a.spanned(), product(tile_shape(a.buffer))) <
               std::make_pair(b.spanned(), product(tile_shape(b.buffer)));
      });
      const std::optional<FragmentLayout> held = held_in(space, use);
      if (!held) return false;
      const bool spans_last = std::find(use.axes.begin(), use.axes.end(), space.shape.size() - 1) != use.axes.end();
      const int64_t vector = spans_last ? 1 : region_vector(kernel_, target_, fact_mask_, space, threads_);
      space.layout = extended(*held, use.axes, space.shape, vector);
      if (!propagate()) return false;
    }
    return true;
  }

  bool within_budget() {
    int64_t most = 0, most_spared = 0;
    ir::BufferRef largest, spared;
    std::map<const ir::Buffer*, int64_t> registers_of;
    for (const ir::Stmt& stmt : kernel_.body) {
      const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
      if (!decl || !is_fragment(decl->buffer)) continue;
      const int64_t registers =
          (layouts_.at(decl->buffer.get()).registers() * ir::bits(storage_type(decl->buffer->type.dtype)) + 31) / 32;
      registers_of[decl->buffer.get()] = registers;
      if (registers > most) most = registers, largest = decl->buffer;
      if (registers > most_spared && !is_of_mma(choices_, decl->buffer)) most_spared = registers, spared = decl->buffer;
    }
    const int64_t room = fragment_room(choices_, threads_, target_.architecture),
                  total = live_registers(kernel_, registers_of);
    if (total <= room) {
      for (const auto& [gemm, choice] : choices_)
        if (total + run_registers(*gemm, choice) > room) return !without_runs_.insert(gemm).second;
      return true;
    }
    const bool helps = spared && most_spared * kWorthMoving >= most;
    return demote(helps ? spared : largest, "the fragments need more registers than a thread has to spare");
  }

  Placements result() {
    Placements placements;
    placements.threads = threads_;
    for (const ir::Stmt& stmt : kernel_.body) {
      const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
      if (!decl) continue;
      Placement placement;
      placement.storage = storage_type(decl->buffer->type.dtype);
      if (is_fragment(decl->buffer)) {
        placement.scope = ir::Scope::kRegister;
        placement.fragment = layouts_.at(decl->buffer.get());
      } else {
        auto it = memory_.find(decl->buffer.get());
        placement.reason = it == memory_.end() ? "declared shared" : it->second;
      }
      placements.tiles[decl->buffer.get()] = std::move(placement);
    }
    for (const Turn& turn : collected_.turns(memory_)) placements.tiles.at(turn.from.get()).turned = true;
    placements.gemms = choices_;
    for (auto& [gemm, choice] : placements.gemms) {
      const auto layout = layouts_.find(gemm->c.buffer.get());
      if (choice.mma || layout == layouts_.end()) continue;
      choice.dot4 = takes_dot4(*gemm, target_.architecture);
      choice.block_rows = layout->second.keep({0}).registers();
      choice.block_columns = layout->second.keep({1}).registers();
    }
    for (const Space& space : spaces_)
      if (space.region && space.layout) placements.regions[space.region] = *space.layout;
    lay_out_memory(kernel_, target_, schedule_, &placements);
    return placements;
  }

  const ir::Kernel& kernel_;
  const Target& target_;
  const Schedule& schedule_;
  const uint64_t fact_mask_;
  Ranges loops_;
  int threads_ = 0;
  SpaceCollector collected_;
  std::vector<const ir::GemmStmt*> gemms_;
  const std::set<const ir::ParallelStmt*> carried_;  // sums that loops carry along
  std::vector<Space> spaces_;
  std::map<const ir::Buffer*, std::string> memory_;  // fragments that live in memory, and why
  std::map<const ir::Buffer*, FragmentLayout> layouts_;
  std::map<const ir::GemmStmt*, GemmChoice> choices_;
  std::map<const ir::Buffer*, const ir::Buffer*> group_;
  std::set<const ir::Buffer*> by_rows_, by_columns_;
  bool depth_ = false;                               // warps may share k
  std::map<const ir::Buffer*, ir::BufferRef> sums_;  // of what has parts then
  std::set<const ir::GemmStmt*> without_runs_;       // there is no room for them
};

}  // namespace

Placements infer_layouts(const ir::Kernel& kernel, const Target& target, const Schedule& schedule, uint64_t fact_mask) {
  return Inference(kernel, target, schedule, fact_mask).run();
}

}  // namespace kachel::lowering
