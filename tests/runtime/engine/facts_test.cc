// Which facts hold for arguments, by the quick binder and by the complete one.
#include "runtime/engine/bind/facts.h"

#include "runtime/engine/bind/argument_binder.h"
#include "tests/runtime/engine/bound_tensors.h"

namespace kachel::runtime {
namespace {

TEST_CASE("facts follow the arguments") {
  auto model = model_of(kScale);
  BoundArguments bound;
  using ir::DType;
  auto facts = [&](Tensor a, Tensor c) {
    Arg args[] = {a, c, float_arg(1)};
    Status status = bind_arguments(*model, args, bound);
    REQUIRE_MESSAGE(status.ok(), status.message());
    return facts_text(*model, bound.facts);
  };
  const std::string all = facts({DType::F32, {64, 64}}, {DType::F32, {64, 64}, {}, 0x900000});
  CHECK(all.find("index32") != std::string::npos);
  CHECK(all.find("unit stride of `A`") != std::string::npos);
  const std::string strided = facts({DType::F32, {64, 64}, {256, 2}}, {DType::F32, {64, 64}, {}, 0x900000});
  CHECK(strided.find("unit stride of `A`") == std::string::npos);
  CHECK(strided.find("unit stride of `C`") != std::string::npos);
  // One column: its stride multiplies nothing but 0.
  CHECK(facts({DType::F32, {64, 1}, {7, 7}}, {DType::F32, {64, 1}, {}, 0x900000}).find("`A`") != std::string::npos);
  auto on_gpu = [&](Tensor a, bool quickly) {
    Tensor c(DType::F32, {64, 64}, {}, 0x900000);
    Arg args[] = {a, c, float_arg(1)};
    REQUIRE((quickly ? bind_quickly(*model, args, bound) : bind_completely(*model, args, bound).ok()));
    return facts_text(*model, bound.facts);
  };
  for (bool quickly : {false, true}) {
    CHECK(on_gpu({DType::F32, {64, 64}}, quickly).find("16-byte rows of `A`") != std::string::npos);
    const std::string transposed = on_gpu({DType::F32, {64, 64}, {1, 68}}, quickly);
    CHECK(transposed.find("16-byte columns of `A`") != std::string::npos);
    CHECK(transposed.find("rows of `A`") == std::string::npos);
    CHECK(transposed.find("unit stride of `A`") == std::string::npos);
    for (int64_t pitch : {0, 1, 66, 67})
      CHECK(on_gpu({DType::F32, {64, 64}, {1, pitch}}, quickly).find("columns of `A`") == std::string::npos);
    // One row seen 64 times, or none at all: not for the copy engine.
    const std::string repeated = on_gpu({DType::F32, {64, 64}, {0, 1}}, quickly);
    CHECK(repeated.find("16-byte rows of `A`") == std::string::npos);
    CHECK(repeated.find("8-byte rows of `A`") != std::string::npos);
    const auto joined = [&](std::vector<int64_t> shape, std::vector<int64_t> strides, uintptr_t address) {
      Tensor a(DType::F32, shape, strides, address), c(DType::F32, shape, {}, 0x900000);
      Arg args[] = {a, c, float_arg(1)};
      REQUIRE((quickly ? bind_quickly(*model, args, bound) : bind_completely(*model, args, bound).ok()));
      return facts_text(*model, bound.facts).find("joined rows of `A`") != std::string::npos;
    };
    CHECK(joined({64, 3}, {}, 0x1000));
    CHECK(!joined({64, 3}, {4, 1}, 0x1000));  // gaps
    CHECK(!joined({64, 3}, {}, 0x1008));      // begins within 16 bytes
    CHECK(!joined({62, 3}, {}, 0x1000));      // 744 bytes
    CHECK(!joined({64, 4}, {}, 0x1000));      // rows of 16 bytes as they are
    CHECK(!joined({64, 17}, {}, 0x1000));     // long ones
  }
  const auto counted = model_of(R"(tile 1
kernel counted(A: f32[N, H, W], C: out f32[N, H, W])
grid n < N
{
  parallel m < 64 { C[n, m / W, m % W] = A[n, m / W, m % W] }
})");
  for (bool quickly : {false, true}) {
    const auto one_axis = [&](std::vector<int64_t> shape, std::vector<int64_t> strides, uintptr_t address = 0x1000) {
      Tensor a(DType::F32, shape, strides, address), c(DType::F32, shape, {}, 0x900000);
      Arg args[] = {a, c};
      REQUIRE((quickly ? bind_quickly(*counted, args, bound) : bind_completely(*counted, args, bound).ok()));
      const std::string text = facts_text(*counted, bound.facts);
      return std::pair(text.find("last axes of `A` as one of 16-byte rows") != std::string::npos,
                       text.find("last axes of `A` as one,") != std::string::npos);
    };
    CHECK(one_axis({4, 6, 6}, {}) == std::pair(true, true));
    CHECK(one_axis({4, 6, 6}, {40, 6, 1}) == std::pair(true, true));
    CHECK(one_axis({4, 6, 6}, {38, 6, 1}) == std::pair(false, true));   // images 152 bytes apart
    CHECK(one_axis({4, 5, 7}, {}) == std::pair(false, true));           // of 140 bytes
    CHECK(one_axis({4, 6, 6}, {}, 0x1008) == std::pair(false, true));   // begin within 16 bytes
    CHECK(one_axis({4, 6, 6}, {48, 8, 1}) == std::pair(false, false));  // gaps
    CHECK(one_axis({4, 6, 6}, {36, 1, 6}) == std::pair(false, false));  // the other way round
    CHECK(one_axis({4, 1, 8}, {8, 5, 1}) == std::pair(true, true));     // one row
  }
  const std::string large =
      facts({DType::F32, {64, 64}, {int64_t{1} << 26, 1}}, {DType::F32, {64, 64}, {}, uintptr_t{1} << 45});
  CHECK(large.find("index32") == std::string::npos);
}

TEST_CASE("tensors of fewer elements than there are numbers of 31 bits are told apart, however they lie") {
  auto model = model_of(
      "tile 1\nkernel k(A: f32[L, M, N], C: out f32[L])\ngrid l < L\n{\n  fragment c: f32[1]\n"
      "  parallel i < 1 { c[i] = A[l, M - 1, N - 1] }\n  C[l +: 1] = c\n}\n");
  BoundArguments bound;
  const auto has_index32 = [&](std::vector<int64_t> shape, std::vector<int64_t> strides) {
    const int64_t rows = shape[0];
    Tensor a(ir::DType::F32, std::move(shape), std::move(strides), 0x100000);
    Tensor c(ir::DType::F32, {rows}, {}, 0x90000000000);
    Arg args[] = {a, c};
    const auto is_known = [&] { return facts_text(*model, bound.facts).find("index32") != std::string::npos; };
    REQUIRE(bind_completely(*model, args, bound).ok());
    const bool has = is_known();
    if (bind_quickly(*model, args, bound)) CHECK(has == is_known());
    return has;
  };
  CHECK(has_index32({8, 1 << 10, 1 << 10}, {}));
  CHECK(has_index32({8, 1 << 13, 1 << 13}, {0, 0, 1}));
  CHECK(!has_index32({16, 1 << 13, 1 << 13}, {0, 0, 1}));  // one row, seen as 2^30 elements
  CHECK(has_index32({0, 1 << 10, 1 << 10}, {}));
  CHECK(!has_index32({0, 1 << 15, 1 << 15}, {}));  // what its planes would have
}

TEST_CASE("tensors of many elements along short axes are told apart from those with long ones") {
  auto model = model_of(
      "tile 1\nkernel k(A: f32[L, M, N], C: out f32[L])\ngrid l < L\n{\n  fragment c: f32[1]\n"
      "  parallel i < 1 { c[i] = A[l, M - 1, N - 1] }\n  C[l +: 1] = c\n}\n");
  BoundArguments bound;
  const auto facts = [&](std::vector<int64_t> shape, std::vector<int64_t> strides) {
    const int64_t rows = shape[0];
    Tensor a(ir::DType::F32, std::move(shape), std::move(strides), 0x100000);
    Tensor c(ir::DType::F32, {rows}, {}, uintptr_t{1} << 46);
    Arg args[] = {a, c};
    REQUIRE(bind_completely(*model, args, bound).ok());
    const uint64_t mask = bound.facts;
    if (bind_quickly(*model, args, bound)) CHECK(bound.facts == mask);
    const std::string text = facts_text(*model, mask);
    return std::pair(text.find("index32") != std::string::npos, text.find("extent32") != std::string::npos);
  };
  CHECK(facts({8, 1 << 10, 1 << 10}, {}) == std::pair(true, true));
  CHECK(facts({64, 1 << 13, 1 << 13}, {}) == std::pair(false, true));
  CHECK(facts({1, 1, 1 << 30}, {}) == std::pair(false, false));
  CHECK(facts({2, 1 << 10, 1 << 10}, {int64_t{1} << 35, 1 << 10, 1}) == std::pair(false, true));
  CHECK(facts({2, 1 << 10, 1 << 10}, {int64_t{1} << 36, 1 << 10, 1}) == std::pair(false, false));
  CHECK(facts({0, 1 << 30, 2}, {}) == std::pair(false, false));
}

// Of a scalar that nothing is divided by no fact is known: each of its values would ask for another binary.
TEST_CASE("scalars that the text divides by are multiples or not") {
  std::string text = kScale;
  text.replace(text.find("s: f32"), 6, "s: i32, t: i32");
  text.replace(text.find("x[i, j] * s"), 11, "x[i, j] * f32(i / s + t)");
  auto model = model_of(text);
  BoundArguments bound;
  for (const bool quickly : {false, true}) {
    const auto facts = [&](int64_t s) {
      Tensor a(ir::DType::F32, {64, 64}, {}, 0x100000), c(ir::DType::F32, {64, 64}, {}, 0x900000);
      Arg args[] = {a, c, int_arg(s), int_arg(16)};
      REQUIRE((quickly ? bind_quickly(*model, args, bound) : bind_completely(*model, args, bound).ok()));
      return facts_text(*model, bound.facts);
    };
    for (const int64_t s : {16, 128, 2147483632}) CHECK(facts(s).find("`s` a multiple of 16") != std::string::npos);
    CHECK(facts(384).find("`s` a multiple of 128") != std::string::npos);
    CHECK(facts(96).find("`s` a multiple of 32") != std::string::npos);
    CHECK(facts(96).find("`s` a multiple of 64") == std::string::npos);
    for (const int64_t s : {0, 1, 24, -16}) CHECK(facts(s).find("`s`") == std::string::npos);
    CHECK(facts(16).find("`t`") == std::string::npos);
  }
}

}  // namespace
}  // namespace kachel::runtime
