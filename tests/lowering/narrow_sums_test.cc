// Sums without tensor cores of what words of few bits hold, and of what conditions let through; as printed.
#include <fmt/format.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// Sums of products of a row and of weights, `q[i, j]` of `tiles`, that `loop` begins the loop over.
std::string sums(const std::string& weights, const std::string& tiles, const std::string& loop, const std::string& copy,
                 const std::string& term) {
  return fmt::format(R"(tile 1
kernel k(X: f32[K], {}, S: f32[N, KG], Y: out f32[N])
where K == 128 * KG
tune threads = 128
grid n < ceildiv(N, 4)
{{
  {}
  fragment acc: f32[4] = 0
  {} {{
    {}
    parallel i < 4 {{ acc[i] += sum[j < 1024]({}) }}
  }}
  Y[n*4 +: 4] = acc
}}
)",
                     weights, tiles, loop, copy, term);
}

constexpr const char* kLoop = "for k < ceildiv(K, 1024)";

}  // namespace

TEST_CASE("a fragment of four bits is bytes, loaded together, and its scales are loaded once a group") {
  const std::string text = lowered({sums("W: u4[N, K]", "fragment q: u4[4, 1024], x: f32[1024]", kLoop,
                                         "q = W[n*4 +: 4, k*1024 +: 1024]  x = X[k*1024 +: 1024]",
                                         "(f32(q[i, j]) - 8) * S[n*4 + i, (k*1024 + j) / 128] * x[j]")})
                               .loop_ir;
  CAPTURE(text);
  CHECK(has(text, "registers q: u8[16]"));
  CHECK(has(text, "+: 16], W_bytes["));
  CHECK(has(text, "S_part[0] = "));
  CHECK(!has(text, "shared q"));
}

TEST_CASE(
    "words in registers lay out the sums that take their bits, and scales of places that rise by two are shared") {
  const std::string words =
      lowered({sums("W: u32[N, K8]", "fragment q: u32[4, 128], x: f32[1024]", kLoop,
                    "q = W[n*4 +: 4, k*128 +: 128]  x = X[k*1024 +: 1024]",
                    "f32(q[i, j / 8] >> j % 8 * 4 & 15) * S[n*4 + i, (k*1024 + j) / 128] * x[j]")})
          .loop_ir;
  CAPTURE(words);
  CHECK(has(words, "registers q: u32[4]"));
  const std::string pairs = lowered({R"(tile 1
kernel k(X: f32[K], W: u8[N, K2], S: f32[N, KG], Y: out f32[N])
where K == 128 * KG, K == 2 * K2
tune threads = 128
grid n < ceildiv(N, 4)
{
  fragment q: u8[4, 512], x: f32[1024], acc: f32[4] = 0
  for k < ceildiv(K, 1024) {
    q = W[n*4 +: 4, k*512 +: 512]
    x = X[k*1024 +: 1024]
    parallel i < 4 {
      acc[i] += sum[j < 512](f32(q[i, j] & 15) * x[2*j] * S[n*4 + i, (k*1024 + 2*j) / 128] +
                             f32(q[i, j] >> 4) * x[2*j + 1] * S[n*4 + i, (k*1024 + 2*j) / 128])
    }
  }
  Y[n*4 +: 4] = acc
}
)"})
                                .loop_ir;
  CAPTURE(pairs);
  CHECK(has(pairs, "* S_part[0]"));
}

TEST_CASE("words of a shared tile are read by vectors for all iterations that take their bits") {
  const std::string text =
      lowered({sums("W: u4[N, K]", "shared q: u4[4, 1024], x: f32[1024]", "pipelined k < ceildiv(K, 1024), 2",
                    "q = W[n*4 +: 4, k*1024 +: 1024]  x = X[k*1024 +: 1024]", "f32(q[i, j]) * x[j]")})
          .loop_ir;
  CAPTURE(text);
  CHECK(has(text, "wide[j_r / 2]"));
}

TEST_CASE("a condition about the ends of rows is one for the neighbours that are loaded together") {
  const std::string term = "n*4 + i < N && k*1024 + j < K ? W[n*4 + i, k*1024 + j] * X[k*1024 + j] : 0";
  const std::string whole = lowered({sums("W: f32[N, K]", "", kLoop, "", term)}).loop_ir;
  CAPTURE(whole);
  CHECK(has(whole, "+: 4], W["));
  CHECK(has(whole, "+: 4], X["));
  // Where the facts say nothing of them, or the condition parts them, each is loaded by itself.
  Request no_facts{sums("W: f32[N, K]", "", kLoop, "", term)};
  no_facts.facts = 0;
  CHECK(!has(lowered(no_facts).loop_ir, "+: 4], W["));
  const std::string parted = "k*1024 + j <= n + i ? W[n*4 + i, k*1024 + j] * X[k*1024 + j] : 0";
  CHECK(!has(lowered({sums("W: f32[N, K]", "", kLoop, "", parted)}).loop_ir, "+: 4], W["));
}

TEST_CASE("nothing is kept apart by a barrier of the warp where some of its lanes are outside of a row") {
  std::stringstream file;
  file << std::ifstream(std::string(KACHEL_PROGRAMS) + "/scans.tile").rdbuf();
  const std::string all = file.str(), name = "kernel scan_middle<T: i32 | u32 | i64 | u64>";
  const size_t first = all.find(name), last = all.find("\n}\n", first);
  REQUIRE(last != all.npos);
  const std::string text = "tile 1\n" + all.substr(first, last + 3 - first);
  const auto of_columns = [&](const char* columns) {
    const std::string typed = std::regex_replace(
        text.substr(0, 7) + "kernel scan_middle" + text.substr(7 + name.size()), std::regex("\\bT\\b"), "u64");
    Request request{std::regex_replace(typed, std::regex("\\bD\\b"), columns), {{"BN", 32}}};
    request.target.threads = 128;
    return lowered(request).loop_ir;
  };
  CHECK(has(of_columns("64"), "apart by"));
  const std::string ragged = of_columns("56");
  CHECK(has(ragged, "if d < 56 {"));
  CHECK(!std::regex_search(ragged, std::regex("if d < 56 \\{[^}]*apart by")));
}

}  // namespace kachel::lowering
