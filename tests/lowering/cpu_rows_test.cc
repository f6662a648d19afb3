// Rows on the CPU: copies that are not made, quotients by what a loop does not change; that they are right, against the
// interpreter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/conformance/examples.h"
#include "tests/conformance/prepared.h"
#include "tests/lowering/cpu_device.h"
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

// Of a tile of one row; `slice` of the tensor, and what happens to the tile.
std::string rows(const std::string& slice, const std::string& body) {
  return fmt::format(R"(tile 1
kernel rows(X: f32[N, 96], Z: f32[N, 96], Y: out f32[N, 96])
grid r < N
{{
  fragment x: f32[1, 96], z: f32[1, 96]
  x = X[{}]
  {}
  Y[r +: 1, :] = x
}}
)",
                     slice, body);
}
const std::string kWhole = "r +: 1, :",
                  kScaled = "parallel i < 1, d < 96 { x[i, d] = x[i, d] / max[k < 96](abs(x[i, k])) }";

Request on_cpu(const std::string& text) {
  Request request{text};
  request.target = Target{.kind = Target::Kind::kCpu, .shared_limit = 1 << 20, .vector_bits = 256};
  return request;
}

TEST_CASE("what regions alone read before one of them writes it all is read from the tensor") {
  const std::string copied = "x[j] = X[";
  auto text = [&](const std::string& slice, const std::string& body) {
    return lowered(on_cpu(rows(slice, body))).loop_ir;
  };
  const std::string scaled = text(kWhole, kScaled);
  CAPTURE(scaled);
  CHECK(!has(scaled, copied));
  CHECK(has(scaled, "inverse"));
  CHECK(!has(text(kWhole, "parallel i < 1, d < 96 { z[i, d] = x[i, 95 - d] }\n" + kScaled), copied));
  // Rows that may not exist, a part that stays as it was, a copy of the tile: the copy is made.
  CHECK(has(text("r + 1 +: 1, :", kScaled), copied));
  CHECK(has(text(kWhole, "parallel i < 1, d < 95 { x[i, d] = 2 }"), copied));
  CHECK(has(text(kWhole, "parallel i < 1, d < 96 { if d > 3 { x[i, d] = 2 } }"), copied));
  CHECK(has(text(kWhole, "z = x\n" + kScaled), copied));
  CHECK(has(text(kWhole, "x = Z[r +: 1, :]\n" + kScaled), copied));
}

TEST_CASE("lines of results are asked for before they are written, or results go past the caches") {
  auto text = [](const std::string& body, bool streaming) {
    Request request = on_cpu(
        "tile 1\nkernel rows(X: f32[N, 2048], Y: out f32[N, 2048])\ngrid r < N\n{\n  fragment x: f32[1, 2048]\n" +
        body + "}\n");
    request.target.streaming_stores = streaming;
    return lowered(request).loop_ir;
  };
  const std::string row =
      "  x = X[r +: 1, :]\n  parallel i < 1, d < 2048 { x[i, d] = x[i, d] / sum[k < 2048](x[i, k]) }\n";
  const std::string written = text(row + "  Y[r +: 1, :] = x\n", false);
  CAPTURE(written);
  CHECK(has(written, "prefetch for writing Y[r * Y_stride0"));
  CHECK(has(written, "prefetch X[next * X_stride0"));
  CHECK(!has(written, "stream Y"));
  const std::string streamed = text(row + "  Y[r +: 1, :] = x\n", true);
  CHECK(!has(streamed, "for writing"));
  CHECK(has(streamed, "stream Y"));
  // Where it goes is named behind the first statement.
  CHECK(!has(text(row + "  let at = r + 1\n  Y[at +: 1, :] = x\n", false), "for writing"));
}

TEST_CASE("rows are right, whether their copies are made or not") {
  const auto cpu = compiling_cpu();
  if (!cpu) return;
  const std::string texts[] = {
      rows(kWhole, kScaled),
      rows(kWhole,
           "parallel i < 1, d < 96 { z[i, d] = x[i, 95 - d] }\n  parallel i < 1, d < 96 { x[i, d] = z[i, d] + x[0, 95 "
           "- d] }"),
      rows(kWhole, "parallel i < 1, d < 96 { x[i, d] = x[i, d + 1] - x[i, d - 1] }"),  // beyond the tile is 0
      rows(kWhole, "parallel i < 1, d < 96 { x[i, d] = x[i, d] + 1; x[i, d] = x[i, d] * 2 }\n  " + kScaled),
      rows(kWhole, "parallel i < 1, d < 95 { x[i, d] = 2 }"),
      rows(kWhole, "parallel i < 1, d < 96 { if d > 3 { x[i, d] = 2 } }"),
      rows(kWhole, "z = x\n  " + kScaled + "\n  parallel i < 1, d < 96 { x[i, d] += z[i, d] }"),
      rows("r + 1 +: 1, :", kScaled),
      // Quotients of quotients, changing and not.
      rows(kWhole,
           "parallel i < 1, d < 96 { z[i, d] = x[i, d] / (1 + abs(x[i, 3] / max[k < 96](abs(x[i, k])))) }\n"
           "  parallel i < 1, d < 96 { x[i, d] = 3 / (2 + z[i, d] / 7) / 5 + (x[i, 1] / 3) / (1 + abs(z[i, d]) / 9) }"),
      rows(kWhole, "parallel i < 1, d < 96 { x[i, d] = x[i, d] / sum[k < 96](exp(x[i, k])) }"),
  };
  conformance::Random random(5);
  int run = 0;
  for (const std::string& text : texts) {
    auto module = ir::load(text);
    REQUIRE_MESSAGE(module.ok(), module.status().message());
    for (int attempt = 0, made = 0; attempt < 100 && made < 3; ++attempt) {
      auto test = conformance::random_case(module->kernels[0], 40, random);
      if (!test) continue;
      ++made;
      auto prepared = conformance::Prepared::make(*test);
      REQUIRE_MESSAGE(prepared.ok(), prepared.status().message());
      auto made_of =
          lower((*prepared)->kernel(), conformance::target_of(cpu->properties(), *test), (*prepared)->facts());
      REQUIRE_MESSAGE(made_of.ok(), made_of.status().message());
      const conformance::Report report = conformance::run_lowered(*cpu, **prepared, *made_of);
      CAPTURE(text);
      CAPTURE(conformance::describe(*test));
      CHECK_MESSAGE(report.passed(), report.describe());
      ++run;
    }
  }
  CHECK(run == 30);
}

}  // namespace
}  // namespace kachel::lowering
