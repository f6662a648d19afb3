// What the lanes of a warp do together, against the tables of the PTX ISA.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <random>

#include "ir/numerics.h"
#include "tests/lowering/ptx_machine_bench.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using namespace ptx_bench;

constexpr size_t kWarp = 32;

struct Product {
  const char *name, *a_name, *b_name;
  DType a, b;
  int64_t k;
};

// Where element i of a lane's fragment lies: "Matrix Fragments for mma.m16n8k8 / k16 / k32".
std::pair<int64_t, int64_t> place_in_a(int64_t k, int64_t lane, int64_t i) {
  const int64_t group = lane / 4, thread = lane % 4;
  if (k == 8) return {i == 0 || i == 2 ? group : group + 8, i < 2 ? thread : thread + 4};
  if (k == 16)
    return {i < 2 || (i >= 4 && i < 6) ? group : group + 8, i < 4 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8};
  return {i < 4 || (i >= 8 && i < 12) ? group : group + 8, i < 8 ? thread * 4 + (i & 3) : thread * 4 + (i & 3) + 16};
}
int64_t row_in_b(int64_t k, int64_t lane, int64_t i) {
  const int64_t thread = lane % 4;
  if (k == 8) return i == 0 ? thread : thread + 4;
  if (k == 16) return i < 2 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8;
  return i < 4 ? thread * 4 + (i & 3) : thread * 4 + (i & 3) + 16;
}

// Words 16 * lane on: 4 of A, 2 of B, 4 of C.
constexpr const char* kLoadFragments = R"(
mad.wide.s32 d2, r0, 64, d0;
ld.global.v4.b32 {r1, r2, r3, r4}, [d2+0];
ld.global.v2.b32 {r5, r6}, [d2+16];
ld.global.v2.b32 {r7, r8}, [d2+24];
ld.global.v2.b32 {r9, r10}, [d2+32];
)";

}  // namespace

TEST_CASE("lanes shuffle and vote") {
  CHECK(result("shfl.sync.bfly.b32 r1, r0, 5, 31, -1;", 9) == 12);
  CHECK(result("add.s32 r2, r0, 100;\nshfl.sync.idx.b32 r1, r2, 3, 31, -1;", 9) == 103);
  CHECK(result("setp.eq.s32 p0, r0, 30;\nvote.sync.any.pred p1, p0, -1;\nselp.b32 r1, 1, 0, p1;") == 1);
  CHECK(result("setp.eq.s32 p0, r0, 32;\nvote.sync.any.pred p1, p0, -1;\nselp.b32 r1, 1, 0, p1;") == 0);
  failing("setp.lt.s32 p0, r0, 3;\n@p0 shfl.sync.bfly.b32 r1, r0, 5, 31, -1;\nbar.warp.sync -1;", "does not meet");
  failing("shfl.sync.bfly.b32 r1, r0, 5, 31, -1;", "not whole", 16);
}

TEST_CASE("mma multiplies fragments") {
  std::mt19937 random(1);
  for (const Product& product : {Product{"k16", "f16", "f16", DType::F16, DType::F16, 16},
                                 {"k16", "bf16", "bf16", DType::BF16, DType::BF16, 16},
                                 {"k8", "tf32", "tf32", DType::F32, DType::F32, 8},
                                 {"k32", "s8", "s8", DType::I8, DType::I8, 32},
                                 {"k32", "u8", "s8", DType::U8, DType::I8, 32},
                                 {"k32", "s8", "u8", DType::I8, DType::U8, 32},
                                 {"k32", "e4m3", "e5m2", DType::F8E4M3, DType::F8E5M2, 32}}) {
    CAPTURE(product.a_name);
    CAPTURE(product.b_name);
    const bool is_float = ir::is_float(product.a);
    const DType sums = is_float ? DType::F32 : DType::I32;
    const int64_t k = product.k, in_a = k / 2, in_b = k / 4;  // elements of a lane
    // Small integers, all of whose sums are exact.
    const auto draw = [&](DType type) { return static_cast<int64_t>(random() % 8) - (type == DType::U8 ? 0 : 4); };
    const auto put = [&](DType type, void* to, int64_t at, int64_t value) {
      const ir::Scalar integer{DType::I32, value, 0}, number{DType::F32, 0, static_cast<double>(value)};
      ir::store_element(type, to, at, ir::is_float(type) ? number : integer);
    };
    std::vector<int64_t> a(static_cast<size_t>(16 * k)), b(static_cast<size_t>(8 * k)), c(16 * 8);
    for (int64_t& value : a) value = draw(product.a);
    for (int64_t& value : b) value = draw(product.b);
    for (int64_t& value : c) value = draw(DType::I32);
    Words memory;
    for (int64_t lane = 0; lane < static_cast<int64_t>(kWarp); ++lane) {
      uint32_t* words = memory.words.data() + 16 * lane;
      for (int64_t i = 0; i < in_a; ++i) {
        const auto [row, column] = place_in_a(k, lane, i);
        put(product.a, words, i, a[static_cast<size_t>(row * k + column)]);
      }
      for (int64_t i = 0; i < in_b; ++i)
        put(product.b, words + 4, i, b[static_cast<size_t>(row_in_b(k, lane, i) * 8 + lane / 4)]);
      for (int64_t i = 0; i < 4; ++i)
        put(sums, words + 6, i, c[static_cast<size_t>((lane / 4 + (i >= 2 ? 8 : 0)) * 8 + lane % 4 * 2 + (i & 1))]);
    }
    const char* result = is_float ? "f32" : "s32";
    const Status status =
        memory.run(kLoadFragments +
                   fmt::format("mma.sync.aligned.m16n8{0}.row.col.{1}.{2}.{3}.{1} {{r7, r8, r9, r10}}, "
                               "{{r1, r2, r3, r4}}, {{r5, r6}}, {{r7, r8, r9, r10}};\n",
                               product.name, result, product.a_name, product.b_name) +
                   "st.global.v2.b32 [d2+24], {r7, r8};\nst.global.v2.b32 [d2+32], {r9, r10};\n");
    CHECK_MESSAGE(status.ok(), status.message());
    for (int64_t lane = 0; lane < static_cast<int64_t>(kWarp); ++lane)
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t row = lane / 4 + (i >= 2 ? 8 : 0), column = lane % 4 * 2 + (i & 1);
        int64_t sum = c[static_cast<size_t>(row * 8 + column)];
        for (int64_t j = 0; j < k; ++j)
          sum += a[static_cast<size_t>(row * k + j)] * b[static_cast<size_t>(j * 8 + column)];
        const ir::Scalar found = ir::load_element(sums, memory.words.data() + 16 * lane + 6, i);
        CHECK((is_float ? static_cast<int64_t>(found.f) : found.i) == sum);
      }
  }
}

// Element (row, column) of matrix m in shared memory is 64 m + 8 row + column, a row after the other.
constexpr const char* kFill = R"(
mov.b32 r1, 0;
L0:
mad.lo.s32 r2, r1, 32, r0;
cvt.u16.u32 h0, r2;
mad.lo.s32 r3, r2, 2, shared;
st.shared.b16 [r3+0], h0;
add.s32 r1, r1, 1;
setp.lt.s32 p0, r1, 8;
@p0 bra L0;
bar.warp.sync -1;
mad.lo.s32 r4, r0, 16, shared;
)";

TEST_CASE("matrices are loaded by rows and by columns") {
  for (const bool transposed : {false, true}) {
    Words memory;
    const Status status = memory.run(kFill +
                                     fmt::format("ldmatrix.sync.aligned.m8n8.x4{}.shared.b16 {{r5, r6, r7, r8}}, "
                                                 "[r4+0];\n",
                                                 transposed ? ".trans" : "") +
                                     "mad.wide.s32 d2, r0, 16, d0;\nst.global.v4.b32 [d2+0], {r5, r6, r7, r8};\n");
    CHECK_MESSAGE(status.ok(), status.message());
    for (uint32_t lane = 0; lane < kWarp; ++lane)
      for (uint32_t m = 0; m < 4; ++m)
        for (uint32_t i = 0; i < 2; ++i) {
          const uint32_t row = lane / 4, column = lane % 4 * 2 + i;
          CHECK((memory.words[4 * lane + m] >> 16 * i & 0xffff) ==
                64 * m + (transposed ? 8 * column + row : 8 * row + column));
        }
  }
}

TEST_CASE("matrices are stored by rows") {
  Words memory;
  const Status status = memory.run(std::string(kFill) + R"(
ldmatrix.sync.aligned.m8n8.x2.shared.b16 {r5, r6}, [r4+0];
add.s32 r5, r5, 0x10001;
bar.warp.sync -1;
stmatrix.sync.aligned.m8n8.x2.shared.b16 [r4+512], {r6, r5};
bar.warp.sync -1;
mad.lo.s32 r7, r0, 8, shared;
ld.shared.v2.b32 {r8, r9}, [r7+512];
mad.wide.s32 d2, r0, 8, d0;
st.global.v2.b32 [d2+0], {r8, r9};
)");
  CHECK_MESSAGE(status.ok(), status.message());
  for (uint32_t i = 0; i < 128; ++i)
    CHECK((memory.words[i / 2] >> 16 * (i % 2) & 0xffff) == (i < 64 ? 64 + i : i - 64 + 1));
  const Status crooked = Words{}.run(std::string(kFill) + "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r5}, [r4+8];\n");
  CHECK(crooked.code() == Code::kInternal);
}

}  // namespace kachel::lowering
