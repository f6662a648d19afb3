#include "ir/instantiate.h"
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include <functional>

#include "ir/concrete.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/typecheck.h"
#include "ir/verify.h"

namespace kachel::ir {
namespace {

Kernel parsed(std::string_view text) {
  ParseResult result = parse(text);
  for (const Diagnostic& diagnostic : result.diagnostics) FAIL(format(diagnostic, "test", text));
  REQUIRE(result.module.kernels.size() == 1);
  return result.module.kernels[0];
}

constexpr std::string_view kMatmul = R"(tile 1
kernel matmul<T: f16 | bf16>(A: T[M, K], B: T[N, K], C: out T[M, N], bias: f32)
where BM * BN <= 8192
key M, bucket(N)
tune BM = 64 | 128, BN = 64 | 128, BK = 32, stages = 2 | 3
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared As: T[BM, BK], Bs: T[BN, BK]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    As = A[by*BM +: BM, k*BK +: BK]
    Bs = B[bx*BN +: BN, k*BK +: BK]
    acc += As @ Bs^T
  }
  parallel i < BM, j < BN { acc[i, j] += bias + 1 }
  C[by*BM +: BM, bx*BN +: BN] = acc
}
)";

Bindings matmul_bindings() {
  Bindings bindings;
  bindings.types["T"] = DType::BF16;
  bindings.tunables = {{"BM", 64}, {"BN", 128}, {"BK", 32}, {"stages", 3}};
  return bindings;
}

// Every expression of a block, and those within its statements.
void each(const Block& body, const std::function<void(const ExprRef&)>& fn) {
  const auto tile = [&](const TileRef& ref) {
    for (const AxisSpec& axis : ref.axes) {
      if (axis.start) fn(axis.start);
      if (axis.extent) fn(axis.extent);
    }
    if (ref.within_first) fn(ref.within_first);
    if (ref.within_length) fn(ref.within_length);
    if (ref.pad) fn(ref.pad);
  };
  for (const Stmt& stmt : body) {
    if (auto* s = std::get_if<LetStmt>(&stmt.node)) fn(s->value);
    if (auto* s = std::get_if<CopyStmt>(&stmt.node)) tile(s->dst), tile(s->src);
    if (auto* s = std::get_if<ParallelStmt>(&stmt.node)) each(s->body, fn);
    if (auto* s = std::get_if<ForStmt>(&stmt.node)) fn(s->begin), fn(s->end), each(s->body, fn);
    if (auto* s = std::get_if<IfStmt>(&stmt.node)) fn(s->condition), each(s->then_body, fn), each(s->else_body, fn);
    if (auto* s = std::get_if<AssignStmt>(&stmt.node)) {
      fn(s->value);
      for (const ExprRef& index : s->indices) fn(index);
    }
  }
}

TEST_CASE("a concrete kernel has no tunables, types or untyped expressions") {
  Kernel generic = parsed(kMatmul);
  auto result = instantiate(generic, matmul_bindings());
  REQUIRE_MESSAGE(result.ok(), result.status().message());
  const Kernel& kernel = *result;
  CHECK(kernel.type_symbols.empty());
  CHECK(kernel.tunables.empty());
  CHECK(kernel.consts.empty());
  CHECK(kernel.where.empty());
  CHECK(kernel.dims.size() == 3);
  CHECK(kernel.params[0].tensor != generic.params[0].tensor);
  CHECK(kernel.params[0].tensor->type.dtype == DType::BF16);
  CHECK(kernel.params[3].scalar != generic.params[3].scalar);
  int loads = 0;
  each(kernel.body, [&](const ExprRef& expr) {
    visit(expr, [&](const ExprRef& node) {
      CHECK(node->typed);
      if (node->kind == ExprKind::kVar) CHECK(node->var->kind != VarKind::kTunable);
      if (node->kind == ExprKind::kLoad) ++loads;
    });
  });
  CHECK(loads == 1);  // of the compound assignment
  const auto* loop = std::get_if<ForStmt>(&kernel.body[3].node);
  REQUIRE(loop != nullptr);
  CHECK(is_int(loop->stages, 3));
  const auto* copy = std::get_if<CopyStmt>(&loop->body[0].node);
  REQUIRE(copy != nullptr);
  CHECK(tile_extents(copy->src) == std::vector<int64_t>{64, 32});
  CHECK(copy->src.buffer == kernel.params[0].tensor);
  CHECK(copy->dst.buffer == std::get_if<DeclStmt>(&kernel.body[0].node)->buffer);
  const auto* region = std::get_if<ParallelStmt>(&kernel.body[4].node);
  REQUIRE(region != nullptr);
  const auto* assign = std::get_if<AssignStmt>(&region->body[0].node);
  REQUIRE(assign != nullptr);
  CHECK(assign->op == AssignOp::kSet);
  CHECK(print(assign->value) == "acc[i, j] + (bias + 1.0)");
}

std::string failure(std::string_view text, const Bindings& bindings) {
  auto result = instantiate(parsed(text), bindings);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().code() == Code::kInvalid);
  return result.status().message();
}

bool has(const std::string& text, std::string_view part) {
  if (text.find(part) != text.npos) return true;
  MESSAGE(text);
  return false;
}

TEST_CASE("an accumulator follows its type symbol") {
  const Module module = *load(R"(tile 1
kernel k<T: f32 | f16 | f8e5m2 | i8 | u32 | u64>(A: T[16, 16], C: out f32[16, 16])
{
  shared a: T[16, 16]
  fragment c: acc(T)[16, 16] = 0
  a = A
  c += a @ a
  C = c
}
)");
  const std::pair<DType, DType> expected[] = {{DType::F32, DType::F32},    {DType::F16, DType::F32},
                                              {DType::F8E5M2, DType::F32}, {DType::I8, DType::I32},
                                              {DType::U32, DType::I32},    {DType::U64, DType::I64}};
  for (const auto& [type, sum] : expected) {
    CAPTURE(name(type));
    Bindings bindings;
    bindings.types = {{"T", type}};
    const auto concrete = instantiate(module.kernels[0], bindings);
    REQUIRE_MESSAGE(concrete.ok(), concrete.status().message());
    CHECK(std::get<DeclStmt>(concrete->body[1].node).buffer->type == TypeRef{sum, nullptr});
  }
  const std::string printed = print(module);
  CHECK(printed.find("acc(T)") != printed.npos);
  CHECK(print(*load(printed)) == printed);
}

TEST_CASE("what is missing or not allowed is named") {
  Bindings b = matmul_bindings();
  b.types.clear();
  CHECK(has(failure(kMatmul, b), "the type `T` has no value"));
  b = matmul_bindings();
  b.types["T"] = DType::F32;
  CHECK(has(failure(kMatmul, b), "`T` cannot be f32; use one of f16, bf16"));
  b = matmul_bindings();
  b.tunables.erase("BN");
  CHECK(has(failure(kMatmul, b), "the tunable `BN` has no value"));
  b = matmul_bindings();
  b.tunables["BN"] = 96;
  CHECK(has(failure(kMatmul, b), "96 is not a value of the tunable `BN`; use one of 64, 128"));
  b = matmul_bindings();
  b.tunables["BM"] = 128;
  CHECK(has(failure(kMatmul, b), "`where` condition does not hold for BM = 128, BN = 128"));

  constexpr std::string_view consts = R"(tile 1
kernel k<const causal: bool, const group: i32, const x: f32>(A: f32[N, D], C: out f32[N, D])
grid b < N
{
  fragment t: f32[D]
  t = A[b, :]
  if causal { parallel i < D { t[i] = x } } else { parallel i < D { t[i] = i / group } }
  C[b, :] = t
}
)";
  Bindings c;
  CHECK(has(failure(consts, c), "the const `causal` (bool) has no value"));
  c.int_consts["causal"] = 1;
  c.int_consts["group"] = int64_t{1} << 40;
  CHECK(has(failure(consts, c), "1099511627776 is not a value of `group`, which is i32"));
  c.int_consts["group"] = 4;
  CHECK(has(failure(consts, c), "the const `x` (f32) has no value"));
  c.float_consts["x"] = 0.1;
  CHECK(has(failure(consts, c), "depends on the dimension `D`"));
  c.dims["D"] = 0;
  CHECK(has(failure(consts, c), "the extent of `t` is 0"));
  c.dims["D"] = -1;
  CHECK(has(failure(consts, c), "the dimension `D` is -1"));
  c.dims["D"] = int64_t{1} << 25;
  CHECK(has(failure(consts, c), "extents are 1 to 16777216"));
  c.dims = {{"D", 16}, {"N", 5}, {"other", 3}};
  auto result = instantiate(parsed(consts), c);
  REQUIRE_MESSAGE(result.ok(), result.status().message());
  REQUIRE(result->dims.size() == 1);  // N is not static and stays
  CHECK(result->dims[0]->name == "N");
  REQUIRE(result->body.size() == 4);  // the other branch of `if causal` is gone
  const auto* region = std::get_if<ParallelStmt>(&result->body[2].node);
  REQUIRE(region != nullptr);
  const ExprRef& value = std::get_if<AssignStmt>(&region->body[0].node)->value;
  CHECK(value->float_value == static_cast<double>(0.1f));
}

TEST_CASE("shapes are compared again with numbers") {
  constexpr std::string_view text = R"(tile 1
kernel k(A: f32[N], C: out f32[N])
tune BM = 64 | 128, BN = 64
grid b < 1
{
  shared t: f32[BM], u: f32[BN], p: f32[BM, BN], q: f32[BN, BM]
  t = A[0 +: BM]
  %
}
)";
  const auto with = [&](std::string line) {
    std::string whole(text);
    whole.replace(whole.find('%'), 1, line);
    return whole;
  };
  Bindings b;
  b.tunables = {{"BM", 128}, {"BN", 64}};
  CHECK(has(failure(with("u = t"), b), "`u` is [64], the source `t` is [128]"));
  CHECK(has(failure(with("p += q @ q"), b), "the gemm is [128, 64] += [64, 128] @ [64, 128]"));
  CHECK(has(failure(with("p += q^T @ q^T"), b), "the gemm is [128, 64] += [128, 64] @ [128, 64]"));
  b.tunables["BM"] = 64;
  CHECK(instantiate(parsed(with("u = t")), b).ok());
  CHECK(instantiate(parsed(with("p += q @ q^T")), b).ok());
}

TEST_CASE("4-bit stores cover whole bytes") {
  constexpr std::string_view text = R"(tile 1
kernel k(C: out u4[N, K])
tune B = 15 | 16
grid n < N
{
  fragment t: u4[B] = 1
  C[n, n*B +: B] = t
}
)";
  Bindings b;
  b.tunables["B"] = 15;
  CHECK(has(failure(text, b), "may begin or end within a byte"));
  b.tunables["B"] = 16;
  CHECK(instantiate(parsed(text), b).ok());
}

TEST_CASE("stages are a small constant") {
  constexpr std::string_view text = R"(tile 1
kernel k(A: f32[N], C: out f32[N])
tune S = 0 | 2
grid b < 1
{
  fragment t: f32[8]
  pipelined n < 4, S { t = A[n*8 +: 8] }
  C[0 +: 8] = t
}
)";
  Bindings b;
  b.tunables["S"] = 0;
  CHECK(has(failure(text, b), "stages is not an integer from 1 to 64"));
  b.tunables["S"] = 2;
  CHECK(instantiate(parsed(text), b).ok());
}

TEST_CASE("static dimensions are those of tile extents, whole axes and reductions") {
  Kernel kernel = parsed(R"(tile 1
kernel k(A: f32[B, N, D], W: f32[E], C: out f32[B, N], G: f32[F])
grid b < B, n < N
{
  fragment t: f32[D]
  t = A[b, n, :]
  let s = sum[e < E](W[e])
  let z = G[F - 1]
  parallel i < D { t[i] = t[i] * s * z }
  C[b, n +: 1] = t[0 +: 1]
}
)");
  std::vector<std::string> names;
  for (const VarRef& dim : static_dims(kernel)) names.push_back(dim->name);
  CHECK(names == std::vector<std::string>{"D", "E"});
}

TEST_CASE("folding keeps values") {
  auto n = std::make_shared<Var>(Var{VarKind::kDim, "n", {DType::I64, nullptr}, {}});
  auto f = std::make_shared<Var>(Var{VarKind::kScalar, "f", {DType::F32, nullptr}, {}});
  auto w = std::make_shared<Var>(Var{VarKind::kScalar, "w", {DType::I32, nullptr}, {}});
  auto c = std::make_shared<Var>(Var{VarKind::kScalar, "c", {DType::Bool, nullptr}, {}});
  ExprRef vn = make_var(n), vf = make_var(f), vw = make_var(w), vc = make_var(c);
  const auto op = [](Op o, ExprRef a, ExprRef b) { return make_typed(o, {a, b}); };
  const auto i = [](int64_t v) { return make_int(v); };
  const auto i32 = [](int64_t v) { return make_int(v, DType::I32); };
  CHECK(same(fold(op(Op::kAdd, op(Op::kAdd, vn, i(1)), i(2))), op(Op::kAdd, vn, i(3))));
  CHECK(same(fold(op(Op::kAdd, op(Op::kSub, vn, i(1)), i(1))), vn));
  CHECK(same(fold(op(Op::kAdd, i(2), vn)), op(Op::kAdd, vn, i(2))));
  CHECK(same(fold(op(Op::kMul, i(1), vn)), vn));
  CHECK(is_int(fold(op(Op::kMul, vn, i(0))), 0));
  CHECK(same(fold(op(Op::kMul, op(Op::kMul, vn, i(4)), i(8))), op(Op::kMul, vn, i(32))));
  CHECK(is_int(fold(op(Op::kSub, vn, vn)), 0));
  // i32 sums are not reassociated.
  ExprRef narrow = op(Op::kAdd, op(Op::kAdd, vw, i32(1)), i32(2));
  CHECK(same(fold(narrow), narrow));
  CHECK(is_int(fold(op(Op::kDiv, i(-7), i(2))), -3));
  CHECK(is_int(fold(op(Op::kDiv, i(7), i(0))), 0));
  CHECK(is_int(fold(op(Op::kMul, i32(1 << 20), i32(1 << 12))), 0));
  // x + 0.0 changes -0.0 and x * 0.0 changes NaN: kept.
  ExprRef plus = op(Op::kAdd, vf, make_float(0)), times = op(Op::kMul, vf, make_float(0));
  CHECK(same(fold(plus), plus));
  CHECK(same(fold(times), times));
  CHECK(same(fold(op(Op::kMul, vf, make_float(1))), vf));
  CHECK(same(fold(op(Op::kSub, vf, make_float(0))), vf));
  CHECK(same(fold(op(Op::kDiv, vf, make_float(-8))), op(Op::kMul, vf, make_float(-0.125))));
  for (const double by : {3.0, 0.0, 1.5, 0x1p127}) {
    const ExprRef quotient = op(Op::kDiv, vf, make_float(by));
    CHECK(same(fold(quotient), quotient));
  }
  // A factor of both sides of a choice stands behind it, on whichever side it was.
  const ExprRef two = make_float(2), three = make_float(3);
  const auto choice = [&](const ExprRef& yes, const ExprRef& no) { return make_typed(Op::kSelect, {vc, yes, no}); };
  CHECK(same(fold(choice(op(Op::kMul, two, vf), op(Op::kMul, vf, three))), op(Op::kMul, choice(two, three), vf)));
  const ExprRef apart = choice(op(Op::kMul, two, vf), op(Op::kAdd, three, vf));
  CHECK(same(fold(apart), apart));
  CHECK(fold(op(Op::kAdd, make_float(16777216), make_float(1)))->float_value == 16777216);
  CHECK(same(fold(make_typed(Op::kSelect, {make_bool(false), vn, i(3)})), i(3)));
  CHECK(same(fold(op(Op::kAnd, make_bool(true), vc)), vc));
  CHECK(same(fold(op(Op::kOr, vc, make_bool(true))), make_bool(true)));
  CHECK(same(fold(make_cast({DType::I64, nullptr}, vn)), vn));
  ExprRef half = make_cast({DType::F16, nullptr}, vf);
  CHECK(same(fold(make_cast({DType::F16, nullptr}, half)), half));
  CHECK(same(fold(make_cast({DType::F32, nullptr}, half)), half));
  CHECK(same(fold(half), half));
  CHECK(fold(make_cast({DType::F16, nullptr}, make_float(1e6)))->float_value == HUGE_VAL);
  CHECK(fold(make_typed(Op::kExp2, {make_float(3)}))->kind == ExprKind::kApply);  // its error is stated, not zero
  CHECK(fold(make_typed(Op::kSqrt, {make_float(9)}))->float_value == 3);
}

TEST_CASE("host evaluation") {
  Kernel kernel = parsed(R"(tile 1
kernel k<const causal: bool>(A: f32[M, N], C: out f32[M, N], s: f32, n: i32)
where M % 4 == 0 && !causal, s > 0.5
key M, bucket(N), min(M, N) * 2, causal ? 1 : 0, n + 2147483647, s * 2
grid b < ceildiv(M, 16) { }
)");
  HostEnv env;
  const auto set = [&](const VarRef& var, int64_t i) { env[var.get()] = {false, i, 0}; };
  set(kernel.dims[0], 40);
  set(kernel.dims[1], 33);
  set(kernel.consts[0], 0);
  env[kernel.params[2].scalar.get()] = {true, 0, 0.75};
  set(kernel.params[3].scalar, 1);
  CHECK(*evaluate_int(kernel.where[0], env) == 1);
  CHECK(*evaluate_int(kernel.where[1], env) == 1);
  CHECK(*evaluate_int(kernel.key[0], env) == 40);
  CHECK(*evaluate_int(kernel.key[1], env) == 64);
  CHECK(*evaluate_int(kernel.key[2], env) == 66);
  CHECK(*evaluate_int(kernel.key[3], env) == 0);
  CHECK(*evaluate_int(kernel.key[4], env) == std::numeric_limits<int32_t>::min());  // i32 wraps
  auto real = evaluate(kernel.key[5], env);
  REQUIRE(real.ok());
  CHECK(real->is_float);
  CHECK(real->f == 1.5);
  CHECK(*evaluate_int(kernel.grid[0].extent, env) == 3);
  CHECK_FALSE(evaluate_int(kernel.key[5], env).ok());
  env.clear();
  CHECK(has(evaluate_int(kernel.key[0], env).status().message(), "`M` has no value here"));
}

}  // namespace
}  // namespace kachel::ir
