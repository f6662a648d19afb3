// Which axis of an operand products add up along. Private to derive/.
#pragma once
#include <map>
#include <optional>

#include "ir/kernel.h"

namespace kachel::derive {

class DepthAxes {
 public:
  explicit DepthAxes(const ir::Block& body);
  // Of a matrix that all products which read it read as it is and along the same axis.
  std::optional<size_t> of(const ir::Buffer* tile) const;

 private:
  void operand(const ir::TileRef& ref, size_t axis);
  std::map<const ir::Buffer*, std::optional<size_t>> axes_;
};

// The index of a region along k of the operand that it makes, of which each iteration sets one element; null: it makes
// none.
const ir::Var* depth_index(const ir::ParallelStmt& region, const DepthAxes& depth);

bool mentions(const ir::ExprRef& expr, const ir::Var* var);

}  // namespace kachel::derive
