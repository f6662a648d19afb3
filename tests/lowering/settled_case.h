// Cases in which nothing but the data is drawn.
#pragma once
#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "ir/parse.h"
#include "tests/conformance/examples.h"
#include "tests/lowering/simulated_case.h"

namespace kachel::lowering {

// The only kernel of `text`, with all facts and the lowering's own number of threads; blocks go on to further tiles
// unless wished otherwise.
inline conformance::Case settled_case(const std::string& text, int architecture, const conformance::Wishes& wishes,
                                      uint64_t seed) {
  auto module = ir::load(text, "settled");
  REQUIRE_MESSAGE(module.ok(), module.status().message() << module.status().log());
  conformance::Random random(seed);
  auto test = conformance::random_case(module->kernels[0], 24, random, wishes);
  REQUIRE(test.has_value());
  test->threads = 0;
  test->architecture = architecture;
  test->shared_limit = 0;
  test->fact_mask = ~uint64_t{0};
  test->one_tile = wishes.one_tile > 0;
  return *std::move(test);
}

struct SettledKernel {
  std::unique_ptr<conformance::Prepared> prepared;
  LoopKernel kernel;
};
// `test` is borrowed by what is prepared.
inline SettledKernel lowered(const conformance::Case& test) {
  auto prepared = conformance::Prepared::make(test);
  REQUIRE(prepared.ok());
  auto kernel = lower_case(**prepared);
  REQUIRE(kernel.ok());
  return {*std::move(prepared), *std::move(kernel)};
}
SettledKernel lowered(conformance::Case&&) = delete;

}  // namespace kachel::lowering
