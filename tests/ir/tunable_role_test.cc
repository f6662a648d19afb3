// `tune auto`: what is read, written and refused, and what the uses of a tunable say.
#include "ir/tunable_role.h"

#include "diagnostics_table.h"
#include "ir/builder.h"
#include "ir/instantiate.h"
#include "ir/print.h"

namespace kachel::ir {
namespace {

constexpr std::string_view kMatmul = R"(tile 1

kernel matmul<T: f16 | bf16>(A: T[M, K], B: T[N, K], C: inout f32[M, N])
where BM * BN <= 32768
key bucket(M), N, K
tune auto BM, BN
tune warm = 1 | 2
tune auto BK, stages, splits, threads, cluster, cluster_columns
grid s < splits, by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared As: T[BM, BK], Bs: T[BN, BK]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    As = A[by*BM +: BM, k*BK +: BK]
    Bs = B[bx*BN +: BN, k*BK +: BK]
    acc += As @ Bs^T
  }
  parallel i < BM, j < BN { acc[i, j] = acc[i, j] * f32(warm) + f32(s) }
  atomic C[by*BM +: BM, bx*BN +: BN] += acc
}
)";

TunableRole role(const Kernel& kernel, std::string_view name) {
  for (size_t i = 0; i < kernel.tunables.size(); ++i)
    if (kernel.tunables[i].var->name == name) return roles_of(kernel)[i];
  return TunableRole::kUnknown;
}

Kernel kernel_of(std::string_view text) {
  ParseResult result = parse(text);
  REQUIRE(result.diagnostics.empty());
  return result.module.kernels.at(0);
}

TEST_CASE("tune auto is read and written, in one order with the lists") {
  auto module = load(kMatmul);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  const Kernel& kernel = module->kernels[0];
  std::string order;
  for (const Tunable& tunable : kernel.tunables) {
    CHECK(tunable.automatic == tunable.values.empty());
    order += (tunable.automatic ? " *" : " ") + tunable.var->name;
  }
  CHECK(order == " *BM *BN warm *BK *stages *splits *threads *cluster *cluster_columns");
  const std::string text = print(*module);
  CHECK(
      text.find(
          "\ntune auto BM, BN\ntune warm = 1 | 2\ntune auto BK, stages, splits, threads, cluster, cluster_columns\n") !=
      text.npos);
  CHECK(print(parse(text).module) == text);
  CHECK(load("tile 1 kernel k(A: out f32[N]) tune auto BN; grid b < ceildiv(N, BN) { fragment x: f32[BN] = 0 "
             "A[b*BN +: BN] = x }")
            .ok());
}

TEST_CASE("a binary does not depend on whether values are listed") {
  std::string listed(kMatmul);
  listed.replace(listed.find("auto BM, BN"), 11, "BM = 64, BN = 128 | 64");
  CHECK(canonical_body(kernel_of(listed)) == canonical_body(kernel_of(kMatmul)));
}

TEST_CASE("roles are read off uses") {
  const Kernel kernel = kernel_of(kMatmul);
  CHECK(role(kernel, "BM") == TunableRole::kProduct);
  CHECK(role(kernel, "BN") == TunableRole::kProduct);
  CHECK(role(kernel, "BK") == TunableRole::kProduct);
  CHECK(role(kernel, "stages") == TunableRole::kStages);
  CHECK(role(kernel, "splits") == TunableRole::kParts);
  CHECK(role(kernel, "threads") == TunableRole::kThreads);
  CHECK(role(kernel, "cluster") == TunableRole::kCluster);
  CHECK(role(kernel, "cluster_columns") == TunableRole::kClusterColumns);
  CHECK(role(kernel, "warm") == TunableRole::kUnknown);

  const Kernel rows = kernel_of(R"(tile 1
kernel k(X: f32[N, D], Y: out f32[N], P: out f32[tiles])
tune auto rows, BD, unroll, loops, tiles
grid r < ceildiv(N, rows)
{
  fragment x: f32[rows, BD], y: f32[rows] = 0
  for d < ceildiv(D, BD) {
    x = X[r*rows +: rows, d*BD +: BD]
    for l in 0 .. loops { parallel i < rows { y[i] += sum[j < unroll](x[i, j]) } }
  }
  Y[r*rows +: rows] = y
})");
  CHECK(role(rows, "rows") == TunableRole::kExtent);
  CHECK(role(rows, "BD") == TunableRole::kExtent);
  CHECK(role(rows, "unroll") == TunableRole::kExtent);
  CHECK(role(rows, "loops") == TunableRole::kParts);
  CHECK(role(rows, "tiles") == TunableRole::kParts);
}

TEST_CASE("names say nothing but for threads and clusters") {
  std::string renamed(kMatmul);
  const std::pair<std::string, std::string> names[] = {
      {"BM", "stage"}, {"BN", "splat"}, {"BK", "M0"}, {"stages", "x"}, {"splits", "BX"}};
  for (const auto& [from, to] : names)
    for (size_t at = 0; (at = renamed.find(from, at)) != renamed.npos; at += to.size())
      renamed.replace(at, from.size(), to);
  const Kernel kernel = kernel_of(renamed), original = kernel_of(kMatmul);
  CHECK(roles_of(kernel) == roles_of(original));
}

constexpr const char* kProgram = R"(tile 1
kernel part(X: f32[N], P: out f32[S])
key N
tune BN = 64
grid s < S
{
  fragment x: f32[BN], t: f32[1] = 0
  x = X[s*BN +: BN]
  parallel i < 1 { t[i] = sum[j < BN](x[j]) }
  P[s +: 1] = t
}
program p(X: f32[N], Y: out f32[1])
tune auto )";

TEST_CASE("a program's tunables are numbers of parts") {
  auto module = load(std::string(kProgram) + "S { temp P: f32[S] part(X, P) part(P, Y) }");
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  const Program& program = module->programs[0];
  CHECK(roles_of(program) == std::vector{TunableRole::kParts});
  CHECK(print(*module).find("tune auto S\n") != std::string::npos);
}

TEST_CASE("where nothing can be derived, tune auto is refused") {
  const Malformed kTable[] = {
      {"tile 1 kernel k(A: out f32[4]) tune auto $way$ { fragment x: f32[4] = 0 if way == 1 { x = 1 } A[:] = x }",
       "what `way` is used for does not say which values make sense", "list them: `tune way = 1 | 2`"},
      {"tile 1 kernel k(A: out f32[4]) tune auto $unused$ { fragment x: f32[4] = 0 A[:] = x }",
       "does not say which values", "tune unused = 1 | 2"},
      {std::string(kProgram) + "$S$ { temp P: f32[8] if S == 1 { part(X, P) } else { part(X, P) } part(P, Y) }",
       "what `S` is used for does not say which values make sense", "list them"},
      {"tile 1 kernel k(A: out f32[4]) tune auto B, $B$ { fragment x: f32[B] = 0 A[0 +: B] = x }", "`B` is", ""},
  };
  for (const Malformed& malformed : kTable) check(malformed);
}

TEST_CASE("few tunables are without values, however many are written") {
  check(
      {"tile 1 kernel k(A: out f32[4]) tune auto a, b, c, d, e, f, g, h, i, j, k0, l, m, n, o, p, $q$ grid x < "
       "a*b*c*d*e*f*g*h*i*j*k0*l*m*n*o*p*q { fragment y: f32[4] = 0 if x == 0 { A[:] = y } }",
       "more than 16 tunables without values", "list the values"});
  std::string many;
  for (int i = 0; i < 20000; ++i) many += (i ? ", a" : "a") + std::to_string(i);
  CHECK(!diagnose("tile 1 kernel k(A: out f32[4]) tune auto " + many + " { fragment y: f32[4] = 0 A[:] = y }").empty());
}

TEST_CASE("any value up to the role's limit makes a kernel") {
  const Kernel kernel = kernel_of(kMatmul);
  Bindings bindings;
  bindings.types["T"] = DType::F16;
  bindings.tunables = {{"BM", 128},      {"BN", 240},    {"warm", 1},
                       {"BK", 64},       {"stages", 3},  {"splits", 1},
                       {"threads", 128}, {"cluster", 1}, {"cluster_columns", 1}};
  CHECK(instantiate(kernel, bindings).ok());
  for (int64_t wrong : {int64_t{0}, int64_t{-1}, most_automatic(TunableRole::kProduct) + 1}) {
    bindings.tunables["BN"] = wrong;
    const Status status = instantiate(kernel, bindings).status();
    CHECK(status.code() == Code::kInvalid);
    CHECK(status.message().find("is not a value of the tunable `BN`; use one of 1 to 256") != std::string::npos);
  }
}

TEST_CASE("proofs hold for the least value, which is 1") {
  const char* radix =
      "tile 1 kernel k(A: out f32[64]) tune %s grid b < 1 { parallel i < 4, j < 2 { A[i*S + j] = 1 } fragment f: "
      "f32[S] "
      "= 0 }";
  std::string text(radix);
  const std::string listed = std::string(text).replace(text.find("%s"), 2, "S = 2 | 4");
  const std::string derived = text.replace(text.find("%s"), 2, "auto S");
  CHECK(diagnose(listed).empty());
  CHECK(!diagnose(derived).empty());
}

TEST_CASE("a builder's tunable may be derived") {
  KernelBuilder kb("k");
  Ex N = kb.dim("N"), BN = kb.automatic("BN");
  (void)N, (void)BN;
  CHECK(kb.take().tunables[0].automatic);
}

}  // namespace
}  // namespace kachel::ir
