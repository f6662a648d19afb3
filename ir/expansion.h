// How much an expression comes to once names are written out. Names that use a name several times multiply, so a short
// text can stand for more than a computer can do: a pass that writes names out asks first.
#pragma once
#include <cstdint>
#include <unordered_map>

#include "ir/expr.h"

namespace kachel::ir {

class Expansion {
 public:
  static constexpr uint64_t kMost = uint64_t{1} << 32;  // sizes stay there

  void define(const Var* name, const ExprRef& value) { sizes_[name] = size(value); }
  void clear() { sizes_.clear(); }
  // Nodes of `value` with the defined names written out.
  uint64_t size(const ExprRef& value) const;

 private:
  std::unordered_map<const Var*, uint64_t> sizes_;
};

}  // namespace kachel::ir
