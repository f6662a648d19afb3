// Where the elements of a fragment live: for every axis of the tile, how its coordinate is made of the thread number
// and the register number. Each axis is a mixed-radix number, its digits fastest first; a digit is read from the thread
// number or from the register number. So one form holds the accumulators of mma, blocked layouts for wide accesses and
// what is left of either when axes are reduced away. Radices need not be powers of two.
//
// Thread digits that no axis uses replicate the fragment: threads that differ in them hold the same elements. An axis
// may be ragged: its radices multiply to more than its extent, and places past the extent hold nothing.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kachel::lowering {

class FragmentLayout {
 public:
  struct Digit {
    int64_t radix;
    bool in_thread;  // else in the register number
    int64_t stride;  // the digit is number / stride % radix
    bool operator==(const Digit&) const = default;
  };
  using Axis = std::vector<Digit>;

  FragmentLayout() = default;
  FragmentLayout(std::vector<int64_t> shape, std::vector<Axis> axes, int64_t threads);

  // C of mma.m16n8: tiles of 16 x 8, `warps_m` x `warps_n` warps with a contiguous part of the tile each. The four
  // registers of one instruction are neighbours. Source: PTX ISA, "Matrix Fragments for mma.m16n8k16".
  // REQUIRES: rows % (16 * warps_m) == 0, columns % (8 * warps_n) == 0, warps_m * warps_n * 32 == threads.
  static FragmentLayout accumulator(int64_t rows, int64_t columns, int64_t warps_m, int64_t warps_n);
  // C of wgmma.m64nN, `groups_m` x `groups_n` warp groups with a contiguous part of the tile each: the four warps of a
  // group have 16 rows each of every 64. Source: PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16".
  // REQUIRES: rows % (64 * groups_m) == 0, columns % (8 * groups_n) == 0, groups_m * groups_n * 128 == threads.
  static FragmentLayout group_accumulator(int64_t rows, int64_t columns, int64_t groups_m, int64_t groups_n);
  // B of mma.m16n8k16 for 16-bit elements, as columns x k: `warps` warps with a contiguous part of the columns each.
  // The four elements of one instruction are neighbours, after them its steps of k. Source: as accumulator(). REQUIRES:
  // columns % (8 * warps) == 0, k % 16 == 0.
  static FragmentLayout right_operand(int64_t columns, int64_t k, int64_t warps);
  // C of a product by fused multiply-add: a thread holds an outer product of rows and columns, as square as the tile
  // allows. Rows come in strips of `row_vector` neighbours, columns of `column_vector`; the next strip of a thread is
  // behind those of all other threads. Lanes alternate between the axes, a bit each, so that of four neighbours two
  // share a row and two a column: shared memory then serves half a warp at once. REQUIRES: threads is a multiple of 32.
  static FragmentLayout outer_product(int64_t rows, int64_t columns, int64_t row_vector, int64_t column_vector,
                                      int64_t threads);
  // Neighbouring threads along the last axis, `vector` elements of it each; ragged where the shape wants it.
  static FragmentLayout blocked(const std::vector<int64_t>& shape, int64_t vector, int64_t threads);

  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<Axis>& axes() const { return axes_; }
  int64_t threads() const { return threads_; }
  int64_t registers() const;  // per thread
  bool ragged(size_t axis) const;

  // The same tile in `times` as many threads: replicas, in groups of what were all threads.
  FragmentLayout replicated(int64_t times) const;
  // The layout of the tile that has the axes `kept`, in that order: registers are numbered anew without gaps, threads
  // of the axes left out become replicas. kNoAxis stands for an axis of one element.
  static constexpr size_t kNoAxis = ~size_t{0};
  FragmentLayout keep(const std::vector<size_t>& kept) const;
  // Of a tile with one element for each `group` neighbours along an axis: registers are numbered anew, threads that
  // differ within groups become replicas. Nothing where a digit begins within a group and does not end with it.
  std::optional<FragmentLayout> grouped(size_t axis, int64_t group) const;
  // The same elements with an axis as two: groups of so many neighbours, which may be ragged, and their place in a
  // group. Nothing as above.
  std::optional<FragmentLayout> split(size_t axis, int64_t group) const;
  // Of a tile with one element for each of these groups, held by whoever holds some of a group.
  std::optional<FragmentLayout> one_of_each(size_t axis, int64_t group) const;
  // The other way round of split(): an axis and the one behind it as one.
  FragmentLayout joined(size_t axis) const;
  // Of the tile's elements first <= i < first + extent along an axis, as a tile of its own: registers are numbered
  // anew. Nothing where a thread that holds one of such parts does not hold all of them alike.
  std::optional<FragmentLayout> part(size_t axis, int64_t first, int64_t extent) const;
  // Of the tile's first elements along an axis, in the registers where they are. REQUIRES: extent <= the axis's.
  FragmentLayout leading(size_t axis, int64_t extent) const;
  // The same elements in the same threads, whose registers follow the last axis first.
  FragmentLayout by_rows() const;
  // The same map with neighbouring digits of registers as one.
  FragmentLayout merged() const;
  // Whether the last axis begins with a pair in a thread and goes on in four neighbouring threads, as operands of mma
  // have it along k.
  bool pairs_in_quads() const;
  // Of a tile with one element for each pair of neighbours along the last axis: a pair's two registers, which are
  // neighbours too, become one. Nothing where a thread does not hold both.
  std::optional<FragmentLayout> pairs() const;
  // The other way round.
  FragmentLayout of_pairs() const { return of_groups(shape_.size() - 1, 2); }
  // The same of groups of so many neighbours along any axis, which one thread has.
  FragmentLayout of_groups(size_t axis, int64_t group) const;
  // Thread digits that no axis uses, with stride and radix. They and the used ones cover the thread number.
  std::vector<Digit> replicas() const;
  // Elements in consecutive registers of one thread that are neighbours along the last axis.
  int64_t vector() const;
  // Whether all of those are in bounds where the first is.
  bool whole_vectors() const { return shape_.back() % vector() == 0; }

  // For accumulators of mma and wgmma: eight neighbours along the last axis in a thread instead of two, after the four
  // threads that share eight columns have exchanged four tiles of them. Registers: eight neighbours, the two rows, then
  // as before. Nothing for other layouts.
  std::optional<FragmentLayout> quad_rows() const;

  // For accumulators of mma and wgmma: where the lanes point stmatrix. Pairs of tiles of eight columns become one
  // vector of eight neighbours a lane: 8 lanes a matrix, two matrices down the rows, then two along the columns.
  // Registers number the same pairs. Nothing for other layouts.
  std::optional<FragmentLayout> matrix_rows() const;

  // For accumulators of mma and wgmma: of the turned matrix, in the same warps, as accumulators lie. Of each 8 x 8
  // elements of a warp the lanes exchange theirs; a pair of registers becomes another pair. Nothing for other layouts.
  std::optional<FragmentLayout> turned() const;

  // Coordinates held by a register of a thread; may lie past the extent of a ragged axis.
  std::vector<int64_t> coordinates(int64_t thread, int64_t reg) const;
  // "[64, 128] on 128 threads: 8 t4 2 r2 4 t32; 2 r1 4 t1 16 r4"
  std::string print() const;
  bool operator==(const FragmentLayout&) const = default;

 private:
  // Whether it is that of mma's or wgmma's accumulators, a multiple of `tiles` of eight columns in a thread side by
  // side.
  bool accumulates(int64_t tiles) const;

  std::vector<int64_t> shape_;
  std::vector<Axis> axes_;
  int64_t threads_ = 1;
};

}  // namespace kachel::lowering
