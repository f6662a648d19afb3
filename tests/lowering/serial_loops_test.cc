// Serial loops as printed: what they load ahead (loads_ahead.h), which barriers they have (own_elements.h), and how
// matrices lie that they carry (carried_state.h).
#include <fmt/format.h>

#include "ir/print.h"
#include "lowering/tile_ir/own_elements.h"
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// A loop over rows of X, with `body`, for `range`.
std::string looped(const std::string& body, const std::string& range = "t < L", const std::string& type = "f32") {
  return lowered({fmt::format("tile 1\nkernel k(X: {}[L, 64], W: f32[L], n: i32[L], U: inout f32[L, 64], "
                              "Y: out f32[L, 64])\ntune threads = 64\ngrid b < 1\n{{\n"
                              "  shared number: i32[64], y: f32[64, 64]\n  fragment h: f32[64] = 0\n"
                              "  parallel i < 64 {{ number[i] = i32(i) }}\n"
                              "  for {} {{\n{}\n  }}\n  parallel t < 64, i < 64 {{ Y[t, i] = h[i] }}\n}}\n",
                              type, range, body)})
      .loop_ir;
}

const std::string kRecurrence = "parallel i < 64 { h[i] = h[i] * 0.5 + X[t, i]  Y[t, i] = h[i] }";

TEST_CASE("what a serial loop reads of inputs is loaded ahead") {
  const std::string text = looped(kRecurrence);
  CAPTURE(text);
  CHECK(has(text, "registers ahead: f32[16]"));
  CHECK(count(text, " = X[") == 2);  // in front of the loop, and in it
  CHECK(has(looped(kRecurrence, "t < L", "bf16"), "registers ahead: bf16[16]"));
  CHECK(has(looped(kRecurrence, "t < L", "u8"), "registers ahead: i32[16]"));
  CHECK(has(looped(kRecurrence, "t < 5"), "registers ahead: f32[5]"));
  CHECK(has(looped(kRecurrence, "t in 3..n[0]"), "registers ahead: f32[16]"));
  CHECK(!has(looped(kRecurrence, "t < 1"), "registers ahead"));
}

TEST_CASE("more at once reaches less far") {
  const std::string text =
      looped("parallel i < 64 { h[i] = h[i] * W[t] + X[t, i] + X[L - 1 - t, 63 - i] + W[L - 1 - t] }");
  CHECK(count(text, "registers ahead: f32[8]") == 4);
}

TEST_CASE("a long iteration is once in the code, while the next one's loads are under way") {
  std::string region = "parallel i < 64 { h[i] = h[i] * 0.5 + X[t, i]";
  for (int i = 0; i < 1200; ++i) region += fmt::format("  h[i] = tanh(h[i] * {}.5) + h[i]", i);
  const std::string text = looped(region + " }");
  CHECK(count(text, "registers now: f32[1]") == 1);
  CHECK(count(text, " = X[") == 2);
  CHECK(count(looped(region + " }", "t < 1"), "registers now") == 0);
}

TEST_CASE("loads run ahead of products, too") {
  const std::string text = lowered({"tile 1\nkernel k(G: bf16[L, 16, 80], W: bf16[80, 80], Y: out bf16[L, 16, 80])\n"
                                    "grid b < 1\n{\n  shared w: bf16[80, 80], h: bf16[16, 80] = 0\n"
                                    "  fragment g: f32[16, 80]\n  w = W\n  for t < L {\n    g = G[t, :, :]\n"
                                    "    g += h @ w^T\n    parallel i < 16, j < 80 { h[i, j] = tanh(g[i, j]) }\n"
                                    "    Y[t, :, :] = h\n  }\n}\n"})
                               .loop_ir;
  CAPTURE(text);
  CHECK(has(text, "registers ahead: bf16"));
  CHECK(has(text, "threads 160,"));  // ten columns of the instruction, which four warps cannot share
}

TEST_CASE("what loads, regions or others decide is loaded where it stands") {
  const auto ahead_of = [](const std::string& body) { return count(looped(body), "registers ahead"); };
  CHECK(ahead_of("parallel i < 64 { h[i] += X[n[t], i] }") == 1);  // the number alone
  CHECK(ahead_of("parallel i < 64 { h[i] += U[t, i] }") == 0);     // somebody may write it
  CHECK(ahead_of("parallel i < 64 { h[i] += X[number[t], i] }") == 1);
  CHECK(ahead_of("parallel i < 64 { h[i] += X[number[t], i] }  parallel i < 1 { number[t % 64] = 3 }") == 0);
  CHECK(ahead_of("if t % 3 == 1 { parallel i < 64 { h[i] += X[t, i] } }") == 1);
  CHECK(ahead_of("if number[0] > 2 { parallel i < 64 { h[i] += X[t, i] } }") == 1);
  CHECK(ahead_of("if n[t] > 2 { parallel i < 64 { h[i] += X[t, i] } }") == 1);  // the condition alone
}

TEST_CASE("an iteration waits for another one only where they share elements") {
  const auto barriers = [](const std::string& body) { return count(looped(body), "barrier"); };
  const size_t without = barriers("parallel i < 64 { h[i] += 1 }");
  CHECK(barriers(kRecurrence) == without);
  CHECK(barriers("parallel i < 64 { Y[L - 1 - 2 * t, i] = 2  Y[L - 2 * t, i] = 3 }") == without);
  CHECK(barriers("parallel i < 64 { Y[t / 2, i] = 2 }") > without);
  CHECK(barriers("parallel i < 64 { Y[t + i, i] = 2 }") > without);
  CHECK(barriers("parallel i < 64 { Y[t, i] = 2  Y[t + 1, i] = 3 }") > without);
  CHECK(barriers("parallel i < 64 { U[t, i] = U[t, i] * 2 }") == without);
  CHECK(barriers("parallel i < 64 { U[t, i] = h[i] }  parallel i < 64 { h[i] = U[max(t - 1, 0), 63 - i] }") > without);
}

// Of the loop in a kernel, what iterations have to themselves.
std::string own(const std::string& body) {
  auto module = ir::load(
      "tile 1\nkernel k(Y: out f32[256, 8], B: out u4[64, 8], s: i32[4])\ngrid b < 1\n{\n"
      "  shared y: f32[256, 8], q: u4[4, 8]\n  q = 1\n  for t < 16 {\n" +
      body + "\n  }\n}\n");
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  auto concrete = ir::instantiate(module->kernels[0], {});
  REQUIRE_MESSAGE(concrete.ok(), concrete.status().message());
  std::string names;
  for (const ir::Stmt& stmt : concrete->body)
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node))
      for (const ir::Buffer* buffer : own_elements(*loop)) names += buffer->name;
  return names;
}

TEST_CASE("elements of an iteration's own, by each of its indices") {
  CHECK(own("parallel i < 8 { Y[t, i] = 1 }") == "Y");
  CHECK(own("parallel i < 8 { Y[i, t] = 1 }") == "Y");
  CHECK(own("let at = 3 * t + b  parallel i < 8 { Y[at + 1, i] = 1  Y[at + 3, i] = 1 }") == "Y");
  CHECK(own("let at = 3 * t + b  parallel i < 8 { Y[at, i] = 1  Y[at + 3, i] = 1 }").empty());
  CHECK(own("parallel j < 4, i < 8 { Y[t * 4 + j, i] = 1 }") == "Y");
  CHECK(own("parallel j < 5, i < 8 { Y[t * 4 + j, i] = 1 }").empty());
  CHECK(own("parallel j < 4, i < 8 { Y[t * 4 + 3 * j, i] = 1 }").empty());
  CHECK(own("parallel i < 8 { Y[t + i64(s[0]), i] = 1 }").empty());
  CHECK(own("parallel i < 8 { Y[t * t, i] = 1 }").empty());
  CHECK(own("y[t*4 +: 4, :] = 1  Y[t*16 +: 4, :] = y[t*4 +: 4, :]").size() == 2);
  CHECK(own("y[t*4 +: 8, :] = 1  Y[t*16 +: 8, :] = y[t*4 +: 8, :]") == "Y");
  CHECK(own("y[t*4 +: 4, :] = 1  Y[0 +: 4, :] = y[0 +: 4, :]").empty());
  CHECK(own("for u < 4 { parallel i < 8 { Y[t * 4 + u, i] = 1 } }") == "Y");
  CHECK(own("B[t*4 +: 4, :] = q").empty());  // of which two share a byte
}

TEST_CASE("a matrix whose rows every step adds up lies so that few lanes share a sum") {
  const auto layout = [](int64_t threads, int64_t rows, const std::string& in_loop = "") {
    Request request{
        fmt::format("tile 1\nkernel k(R: f32[L, {0}], V: f32[L, 64], S0: f32[{0}, 64], Y: out f32[L, 64])\n"
                    "grid b < 1\n{{\n  fragment s: f32[{0}, 64]\n  s = S0\n  for t < L {{\n"
                    "    {1}\n    parallel j < 64 {{ Y[t, j] = sum[d < {0}](R[t, d] * s[d, j]) }}\n"
                    "    parallel d < {0}, j < 64 {{ s[d, j] = s[d, j] * 0.5 + R[t, d] * V[t, j] }}\n  }}\n}}\n",
                    rows, in_loop)};
    request.target.threads = static_cast<int>(threads);
    const std::string notes = lowered(request).notes;
    const size_t at = notes.find("tile s:"), from = notes.find("layout ", at) + 7;
    return notes.substr(from, notes.find('\n', at) - from);
  };
  CHECK(layout(128, 64) == "[64, 64] on 128 threads: 32 r1 2 t1; 64 t2");
  CHECK(layout(64, 48) == "[48, 64] on 64 threads: 48 r1; 64 t1");
  CHECK(layout(128, 27) != layout(128, 64));
  CHECK(!has(layout(128, 64, "s = S0"), "32 r1 2 t1"));  // what is loaded anew is better read by rows
}

TEST_CASE("so does one whose columns are added up, but where a step loads many vectors along them") {
  const auto layout = [](int64_t columns, int vectors) {
    std::string tiles, copies, terms;
    for (int i = 0; i < vectors; ++i) {
      tiles += fmt::format(", v{}: f32[{}]", i, columns);
      copies += fmt::format("    v{0} = V[t, {0}, :]\n", i);
      terms += fmt::format(" + v{}[j] * {}.5", i, i + 1);
    }
    Request request{
        fmt::format("tile 1\nkernel k(V: f32[L, 8, {0}], Y: out f32[L, 64])\ngrid b < 1\n{{\n"
                    "  fragment s: f32[64, {0}] = 0, y: f32[64]{1}\n  for t < L {{\n{2}"
                    "    parallel i < 64 {{ y[i] = sum[j < {0}](s[i, j]) }}\n"
                    "    parallel i < 64, j < {0} {{ s[i, j] = s[i, j] * 0.5 + y[i]{3} }}\n    Y[t, :] = y\n  }}\n}}\n",
                    columns, tiles, copies, terms)};
    request.target.threads = 128;
    const std::string notes = lowered(request).notes;
    const size_t at = notes.find("tile s:"), from = notes.find("layout ", at) + 7;
    return notes.substr(from, notes.find('\n', at) - from);
  };
  CHECK(layout(16, 2) == "[64, 16] on 128 threads: 64 t2; 8 r1 2 t1");
  CHECK(layout(64, 1) == "[64, 64] on 128 threads: 64 t2; 32 r1 2 t1");
  CHECK(layout(64, 5) != layout(64, 1));
}

TEST_CASE("what a thread loads of a long row comes an iteration ahead where all threads wait in it") {
  const auto loop = [](const std::string& work) {
    return lowered(
               {"tile 1\nkernel k(X: f32[M, N], Y: out f32[M], Z: out f32[M, N])\ntune threads = 256\ngrid m < M\n{\n"
                "  fragment x: f32[8192], most: f32[1] = -inf\n  for k < ceildiv(N, 8192) {\n"
                "    x = X[m, k*8192 +: 8192]\n    " +
                    work + "\n  }\n  Y[m +: 1] = most\n}\n",
                {},
                {.kind = Target::Kind::kCuda, .architecture = 90, .shared_limit = 227 * 1024},
                0})
        .loop_ir;
  };
  CHECK(has(loop("parallel i < 1 { most[i] = max(0.5 * most[i], max[j < 8192](x[j])) }"), "registers ahead: f32[32]"));
  CHECK(has(loop("Z[m, k*8192 +: 8192] = x"), "registers ahead: f32[32]"));
  // The next iteration's loads are not held up: the assembler, or another block, has them.
  CHECK(!has(loop("parallel i < 1 { most[i] += sum[j < 8192](x[j]) }"), "registers ahead"));
}

}  // namespace
}  // namespace kachel::lowering
