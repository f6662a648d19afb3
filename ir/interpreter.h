// Runs a InterpretedKernel. Private to interpret.cc and the files that implement its parts:
// interpret_expr.cc expressions, interpret_region.cc parallel regions, interpret_tile.cc copies and fills,
// interpret_gemm.cc, interpret_block.cc control flow.
#pragma once
#include <vector>

#include "ir/interpret_memory.h"
#include "ir/interpreted_kernel.h"
#include "support/status.h"

namespace kachel::ir {

class Interpreter {
 public:
  // Borrows `program`. `memories` by memory number; tiles are made anew.
  Interpreter(const InterpretedKernel& program, std::vector<Memory> memories, int64_t step_limit);

  void set(int slot, const Cell& value) { frame_[static_cast<size_t>(slot)] = value; }
  // Runs the body for one block. kUnsupported past the step limit.
  Status run_block(uint32_t block);
  std::vector<Memory>& memories() { return memories_; }

 private:
  // Where the elements of a slice are. Positions along a tile axis are offsets, or one of two marks.
  struct Place {
    std::vector<std::vector<int64_t>> axes;
    int64_t base = 0;
    bool outside = false;  // an index axis is
    bool unknown = false;  // some position is undecided
  };
  static constexpr int64_t kOutside = INT64_MIN, kUnknown = INT64_MIN + 1;

  struct Pending {
    int memory;
    AtomicOp atomic;
    int64_t offset;
    Cell value;
    uint32_t iteration;
    bool maybe;
  };

  Cell& at(int slot) { return frame_[static_cast<size_t>(slot)]; }

  // interpret_expr.cc
  void evaluate(const Code& code);
  void integer(const Instruction& instruction);
  Cell float_result(const Instruction& instruction);
  Cell logic(const Instruction& instruction);
  Cell load(const LoadInfo& info);
  Cell load_memory(const LoadInfo& info);
  bool offset_of(const LoadInfo& info, int64_t& offset, bool& unknown);
  Cell reduce(const ReduceInfo& info);
  Cell reduce_now(const ReduceInfo& info);
  template <class Result>
  Cell reduce_into(const ReduceInfo& info, int64_t count);
  Cell scan(const ReduceInfo& info);

  // interpret_region.cc
  void region(const Node& node);
  void iteration(const Nodes& nodes, bool maybe);
  void assign(const Node& node, bool maybe);
  void write(const Pending& pending);
  void write_anywhere(const LoadInfo& info);

  // interpret_tile.cc
  void resolve(const TileInfo& tile, Place& place);
  void resolve_axis(const TileInfo& tile, size_t axis, const Cell& first, const Cell& length, bool bounded,
                    std::vector<int64_t>& positions, bool& unknown);
  void copy(const Node& node);
  void fill(const Node& node);
  template <class Fn>
  void each_element(const Place& dst, const Place& src, const Fn& fn);
  void write_tile(const Place& dst, int memory, AtomicOp atomic, bool once, int64_t offset, const Cell& value);

  // interpret_gemm.cc
  struct Matrix;
  void read_matrix(int tile, bool transpose, Matrix& out);
  void gemm(const Node& node);
  void gemm_floats(const Node& node, const Matrix& a, const Matrix& b, std::vector<Cell>& c);
  void gemm_integers(const Matrix& a, const Matrix& b, DType type, std::vector<Cell>& c);

  // interpret_block.cc
  void run(const Nodes& nodes);
  void run(const Node& node);
  void loop(const Node& node);
  void taint(const std::vector<int>& written);
  bool spend(int64_t steps);

  const InterpretedKernel& program_;
  std::vector<Memory> memories_;
  std::vector<Cell> frame_;
  int64_t steps_left_;
  bool stopped_ = false;
  uint32_t block_ = 0;
  // Of the region in hand; serials are never used twice.
  uint32_t serial_ = 0, iteration_ = 0;
  std::vector<uint8_t> forward_set_;  // by forward
  std::vector<uint8_t> deferred_;     // by memory
  std::vector<Pending> pending_;
  struct Table {
    std::vector<Cell> values;
    std::vector<uint32_t> serials;
  };
  std::vector<Table> tables_;
  Place places_[2];  // scratch
};

}  // namespace kachel::ir
