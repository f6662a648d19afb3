// Whatever the verifier accepts as places that differ does differ: random indices, all iterations written out.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <functional>
#include <random>
#include <set>

#include "ir/parse.h"

namespace kachel::ir {
namespace {

// An index as text, and what it is.
struct Index {
  std::string text;
  std::function<int64_t(int64_t i, int64_t j)> at;
};

class Indices {
 public:
  explicit Indices(uint32_t seed) : random_(seed) {}

  int64_t number(int64_t least, int64_t most) { return least + static_cast<int64_t>(random_() % (most - least + 1)); }

  // i, j, or a sum of the two; what digits are of.
  Index place() {
    const int64_t factor = number(2, 9);
    switch (number(0, 3)) {
      case 0:
        return {"j", [](int64_t, int64_t j) { return j; }};
      case 1:
        return {fmt::format("(i * {} + j)", factor), [=](int64_t i, int64_t j) { return i * factor + j; }};
      default:
        return {"i", [](int64_t i, int64_t) { return i; }};
    }
  }
  Index digit(const Index& of) {
    static constexpr std::array kNumbers = {2, 3, 4, 6, 9};
    const int64_t a = kNumbers[random_() % kNumbers.size()], b = kNumbers[random_() % kNumbers.size()];
    const auto at = of.at;
    switch (number(0, 4)) {
      case 0:
        return {fmt::format("{} / {}", of.text, a), [=](int64_t i, int64_t j) { return at(i, j) / a; }};
      case 1:
        return {fmt::format("{} % {}", of.text, a), [=](int64_t i, int64_t j) { return at(i, j) % a; }};
      case 2:
        return {fmt::format("{} / {} % {}", of.text, a, b), [=](int64_t i, int64_t j) { return at(i, j) / a % b; }};
      case 3:
        return {fmt::format("{} % {} / {}", of.text, a, b), [=](int64_t i, int64_t j) { return at(i, j) % a / b; }};
      default:
        return of;
    }
  }
  // A digit, or digits of two places with factors and offsets.
  Index index(const Index& of, const Index& other) {
    const Index first = digit(of);
    if (number(0, 1)) return first;
    const Index second = digit(other);
    const int64_t factor = number(1, 4), offset = number(0, 2);
    const auto a = first.at, b = second.at;
    return {fmt::format("{} * ({}) + {} + {}", factor, first.text, second.text, offset),
            [=](int64_t i, int64_t j) { return factor * a(i, j) + b(i, j) + offset; }};
  }

 private:
  std::mt19937 random_;
};

TEST_CASE("places that are accepted differ") {
  Indices indices(5);
  int accepted = 0, with_digits = 0;
  for (int round = 0; round < 30000; ++round) {
    const int64_t rows = indices.number(1, 24), columns = indices.number(1, 12);
    const Index a = indices.place(), b = indices.place();
    std::vector<Index> axes;
    for (int axis = 0; axis < 3; ++axis) axes.push_back(axis == 1 ? indices.index(b, a) : indices.index(a, b));
    std::set<std::vector<int64_t>> places;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        std::vector<int64_t> place;
        for (const Index& axis : axes) place.push_back(axis.at(i, j));
        places.insert(place);
      }
    const bool differ = static_cast<int64_t>(places.size()) == rows * columns;
    const std::string text = fmt::format(
        "tile 1 kernel k(Y: out i32[P, Q, R]) grid b < 1 {{ parallel i < {}, j < {} {{ Y[{}, {}, {}] = 1 }} }}", rows,
        columns, axes[0].text, axes[1].text, axes[2].text);
    const bool is_accepted = load(text).ok();
    CAPTURE(text);
    REQUIRE((differ || !is_accepted));
    accepted += is_accepted;
    with_digits += is_accepted && (text.find('/') != text.npos && text.find('%') != text.npos);
  }
  CHECK(accepted > 500);
  CHECK(with_digits > 100);
}

TEST_CASE("names that each use the one before several times end") {
  for (const char* step : {"{0} + {0} + {0}", "{0} * 3 + {0} % 2", "({0} + {0}) % 7 + 7 * {0}"}) {
    std::string lets = "let a0 = i ";
    for (int at = 0; at < 40; ++at)
      lets += fmt::format("let a{} = {} ", at + 1, fmt::format(fmt::runtime(step), fmt::format("a{}", at)));
    for (const char* index : {"a40", "a40 % 3 + 3 * j", "a40 / 3, a40 % 3 + 3 * j"}) {
      const bool two = std::string(index).find(',') != std::string::npos;
      const std::string text =
          fmt::format("tile 1 kernel k(Y: out i32[{}P]) grid b < 1 {{ parallel i < 8, j < 4 {{ {} Y[{}] = 1 }} }}",
                      two ? "Q, " : "", lets, index);
      CHECK(!load(text).ok());
    }
  }
}

TEST_CASE("digits of a place say where it is however products are bracketed") {
  for (const auto& [places, ok] : {std::pair("p / (L*H*W), p / (H*W) % L, p / W % H, p % W", true),
                                   {"p / (W*(H*L)), p / (W*H) % L, p / W % H, p % W", true},
                                   {"p / (2*L*3*H*W), p / (H*W) % (L*6), p / W % H, p % W", true},
                                   {"p / (L*H*W), p % (L*H*W) / (H*W), p % (H*W) / W, p % W", true},
                                   {"p / (L*H*H), p / (H*W) % L, p / W % H, p % W", false},
                                   {"p / (L*H*W*2), p / (H*W) % L, p / W % H, p % W", false},
                                   {"p / (L*H*W), p % (L*H*L) / (H*W), p % (H*W) / W, p % W", false}}) {
    CAPTURE(places);
    CHECK(load(fmt::format("tile 1 kernel k(Y: out f32[B, L, H, W]) grid m < 8 {{ parallel i < 64 {{ let p = m*64 + i "
                           "Y[{}] = 1 }} }}",
                           places))
              .ok() == ok);
  }
}

TEST_CASE("blocks may write their parts in either order") {
  for (const auto& [place, ok] : {std::pair("(ceildiv(M, BM) - 1 - b)*BM", true),
                                  {"(-b + ceildiv(M, BM) - 1)*BM", true},
                                  {"ceildiv(M, BM)*BM - BM - b*BM", true},
                                  {"M - b*4 - 8", false},
                                  {"M - b*8", true},
                                  {"b*(BM - 8)", false},
                                  {"-b*(BM - 8)", false},
                                  {"-b*(2*BM - 8)", true},
                                  {"b*(BM / 2)", true}}) {  // which is not looked into
    CAPTURE(place);
    const std::string extent = std::string(place).find("BM") == std::string::npos ? "8" : "BM";
    CHECK(load(fmt::format("tile 1 kernel k(Y: out f32[M]) tune BM = 8 | 16 grid b < ceildiv(M, BM) {{ fragment x: "
                           "f32[{0}] = 0 Y[{1} +: {0}] = x }}",
                           extent, place))
              .ok() == ok);
  }
}

}  // namespace
}  // namespace kachel::ir
