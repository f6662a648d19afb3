// What a producer does itself, beside the copy engine: rows named by an index, and what regions read in every
// iteration.
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

constexpr Target kHopper{.kind = Target::Kind::kCuda, .architecture = 90, .shared_limit = 227 * 1024};

// C = A W^T, where `left` and `right` copy the tiles and `work` stands in front of the product with `operand`.
Request product(const std::string& left, const std::string& right, const std::string& work = "",
                const std::string& operand = "x") {
  return {R"(tile 1
kernel product(X: f16[R, K], W: f16[N, K], rows: i32[M], gain: f16[K], pairs: f16[K, 2], C: out f16[M, N])
tune stages = 4 | 1
grid i < ceildiv(M, 128), j < ceildiv(N, 128)
{
  shared x: f16[128, 64], w: f16[128, 64]
)" + std::string(work.empty() ? "" : "  fragment a: f16[128, 64]\n") +
              R"(  fragment c: f32[128, 128] = 0
  pipelined k < ceildiv(K, 64), stages {
    )" + left +
              "\n    " + right + "\n    " + work + "\n    c += " + operand + R"( @ w^T
  }
  C[i*128 +: 128, j*128 +: 128] = c
}
)",
          {},
          kHopper};
}

const std::string kRows = "x = X[i*128 +: 128, k*64 +: 64]", kGathered = "x = X[rows[i*128 +: 128], k*64 +: 64]",
                  kColumns = "w = W[j*128 +: 128, k*64 +: 64]", kNamed = "w = W[rows[j*128 +: 128], k*64 +: 64]";

TEST_CASE("rows that an index names are copied by the producer's threads, beside the copy engine") {
  const Lowered result = lowered(product(kGathered, kColumns));
  CAPTURE(result.notes);
  CAPTURE(result.loop_ir);
  CHECK(has(result.notes,
            "pipeline k: depth 4, the copy engine into {x, w} (in part by the producer's threads: rows of X are named "
            "by an index)"));
  CHECK(has(result.notes, "role producer: threads 256..384"));
  // The engine's bytes and the first thread's arrival, then one of each thread that copies.
  CHECK(has(result.loop_ir, "phases full: 4 of 129 arrivals"));
  const size_t producer = result.loop_ir.find("producer, for tile");
  REQUIRE(producer != std::string::npos);
  const std::string ahead = result.loop_ir.substr(producer), body = result.loop_ir.substr(0, producer);
  CHECK(has(ahead, "phase_expect 16384 full"));
  CHECK(has(ahead, "threads e < 128"));
  CHECK(ahead.find("bulk_copy w") < ahead.find("copy_async x"));
  CHECK(ahead.find("copy_async x") < ahead.find("phase_copied full"));
  CHECK(!has(body, "copy_async"));
  CHECK(body.find("proxy_fence") < body.find("group_mma"));
  CHECK(!has(lowered(product(kRows, kColumns)).loop_ir, "phase_copied"));

  const Lowered neither = lowered(product(kGathered, kNamed));
  CHECK(
      has(neither.notes, "asynchronous copies into {x, w} (without the copy engine: rows of X are named by an index)"));
}

TEST_CASE("rows that a region finds in a table are copied ahead, of two tiles and by numbers in a third") {
  const std::string both =
      "parallel r < 128, d < 64 { x[r, d] = X[rows[(i*128 + r) / 8], k*64 + d] "
      "w[r, d] = j*128 + r < rows[k] ? W[j*128 + r, k*64 + d] : 0 }";
  CHECK(has(lowered(product(both, "")).notes, "asynchronous copies into {x, w}"));
  // What it reads is written, or what it makes has other readers in the region.
  CHECK(!has(
      lowered(product("parallel r < 128, d < 64 { x[r, d] = X[rows[r], k*64 + d] w[r, d] = x[r, d] * 2 }", "")).notes,
      "asynchronous copies"));
  const std::string numbers = "parallel r < 128 { at[r] = rows[(k*128 + r) / 8] + r % 8 } x = X[at, k*64 +: 64]";
  Request named = product(numbers, kColumns);
  const std::string tiles = "shared x: f16[128, 64]";
  named.text.replace(named.text.find(tiles), tiles.size(), "fragment at: i32[128] = 0 " + tiles);
  CHECK(has(lowered(named).notes, "the copy engine into {x, w} (in part by the producer's threads"));
  const std::string carried = "parallel r < 128 { at[r] = rows[r] + at[r] }";
  named.text.replace(named.text.find(numbers), numbers.find('x'), carried + " ");
  CHECK(!has(lowered(named).notes, "the copy engine into {x, w}"));
}

TEST_CASE("rows that begin anywhere are copied by way of registers") {
  constexpr uint64_t kIndex32 = 1, kUnitX = 1 << 1, kUnitW = 1 << 6,
                     kWide = 7 << 7;  // facts_of(): five a tensor, behind the first
  Request request = product(kRows, kColumns);
  request.facts = kIndex32 | kUnitX | kUnitW;
  const Lowered result = lowered(request);
  CAPTURE(result.notes);
  CAPTURE(result.loop_ir);
  CHECK(has(result.notes,
            "the copy engine into {x, w} (all by the producer's threads, by way of registers: the facts allow no "
            "16-byte rows of X)"));
  CHECK(has(result.notes, "role producer: threads 256..512"));
  CHECK(has(result.loop_ir,
            "phases full: 4 of 9 arrivals"));  // the first thread's, which announces nothing, and each warp's
  const size_t producer = result.loop_ir.find("producer, for tile");
  REQUIRE(producer != std::string::npos);
  const std::string ahead = result.loop_ir.substr(producer);
  // Loaded before the stage is empty; stored, fenced and passed on after it is. The next iteration's loads follow the
  // stores.
  const size_t empty = ahead.find("phase_wait empty"), stored = ahead.find("store_shifted x"),
               next = ahead.find("if k_ahead + 1 <");
  CHECK(ahead.find("load_shifted") < ahead.find("for k_ahead"));
  CHECK(empty < stored);
  CHECK(stored < next);
  CHECK(next < ahead.find("store_shifted w"));
  CHECK(ahead.rfind("store_shifted") < ahead.find("proxy_fence"));
  CHECK(ahead.find("proxy_fence") < ahead.find("phase_arrive full"));
  CHECK(!has(ahead, "copy_async"));

  request.facts |= kWide;  // W is aligned
  const Lowered one = lowered(request);
  CHECK(has(one.loop_ir, "bulk_copy w"));
  CHECK(has(one.loop_ir, "store_shifted x"));
  CHECK(!has(one.loop_ir, "store_shifted w"));
  CHECK(has(one.notes, "in part by the producer's threads, by way of registers"));
  request.facts = kIndex32;  // elements of a row are not neighbours
  CHECK(has(lowered(request).notes, "in order"));
  request.facts |= kUnitX | kUnitW;
  request.target.architecture = 80;  // there is no producer
  CHECK(has(lowered(request).notes, "in order"));
}

TEST_CASE("elements of 64 bits do not go by way of registers, nor what is copied beside them") {
  const auto reads = [](const std::string& type) {
    Request request = product(kRows, kColumns + " u = U[j*128 +: 128, k*4 +: 4]",
                              "parallel r < 128, d < 64 "
                              "{ a[r, d] = x[r, d] * f16(i32(u[r, d / 16])) }",
                              "a");
    const std::string tiles = "shared x: f16[128, 64]", given = "rows: i32[M]";
    request.text.replace(request.text.find(tiles), 0, "shared u: " + type + "[128, 4] ");
    request.text.replace(request.text.find(given), 0, "U: " + type + "[N, K], ");
    request.facts = 1 | 1 << 1 | 1 << 6 | 1 << 11;  // index32, and of each tensor that its elements are neighbours
    return lowered(request);
  };
  CHECK(has(reads("i32").loop_ir, "load_shifted"));
  const Lowered wide = reads("i64");
  CAPTURE(wide.notes);
  CHECK(!has(wide.loop_ir, "load_shifted"));
}

TEST_CASE("more than a thread has registers for is copied in rounds") {
  Request request = {R"(tile 1
kernel product(X: f16[M, K], W: f16[N, K], C: out f16[M, N])
grid i < ceildiv(M, 128), j < ceildiv(N, 256)
{
  shared x: f16[128, 64], w: f16[256, 64]
  fragment c: f32[128, 256] = 0
  pipelined k < ceildiv(K, 64), 3 {
    x = X[i*128 +: 128, k*64 +: 64]
    w = W[j*256 +: 256, k*64 +: 64]
    c += x @ w^T
  }
  C[i*128 +: 128, j*256 +: 256] = c
}
)",
                     {},
                     kHopper};
  request.facts = 1 | 1 << 1 | 1 << 6;
  const Lowered result = lowered(request);
  CAPTURE(result.notes);
  CAPTURE(result.loop_ir);
  CHECK(has(result.notes, "role producer: threads 256..384, 104 registers"));
  CHECK(has(result.loop_ir, "for part in 0 .. 2 {"));  // of w
}

TEST_CASE("waits are bounded where that is asked for") {
  Request request = product(kRows, kColumns);
  for (const bool ptx : {false, true}) {
    request.target.ptx = ptx;
    const std::string mark = ptx ? "%%globaltimer" : "#define KACHEL_BOUNDED_WAITS";
    request.target.bounded_waits = false;
    CHECK(!has(lowered(request).text, mark));
    request.target.bounded_waits = true;
    CHECK(has(lowered(request).text, mark));
  }
}

TEST_CASE("where waits are bounded, each lane arrives by itself") {
  const auto awaits = [](Request request, bool bounded, int arrivals) {
    request.target.ptx = true;
    request.target.bounded_waits = bounded;
    const std::string text = lowered(request).text;
    CAPTURE(text);
    const size_t init = text.find("mbarrier.init");
    REQUIRE(init != std::string::npos);
    return has(text.substr(init, text.find("fence.mbarrier_init") - init), "], " + std::to_string(arrivals) + ";");
  };
  const Request copied = product(kGathered, kColumns);  // by cp.async, of which each lane tells anyway
  Request stored = product(kRows, kColumns);            // by way of registers, since rows begin anywhere
  stored.facts = 1 | 1 << 1 | 1 << 5;                   // no rows of 16 bytes
  CHECK(has(lowered(stored).loop_ir, "store_shifted"));
  CHECK(awaits(copied, false, 129));
  CHECK(awaits(copied, true, 129));
  CHECK(awaits(stored, false, 5));
  CHECK(awaits(stored, true, 1 + 4 * 32));
  CHECK(awaits(stored, true, 2 * 128));  // of two warp groups, who arrive as such else
  Request shared = product(kRows, kColumns);
  shared.target.cluster = 2;
  CHECK(awaits(shared, false, 2));  // of a warp group in either block
  CHECK(awaits(shared, true, 2 * 128));
  // Under the condition that a stage is given back from the second iteration on.
  Request plain = product(kRows, kColumns);
  plain.target.ptx = plain.target.bounded_waits = true;
  plain.target.teams = 1;
  const std::string text = lowered(plain).text;
  CAPTURE(text);
  const size_t inside = text.find("mbarrier.arrive.shared::cta", text.find("wgmma.wait_group.sync.aligned 1"));
  REQUIRE(inside != std::string::npos);
  CHECK(text.substr(text.rfind('\n', inside) + 1, 2) == "@p");
}

TEST_CASE("what a region reads in every iteration is a tile of the stages") {
  const std::string scale = "parallel r < 128, d < 64 { a[r, d] = f32(x[r, d]) * gain[k*64 + d] }";
  const Lowered result = lowered(product(kRows, kColumns, scale, "a"));
  CAPTURE(result.notes);
  CAPTURE(result.loop_ir);
  CHECK(has(
      result.notes,
      "the copy engine into {gain_tile, x, w} (in part by the producer's threads: gain_tile does not lie in slabs)"));
  CHECK(has(result.loop_ir, "gain_tile["));
  CHECK(has(result.loop_ir, "copy_async gain_tile"));

  Request ampere = product(kRows, kColumns, scale, "a");
  ampere.target.architecture = 80;
  CHECK(has(lowered(ampere).notes, "asynchronous copies into {gain_tile, x, w}"));
  Request one_stage = product(kRows, kColumns, scale, "a");
  one_stage.tunables = {{"stages", 1}};
  CHECK(!has(lowered(one_stage).notes, "gain_tile"));
  const auto scaled_by = [](const std::string& factor) {
    return lowered(
               product(kRows, kColumns, "parallel r < 128, d < 64 { a[r, d] = f32(x[r, d]) * " + factor + " }", "a"))
        .notes;
  };
  CHECK(has(scaled_by("(x[r, d] > 0 ? gain[k*64 + d] : 1)"), "gain_tile"));  // for some elements
  // Not what is the same in every iteration, lies apart, is too narrow for cp.async.
  for (const char* other : {"gain[d]", "pairs[k*64 + d, 0]", "gain[k*64 + d + 1]"})
    CHECK(!has(scaled_by(other), "_tile"));
}

TEST_CASE("a matrix that a region reads in every iteration is a tile of the stages where a producer copies") {
  const auto weighted = [](int64_t stages) {
    return Request{R"(tile 1
kernel weighted(X: f16[M, K], W: f16[N, K], E: f16[N, K], C: out f32[M, N])
tune stages = 3 | 1
grid i < ceildiv(M, 128)
{
  shared x: f16[128, 64], w: f16[64, 64]
  fragment s: f32[128, 64], c: f32[128, 64] = 0
  x = X[i*128 +: 128, 0 +: 64]
  pipelined k < ceildiv(N, 64), stages {
    w = W[k*64 +: 64, 0 +: 64]
    s = x @ w^T
    parallel r < 128, d < 64 { c[r, d] += k*64 + d < M ? s[r, d] * E[i*128 + r, k*64 + d] : 0 }
  }
  C[i*128 +: 128, 0 +: 64] = c
}
)",
                   {{"stages", stages}},
                   kHopper};
  };
  const Lowered result = lowered(weighted(3));
  CAPTURE(result.notes);
  CAPTURE(result.loop_ir);
  CHECK(has(result.notes, "the copy engine into {E_tile, w}"));
  CHECK(!has(result.loop_ir, "? E["));  // not where the mask is evaluated either
  Request unaligned = weighted(3);
  unaligned.facts &= ~(uint64_t{7} << 12);  // of E; facts_of(): five a tensor, behind the first
  CHECK(
      has(lowered(unaligned).notes, "the copy engine into {E_tile, w} (in part by the producer's threads, by way of"));
  CHECK(!has(lowered(weighted(1)).notes, "E_tile"));
  Request ampere = weighted(3);
  ampere.target.architecture = 80;
  CHECK(!has(lowered(ampere).notes, "E_tile"));
}

TEST_CASE("what tiles decide about, and the producer needs, it is handed") {
  const auto experts = [](const std::string& name, int cluster) {
    Request request{R"(tile 1
kernel product(X: f16[R, K], W: f16[8, N, K], ends: i32[8], C: out f16[R, N])
grid t < ceildiv(R, 128) + 8, j < ceildiv(N, 128)
{
  shared x: f16[128, 64], w: f16[128, 64], upto: i32[8]
  fragment c: f32[128, 128] = 0
  parallel e < 8 { upto[e] = sum[k <= e](ceildiv(ends[k], 128)) }
  )" + name + R"(
  if e < 8 {
    let first = ends[e]
    pipelined k < ceildiv(K, 64), 3 {
      x = X[first +: 128, k*64 +: 64]
      w = W[e, j*128 +: 128, k*64 +: 64]
      c += x @ w^T
    }
    C[t*128 +: 128, j*128 +: 128] = c
  }
}
)"};
    request.target = kHopper;
    request.target.cluster = cluster;
    return lowered(request);
  };
  const std::string found = "let e = sum[k < 8](upto[k] <= t ? 1 : 0)";
  const Lowered result = experts(found, 1);
  CAPTURE(result.loop_ir);
  CHECK(has(result.notes, "the copy engine into {x, w}"));
  CHECK(has(result.notes, "name e: handed to the producer"));
  CHECK(!has(result.notes, "name first"));  // which follows from it and from a tensor
  size_t at = 0;
  for (const char* next : {"phase_wait handed_taken[", "handed[0] = e", "phase_arrive handed_given[", "producer,",
                           "phase_wait handed_given[", "let e: i64 = handed[0]", "handed_taken[", "bulk_copy 1 w["}) {
    CAPTURE(next);
    at = result.loop_ir.find(next, at);
    REQUIRE(at != std::string::npos);
  }
  // Each block has its own, so that none copies for the others along t.
  CHECK(!has(experts(found, 2).notes, "of a cluster along axis 0"));
  // What a condition loads has no name; what a tensor says needs none.
  CHECK(!has(experts("let e = ends[t]", 1).notes, "handed"));
}

}  // namespace
}  // namespace kachel::lowering
