#include "ir/builder.h"

#include <doctest/doctest.h>

#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"

namespace kachel::ir {
namespace {

Module module_of(Kernel kernel) {
  Module module;
  module.kernels.push_back(std::move(kernel));
  return module;
}

void check_sound(const Module& module) {
  std::string text = print(module);
  CAPTURE(text);
  std::vector<Diagnostic> found = verify(module);
  for (const Diagnostic& diagnostic : found) MESSAGE(diagnostic.message);
  CHECK(found.empty());
  ParseResult parsed = parse(text);
  REQUIRE(parsed.diagnostics.empty());
  CHECK(print(parsed.module) == text);
  CHECK(verify(parsed.module).empty());
}

std::string complaint(const Kernel& kernel) {
  Module module;
  module.kernels.push_back(kernel);
  std::vector<Diagnostic> found = verify(module);
  for (const Diagnostic& diagnostic : found) CHECK(!diagnostic.mend.empty());
  return found.empty() ? "" : found[0].message;
}

}  // namespace

TEST_CASE("a built matmul equals the written one") {
  KernelBuilder kb("matmul_relu");
  TypeRef T = kb.type("T", {DType::F16, DType::BF16});
  Ex N = kb.dim("N"), K = kb.dim("K"), M = kb.dim("M");
  Ex BM = kb.tunable("BM", {64, 128}), BN = kb.tunable("BN", {64}), BK = kb.tunable("BK", {32}),
     stages = kb.tunable("stages", {2, 3});
  Buf A = kb.tensor("A", T, {M, K}), B = kb.tensor("B", T, {N, K}), C = kb.tensor("C", T, {M, N}, Direction::kOut);
  kb.where(K % 8 == 0);
  kb.key(M);
  kb.key(apply(Op::kBucket, {N}));
  Ex by = kb.grid("by", ceildiv(M, BM)), bx = kb.grid("bx", ceildiv(N, BN));
  Buf As = kb.shared("As", T, {BM, BK}), Bs = kb.shared("Bs", T, {BN, BK});
  Buf acc = kb.fragment("acc", DType::F32, {BM, BN}, 0);
  kb.pipelined("k", 0, ceildiv(K, BK), &stages, [&](Ex k) {
    kb.copy(As, A[{range(by * BM, BM), range(k * BK, BK)}]);
    kb.copy(Bs, B[{range(bx * BN, BN), range(k * BK, BK)}]);
    kb.gemm(acc, As, Bs, {.transpose_b = true});
  });
  kb.parallel("i", BM, "j", BN, [&](Ex i, Ex j) { kb.assign(acc, {i, j}, max(acc(i, j), 0)); });
  kb.copy(C[{range(by * BM, BM), range(bx * BN, BN)}], acc);
  Module module = module_of(kb.take());
  check_sound(module);
  ParseResult written = parse(R"(tile 1
    kernel matmul_relu<T: f16 | bf16>(A: T[M, K], B: T[N, K], C: out T[M, N])
    where K % 8 == 0
    key  M, bucket(N)
    tune BM = 64 | 128, BN = 64, BK = 32, stages = 2 | 3
    grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
    {
      shared   As: T[BM, BK], Bs: T[BN, BK]
      fragment acc: f32[BM, BN] = 0
      pipelined k < ceildiv(K, BK), stages {
        As = A[by*BM +: BM, k*BK +: BK]
        Bs = B[bx*BN +: BN, k*BK +: BK]
        acc += As @ Bs^T
      }
      parallel i < BM, j < BN { acc[i, j] = max(acc[i, j], 0) }
      C[by*BM +: BM, bx*BN +: BN] = acc
    })");
  CHECK(print(module) == print(written.module));
  std::vector<std::string> dims;
  for (const VarRef& dim : module.kernels[0].dims) dims.push_back(dim->name);
  CHECK(dims == std::vector<std::string>{"M", "K", "N"});
}

TEST_CASE("every statement and expression can be built") {
  KernelBuilder kb("all");
  Ex on = kb.constant("on", DType::Bool), M = kb.dim("M"), x = kb.scalar("x", DType::F32),
     n = kb.scalar("n", DType::I32);
  Buf A = kb.tensor("A", DType::F16, {M, 64}), I = kb.tensor("I", DType::I32, {M}),
      C = kb.tensor("C", DType::F32, {M, 64}, Direction::kInOut);
  Ex b = kb.grid("b", ceildiv(M, 8));
  Buf rows = kb.fragment("rows", DType::F32, {8, 64});
  kb.copy(rows, A[{gather(I[{range(b * 8, 8)}]), whole()}].within(0, n).padded(-1.5));
  kb.fill(rows, x * 2.0f);
  Ex y = kb.let("y", select(on && n > 0, cast(DType::F32, n), x));
  kb.loop("t", 1, n, [&](Ex t) { kb.branch(t % 2 == 0, [&] { kb.fill(rows, y); }, [&] { kb.fill(rows, -y); }); });
  kb.parallel({{"i", 8}, {"j", 64}}, [&](const std::vector<Ex>& v) {
    Ex total = sum("k", 64, [&](Ex k) { return rows(v[0], k); });
    kb.assign(rows, {v[0], v[1]}, apply(Op::kExp2, {total}, true), AssignOp::kMul);
    kb.atomic(AtomicOp::kAdd, C, {b * 8 + v[0], v[1]}, max("k", 4, [&](Ex k) { return rows(v[0], k) - k; }));
  });
  kb.atomic(AtomicOp::kMax, C[{range(b * 8, 8), whole()}], rows);
  check_sound(module_of(kb.take()));
}

TEST_CASE("what only a program can get wrong is diagnosed") {
  {
    KernelBuilder kb("in");
    CHECK(complaint(kb.take()).find("cannot name a kernel") != std::string::npos);
  }
  {
    KernelBuilder kb("k"), other("j");
    Ex foreign = other.dim("M");
    kb.let("x", foreign + 1);
    CHECK(complaint(kb.take()).find("outside the scope") != std::string::npos);
  }
  {
    KernelBuilder kb("k");
    Ex M = kb.dim("M");
    kb.tensor("A", DType::F32, {M * 2});
    CHECK(complaint(kb.take()).find("no tensor has the dimension `M`") != std::string::npos);
  }
  {
    KernelBuilder kb("k"), other("j");
    kb.let("x", other.fragment("f", DType::F32, {4})(0));
    CHECK(complaint(kb.take()).find("`f` is used but not declared") != std::string::npos);
  }
  {
    KernelBuilder kb("k"), other("j");
    kb.fragment("f", other.type("T", {DType::F32}), {4});
    CHECK(complaint(kb.take()).find("`T` is not one of this kernel") != std::string::npos);
  }
  {
    KernelBuilder kb("k");
    Buf f = kb.fragment("f", DType::F32, {4}, 0);
    kb.assign(f, {0}, 1);
    CHECK(complaint(kb.take()).find("outside `parallel`") != std::string::npos);
  }
  {
    KernelBuilder kb("k");
    Buf f = kb.fragment("f", DType::F32, {4}, 0);
    kb.parallel("i", 4, [&](Ex) { kb.fill(f, 1); });
    CHECK(complaint(kb.take()).find("a statement on tiles inside `parallel`") != std::string::npos);
  }
  {
    KernelBuilder kb("k");
    Buf f = kb.fragment("f", DType::F32, {4}, 0);
    kb.fill(f[{0}], 1);
    CHECK(complaint(kb.take()).find("this is no tile") != std::string::npos);
  }
  {
    KernelBuilder kb("k");
    Buf f = kb.fragment("f", DType::F32, {4}, 0);
    kb.fill(f[{0, whole()}], 1);
    CHECK(complaint(kb.take()).find("the slice of `f` is incomplete") != std::string::npos);
  }
  {
    KernelBuilder kb("k");
    kb.let("x", apply(Op::kExp, {1.0, 2.0}));
    CHECK(complaint(kb.take()).find("2 operands are given where 1") != std::string::npos);
  }
  {
    KernelBuilder kb("k");
    kb.let("x", Ex(ExprRef()));
    CHECK(complaint(kb.take()).find("an expression is incomplete") != std::string::npos);
  }
  {
    KernelBuilder kb("k");
    kb.tunable("BM", {});
    CHECK(complaint(kb.take()).find("a tunable without values") != std::string::npos);
  }
  {
    KernelBuilder kb("k");
    kb.let("x", 1);
    kb.let("x", 2);
    CHECK(complaint(kb.take()).find("`x` is declared already") != std::string::npos);
  }
  {
    KernelBuilder kb("k");
    Ex deep = 1;
    for (int i = 0; i < 300; ++i) deep = deep + 1;
    kb.let("x", deep);
    CHECK(complaint(kb.take()).find("200 deep") != std::string::npos);
  }
}

}  // namespace kachel::ir
