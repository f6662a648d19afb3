// That the machine does what the PTX ISA says, on a few lines each.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "tests/lowering/ptx_machine_bench.h"

namespace kachel::lowering {
namespace {

using namespace ptx_bench;

uint32_t bits(float value) {
  return std::bit_cast<uint32_t>(value);
}
}  // namespace

TEST_CASE("integers") {
  CHECK(result("add.s32 r1, 7, -9;") == 0xfffffffe);
  CHECK(result("mul.lo.s32 r1, 0x10001, 0x10001;") == 0x20001);
  CHECK(result("div.s32 r1, -7, 2;") == 0xfffffffd);
  CHECK(result("rem.s32 r1, -7, 2;") == 0xffffffff);
  CHECK(result("div.u32 r1, -7, 2;") == 0x7ffffffc);
  CHECK(result("min.s32 r1, -7, 2;") == 0xfffffff9);
  CHECK(result("min.u32 r1, -7, 2;") == 2);
  CHECK(result("abs.s32 r1, -7;") == 7);
  CHECK(result("shl.b32 r1, 3, 31;") == 0x80000000);
  CHECK(result("shl.b32 r1, 3, 32;") == 0);
  CHECK(result("shr.s32 r1, -8, 40;") == 0xffffffff);
  CHECK(result("shr.u32 r1, -8, 1;") == 0x7ffffffc);
  CHECK(result("popc.b64 r1, -1;") == 64);
  CHECK(result("mul.lo.s64 d2, 0x100000000, 5;\nshr.u64 d2, d2, 30;\ncvt.u32.u64 r1, d2;") == 20);
  CHECK(result("mad.wide.s32 d2, -2, 3, 4;\nsetp.eq.s64 p0, d2, -2;\nselp.b32 r1, 1, 0, p0;") == 1);
  CHECK(result("mov.b32 r2, -2;\nmad.wide.u32 d2, r2, 2, 0;\nshr.u64 d2, d2, 32;\ncvt.u32.u64 r1, d2;") == 1);
  CHECK(result("cvt.s64.s32 d2, -5;\nmov.b64 {r2, r1}, d2;") == 0xffffffff);
  CHECK(result("cvt.u64.u32 d2, r0;\nmov.b64 {r1, r2}, d2;", 9) == 9);
}

TEST_CASE("fields, bytes and tables") {
  CHECK(result("bfe.u32 r1, 0xabcd, 4, 8;") == 0xbc);
  CHECK(result("bfe.s32 r1, 0xabcd, 4, 8;") == 0xffffffbc);
  CHECK(result("mov.b32 r1, 0x11223344;\nbfi.b32 r1, 0xff, r1, 8, 8;") == 0x1122ff44);
  CHECK(result("prmt.b32 r1, 0x03020100, 0x07060504, 0x7240;") == 0x07020400);
  CHECK(result("prmt.b32 r1, 0x8000ff12, 0, 0xbb32;") == 0xffff8000);
  CHECK(result("prmt.b32 r1, 0x8000ff12, 0, 0x9991;") == 0xffffffff);
  CHECK(result("lop3.b32 r1, 0x12345678, 0x000f000f, 0x64006400, 0x6a;") == ((0x12345678u & 0x000f000f) ^ 0x64006400));
  CHECK(result("shf.r.wrap.b32 r1, 0x11223344, 0x55667788, 40;") == 0x88112233);
  CHECK(result("dp4a.s32.s32 r1, 0xff020304, 0x01010101, 10;") == 18);
  CHECK(result("dp4a.u32.u32 r1, 0xff020304, 0x01010101, 10;") == 274);
  CHECK(result("mov.b32 {h0, h1}, 0x11223344;\nmov.b32 r1, {h1, h0};") == 0x33441122);
}

TEST_CASE("floats") {
  const uint32_t nan = 0x7fc00000;
  const auto f32 = [](const std::string& line) { return result(line + "\nmov.b32 r1, f0;"); };
  CHECK(f32("fma.rn.f32 f0, 0f3F800001, 0f3F800001, 0fBF800002;") == bits(0x1p-46f));
  CHECK(f32("fma.rn.sat.f32 f0, 0f3F000000, 0f3F000000, 0f3F000000;") == bits(0.75f));
  CHECK(f32("fma.rn.sat.f32 f0, 0f7F800000, 0f3F000000, 0fFF800000;") == 0);
  CHECK(f32("add.f32 f0, 0f3F800000, 0f40000000;") == bits(3));
  CHECK(f32("min.f32 f0, 0f3F800000, 0f7FC00000;") == bits(1));
  CHECK(std::isnan(std::bit_cast<float>(f32("min.NaN.f32 f0, 0f3F800000, 0f7FC00000;"))));
  CHECK(f32("max.f32 f0, 0f80000000, 0f00000000;") == 0);
  CHECK(f32("copysign.f32 f0, 0f80000000, 0f40400000;") == bits(-3));
  CHECK(f32("ex2.approx.ftz.f32 f0, 0fC3020000;") == 0);
  CHECK(f32("ex2.approx.f32 f0, 0fC3020000;") == bits(0x1p-130f));
  CHECK(f32("rcp.approx.f32 f0, 0f40800000;") == bits(0.25f));
  CHECK(f32("cvt.rmi.f32.f32 f0, 0fBFC00000;") == bits(-2));
  CHECK(f32("cvt.rni.f32.f32 f0, 0f40200000;") == bits(2));
  for (const auto& [order, holds] : {std::pair{"eq", 0}, {"ne", 0}, {"neu", 1}, {"lt", 0}, {"num", 0}, {"nan", 1}})
    CHECK(result(fmt::format("setp.{}.f32 p0, 0f{:08X}, 0f3F800000;\nselp.b32 r1, 1, 0, p0;", order, nan)) ==
          static_cast<uint32_t>(holds));
}

TEST_CASE("conversions") {
  CHECK(result("cvt.rzi.s32.f32 r1, 0fC0300000;") == 0xfffffffe);
  CHECK(result("cvt.rzi.u32.f32 r1, 0fC0300000;") == 0);
  CHECK(result("cvt.rzi.s32.f32 r1, 0f7F800000;") == 0x7fffffff);
  CHECK(result("cvt.rzi.s32.f32 r1, 0f7FC00000;") == 0);
  CHECK(result("cvt.rn.f16x2.f32 r1, 0f3F800000, 0f40000000;") == 0x3c004000);
  CHECK(result("cvt.rn.bf16x2.f32 r1, 0f3F800000, 0f40000000;") == 0x3f804000);
  CHECK(result("cvt.rn.f16.f32 h0, 0f47800000;\ncvt.u32.u16 r1, h0;") == 0x7c00);
  CHECK(result("cvt.rn.satfinite.e4m3x2.f32 h0, 0f3F800000, 0f461C4000;\ncvt.u32.u16 r1, h0;") == 0x387e);
  CHECK(result("cvt.u16.u32 h0, 0x3c38;\ncvt.rn.f16x2.e4m3x2 r1, h0;") == 0x3e003c00);
  CHECK(result("cvt.u16.u32 h0, 0x3c38;\ncvt.rn.f16x2.e5m2x2 r1, h0;") == 0x3c003800);
  CHECK(result("cvt.rna.tf32.f32 r1, 0f3F801000;") == 0x3f802000);
  CHECK(result("sub.rn.f16x2 r1, 0x64086405, 0x64006400;") == 0x48004500);
}

TEST_CASE("guards, branches and loops") {
  CHECK(result("mov.b32 r1, 1;\nsetp.lt.s32 p0, r0, 5;\n@p0 mov.b32 r1, 2;\n@!p0 add.s32 r1, r1, 5;", 4) == 2);
  CHECK(result("mov.b32 r1, 1;\nsetp.lt.s32 p0, r0, 5;\n@p0 mov.b32 r1, 2;\n@!p0 add.s32 r1, r1, 5;", 5) == 6);
  // What is not written is no number that anybody expects.
  CHECK(result("setp.lt.s32 p0, r0, 5;\n@p0 mov.b32 r1, 2;", 5) == kPoison);
  CHECK(result(R"(
mov.b32 r1, 0;
mov.b32 r2, 0;
setp.lt.s32 p0, 0, r0;
@!p0 bra L1;
L0:
.pragma "nounroll";
add.s32 r2, r2, 1;
add.s32 r1, r1, r2;
setp.lt.s32 p1, r2, r0;
@p1 bra L0;
L1:
)",
               7) == 28);
}

TEST_CASE("threads exchange through shared memory at a barrier") {
  const std::string store = "shl.b32 r1, r0, 2;\nadd.s32 r2, shared, r1;\nst.shared.b32 [r2+0], r0;\n";
  const std::string load = "sub.s32 r3, shared, r1;\nld.shared.b32 r4, [r3+252];\nst.global.b32 [d1+0], r4;\n";
  for (ThreadOrder order : {ThreadOrder::kForward, ThreadOrder::kReversed, ThreadOrder::kShuffled}) {
    Words memory;
    memory.threads = 64;
    memory.order = order;
    CHECK(memory.run(store + "bar.sync 0;\n" + load).ok());
    for (uint32_t i = 0; i < 64; ++i) CHECK(memory.words[i] == 63 - i);
    // Without it, those who are first read what nobody has written.
    CHECK(memory.run(store + load).ok());
    if (order != ThreadOrder::kShuffled) CHECK(memory.words[order == ThreadOrder::kForward ? 0 : 63] == kPoison);
  }
  failing("setp.lt.s32 p0, r0, 32;\n@p0 bar.sync 0;", "ends before a barrier", 64);
}

TEST_CASE("blocks have numbers and shared memory of their own") {
  Words memory;
  memory.blocks = 3;
  CHECK(memory
            .run(R"(
mov.u32 r1, %%ctaid.x;
mov.u32 r2, %%nctaid.x;
mad.wide.u32 d2, r1, 4, d0;
ld.shared.b32 r3, [shared+8];
st.shared.b32 [shared+8], r1;
setp.eq.s32 p0, r0, 0;
@p0 st.global.b32 [d2+0], r2;
@p0 st.global.b32 [d2+64], r3;
)")
            .ok());
  for (size_t i = 0; i < 3; ++i) {
    CHECK(memory.words[i] == 3);
    CHECK(memory.words[16 + i] == kPoison);
  }
}

TEST_CASE("accesses of all widths") {
  Words memory;
  std::iota(memory.words.begin(), memory.words.end(), 0xfffffff0u);
  CHECK(memory
            .run(R"(
ld.global.nc.v4.b32 {r1, r2, r3, r4}, [d0+16];
st.global.v2.b32 [d0+256], {r4, r1};
ld.global.s8 r5, [d0+1];
ld.global.u16 r6, [d0+2];
ld.global.s16 r7, [d0+0];
st.shared.b16 [shared+0], r7;
st.shared.b8 [shared+2], r6;
ld.shared.b16 r8, [shared+0];
ld.shared.v2.b64 {d2, d3}, [shared+16];
st.global.b64 [d0+272], d2;
st.global.v4.b32 [d0+288], {r5, r6, r7, r8};
)")
            .ok());
  const std::pair<size_t, uint32_t> expected[] = {{64, 0xfffffff7}, {65, 0xfffffff4}, {68, kPoison},
                                                  {69, kPoison},    {72, 0xffffffff}, {73, 0x0000ffff},
                                                  {74, 0xfffffff0}, {75, 0x0000fff0}};
  for (const auto& [at, value] : expected) CHECK(memory.words[at] == value);
}

TEST_CASE("numbers are added where they lie") {
  Words memory;
  memory.words = {10, bits(0.5f), 0x3c003c00, 0xffffffff, 0};
  memory.words.resize(64);
  CHECK(memory
            .run(R"(
red.global.add.s32 [d0+0], r0;
red.global.add.f32 [d0+4], 0f3F800000;
cvt.rn.f16.f32 h0, 0f3F800000;
red.global.add.noftz.f16 [d0+10], h0;
red.global.max.s32 [d0+12], r0;
)")
            .ok());
  CHECK(memory.words[0] == 10 + 31 * 16);
  CHECK(memory.words[1] == bits(32.5f));
  CHECK(memory.words[2] == 0x50203c00);
  CHECK(memory.words[3] == 31);
}

TEST_CASE("one thread exchanges what all of them expect") {
  Words memory;
  memory.words = {7, 9};
  memory.words.resize(64);
  CHECK(memory
            .run(R"(
add.s32 r1, r0, 100;
ld.relaxed.gpu.global.b32 r2, [d0+4];
atom.global.cas.b32 r3, [d0+0], 7, r1;
setp.eq.s32 p0, r3, 7;
@p0 st.global.b32 [d0+8], r2;
@p0 red.global.add.s32 [d0+12], 1;
)")
            .ok());
  CHECK(memory.words[0] == 100);
  CHECK(memory.words[2] == 9);
  CHECK(memory.words[3] == 1);
  failing("atom.global.cas.b32 r3, [d0+2048], 7, r0;", "outside of the tensors");
}

TEST_CASE("an asynchronous copy is there when it is waited for") {
  const std::string copy =
      "add.s32 r5, r0, 7;\nst.global.b32 [d1+0], r5;\nshl.b32 r1, r0, 2;\nadd.s32 r2, shared, r1;\n"
      "cp.async.ca.shared.global [r2+0], [d1+0], 4;\ncp.async.commit_group;\n"
      "cp.async.ca.shared.global [r2+128], [d1+0], 4, 0;\ncp.async.commit_group;\n";
  const std::string load = "ld.shared.b32 r3, [r2+0];\nld.shared.b32 r4, [r2+128];\n";
  const std::string last = "cp.async.wait_group 0;\nst.global.v2.b32 [d0+256], {r3, r4};\n";
  const auto seen = [&](const std::string& wait) {
    Words memory;
    memory.threads = 1;
    const Status status = memory.run(copy + wait + load + last);
    CHECK_MESSAGE(status.ok(), status.message());
    return std::pair{memory.words[64], memory.words[65]};
  };
  CHECK(seen("cp.async.wait_group 2;\n") == std::pair{kPoison, kPoison});
  CHECK(seen("cp.async.wait_group 1;\n") == std::pair{7u, kPoison});
  CHECK(seen("cp.async.wait_group 0;\n") == std::pair{7u, 0u});
  failing(copy, "before its asynchronous copies");
}

TEST_CASE("accesses that are not allowed") {
  failing("ld.global.b32 r1, [d0+2048];", "outside of the tensors: `ld.global.b32 r1, [d0+2048];`");
  failing("ld.global.b32 r1, [d0+-4];", "outside of the tensors");
  failing("ld.global.v4.b32 {r1, r2, r3, r4}, [d0+2040];", "not aligned");
  failing("st.global.b32 [d0+2], r0;", "not aligned");
  failing("st.shared.b32 [shared+1024], r0;", "outside of shared memory");
  failing("st.shared.b64 [shared+4], d0;", "not aligned");
  failing("ld.shared.b32 r1, [0];", "outside of shared memory");
  failing("ld.param.b64 d2, [kachel_kernel_param_0+8];", "outside of the parameters");
  failing("red.global.add.s32 [d0+2048], r0;", "outside of the tensors");
  failing("cp.async.cg.shared.global [shared+8], [d0+0], 16;", "not aligned");
}

TEST_CASE("a loop that does not end") {
  failing("L0:\nbra L0;", "does not end");
  failing("L0:\nbar.warp.sync -1;\nbra L0;", "does not end");
  failing("L0:\nbar.sync 0;\nbra L0;", "does not end", 64);
  failing("trap;", "a trap");
}

TEST_CASE("what the machine does not know") {
  const auto code = [](const std::string& line) { return parse_ptx(kHead + line + "\n").status().code(); };
  CHECK(code("wgmma.fence.sync.aligned;") == Code::kUnsupported);
  CHECK(code("add.s32 r1, nobody, 1;\ncp.async.bulk.commit_group;") == Code::kUnsupported);
  CHECK(code("bar.sync 1, 128;") == Code::kUnsupported);
  CHECK(code("ld.local.b32 r1, [d0+0];") == Code::kUnsupported);
  CHECK(code("mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {r1}, {r1}, {r1}, {r1};") == Code::kUnsupported);
  CHECK(code("add.s32 r1, nobody, 1;") == Code::kInternal);
  CHECK(code("add.s32 r1, r2, 1") == Code::kInternal);
  CHECK(code("add.s32 r1;") == Code::kInternal);
  CHECK(code("bra L9;") == Code::kInternal);
  CHECK(code("griddepcontrol.wait;\nprefetch.global.L2 [d0];\nfence.acq_rel.gpu;") == Code::kOk);
}

}  // namespace kachel::lowering
