// What the lanes of a warp do together, against plain references.
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "ir/numerics.h"
#include "tests/lowering/loop_bench.h"

namespace kachel::lowering::bench {
namespace {

constexpr int kWarp = 32;

struct Types {
  DType a, b, c;
  int64_t k;
};

// Where element i of a lane's fragment lies: the tables of the PTX ISA, "Matrix Fragments for mma.m16n8k8 / k16 / k32".
std::pair<int64_t, int64_t> place_in_a(const Types& types, int64_t lane, int64_t i) {
  const int64_t group = lane / 4, thread = lane % 4;
  if (types.k == 8) return {i == 0 || i == 2 ? group : group + 8, i < 2 ? thread : thread + 4};
  if (types.k == 16)
    return {i < 2 || (i >= 4 && i < 6) ? group : group + 8, i < 4 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8};
  return {i < 4 || (i >= 8 && i < 12) ? group : group + 8, i < 8 ? thread * 4 + (i & 3) : thread * 4 + (i & 3) + 16};
}
int64_t row_in_b(const Types& types, int64_t lane, int64_t i) {
  const int64_t thread = lane % 4;
  if (types.k == 8) return i == 0 ? thread : thread + 4;
  if (types.k == 16) return i < 2 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8;
  return i < 4 ? thread * 4 + (i & 3) : thread * 4 + (i & 3) + 16;
}

double tf32(double value) {  // nearest with 11 significant bits, ties away
  int exponent;
  const double part = std::frexp(value, &exponent);
  return std::ldexp(std::round(part * 2048), exponent - 11);
}

TEST_CASE("mma multiplies fragments") {
  std::mt19937 random(1);
  for (const Types& types :
       {Types{DType::F16, DType::F16, DType::F32, 16}, Types{DType::BF16, DType::BF16, DType::F32, 16},
        Types{DType::F32, DType::F32, DType::F32, 8}, Types{DType::I8, DType::I8, DType::I32, 32},
        Types{DType::U8, DType::U8, DType::I32, 32}, Types{DType::I8, DType::U8, DType::I32, 32},
        Types{DType::U8, DType::I8, DType::I32, 32}, Types{DType::F8E4M3, DType::F8E4M3, DType::F32, 32},
        Types{DType::F8E5M2, DType::F8E4M3, DType::F32, 32}}) {
    CAPTURE(ir::name(types.a));
    CAPTURE(ir::name(types.b));
    const bool is_float = ir::is_float(types.a);
    auto draw = [&](DType type) {
      if (is_float) return ir::round_float(type, std::normal_distribution<double>(0, 1)(random));
      return static_cast<double>(ir::wrap_integer(type, static_cast<int64_t>(random())));
    };
    auto put = [&](DType type, void* to, int64_t at, double value) {
      if (is_float) return ir::store_element(type, to, at, {DType::F32, 0, value});
      ir::store_element(type, to, at, {DType::I32, static_cast<int64_t>(value), 0});
    };
    const int64_t k = types.k, in_a = k / 2, in_b = k / 4;  // elements of a lane
    std::vector<double> a(static_cast<size_t>(16 * k)), b(static_cast<size_t>(8 * k)), c(16 * 8);
    for (double& value : a) value = draw(types.a);
    for (double& value : b) value = draw(types.b);
    for (double& value : c) value = is_float ? draw(DType::F32) : static_cast<double>(random() % 100);

    Bench bench(kWarp);
    const auto a_words = bench.tensor("a", DType::U32, kWarp * 4), b_words = bench.tensor("b", DType::U32, kWarp * 2),
               out = bench.tensor("c", types.c, kWarp * 4);
    for (int64_t lane = 0; lane < kWarp; ++lane) {
      for (int64_t i = 0; i < in_a; ++i) {
        const auto [row, column] = place_in_a(types, lane, i);
        put(types.a, bench.data<uint8_t>(0), lane * in_a + i, a[static_cast<size_t>(row * k + column)]);
      }
      for (int64_t i = 0; i < in_b; ++i)
        put(types.b, bench.data<uint8_t>(1), lane * in_b + i,
            b[static_cast<size_t>(row_in_b(types, lane, i) * 8 + lane / 4)]);
      for (int64_t i = 0; i < 4; ++i)
        put(types.c, bench.data<uint8_t>(2), lane * 4 + i,
            c[static_cast<size_t>((lane / 4 + (i >= 2 ? 8 : 0)) * 8 + lane % 4 * 2 + (i & 1))]);
    }
    const auto a_part = bench.registers("a_part", DType::U32, 4), b_part = bench.registers("b_part", DType::U32, 2),
               sum = bench.registers("sum", types.c, 4);
    std::vector<LoopStmt> fill;
    for (int64_t i = 0; i < 4; ++i) {
      fill.push_back(Bench::store(a_part, number(i), Bench::load(a_words, bench.thread() * 4 + i)));
      fill.push_back(Bench::store(sum, number(i), Bench::load(out, bench.thread() * 4 + i)));
      if (i < 2) fill.push_back(Bench::store(b_part, number(i), Bench::load(b_words, bench.thread() * 2 + i)));
    }
    bench.each(std::move(fill));
    bench.add(Bench::mma(sum, a_part, b_part, types.a, types.b));
    bench.save(out, sum, 4);
    const Simulation simulation = bench.run();
    REQUIRE_MESSAGE(simulation.status.ok(), simulation.status.message());
    CHECK(simulation.races == 0);
    for (int64_t lane = 0; lane < kWarp; ++lane)
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t m = lane / 4 + (i >= 2 ? 8 : 0), n = lane % 4 * 2 + (i & 1);
        double wanted = c[static_cast<size_t>(m * 8 + n)];
        for (int64_t step = 0; step < k; ++step) {
          const double x = a[static_cast<size_t>(m * k + step)], y = b[static_cast<size_t>(step * 8 + n)];
          wanted += types.a == DType::F32 ? tf32(x) * tf32(y) : x * y;
        }
        const ir::Scalar got = ir::load_element(types.c, bench.data<uint8_t>(2), lane * 4 + i);
        if (is_float)
          CHECK(std::abs(got.f - wanted) < (types.k == 32 ? 0.1 : 1e-4));  // 13 bits of 32 terms
        else
          CHECK(got.i == static_cast<int64_t>(wanted));
      }
  }
}

// Row r of the tile holds the elements 8 r .. 8 r + 7; lane l gives the row 5 l + 3 modulo 32.
TEST_CASE("matrices are loaded from the rows that the lanes give") {
  for (int64_t matrices : {2, 4})
    for (bool transpose : {false, true}) {
      Bench bench(kWarp);
      const auto out = bench.tensor("out", DType::U32, kWarp * matrices);
      const auto tile = bench.shared("tile", DType::F16, kWarp * 8);
      const auto part = bench.registers("part", DType::U32, matrices);
      std::vector<LoopStmt> fill;
      for (int64_t i = 0; i < 8; ++i)
        fill.push_back(
            Bench::store(tile, bench.thread() * 8 + i, ir::make_cast({DType::F32, nullptr}, bench.thread() * 8 + i)));
      bench.each(std::move(fill));
      bench.barrier();
      bench.add(
          Bench::load_matrix(part, tile, (bench.thread() * 5 + 3) % kWarp * 8, static_cast<int>(matrices), transpose));
      bench.save(out, part, matrices);
      const Simulation simulation = bench.run();
      REQUIRE_MESSAGE(simulation.status.ok(), simulation.status.message());
      CHECK(simulation.races == 0);
      CHECK(simulation.matrix_loads == 1);
      for (int64_t lane = 0; lane < kWarp; ++lane)
        for (int64_t matrix = 0; matrix < matrices; ++matrix)
          for (int64_t half = 0; half < 2; ++half) {
            const int64_t row = transpose ? lane % 4 * 2 + half : lane / 4;
            const int64_t column = transpose ? lane / 4 : lane % 4 * 2 + half;
            const int64_t wanted = (5 * (8 * matrix + row) + 3) % kWarp * 8 + column;
            const int64_t at = 2 * (lane * matrices + matrix) + half;
            CHECK(ir::load_element(DType::F16, bench.data<uint8_t>(0), at).f == static_cast<double>(wanted));
          }
    }
}

// A tile of f16[64, 64], whose first eight chunks of 16 bytes the lanes load down the rows.
Simulation load_column(bool swizzled, int64_t shift) {
  Bench bench(kWarp);
  const auto tile = bench.shared("tile", DType::F16, 64 * 64);
  const auto part = bench.registers("part", DType::U32, 4);
  const ExprRef row = bench.thread(), chunk = swizzled ? row % 8 : number(0);
  bench.add(Bench::load_matrix(part, tile, row * 64 + chunk * 8 + shift, 4, false));
  return bench.run();
}
TEST_CASE("bank conflicts of matrices") {
  CHECK(load_column(true, 0).matrix_conflicts == 0);
  CHECK(load_column(false, 0).matrix_conflicts == 4 * 7);
  CHECK(load_column(true, 4).status.message() == "an access of 16 bytes at element 4 of `tile` is not aligned");
}

TEST_CASE("lanes exchange values") {
  for (int mask : {1, 2, 4, 8, 16, 5}) {
    Bench bench(2 * kWarp);
    const auto out = bench.tensor("out", DType::I32, 2 * kWarp);
    const ir::VarRef other = variable("other", DType::I32);
    bench.add({LoopShuffle{other, bench.thread() * 3, mask}});
    bench.each({Bench::store(out, bench.thread(), ir::make_var(other))});
    CHECK(bench.run().status.ok());
    for (int i = 0; i < 2 * kWarp; ++i) CHECK(bench.data<int32_t>(0)[i] == 3 * (i ^ mask));
  }
}

TEST_CASE("lanes that part ways before an operation of their warp") {
  Bench bench(kWarp);
  LoopBlock body;
  body.push_back({LoopShuffle{variable("other", DType::I32), bench.thread(), 1}});
  bench.add({LoopIf{bench.thread() < 7, std::move(body), {}}});
  CHECK(bench.run(ThreadOrder::kForward).status.message() ==
        "threads 0 and 7 do not meet at an operation of their warp");
}

TEST_CASE("a matrix is not loaded before the barrier") {
  Bench bench(kWarp);
  const auto tile = bench.shared("tile", DType::F16, kWarp * 8);
  const auto part = bench.registers("part", DType::U32, 4);
  bench.each({Bench::store(tile, bench.thread() * 8, ir::make_float(1))});
  bench.add(Bench::load_matrix(part, tile, bench.thread() * 8, 4, false));
  CHECK(bench.run().first_race == "thread 0 reads element 0 of `tile` that thread 0 has written");
}

TEST_CASE("pairs are rounded to the nearest even") {
  std::mt19937 random(2);
  for (DType type : {DType::F16, DType::BF16}) {
    Bench bench(kWarp);
    const auto in = bench.tensor("in", DType::F32, 2 * kWarp), out = bench.tensor("out", type, 2 * kWarp);
    for (int i = 0; i < 2 * kWarp; ++i) {
      bench.data<float>(0)[i] = std::normal_distribution<float>(0, 100)(random);
      if (i % 8 == 0) bench.data<float>(0)[i] = static_cast<float>(2049 + i);  // a tie in f16
    }
    const auto from = bench.registers("from", DType::F32, 2), to = bench.registers("to", type, 2);
    LoopIntrinsic pair{Kind::kConvertPair, {}, nullptr};
    pair.type = type;
    pair.operands = {{to, number(0), 2, true}, {from, number(0), 2, false}};
    bench.each({Bench::copy(Kind::kCopyVector, from, number(0), in, bench.thread() * 2, 2),
                {std::move(pair)},
                Bench::copy(Kind::kCopyVector, out, bench.thread() * 2, to, number(0), 2)});
    const Simulation simulation = bench.run();
    REQUIRE_MESSAGE(simulation.status.ok(), simulation.status.message());
    for (int i = 0; i < 2 * kWarp; ++i)
      CHECK(bench.data<uint16_t>(1)[i] == ir::encode_float(type, static_cast<double>(bench.data<float>(0)[i])));
  }
}

TEST_CASE("4-bit integers are unpacked, and pairs computed with one rounding") {
  for (DType type : {DType::F16, DType::BF16})
    for (DType nibbles : {DType::U4, DType::I4}) {
      Bench bench(kWarp);
      const auto in = bench.tensor("in", DType::U8, kWarp), out = bench.tensor("out", type, 2 * kWarp);
      for (int i = 0; i < kWarp; ++i) bench.data<uint8_t>(0)[i] = static_cast<uint8_t>(37 * i + 11);
      const auto raw = bench.registers("raw", DType::U8, 1), pair = bench.registers("pair", type, 2),
                 one = bench.registers("one", DType::F32, 1);
      LoopIntrinsic numbers{Kind::kUnpack, {}, nullptr}, scaled{Kind::kPackedMath, {}, nullptr};
      numbers.type = scaled.type = type;
      numbers.type_b = nibbles;
      numbers.operands = {{pair, number(0), 2, true}, {raw, number(0), 1, false}, {one, number(0), 1, false}};
      scaled.operands = {{pair, number(0), 2, true}, {pair, number(0), 2, false}, {one, number(0), 1, false}};
      bench.each({Bench::copy(Kind::kCopyVector, raw, number(0), in, bench.thread(), 1),
                  {LoopStore{one, number(0), ir::make_float(1.625)}},
                  {std::move(numbers)},
                  {std::move(scaled)},
                  Bench::copy(Kind::kCopyVector, out, bench.thread() * 2, pair, number(0), 2)});
      const Simulation simulation = bench.run();
      REQUIRE_MESSAGE(simulation.status.ok(), simulation.status.message());
      for (int i = 0; i < 2 * kWarp; ++i) {
        const int nibble = bench.data<uint8_t>(0)[i / 2] >> (i % 2 * 4) & 15;
        const double value = (nibbles == DType::I4 ? (nibble ^ 8) - 8 : nibble) - 1.625;
        CHECK(bench.data<uint16_t>(1)[i] == ir::encode_float(type, value * 1.625));
      }
    }
}

TEST_CASE("of a word that four lanes hold each unpacks its own pair") {
  Bench bench(kWarp);
  const auto in = bench.tensor("in", DType::U8, kWarp), out = bench.tensor("out", DType::F16, 2 * kWarp);
  for (int i = 0; i < kWarp; ++i) bench.data<uint8_t>(0)[i] = static_cast<uint8_t>(37 * i + 11);
  const auto raw = bench.registers("raw", DType::U8, 4), pair = bench.registers("pair", DType::F16, 2);
  LoopIntrinsic numbers{Kind::kUnpack, {}, nullptr};
  numbers.type = DType::F16;
  numbers.type_b = DType::U4;
  numbers.immediate = 4;
  numbers.operands = {{pair, number(0), 2, true}, {raw, number(0), 4, false}};
  const ir::ExprRef word = ir::make_typed(ir::Op::kDiv, {bench.thread(), ir::make_int(4, bench.thread()->type)}) * 4;
  bench.each({Bench::copy(Kind::kCopyVector, raw, number(0), in, word, 4),
              {std::move(numbers)},
              Bench::copy(Kind::kCopyVector, out, bench.thread() * 2, pair, number(0), 2)});
  const Simulation simulation = bench.run();
  REQUIRE_MESSAGE(simulation.status.ok(), simulation.status.message());
  for (int i = 0; i < 2 * kWarp; ++i)
    CHECK(bench.data<uint16_t>(1)[i] ==
          ir::encode_float(DType::F16, bench.data<uint8_t>(0)[i / 2] >> (i % 2 * 4) & 15));
}

}  // namespace
}  // namespace kachel::lowering::bench
