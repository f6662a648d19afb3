#include "lowering/machine/work.h"

#include <fmt/format.h>

#include "lowered_text.h"
#include "lowering/machine/rates.h"
#include "lowering/tile_ir/live_ranges.h"

namespace kachel::lowering {
namespace {

const char* const kMatmul = R"(tile 1
kernel matmul(A: f16[M, K], B: f16[N, K], C: out f16[M, N])
tune BM = 64 | 128 | 256, BN = 64 | 256, BK = 64 | 32, stages = 3 | 2 | 4
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   As: f16[BM, BK], Bs: f16[BN, BK]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, BK), stages {
    As = A[by*BM +: BM, k*BK +: BK]
    Bs = B[bx*BN +: BN, k*BK +: BK]
    acc += As @ Bs^T
  }
  C[by*BM +: BM, bx*BN +: BN] = acc
}
)";

const char* const kRows = R"(tile 1
kernel rows(X: f32[N, D], Y: out f32[N])
tune R = 4 | 8
grid s < ceildiv(N, R)
{
  fragment total: f32[R] = 0
  for d < ceildiv(D, 256) {
    parallel i < R { total[i] += sum[j < 256](X[s*R + i, d*256 + j]) }
  }
  parallel i < R { Y[s*R + i] = total[i] }
}
)";

const char* const kAttention = R"(tile 1
kernel attention(Q: f16[S, D], K: f16[S, D], V: f16[S, D], O: out f16[S, D])
tune BM = 64, D_ = 64
grid s < ceildiv(S, BM)
{
  shared   q: f16[BM, D_], k: f16[64, D_], v: f16[64, D_]
  fragment S_: f32[BM, 64], P: f16[BM, 64], acc: f32[BM, D_] = 0
  q = Q[s*BM +: BM, 0 +: D_]
  pipelined n < s + 1, 2 {
    k = K[n*64 +: 64, 0 +: D_]
    v = V[n*64 +: 64, 0 +: D_]
    S_ = q @ k^T
    parallel i < BM, j < 64 { S_[i, j] = exp2(S_[i, j]) }
    P = S_
    acc += P @ v
  }
  O[s*BM +: BM, 0 +: D_] = acc
}
)";

Target hopper() {
  return {.kind = Target::Kind::kCuda, .architecture = 90, .shared_limit = 227 * 1024};
}

struct Sums {
  Work all;
  Work loops, rest;
};

Sums work_at(const Lowered& lowered, const std::vector<int64_t>& dims, const std::vector<int64_t>& grid, int64_t tile) {
  int64_t tiles = 1;
  for (int64_t extent : grid) tiles *= extent;
  REQUIRE(lowered.work);
  const auto work = work_of(*lowered.work, {dims, {}, grid, tiles}, tile);
  REQUIRE(work);
  Sums sums{work->loops, work->loops, work->rest};
  sums.all.add(work->rest);
  return sums;
}

double products_of(const Work& work, ProductKind kind) {
  return work.multiply_adds[static_cast<size_t>(kind)];
}
double sum(const std::vector<double>& values) {
  double total = 0;
  for (double value : values) total += value;
  return total;
}

TEST_CASE("a matmul: multiply-adds, bytes and stages of a tile, whatever the instruction") {
  for (int architecture : {80, 89, 90}) {
    CAPTURE(architecture);
    Request request{kMatmul};
    request.target = hopper();
    request.target.architecture = architecture;
    const Lowered lowered = lowering::lowered(request);
    // M, K, N in the order in which shapes name them.
    const Sums at = work_at(lowered, {128, 512, 192}, {2, 3}, 4);
    const ProductKind kind = architecture == 90 ? ProductKind::kGroup16 : ProductKind::kWarp16;
    CHECK(products_of(at.all, kind) == 64 * 64 * 512);
    CHECK(products_of(at.loops, kind) == 64 * 64 * 512);
    double others = 0;
    for (double count : at.all.multiply_adds) others += count;
    CHECK(others == 64 * 64 * 512);
    CHECK(at.all.read_bytes == std::vector<double>{64 * 512 * 2, 64 * 512 * 2, 0});
    CHECK(at.all.written_bytes == std::vector<double>{0, 0, 64 * 64 * 2});
    CHECK(sum(at.loops.written_bytes) == 0);
    CHECK(at.all.filled_bytes == 2 * 64 * 512 * 2);
    CHECK(at.loops.fills == 8);
    CHECK(at.loops.rounds == 4);  // two stages are under way while the third is in use
    CHECK(at.all.special_operations == 0);
    // Twice as deep, twice as much; nothing else grows.
    const Sums deeper = work_at(lowered, {128, 1024, 192}, {2, 3}, 4);
    CHECK(products_of(deeper.all, kind) == 2 * products_of(at.all, kind));
    CHECK(deeper.loops.rounds == 2 * at.loops.rounds);
    CHECK(deeper.rest.scalar_operations == at.rest.scalar_operations);
    CHECK(tensor_bytes(*lowered.work, 2, {std::vector<int64_t>{128, 512, 192}, {}, {}, 6}) == 128 * 192 * 2);
  }
}

TEST_CASE("what products read of shared memory") {
  Request request{kMatmul};
  request.target = hopper();
  const Sums wgmma = work_at(lowering::lowered(request), {64, 64, 64}, {1, 1}, 0);
  CHECK(wgmma.all.operand_bytes == 4 * (64 + 64) * 32);  // of both operands, each step of k once
  CHECK(wgmma.all.shared_bytes == 0);
  request.target.group_products = false;
  request.target.bulk_copies = false;
  const Sums mma = work_at(lowering::lowered(request), {64, 64, 64}, {1, 1}, 0);
  CHECK(mma.all.operand_bytes == 0);
  // Four warps in two rows: each reads 32 rows of A and 32 of B.
  CHECK(mma.loops.shared_bytes == 4 * (32 + 32) * 64 * 2);
}

TEST_CASE("rows of a box shorter than a line take the port as long as a line") {
  for (int64_t width : {64, 32}) {
    Request request{kMatmul, {{"BK", width}}};
    request.target = hopper();
    const Sums at = work_at(lowering::lowered(request), {64, 256, 64}, {1, 1}, 0);
    const double filled = 2 * 64 * 256 * 2, stored = 64 * 64 * 2, share = 64.0 / static_cast<double>(width);
    CHECK(at.all.filled_bytes == filled);
    CHECK(at.all.filled_port_bytes == filled * share);
    CHECK(at.all.port_bytes == filled * share + stored);
    CHECK(at.loops.fills == 256 / width);
  }
}

TEST_CASE("rows of boxes that begin between lines touch more of them") {
  for (int64_t width : {64, 32}) {
    CAPTURE(width);
    Request request{kMatmul, {{"BK", width}}};
    request.target = hopper();
    const Lowered lowered = lowering::lowered(request);
    const Sums at = work_at(lowered, {64, 256, 64}, {1, 1}, 0);
    // Of rows of r bytes at any multiple of 16, r / 16 - 1 of 8 reach into a second line.
    const double rows = 64 * 256 / static_cast<double>(width), row = 2.0 * static_cast<double>(width);
    CHECK(at.all.straddle_bytes == std::vector<double>{rows * (row - 16), rows * (row - 16), 0});
    for (int64_t k : {256, 64, 192, 248, 8, 1000}) {
      CAPTURE(k);
      const std::vector<int64_t> dims{64, k, 64};
      for (size_t operand : {0, 1}) CHECK(rows_straddle(*lowered.work, operand, {dims, {}, {}, 1}) == (k % 64 != 0));
    }
  }
}

TEST_CASE("a reduction of rows: every element once, one store a row, functions counted where they are") {
  for (int64_t rows : {4, 8}) {
    Request request{kRows, {{"R", rows}}};
    request.target = hopper();
    const Lowered lowered = lowering::lowered(request);
    const Sums at = work_at(lowered, {64, 1024}, {64 / rows}, 1);
    const double elements = static_cast<double>(rows) * 1024;
    CHECK(at.all.read_bytes == std::vector<double>{elements * 4, 0});
    CHECK(at.all.written_bytes == std::vector<double>{0, static_cast<double>(rows) * 4});
    CHECK(at.all.fills == 0);
    CHECK(at.all.rounds >= 1);
    CHECK(at.all.scalar_operations >= 1.25 * elements / 32);  // an addition each, a load for four
    const double longer = work_at(lowered, {64, 2048}, {64 / rows}, 1).all.scalar_operations;
    const double longest = work_at(lowered, {64, 3072}, {64 / rows}, 1).all.scalar_operations;
    CHECK(longest - longer == longer - at.all.scalar_operations);
    CHECK(at.all.special_operations == 0);
  }
}

TEST_CASE("an attention: trips that depend on the tile") {
  Request request{kAttention};
  request.target = hopper();
  const Lowered lowered = lowering::lowered(request);
  for (int64_t tile : {0, 1, 5, 15}) {
    const Sums at = work_at(lowered, {1024, 64}, {16}, tile);
    // Where loops are longer, tiles are walked from the end.
    const double trips = static_cast<double>(16 - tile);
    CHECK(products_of(at.all, ProductKind::kGroup16) == 2 * 64 * 64 * 64 * trips);
    CHECK(at.all.read_bytes == std::vector<double>{64 * 64 * 2, 64 * 64 * 2 * trips, 64 * 64 * 2 * trips, 0});
    CHECK(at.all.written_bytes[3] == 64 * 64 * 2);
    CHECK(at.all.special_operations == 64 * 64 * trips / 32);
    CHECK(at.loops.fills == trips);
  }
}

TEST_CASE("lengths that memory holds are taken for 4096, and for less where the launch or its tensors bound them") {
  auto gathered = [](const std::string& length) {
    return lowering::lowered({fmt::format(R"(tile 1
kernel gathered(X: f32[N], first: i32[G], scale: f32[G], Y: out f32[G])
grid g < G
{{
  fragment total: f32[1] = 0
  let length = {}
  for n < ceildiv(length, 8) {{ parallel i < 1 {{ total[i] += X[n] }} }}
  parallel i < 1 {{ Y[g] = total[i] }}
}}
)",
                                          length)});
  };
  auto at = [](const Lowered& lowered, int64_t n) {
    return work_of(*lowered.work, {std::vector<int64_t>{n, 8}, {}, std::vector<int64_t>{8}, 8}, 0);
  };
  auto reads = [&](const Lowered& lowered, int64_t n) {
    Work all = at(lowered, n)->loops;
    all.add(at(lowered, n)->rest);
    return all.read_bytes[0];
  };
  const Lowered free = gathered("first[g]"), bounded = gathered("min(first[g], i32(N))"), known = gathered("i32(N)");
  CHECK(reads(free, 10'000) == reads(known, 4096));
  CHECK(reads(free, 640) == reads(known, 640));  // no sequence is longer than the tensors
  CHECK(reads(bounded, 64) == reads(known, 64));
  CHECK(reads(bounded, 100'000) == reads(known, 4096));
  // As of a list of places: where the next one begins, less where this one does.
  const Lowered apart = gathered("first[g + 1] - first[g]"), behind = gathered("min(first[g] - 5, 64)");
  CHECK(reads(apart, 640) == reads(known, 640));
  CHECK(reads(behind, 64) == reads(known, 64));
  CHECK(at(free, 64)->assumed == 64);
  CHECK(at(free, 5000)->assumed == 4096);
  CHECK(at(known, 64)->assumed == 0);
  CHECK(!at(gathered("i32(scale[g])"), 64));  // no length
}

TEST_CASE("values that are missing, and the CPU: nothing is claimed") {
  Request matmul{kMatmul};
  const Lowered lowered = lowering::lowered(matmul);
  CHECK(!work_of(*lowered.work, {std::vector<int64_t>{64}, {}, std::vector<int64_t>{1, 1}, 1}, 0));
  matmul.target.kind = Target::Kind::kCpu;
  CHECK(!lowering::lowered(matmul).work);
}

TEST_CASE("residency: shared memory, registers, and arrays that do not fit") {
  auto product = [](int64_t rows, int64_t columns, int64_t stages, const Target& target = hopper()) {
    return lowering::lowered({kMatmul, {{"BM", rows}, {"BN", columns}, {"stages", stages}}, target});
  };
  auto residency = [&](int64_t rows, int64_t columns, int64_t stages) {
    return residency_of(*product(rows, columns, stages).work, 90);
  };
  CHECK(residency(64, 64, 4).blocks == 3);  // 64 KiB each
  CHECK(residency(64, 64, 2).blocks > residency(64, 64, 4).blocks);
  CHECK(residency(128, 256, 4).blocks == 1);
  CHECK(!residency(128, 256, 4).spills);
  CHECK(residency_of(*product(256, 256, 2, Request{}.target).work, 89).spills);
  CHECK(has(product(256, 256, 2).flaw, "without tensor cores"));  // wgmma has no registers left
  CHECK(residency(64, 64, 4).registers < residency(64, 256, 4).registers);
}

TEST_CASE("registers that an iteration makes anew live as long as it needs them") {
  const auto registers = [](const char* name, int64_t elements) {
    return LoopBuffer{std::make_shared<ir::Buffer>(ir::Buffer{
                          name, ir::Scope::kRegister, ir::Direction::kInOut, {ir::DType::F32, nullptr}, {}, {}}),
                      elements};
  };
  LoopKernel kernel;
  kernel.buffers = {registers("acc", 64), registers("s", 32), registers("p", 8), registers("run", 40),
                    registers("again", 4)};
  const auto set = [&](size_t to, std::vector<size_t> from) {
    const ir::ExprRef at = ir::make_int(0, ir::DType::I32);
    ir::ExprRef value = ir::make_float(1);
    for (size_t one : from)
      value = ir::make_typed(ir::Op::kAdd, {value, ir::make_load(kernel.buffers[one].buffer, {at})});
    return LoopStmt{LoopStore{kernel.buffers[to].buffer, at, value}};
  };
  const auto number = std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLoop, "n", {ir::DType::I64, nullptr, false}, {}});
  LoopFor loop{number, ir::make_int(0, ir::DType::I64), ir::make_int(9, ir::DType::I64)};
  // s is dead when run is made; what is read before it is made lives on from the iteration before.
  loop.body = {set(1, {4}), set(2, {1}), set(3, {2}), set(0, {0, 3}), set(4, {3})};
  kernel.body = {set(0, {}), {loop}, set(0, {0})};
  CHECK(live_registers(kernel) == 64 + 32 + 8 + 40 + 4);
  CHECK(most_live_registers(kernel) == 64 + 4 + 40 + 8);
}

}  // namespace
}  // namespace kachel::lowering
