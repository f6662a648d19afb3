// Which tunables decide nothing but how work is cut.
#include "derive/free_tunables.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "derive/fixed_extents.h"
#include "ir/parse.h"
#include "ir/print.h"

namespace kachel::derive {
namespace {

// The names of the free ones, in alphabetical order.
std::string free_of(const std::string& text) {
  auto module = ir::load("tile 1 " + text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  std::vector<std::string> names;
  for (const ir::Var* tunable : free_tunables(module->kernels[0])) names.push_back(tunable->name);
  std::sort(names.begin(), names.end());
  return fmt::format("{}", fmt::join(names, " "));
}

// A product, with statements in its loop and behind it.
std::string product(const std::string& inside, const std::string& after, const std::string& more = "") {
  return R"(kernel p<T: f16>(A: T[M, K], B: T[N, K], R: T[M, N], S: f32[N], C: out f32[M, N], D: out f32[M2, N], P: out f32[J, M])
tune BM = 16 | 32, BN = 16 | 32, BK = 16, stages = 2 | 3 )" +
         more + R"(
grid i < ceildiv(M, BM), j < ceildiv(N, BN)
{
  shared a: T[BM, BK], b: T[BN, BK], r: T[BM, BN]
  fragment acc: f32[BM, BN] = 0, row: f32[BM], most: f32[BM], other: f32[BM, BN]
  let first = i*BM
  pipelined k < ceildiv(K, BK), stages {
    a = A[first +: BM, k*BK +: BK]
    b = B[j*BN +: BN, k*BK +: BK]
    )" + inside +
         R"(
    acc += a @ b^T
  }
  )" + after +
         R"(
}
)";
}

const std::string kStore = "C[i*BM +: BM, j*BN +: BN] = acc ";

TEST_CASE("extents are fixed at values that conditions allow") {
  const auto fixed = [](const std::string& conditions) {
    const auto module = ir::load(R"(tile 1
kernel k(A: f16[M, K], B: f16[K, N], Y: out f32[M, N])
tune BM = 16 | 32, BN = 32 | 64 | 128
)" + conditions + R"(
grid m < ceildiv(M, BM), n < ceildiv(N, BN)
{
  shared a: f16[BM, 16], b: f16[16, BN]
  fragment c: f32[BM, BN] = 0
  for k < ceildiv(K, 16) {
    a = A[m*BM +: BM, k*16 +: 16]
    b = B[k*16 +: 16, n*BN +: BN]
    c += a @ b
  }
  parallel i < BM, j < BN { c[i, j] += BN }
  Y[m*BM +: BM, n*BN +: BN] = c
}
)");
    REQUIRE_MESSAGE(module.ok(), module.status().message());
    const auto kernel = with_fixed_extents(module->kernels[0]);
    REQUIRE(kernel);
    const std::string text = ir::print(*kernel);
    const size_t at = text.find("f32[BM, ") + 8;
    return text.substr(at, text.find(']', at) - at);
  };
  CHECK(fixed("") == "128");
  CHECK(fixed("where BN <= 100") == "64");
  CHECK(fixed("where BM * BN <= 2048") == "128");  // which leaves BM = 16
  CHECK(fixed("where BN != 64 && BN < 128") == "32");
}

}  // namespace

TEST_CASE("extents of outputs and depths are free, those along which a loop walks are not") {
  CHECK(free_of(product("", kStore)) == "BM BN stages");
  CHECK(free_of(product("",
                        "r = R[first +: BM, BN*j +: BN] parallel x < BM, y < BN { let s = S[y + j*BN]  "
                        "acc[x, y] = acc[x, y] * s + r[x, y] } " +
                            kStore)) == "BM BN stages");
  CHECK(free_of(product("parallel x < BM, y < BK { a[x, y] = first + x > y ? a[x, y] : 0 }", kStore)) ==
        "BM BN stages");
  CHECK(free_of(product("parallel x < BM, y < BN { if i*BM + x >= j*BN + y { acc[x, y] += 1 } }", kStore)) ==
        "BM BN stages");
  CHECK(free_of(product("", "parallel x < BM, y < BN { C[first + x, j*BN + y] = acc[x, y] } ")) == "BM BN stages");
}

TEST_CASE("digits of a coordinate end where the tensor does") {
  const auto free = [](const std::string& place, const std::string& count = "P*Q") {
    return free_of("kernel k(X: f32[P, Q], Y: out f32[P, Q]) tune B = 16 | 32 grid b < ceildiv(" + count +
                   ", B) { fragment t: f32[B] parallel i < B { let m = b*B + i  t[i] = X[m / Q, m % Q] } "
                   "parallel i < B { let m = b*B + i  Y[" +
                   place + "] = t[i] } }");
  };
  CHECK(free("m / Q, m % Q") == "B");
  CHECK(free("m / Q, m % Q", "P*Q - 1").empty());  // the last element is written or not
  CHECK(free("m / P, m % P").empty());
  CHECK(free("m / Q + b, m % Q").empty());
}

TEST_CASE("what is added up along an extent fixes it") {
  CHECK(free_of(product("", "parallel x < BM { row[x] = sum[y < BN](acc[x, y]) } " + kStore)) == "BM stages");
  CHECK(free_of(product("", "parallel x < BM { row[x] = sum[y < 16](acc[x, y]) } " + kStore)) == "BM stages");
}

TEST_CASE("what depends on where a tile lies fixes its extent") {
  // The number of a block, its first element, an index within it.
  CHECK(free_of(product("", "parallel x < BM, y < BN { acc[x, y] += i } " + kStore)) == "BN stages");
  CHECK(free_of(product("", "parallel x < BM, y < BN { acc[x, y] += first } " + kStore)) == "BN stages");
  CHECK(free_of(product("", "parallel x < BM, y < BN { acc[x, y] += y } " + kStore)) == "BM stages");
  CHECK(free_of(product("", "parallel x < BM, y < BN { acc[x, y] += BN } " + kStore)) == "BM stages");
  CHECK(free_of(product("", "parallel x < BM, y < BN { acc[x, y] += S[j*BN / 32] } " + kStore)) == "BM stages");
  CHECK(free_of(product("", "parallel x < BM, y < BN { other[x, y] = y > 0 ? acc[x, y - 1] : 0 } acc = other " +
                                kStore)) == "BM stages");
  CHECK(free_of(product("", "if j*BN < 64 { " + kStore + "}")) == "BM stages");
  CHECK(free_of(product("", "parallel x < BM { row[x] = acc[x, 0] } " + kStore)) == "BM stages");
  // Each block of columns has a row of the output.
  CHECK(free_of(product("", "parallel x < BM { row[x] = 1 } P[j, i*BM +: BM] = row")) == "BM stages");
}

TEST_CASE("an element or a part of a tile that is named by its place fixes its extents") {
  CHECK(free_of(product("", "if acc[0, 0] > 0 { parallel x < BM, y < BN { acc[x, y] = -acc[x, y] } } " + kStore)) ==
        "stages");
  CHECK(free_of(product("", "let z = acc[0, 0] if z > 0 { parallel x < BM, y < BN { acc[x, y] += 1 } } " + kStore)) ==
        "stages");
  CHECK(free_of(product("", "row = acc[:, 0] parallel x < BM, y < BN { acc[x, y] += row[x] } " + kStore)) ==
        "BM stages");
  CHECK(free_of(product("", "acc[:, 0 +: 1] = 3 " + kStore)) == "BM stages");
}

TEST_CASE("a tensor that is read and written is cut for reading as for writing") {
  const auto in_place = [](const std::string& read) {
    return R"(kernel p(A: f16[M, 16], B: f16[N, 16], X: inout f32[M, N])
where N <= 64
tune BM = 16 | 32, BN = 64
grid i < ceildiv(M, BM), j < ceildiv(N, BN)
{
  shared a: f16[BM, 16], b: f16[BN, 16]
  fragment acc: f32[BM, BN] = 0, r: f32[BM, 64], own: f32[BM, BN], row: f32[BM]
  a = A[i*BM +: BM, :]
  b = B[j*BN +: BN, :]
  acc += a @ b^T
  )" + read +
           R"(
  X[i*BM +: BM, j*BN +: BN] = acc
})";
  };
  CHECK(free_of(in_place("own = X[i*BM +: BM, j*BN +: BN] parallel x < BM, y < BN { acc[x, y] += own[x, y] }")) ==
        "BM BN");
  CHECK(free_of(in_place("r = X[i*BM +: BM, 0 +: 64] parallel x < BM { row[x] = sum[y < 64](r[x, y]) } "
                         "parallel x < BM, y < BN { acc[x, y] += row[x] }")) == "BM");
  CHECK(free_of(in_place("parallel x < BM, y < BN { acc[x, y] += X[i*BM + x, 0] }")) == "BM");
}

TEST_CASE("an output that goes on behind the last element fixes the extent") {
  CHECK(free_of(product("", "D[i*BM +: BM, j*BN +: BN] = acc")) == "BN stages");
  CHECK(free_of(product("", "parallel x < BM, y < BN { D[first + x, j*BN + y] = acc[x, y] }")) == "BN stages");
}

TEST_CASE("one extent for two axes, and depths that mean more, are fixed") {
  CHECK(free_of(R"(kernel t<T: f16>(A: T[M, N], C: out T[N, M])
tune E = 16 | 32
grid i < ceildiv(M, E), j < ceildiv(N, E)
{
  fragment a: T[E, E], c: T[E, E]
  a = A[i*E +: E, j*E +: E]
  parallel x < E, y < E { c[y, x] = a[x, y] }
  C[j*E +: E, i*E +: E] = c
})") == "");
  CHECK(free_of(product("", "parallel x < BM, y < BN { acc[x, y] += stages } " + kStore)) == "BM BN");
}

}  // namespace kachel::derive
