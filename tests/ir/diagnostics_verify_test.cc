#include <fmt/format.h>

#include "diagnostics_table.h"

namespace kachel::ir {

TEST_CASE("diagnostics of headers that parse") {
  const Malformed kTable[] = {
      {"tile 1 kernel k() { } kernel $k$() { }", "two kernels `k`", "rename"},
      {"tile 1 kernel k<$T$: f16 | bf16>(A: f32[M]) { }", "no tensor has the type `T`", "give it to a tensor"},
      {"tile 1 kernel k<const $x$: f16>() { }", "the constant `x` cannot be f16", "f32, i32"},
      {"tile 1 kernel k<T: f32, const $x$: T>(A: T[M]) { }", "the constant `x` cannot be T", "f32, i32"},
      {"tile 1 kernel k($x$: f8e4m3) { }", "the scalar `x` cannot be f8e4m3", "f32, i32"},
      {"tile 1 kernel k($x$: i4) { }", "the scalar `x` cannot be i4", "f32, i32"},
      {"tile 1 kernel k<T: f16 | f32>(A: T[M], $x$: T) { }", "the scalar `x` cannot be f16", "make it f32"},
      {"tile 1 kernel k(A: f32[$0$]) { }", "positive integer", "at least 1"},
      {"tile 1 kernel k(n: i32, A: f32[$n$]) { }", "depends on the run-time scalar `n`", "const n"},
      {"tile 1 kernel k(A: i32[M]) where $A[0]$ > 1 { }", "`where` reads the tensor `A`", "in the body"},
      {"tile 1 kernel k(A: i32[M]) key $A[0]$ { }", "`key` reads the tensor `A`", "in the body"},
      {"tile 1 kernel k(A: i32[M]) grid b < $A[0]$ { }", "the grid reads the tensor `A`", "in the body"},
      {"tile 1 kernel k(A: i32[M]) where $sum[j < 4](j)$ > 1 { }", "a reduction in `where`", "formula"},
      {"tile 1 kernel k(A: i32[M]) where $bucket(M)$ > 1 { }", "`bucket` is for `key` only", "power of two"},
      {"tile 1 kernel k(A: i32[M]) grid b < $0$ { }", "extent of a grid axis must be a positive", "at least 1"},
      {"tile 1 kernel k(A: i32[M]) grid b < $2.5$ { }", "extent of a grid axis must be a positive", "at least 1"},
      {"tile 1 kernel k<A: f32 | f16 | bf16 | i8 | u8 | i16 | i32 | u32 | i64 | u64, B: f32 | f16 | bf16 | i8 | u8 | "
       "i16 "
       "| i32 | u32 | i64 | u64, C: f32 | f16 | bf16 | i8 | u8 | i16 | i32 | u32 | i64 | u64, $D$: f32 | f16 | bf16 | "
       "i8 "
       "| u8>(a: A[M], b: B[M], c: C[M], d: D[M]) { }",
       "more than 4096 combinations", "fewer types"},
  };
  for (const Malformed& malformed : kTable) check(malformed);
}

TEST_CASE("diagnostics of what must be known at compile time") {
  const Malformed kTable[] = {
      {in_kernel("shared x: f32[$n$]"), "must be known at compile time, `n` is not", "tunables"},
      {in_kernel("let half = 16 shared x: f32[$half$]"), "must be known at compile time, `half` is not",
       "write out what"},
      {in_kernel("parallel i < 32 { v[i] = sum[k < $i$ + 1](v[k]) }"), "`i` is not", "`sum[k <= i](x[k])`"},
      {in_kernel("let half = BM / 2 shared x: f32[$half$]"), "`half` is not", "write out what"},
      {in_kernel("shared x: f32[$0$]"), "the extent of a tile must be a positive integer", "at least 1"},
      {in_kernel("shared x: f32[$2.0$]"), "must be a positive integer", "at least 1"},
      {in_kernel("shared $x$: f32[1, 1, 1, 1, 1, 1]"), "`x` has 6 axes", "1 to 5"},
      {in_kernel("shared x: f32[4] = $s$"), "the initial value of a tile must be known", "tunables"},
      {in_kernel("parallel i < $n$ { }"), "the extent of `parallel` must be known", "mask"},
      {in_kernel("let x = sum[j < $n$](j)"), "the extent of a reduction must be known", "mask"},
      {in_kernel("w = h[0 +: $n$]"), "the length of a range must be known", "mask"},
      {in_kernel("w = h[0 +: BM] pad $s$"), "the padding must be known", "tunables"},
      {in_kernel("pipelined k < 4, $n$ { }"), "the depth of a pipeline must be known", "tunables"},
      {in_kernel("pipelined k < 4, $0$ { }"), "the depth of a pipeline must be a positive", "at least 1"},
      {in_kernel("if n < 4 { shared $x$: f32[4] }"), "`x` is declared inside a block", "top of the kernel"},
      {in_kernel("parallel i < 4 { fragment $x$: f32[4] }"), "`x` is declared inside a block", "top of the kernel"},
  };
  for (const Malformed& malformed : kTable) check(malformed);
}

TEST_CASE("diagnostics of prefix reductions") {
  const Malformed kTable[] = {
      {in_kernel("parallel i < 4 { v[i] = $sum[k <= i](h[k] * i)$ }"), "up to `i` depends on `i` itself",
       "use `k` in its place"},
      {in_kernel("parallel i < 4 { let twice = 2*i v[i] = $sum[k < i](h[twice])$ }"), "up to `i` depends on `i`",
       "use `k`"},
      {in_kernel("parallel i < 4 { if i == 3 { count[0, 0] = 5 } v[i] = $sum[k <= i](count[0, 0])$ }"),
       "up to `i` depends on `i`", "use `k`"},
      {in_kernel("parallel i < 4 { v[i] = f32(i) let own = v[i] w[i] = $sum[k <= i](own * h[k])$ }"),
       "up to `i` depends on `i`", "use `k`"},
      {in_kernel("parallel i < 4 { v[i] = sum[m < 4]($max[k <= i](h[k])$) }"), "inside a reduction", "to a tile"},
      {in_kernel("parallel i < 4, j < 4 { acc[i, j] = max[m <= i]($max[k <= j](h[k])$) }"), "inside a reduction",
       "to a tile"},
      {in_kernel("parallel i < 4 { v[i] = $sum[k <= i](k < 2)$ }"), "a reduction needs numbers, this is bool", "1 : 0"},
  };
  for (const Malformed& malformed : kTable) check(malformed);
}

TEST_CASE("diagnostics of shapes") {
  const Malformed kTable[] = {
      {in_kernel("acc += As @ $Bs$"), "`Bs` is T[BN, 32], the gemm needs [32, BN] on the right", "write `Bs^T`"},
      {in_kernel("acc += $As$^T @ Bs^T"), "`As` is T[BM, 32], the gemm needs [BM, 32] on the left", "without `^T`"},
      {in_kernel("acc += As @ $As$^T"), "the gemm needs [32, BN] on the right", "make the axes that meet equal"},
      {in_kernel("acc += $Bs$ @ As^T"), "needs BM rows on the left", "make both"},
      {in_kernel("acc += As[:, 0 +: 16] @ $Bs$^T"), "the gemm needs [16, BN]", "equal"},
      {in_kernel("acc += $A[0 +: BM, 0 +: 32]$ @ Bs^T"), "`A` is a tensor", "`shared` tile"},
      {in_kernel("$R[by*BM +: BM, bx*BN +: BN]$ = As @ Bs^T"), "`R` is a tensor", "`fragment`"},
      {in_kernel("acc += $v$ @ Bs^T"), "`v` has 1 axis here", "as `[n, 1]`"},
      {in_kernel("fragment sq: f32[BM, BM] = 0 sq += As @ $sq$"), "result and operand of one gemm", "another tile"},
      {in_kernel("acc += $As pad 1$ @ Bs^T"), "`within` and `pad` do not apply", "the copy"},
      {in_kernel("acc += $As[I[0 +: BM], :]$ @ Bs^T"), "selected by indices cannot be the operand", "copy them"},
      {in_kernel("acc = $v$"), "`v` is [BM] here, a tile [BM, BN] is expected", "i +: 1"},
      {in_kernel("v = $acc$"), "`acc` is [BM, BN] here, a tile [BM] is expected", "index the axes"},
      {in_kernel("R[bx*BN +: BN, by*BM +: BM] = $acc$"), "`acc` is [BM, BN] here, `R` is [BN, BM]",
       "y[j, i] = x[i, j]"},
      {in_kernel("let x = $1 / K$"), "`1 / K` is 0", "write `1.0 / K`"},
      {in_kernel("parallel i < BM { v[i] *= $1 / BM$ }"), "`1 / BM` is 0", "write `1.0 / BM`"},
      {in_kernel("acc = $As$"), "`As` is [BM, 32] here, `acc` is [BM, BN]", "axis 1 of both the same length: BN or 32"},
      {in_kernel("v = $h[0 +: 2*BM]$"), "`h` is [2 * BM] here", "axis 0"},
      {in_kernel("As = A[$R[0, 0 +: BM]$, 0 +: 32]"), "must hold integers, not f32", "i32 or i64"},
      {in_kernel("As = A[$q[0 +: BM, 0 +: BN]$, 0 +: 32]"), "selects elements along one axis, but has 2 axes",
       "all of its axes"},
      {in_kernel("v = h[$I[I[0 +: BM]]$]"), "indices that are selected by indices", "to a tile first"},
      {in_kernel("$v pad 1$ = h[0 +: BM]"), "`pad` on the written tile", "remove it"},
  };
  for (const Malformed& malformed : kTable) check(malformed);
}

TEST_CASE("equal shapes may be written differently") {
  for (const char* body : {"v = h[0 +: (BM + BM) / 2 * 0 + BM]", "v = h[0 +: ceildiv(BM, 1)]", "v = h[0 +: 2*BM - BM]",
                           "fragment z: f32[BM * BN] fragment y: f32[BN * BM] = 1 z = y",
                           "fragment z: f32[min(BM + 0, 8)] fragment y: f32[min(BM, 2 * 4)] = 1 z = y"}) {
    std::vector<Diagnostic> found = diagnose(in_kernel(body));
    CAPTURE(body);
    CHECK(found.empty());
  }
}

TEST_CASE("`where` states equal shapes") {
  std::string text =
      "tile 1 kernel k(A: f32[M, D], B: f32[M, E], C: out f32[M, D]) where M > 0 && D == 2*E grid b < M {"
      " fragment x: f32[2, E] fragment y: f32[D] x[0, :] = B[b, :] y = A[b, 0 +: 2*E] C[b, :] = y }";
  CHECK(diagnose(text).empty());
}

TEST_CASE("diagnostics of access") {
  const Malformed kTable[] = {
      {in_kernel("$A[by*BM +: BM, bx*BN +: BN]$ = acc"), "`A` is an input", "declare `A: out`"},
      {in_kernel("parallel i < BM, j < BN { $A[by*BM + i, bx*BN + j] = 1$ }"), "`A` is an input", "declare `A: out`"},
      {in_kernel("acc = $C[by*BM +: BM, bx*BN +: BN]$"), "`C` is `out` and cannot be read", "C: inout"},
      {in_kernel("let x = $C[0, 0]$"), "`C` is `out` and cannot be read", "C: inout"},
      {in_kernel("parallel i < BM, j < BN { $C[by*BM + i, bx*BN + j] += 1$ }"), "`C` is `out` and cannot", "C: inout"},
      {in_kernel("atomic $C[by*BM +: BM, bx*BN +: BN]$ += acc"), "`atomic` reads `C`", "declare `C: inout`"},
      {in_kernel("parallel i < BM { $atomic v[i] += 1$ }"), "`atomic` on the fragment `v`", "declare it `shared`"},
      {in_kernel("shared x: f32[BM] parallel i < BM { $atomic x[i] += 1$ }"), "`x` is read before", "= 0"},
      {in_kernel("shared x: f32[BM] = 0 atomic $x$ += v"), "`atomic` on a slice of the tile `x`", "combine elements"},
      {in_kernel("acc = $acc$"), "`acc` is copied to itself", "another tile"},
      {in_kernel("v = $w$"), "`w` is read before anything", "copy to it or fill it"},
      {in_kernel("parallel i < 32 { w[i] = $w[i - 1]$ * 0.5 + v[i] }"), "`w` is read before anything", "`sum[k <= i]"},
      {in_kernel("parallel i < BM { v[i] = $w[i]$ }"), "`w` is read before", "copy to it or fill it"},
      {in_kernel("parallel i < BM { $w[i] += 1$ }"), "`w` is read before", "copy to it or fill it"},
      {in_kernel("parallel i < BM { w[i] = 1 v[i] = $w[BM - 1 - i]$ }"), "`w` is read before",
       "a `for` over its steps"},
      {in_kernel("shared x: f32[BM, BM] $x$ += As @ As^T"), "`x` is read before", "= 0"},
      {in_kernel("let x = $w[0]$"), "`w` is read before", "fill it"},
      {in_kernel("$q[by*BM +: BM, bx*BN +: 3]$ = e[:, 0 +: 3]"), "4-bit tensor `q` is not even", "2*i +: 2*n"},
      {in_kernel("$q[by*BM +: BM, bx*3 +: BN]$ = e"), "4-bit tensor `q` is not even", "2*i +: 2*n"},
      {in_kernel("$q[by*BM +: BM, bx]$ = e[:, 0]"), "single elements of the 4-bit tensor", "2*i +: 2*n"},
      {in_kernel("parallel i < BM, j < BN { $q[by*BM + i, bx*BN + j] = 1$ }"), "two u4 share a byte", "copy it"},
      {in_kernel("$q[by, bx*BN +: BN] within 0 +: 3$ = e[0, :]"), "`within` on the last axis of the 4-bit", "u8"},
  };
  for (Malformed malformed : kTable) {
    size_t at = malformed.program.find("  Bs = B");  // `e` and `q` come with contents
    malformed.program.insert(at, "  e = 0\n");
    check(malformed);
  }
}

TEST_CASE("reads that are no mistake") {
  for (const char* body : {"parallel i < BM { w[i] = 1 v[i] = w[i] }", "for k < 4 { w = 0 v = w }",
                           "if n < 4 { w = 0 } v = w", "acc = As @ Bs^T", "let x = acc[0, 0] + sum[i < BM](v[i])"}) {
    std::vector<Diagnostic> found = diagnose(in_kernel(body));
    CAPTURE(body);
    for (const Diagnostic& diagnostic : found) MESSAGE(diagnostic.message);
    CHECK(found.empty());
  }
}

TEST_CASE("diagnostics of iterations and blocks that meet") {
  const Malformed kTable[] = {
      {in_kernel("parallel i < BM, j < BN { $v[i] = 1$ }"), "may write the same element of `v`", "see `j`"},
      {in_kernel("parallel i < BM { $v[i ^ 1] = v[i]$ }"), "may write the same element of `v`", "write at `i` itself"},
      {in_kernel("parallel i < BM, j < BN { $acc[i, i] = 1$ }"), "same element of `acc`", "`atomic`"},
      {in_kernel("parallel i < BM, j < BN { $acc[i + j, 0] = 1$ }"), "same element of `acc`", "sum[...]"},
      {in_kernel("parallel i < BM { $v[i / 2] = 1$ }"), "same element of `v`", "`Y[at, :] = x`"},
      {in_kernel("parallel i < BM { $v[i32(I[i])] = 1$ }"), "same element of `v`", "`Y[at, :] = x`"},
      {in_kernel("parallel i < BM { $v[i * n] = 1$ }"), "same element of `v`", "`Y[at, :] = x`"},
      {in_kernel("parallel i < BM, j < 8 { $v[i * 4 + j] = 1$ }"), "same element of `v`", "places differ which follow"},
      {in_kernel("parallel i < BM, j < BN { if j > 0 { $v[i] = 1$ } }"), "same element of `v`", "see `j`"},
      {in_kernel("parallel i < BM { $acc[i / 4, i % 8] = 1$ }"), "same element of `acc`", "`Y[at, :] = x`"},
      {in_kernel("parallel i < BM { $acc[i / 4, (i + 1) % 4] = 1$ }"), "same element of `acc`", "`Y[at, :] = x`"},
      {in_kernel("parallel i < BM { $acc[i / (4 * n), i / 4 % 3] = 1$ }"), "same element of `acc`", "`Y[at, :] = x`"},
      {in_kernel("parallel i < BM { $acc[i / 4, 0 * (i % 4)] = 1$ }"), "same element of `acc`", "places differ"},
      {in_kernel("parallel i < BM { $acc[i / 4 + i, i % 4] = 1$ }"), "same element of `acc`", "places differ"},
      {in_kernel("parallel i < BM { $acc[i / 4, i % 4 * n] = 1$ }"), "same element of `acc`", "places differ"},
      {in_kernel("parallel i < BM { let d = v[i] $acc[i / 4, i % 4 + i32(d)] = 1$ }"), "same element of", "differ"},
      {in_kernel("parallel i < BM { $acc[i / 9, i / 3 % 4 * 3 + i % 2] = 1$ }"), "same element of `acc`",
       "places differ"},
      {in_kernel("parallel i < BM { $acc[i / 6, i / 2 % 2 * 2 + i % 2] = 1$ }"), "same element of `acc`",
       "places differ"},
      {in_kernel("parallel i < BM, j < BN { $acc[i / 3, 2*j + i % 3] = 1$ }"), "same element of `acc`",
       "places differ"},
      {in_kernel("parallel i < BM, j < BN { $acc[i / 2, 2*j + (i - 4) % 2] = 1$ }"), "same element of",
       "places differ"},
      {in_kernel("parallel i < BM, j < 3 { $acc[i / 4, 2*(i % 4) + j] = 1$ }"), "same element of `acc`",
       "places differ"},
      {in_kernel("parallel i < BM { $acc[i % 8 / 3, i % 3] = 1$ }"), "same element of `acc`", "places differ"},
      {in_kernel("$C[by*BM +: BM, 0 +: BN]$ = acc"), "every block along `bx` writes the same elements of `C`",
       "if bx == 0"},
      {in_kernel("$C[0 +: BM, bx*BN +: BN]$ = acc"), "every block along `by`", "use `by` in the indices"},
      {in_kernel("$R[0 +: BM, bx*BN +: BN]$ = 0"), "every block along `by`", "use `by` in the indices"},
      {in_kernel("parallel i < BM { $h[by*BM + i] = 1$ }"), "every block along `bx`", "`atomic`"},
      {in_kernel("$C[by*BM +: 2*BM, bx*BN +: BN]$ = R[0 +: 2*BM, 0 +: BN]"), "overlapping elements of `C`", "equal"},
      {in_kernel("$C[by*4 +: 8, bx*BN +: BN]$ = R[0 +: 8, 0 +: BN]"), "blocks along `by` write overlapping",
       "length 8"},
      {in_kernel("let r = by*4 $C[r +: BM, bx*BN +: BN]$ = acc"), "blocks along `by` write overlapping", "length BM"},
  };
  for (const Malformed& malformed : kTable) check(malformed);
}

TEST_CASE("iterations and blocks that are apart") {
  for (const char* body : {
           "parallel i < BM, j < BN { acc[i, BN - 1 - j] = 1 }",
           "parallel i < BM, j < BN { acc[i + j, j] = 1 }",
           "fragment z: f32[BM * BN] parallel i < BM, j < BN { z[i * BN + j] = 1 }",
           "fragment z: f32[BM * BN] parallel i < BM, j < BN { z[j + BN * i] = 1 }",
           "parallel i < 4, j < 8, m < 2 { v[i * 16 + m * 8 + j] = 1 }",
           "parallel i < 4 { v[i * BM] = 1 }",
           "parallel i < BM, j < 1 { v[i] = 1 }",
           "parallel i < BM, j < BN { if j == i && n > 0 { v[i] = 1 } }",
           "parallel i < BM, j < BN { let c = j + 1 acc[i, c * 2] = 1 }",
           "parallel i < BM { acc[i / 4, i % 4] = 1 }",
           "parallel i < BM, j < BN { let all = i * BN + j let c = all % n acc[c, all / n] = 1 }",
           "parallel i < BM { acc[i / 9, i / 3 % 3 * 3 + i % 3] = 1 }",
           "parallel i < BM { acc[i / 9, i % 9 / 3 * 3 + i % 3] = 1 }",
           "parallel i < BM, j < BN { acc[i / 2, 2*j + i % 2] = 1 }",
           "parallel i < BM, j < 2 { let m = by*BM + i acc[m / n, m % n * 2 + j] = 1 }",
           "if bx == 0 { parallel i < BM, j < BN { if j == 0 { h[by*BM + i] = 1 } } }",
           "if bx == 0 { h[by*BM +: BM] = v }",
           "let r = I[by] let c = I[bx] C[r*BM +: BM, c*BN +: BN] = acc",
           "for k in by .. by + 1 { C[k*BM +: BM, bx*BN +: BN] = acc }",
           "fragment d: i32[BM] d = I[by*BM +: BM] C[d, bx*BN +: BN] = acc",
           "C[I[by*BM +: BM], bx*BN +: BN] = acc",
           "q[by*BM +: BM, bx*BN +: BN] = count",
           "fragment row: i32[N] = 0 if bx == 0 { q[by, :] = row }",
           "atomic R[0 +: BM, 0 +: BN] += acc",
           "parallel i < BM, j < BN { atomic R[0, 0] += acc[i, j] atomic max R[1, 1] = 2 }",
       }) {
    std::vector<Diagnostic> found = diagnose(in_kernel(body));
    CAPTURE(body);
    std::string all;
    for (const Diagnostic& diagnostic : found) all += diagnostic.message + "\n";
    CAPTURE(all);
    CHECK(found.empty());
  }
}

// Each name uses the one before three times: written out, the last would be more than anything can do.
TEST_CASE("names that multiply are accepted, but not in a reduction") {
  auto kernel = [](int names, const std::string& last) {
    std::string text = R"(tile 1
kernel k(A: f32[M, 64], C: out f32[M, 64])
grid i < ceildiv(M, 64)
{
  fragment a: f32[64, 64]
  a = A[i*64 +: 64, :]
  parallel r < 64, c < 64 {
    let x0 = a[r, c]
)";
    for (int n = 0; n < names; ++n) text += fmt::format("    let x{} = x{} + x{} - x{}\n", n + 1, n, n, n);
    return text + fmt::format("    a[r, c] = {}\n  }}\n  C[i*64 +: 64, :] = a\n}}\n", last);
  };
  CHECK(diagnose(kernel(60, "x60")).empty());
  CHECK(diagnose(kernel(4, "sum[k < 64](a[r, k] + x4)")).empty());
  const std::vector<Diagnostic> found = diagnose(kernel(60, "sum[k < 64](a[r, k] + x60)"));
  REQUIRE(found.size() == 1);
  CHECK(found[0].message.find("with its names written out, this reduction is more than 10000 operations") == 0);
  CHECK(found[0].mend.find("assign an intermediate value to a tile") == 0);
}

}  // namespace kachel::ir
