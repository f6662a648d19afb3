// What sm_90a's schedule makes of what comes behind the products, read off its printed values.
#include <fmt/format.h>

#include <set>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// C = A B^T and `end`, in blocks of `rows` x 128.
Request product(const std::string& end, int64_t stages, const std::string& rows = "128",
                const std::string& bound = "K") {
  return {R"(tile 1
kernel product(A: f16[M, K], B: f16[N, K], R: f16[M, N], D: f16[N], S: f32[M], C: out f16[M, N])
grid i < ceildiv(M, )" +
              rows + R"(), j < ceildiv(N, 128)
{
  shared a: f16[)" +
              rows + R"(, 64], b: f16[128, 64]
  fragment c: f32[)" +
              rows + R"(, 128] = 0, m: f32[)" + rows + R"(]
  pipelined k < ceildiv()" +
              bound + R"(, 64), )" + std::to_string(stages) + R"( {
    a = A[i*)" +
              rows + " +: " + rows + R"(, k*64 +: 64]
    b = B[j*128 +: 128, k*64 +: 64]
    c += a @ b^T
  }
  )" + end + R"(
  C[i*)" + rows +
              " +: " + rows + R"(, j*128 +: 128] = c
}
)",
          {},
          {.kind = Target::Kind::kCuda, .architecture = 90, .shared_limit = 227 * 1024}};
}

TEST_CASE("sums that a region reads in another order move to memory behind the products") {
  const Lowered turned = lowered(product("parallel r < 128, s < 128 { c[r, s] = c[r, (s + 3) % 128] }", 4));
  CAPTURE(turned.notes);
  CHECK(has(turned.notes, "gemm c: wgmma"));
  CHECK(has(turned.notes, "tile c: f32 in registers"));
  CHECK(has(turned.notes, "tile c_moved: f32 in memory of the block"));
  // Mirrored, they are exchanged by the four lanes that hold a row.
  const Lowered mirrored = lowered(product("parallel r < 128, s < 128 { c[r, s] = c[r, 127 - s] }", 4));
  CHECK(!has(mirrored.notes, "c_moved"));
  CHECK(count(mirrored.loop_ir, "shuffle_xor") == 128);
  const Lowered summed =
      lowered(product("parallel r < 128 { m[r] = max(sum[s < 64](c[r, s]), sum[s < 64](c[r, 127 - s])) }\n"
                      "  parallel r < 128, s < 128 { c[r, s] -= m[r] }",
                      4));
  CHECK(has(summed.notes, "gemm c: wgmma"));
  // Halves of a row are in the same thread.
  const Lowered halves =
      lowered(product("parallel r < 128, s < 64 { let low = c[r, s]  c[r, s] = c[r, s + 64]  c[r, s + 64] = low }", 4));
  CAPTURE(halves.notes);
  CHECK(has(halves.notes, "gemm c: wgmma"));
  CHECK(has(halves.notes, "tile c_moved: f32 in registers, layout [128, 64]"));
  // Of mma's, where warps share columns, each warp writes what it holds.
  Request shared =
      product("parallel r < 128, s < 64 { let low = c[r, s]  c[r, s] = c[r, s + 64]  c[r, s + 64] = low }", 3);
  shared.target.architecture = 80;
  const Lowered of_warps = lowered(shared);
  CAPTURE(of_warps.notes);
  CHECK(has(of_warps.notes, "gemm c: mma"));
  CHECK(has(of_warps.notes, "tile c: f32 in registers"));
  CHECK(has(of_warps.notes, "(it is a part of what several threads hold)"));
  // What is read as it is held stays there.
  CHECK(!has(lowered(product("parallel r < 128, s < 128 { c[r, s] += 1 }", 4)).notes, "c_moved"));
}

constexpr const char* kTeams = "consumers: 2 teams, which compute tiles in turn";

TEST_CASE("teams compute tiles in turn where a block is alone and a warp group can hold the sums") {
  const Lowered teams = lowered(product("", 6));
  CAPTURE(teams.notes);
  CAPTURE(teams.loop_ir);
  CHECK(has(teams.notes, kTeams));
  CHECK(has(teams.notes, "role consumer: threads 0..256, 232 registers"));
  CHECK(teams.threads == 384);
  CHECK(has(teams.loop_ir, "phases turn: 2 of 4 arrivals"));
  CHECK(has(teams.loop_ir, "phases empty: 6 of 1 arrivals"));
  // The others' stages are stepped over: by as many as the loop has iterations.
  const size_t over = teams.loop_ir.find("} of another team {");
  REQUIRE(over != std::string::npos);
  CHECK(teams.loop_ir.find("consumed[0] = i32(next % 6)", over) != std::string::npos);
  CHECK(!has(teams.loop_ir, "barrier"));
  // A turn ends when the products are issued, in front of what is done with them.
  const size_t passed = teams.loop_ir.find("phase_arrive turn");
  REQUIRE(passed != std::string::npos);
  CHECK(teams.loop_ir.find("group_wait c[", passed) < teams.loop_ir.find("# C["));

  CHECK(!has(lowered(product("", 3)).notes, kTeams));         // two blocks fit
  CHECK(!has(lowered(product("", 3, "256")).notes, kTeams));  // 256 x 128 sums are too many for a group
  CHECK(!has(lowered(product("", 6, "128", "min(K, (i + 1) * 128)")).notes, kTeams));  // tiles of unequal length
  // A program that wants threads in a certain number, or whose parts meet in shared memory, has them together.
  Request told = product("", 6);
  told.target.threads = 256;
  CHECK(!has(lowered(told).notes, kTeams));
  Request none = product("", 6);
  none.target.teams = 1;
  CHECK(!has(lowered(none).notes, kTeams));
}

TEST_CASE("what a region reads beside sums is fetched ahead where there is room, else with its neighbours") {
  const std::string add =
      "parallel r < 128, d < 128 { c[r, d] = c[r, d] * S[i*128 + r] + R[i*128 + r, j*128 + d] + D[j*128 + d] }";
  const Lowered fetched = lowered(product(add, 4));
  CAPTURE(fetched.notes);
  CAPTURE(fetched.loop_ir);
  CHECK(has(fetched.notes, "pipeline fetched: depth 2, the copy engine into {R_tile}"));
  CHECK(has(fetched.notes, kTeams));
  CHECK(has(fetched.loop_ir, "copy_vector raw[0 +: 2], R_tile["));
  CHECK(has(fetched.loop_ir, "copy_vector raw[0 +: 2], D["));
  CHECK(has(fetched.loop_ir, "S_part["));  // four rows a thread, once

  const Lowered direct = lowered(product(add, 6));
  CHECK(!has(direct.notes, "pipeline fetched"));
  CHECK(has(direct.loop_ir, "copy_vector raw[0 +: 2], R["));
  Request unaligned = product(add, 4);
  unaligned.facts = 1;
  CHECK(!has(lowered(unaligned).loop_ir, "copy_vector raw"));
  // Not what is read under a condition, in another order, or in another place for each row.
  for (const char* other :
       {"(i < 3 ? R[i*128 + r, j*128 + d] : 0)", "R[i*128 + d, j*128 + r]", "R[i*128 + r, j*128 + 2*d]"})
    CHECK(!has(lowered(product(std::string("parallel r < 128, d < 128 { c[r, d] += ") + other + " }", 4)).notes,
               "pipeline fetched"));
}

TEST_CASE("loads beside sums are under way together as far as registers go") {
  auto loops = [](int columns) {
    Request request{fmt::format(R"(tile 1
kernel product(A: f16[M, K], B: f16[N, K], R: f16[M, N], C: out f16[M, N])
grid i < ceildiv(M, 128), j < ceildiv(N, {0})
{{
  shared a: f16[128, 64], b: f16[{0}, 64]
  fragment c: f32[128, {0}] = 0
  pipelined k < ceildiv(K, 64), 6 {{
    a = A[i*128 +: 128, k*64 +: 64]
    b = B[j*{0} +: {0}, k*64 +: 64]
    c += a @ b^T
  }}
  parallel m < 128, n < {0} {{ c[m, n] += R[i*128 + m, j*{0} + n] }}
  C[i*128 +: 128, j*{0} +: {0}] = c
}}
)",
                                columns)};
    request.target.architecture = 90;
    return lowered(request).loop_ir;
  };
  // Two rows a step: eight loads of a pair of 16 bits, in place of one after the other.
  CHECK(has(loops(128), "for n_r in 0 .. 16 unroll apart by 4 {"));
  CHECK(!has(loops(32), "apart"));  // few sums: the compiler loads ahead as it likes
}

TEST_CASE("what follows columns alone is loaded once for the rows that are walked within") {
  const std::string loops =
      lowered(product("parallel r < 128, d < 128 { c[r, d] = c[r, d] + R[i*128 + r, j*128 + d] + D[j*128 + d] }", 6))
          .loop_ir;
  CAPTURE(loops);
  const size_t load = loops.find("copy_vector raw[0 +: 2], D[");
  REQUIRE(load != loops.npos);
  const size_t columns = loops.rfind("for d_r", load), rows = loops.find("for r_r", columns);
  CHECK(columns != loops.npos);
  CHECK(rows > load);
  CHECK(loops.find("copy_vector raw_2[0 +: 2], R[") > rows);
}

TEST_CASE("long functions of many sums are worked on a few at a time") {
  auto loops = [](const std::string& value) {
    return lowered(product("parallel r < 128, d < 128 { c[r, d] = " + value + " }", 6)).loop_ir;
  };
  for (const char* value : {"erf(c[r, d])", "c[r, d] / (1 + exp(-c[r, d]))", "tanh(c[r, d] * 0.5)"})
    CHECK_MESSAGE(has(loops(value), "for d_r in 0 .. 16 unroll apart by 2 {"), value);
  for (const char* value : {"c[r, d] * 2", "exp2(c[r, d])", "approx tanh(c[r, d])"})
    CHECK_MESSAGE(!has(loops(value), "apart"), value);
}

TEST_CASE("a few at a time are kept so by exits, where another team has products meanwhile") {
  const auto exits = [](const std::string& rows, int64_t stages, bool teams) {
    const Lowered result =
        lowered(product("parallel r < " + rows + ", d < 128 { c[r, d] = erf(c[r, d]) }", stages, rows));
    CAPTURE(result.notes);
    REQUIRE(has(result.notes, "2 teams") == teams);
    REQUIRE(has(result.loop_ir, "apart by 2"));
    std::set<std::string> conditions;
    for (size_t at = 0; (at = result.text.find(" exit;", at + 1)) != result.text.npos;) {
      const size_t from = result.text.rfind("setp.eq.u32", at);
      conditions.insert(result.text.substr(result.text.find(',', from), result.text.find('\n', from)));
    }
    return conditions.size();
  };
  CHECK(exits("128", 6, true) == 16);
  CHECK(exits("256", 3, false) == 0);
}

}  // namespace
}  // namespace kachel::lowering
