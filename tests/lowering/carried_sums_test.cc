// Operands and sums that a block makes in another order than its program says (turned_operands.cc, carried_sums.cc).
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

constexpr Target kHopper{.kind = Target::Kind::kCuda, .architecture = 90, .shared_limit = 227 * 1024};

Lowered product(const std::string& type, const std::string& body, const std::string& behind = "") {
  return lowered(
      {"tile 1\nkernel product(A: " + type + "[M, K], B: " + type +
           "[N, K], G: f32[K], C: out f32[M, N])\ngrid i < ceildiv(M, 64), j < ceildiv(N, 128)\n{\n  shared a: " +
           type + "[64, 32], b: " + type + "[128, 32], d: " + type +
           "[32, 128]\n  fragment c: f32[64, 128] = 0, n: f32[128] = 0\n  pipelined k < ceildiv(K, 32), 3 {\n" +
           "    a = A[i*64 +: 64, k*32 +: 32]\n    b = B[j*128 +: 128, k*32 +: 32]\n" + body + "\n  }\n" + behind +
           "  C[i*64 +: 64, j*128 +: 128] = c\n}\n",
       {},
       kHopper});
}
const std::string kSum = "parallel r < 128 { n[r] += sum[t < 32](f32(b[r, t])) }\n", kMultiply = "c += a @ b^T\n",
                  kUse = "parallel r < 64, s < 128 { c[r, s] += n[s] }\n";

TEST_CASE("sums of an operand are carried apart and computed beside the product") {
  const Lowered result = product("bf16", kSum + kMultiply, kUse);
  CAPTURE(result.loop_ir);
  CHECK(has(result.notes, "tile n_carried: f32 in registers"));
  CHECK(has(result.notes, "tile b_held: bf16 in registers"));
  const size_t multiplied = result.loop_ir.find("group_mma"), held = result.loop_ir.find("# b_held = b"),
               waited = result.loop_ir.find("group_wait");
  CHECK(multiplied < held);
  CHECK(held < waited);
}

TEST_CASE("so are sums that are added up under a condition, which products run on across") {
  const Lowered result = product("bf16", kMultiply + "if j == 0 { " + kSum + " }\n", kUse);
  CAPTURE(result.loop_ir);
  CHECK(has(result.notes, "tile n_carried: f32 in registers"));
  const size_t multiplied = result.loop_ir.find("group_mma"), asked = result.loop_ir.find("if i32(j) == 0"),
               held = result.loop_ir.find("# b_held = b"), waited = result.loop_ir.find("group_wait");
  CHECK(multiplied < asked);
  CHECK(asked < held);
  CHECK(held < waited);
}

TEST_CASE("extremes are carried as sums are, from what loses every comparison") {
  for (const std::string op : {"max", "min"}) {
    const std::string step = "parallel r < 128 { n[r] = " + op + "(n[r], " + op + "[t < 32](abs(f32(b[r, t])))) }\n";
    const Lowered result = product("bf16", kMultiply + step, kUse);
    CAPTURE(result.loop_ir);
    CHECK(has(result.notes, "tile n_carried: f32 in registers"));
    CHECK(has(result.loop_ir, "# n_carried = nan"));
    const size_t loop = result.loop_ir.find("for k in"), end = result.loop_ir.find("# n_moved = n_carried");
    REQUIRE(loop < end);
    const std::string body = result.loop_ir.substr(loop, result.loop_ir.find("group_wait", loop) - loop);
    CHECK(!has(body, "barrier"));
    CHECK(!has(body, "shuffle"));
  }
}

TEST_CASE("extremes of a loop without products are carried along in parts") {
  const auto exchanges = [](const std::string& step) {
    return count(lowered({"tile 1\nkernel k(X: f32[N, D], Y: out f32[N])\ngrid n < N\n{\n"
                          "  fragment x: f32[1024], m: f32[1] = -inf, s: f32[1] = 0\n"
                          "  for d < ceildiv(D, 1024) {\n    x = X[n, d*1024 +: 1024] pad nan\n"
                          "    parallel i < 1 { m[i] = max(m[i], max[j < 1024](x[j])) }\n" +
                              step + "  }\n  parallel i < 1 { Y[n] = m[i] + s[i] }\n}\n",
                          {},
                          kHopper})
                     .loop_ir,
                 "shuffle");
  };
  CHECK(exchanges("") == 5);                                              // behind the loop, in a warp
  CHECK(exchanges("parallel i < 1 { s[i] = s[i] * 0.5 + m[i] }\n") > 5);  // the loop reads them
}

TEST_CASE("products are waited for in front of a condition under which threads meet, or their sums are read") {
  const auto waits_first = [](const std::string& body) {
    const std::string loops = product("bf16", kMultiply + "if j == 0 { " + body + " }\n").loop_ir;
    CAPTURE(loops);
    return loops.find("group_wait") < loops.find("if i32(j) == 0");
  };
  CHECK(!waits_first(kSum));
  CHECK(
      waits_first("parallel r < 128 { n[r] = max[t < 32](f32(b[r, t])) }  parallel t < 32, s < 128 { d[t, s] = n[s] }\n"
                  "parallel t < 32, s < 128 { d[t, s] = d[(t * 7 + 3) % 32, s] }\n"));
  CHECK(waits_first("parallel r < 64, s < 128 { c[r, s] *= 2.0 }\n"));
}

TEST_CASE("sums stay where they are that the loop reads, that are scaled, or that follow from registers") {
  const auto carried = [](const std::string& body) { return has(product("bf16", body, kUse).notes, "n_carried"); };
  CHECK(carried(kSum + kMultiply));
  CHECK(!carried(kSum + "parallel r < 64, s < 128 { c[r, s] += n[s] }\n" + kMultiply));
  CHECK(!carried("parallel r < 128 { n[r] = n[r] * 0.5 + sum[t < 32](f32(b[r, t])) }\n" + kMultiply));
  CHECK(!carried("parallel r < 128 { n[r] += max[t < 32](f32(b[r, t])) }\n" + kMultiply));
  CHECK(!carried("parallel r < 128 { n[r] = max(n[r], sum[t < 32](f32(b[r, t]))) }\n" + kMultiply));
  CHECK(!carried("parallel r < 128 { n[r] = max(n[r], min[t < 32](f32(b[r, t]))) }\n" + kMultiply));
  CHECK(!carried(kMultiply + "parallel r < 128 { n[r] += sum[t < 64](c[t, r]) }\n"));
}

TEST_CASE("operands that are made with k down their rows are turned where tensor cores read along k") {
  const std::string made = "parallel t < 32, s < 128 { d[t, s] = b[s, t] * G[k*32 + t] }\n";
  const std::string notes = product("f32", made + "c += a @ d precision tf32\n").notes;
  CAPTURE(notes);
  CHECK(has(notes, "gemm c: wgmma.m64k8"));
  CHECK(has(notes, "tile d_part: f32 in registers, layout [128, 32]"));
  CHECK(has(product("bf16", made + "c += a @ d\n").notes, "layout [32, 128]"));  // which can be read either way
  CHECK(has(product("f32", made + "c += a @ d\n").notes, "gemm c: fma"));
}

TEST_CASE("operands that are gathered along their rows are turned, for threads to store several elements together") {
  const auto notes = [](const std::string& made) {
    return product("bf16", "parallel t < 32, s < 128 { d[t, s] = " + made + " }\nc += a @ d\n").notes;
  };
  const std::string gathered = notes("B[k*32 + t, (j*128 + s) * 3 % K]");
  CAPTURE(gathered);
  CHECK(has(gathered, "tile d_part: bf16 in registers, layout [128, 32] on 128 threads: 128 t1; 8 r1 4 r8"));
  CHECK(has(gathered, "gemm c: wgmma.m64k16"));
  CHECK(has(notes("B[k*32 + t, j*128 + s]"), "layout [32, 128]"));                // 16 bytes at a time
  CHECK(has(notes("B[k*32 + t, (j*128 + s + t) * 3 % K]"), "layout [32, 128]"));  // along either axis
  CHECK(has(notes("B[j*128 + s, (k*32 + t) * 3 % K]"), "layout [128, 32]"));      // along k
}

}  // namespace
}  // namespace kachel::lowering
