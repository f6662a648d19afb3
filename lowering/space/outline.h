// What of a generic kernel decides which configurations fit a machine: its tiles, its products, and how often extents
// cover dimensions. Extents are evaluated for the values of the tunables; the kernel is never instantiated.
#pragma once
#include <optional>
#include <vector>

#include "ir/kernel.h"
#include "ir/tunable_role.h"
#include "lowering/space/space.h"

namespace kachel::lowering {

// A host expression, typed; `known` where it needs no dimension without a value.
struct Extent {
  ir::ExprRef expr;
  bool known = true;
  bool tuned = false;  // depends on a tunable whose values are derived
};

struct TileOutline {
  std::vector<Extent> extents;
  int bits = 32;
  bool shared = false;
  std::optional<Extent> stages;  // of the pipelined loop that fills it from a tensor; none: it is not filled ahead
  bool streamed = false;         // a loop fills it from a tensor
};

struct ProductOutline {
  Extent m, n, k;
  int bits = 16;  // of the narrower operand
  ir::DType a, b;
};

// `total` elements are covered by tiles of `extent`.
struct CoverOutline {
  Extent total, extent;
};

class Outline {
 public:
  explicit Outline(const SpaceQuestion& question);

  const SpaceQuestion& question() const { return question_; }
  bool is_cpu() const { return question_.target.kind == Target::Kind::kCpu; }
  const std::vector<ir::TunableRole>& roles() const { return roles_; }  // of the tunables
  const std::vector<TileOutline>& tiles() const { return tiles_; }
  const std::vector<ProductOutline>& products() const { return products_; }
  const std::vector<CoverOutline>& covers() const { return covers_; }
  const std::vector<Extent>& grid() const { return grid_; }
  // Of the operands of products in which the tunable is the extent along k alone; 0: it is another one as well.
  int bits_along_k(size_t tunable) const;

  // Nodes that are evaluated for one point, about, those of `where` included.
  size_t work() const { return work_; }

  // From now on extents are evaluated for these.
  void set(const std::vector<int64_t>& values);
  // Nothing where it cannot be evaluated.
  std::optional<int64_t> value(const Extent& extent) const;
  std::optional<int64_t> elements(const TileOutline& tile) const;
  int64_t cluster() const;  // that of a derived tunable; 1 where there is none
  // Whether derived columns of a cluster make a rectangle of it that is at most twice as high as it is wide.
  bool has_shape() const;
  // Whether rows of operands that go along k begin between lines of the cache, as far as dimensions are known.
  bool rows_straddle() const;
  bool gains_by(int64_t cluster) const;

 private:
  const ir::Tunable* tunable(ir::TunableRole role) const;  // the first of that role, or null
  Extent extent_of(const ir::ExprRef& expr);
  ir::DType type_of(const ir::TypeRef& type) const;
  void block(const ir::Block& body, const ir::ForStmt* loop);
  void product(const ir::GemmStmt& gemm);
  void cover(const ir::ExprRef& expr);

  const SpaceQuestion& question_;
  std::vector<ir::TunableRole> roles_;
  std::vector<TileOutline> tiles_;
  std::vector<const ir::Buffer*> buffers_;  // of the tiles
  std::vector<ProductOutline> products_;
  std::vector<CoverOutline> covers_;
  std::vector<Extent> grid_;
  ir::HostEnv env_;
  size_t work_ = 0;
};

// What a configuration asks of a block's memory.
struct Footprint {
  int64_t shared_bytes = 0;  // with the stages of pipelines
  int64_t registers = 0;     // of 32 bits, for all fragments
  int64_t elements = 0;      // of the largest tile
};
Footprint footprint_of(const Outline& outline);

// Whether the machine can use the tile extents of products, and has room for the tiles. Blocks form clusters only where
// the L2 is what they wait for: pairs of large tiles, and where lines are asked for twice, more of smaller ones.
bool fits(const Outline& outline, const Footprint& footprint);

// Blocks that a multiprocessor has shared memory for, at most kMostResident; 1 on a CPU.
inline constexpr int64_t kMostResident = 8;
int64_t resident_of(const Outline& outline, const Footprint& footprint);

}  // namespace kachel::lowering
