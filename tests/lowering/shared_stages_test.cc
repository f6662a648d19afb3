// Loops that use the same stages (shared_stages.h), as printed.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// Products along A and then along B, whose loop has so many stages and copies from there on.
std::string notes_of(int stages, const std::string& first, int architecture = 90) {
  Request request{fmt::format(R"(tile 1
kernel k(A: f16[M, K], B: f16[M, L], V: f16[N, K], W: f16[N, L], C: out f32[M, N])
grid i < ceildiv(M, 128), j < ceildiv(N, 128)
{{
  shared   x: f16[128, 64], w: f16[128, 64]
  fragment acc: f32[128, 128] = 0
  pipelined s < ceildiv(K, 64), 5 {{
    x = A[i*128 +: 128, s*64 +: 64]
    w = V[j*128 +: 128, s*64 +: 64]
    acc += x @ w^T
  }}
  pipelined s < ceildiv(L, 64), {} {{
    x = B[i*128 +: 128, {} +: 64]
    w = W[j*128 +: 128, s*64 +: 64]
    acc += x @ w^T
  }}
  C[i*128 +: 128, j*128 +: 128] = acc
}}
)",
                              stages, first)};
  request.target.architecture = architecture;
  return lowered(request).notes;
}
constexpr const char* kGoesOn = "into {x, w}, the stages of the pipeline before\n";

TEST_CASE("products along two tensors in turn have all of the memory for both loops") {
  const std::string notes = notes_of(5, "s*64");
  CAPTURE(notes);
  CHECK(has(notes, "pipeline s: depth 5, the copy engine into {x, w}\n"));
  CHECK(has(notes, std::string("pipeline s: depth 5, the copy engine ") + kGoesOn));
}

TEST_CASE("loops of other depths, and what is not filled alike, have stages of their own") {
  CHECK(!has(notes_of(4, "s*64"), kGoesOn));
  // Rows that begin anywhere are no boxes: the producer's threads copy them.
  const std::string apart = notes_of(5, "s*64 + 3");
  CAPTURE(apart);
  CHECK(!has(apart, kGoesOn));
  CHECK(has(apart, "shared memory holds no more stages"));
  // Without the copy engine tiles lie where those before are done with.
  CHECK(!has(notes_of(5, "s*64", 80), kGoesOn));
}

}  // namespace
}  // namespace kachel::lowering
