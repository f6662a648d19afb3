// What becomes of loops that issue products beside the work on others' results, read off their text and loop IR.
#include <doctest/doctest.h>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

struct Parts {
  std::string mask = "n*64 + c < N";                        // of element (r, c) of tile n
  std::string step = "l[r] * a[r] + sum[c < 64](s[r, c])";  // of the sums that the loop carries
  std::string behind_step = "";                             // what else the loop does with them
  std::string name = "";                                    // a name in front of all that
};

std::string attend(const Parts& parts) {
  std::string text = R"(tile 1
kernel attend(Q: f16[B, M, 64], K: f16[B, N, 64], V: f16[B, N, 64], O: out f16[B, M, 64], L: out f32[B, M], W: i64)
grid i < ceildiv(M, 128), b < B
{
  shared q: f16[128, 64], k: f16[64, 64], v: f16[64, 64]
  fragment s: f32[128, 64], p: f16[128, 64], o: f32[128, 64] = 0, l: f32[128] = 0, a: f32[128] = 1
  q = Q[b, i*128 +: 128, :]
  pipelined n < ceildiv(N, 64), 2 {
    NAME
    k = K[b, n*64 +: 64, :]
    v = V[b, n*64 +: 64, :]
    s = q @ k^T
    parallel r < 128, c < 64 { s[r, c] = MASK ? s[r, c] : -inf }
    parallel r < 128, c < 64 { s[r, c] = exp2(s[r, c]) }
    parallel r < 128 { l[r] = STEP }
    BEHIND
    p = s
    o += p @ v
  }
  O[b, i*128 +: 128, :] = o
  L[b, i*128 +: 128] = l
}
)";
  for (const auto& [word, meaning] : {std::pair<std::string, std::string>("MASK", parts.mask),
                                      {"STEP", parts.step},
                                      {"BEHIND", parts.behind_step},
                                      {"NAME", parts.name}})
    text.replace(text.find(word), word.size(), meaning);
  return text;
}

Lowered on_hopper(const Parts& parts, bool compact = false) {
  Request request{attend(parts), {}};
  request.target.compact = compact;
  request.target.architecture = 90;
  request.target.ptx = false;  // CUDA C++ has loops to look at
  return lowered(request);
}

const char* const kLoop = "\n    for (int n_";

// Of the consumers over tiles, behind the peeled iteration.
size_t loops(const Lowered& result) {
  return count(result.text, kLoop) - count(result.text, "\n    for (int n_ahead_");
}

// From the text of one of them to its end.
std::string loop(const Lowered& result, size_t number) {
  size_t from = result.text.find(kLoop);
  while (from != result.text.npos && number-- > 0) from = result.text.find(kLoop, from + 1);
  REQUIRE(from != result.text.npos);
  return result.text.substr(from, result.text.find("\n    }\n", from) - from);
}

TEST_CASE("a loop whose masks begin somewhere has none before") {
  const Lowered parted = on_hopper({});
  CAPTURE(parted.text);
  CHECK(has(parted.text, "n_ < kachel_min("));
  CHECK(has(parted.text, "kachel_ceildiv(((int)N_ - 63), 64)"));
  CHECK(count(parted.text, "n_2 = kachel_max(1, kachel_min(") == 1);
  CHECK(!has(loop(parted, 0), "0xff800000u"));
  CHECK(!has(loop(parted, 0), "< (int)N_"));
  // What ends at nothing that is known before the loop stays a branch.
  const Lowered whole = on_hopper({.mask = "(n*64 + c) % 3 < 2 && n*64 + c < N"});
  CAPTURE(whole.text);
  CHECK(loops(whole) == 1);
  CHECK(has(loop(whole, 0), "0xff800000u"));
}

TEST_CASE("in the compact form one loop has all iterations, each with its branch") {
  const Lowered whole = on_hopper({}), compact = on_hopper({}, true);
  CHECK(loops(compact) == 1);
  CHECK(has(loop(compact, 0), "0xff800000u"));
  CHECK(has(loop(compact, 0), "< (int)N_"));
  CHECK(compact.text.size() < whole.text.size());
  CHECK(on_hopper({.mask = "(n*64 + c) % 3 < 2"}, true).text == on_hopper({.mask = "(n*64 + c) % 3 < 2"}).text);
}

TEST_CASE("a loop whose masks end somewhere has none behind") {
  const Lowered parted = on_hopper({.mask = "n*64 + c >= N - M"});
  CAPTURE(parted.text);
  REQUIRE(loops(parted) == 2);
  CHECK(has(loop(parted, 0), "0xff800000u"));
  CHECK(!has(loop(parted, 1), "0xff800000u"));
}

TEST_CASE("a loop with masks at both ends has none between them") {
  const Lowered window = on_hopper({.mask = "n*64 + c >= N - M && n*64 + c < N"});
  CAPTURE(window.text);
  REQUIRE(loops(window) == 3);
  for (const size_t number : {0, 1, 2}) CHECK(has(loop(window, number), "0xff800000u") == (number != 1));
}

TEST_CASE("masks begin where a cast says that changes what it is of") {
  const Lowered cut = on_hopper({.mask = "n*64 + c < i32(W)"});
  CAPTURE(cut.text);
  REQUIRE(loops(cut) == 2);
  CHECK(has(loop(cut, 0), "(int)W_"));
  CHECK(!has(loop(cut, 0), "(W_"));
}

TEST_CASE("a name that is known in the first iteration alone") {
  const Lowered named = on_hopper({.mask = "t*64 + c < N", .name = "let t = n"});
  CAPTURE(named.text);
  REQUIRE(loops(named) == 2);
  CHECK(!has(loop(named, 0), "0xff800000u"));
}

TEST_CASE("the first of several masks parts the loop") {
  const Lowered causal = on_hopper({.mask = "n*64 + c < N && n*64 + c <= i*128 + r + (N - M)"});
  CAPTURE(causal.text);
  CHECK(!has(loop(causal, 0), "0xff800000u"));
  CHECK(has(causal.text, "n_ < kachel_min("));
  CHECK(has(causal.text, "(int)i_ * 128"));
}

TEST_CASE("sums that nothing else in the loop wants are added up across lanes behind it") {
  const Lowered carried = on_hopper({});
  CAPTURE(carried.text);
  CHECK(!has(loop(carried, 0), "__shfl_xor_sync"));
  CHECK(has(carried.text, " = (((thread_ & 3) == 0) ? l_[r_"));
  CHECK(count(carried.text, "l_[r_") > 0);
  CHECK(count(carried.text.substr(carried.text.rfind("kachel_group_wait<0>")), "__shfl_xor_sync(0xffffffffu, l_[") ==
        2);
  for (const Parts& parts :
       {Parts{.behind_step = "parallel r < 128 { a[r] = l[r] > 8 ? 0.5 : 1 }"},  // wanted in the loop
        Parts{.step = "max(l[r], sum[c < 64](s[r, c]))"},                        // no sum
        Parts{.step = "l[r] * l[r] + sum[c < 64](s[r, c])"},                     // no linear step
        Parts{.step = "l[r] * a[r] + max[c < 64](s[r, c])"}}) {
    CAPTURE(parts.step);
    const Lowered each = on_hopper(parts);
    CHECK(count(loop(each, 0), "__shfl_xor_sync") == 2);
    CHECK(!has(each.text, "(thread_ & 3) == 0) ? l_"));
  }
}

TEST_CASE("groups take turns at barriers of the hardware's, told by a number that is the warp's") {
  const Lowered result = on_hopper({});
  CAPTURE(result.text);
  CHECK(has(result.text, "const int kachel_warp_group = __shfl_sync(0xffffffffu, thread_ / 128, 0);"));
  CHECK(count(result.text, "if (threadIdx.x >= 128) kachel_pass_turn(0);") == 1);
  CHECK(has(loop(result, 0), "kachel_take_turn(kachel_warp_group);"));
  CHECK(!has(result.text, "kachel_phase_init(turn_"));
}

}  // namespace
}  // namespace kachel::lowering
