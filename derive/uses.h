// What statements touch. Private to derive/.
#pragma once
#include <set>
#include <unordered_map>

#include "ir/kernel.h"

namespace kachel::derive {

// With everything inside a statement. Sums that a product adds to are read, too.
struct Uses {
  std::set<const ir::Buffer*> read, written;
  std::set<const ir::Var*> vars;
  void add(const Uses& other);
};
Uses find_uses(const ir::Stmt& stmt);

// The same, found once for each statement of a kernel.
class KnownUses {
 public:
  const Uses& of(const ir::Stmt& stmt) {
    const auto [found, fresh] = uses_.try_emplace(&stmt);
    if (fresh) found->second = find_uses(stmt);
    return found->second;
  }

 private:
  std::unordered_map<const ir::Stmt*, Uses> uses_;
};

// Whether the statement gives every element of the tile a value that does not depend on what it held.
bool defines(const ir::Stmt& stmt, const Uses& uses, const ir::Buffer& tile);
// All of a tile, without bounds.
bool is_whole(const ir::TileRef& tile);

}  // namespace kachel::derive
