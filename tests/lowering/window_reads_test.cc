// What regions read around their own place (direct_reads, open_windows, turned_tiles, and TileLowering::reads_of).
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

std::string loops_of(const std::string& parameters, const std::string& body) {
  return lowered({"tile 1\nkernel k(" + parameters + ")\n" + body}).loop_ir;
}
int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// The largest of 3 x 3 at every second place, of rows that are filled up with the type's least number.
std::string pooled(const std::string& window) {
  return loops_of("X: bf16[H, W, C], Y: out bf16[oh, ow, C]", R"(grid h < oh, w < ceildiv(ow, 16)
{
  fragment t: f32[3, 33, 64], y: f32[16, 64]
  t = X[2*h - 1 +: 3, 32*w - 1 +: 33, 0 +: 64] pad -inf
  parallel i < 16, j < 64 { y[i, j] = )" + window + R"( }
  Y[h, 16*w +: 16, 0 +: 64] = y
}
)");
}

TEST_CASE("a window's elements are loaded from the tensor, eight neighbours together, with one bound for all") {
  const std::string text = pooled("max[a < 3, b < 3](t[a, 2*i + b, j])");
  CAPTURE(text);
  CHECK(!has(text, "shared t"));
  CHECK(!has(text, "barrier"));
  CHECK(count(text, "+: 8], X[") == 9);
  CHECK(count(text, "inside ? raw[j_v] : -inf") == 9);
}

TEST_CASE("a fragment stays in memory where most of its elements are wanted again and again") {
  CHECK(has(pooled("max[a < 3, b < 9](t[a, i + b, j])"), "shared t"));
  CHECK(has(pooled("max[a < 3](t[a, 2*i, 63 - j])"), "shared t"));
}

TEST_CASE("neighbours that read every second element load what lies between") {
  const std::string text = loops_of("X: bf16[R, W], Y: out bf16[R, w2]", R"(grid r < R, w < ceildiv(w2, 512)
{
  fragment y: f32[512]
  parallel j < 512 {
    let col = w*512 + j
    y[j] = X[r, 2*col + 1] - X[r, 2*col]
  }
  Y[r, w*512 +: 512] = y
}
)");
  CAPTURE(text);
  CHECK(count(text, "X[") == 1);
  CHECK(has(text, "raw[j_v * 2 + 1]"));
}

TEST_CASE("a filter along rows loads an access in front and one behind") {
  const std::string text = loops_of("X: f16[R, W], F: f32[3], Y: out f16[R, W]", R"(grid r < R, w < ceildiv(W, 1024)
{
  fragment y: f32[1024]
  parallel j < 1024 { y[j] = sum[k < 3](F[k] * X[r, w*1024 + j + k - 1]) + X[r, w*1024 + j] }
  Y[r, w*1024 +: 1024] = y
}
)");
  CAPTURE(text);
  CHECK(count(text, "+: 8], X[") == 3);
  CHECK(has(text, "raw[j_v + 7]"));
  CHECK(has(text, "raw[j_v + 9]"));
}

TEST_CASE("elements far from each other share no window, and places of 32 bits are left as they are") {
  const auto sum = [](const std::string& one, const std::string& other) {
    return loops_of("X: f16[R, W], h: i32, Y: out f16[R, W]",
                    "grid r < R, w < ceildiv(W, 1024)\n{\n"
                    "  fragment y: f32[1024]\n  parallel j < 1024 { let c = w*1024 + j\n    y[j] = X[r, " +
                        one + "] + X[r, " + other + "] }\n  Y[r, w*1024 +: 1024] = y\n}\n");
  };
  CHECK(count(sum("c - 31", "c + 31"), "+: 8], X[") == 4);
  CHECK(count(sum("c - 1", "c + 1"), "+: 8], X[") == 3);
  CHECK(count(sum("i32(c) + h*8 + 1", "i32(c) + 1"), "+: 8], X[") == 0);
}

TEST_CASE("a condition that states some bounds alone stands for itself") {
  const std::string text = loops_of("X: f16[N], Y: out f16[N]", R"(grid n < ceildiv(N, 1024)
{
  fragment y: f32[1024]
  parallel j < 1024 { let i = n*1024 + j - 1024
    y[j] = i >= 0 ? X[i] : 5.0 }
  Y[n*1024 +: 1024] = y
}
)");
  CHECK(!has(text, "inside"));
}

TEST_CASE("rows that a table names are loaded by vectors") {
  const std::string text = loops_of("X: f16[V, D], at: i32[R], Y: out f16[R, D]", R"(grid r < ceildiv(R, 16)
{
  fragment y: f32[16, 64]
  parallel i < 16, j < 64 { y[i, j] = X[at[r*16 + i] + 1, j] }
  Y[r*16 +: 16, 0 +: 64] = y
}
)");
  CHECK(has(text, "+: 8], X["));
}

TEST_CASE("what is read across its rows lies in memory, as the tensor has it") {
  const std::string text = loops_of("X: f16[T, C], Y: out bf16[C, T]", R"(grid t < ceildiv(T, 64), c < ceildiv(C, 32)
{
  fragment s: f32[64, 32], y: f32[32, 64]
  s = X[t*64 +: 64, c*32 +: 32]
  parallel j < 32, i < 64 { y[j, i] = s[i, j] }
  Y[c*32 +: 32, t*64 +: 64] = y
}
)");
  CAPTURE(text);
  CHECK(has(text, "shared s: f16[2048]"));
  CHECK(has(text, "copy_vector s["));
  CHECK(has(text, "copy_vector Y["));
}

TEST_CASE("what is added atomically meets in its sectors") {
  const std::string text = loops_of("X: f16[R, D], Y: inout f32[R, D]", R"(grid r < R, d < ceildiv(D, 512)
{
  fragment x: f32[512]
  x = X[r, d*512 +: 512]
  atomic Y[r, d*512 +: 512] += x
}
)");
  CAPTURE(text);
  CHECK(has(text, "let i0: i32 = e + i0_r * 128"));
}

TEST_CASE("padding is by vectors") {
  const std::string text = loops_of("X: f16[R, D], Y: out f32[R]", R"(grid r < R
{
  fragment x: f32[1024], y: f32[1]
  x = X[r, 0 +: 1024] pad -1
  parallel i < 1 { y[i] = sum[j < 1024](x[j]) }
  Y[r +: 1] = y
}
)");
  CAPTURE(text);
  CHECK(has(text, "copy_vector raw[0 +: 8], X["));
  CHECK(has(text, "inside ? raw[0]"));
}

TEST_CASE("bounds of one index are one comparison, and what a pipeline's iterations share is read in front of it") {
  const std::string gathered = loops_of("X: f32[H, W], I: i32[N], Y: out f32[N, W]", R"(grid r < N, w < ceildiv(W, 128)
{
  fragment y: f32[128]
  parallel j < 128 { y[j] = X[I[r] - 3, w*128 + j] }
  Y[r, w*128 +: 128] = y
}
)");
  CAPTURE(gathered);
  CHECK(has(gathered, "u32(ix) < u32(i32(H))"));
  CHECK(!has(gathered, ">= 0"));

  Request request;
  request.text = R"(tile 1
kernel k(A: f16[M, K], S: f32[M], Z: f32[K], B: f16[N, K], C: out f32[M, N])
grid i < ceildiv(M, 64), j < ceildiv(N, 64)
{
  shared   a: f16[64, 64], b: f16[64, 64]
  fragment an: f16[64, 64], acc: f32[64, 64] = 0
  pipelined s < ceildiv(K, 64), 2 {
    a = A[i*64 +: 64, s*64 +: 64]
    b = B[j*64 +: 64, s*64 +: 64]
    parallel p < 64, q < 64 { an[p, q] = a[p, q] > 0 ? a[p, q] * S[i*64 + p] : a[p, q] }
    acc += an @ b^T
  }
  C[i*64 +: 64, j*64 +: 64] = acc
}
)";
  const std::string made = lowered(request).loop_ir;
  CAPTURE(made);
  const size_t loop = made.find("for s in");
  REQUIRE(loop != made.npos);
  CHECK(made.find("S[") < loop);
  CHECK(made.find("S[", loop) == made.npos);
}

}  // namespace
}  // namespace kachel::lowering
