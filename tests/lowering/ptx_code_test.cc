// What PTX is put together with (lowering/emit/ptx/ptx_code.h), read off the lines.
#include <doctest/doctest.h>

#include "lowering/emit/ptx/ptx_code.h"
#include "lowering/emit/ptx/ptx_division.h"
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering::ptx {
namespace {

Value whole(int64_t value) {
  return Code::integer(value, 32);
}

// A value that the lines are there for.
void use(Code* code, const Value& value) {
  code->line("st.shared.b32 [0], {};", value.text);
}

TEST_CASE("one instruction for one result, as long as its operands are what they were") {
  Code code;
  const Value a = code.fresh(Class::kB32), b = code.fresh(Class::kB32), changes = code.variable(Class::kB32);
  CHECK(code.add(a, b).text == code.add(b, a).text);
  CHECK(code.mul(a, changes).text == code.mul(a, changes).text);
  const Value before = code.mul(a, changes);
  code.assign(changes, whole(7), false);
  CHECK(code.mul(a, changes).text != before.text);
  const Value in_front = code.mul(a, changes);
  code.forget_variables();
  CHECK(code.mul(a, changes).text != in_front.text);
}

TEST_CASE("a part of a word is a number in place, while the word is what it was") {
  Code code;
  const Value word = code.variable(Class::kB32);
  const Value nibble = code.bits("and", code.shift(word, whole(8), false, false), whole(15));
  const auto number = code.part_as_number(nibble, false, -8);
  REQUIRE(number);
  code.line("st.shared.f32 [0], {};", number->text);
  CHECK(has(code.text(), fmt::format(", {}, 3840, 1258291200, 106;", word.text)));
  CHECK(has(code.text(), "fma.rn.f32"));
  CHECK(!has(code.text(), "shr"));
  // ((byte ^ 128) - 128), a number with a sign; of the upper half of a word, which is found once
  const Value byte = code.bits("and", code.shift(word, whole(24), false, false), whole(255));
  const Value with_sign = code.add(code.bits("xor", byte, whole(128)), whole(-128));
  CHECK(code.part_as_number(with_sign, true, 0));
  CHECK(!code.part_as_number(with_sign, false, 0));  // below 0 it would be a large one
  CHECK(!code.part_as_number(code.fresh(Class::kB32), true, 0));
  CHECK(!code.part_as_number(nibble, true, 0.5));                                // no integer
  CHECK(!code.part_as_number(code.bits("and", word, whole(0x1ffff)), true, 0));  // no room in a mantissa
  CHECK(!code.part_as_number(code.shift(with_sign, whole(1), false, false), true, 0));
  code.written(word);
  CHECK(!code.part_as_number(nibble, true, -8));
}

TEST_CASE("what is found where code may be left out is not found behind it") {
  Code code;
  const Value a = code.fresh(Class::kB32), b = code.fresh(Class::kB32);
  std::string within;
  {
    const Code::Scope scope(&code);
    within = code.sub(a, b).text;
  }
  CHECK(code.sub(a, b).text != within);
}

TEST_CASE("orders of floats are the opposites of what ptxas folds") {
  for (const auto& [order, fails] : {std::pair{"lt", "geu"}, {"le", "gtu"}, {"gt", "leu"}, {"ge", "ltu"}}) {
    Code code;
    const Value x = code.fresh(Class::kF32), holds = code.compare(order, "f32", x, Code::number(0));
    use(&code, code.select(holds, whole(1), whole(0)));
    CHECK(has(code.text(), std::string("setp.") + fails + ".f32"));
    CHECK(has(code.text(), "not.pred"));
  }
}

// ptxas 13.0 takes such amounts modulo 64.
TEST_CASE("numbers are shifted by less than their bits") {
  for (const Class kind : {Class::kB32, Class::kB64}) {
    const int size = kind == Class::kB64 ? 64 : 32;
    for (const int64_t amount : {int64_t{64}, int64_t{-17}, (int64_t{1} << 32) + 3}) {
      Code code;
      const Value a = code.fresh(kind), by = Code::integer(amount, 64);
      CHECK(code.shift(a, by, true, true).is(0));
      CHECK(code.shift(a, by, false, false).is(0));
      const Value sign = code.shift(a, by, false, true);
      code.line("st.shared.b{} [0], {};", size, sign.text);
      CHECK(has(code.text(), size == 64 ? "shr.s64 d1, d0, 63;" : "shr.s32 r1, r0, 31;"));
    }
  }
}

// ptxas 13.0 loses the sign of negated operands where it makes one instruction of two such (sm_90).
TEST_CASE("no two signed extrema of registers meet") {
  Code code;
  const Value a = code.fresh(Class::kB32), b = code.fresh(Class::kB32);
  use(&code, code.extremum(false, "s32", a, b));
  CHECK(has(code.text(), "setp.gt.s32 p0, r0, r1;"));
  CHECK(has(code.text(), "selp.b32"));
  use(&code, code.extremum(true, "s32", a, whole(-3)));
  CHECK(has(code.text(), "min.s32"));
  const Value x = code.bits("and", a, whole(15)), y = code.bits("and", b, whole(15));
  use(&code, code.extremum(false, "s32", x, y));
  CHECK(has(code.text(), "max.u32"));
  CHECK(!has(code.text(), "max.s32"));
  CHECK(code.extremum(true, "s32", whole(-3), whole(2)).is(-3));
}

TEST_CASE("sums keep their constants apart") {
  Code code;
  const Value a = code.fresh(Class::kB32), b = code.fresh(Class::kB32);
  const Value sum = code.add(code.mul(code.add(a, whole(3)), whole(16)), code.add(b, whole(-40)));
  CHECK(code.split(sum).offset == 8);
  CHECK(code.split(sum).base.text == code.add(code.mul(a, whole(16)), b).text);
  CHECK(code.sub(code.add(a, whole(5)), code.add(a, whole(2))).is(3));
  CHECK(code.narrowed(code.add(code.widened(a, true), Code::integer(9, 64))).text == code.add(a, whole(9)).text);
  // Wrapping sums are no sums of wider numbers.
  CHECK(code.add(whole(INT32_MAX), whole(1)).is(INT32_MIN));
}

TEST_CASE("places in swizzled tiles differ by the bits that are exchanged") {
  Code code;
  const Value tid = code.fresh(Class::kB32), row = code.bits("and", tid, whole(7)), stage = code.fresh(Class::kB32);
  const Value chunk = code.mul(row, whole(16)), column = code.mul(code.bits("and", tid, whole(3)), whole(2));
  const auto place = [&](int64_t at) {
    const Value exchanged = code.bits("xor", code.add(column, whole(at)), chunk);
    return code.add(code.mul(stage, whole(4096)), code.add(code.mul(row, whole(128)), exchanged));
  };
  const Value first = place(0);
  const Value second = place(16), third = place(40);
  use(&code, second), use(&code, third);
  // One exclusive or each; what lies beside the bits that are exchanged is an offset.
  const std::string text = code.text();
  size_t exchanged = 0;
  for (size_t at = text.find("xor.b32"); at != text.npos; at = text.find("xor.b32", at + 1)) ++exchanged;
  CHECK(exchanged == 3);
  CHECK(code.flipped(second)->base.text == first.text);
  CHECK(code.flipped(second)->mask == 16);
  CHECK(code.split(third).offset == 8);
  CHECK(code.flipped(code.split(third).base)->mask == 32);
  // Not where the sum may carry into those bits, nor where what is added reaches below them.
  CHECK(!code.flipped(code.bits("xor", code.add(code.bits("and", tid, whole(31)), whole(16)), chunk)));
  CHECK(!code.flipped(code.add(second, tid)));
}

TEST_CASE("a variable's sum is a number of its own") {
  Code code;
  const Value changes = code.variable(Class::kB32);
  const Value next = code.add(changes, whole(1));
  CHECK(code.split(next).offset == 0);
  CHECK(code.settled(changes).text != changes.text);
  const Value a = code.fresh(Class::kB32);
  CHECK(code.settled(a).text == a.text);
}

TEST_CASE("what is known of bits takes the place of instructions") {
  Code code;
  const Value a = code.fresh(Class::kB32);
  CHECK(code.bits("and", code.add(code.mul(a, whole(8)), whole(3)), whole(7)).is(3));
  CHECK(code.bits("and", code.add(a, whole(16)), whole(7)).text == code.bits("and", a, whole(7)).text);
  const Value lane = code.bits("and", a, whole(31));
  CHECK(code.bits("and", lane, whole(63)).text == lane.text);
  CHECK(code.natural(lane));
  CHECK(!code.natural(a));
  CHECK(!code.natural(code.sub(lane, a)));
  CHECK(!code.natural(code.add(lane, whole(-1))));
  CHECK(code.bits_of(code.shift(lane, whole(2), false, false)).most == 7);
  CHECK(code.bits_of(code.bits("xor", lane, code.mul(lane, whole(4)))).most == 127);
  CHECK(code.bits_of(code.mul(a, whole(2))).most == 0xffffffff);  // may wrap
  const auto half = [&](const Value& value) { return code.shift(value, whole(7), false, false); };
  CHECK(half(code.add(lane, whole(40))).is(0));
  CHECK(half(code.add(lane, whole(256 + 96))).is(2));
  CHECK(!half(code.add(lane, whole(256 + 97))).constant);
  const Value high = code.mul(lane, whole(64));
  CHECK(half(code.add(high, whole(63))).text == half(high).text);
  CHECK(half(code.add(high, whole(64))).text != half(high).text);
  CHECK(half(code.add(high, whole(256))).text == code.add(half(high), whole(2)).text);
  CHECK(half(code.add(a, whole(128))).text != code.add(half(a), whole(1)).text);  // may wrap
}

TEST_CASE("shifts by the width and more") {
  Code code;
  const Value a = code.fresh(Class::kB32), far = code.fresh(Class::kB64);
  CHECK(code.shift(a, whole(32), true, false).is(0));
  use(&code, code.shift(a, far, false, true));
  CHECK(has(code.text(), "min.u64 d1, d0, 64;"));
  CHECK(code.shift(whole(-8), whole(1), false, true).is(-4));
  CHECK(code.shift(whole(-8), whole(1), false, false).is(0x7ffffffc));
}

TEST_CASE("a division by a constant is a multiplication") {
  uint32_t random = 1;
  for (const uint32_t divisor : {2u, 3u, 5u, 7u, 9u, 17u, 24u, 100u, 641u, 6700417u, 0x7fffffffu}) {
    for (const uint32_t most : {divisor, 255u, 65535u, 0x7fffffffu, 0xffffffffu}) {
      const auto by = multiplier(divisor, most);
      if (most <= 0x7fffffff) REQUIRE(by.has_value());
      const auto check = [&](uint32_t x) {
        if (by && x <= most)
          REQUIRE_MESSAGE((uint64_t{x} * by->factor >> 32 >> by->shift) == x / divisor, x << " / " << divisor);
      };
      for (uint32_t x = 0; x < 2000; ++x) check(x), check(most - x), check(x * divisor), check(x * divisor - 1);
      for (int i = 0; i < 20000; ++i) check(random = random * 1664525 + 1013904223);
    }
  }
  CHECK(!multiplier(7, 0xffffffffu));  // 33 bits
  Code code;
  const Value a = code.fresh(Class::kB32);
  const auto third = divided(&code, a, 1000, 3);
  REQUIRE(third.has_value());
  use(&code, *third);
  CHECK(has(code.text(), "mul.hi.u32 r1, r0, 1431655766;"));
  CHECK(code.bits_of(*third).most <= 334);
  CHECK(!divided(&code, code.fresh(Class::kB64), ~uint64_t{0}, 3));
}

TEST_CASE("results that nobody asks for are left out, with what they alone are made of") {
  Code code;
  const Value a = code.fresh(Class::kB32), b = code.fresh(Class::kB32);
  const Value unused = code.mul(a, b), used = code.sub(a, b);
  (void)code.add(unused, b);
  use(&code, used);
  CHECK(code.text() == "sub.s32 r3, r0, r1;\nst.shared.b32 [0], r3;\n");
}

TEST_CASE("a variable takes the last result's place where nothing else asks for that") {
  Code code;
  const Value a = code.fresh(Class::kB32), b = code.fresh(Class::kB32), to = code.variable(Class::kB32);
  code.assign(to, code.mul(a, b), true);
  CHECK(code.text() == "mul.lo.s32 r2, r0, r1;\n");
  const Value sum = code.sub(a, b);
  code.assign(to, sum, false);
  CHECK(has(code.text(), "mov.b32 r2, " + sum.text + ";"));
  // Not the last line: something has been said since.
  const Value product = code.mul(a, to);
  code.line("bar.sync 0;");
  code.assign(to, product, true);
  CHECK(has(code.text(), "mov.b32 r2, " + product.text + ";"));
  CHECK(code.mul(a, b).text != to.text);
}

TEST_CASE("loads under a guard, and under none that holds anyway") {
  Code code;
  const Value p = code.fresh(Class::kPred), q = code.fresh(Class::kPred);
  const auto load = [&] { code.say("ld.shared.b32 r9, [0];", true); };
  {
    const Code::Guard always(&code, Code::truth(true));
    load();
    const Code::Guard outer(&code, p);
    load();
    const Code::Guard inner(&code, q);
    load();
  }
  load();
  CHECK(code.text() ==
        "ld.shared.b32 r9, [0];\n@p0 ld.shared.b32 r9, [0];\nand.pred p2, p0, p1;\n"
        "@p2 ld.shared.b32 r9, [0];\nld.shared.b32 r9, [0];\n");
}

TEST_CASE("a load that may not be done leaves zero, which need not be chosen again") {
  Code code;
  const Value p = code.fresh(Class::kPred);
  Value guarded;
  {
    const Code::Guard guard(&code, p);
    guarded = code.loaded(Class::kB32);
    code.say(fmt::format("ld.shared.b32 {}, [0];", guarded.text), true);
  }
  CHECK(code.text() == "mov.b32 r0, 0;\n@p0 ld.shared.b32 r0, [0];\n");
  CHECK(code.select(p, guarded, whole(0)).text == guarded.text);
  CHECK(code.select(p, guarded, whole(1)).text != guarded.text);
  CHECK(code.select(code.fresh(Class::kPred), guarded, whole(0)).text != guarded.text);
  (void)code.loaded(Class::kF32);  // under no guard
  CHECK(!has(code.text(), "f0"));
}

}  // namespace

TEST_CASE("a load that may not be done leaves the number that stands for it") {
  const auto padded = [](const std::string& type, const std::string& pad) {
    return lowered({"tile 1\nkernel k(X: " + type +
                        "[M, N], Y: out f32[M])\ngrid m < M\n{\n  fragment x: f32[1024]\n"
                        "  x = X[m, 0 +: 1024] pad " +
                        pad + "\n  parallel i < 1 { Y[m] = max[j < 1024](x[j]) }\n}\n",
                    {},
                    {.kind = Target::Kind::kCuda, .architecture = 90},
                    0})
        .text;
  };
  for (const auto& [type, bits] : {std::pair{"f32", "4286578688"}, {"f16", "64512"}, {"bf16", "65408"}}) {
    CAPTURE(type);
    const std::string text = padded(type, "-inf");
    CAPTURE(text);
    CHECK(has(text, std::string(", ") + bits + ";"));
    CHECK(!has(text, "selp.f32"));
  }
}

TEST_CASE("what is known of the threads that compute is not said of the producer's") {
  Request request{R"(tile 1
kernel attend(Q: f16[H, L, D], K: f16[H, S, D], V: f16[H, S, D], O: out f16[H, L, D])
grid h < H, i < ceildiv(L, 16)
{
  shared q: f16[16, D], k: f16[64, D], v: f16[64, D]
  fragment s: f32[16, 64], p: f16[16, 64], o: f32[16, D] = 0
  q = Q[h, i*16 +: 16, :]
  pipelined n < ceildiv(S, 64), 2 {
    k = K[h, n*64 +: 64, :]
    v = V[h, n*64 +: 64, :]
    s = q @ k^T
    p = s
    o += p @ v
  }
  O[h, i*16 +: 16, :] = o
}
)",
                  {}};
  request.target.architecture = 90;
  request.target.threads = 32;
  const Lowered result = lowered(request);
  CAPTURE(result.text);
  REQUIRE(has(result.notes, "role consumer: threads 0..32"));
  // A warp of the producer arrives by its first lane, whose thread is not number 0 as that of the one warp that
  // computes.
  CHECK(has(result.text, ", r0, 31;"));
}

TEST_CASE("what has too many instructions is left to CUDA C++, and said to be") {
  std::string text = R"(tile 1
kernel many(A: f32[M, 64], C: out f32[M, 64], s: f32)
grid i < ceildiv(M, 128)
{
  fragment x: f32[128, 64]
  x = A[i*128 +: 128, :]
)";
  const std::string step = "  parallel r < 128, c < 64 { x[r, c] = x[r, c] * s + 1 }\n",
                    end = "  C[i*128 +: 128, :] = x\n}\n";
  Request request{text + step + end};
  request.target.architecture = 90;
  request.target.threads = 128;
  CHECK(has(lowered(request).text, "R\"ptx("));
  for (int i = 0; i < 400; ++i) text += step;
  request.text = text + end;
  const Lowered result = lowered(request);
  CHECK(!has(result.text, "R\"ptx("));
  CHECK(has(result.notes, "compiled as CUDA C++: PTX has no code for so many instructions"));
}

TEST_CASE("an exp of what has been rounded is one of a product, others are as exact as they say") {
  const auto written = [](const char* argument) {
    Request request{
        fmt::format("tile 1\nkernel k(X: f32[N], Y: out f32[N])\ntune threads = 128\n"
                    "grid i < ceildiv(N, 128)\n{{\n  fragment x: f32[128]\n  x = X[i*128 +: 128]\n"
                    "  parallel r < 128 {{ let d = x[r] - 2  x[r] = exp({}) }}\n  Y[i*128 +: 128] = x\n}}\n",
                    argument)};
    request.target.architecture = 90;
    return count(lowered(request).text, "fma.rn.sat.f32");
  };
  CHECK(written("x[r]") > 0);
  CHECK(written("-x[r]") > 0);
  CHECK(written("d") > 0);
  CHECK(written("x[r] - 2") == 0);
  CHECK(written("-(x[r] * 2)") == 0);
  CHECK(written("max(x[r] - 2, 0)") > 0);
}

TEST_CASE("arrays that a branch may be the first to write begin as zeros") {
  const auto zeros = [](const char* first) {
    Request request{fmt::format(R"(tile 1
kernel k(X: i32[L, 128], Y: out i32[128, 4])
tune threads = 128
grid i < 1
{{
  fragment place: i32[128, 4], x: i32[128]
  {}
  for t < L {{
    x = X[t, :]
    parallel r < 128, j < 4 {{
      if j == t {{ place[r, j] = x[r] }}
    }}
  }}
  Y[:, :] = place
}}
)",
                                first)};
    request.target.architecture = 90;
    const Lowered result = lowered(request);
    CAPTURE(result.text);
    REQUIRE(has(result.text, "R\"ptx("));
    size_t found = 0;
    for (int i = 0; i < 128; ++i) found += count(result.text, fmt::format("mov.b32 r{}, 0;", i));
    return found;
  };
  CHECK(zeros("") == zeros("parallel r < 128, j < 4 { place[r, j] = j + 1 }") + 4);
}

}  // namespace kachel::lowering::ptx
