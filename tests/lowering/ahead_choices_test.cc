// What pipelined loops copy ahead by numbers in tiles and with paddings (named_rows.h, padded_reads.h), and operands
// that are computed along a k that grows (padded_axes.h), and what products have in registers, as printed.
#include <fmt/format.h>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

constexpr Target kHopper{.kind = Target::Kind::kCuda, .architecture = 90, .shared_limit = 227 * 1024};

constexpr const char* kAhead = "asynchronous copies into {x, w}";

// Rows by the numbers in `row`, which `names` makes.
std::string rows_by(const std::string& names, const std::string& in_loop = "") {
  return lowered({"tile 1\nkernel k(X: f16[R, K], ids: i32[M], W: f16[64, K], C: out f32[M, 64], n: inout i32[M])\n"
                  "grid m < ceildiv(M, 64)\n{\n  shared x: f16[64, 64], w: f16[64, 64]\n"
                  "  fragment slot: i32[64], row: i32[64], c: f32[64, 64] = 0\n  " +
                  names + "\n  pipelined k < ceildiv(K, 64), 2 {\n    " + in_loop +
                  "\n    x = X[row, k*64 +: 64]\n    w = W[:, k*64 +: 64]\n    c += x @ w^T\n  }\n"
                  "  C[m*64 +: 64, :] = c\n}\n"})
      .notes;
}

TEST_CASE("rows whose numbers are made of a tensor's are copied ahead") {
  CHECK(has(rows_by("row = ids[m*64 +: 64]"), kAhead));
  const std::string slots = "slot = ids[m*64 +: 64] pad -1  ";
  CHECK(has(rows_by(slots + "parallel i < 64 { row[i] = slot[i] >= 0 ? slot[i] / 2 + i32(m) : -1 }"), kAhead));
  CHECK(has(rows_by(slots + "parallel i < 64 { let at = slot[i] * 3  row[i] = at % i32(R) }"), kAhead));
}

TEST_CASE("rows whose numbers somebody else decides, or another element, are not") {
  const std::string slots = "slot = ids[m*64 +: 64]  ", row = slots + "parallel i < 64 { row[i] = slot[i] / 2 }";
  CHECK(has(rows_by(row), kAhead));
  CHECK(!has(rows_by(row, "parallel i < 64 { row[i] += 1 }"), kAhead));
  CHECK(!has(rows_by(row + "  row[0 +: 32] = 5"), kAhead));
  CHECK(!has(rows_by(slots + "parallel i < 64 { row[i] = slot[63 - i] }"), kAhead));
  CHECK(!has(rows_by(slots + "parallel i < 64 { row[i] = slot[i] + i32(i) }"), kAhead));
  CHECK(!has(rows_by(slots + "parallel i < 64 { if slot[i] > 3 { row[i] = slot[i] } }"), kAhead));
  CHECK(!has(rows_by("slot = n[m*64 +: 64]  parallel i < 64 { row[i] = slot[i] }"), kAhead));
}

// A row in pieces that are padded with `pad`, and what is done with them.
std::string padded_by(const std::string& pad, const std::string& work, const std::string& at = "n*128") {
  return lowered({"tile 1\nkernel k(X: f32[M, N], Y: out f32[M, N])\ngrid m < M\n{\n  shared x: f32[128]\n"
                  "  fragment y: f32[128], s: f32[128] = 0\n  pipelined n < ceildiv(N, 128), 2 {\n"
                  "    x = X[m, " +
                  at + " +: 128] pad " + pad + "\n    " + work + "\n    Y[m, n*128 +: 128] = y\n  }\n}\n"})
      .notes;
}

TEST_CASE("tiles that regions read are copied ahead whatever they are padded with") {
  const std::string ahead = "asynchronous copies into {x}", in_order = "padded with another value than 0";
  const std::string exp = "parallel j < 128 { y[j] = exp(x[j]) }";
  CHECK(has(padded_by("-inf", exp), ahead));
  CHECK(has(padded_by("0", exp), ahead));
  CHECK(has(padded_by("-inf", "parallel j < 128 { y[j] = x[j] - max[i < 128](x[i]) }"), in_order));  // 128 times each
  CHECK(has(padded_by("-inf", "parallel j < 128 { y[j] = x[j + 1] }"), in_order));  // past the tile there is zero
  CHECK(has(padded_by("-inf", "y = x"), in_order));
  CHECK(has(padded_by("-inf", exp, "n*128 + i64(s[0])"), in_order));  // which may be another place by then
  CHECK(has(padded_by("-inf", exp + "  parallel j < 64 { x[j] = 2 }"), in_order));
  CHECK(has(padded_by("-inf", exp + "  parallel j < 128 { x[j] = 2 }"), "asynchronous copies into {x_copy}"));
}

TEST_CASE("k of computed operands grows to the instruction's") {
  auto notes = [](const std::string& first, const std::string& second) {
    return lowered({"tile 1\nkernel k(A: f16[M, 20], B: f16[64, 20], C: out f32[M, 64])\ngrid m < ceildiv(M, 64)\n{\n"
                    "  shared a: f16[64, 20], b: f16[64, 20], x: f16[64, 20], y: f16[64, 20]\n"
                    "  fragment c: f32[64, 64]\n  a = A[m*64 +: 64, :]\n  b = B\n  " +
                    first + "\n  " + second + "\n  c = x @ y^T\n  C[m*64 +: 64, :] = c\n}\n"})
        .notes;
  };
  const std::string x = "parallel i < 64, j < 20 { x[i, j] = exp(a[i, j]) }", y = "y = b";
  CHECK(has(notes(x, y), "gemm c: mma"));
  CHECK(has(notes(x, "parallel i < 64, j < 20 { y[i, j] = b[i, j] + 1 }"), "gemm c: mma"));
  CHECK(has(notes(x, y + "  parallel i < 64 { y[i, i % 20] = 1 }"), "gemm c: fma"));
  CHECK(has(notes(x, "y = 1.0"), "gemm c: fma"));
}

TEST_CASE("products that share their sums agree on a layout, one of whose operands could be in registers") {
  Request request{R"(tile 1
kernel k(Q: f16[M, 64], K: f16[M, 64], V: f16[M, 32], O: out f16[M, 32])
{
  shared   q: f16[64, 64], k: f16[64, 64], v: f16[64, 32], state: f16[64, 32]
  fragment s: f32[64, 64], a: f16[64, 64], o: f32[64, 32], S: f32[64, 32] = 0
  pipelined c < ceildiv(M, 64), 2 {
    q = Q[c*64 +: 64, :]
    k = K[c*64 +: 64, :]
    v = V[c*64 +: 64, :]
    state = S
    o = q @ state
    s = q @ k^T
    parallel i < 64, j < 64 { a[i, j] = i >= j ? s[i, j] : 0 }
    o += a @ v
    S += k^T @ v
    O[c*64 +: 64, :] = o
  }
}
)"};
  request.target.architecture = 90;
  const std::string notes = lowered(request).notes;
  CAPTURE(notes);
  CHECK(!has(notes, "gemm o: fma"));
  CHECK(has(notes, "gemm o: wgmma"));
}

TEST_CASE("products whose results are shared tiles take tensor cores, by way of fragments") {
  auto notes = [](const std::string& product, int rows) {
    return lowered({fmt::format("tile 1\nkernel k(X: f16[B, {0}, 64], Y: out f32[B, {0}, {0}])\ngrid b < B\n{{\n"
                                "  shared x: f16[{0}, 64], z: f32[{0}, {0}] = 0\n  x = X[b, :, :]\n  {1}\n"
                                "  parallel i < {0}, j < {0} {{ Y[b, i, j] = z[j, {0} - 1 - i] }}\n}}\n",
                                rows, product)})
        .notes;
  };
  CHECK(has(notes("z = x @ x^T", 32), "gemm z_sums: mma"));
  CHECK(has(notes("z += x @ x^T", 32), "gemm z_sums: mma"));
  const std::string grown = notes("z = x @ x^T", 27);
  CHECK(has(grown, "gemm z_sums: mma"));
  CHECK(has(grown, "tile z: f32 in memory of the block, layout [27, 27]"));
  CHECK(has(notes("z = x @ x^T", 2), "gemm z: fma"));
  CHECK(has(notes("parallel i < 27, j < 64 { x[26 - i, j] = 1 }  z = x @ x^T", 27), "gemm z: fma"));  // rows that stay
}

TEST_CASE("rows that lie where a region says are copied ahead") {
  const auto convolution = [](const std::string& value, const std::string& row = "m / (H*W)") {
    return lowered(
        {"tile 1\nkernel k(X: f16[N, H, W, C], F: f16[64, 3, C], Y: out f32[N*H*W, 64], s: i32[128])\n"
         "grid b < ceildiv(N*H*W, 128)\n{\n  shared a: f16[128, 64], f: f16[64, 64]\n"
         "  fragment acc: f32[128, 64] = 0\n  pipelined k < 3*ceildiv(C, 64), 3 {\n"
         "    let r = k % 3, c = k / 3 * 64\n    parallel i < 128, j < 64 {\n      let m = b*128 + i\n"
         "      a[i, j] = " +
             value + "X[" + row +
             ", m / W % H, m % W + r - 1, c + j]\n    }\n    f = F[:, r, c +: 64]\n    acc += a @ f^T\n  }\n"
             "  Y[b*128 +: 128, :] = acc\n}\n",
         {},
         kHopper});
  };
  CHECK(has(convolution("").notes, "the copy engine into {a, f} (in part by the producer's threads"));
  CHECK(!has(convolution("2 * ").notes, "into {a, f}"));
  CHECK(!has(convolution("", "m / (H*W) + j / 64").notes, "into {a, f}"));
  CHECK(has(convolution("", "s[i]").notes, "into {a, f}"));
  CHECK(!has(convolution("", "i64(acc[0, i % 64])").notes, "into {a, f}"));
  // Where rows lie is worked out in front of the loop, as far as it is the same in every iteration.
  const std::string text = convolution("").loop_ir;
  CAPTURE(text);
  CHECK(count(text, "registers held: u32[8]") == 3);
  CHECK(has(text, "held[row_r]) + r - 1"));
}

TEST_CASE("places that are held follow the elements of a thread, in whichever round it comes to them") {
  const auto held = [](const std::string& place, int threads) {
    Request request{
        "tile 1\nkernel k(X: f32[M, N], Y: out f32[128])\ngrid b < 1\n{\n  fragment s: f32[128] = 0\n"
        "  for t < M {\n    parallel i < 128 { s[i] += X[t, (" +
        place + ") / N] }\n    parallel i < 128 { s[i] += sum[j < 4](s[127 - i]) }\n  }\n  Y[:] = s\n}\n"};
    request.target.threads = threads;
    const std::string text = lowered(request).loop_ir;
    const size_t at = text.find("registers held: u32[");
    return at == text.npos ? -1 : std::stoi(text.substr(at + 20));
  };
  CHECK(held("i", 128) == 1);
  CHECK(held("i", 32) == 4);
  CHECK(held("b", 32) == 1);
}

}  // namespace
}  // namespace kachel::lowering
