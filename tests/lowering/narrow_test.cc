// Index arithmetic: what is known of its values (range.h), and what is worked out in 32 bits (narrow.h), as printed.
#include <fmt/format.h>

#include <algorithm>

#include "lowering/loop_ir/range.h"
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

TEST_CASE("what is as large as an axis of a tensor has 32 bits where dimensions have") {
  const auto loops = [](const std::string& extent) {
    return lowered({"tile 1\nkernel k(X: f32[M, N], Y: out f32[" + extent +
                    "])\ngrid i < ceildiv(M * (N / 4), 128)\n{\n  fragment y: f32[128]\n  let quarter = N / 4\n"
                    "  parallel j < 128 { let p = i*128 + j y[j] = X[p / quarter, p % quarter] }\n"
                    "  Y[i*128 +: 128] = y\n}\n"})
        .loop_ir;
  };
  CHECK(!has(loops("M * (N / 4)"), "i64 = i * 128"));
  CHECK(has(loops("128"), "i64 = i * 128"));
}

TEST_CASE("products of a tensor's extents have 32 bits where its elements have") {
  const auto loops = [](const std::string& shape, const std::string& divisor) {
    return lowered({"tile 1\nkernel k(X: f32[" + shape + "], Z: f32[P], S: f32[M], Y: out f32[128])\ngrid i < 1\n{\n" +
                    "  fragment y: f32[128]\n  parallel j < 128 { y[j] = S[(j + P) / (" + divisor +
                    ")] }\n  Y[:] = y\n}\n"})
        .loop_ir;
  };
  CHECK(has(loops("M, N, L", "M * N * L"), "/ u32(i32(M) * i32(N) * i32(L))"));
  CHECK(has(loops("M, N, 2 * N", "M * 2 * N"), "/ u32(i32(M) * 2 * i32(N))"));
  CHECK(has(loops("M, N, 2 * M, 2 * N", "M * 4 * N"), "/ u32(i32(M) * 4 * i32(N))"));
  CHECK(has(loops("M, N, L", "M * 2 * N"), "/ u32(i32(M) * 2 * i32(N))"));
  CHECK(!has(loops("M, N, L", "M * N * N"), "u32(i32(M) * i32(N) * i32(N))"));
  CHECK(!has(loops("M, N, L", "M * N * 4"), "u32(i32(M) * i32(N) * 4)"));
}

TEST_CASE("names of products are looked into") {
  const auto loops = [](const std::string& names) {
    return lowered(
               {"tile 1\nkernel k(X: f32[M, N, 2 * M, 2 * N], Z: f32[P], S: f32[M], Y: out f32[128])\ngrid i < 1\n{\n" +
                ("  let " + names) +
                "\n  fragment y: f32[128]\n  parallel j < 128 { y[j] = S[(j + P) / (a * b)] }\n  Y[:] = y\n}\n"})
        .loop_ir;
  };
  CHECK(has(loops("a = 2 * M, b = 2 * N"), "/ u32(a * b)"));
  CHECK(!has(loops("a = 2 * M, b = 16 * M"), "/ u32(a * b)"));
}

TEST_CASE("a quotient of numbers that are not negative has no signs") {
  auto quotient = [](const std::string& index, const std::string& divisor) {
    return lowered(
               {"tile 1\nkernel k(X: f32[M, 64], S: f32[N], by: i32, Y: out f32[M, 64])\ngrid i < ceildiv(M, 64)\n{\n"
                "  fragment x: f32[64, 64]\n  x = X[i*64 +: 64, :]\n"
                "  parallel r < 64, c < 64 { x[r, c] += S[(" +
                index + ") / " + divisor + "] }\n  Y[i*64 +: 64, :] = x\n}\n"})
        .loop_ir;
  };
  CHECK(has(quotient("i*64 + r", "N"), "/ u32("));
  CHECK(!has(quotient("i*64 + r - 1", "N"), "/ u32("));
  CHECK(!has(quotient("i*64 + r", "i64(by - 1)"), "/ u32("));  // by - 1: of a divisor that is a parameter it is known
}

TEST_CASE("what fits 32 bits is worked out in 32") {
  auto narrowed = [](const std::string& index) {
    return lowered({"tile 1\nkernel k(X: f32[M, 64], S: f32[N], by: i32, Y: out f32[M, 64])\n"
                    "grid i < ceildiv(M, 64)\n{\n  fragment x: f32[64, 64]\n  x = X[i*64 +: 64, :]\n"
                    "  parallel r < 64, c < 64 { let at = " +
                    index + "  x[r, c] += S[at] }\n  Y[i*64 +: 64, :] = x\n}\n"})
        .loop_ir;
  };
  CHECK(has(narrowed("(i*64 + r) / i64(by)"), "let at: i32"));  // no more than the dividend, whatever divides it
  CHECK(has(narrowed("(i*64 + r) % i64(by)"), "let at: i32"));
  CHECK(has(narrowed("(r & 1) * 4 + (c % 8 >> 1) + (c << 3) | 64"), "let at: i32"));
  CHECK(has(narrowed("(c ^ r) >> i64(by)"), "let at: i32"));
  CHECK(has(narrowed("i64(by - 1) / i64(by - 1)"), "let at: i64"));  // the least number, by -1
  CHECK(has(narrowed("i64(by) << 1"), "let at: i64"));
}

TEST_CASE("what where says of dimensions") {
  const auto module = ir::load(
      "tile 1\nkernel k(X: f32[A, B], Y: f32[C, D], Z: f32[E, F], W: out f32[H, P])\n"
      "where B == 128 * A, 0 == C % 12, C == 8 * D, E == F + 32 * A + 64, P == (H + 1) / 2 && H < 100\n"
      "grid i < A\n{\n  fragment w: f32[1, 8] = 0\n  W[i +: 1, 0 +: 8] = w\n}\n");
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  const ir::Kernel& kernel = module->kernels[0];
  Ranges ranges;
  const auto dim = [&](const std::string& name) {
    return ir::make_var(*std::find_if(kernel.dims.begin(), kernel.dims.end(),
                                      [&](const ir::VarRef& each) { return each->name == name; }));
  };
  for (const ir::VarRef& each : kernel.dims) ranges.set(each, {0, 1 << 20});
  note_dimensions(kernel, &ranges);
  CHECK(ranges.multiple_of(dim("B")) == 128);
  CHECK(ranges.multiple_of(dim("C")) == 24);
  CHECK(ranges.multiple_of(dim("E")) == 1);
  CHECK(ranges.of(dim("P")) == Interval{0, 1 << 19});
  CHECK(ranges.of(dim("H")) == Interval{0, 1 << 20});
}

TEST_CASE("intervals of quotients, remainders and bits") {
  auto var = [](Interval interval, Ranges* ranges) {
    auto made = std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLet, "v", {ir::DType::I64, nullptr}, {}});
    ranges->set(made, interval);
    return ir::make_var(made);
  };
  auto of = [&](ir::Op op, Interval a, Interval b) {
    Ranges ranges;
    return ranges.of(ir::make_typed(op, {var(a, &ranges), var(b, &ranges)}));
  };
  const Interval any;
  CHECK(of(ir::Op::kDiv, {-7, 5}, any) == Interval{-7, 7});
  CHECK(of(ir::Op::kCeilDiv, {3, 5}, {-2, 9}) == Interval{-5, 5});
  CHECK(of(ir::Op::kDiv, any, any).full());
  CHECK(of(ir::Op::kMod, {-7, 5}, any) == Interval{-7, 5});
  CHECK(of(ir::Op::kMod, {0, 50}, {0, 9}) == Interval{0, 8});
  CHECK(of(ir::Op::kShr, {-7, 5}, any) == Interval{-7, 5});
  CHECK(of(ir::Op::kShr, {-2147483648, 2147483647}, {28, 28}) == Interval{-8, 7});
  CHECK(of(ir::Op::kShr, {8, 100}, {1, 3}) == Interval{1, 50});
  CHECK(of(ir::Op::kShr, {-9, -5}, {1, 70}) == Interval{-5, -1});
  CHECK(of(ir::Op::kBitXor, {0, 5}, {3, 9}) == Interval{0, 15});
  CHECK(of(ir::Op::kBitOr, {0, 5}, {-1, 9}).full());
  Ranges ranges;
  CHECK(ranges.of(ir::make_typed(ir::Op::kShl, {var({-3, 5}, &ranges), ir::make_int(4)})) == Interval{-48, 80});
  CHECK(ranges.of(ir::make_typed(ir::Op::kShl, {var(any, &ranges), ir::make_int(4)})).full());
}

TEST_CASE("what is known of a variable does not outlive it") {
  auto make = [] { return std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLet, "v", {ir::DType::I64, nullptr}, {}}); };
  Ranges ranges;
  for (int i = 0; i < 100; ++i) ranges.set(make(), {1, 2});
  for (int i = 0; i < 100; ++i) CHECK(ranges.of(ir::make_var(make())).full());
}

// Each name uses the one before three times, 60 times over: passes look at names, not at what they stand for.
TEST_CASE("names that multiply cost no pass more than others") {
  auto chain = [](const char* name) {
    std::string lets;
    for (int n = 0; n < 60; ++n) lets += fmt::format("  let {0}{1} = {0}{2} + {0}{2} - {0}{2}\n", name, n + 1, n);
    return lets;
  };
  const Lowered result =
      lowered({"tile 1\nkernel k(A: f16[M, 64], C: out f16[M, 64])\ngrid i < ceildiv(M, 64), j < 2\n{\n"
               "  shared a: f16[64, 64]\n  let y0 = i + 1\n" +
               chain("y") +
               "  if j == 0 { pipelined n < min(y60, M), 2 {\n  a = A[i*64 +: 64, :]\n"
               "  parallel r < 64, c < 64 {\n  let x0 = r + c + n\n" +
               chain("x") + "  a[r, c] = x60 < M ? a[r, c] : 0\n  }\n  C[i*64 +: 64, :] = a } }\n}\n"});
  CHECK(has(result.loop_ir, "let x60"));
  const Lowered serial = lowered(
      {"tile 1\nkernel k(A: f32[M, 64], C: out f32[M, 64])\ngrid i < 1\n{\n  fragment h: f32[64] = 0\n"
       "  for t < M {\n  let y0 = t + 1\n" +
       chain("y") + "  parallel c < 64 {\n  h[c] = h[c] * 0.5 + A[y60 % M, c]\n  C[t, c] = h[c]\n  }\n  }\n}\n"});
  CHECK(has(serial.loop_ir, "registers ahead"));
  const Lowered rows = lowered(
      {"tile 1\nkernel k(A: f32[M, 64], C: out f32[M, 64], H: inout f32[M, 64])\ngrid i < 1\n{\n"
       "  parallel r < 64, c < 64 {\n  let x0 = r + c\n" +
       chain("x") + "  if x60 < M {\n  C[r, c] = A[x60 % M, c]\n  atomic H[abs(x60) % M, c] += 1\n  }\n  }\n}\n"});
  CHECK(has(rows.loop_ir, "let x60"));
}

}  // namespace
}  // namespace kachel::lowering
