// What the body of a pipelined loop does around its wgmma, which run by themselves: what may be left under way.
#pragma once
#include <optional>

#include "lowering/passes/group_batches.h"

namespace kachel::lowering {

// A product, or a name or a comment beside it.
bool may_stand_with_products(const LoopStmt& stmt);
// Where the products that end a body begin, with what may stand with them.
size_t first_product(const LoopBlock& body);

// A body of nothing but wgmma on accumulators that nothing else in it touches.
bool only_products(const LoopBlock& body);

// Products, work on their result, products with that work's outcome.
struct Skew {
  LoopBlock first, work, second;
};
std::optional<Skew> skewed(const LoopPipeline& node);

// Work that touches no sums, then products, so that it can run beside those of the iteration before.
struct Prepared {
  LoopBlock work, products;
  std::vector<ir::BufferRef>
      operands;  // in registers, that the work makes: f32, rounded to 16 bits where it stores them
};
std::optional<Prepared> prepared(const LoopPipeline& node);

// Work that makes operands in the halves of LoopPipeline::alternating, then products, which can run on beside the next
// iteration's work.
bool makes_operands(const LoopPipeline& node);

// Products that begin new sums, and what is done with those, which touches nothing but registers. Neither has names of
// its own. Whether anything else wants the sums is for the caller to know.
struct Run {
  LoopBlock products, work;
  ir::BufferRef sums;
};
std::optional<Run> single_run(const LoopPipeline& node);

}  // namespace kachel::lowering
