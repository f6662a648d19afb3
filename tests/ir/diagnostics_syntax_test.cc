#include "diagnostics_table.h"

namespace kachel::ir {

TEST_CASE("the kernel that the tables vary is well-formed") {
  std::vector<Diagnostic> found = diagnose(in_kernel("C[by*BM +: BM, bx*BN +: BN] = acc"));
  for (const Diagnostic& diagnostic : found) MESSAGE(diagnostic.message);
  CHECK(found.empty());
}

TEST_CASE("diagnostics of the lexer") {
  const Malformed kTable[] = {
      {"tile 1\n$\xff$kernel", "byte 0xff is not UTF-8", "save the program as UTF-8"},
      {std::string("tile 1 $\0$", 10), "NUL byte", "UTF-8"},
      {in_kernel("let x = $12ab$"), "malformed number", "without a suffix"},
      {in_kernel("let x = $0x$"), "malformed number", "0x40"},
      {in_kernel("let x = $1e99$"), "beyond the range of f32", "inf"},
      {in_kernel("let x = $99999999999999999999$"), "does not fit in 64 bits", "smaller"},
      {in_kernel("let x = $-9300000000000000000$"), "does not fit in 64 bits", "smaller"},
      {in_kernel("let x = 1 $\xc3\xa4$"), "unexpected character", "ASCII"},
      {in_kernel("let $" + std::string(101, 'x') + "$ = 1"), "at most 100 characters", "shorten"},
      {in_kernel("let x = $" + std::string(61, '1') + "$"), "at most 60 characters", "drop"},
  };
  for (const Malformed& malformed : kTable) check(malformed);
}

TEST_CASE("diagnostics of modules and headers") {
  const Malformed kTable[] = {
      {"$kernel$ k() { }", "begins with the version", "tile 1"},
      {"tile $2$ kernel k() { }", "version 2 of the language", "newer library"},
      {"tile $kernel$ k() { }", "followed by the version", "tile 1"},
      {"tile 1 $foo$", "where a kernel or a program is expected", "kernel name(...)"},
      {"tile 1 kernel $shared$() { }", "`shared` is a reserved word and cannot name a kernel", "another name"},
      {"tile 1 kernel k $[$M]() { }", "where `(` is expected", "write `(`"},
      {"tile 1 kernel k() $;$", "clause or the body", "`where`"},
      {"tile 1 kernel k(s: i32) where s > 1 $and$ s < 9 { }", "clause or the body", "`&&`"},
      {"tile 1 kernel k() key 1 $kernel$ j() { }", "needs a body", "{ ... }"},
      {"tile 1 kernel k() ${$", "not closed", "matching `}`"},
      {"tile 1 kernel k<T: $x$>(A: T[M]) { }", "is not an element type", "f32 f16"},
      {"tile 1 kernel k<T: f16 | $f16$>(A: T[M]) { }", "listed twice", "remove one"},
      {"tile 1 kernel k<const x: $G$>() { }", "`G` is not a type", "declare it"},
      {"tile 1 kernel k(s: f32 $=$ 1.0) { }", "has no default", "`kernel f<const s: f32>(...)`"},
      {"tile 1 kernel k(A: $f64$[M]) { }", "`f64` is not a type", "arithmetic is in f32"},
      {"tile 1 kernel k(A: f32[M]) { fragment f: acc($f16$)[4] }", "`acc` takes a type symbol", "f32, i32 or i64"},
      {"tile 1 kernel k<T: f16>(A: T[M], B: $acc$(T)[M]) { }", "`acc` is a type of tiles only", "a type of its own"},
      {"tile 1 kernel k(A: $U$[M]) { }", "`U` is not a type", "<U: f16 | bf16>"},
      {"tile 1 kernel k(A: f32[M], $A$: f32[M]) { }", "`A` is declared already", "another name"},
      {"tile 1 kernel k($key$: f32[M]) { }", "`key` is a reserved word", "another name"},
      {"tile 1 kernel k(A: f32[M], $const$ n: i32) { }", "`const` among the arguments", "<T: f16, const rows: i32>"},
      {"tile 1 kernel k(A: f32[2*$M$]) { }", "unknown name `M`", "a shape binds a dimension"},
      {"tile 1 kernel k($A$: f32[1, 1, 1, 1, 1, 1]) { }", "has 6 axes", "1 to 5"},
      {"tile 1 kernel k(x: out f32$,$ y: f32) { }", "is a scalar", "T[1]"},
      {"tile 1 kernel k() tune auto ${$ }", "a tunable needs a name", "write `tune auto BM, BN`"},
      {"tile 1 kernel k() tune auto BM, $=$ { }", "a tunable needs a name", "write `tune auto BM, BN`"},
      {"tile 1 kernel k() tune auto BM $=$ 64 | 128 { }", "the values of `BM` are listed in `tune auto`",
       "a clause of its own: `tune BM = 64 | 128`"},
      {"tile 1 kernel k() tune BM = $big$ { }", "values of a tunable are integers", "64 | 128"},
      {"tile 1 kernel k() tune $4$ { }", "a tunable needs a name", "BM = 64"},
      {"tile 1 kernel k() tune BM = 4 | $4$ { }", "4 is listed twice", "remove one"},
      {"tile 1 kernel k() tune BM = $3000000000$ { }", "beyond 2^31 - 1", "smaller"},
      {"tile 1 kernel k() tune BM = 4, $BM$ = 8 { }", "`BM` is declared already", "another name"},
      {"tile 1 kernel k() $hint$ persistent { }", "`hint` is not in version 1", "remove"},
      {"tile 1 kernel k() grid a < 4 $grid$ b < 4 { }", "given twice", "keep one"},
      {"tile 1 kernel k() grid a $=$ 4 { }", "where `<` is expected", "write `<`"},
      {"tile 1 kernel k() grid a < 4, b < $a$ { }", "unknown name `a`", "declare"},
  };
  for (const Malformed& malformed : kTable) check(malformed);
}

TEST_CASE("diagnostics of statements") {
  const Malformed kTable[] = {
      {in_kernel("$while$ n < 4 { }"), "`while` is not in version 1", "for k < n"},
      {in_kernel("$hint$ persistent"), "`hint` is not in version 1", "remove"},
      {in_kernel("let x = 1; $)$ 1"), "where a statement is expected", "`parallel`"},
      {in_kernel("acc = As @ Bs^T $*$ 2"), "which is a whole statement", "`parallel` behind it"},
      {in_kernel("if true { $return$ = 1 }"), "unknown name `return`", "under `if`"},
      {in_kernel("acc $-=$ 1"), "`-=` on a tile", "parallel i < M"},
      {in_kernel("acc = acc $*$ 2"), "`*` between whole tiles", "parallel i < M"},
      {in_kernel("acc = acc $+$ acc"), "`+` between whole tiles", "`c += a @ b`"},
      {in_kernel("acc += $acc$"), "`+=` adds the product of a gemm only", "parallel i < M"},
      {in_kernel("acc += $1$"), "`+=` adds the product of a gemm only", "parallel i < M"},
      {in_kernel("$acc[0, 0]$ = 1"), "one element of a tile assigned outside", "parallel i < 1"},
      {in_kernel("$R[by, bx]$ = 1"), "one element of a tensor assigned outside", "parallel i < 1"},
      {in_kernel("parallel i < BM { $acc[i, :]$ = 1 }"), "a slice inside `parallel`", "index one element"},
      {in_kernel("parallel i < BM { $parallel$ j < BN { acc[i, j] = 0 } }"), "`parallel` inside `parallel`",
       "i < M, j < N"},
      {in_kernel("parallel i < BM { $for$ k < 4 { } }"), "a loop inside `parallel`", "sum[k < n]"},
      {in_kernel("for k < 4$,$ 2 { }"), "one index and no depth", "pipelined k < n, stages"},
      {in_kernel("for k < 0 $..$ 4 { }"), "`..` behind the end of a loop", "`for k in a .. b { ... }`"},
      {in_kernel("parallel i $in$ 0 .. 4 { }"), "`in` behind the name of an index", "begin at 0"},
      {in_kernel("parallel i < 0 $..$ 4 { }"), "`..` behind the extent", "begin at 0"},
      {in_kernel("for k $=$ 4 { }"), "behind the name of a loop index", "`for k in a .. b { ... }`"},
      {in_kernel("for k < 8 $step$ 2 { }"), "where `{` is expected", "rises by one"},
      {in_kernel("$sync$"), "unknown name `sync`", "nothing has to be waited for"},
      {in_kernel("parallel $($i, j) < (BM, BN) { }"), "where the name of", "without parentheses"},
      {in_kernel("parallel i < BM, j < BN { $acc[i]$[j] = 0 }"), "2 axes", "one pair of brackets"},
      {in_kernel("parallel i < BM, j < BN { acc[i, j] = $acc[i]$[j] }"), "2 axes", "one pair of brackets"},
      {in_kernel("for k in 1 $to$ 4 { }"), "where `..` is expected", "write `..`"},
      {in_kernel("let $in$ = 1"), "`in` is a reserved word", "another name"},
      {in_kernel("let x = 1 let $x$ = 2"), "`x` is declared already", "never hidden"},
      {in_kernel("parallel $s$ < 4 { }"), "`s` is declared already", "another name"},
      {in_kernel("let x = 1 $x$ = 2"), "`x` cannot be assigned", "fragment"},
      {in_kernel("$n$ += 2"), "`n` cannot be assigned", "fragment"},
      {in_kernel("$accu$ += As @ Bs^T"), "unknown name `accu`", "did you mean `acc`"},
      {in_kernel("parallel i < 64 { v[i] = $conut$[i, 0] }"), "unknown name `conut`", "did you mean `count`"},
      {in_kernel("acc += $($As * 2.0) @ Bs^T"), "an operand of `@` is a tile", "make it a tile first"},
      {"tile 1 kernel k(A: f32[M]) grid $($ceildiv(M, 64)) { shared a: f32[64] a = A[m*64 +: 64] }",
       "where the name of a grid axis", "without parentheses"},
      {in_kernel("acc += As @ $Bt$^T"), "unknown name `Bt`", "declare"},
      {in_kernel("acc += As @ $3$"), "operands of a gemm are tiles", "a @ b^T"},
      {in_kernel("acc += As^$2$ @ Bs"), "followed by `T`", "B^T"},
      {in_kernel("acc = $As$^T let x = 1"), "turns operands of products alone", "y[i, j] = x[j, i]"},
      {in_kernel("acc += As @ Bs^T $@$ Bs"), "two operands", "first product"},
      {in_kernel("acc += As @ Bs^T precision $f32$"), "precisions that can be asked for", "tf32"},
      {in_kernel("$x$ = 1"), "unknown name `x`", "let"},
      {in_kernel("acc = A[: $+:$ 3, 0]"), "where `]` is expected", "write `]`"},
      {in_kernel("atomic $4$ += 1"), "followed by the tensor", "atomic C[i, j] += x"},
      {in_kernel("atomic R[by*BM +: BM, bx*BN +: BN] $=$ acc"), "does not go with this `atomic`", "+="},
      {in_kernel("atomic max R[by*BM +: BM, bx*BN +: BN] $+=$ acc"), "does not go with this `atomic`",
       "max C[...] = x"},
      {in_kernel("atomic R[by*BM +: BM, bx*BN +: BN] += $1$"), "combines it with a tile", "fill a fragment"},
      {in_kernel("atomic R[by*BM +: BM, bx*BN +: BN] += As $@$ Bs^T"), "a gemm cannot be `atomic`", "accumulate"},
      {in_kernel("parallel i < BM { v[i] $|$= 2 }"), "there is no assignment `|=`", "write `u[i] = u[i] | x`"},
      {in_kernel("parallel i < BM { v[i] $<<$= 2 }"), "there is no assignment `<<=`", "write `u[i] = u[i] << x`"},
      {in_kernel("parallel i < BM { atomic h[by*BM + i] $*=$ 2 }"), "does not go with this `atomic`", "max C[i] = x"},
      {in_kernel("shared $x$: f32 = 0"), "the tile `x` needs a shape", "f32[1]"},
      {in_kernel("if n < 4 $($ 1 )"), "where `{` is expected", "write `{`"},
  };
  for (const Malformed& malformed : kTable) check(malformed);
}

TEST_CASE("diagnostics of slices and expressions") {
  const Malformed kTable[] = {
      {in_kernel("acc = R[by*BM $:$ BM, 0 +: BN]"), "`first +: length`", "`+:`"},
      {in_kernel("acc = R[by*BM +: BM $:$ 2, 0 +: BN]"), "has no step", "in a region"},
      {in_kernel("acc = R[by*BM +: BM, 0 +: BN $within$ 0 +: n]"), "within the brackets", "bounds the first axis"},
      {in_kernel("acc = R[by*BM +: BM, 0 +: BN $pad$ 1]"), "within the brackets", "pad -inf"},
      {in_kernel("acc = R[by*BM +: BM, n - 1 -$:$ BN]"), "where an expression is expected", "goes up"},
      {in_kernel("v = $I[0, 0 +: 4]$"), "`I` has 1 axes, 2 are given", "for each axis"},
      {in_kernel("As = A[I[by*BM +: BM] $+$ 1, 0 +: 32]"), "after a slice that is used as indices", "integer tile"},
      {in_kernel("As = A[by*BM +: BM, 0 +: 32] pad 0 $pad$ 1"), "`pad` is given twice", "keep one"},
      {in_kernel("As = A[by*BM +: BM, 0 +: 32] within 0 $,$ 4"), "where `+:` is expected", "write `+:`"},
      {in_kernel("let x = $q$"), "is a whole tensor", "index it"},
      {in_kernel("acc = (As $@$ Bs^T) * 2"), "within an expression", "a whole statement"},
      {in_kernel("parallel i < BM { v[i] = max(acc[i, $:$]) }"), "an index on every axis", "max[j < n]"},
      {in_kernel("let x = 1 + $acc$"), "is a whole tile", "acc[i, j]"},
      {in_kernel("let x = 1 + A[0, $:$]"), "needs an index on every axis", "not a scalar"},
      {in_kernel("let x = 1 + A[0, 0 $+:$ 4]"), "a range of `A` where a scalar", "sum[j < n]"},
      {in_kernel("let x = exp(A[0, 0 $+:$ 4])"), "a range of `A` where a scalar", "`parallel` computes on"},
      {in_kernel("parallel i < 4 { atomic R[0, i] $max$ = 1 }"), "`max` behind the element",
       "write `atomic max C[i] = x`"},
      {in_kernel("$tile$ x: f32[4]"), "`tile` where a statement", "`shared x: f16[M, N]`"},
      {in_kernel("let x = $I[0, 1]$"), "`I` has 1 axes, 2 indices", "one index for each axis"},
      {in_kernel("let x = $s$[0]"), "is a scalar and has no elements", "remove"},
      {in_kernel("let x = $s$(0)"), "`s` is not a function", "`*`"},
      {in_kernel("let x = $frobnicate$(0)"), "unknown function `frobnicate`", "the functions are"},
      {in_kernel("let x = $sigmoid$(s)"), "unknown function `sigmoid`", "rcp(1 + exp(-x))"},
      {in_kernel("let t = s if s > 1 $else$ 0"), "`else` where `{` is expected", "`condition ? a : b`"},
      {in_kernel("if s > 1 { h = 0 } $elif$ s > 2 { h = 1 }"), "unknown name `elif`", "`else if`"},
      {in_kernel("$assert$ n > 0"), "unknown name `assert`", "`where`"},
      {in_kernel("let z = $rand$()"), "unknown function `rand`", "the host's"},
      {in_kernel("let z = $bitcast$(s)"), "unknown function `bitcast`", "`i32(x)`"},
      {in_kernel("let z = s *$*$ 2"), "`*` where an expression is expected", "`exp2(y * log2(x))`"},
      {in_kernel("if s > 1 $and$ s < 2 { h = 0 }"), "`and` where `{` is expected", "write `&&`"},
      {in_kernel("let x = $pow$(s, 2)"), "unknown function `pow`", "exp2(y * log2(x))"},
      {in_kernel("parallel i < 4 { v[i] = $product$[k < 4](h[k]) }"), "unknown name `product`", "the reductions are"},
      {in_kernel("let x = $groop$ + 1"), "unknown name `groop`", "did you mean `group`"},
      {in_kernel("let x = exp $+$ 1"), "`exp` is a function", "exp(...)"},
      {in_kernel("let x = $exp(1.0, 2.0)$"), "`exp` takes 1 argument, 2 given", "that many"},
      {in_kernel("let x = $max(s)$"), "`max` takes 2 arguments, 1 given", "max[j < N](...)"},
      {in_kernel("parallel i < 4 { v[i] = sum[k $<=$ 3](h[k]) }"), "`<=` in a reduction stands before an index",
       "`k < n`"},
      {in_kernel("parallel i < 4 { v[i] = sum[k $<=$ n](h[k]) }"), "`<=` in a reduction stands before an index",
       "`k < n`"},
      {in_kernel("parallel i < 4 { v[i] = sum[k $<=$ i, m < 4](h[k]) }"), "`<=` in a reduction", "alone"},
      {in_kernel("parallel i < 4 { v[i] = sum[k $>=$ i](h[k]) }"), "`>=` after the index", "less the prefix"},
      {in_kernel("let x = $atomic$ R[0, 0] += 1"), "`atomic` where an", "gives no value"},
      {in_kernel("let x = sum$($1)"), "needs its index in brackets", "sum[j < N]"},
      {in_kernel("let x = argmin$($1)"), "`argmin` needs its index in brackets", "argmin[j < N]"},
      {in_kernel("parallel i < 4 { v[i] = argmax[$k$ <= i](h[k]) }"), "`argmax` reduces all of an axis", "max[k <= j]"},
      {in_kernel("parallel i < 4 { v[i] = argmin[$k$ < i](h[k]) }"), "`argmin` reduces all of an axis", "max[k <= j]"},
      {in_kernel("let x = approx $s$"), "followed by a function", "approx exp2"},
      {in_kernel("let x = approx $erf$(s)"), "no `approx` variant", "exp2"},
      {in_kernel("let x = 1 < n $<$ 3"), "comparisons do not chain", "a < b && b < c"},
      {in_kernel("let x = (1 + n $]$"), "where `)` is expected", "write `)`"},
      {in_kernel("let x = n > 0 ? 1 $]$"), "where `:` is expected", "write `:`"},
      {in_kernel("let x = 1 + $let y = 2$"), "within an expression needs `in`", "complete the expression"},
      {in_kernel("parallel i < BM { v[i] = sum[j < 8]($let d = 2$ d) }"), "within an expression needs `in`",
       "in d * d"},
      {in_kernel("parallel i < BM { v[i] = sum[j < 8](let $3$ = j in j) }"), "where the name of a value", "letters"},
      {in_kernel("let x = (let d = 1 in d) + $d$"), "unknown name `d`", "`let` names"},
      {in_kernel("let x = let d = 1, $d$ = 2 in d"), "`d` is declared already", "never hidden"},
      {in_kernel("let x = let d = s in $d$[1]"), "has no elements", "remove"},
      {in_kernel("let x = $if$ s > 0 then 1 else 2"), "`if` where an expression is expected", "`condition ? a : b`"},
      {in_kernel("$reduce$ i < 4 { }"), "unknown name `reduce`", "`sum[k < n](x[k])`"},
      {in_kernel("let x = 1 + $grid$ y = 2"), "`grid` where an expression is expected", "reserved word"},
      {in_kernel("let x = 1 + $)$"), "`)` where an expression is expected", "a number, a name"},
      {in_kernel("let x = T $+$ 1"), "where `(` is expected after a type", "write `(`"},
  };
  for (const Malformed& malformed : kTable) check(malformed);
}

TEST_CASE("a name that is declared twice is one mistake, whatever follows") {
  for (const char* body : {"let by = 1 by = 2 acc = by[0]", "shared s: f32[4] parallel i < 4 { v[i] = s[i] + s } s = v",
                           "parallel i < BM, j < BN { let acc = i + j acc[i, j] = v[acc] }"}) {
    CAPTURE(std::string(body));
    const std::vector<Diagnostic> found = diagnose(in_kernel(body));
    REQUIRE(found.size() == 1);
    CHECK(found[0].message.find("is declared already") != std::string::npos);
  }
}

}  // namespace kachel::ir
