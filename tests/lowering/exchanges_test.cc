// Exchanges between elements whose places differ in bits (hoist_exchanges, exchanged_places, lower_exchange.cc).
#include "lowering/plan/exchanged_places.h"
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// A network over rows of 512, `rows` of them in a block of 128 threads, whose step s < 9 reads x[i, `other`].
std::string network(int rows, const std::string& other, const std::string& scope = "fragment") {
  const std::string r = std::to_string(rows);
  return lowered({"tile 1\nkernel k(X: f32[N, D], Y: out f32[N, D])\ntune threads = 128\ngrid b < ceildiv(N, " + r +
                  ")\n{\n  " + scope + " x: f32[" + r + ", 512]\n  x = X[b*" + r + " +: " + r +
                  ", 0 +: 512]\n  for s < 9 {\n    let h = 1 << s\n    parallel i < " + r +
                  ", d < 512 { x[i, d] = x[i, d] - 0.5 * x[i, " + other + "] }\n  }\n  Y[b*" + r + " +: " + r +
                  ", 0 +: 512] = x\n}\n"})
      .loop_ir;
}

TEST_CASE("rows that a warp holds are exchanged by registers and lanes, whatever they were declared as") {
  for (const char* scope : {"fragment", "shared"}) {
    const std::string text = network(4, "d ^ h", scope);
    CAPTURE(text);
    CHECK(count(text, "shuffle_xor") == 5 * 16);  // five of nine bits are a lane's, each of 16 registers
    CHECK(has(text, "shared 0 bytes"));
    CHECK(!has(text, "barrier"));
    CHECK(!has(text, "for s "));
  }
}

TEST_CASE("what warps share goes through shared memory once a step, by accesses of 16 bytes") {
  const std::string text = network(1, "d ^ h");
  CAPTURE(text);
  CHECK(count(text, "shuffle_xor") == 5 * 4);
  CHECK(count(text, "shared passed: f32[512]") == 2);
  CHECK(has(text, "copy_vector taken"));
}

TEST_CASE("one element of two is chosen by the place's own bit") {
  for (const char* other : {"d | h", "d & ~h"}) {
    const std::string text = network(4, other);
    CAPTURE(text);
    CHECK(count(text, "shuffle_xor") == 5 * 16);
  }
}

TEST_CASE("places that are no exchange are read in memory") {
  for (const char* other : {"(d + h) % 512", "min(d + h, 511)", "(d | h) / 2", "(d ^ h) % 256"}) {
    const std::string text = network(4, other);
    CAPTURE(other);
    CAPTURE(text);
    CHECK(has(text, "shared x: f32[2048]"));
    CHECK(!has(text, "shuffle_xor"));
  }
  CHECK(has(network(4, "(d + h) % 512"), "for s "));
}

TEST_CASE("long networks get more threads, and those that are too long stay loops") {
  const auto sorted = [](int64_t rows, int threads) {
    const std::string r = std::to_string(rows);
    Request request{
        "tile 1\nkernel k(X: f32[N, D], Y: out f32[N, D])\ngrid b < ceildiv(N, " + r + ")\n{\n  fragment x: f32[" + r +
        ", 4096]\n  x = X[b*" + r + " +: " + r +
        ", 0 +: 4096]\n  for k < 12 {\n    for s < k + 1 {\n      let h = 1 << (k - s)\n      parallel i < " + r +
        ", d < 4096 {\n        let o = x[i, d ^ h]\n        x[i, d] = ((d & h) == 0) == ((d & (2 << k)) == 0) ? min(o, "
        "x[i, d]) : max(o, x[i, d])\n      }\n    }\n  }\n  Y[b*" +
        r + " +: " + r + ", 0 +: 4096] = x\n}\n"};
    request.target.threads = threads;
    return lowered(request).loop_ir;
  };
  CHECK(has(sorted(1, 0), "threads 256,"));  // 78 steps of 16 elements
  CHECK(has(sorted(4, 0), "threads 1024,"));
  CHECK(has(sorted(1, 128), "for k "));
  CHECK(has(sorted(8, 0), "for k "));
}

TEST_CASE("bits of a coordinate are bits of registers and threads") {
  const FragmentLayout layout = FragmentLayout::blocked({4, 256}, 4, 128);
  for (int64_t bits : {1, 2, 3, 4, 64, 128, 255}) {
    const auto places = exchanged_places(layout, 1, bits);
    REQUIRE(places);
    for (int64_t thread = 0; thread < 128; ++thread)
      for (int64_t reg = 0; reg < layout.registers(); ++reg) {
        std::vector<int64_t> own = layout.coordinates(thread, reg);
        own[1] ^= bits;
        CHECK(own == layout.coordinates(thread ^ places->thread_bits, places->registers[static_cast<size_t>(reg)]));
      }
  }
  CHECK(!exchanged_places(layout, 1, 256));
  CHECK(!exchanged_places(FragmentLayout::blocked({4, 96}, 1, 128), 1, 64));
}

}  // namespace
}  // namespace kachel::lowering
