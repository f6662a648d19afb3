// What a region reads of a tensor, or of a tile whose rows are read as a tensor's are. See lower_reads.cc.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "lowering/loop_ir/region_index.h"
#include "lowering/plan/layout.h"

namespace kachel::lowering {

// Bytes of one access; and of the registers that fragments take, beyond which a region holds less in front of it.
inline constexpr int64_t kWidestAccess = 16, kFewRegisters = 96;
inline constexpr int64_t kNibbles = 8;  // 4-bit integers that are loaded together

struct RegionRead {
  const ir::Expr* load;
  std::vector<ir::ExprRef> indices;  // without names of the region's
  std::vector<size_t> axes;          // of the region that indices follow, in order
  std::vector<int64_t> groups;       // by such an axis: so many neighbours read the same
  int64_t width = 1;                 // iterations that one access serves
  int64_t stride = 1;                // elements from an iteration's to the next one's
  bool once = false;                 // in front of the region
  bool ahead = false;                // and that an iteration of the pipeline before
  bool unchanging = false;           // or in front of the pipeline: it is the same in all its iterations
  bool matrices = false;             // there too, the tile as it lies, by ldmatrix
  bool written = false;              // the region writes it too: replicas of who does must not read it meanwhile
  const ir::Expr* value = nullptr;   // what the registers stand for, if not for the load
  ir::DType unpacked{};              // `value` is one of 4-bit integers, whose bytes are loaded, or of 8 bits: its type
  std::vector<double> table;         // or follows from one of 4 bits: of each of the 16 (nibble_table.h)
  int64_t words = 0;                 // of eight each, loaded together by the four lanes that need a pair of each

  // Loads of elements near each other, and how far each is from where the indices say. Empty: `load`, just there.
  std::vector<std::pair<const ir::Expr*, int64_t>> window;
  bool padded = false;             // something else than 0 stands for what lies outside
  std::optional<ScaledIndex> row;  // the last index, where an access serves several iterations
  ir::ExprRef guard;               // of those, alike for them: else none of them wants it; null: there is none

  const ir::Expr* stands_for() const { return value ? value : load; }
  // Of `width` iterations, each with what `load` is of.
  int64_t loaded() const { return value && ir::bits(unpacked) == 4 ? width / 2 : width * stride; }
  // Of the row, counted from the first iteration's: whole accesses that hold what `count` iterations read.
  struct Elements {
    int64_t begin, end;
  };
  Elements elements(int64_t count) const;
  // Whether an access at most lies between an element of the window and this one.
  bool is_near(int64_t element) const;
};
struct HeldRead {
  const RegionRead* read;
  ir::BufferRef raw;  // the neighbours, or their bytes
  ir::ExprRef first;  // the first one of these; null: 0
};

// Elements of one access to a row of a tile.
int64_t row_vector(const Layout& layout, int64_t bytes);

// One for those whose elements are not far from each other.
void merge_windows(std::vector<RegionRead>* reads);

}  // namespace kachel::lowering
