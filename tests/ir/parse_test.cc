#include "ir/parse.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/print.h"
#include "ir/verify.h"

namespace kachel::ir {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Module parsed(std::string_view text) {
  ParseResult result = parse(text);
  for (const Diagnostic& diagnostic : result.diagnostics) MESSAGE(format(diagnostic, "test.tile", text));
  REQUIRE(result.diagnostics.empty());
  return std::move(result.module);
}

// Parses, prints, parses again: the text must stay.
void check_fixed_point(std::string_view text) {
  std::string once = print(parsed(text));
  CHECK(print(parsed(once)) == once);
}

}  // namespace

TEST_CASE("names within an expression stand for what they are given") {
  const auto with = [](const std::string& value) {
    return print(
        parsed("tile 1\nkernel k(X: f32[8, 8], n: i32, Y: out f32[8])\ngrid g < 1\n{\n"
               "  parallel i < 8 { Y[i] = " +
               value + " }\n}\n"));
  };
  CHECK(with("sum[k < 8](let d = X[i, k] - X[k, i] in d * d)") ==
        with("sum[k < 8]((X[i, k] - X[k, i]) * (X[i, k] - X[k, i]))"));
  CHECK(with("let a = 2, b = a + n in b * (let c = b in c + a)") == with("(2 + n) * ((2 + n) + 2)"));
  CHECK(with("1 + (let a = n > 3 in a ? X[i, 0] : 0) * 2") == with("1 + (n > 3 ? X[i, 0] : 0) * 2"));
  CHECK(with("X[let a = i % 3 in a * 2, 1]") == with("X[i % 3 * 2, 1]"));
  // Each name is twice the one before: a million operations, and more nesting than a text may have.
  std::string many = "let a0 = n + 1";
  for (int i = 1; i <= 20; ++i)
    many += ", a" + std::to_string(i) + " = a" + std::to_string(i - 1) + " * a" + std::to_string(i - 1);
  const ParseResult result = parse(
      "tile 1\nkernel k(n: i32, Y: out f32[8])\ngrid g < 1\n{\n  parallel i < 8 { Y[i] = " + many + " in a20 }\n}\n");
  REQUIRE(result.diagnostics.size() == 1);
  CHECK(result.diagnostics[0].message.find("100,000 nodes") != std::string::npos);
}

TEST_CASE("the examples are well-formed and a fixed point of print and parse") {
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(KACHEL_EXAMPLES)) {
    if (entry.path().extension() != ".tile") continue;
    CAPTURE(entry.path().string());
    std::string text = read(entry.path());
    Result<Module> module = load(text, entry.path().filename().string());
    if (!module.ok()) MESSAGE(module.status().message());
    REQUIRE(module.ok());
    check_fixed_point(text);
    for (const Kernel& kernel : module->kernels) CHECK(canonical_body(kernel).size() > 20);
    ++count;
  }
  CHECK(count >= 12);
}

TEST_CASE("fragments of the language by example") {
  const char* kPrograms[] = {
      // A bit mask instead of a causal one.
      R"(tile 1
      kernel draft(S: inout f32[B, R, N], mask: u64[B, R], prefix: i32, scale: f32)
      grid b < B
      { parallel row < 8, col < 64 {
          let draft = col - prefix
          S[b, row, col] = col < prefix || (draft < 64 && (mask[b, row] >> draft & 1) == 1)
            ? S[b, row, col] * (scale * log2e) : -inf
        } })",
      // Block-sparse, paged and ragged.
      R"(tile 1
      kernel sparse<T: f16>(K: T[B, S, G, D], count: i32[B, H, Q], list: i32[B, H, Q, L], O: out f32[B, H, Q, D])
      tune BN = 64, stages = 2
      grid b < B, h < H, s < Q
      { shared k: T[BN, D] fragment acc: f32[D] = 0
        let g = h / (H / G)
        pipelined t < count[b, h, s], stages { let n = list[b, h, s, t]   k = K[b, n*BN +: BN, g, :]
          parallel d < D { acc[d] += sum[j < BN](k[j, d]) } }
        O[b, h, s, :] = acc })",
      R"(tile 1
      kernel paged<T: f16>(K: T[P, page, G, D], table: i32[B, L], O: out T[B, L, G, D])
      tune rows = 16
      where page == rows
      grid b < B, n < L, g < G
      { shared k: T[rows, D] k = K[table[b, n], 0 +: rows, g, :] parallel d < D { O[b, n, g, d] = sum[j < rows](k[j, d]) } })",
      R"(tile 1
      kernel ragged<T: f16>(Q: T[N, H, D], offsets: i32[E], O: out T[N, H, D])
      tune BM = 64
      grid b < E - 1, s < ceildiv(N, BM), h < H
      { shared q: T[BM, D]
        let first = offsets[b], len = offsets[b + 1] - first
        q = Q[first + s*BM +: BM, h, :] within first +: len
        O[first + s*BM +: BM, h, :] within first +: len = q })",
      // Everything that prints in more than one way.
      R"(tile 1
      kernel odds<const on: bool, const x: f32>(A: inout f32[M, 4, 2*M + 1], i: i64, u: u64)
      where M > 0, M % 2 == 0
      { fragment f: f32[4, 4] = nan, g: f32[4, 4]; shared z: i4[4], e: f8e4m3[4, 4] = 1
        for a in 1 .. 3 { f = x } for b < 2 { f = -1e-30 }
        pipelined c in i .. i + 4 { f = f32(u) }
        g = f^T @ f precision tf32
        g += e @ e^T precision fast
        if on { f = 0 } else if M > 3 && !on { f = 1 } else { f = 2 }
        parallel p < 4, r < 4 {
          let w = approx exp2(f[p, r]) - -1.5, v = w > 0 ? w : on ? 1 : 2
          if p == r { f[p, r] *= max(w, v, 3) } else { f[p, r] /= fma(w, 2, -v) }
          atomic max A[p, r % 4, 0] = min[s < 4, t < 2](f[s, t] - 18446744073709551615)
        }
        atomic A[0 +: 4, :, 0] += f
      })",
  };
  for (const char* program : kPrograms) {
    CAPTURE(program);
    Result<Module> module = load(program);
    if (!module.ok()) MESSAGE(module.status().message());
    CHECK(module.ok());
    check_fixed_point(program);
  }
}

TEST_CASE("names are bound to what they mean") {
  Module module = parsed(R"(tile 1
    kernel k<T: f16 | bf16, const c: bool>(A: T[M, K], B: inout f32[K, BM, M], x: f32)
    tune BM = 64 | 128
    key M
    grid b < ceildiv(M, BM)
    { let y = b + M  fragment f: T[BM]  f = x })");
  const Kernel& kernel = module.kernels[0];
  REQUIRE(kernel.dims.size() == 2);
  CHECK(kernel.dims[0]->name == "M");
  CHECK(kernel.dims[1]->name == "K");
  CHECK(kernel.params[1].tensor->shape[1]->var == kernel.tunables[0].var);
  CHECK(kernel.params[1].tensor->shape[2]->var == kernel.dims[0]);
  CHECK(kernel.params[1].tensor->direction == Direction::kInOut);
  CHECK(kernel.params[0].tensor->type.symbol == kernel.type_symbols[0]);
  CHECK(kernel.tunables[0].values == std::vector<int64_t>{64, 128});
  const auto& let = std::get<LetStmt>(kernel.body[0].node);
  CHECK(let.value->args[0]->var == kernel.grid[0].var);
  CHECK(let.value->args[1]->var == kernel.dims[0]);
  CHECK(std::get<FillStmt>(kernel.body[2].node).value->var == kernel.params[2].scalar);
}

TEST_CASE("a slice is a tile, an element is a scalar") {
  Module module = parsed(R"(tile 1
    kernel k(A: f32[M, N], I: i32[M], C: out f32[M, N])
    { fragment f: f32[4, 4], v: f32[4]
      v = A[I[3], 0 +: 4]
      f = A[I[0 +: 4], 0 +: 4]
      f = A[I[3], I[4]] * 2
      f = f @ f^T
    })");
  const Block& body = module.kernels[0].body;
  const auto& row = std::get<CopyStmt>(body[2].node).src;
  CHECK(row.axes[0].kind == AxisSpec::Kind::kIndex);
  CHECK(row.axes[0].start->kind == ExprKind::kLoad);
  CHECK(row.axes[1].kind == AxisSpec::Kind::kRange);
  const auto& gathered = std::get<CopyStmt>(body[3].node).src;
  CHECK(gathered.axes[0].kind == AxisSpec::Kind::kGather);
  CHECK(std::get<FillStmt>(body[4].node).value->op == Op::kMul);
  CHECK(std::get<GemmStmt>(body[5].node).transpose_b);
  CHECK_FALSE(std::get<GemmStmt>(body[5].node).accumulate);
}

TEST_CASE("several mistakes are reported at once") {
  ParseResult result = parse(R"(tile 1
    kernel k(A: f33[M], B: f32[N])
    key M +
    grid b < N
    {
      fragment f: f32[4]
      f = unknown
      parallel i < 4, { f[i] = 1 }
      for { f = 0 }
      if 1 + { f = also_unknown }
      f = B[b, b]
      f = * 2
    }
    kernel j( { }
    kernel l(A: f32[M]) { A[0 +: 4] = missing })");
  std::vector<int> lines;
  for (const Diagnostic& diagnostic : result.diagnostics) lines.push_back(diagnostic.loc.line);
  CHECK(lines == std::vector<int>{2, 4, 7, 8, 9, 10, 10, 11, 12, 14, 15});
  CHECK(result.module.kernels.size() == 3);
}

TEST_CASE("limits") {
  auto first = [](const std::string& text) {
    ParseResult result = parse(text);
    REQUIRE(!result.diagnostics.empty());
    return result.diagnostics[0].message;
  };
  auto kernel = [](const std::string& body) { return "tile 1 kernel k(A: f32[M]) {" + body + "}"; };
  auto repeat = [](const std::string& text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  CHECK(first(repeat(" ", (1 << 20) + 1)).find("1 MiB") != std::string::npos);
  for (const std::string& body :
       {"let x = " + repeat("(", 300), "let x = " + repeat("-", 300) + "1", "let x = 1" + repeat(" + 1", 300),
        repeat("if true {", 300), repeat("if true { } else ", 300), "let x = " + repeat("max(", 300),
        "let x = " + repeat("true ? 1 : ", 300), "let x = " + repeat("A[", 300), "A[0 +: 1] = " + repeat("A[", 5000),
        "let x = " + repeat("1 ? ", 300), "let x = max(1" + repeat(", 1", 300) + ")"}) {
    CHECK(first(kernel(body)).find("200 deep") != std::string::npos);
  }
  CHECK(first(kernel(repeat("let x = 1 + 2 ", 30000))).find("declared already") != std::string::npos);
  std::string many;
  for (int i = 0; i < 30000; ++i) many += "let x" + std::to_string(i) + " = 1 + 2 ";
  CHECK(first(kernel(many)).find("100,000 nodes") != std::string::npos);
  CHECK(parse(kernel(repeat("let x = ", 1000))).diagnostics.size() <= 50);
  CHECK(parse(kernel(repeat("A[0 +: 1] = B\n", 1000))).diagnostics.size() == 1);  // each name once
}

TEST_CASE("load shows the mistake") {
  Result<Module> result = load("tile 1\nkernel k(A: f32[M]) {\n\tA[0 +: 4] = 1\n}\n", "my.tile");
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().code() == Code::kInvalid);
  CHECK(result.status().message() ==
        "my.tile:3:2: error: `A` is an input and cannot be written\n"
        "   3 | \tA[0 +: 4] = 1\n"
        "     | \t^^^^^^^^^\n"
        "   declare `A: out` or `A: inout`");
  CHECK_FALSE(load("tile 1").ok());
  CHECK_FALSE(load("").ok());
  // The message is text even if the program is not.
  std::string message = load("tile 1 \xf0\x28 kernel").status().message();
  for (char c : message) CHECK((c == '\n' || (c >= ' ' && c <= '~')));
}

TEST_CASE("separators, comments and line ends do not matter") {
  std::string a = print(parsed("tile 1 # version\nkernel k(A: out f32[4]) {\r\n  A = 1; let x = 2;; let y = x\r\n}"));
  std::string b = print(parsed("tile 1 kernel k ( A : out f32 [ 4 ] ) { A = 1 let x = 2 let y = x } # \xc3\xa4"));
  CHECK(a == b);
}

}  // namespace kachel::ir
