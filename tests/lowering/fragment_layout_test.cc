// Fragment layouts against their definition, and shared layouts against the banks.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "lowering/plan/fragment_layout.h"
#include "lowering/plan/layout.h"

namespace kachel::lowering {
namespace {

using Element = std::vector<int64_t>;

// Which threads hold each element that lies within the shape, in which register.
std::map<Element, std::map<int64_t, int64_t>> holders(const FragmentLayout& layout) {
  std::map<Element, std::map<int64_t, int64_t>> found;
  for (int64_t thread = 0; thread < layout.threads(); ++thread)
    for (int64_t reg = 0; reg < layout.registers(); ++reg) {
      Element at = layout.coordinates(thread, reg);
      bool inside = true;
      for (size_t i = 0; i < at.size(); ++i) inside &= at[i] < layout.shape()[i];
      if (!inside) continue;
      CHECK_MESSAGE(found[at].count(thread) == 0, layout.print());
      found[at][thread] = reg;
    }
  return found;
}

// Every element is held, by as many threads as there are replicas.
void check_covers(const FragmentLayout& layout) {
  int64_t elements = 1, replicas = 1;
  for (int64_t extent : layout.shape()) elements *= extent;
  for (const FragmentLayout::Digit& digit : layout.replicas()) replicas *= digit.radix;
  const auto found = holders(layout);
  CHECK_MESSAGE(static_cast<int64_t>(found.size()) == elements, layout.print());
  for (const auto& [element, threads] : found)
    CHECK_MESSAGE(static_cast<int64_t>(threads.size()) == replicas, layout.print());
}

TEST_CASE("the accumulator of mma.m16n8 is where the PTX ISA says") {
  const FragmentLayout layout = FragmentLayout::accumulator(64, 48, 2, 2);
  check_covers(layout);
  CHECK(layout.threads() == 128);
  CHECK(layout.registers() == 64 * 48 / 128);
  for (int64_t thread = 0; thread < 128; ++thread) {
    const int64_t lane = thread % 32, warp = thread / 32;
    for (int64_t reg = 0; reg < layout.registers(); ++reg) {
      // c0, c1: row lane / 4, columns 2 * (lane % 4) and one more; c2, c3: eight rows below. Then tiles along n, then
      // m.
      const int64_t tile = reg / 4, n_tile = tile % 3, m_tile = tile / 3;
      const Element expected = {warp % 2 * 32 + m_tile * 16 + reg % 4 / 2 * 8 + lane / 4,
                                warp / 2 * 24 + n_tile * 8 + lane % 4 * 2 + reg % 2};
      CHECK(layout.coordinates(thread, reg) == expected);
    }
  }
  CHECK(layout.vector() == 2);
}

TEST_CASE("a turned accumulator is held by the same warps, as accumulators are") {
  for (const FragmentLayout& layout :
       {FragmentLayout::accumulator(64, 32, 2, 2), FragmentLayout::group_accumulator(64, 128, 1, 1),
        FragmentLayout::group_accumulator(128, 80, 2, 1), FragmentLayout::group_accumulator(256, 32, 2, 1)}) {
    const std::optional<FragmentLayout> turned = layout.turned();
    REQUIRE(turned);
    check_covers(*turned);
    CHECK(turned->matrix_rows());
    const auto before = holders(layout);
    for (const auto& [at, threads] : holders(*turned))
      for (const auto& [thread, reg] : threads) {
        CHECK(before.at({at[1], at[0]}).begin()->first / 32 == thread / 32);
        CHECK(thread % 32 == at[0] % 8 * 4 + at[1] % 8 / 2);
        CHECK(reg % 2 == at[1] % 2);
      }
  }
  CHECK(!FragmentLayout::accumulator(64, 48, 2, 2).turned());  // three tiles of eight columns a warp
  CHECK(!FragmentLayout::blocked({64, 64}, 4, 128).turned());
}

TEST_CASE("the right operand of mma.m16n8k16 is where the PTX ISA says") {
  const FragmentLayout layout = FragmentLayout::right_operand(96, 48, 4);
  check_covers(layout);
  CHECK(layout.threads() == 128);
  CHECK(layout.registers() == 96 * 48 / 128);
  for (int64_t thread = 0; thread < 128; ++thread) {
    const int64_t lane = thread % 32, warp = thread / 32;
    for (int64_t reg = 0; reg < layout.registers(); ++reg) {
      // b0, b1: column lane / 4, k of 2 * (lane % 4) and one more; b2, b3: eight further on. Then steps of k, then
      // columns.
      const int64_t step = reg / 4 % 3, tile = reg / 12;
      const Element expected = {warp * 24 + tile * 8 + lane / 4, step * 16 + reg % 4 / 2 * 8 + lane % 4 * 2 + reg % 2};
      CHECK(layout.coordinates(thread, reg) == expected);
    }
  }
}

TEST_CASE("along k an operand has pairs in quads, and words of eight that four lanes share") {
  const FragmentLayout layout = FragmentLayout::right_operand(32, 128, 4);
  CHECK(layout.pairs_in_quads());
  CHECK(FragmentLayout::accumulator(16, 64, 1, 4).pairs_in_quads());
  CHECK(!layout.keep({1, 0}).pairs_in_quads());
  CHECK(!FragmentLayout::blocked({64, 128}, 2, 128).pairs_in_quads());
  const FragmentLayout words = *layout.grouped(1, 8), merged = words.merged();
  CHECK(words.vector() == 2);
  CHECK(merged.vector() == 16);
  for (int64_t thread = 0; thread < 128; ++thread)
    for (int64_t reg = 0; reg < words.registers(); ++reg)
      CHECK(merged.coordinates(thread, reg) == words.coordinates(thread, reg));
}

TEST_CASE("a thread of an outer product has strips of rows and columns") {
  const FragmentLayout layout = FragmentLayout::outer_product(128, 128, 1, 4, 256);
  check_covers(layout);
  CHECK(layout.keep({0}).registers() == 8);
  CHECK(layout.keep({1}).registers() == 8);
  CHECK(layout.vector() == 4);
  for (int64_t lane = 0; lane < 32; ++lane) {
    // Bits 0, 2, 4 of the lane are columns, 1 and 3 rows.
    const Element expected = {(lane >> 1 & 1) + 2 * (lane >> 3 & 1),
                              4 * ((lane & 1) + 2 * (lane >> 2 & 1) + 4 * (lane >> 4 & 1))};
    CHECK(layout.coordinates(lane, 0) == expected);
    CHECK(layout.coordinates(lane, 8) == Element{expected[0] + 16, expected[1]});  // the next row
    CHECK(layout.coordinates(lane, 4) == Element{expected[0], expected[1] + 64});  // the next strip
  }
  for (const auto& [rows, columns] : {std::pair(128, 256), {16, 64}, {20, 64}, {37, 61}, {8, 8}, {1, 512}, {256, 4}})
    for (int64_t threads : {32, 96, 128, 256})
      for (int64_t vector : {1, 4}) {
        if (rows % vector || columns % vector) continue;
        check_covers(FragmentLayout::outer_product(rows, columns, vector, vector, threads));
        check_covers(FragmentLayout::outer_product(rows, columns, 1, vector, threads));
      }
}

TEST_CASE("layouts cover every element, powers of two or not") {
  check_covers(FragmentLayout::accumulator(16, 176, 1, 1));
  check_covers(FragmentLayout::accumulator(96, 8, 3, 1));
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{1}, {7}, {128}, {1000}, {3, 5}, {4, 8192}, {1, 4096}, {17, 3, 2}, {64, 64}})
    for (int64_t threads : {32, 96, 128, 256})
      for (int64_t vector : {1, 4, 8})
        if (shape.back() % vector == 0) check_covers(FragmentLayout::blocked(shape, vector, threads));
}

TEST_CASE("what is left of a layout when axes go") {
  const FragmentLayout layout = FragmentLayout::accumulator(128, 128, 4, 2);
  const FragmentLayout rows = layout.keep({0});
  check_covers(rows);
  CHECK(rows.shape() == std::vector<int64_t>{128});
  CHECK(rows.registers() == 4);
  // Threads that differ in their columns hold the same rows.
  int64_t replicas = 1;
  for (const FragmentLayout::Digit& digit : rows.replicas()) replicas *= digit.radix;
  CHECK(replicas == 8);
  for (int64_t thread = 0; thread < 256; ++thread)
    for (int64_t reg = 0; reg < layout.registers(); ++reg) {
      // The same row is in the register that is left of this one.
      const int64_t row = layout.coordinates(thread, reg)[0];
      std::set<int64_t> held;
      for (int64_t r = 0; r < rows.registers(); ++r) held.insert(rows.coordinates(thread, r)[0]);
      CHECK(held.count(row) == 1);
    }
  CHECK(layout.keep({0, 1}) == layout);
  CHECK(layout.keep({1, 0}).keep({1, 0}) == layout);
}

// Conflicts of the eight lanes that one phase of a 16-byte access serves: how many more turns than one it takes.
int conflicts(const Layout& layout, int64_t element_bytes, const std::vector<Element>& lanes) {
  std::map<int64_t, std::set<int64_t>> words;  // by bank
  for (const Element& at : lanes) {
    const int64_t first = layout.place(at[0] * layout.shape()[1] + at[1]).offset * element_bytes / 4;
    for (int64_t word = first; word < first + 4; ++word) words[word % 32].insert(word);
  }
  size_t most = 1;
  for (const auto& [bank, set] : words) most = std::max(most, set.size());
  return static_cast<int>(most) - 1;
}

TEST_CASE("groups of neighbours become one element") {
  for (const FragmentLayout& layout :
       {FragmentLayout::right_operand(32, 128, 4), FragmentLayout::blocked({64, 128}, 8, 256)})
    for (const int64_t group : {2, 4, 8, 16, 32, 64, 128}) {
      const auto grouped = layout.grouped(1, group);
      REQUIRE(grouped);
      CHECK(grouped->shape() == std::vector<int64_t>{layout.shape()[0], 128 / group});
      // A thread holds the groups of its elements and no others.
      for (int64_t thread = 0; thread < layout.threads(); ++thread) {
        std::set<std::vector<int64_t>> expected, held;
        for (int64_t reg = 0; reg < layout.registers(); ++reg) {
          std::vector<int64_t> at = layout.coordinates(thread, reg);
          at[1] /= group;
          expected.insert(at);
        }
        for (int64_t reg = 0; reg < grouped->registers(); ++reg) held.insert(grouped->coordinates(thread, reg));
        CHECK(held == expected);
        CHECK(static_cast<size_t>(grouped->registers()) == expected.size());
      }
    }
  CHECK(!FragmentLayout::blocked({64, 96}, 8, 256).grouped(1, 36));
  CHECK(!FragmentLayout::blocked({64, 128}, 8, 256).grouped(1, 12));
}

TEST_CASE("pairs of neighbours in a thread become one element") {
  const FragmentLayout layouts[] = {
      FragmentLayout::accumulator(32, 64, 2, 2), FragmentLayout::group_accumulator(128, 80, 2, 1),
      FragmentLayout::blocked({4, 6, 80}, 8, 128), FragmentLayout::blocked({5, 48}, 2, 64)};
  for (const FragmentLayout& layout : layouts) {
    CAPTURE(layout.print());
    const std::optional<FragmentLayout> pairs = layout.pairs();
    REQUIRE(pairs);
    CAPTURE(pairs->print());
    CHECK(pairs->of_pairs() == layout);
    CHECK(pairs->registers() * 2 == layout.registers());
    CHECK(pairs->shape().back() * 2 == layout.shape().back());
    for (int64_t thread = 0; thread < layout.threads(); ++thread)
      for (int64_t reg = 0; reg < layout.registers(); ++reg) {
        std::vector<int64_t> at = pairs->coordinates(thread, reg / 2);
        at.back() = 2 * at.back() + reg % 2;
        CHECK(layout.coordinates(thread, reg) == at);
      }
  }
  CHECK_FALSE(FragmentLayout::blocked({4, 80}, 1, 64).pairs());  // neighbours in two threads
  CHECK_FALSE(FragmentLayout::blocked({4, 81}, 1, 64).pairs());
}

TEST_CASE("parts of an axis in the threads that hold all of it") {
  const FragmentLayout whole = FragmentLayout::group_accumulator(64, 128, 1, 1);
  for (const int64_t extent : {64, 32, 16, 8}) {
    CAPTURE(extent);
    const int64_t first = 128 - extent;
    const std::optional<FragmentLayout> part = whole.part(1, first, extent);
    REQUIRE(part);
    CHECK(part->registers() * 128 == whole.registers() * extent);
    const auto of_whole = holders(whole);
    for (const auto& [at, threads] : holders(*part)) {
      const auto& there = of_whole.at({at[0], at[1] + first});
      for (const auto& [thread, reg] : threads) CHECK(there.count(thread) == 1);
    }
  }
  CHECK_FALSE(whole.part(1, 0, 4));    // four threads share eight columns
  CHECK_FALSE(whole.part(1, 32, 64));  // no part of its size begins there
  CHECK_FALSE(whole.part(1, 0, 48));
  CHECK_FALSE(FragmentLayout::accumulator(64, 128, 2, 2).part(1, 0, 64));  // of another warp
  CHECK(FragmentLayout::accumulator(64, 128, 4, 1).part(1, 64, 64));
}

TEST_CASE("rows of a word or two that lie a power of two apart meet in a bank four times at most") {
  for (const auto& [bytes, columns] : {std::pair<int64_t, int64_t>{4, 2}, {2, 2}, {4, 1}, {1, 8}}) {
    constexpr int64_t kRows = 1024;
    const Layout layout = Layout::gapped({kRows, columns}, bytes);
    CAPTURE(layout.print());
    CHECK(layout.injective());
    const int64_t chunk = 16 / bytes, row = columns * bytes;
    for (int64_t i = 0; i < kRows * columns; ++i)  // chunks stay whole and aligned
      CHECK(layout.place(i).offset % chunk == i % chunk);
    CHECK(layout.place(kRows * columns - 1).offset < layout.offset_extent());
    // Of 8 bytes half a warp is served at once.
    const int64_t lanes = row == 8 ? 16 : 32;
    for (int64_t apart = 1; apart * lanes <= kRows; apart *= 2) {
      CAPTURE(apart);
      std::map<int64_t, int64_t> banks;
      for (int64_t lane = 0; lane < lanes; ++lane)
        ++banks[layout.place(lane * apart * columns).offset * bytes % 128 / row];
      for (const auto& [bank, met] : banks) CHECK(met <= 4);
    }
  }
}

TEST_CASE("shared tiles serve 16-byte accesses along rows and columns without bank conflicts") {
  for (int64_t bytes : {1, 2, 4})
    for (int64_t chunks : {1, 2, 4, 8, 11, 16, 22, 32}) {
      const int64_t chunk = 16 / bytes, columns = chunks * chunk;
      const Layout layout = Layout::conflict_free({32, columns}, bytes);
      CAPTURE(layout.print());
      std::set<int64_t> offsets;
      for (int64_t i = 0; i < 32 * columns; ++i) {
        CHECK(offsets.insert(layout.place(i).offset).second);
        CHECK(layout.place(i).offset < layout.offset_extent());
        // Chunks stay whole and aligned.
        if (i % chunk)
          CHECK(layout.place(i).offset == layout.place(i - 1).offset + 1);
        else
          CHECK(layout.place(i).offset % chunk == 0);
      }
      for (int64_t row = 0; row + 8 <= 32; row += 8)
        for (int64_t column = 0; column < columns; column += chunk) {
          std::vector<Element> lanes;
          for (int64_t lane = 0; lane < 8; ++lane) lanes.push_back({row + lane, column});
          CHECK(conflicts(layout, bytes, lanes) == 0);  // ldmatrix
        }
      for (int64_t first = 0; first + 8 <= 32 * chunks; first += 8) {
        std::vector<Element> lanes;
        for (int64_t lane = 0; lane < 8; ++lane)
          lanes.push_back({(first + lane) / chunks, (first + lane) % chunks * chunk});
        // Neighbouring chunks of a copy; where padding separates the rows two of them may share banks.
        CHECK(conflicts(layout, bytes, lanes) <= (layout.swizzle().mask || chunks == 1 ? 0 : 1));
      }
    }
}

}  // namespace
}  // namespace kachel::lowering
