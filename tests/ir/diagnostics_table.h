// Malformed programs with what must be said about them. `$...$` in a program marks the text under the caret.
#pragma once
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "ir/parse.h"
#include "ir/verify.h"

namespace kachel::ir {

struct Malformed {
  std::string program;
  std::string_view message, mend;  // parts of them
};

// A body within a kernel that has one of everything.
inline std::string in_kernel(std::string_view body) {
  std::string text =
      "tile 1\n"
      "kernel k<T: f16 | bf16, const group: i32>(A: T[M, K], B: T[N, K], C: out T[M, N], R: inout f32[M, N], I: "
      "i32[M],\n"
      "                                          q: out u4[M, N], h: inout T[M], s: f32, n: i32)\n"
      "tune BM = 64 | 128, BN = 32 | 64\n"
      "grid by < ceildiv(M, BM), bx < ceildiv(N, BN)\n"
      "{\n"
      "  shared As: T[BM, 32], Bs: T[BN, 32], e: u8[BM, BN]\n"
      "  fragment acc: f32[BM, BN] = 0, v: f32[BM] = 0, w: f32[BM], count: i32[BM, BN] = 0\n"
      "  As = A[by*BM +: BM, 0 +: 32]\n"
      "  Bs = B[bx*BN +: BN, 0 +: 32]\n"
      "  ";
  text += body;
  return text + "\n}\n";
}

// The diagnostics of parse(), or of verify() if there are none.
inline std::vector<Diagnostic> diagnose(std::string_view text) {
  ParseResult result = parse(text);
  return result.diagnostics.empty() ? verify(result.module) : result.diagnostics;
}

inline void check(const Malformed& malformed) {
  const std::string& marked = malformed.program;
  size_t begin = marked.find('$'), end = marked.find('$', begin + 1);
  REQUIRE(end != marked.npos);
  std::string program = marked.substr(0, begin) + marked.substr(begin + 1, end - begin - 1) + marked.substr(end + 1);
  Loc want{1, 1, static_cast<int>(end - begin - 1)};
  for (size_t i = 0; i < begin; ++i) {
    ++want.column;
    if (marked[i] == '\n') ++want.line, want.column = 1;
  }
  std::vector<Diagnostic> found = diagnose(program);
  std::string all;
  for (const Diagnostic& diagnostic : found) all += format(diagnostic, "test.tile", program);
  CAPTURE(all);
  CAPTURE(marked);
  CHECK(found.size() == 1);
  if (found.size() != 1) return;
  CHECK(found[0].loc.line == want.line);
  CHECK(found[0].loc.column == want.column);
  CHECK(found[0].loc.length == want.length);
  CHECK(found[0].message.find(malformed.message) != std::string::npos);
  CHECK(found[0].mend.find(malformed.mend) != std::string::npos);
}

}  // namespace kachel::ir
