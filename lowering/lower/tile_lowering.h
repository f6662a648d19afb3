// Tile IR to loop IR. What schedule and layout inference have chosen is followed; whatever they have chosen nothing for
// goes by plain loads and fma, so that every program is accepted. Private to the lower_*.cc files, which implement one
// group of ops each.
#pragma once
#include <functional>
#include <set>
#include <span>
#include <unordered_map>

#include "lowering/loop_ir/loop_build.h"
#include "lowering/loop_ir/region_index.h"
#include "lowering/lower/lower_types.h"
#include "lowering/lower/region_read.h"
#include "lowering/lower/walk.h"
#include "lowering/plan/exchanged_places.h"
#include "lowering/plan/placement.h"
#include "lowering/plan/turned_sums.h"
#include "lowering/tile_ir/exchanges.h"
#include "lowering/tile_ir/reduce_ops.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::ir {
struct ForwardedRegion;
}

namespace kachel::lowering {

class TileLowering {
 public:
  TileLowering(const ir::Kernel& kernel, const Target& target, const Schedule& schedule, const Placements& placements,
               uint64_t fact_mask);
  Result<LoopKernel> run();

 private:
  bool on_cpu() const { return target_.kind == Target::Kind::kCpu; }

  // lower_tiles.cc: signature, grid, statements.
  void declare_params();
  void declare_tiles();
  void open_grid();
  Division divided(const ir::ExprRef& a, const ir::ExprRef& b);
  ir::DType place_type() const;
  ir::ExprRef place_number(int64_t value) const;
  ir::ExprRef place(const char* name, const ir::ExprRef& value, int64_t least = 0);
  std::vector<ir::ExprRef> places_of(const ir::ExprRef& tile, const std::vector<size_t>& order);
  bool clusters_along(size_t axis) const { return !schedule_.cluster.empty() && schedule_.cluster[axis] > 1; }
  ir::ExprRef rank_along(size_t axis) const;
  std::vector<ir::ExprRef> places_in_cluster(const std::vector<size_t>& order);
  bool counts_readers(size_t axis) const;
  void decide_l2_policies();
  std::vector<ir::ExprRef> raster(const std::vector<ir::ExprRef>& extents, const std::vector<size_t>& order,
                                  ir::ExprRef* rest);
  void block(const ir::Block& body);
  void statement(const ir::DeclStmt& decl);
  void begin_fragments(const ir::Stmt& stmt);  // those that it touches first
  void begin(const ir::DeclStmt& decl);
  void statement(const ir::LetStmt& let);
  void statement(const ir::CopyStmt& copy);
  void statement(const ir::FillStmt& fill);
  void statement(const ir::GemmStmt& gemm);
  void statement(const ir::ParallelStmt& region);
  void region(const ir::ParallelStmt& stmt, const FragmentLayout* layout);
  ir::BufferRef mostly_ones(const ir::ParallelStmt& stmt) const;
  ir::ExprRef any_factor(const ir::BufferRef& factors);
  void statement(const ir::AssignStmt& assign);
  void statement(const ir::ForStmt& loop);
  void statement(const ir::IfStmt& branch);
  void loop(const ir::ForStmt& loop);
  void pipeline(const ir::ForStmt& loop, const Pipeline& pipeline);
  // lower_side_by_side.cc: how many iterations of a loop stand side by side, and those of them that come first.
  int64_t side_by_side(const ir::ForStmt& loop) const;
  std::vector<ir::BufferRef> apart_in(const ir::ForStmt& loop) const;  // LoopFor::disjoint
  void loop_side_by_side(const ir::ForStmt& stmt, int64_t together, LoopFor* loop);

  // Emission into the current block.
  void emit(LoopStmt stmt) { current_->push_back(std::move(stmt)); }
  void comment(std::string text) { emit({LoopComment{std::move(text)}}); }
  ir::ExprRef let(const std::string& name, ir::ExprRef value);  // constants and variables are returned as they are
  void store(const ir::BufferRef& buffer, ir::ExprRef index, ir::ExprRef value, ir::ExprRef guard);
  LoopBlock nested(const std::function<void()>& body);  // what `body` emits, as a block of its own

  // Runs `body` for every element of `shape`, each in one thread: dealt out in cyclic order on a GPU, as nested loops
  // on the CPU. `in_registers`: body touches register arrays through its site's slot.
  void each(const std::vector<int64_t>& shape, const std::vector<std::string>& names, bool in_registers,
            const std::function<void(const Site&)>& body);
  // The same by a layout (lower_layout.cc). `vector`: so many neighbours along the last axis are one iteration, whose
  // coordinates are those of the first. REQUIRES: vector == 1 or layout.vector() % vector == 0.
  class LayoutWalk;
  void each_in(const FragmentLayout& layout, const std::vector<std::string>& names, int64_t vector,
               const std::function<void(const Site&)>& body, const WalkOptions& options = {});
  // Runs `body` in each of the first `count` threads, at most all of the block's, with the thread's number.
  void in_threads(int64_t count, const std::function<void(const ir::ExprRef& thread)>& body);
  // In the order in which a tile is held, if it is a fragment.
  void each_of(const ir::BufferRef& tile, const std::vector<int64_t>& shape, const std::vector<std::string>& names,
               const std::function<void(const Site&)>& body);
  // The register of the site's element in a fragment whose axes are the site's axes `axes`.
  ir::ExprRef register_of(const FragmentLayout& fragment, const std::vector<size_t>& axes, const Site& site) const;
  ir::ExprRef register_of(const ir::BufferRef& fragment, const std::vector<ir::ExprRef>& indices, const Site& site);
  // Runs `body` once, or `count` times with the register number, in every thread.
  void unrolled(const std::string& name, int64_t count, const std::function<void(ir::ExprRef)>& body,
                const LoopForm& form = {});
  // The same, as a block of its own if it is once, too: `body` may run again behind it.
  void scoped(const std::string& name, int64_t count, const std::function<void(ir::ExprRef)>& body,
              const LoopForm& form = {});
  // One thread walks [0, extent) in order.
  void serial(const std::string& name, ir::ExprRef extent, bool reassociate,
              const std::function<void(ir::ExprRef)>& body);

  // lower_access.cc: expressions and element access. Every access is proved or guarded.
  ir::ExprRef scalar(const ir::ExprRef& expr, const Site* site);
  bool is_exact(const ir::Expr& cast) const;
  ir::ExprRef index(const ir::ExprRef& expr, const Site* site);  // as I64, named so that it is evaluated once
  ir::ExprRef load(const ir::BufferRef& buffer, const std::vector<ir::ExprRef>& indices, const Site* site,
                   ir::ExprRef guard = nullptr, ir::ExprRef otherwise = nullptr, const StatedBounds* stated = nullptr);
  ir::ExprRef selected(const ir::Expr& select, const Site* site);
  ir::ExprRef padded(const ir::Expr& select, const ir::Expr& load, const Site* site);
  ir::ExprRef in_bounds(const ir::BufferRef& buffer, const std::vector<ir::ExprRef>& indices, ir::ExprRef guard,
                        const StatedBounds* stated = nullptr);
  // `wrong_swizzle`: as a planted bug wants it.
  ir::ExprRef offset(const ir::BufferRef& buffer, const std::vector<ir::ExprRef>& indices, const Site* site,
                     bool wrong_swizzle = false);
  ir::BufferRef storage(const ir::BufferRef& buffer) const { return storage_.at(buffer.get()); }
  bool in_registers(const ir::BufferRef& buffer) const;
  ir::ExprRef convert(const ir::ExprRef& value, ir::DType to) const;  // to the compute type of an element of type `to`
  ir::BufferRef temporary(const std::string& name, ir::DType type, ir::Scope scope, int64_t elements);

  // lower_copy.cc
  Slice slice(const ir::TileRef& ref);
  std::vector<int64_t> slice_shape(const ir::TileRef& ref) const;
  // The element of the slice at the site's coordinates (its non-index axes in order). Sets guard to `within`, or null.
  std::vector<ir::ExprRef> element(const Slice& slice, const Site& site, ir::ExprRef* guard);
  ir::ExprRef load_element(const Slice& slice, const Site& site);
  void copy_packed(const Slice& dst, const Slice& src);

  // lower_vector.cc: copies by wide accesses. False if the facts or the layouts allow none; nothing is emitted then.
  bool copy_vectors(const ir::CopyStmt& copy, const Slice& dst, const Slice& src);
  bool copy_registers(const ir::CopyStmt& copy);
  bool copy_part_of_registers(const ir::CopyStmt& copy);
  bool copy_quads(const ir::CopyStmt& copy, const Slice& dst);  // lower_quads.cc
  bool stores_rows(const Slice& dst, const FragmentLayout& rows) const;
  void store_rows(const Slice& dst, const FragmentLayout& rows, const ir::BufferRef& packed);
  // lower_matrices.cc
  bool copy_matrices(const ir::CopyStmt& copy, const Slice& dst);
  bool suits_matrices(const ir::BufferRef& tile, const FragmentLayout& layout);
  ir::BufferRef load_matrices(const ir::BufferRef& tile, const FragmentLayout& layout);
  // Where this lane points the instruction for four matrices whose first register is `first`.
  Site matrix_row(const FragmentLayout& layout, const FragmentLayout& rows, const ir::ExprRef& first);
  static std::vector<ir::ExprRef> fragment_indices(const Site& site) { return site.coords; }
  int64_t vector_width(const Slice& slice) const;  // elements of one access along the last axis
  void move(LoopIntrinsic::Kind kind, const ir::BufferRef& to, ir::ExprRef to_index, const ir::BufferRef& from,
            ir::ExprRef from_index, int64_t elements, ir::ExprRef guard);
  void move_by_registers(const ir::BufferRef& to, const ir::ExprRef& to_index, const ir::BufferRef& from,
                         const ir::ExprRef& from_index, int64_t elements, const ir::ExprRef& read,
                         const ir::ExprRef& written, const ir::ExprRef& pad);
  static ir::ExprRef padding(const ir::TileRef& slice);
  // Index and guard of the vector that begins at the site.
  ir::ExprRef vector_at(const Slice& slice, const Site& site, ir::ExprRef* guard);

  // lower_joined.cc
  int64_t joined_width(const Slice& slice) const;
  ir::ExprRef joined_at(const Slice& slice, const Site& site, ir::ExprRef* guard);

  // lower_bulk.cc
  LoopPipeline::Bulk bulk_state(const Pipeline& pipeline);
  int64_t bytes_in_boxes(const ir::BufferRef& tile) const;
  bool of_products(const Pipeline& pipeline, const BufferSet& tiles) const;
  void copy_bulk(const ir::CopyStmt& copy, const Slice& src);
  ir::ExprRef box_coordinate(const ir::ExprRef& start);
  int64_t map_of(const Slice& slice, int64_t rows, int64_t columns);
  bool store_boxes(const ir::CopyStmt& copy, const Slice& dst);  // lower_boxes.cc

  // lower_shifted.cc
  ShiftedPlace shifted_place(const Slice& src, const Site& site, int64_t width);
  // Whole tiles, for the producer's threads.
  void copy_shifted(const std::vector<const ir::CopyStmt*>& copies);

  // lower_fma.cc
  BlockSide block_side(const Slice& slice, const FragmentLayout& layout, size_t axis, bool k_last, ir::DType sum);
  ir::ExprRef block_place(const BlockSide& side, const ir::ExprRef& number, bool in_tile) const;
  void load_block(const BlockSide& side, const ir::ExprRef& k_first, int64_t depth, const std::string& name);
  void gemm_blocks(const ir::GemmStmt& gemm, const GemmChoice& choice);
  // lower_mma.cc
  ir::BufferRef left_registers(const ir::GemmStmt& gemm);
  void gemm_mma(const ir::GemmStmt& gemm, const GemmChoice& choice);
  // lower_mma_words.cc
  void load_words(const ir::BufferRef& tile, const WordsOfK& words, const ir::ExprRef& first, const ir::ExprRef& k,
                  const ir::BufferRef& to, const ir::ExprRef& at);
  void load_left_words(const ir::GemmStmt& gemm, const GemmChoice& choice, const ir::ExprRef& m, const ir::ExprRef& k,
                       const ir::ExprRef& number, const ir::BufferRef& to, const ir::ExprRef& at);
  // lower_group_mma.cc
  void gemm_group(const ir::GemmStmt& gemm, const GemmChoice& choice);
  ir::ExprRef matrix_at(const ir::TileRef& ref, const ir::ExprRef& first, int64_t row, int64_t column,
                        bool first_row);
  // cpu_copy.cc, cpu_gemm.cc
  // False: nothing was emitted, the copy is none of rows.
  bool copy_rows(const ir::CopyStmt& copy, const Slice& dst, const Slice& src);
  bool bounds_of(const Slice& slice, CpuSide* side);
  void set_coordinate(CpuSide* side, size_t axis, const ir::ExprRef& coordinate);
  void copy_strip(const CpuSide& dst, const CpuSide& src, const ir::ExprRef& first, int64_t width, bool interior);
  void copy_nest(CpuSide dst, CpuSide src, size_t axis, bool interior);
  bool copy_transposed(const CpuSide& dst, const CpuSide& src);  // cpu_transpose.cc
  ir::ExprRef streams(const CpuSide& dst, const CpuSide& src);
  bool has_unit_stride(const CpuSide& side) const;
  // cpu_pairs.cc
  bool in_pairs(const ir::BufferRef& buffer) const;
  void store_pairs(const ir::BufferRef& tile, const std::vector<int64_t>& shape,
                   const std::function<ir::ExprRef(const Site&)>& value);
  bool transpose_pairs(const ir::CopyStmt& copy, const CpuSide& src);
  void copy_pairs(const ir::CopyStmt& copy, const Slice& src);
  // cpu_forward.cc
  bool forward_copy(const ir::CopyStmt& copy, const Slice& src);
  ir::ExprRef load_forwarded(const Slice& from, const std::vector<ir::ExprRef>& indices, const Site* site);
  // cpu_strips.cc
  void note_ahead(const ir::CopyStmt& copy);
  void note_stores(const ir::Block& body);
  std::vector<AheadPart> take_ahead(size_t rank, int64_t columns, int64_t share);
  void ask_ahead(const std::vector<AheadPart>& parts, const std::vector<ir::ExprRef>& coords, const ir::ExprRef& at,
                 int64_t steps);
  bool fuse_copy(const ir::ParallelStmt& region, const ir::CopyStmt& copy);
  bool each_in_strips(const std::vector<int64_t>& shape, const std::vector<std::string>& names,
                      const std::function<void(const Site&)>& body);
  void micro_gemm(const ir::GemmStmt& gemm);
  ir::ExprRef panel_offset(const Placement& placement, const std::vector<ir::ExprRef>& indices) const;
  static ir::ExprRef rounded(const ir::ExprRef& value, ir::DType to);  // a cast, left out where it changes nothing

  // lower_reads.cc, lower_read_choice.cc, lower_fetch.cc: what a region reads of tensors, loaded once and by
  // neighbours.
  int64_t loads_together(const std::vector<const RegionRead*>& reads, int64_t width) const;
  bool makes_operand(const ir::ForwardedRegion& region) const;  // of a product
  std::vector<RegionRead> reads_of(const ir::ForwardedRegion& region, const RegionIndexes& indexes,
                                   const FragmentLayout& layout);
  struct ReadsOfRegion {
    const std::vector<ir::IterVar>& iters;
    const RegionIndexes& indexes;
    const FragmentLayout& layout;
    // What is made for a product stands in its loop, where pairs, kept apart from each other, measured no faster on an
    // H200.
    const bool operand;
    std::set<const ir::Expr*> padded;
    std::set<const ir::Expr*> unpacked;  // loads that are part of what is
    std::vector<RegionRead> reads;
  };
  int64_t most_held() const;
  struct Guarded {
    ir::ExprRef guard;  // without names of the region's; null: it is not known
  };
  bool note_read(const ir::ExprRef& load, bool in_groups, ReadsOfRegion* region,
                 const std::optional<Guarded>& guarded = std::nullopt);
  ir::ExprRef guard_of_access(const ir::ExprRef& guard, const RegionRead& read, const ReadsOfRegion& region);
  bool note_index(const ir::ExprRef& index, bool in_groups, const ReadsOfRegion& region, RegionRead* read);
  void widen(const ReadsOfRegion& region, bool tile, RegionRead* read);
  void widen_groups(const ReadsOfRegion& region, bool tile, RegionRead* read);
  // each_in() with those reads in registers. `packed`: what takes neighbours together, if anything does, from the site
  // of the first, and what it makes of the last axis alone, in front of the walks along others; `enter` makes the one
  // of a number that at hand.
  using EnterNeighbour = std::function<Site(const ir::ExprRef& number)>;
  using OfNeighbours =
      std::function<void(const Site&, int64_t width, const std::vector<HeldRead>&, const EnterNeighbour& enter)>;
  struct PackedBody {
    OfNeighbours body, in_front;  // in_front: may be null
  };
  void each_with_reads(const std::vector<RegionRead>& reads, const std::vector<ir::IterVar>& iters,
                       const FragmentLayout& layout, const std::vector<std::string>& names,
                       const std::function<void(const Site&)>& body, const PackedBody& packed = {},
                       const Behind& behind = {});
  HeldRead fetch_words(const RegionRead& read, const std::vector<ir::IterVar>& iters, const FragmentLayout& layout,
                       const std::vector<std::string>& names);
  void fetch_once(const RegionRead& read, const std::vector<ir::IterVar>& iters, const FragmentLayout& layout,
                  const std::vector<std::string>& names);
  ir::ExprRef settled(const ir::ExprRef& index, const std::vector<ir::IterVar>& iters, const RegionIndexes& indexes,
                      const FragmentLayout& layout, int64_t* group);
  ir::ExprRef of_multiple(const ir::ExprRef& quotient, const RegionIndex& at, const ir::ExprRef& base,
                          const std::vector<ir::IterVar>& iters, const RegionIndexes& indexes,
                          const FragmentLayout& layout, int64_t* group);
  std::optional<ir::ExprRef> register_in_groups(const FragmentLayout& fragment, const std::vector<ir::ExprRef>& indices,
                                                size_t grouped, const Site& site);  // lower_layout.cc
  static FragmentLayout part_of(const RegionRead& read, const FragmentLayout& layout);
  ir::ExprRef register_of(const RegionRead& read, const FragmentLayout& part, const Site& site) const;
  // Returns whether the elements are inside of the tensor; null: they are, or nobody asks.
  ir::ExprRef fetch(const RegionRead& read, const ir::BufferRef& to, const ir::ExprRef& slot, const Site& site);

  // lower_unpacked.cc: tiles of 4 and 8 bits.
  using IsWritten = std::function<bool(const ir::BufferRef&)>;
  void note_unpacked(const ir::ExprRef& expr, const IsWritten& is_written, ReadsOfRegion* region);
  std::optional<RegionRead> unpacked_read(const ir::ExprRef& expr, const ReadsOfRegion& region);
  void join_words(const ReadsOfRegion& region, int64_t multiple, RegionRead* read);
  void unpack(const PackedOperand& to, const HeldRead& held, const PackedOperand* less);

  // lower_region_stores.cc: what neighbours of a region write beside each other, as one access.
  struct NamedNeighbours {
    std::vector<ir::ExprRef> exprs;
    ir::VarRef last;
  };
  std::optional<NamedNeighbours> named_neighbours(const std::vector<ir::ExprRef>& exprs,
                                                  const std::vector<ir::IterVar>& iters,
                                                  const std::vector<int64_t>& shape);
  bool rise_together(const std::vector<ir::ExprRef>& indices, const std::vector<ir::IterVar>& iters,
                     const std::vector<int64_t>& shape, int64_t width);
  bool fills_words(const ir::ForwardedRegion& region, size_t number, const FragmentLayout& layout) const;
  std::vector<WideStore> wide_stores(const ir::ForwardedRegion& region, const RegionIndexes& indexes,
                                     const FragmentLayout& layout);
  void store_neighbours(const ir::AssignStmt& store, const WideStore& wide, const std::vector<ir::IterVar>& iters,
                        const Site& first, int64_t count);

  // lower_packed.cc: 16-bit floats made of integers of few bits, two an instruction.
  class PackedForm;
  struct Neighbours;
  std::optional<PackedStore> packed_store(const ir::ForwardedRegion& region, const std::vector<RegionRead>& reads,
                                          const RegionIndexes& indexes, const FragmentLayout& layout);
  PackedBody packed_body(const PackedStore& form);
  void store_packed(const PackedStore& form, Neighbours* neighbours, const EnterNeighbour& enter);
  void make_own(const std::vector<const ir::LetStmt*>& lets, Neighbours* of, const EnterNeighbour& enter);
  void unpack_fields(const PackedOperand& to, const PackedValue& field, const ir::BufferRef& words,
                     const PackedOperand* less);
  void collect_own(const PackedValue& value, ir::DType type, Neighbours* of);
  PackedOperand packed(const PackedValue& value, ir::DType type, const Neighbours& of, const PackedOperand* to);

  // lower_shared_results.cc
  static Sharers sharers_of(const FragmentLayout& layout, size_t rank);
  void combine_shared(ir::ReduceOp op, const ir::BufferRef& values, const FragmentLayout& results,
                      const Sharers& sharers);
  // The first `count` values, with those of the lane that differs by the bits of `mask`.
  void combine_lanes(ir::ReduceOp op, const ir::BufferRef& values, int64_t count, int mask);
  void combine_warps(ir::ReduceOp op, const ir::BufferRef& values, const FragmentLayout& results,
                     const Sharers& sharers);
  bool exchanges_warps(const ir::ParallelStmt& region) const;
  bool copy_parts(const ir::CopyStmt& copy);

  // lower_parallel.cc, lower_reduce.cc
  // Replaces the reductions of an expression by loads of temporaries that are computed here, before the region.
  ir::ExprRef extract_reductions(const ir::ExprRef& expr, const std::vector<ir::IterVar>& iters,
                                 const std::unordered_map<const ir::Var*, ir::ExprRef>& lets);
  void reduction(const ir::ParallelStmt& region, const ir::Expr& reduce, const FragmentLayout& layout);
  // lower_carried.cc
  std::vector<CarriedSum> open_sums(const ir::ForStmt& loop);
  void close_sums(const std::vector<CarriedSum>& carried);
  ir::ExprRef reduce_in_lanes(const ir::Expr& reduce, const Site* site, const ir::ExprRef& neutral);  // cpu_reduce.cc
  ir::ExprRef inline_reduction(const ir::Expr& reduce, const Site* site);
  ir::ExprRef in_order(const ir::ExprRef& step, int64_t count);
  ir::BufferRef reduce_into_temporary(const ir::Expr& reduce, const std::vector<ir::IterVar>& outer);
  // lower_scan.cc, layout_scan.cc
  class LayoutScan;
  void scan(const ir::ParallelStmt& region, const ir::Expr& scan, const FragmentLayout* layout);
  void scan_in_layout(const ir::ParallelStmt& region, const ir::Expr& scan, const FragmentLayout& layout);
  void scan_rows(const ir::Expr& scan, const ir::IterVar& along, const std::vector<ir::IterVar>& outer,
                 const ir::BufferRef& tile);
  ir::BufferRef scan_into_temporary(const ir::Expr& scan, const std::vector<ir::IterVar>& outer);
  // lower_turn.cc. REQUIRES: its tiles lie as FragmentLayout::turned() has it.
  void turn(const Turn& turn);
  // lower_exchange.cc. REQUIRES: what is exchanged is in registers.
  void exchange(const ir::ParallelStmt& region, const Exchange& exchange, const FragmentLayout& layout);
  std::vector<ir::ExprRef> exchanged(std::vector<ir::ExprRef> values, const ExchangedPlaces& places, int64_t threads);
  std::vector<ir::ExprRef> passed(const std::vector<ir::ExprRef>& values, int64_t thread_bits, int64_t threads);

  const ir::Kernel& kernel_;
  const Target& target_;
  const Schedule& schedule_;
  const Placements& placements_;
  const uint64_t fact_mask_;
  bool index32_ = false, extent32_ = false;
  std::vector<const ir::DeclStmt*> unbegun_;  // with what they begin as
  std::set<int> unit_stride_;  // parameters

  LoopKernel out_;
  LoopBlock* current_ = nullptr;
  std::unordered_map<const ir::Buffer*, ir::BufferRef> storage_;  // tensor or tile -> loop buffer
  std::unordered_map<const ir::Buffer*, ir::DType> widened_;      // loop buffer -> what its values are rounded to
  std::unordered_map<const ir::Buffer*, ir::BufferRef> packed_;   // 4-bit tensor -> its bytes
  std::unordered_map<const ir::Buffer*, std::vector<ir::ExprRef>> strides_;  // of tensors, in elements
  std::unordered_map<const ir::Var*, GroupIndex> groups_;
  std::unordered_map<const ir::Var*, PairIndex> pairs_;                      // what names of indices stand for
  std::unordered_map<const ir::Var*, ir::ExprRef> values_;                   // tile variable -> loop expression
  std::unordered_map<const ir::Buffer*, ir::ExprRef> stage_;  // of the tiles of a pipeline: which one is meant here
  std::unordered_map<const Pipeline*, LoopPipeline::Bulk> bulks_;  // of those with stages of their own
  // In what a producer runs ahead: its pipeline.
  struct {
    const LoopPipeline* node = nullptr;
    const Pipeline* plan = nullptr;
  } bulk_;
  bool runs_ahead_ = false;                                   // in the part of a pipeline that runs ahead
  int copiers_ = 0;                                           // threads that share a wide copy between memories
  std::vector<ir::ExprRef> grid_extents_;
  std::unordered_map<const ir::CopyStmt*, ir::ExprRef> l2_policies_;  // LoopIntrinsic::l2_policy
  std::vector<Ahead> asked_ahead_;
  std::span<const ir::Stmt> following_;                     // the statements after the one at hand, in its block
  std::unordered_map<const ir::Buffer*, Slice> forwarded_;  // tiles whose elements are still read from a tensor
  std::unique_ptr<FusedCopy> next_copy_;                    // what follows the region at hand and may be fused with it
  std::unique_ptr<FusedCopy> fused_;                        // for the next loop over elements
  // The pipeline whose body is at hand, how deep in control flow that is, and what its regions load for its first
  // iteration.
  struct AheadOf {
    const LoopPipeline* pipeline = nullptr;
    int depth = 0;
    LoopBlock first;
    std::set<const ir::Var*> names;  // of the body: an iteration's, and not the next one's
    // What the body writes into one half of, and reads before it writes into the other; and which half it is.
    std::vector<ir::BufferRef> alternating;
    ir::ExprRef half;
  } ahead_;
  // Loads of the region at hand whose values are in registers already, as the site's thread has them.
  std::unordered_map<const ir::Expr*, std::function<ir::ExprRef(const Site&)>> fetched_;
  std::vector<ir::ExprRef> stated_;  // conditions that hold where the expression at hand is evaluated
  std::unordered_map<const PackedValue*, PackedOperand> packed_in_front_;  // PackedStore::in_front
  std::unordered_map<const ir::Expr*, ir::ExprRef> inside_;  // of loads with padding that are fetched; null: always
  std::unordered_map<const ir::Expr*, const ir::Expr*> read_as_;  // of a region's equal loads, the first one
  std::set<const ir::ParallelStmt*> parts_;  // reductions whose results stay in parts, one a thread
  // The region at hand is long and touches no registers by number: so many iterations of a thread are written out, and
  // go along loops; 0: all are.
  int64_t region_written_out_ = 0;
  bool region_is_heavy_ = false;             // the region at hand has functions that are no instruction
  bool region_is_long_ = false;              // its iterations take many instructions, and none makes an operand
  int loop_depth_ = 0;                       // of `for`, `pipelined` and `if` of the program
  Status status_;
};

// Shared by the lower_*.cc files.
inline constexpr int64_t kMostUnpacked = 8;  // elements of one kUnpack
ir::ExprRef both(const ir::ExprRef& a, const ir::ExprRef& b);  // a && b; null is true
constexpr bool is_half(ir::DType type) {
  return type == ir::DType::F16 || type == ir::DType::BF16;
}
// Up to here, in size, all integers are numbers of the type; 0: it is none of 16 bits.
constexpr int64_t integers_of(ir::DType type) {
  return type == ir::DType::F16 ? 1 << 11 : type == ir::DType::BF16 ? 1 << 8 : 0;
}
// Of which one conversion makes two of f32.
constexpr bool rounds_in_pairs(ir::DType type) {
  return is_half(type) || ir::is_float8(type);
}
// Some twenty instructions and more.
bool is_heavy(const ir::Expr& expr);
ir::VarRef make_local(const std::string& name, ir::DType type, ir::VarKind kind = ir::VarKind::kLet);

}  // namespace kachel::lowering
