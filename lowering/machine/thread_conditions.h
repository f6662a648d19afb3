// Conditions on the number of the thread: for how many threads and warps they hold. What a kernel computes from that
// number by `let`s counts.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>

#include "ir/instantiate.h"
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

inline constexpr int kWarp = 32;

class ThreadConditions {
 public:
  // `index` is the number of one of so many threads.
  void add_domain(const ir::VarRef& index, int64_t threads) { domains_[index.get()] = threads; }
  // In the order in which they are evaluated.
  void add_let(const LoopLet& let);

  // The shares of threads and of warps for which a condition holds, and of warps for which it does not.
  struct Share {
    double threads = 0, warps = 0, other_warps = 0;
  };
  // Nothing where it asks for anything but the number of the thread.
  std::optional<Share> share_of(const ir::ExprRef& condition) const;
  // Among other things, perhaps.
  bool asks_for_thread(const ir::ExprRef& expr) const;

 private:
  // False where the value hangs on anything but numbers of threads.
  bool free_variables(const ir::ExprRef& expr, std::set<const ir::Var*>* free, std::set<const ir::Var*>* seen) const;
  std::optional<int64_t> evaluate(const ir::ExprRef& expr, ir::HostEnv* env) const;

  std::unordered_map<const ir::Var*, ir::ExprRef> lets_;
  std::unordered_map<const ir::Var*, int64_t> domains_;
  std::set<const ir::Var*> asking_;  // `let`s that hang on numbers of threads
};

}  // namespace kachel::lowering
