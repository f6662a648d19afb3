#include "runtime/engine/bind/argument_binder.h"

#include <random>

#include "runtime/engine/bind/overlap.h"
#include "tests/runtime/engine/bound_tensors.h"

namespace kachel::runtime {
namespace {

constexpr const char* kGemm = R"(tile 1
kernel gemm<T: f16 | bf16, U: f32 | f16, const group: i32>(A: T[M, K], B: T[N, K], S: U[N, K / group], C: inout U[M, N], n: i32, flag: bool, x: f32)
where K % group == 0, n >= 0
key M, bucket(N)
tune BM = 16 | 32
grid by < ceildiv(M, BM)
{
  fragment c: f32[BM, 16], a: T[BM, 16], b: T[16, 16], s: U[16, 16]
  a = A[by*BM +: BM, 0 +: 16]
  b = B[0 +: 16, 0 +: 16]
  s = S[0 +: 16, 0 +: 16]
  c = a @ b^T
  parallel i < BM, j < 16 { c[i, j] = flag ? c[i, j] * x + f32(n) : f32(s[j, j]) }
  C[by*BM +: BM, 0 +: 16] = c
}
)";

struct GemmArgs {
  Tensor a{ir::DType::F16, {64, 128}, {}, 0x100000};
  Tensor b{ir::DType::F16, {32, 128}, {}, 0x200000};
  Tensor s{ir::DType::F32, {32, 8}, {}, 0x300000};
  Tensor c{ir::DType::F32, {64, 32}, {}, 0x400000};
  Arg n = int_arg(5), flag = int_arg(1), x = float_arg(0.5);
  std::vector<Arg> list() { return {a, b, s, c, n, flag, x}; }
};

std::shared_ptr<const KernelModel> gemm() {
  return model_of(kGemm, {{"group", 16, 0}});
}

TEST_CASE("types, dimensions, scalars and facts are bound") {
  auto model = gemm();
  GemmArgs args;
  BoundArguments bound;
  auto list = args.list();
  Status status = bind_arguments(*model, list, bound);
  REQUIRE_MESSAGE(status.ok(), status.message());
  CHECK(model->dims == std::vector<std::string>{"M", "K", "N"});
  CHECK(bound.dims[0] == 64);
  CHECK(bound.dims[1] == 128);
  CHECK(bound.dims[2] == 32);
  CHECK(bound.type_of(0) == ir::DType::F16);
  CHECK(bound.type_of(1) == ir::DType::F32);
  CHECK(bound.scalars[4] == 5);
  CHECK(bound.scalars[5] == 1);
  CHECK(bound.scalars[6] == 0x3f000000);
  CHECK(bound.tensors[0].strides[0] == 128);
  CHECK(bound.tensors[0].bytes == 64 * 128 * 2);
  CHECK(bound.device == kFakeRef);
  args.n = int_arg(-5);
  list = args.list();
  CHECK_FALSE(bind_arguments(*model, list, bound).ok());
}

TEST_CASE("every bad call has its message and mend") {
  auto model = gemm();
  struct Case {
    const char* name;
    std::function<void(GemmArgs&)> spoil;
    std::vector<const char*> message;
  };
  static int64_t no_shape[2] = {-1, 128};
  const Case cases[] = {
      {"rank", [](GemmArgs& a) { a.a.shape = {64, 2, 64}; }, {"argument 0 `A`", "3 dimensions", "[M, K]"}},
      {"type", [](GemmArgs& a) { a.a.arg.dtype = to_data_type(ir::DType::F32); }, {"`A`", "f32", "f16 or bf16"}},
      {"type agreement",
       [](GemmArgs& a) { a.b.arg.dtype = to_data_type(ir::DType::BF16); },
       {"`B`", "bf16", "`T` is f16"}},
      {"unknown type", [](GemmArgs& a) { a.a.arg.dtype = {9, 7, 1}; }, {"`A`", "code 9, 7 bits"}},
      {"lanes", [](GemmArgs& a) { a.a.arg.dtype.lanes = 4; }, {"4 lanes"}},
      {"dimension", [](GemmArgs& a) { a.b.shape = {32, 64}; }, {"`B`", "axis 1 must be 128", "`K`"}},
      {"computed extent", [](GemmArgs& a) { a.s.shape = {32, 9}; }, {"`S`", "axis 1 must be 8", "`K / group`"}},
      {"where",
       [](GemmArgs& a) {
         a.a.shape = {64, 120};
         a.b.shape = {32, 120};
         a.s.shape = {32, 7};
       },
       {"K % group == 0", "K = 120"}},
      {"negative extent", [](GemmArgs& a) { a.a.shape = {no_shape[0], 128}; }, {"[-1, 128]", ">= 0"}},
      {"negative stride", [](GemmArgs& a) { a.a.strides = {-128, 1}; }, {"stride 0 is -128"}},
      {"null data", [](GemmArgs& a) { a.a.arg.data = nullptr; }, {"`A`", "NULL"}},
      {"alignment", [](GemmArgs& a) { a.a.arg.byte_offset = 1; }, {"not aligned", "2-byte"}},
      {"device", [](GemmArgs& a) { a.b.arg.device = {1, 0}; }, {"`B`", "the CPU", "one device"}},
      {"too large", [](GemmArgs& a) { a.a.shape = {int64_t{1} << 40, int64_t{1} << 40}; }, {"2^62"}},
      {"too large by strides", [](GemmArgs& a) { a.a.strides = {int64_t{1} << 60, 1}; }, {"2^62"}},
      {"scalar for tensor",
       [](GemmArgs& a) {
         a.a.arg.ndim = 0;
         a.n = float_arg(1);
       },
       {"argument 4 `n`", "KACHEL_ARG_INT"}},
      {"i32 range", [](GemmArgs& a) { a.n = int_arg(int64_t{1} << 31); }, {"2147483648", "i32"}},
      {"bool range", [](GemmArgs& a) { a.flag = int_arg(2); }, {"2 is not a value of bool"}},
      {"f32", [](GemmArgs& a) { a.x = int_arg(1); }, {"`x`", "KACHEL_ARG_FLOAT"}},
      {"where on scalars", [](GemmArgs& a) { a.n = int_arg(-1); }, {"n >= 0"}},
      {"overlap with an input",
       [](GemmArgs& a) { a.c.arg.data = reinterpret_cast<void*>(0x100000 + 64 * 128 * 2 - 4); },
       {"`C` overlaps `A`", "inout"}},
      {"an output over itself", [](GemmArgs& a) { a.c.strides = {16, 1}; }, {"`C`", "one address"}},
      {"a broadcast output", [](GemmArgs& a) { a.c.strides = {0, 1}; }, {"one address"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    GemmArgs args;
    c.spoil(args);
    auto list = args.list();
    BoundArguments bound;
    Status status = bind_arguments(*model, list, bound);
    REQUIRE_FALSE(status.ok());
    CHECK(status.code() == Code::kInvalid);
    for (const char* part : c.message)
      CHECK_MESSAGE(status.message().find(part) != std::string::npos, status.message());
  }
  BoundArguments bound;
  GemmArgs args;
  auto list = args.list();
  list.pop_back();
  Status count = bind_arguments(*model, list, bound);
  CHECK(count.message().find("takes 7 arguments, 6") != std::string::npos);
  list = args.list();
  list[0] = int_arg(1);
  CHECK(bind_arguments(*model, list, bound).message().find("KACHEL_ARG_TENSOR") != std::string::npos);
  list[0] = Arg{Arg::kTensor, 0, {nullptr}};
  CHECK_FALSE(bind_arguments(*model, list, bound).ok());
  args.a.arg.shape = nullptr;
  Arg no_shape_arg = args.list()[0];
  args.a.arg.shape = nullptr;
  list[0] = no_shape_arg;
  CHECK(bind_arguments(*model, list, bound).message().find("shape is NULL") != std::string::npos);
}

// Arguments of `gemm` with any number of oddities, most of which make them invalid or uncommon.
struct RandomArgs : GemmArgs {
  explicit RandomArgs(std::mt19937_64& random) {
    auto one_in = [&](unsigned n) { return random() % n == 0; };
    const int64_t m = one_in(8) ? 1 : 64, k = one_in(8) ? 16 : 128;
    a.shape = {m, k}, b.shape = {32, k}, s.shape = {32, k / 16}, c.shape = {m, 32};
    const ir::DType type = one_in(2) ? ir::DType::F16 : ir::DType::BF16;
    a.arg.dtype = b.arg.dtype = to_data_type(type);
    s.arg.dtype = c.arg.dtype = to_data_type(one_in(2) ? ir::DType::F32 : ir::DType::F16);
    const bool cpu = one_in(4);
    n = int_arg(static_cast<int64_t>(random() % 10));
    for (Tensor* tensor : {&a, &b, &s, &c}) {
      if (cpu) tensor->arg.device = {1, 0};
      if (one_in(3)) {
        const int64_t columns = tensor->shape[1];
        const int64_t rows[] = {columns, columns + 8, columns + 1, columns / 2, 1, -1, int64_t{1} << 40};
        tensor->strides = {rows[random() % (one_in(3) ? 7 : 3)], one_in(6) ? static_cast<int64_t>(random() % 3) : 1};
      }
      if (one_in(6)) {
        const int64_t columns[] = {0, tensor->shape[0], tensor->shape[0] + 8, tensor->shape[0] + 1};
        tensor->strides = {1, columns[random() % 4]};
      }
      if (one_in(6)) tensor->arg.byte_offset = random() % 65;
      if (one_in(40)) tensor->shape[random() % 2] = static_cast<int64_t>(random() % 3) * 64 - 64;
      if (one_in(60)) tensor->arg.data = one_in(2) ? nullptr : c.arg.data;
      if (one_in(60)) tensor->arg.device.id = 1;
      if (one_in(60)) tensor->arg.dtype = to_data_type(static_cast<ir::DType>(random() % ir::kDTypeCount));
    }
    if (one_in(20)) n = int_arg(one_in(2) ? -1 : int64_t{1} << 31);
    if (one_in(20)) flag = int_arg(2);
    if (one_in(40)) x = int_arg(1);
  }
};

TEST_CASE("what is bound quickly is bound as the complete binder does it") {
  auto model = gemm();
  std::mt19937_64 random(3);
  int quick = 0, complete = 0;
  for (int round = 0; round < 20000; ++round) {
    CAPTURE(round);
    RandomArgs args(random);
    auto list = args.list();
    BoundArguments bound, expected;
    const bool is_quick = bind_quickly(*model, list, bound);
    Status status = bind_completely(*model, list, expected);
    quick += is_quick, complete += status.ok();
    if (!is_quick) continue;
    REQUIRE_MESSAGE(status.ok(), status.message());
    REQUIRE(bound.device == expected.device);
    REQUIRE(bound.types == expected.types);
    REQUIRE(bound.facts == expected.facts);
    REQUIRE(std::equal(bound.dims, bound.dims + model->dim_slots, expected.dims));
    for (int index : model->scalars) REQUIRE(bound.scalars[index] == expected.scalars[index]);
    for (int index : model->tensors) {
      const BoundTensor &tensor = bound.tensors[index], &other = expected.tensors[index];
      REQUIRE(tensor.data == other.data);
      REQUIRE(tensor.dtype == other.dtype);
      REQUIRE(std::equal(tensor.shape, tensor.shape + 2, other.shape));
      REQUIRE(std::equal(tensor.strides, tensor.strides + 2, other.strides));
      REQUIRE(tensor.elements == other.elements);
      REQUIRE(tensor.bytes == other.bytes);
    }
  }
  CHECK(quick > 2000);
  CHECK(complete > quick);
  // Of what is declined, little is valid.
  CHECK(complete < quick + quick / 4);
}

TEST_CASE("empty tensors need no memory") {
  auto model = gemm();
  GemmArgs args;
  args.a.shape = {0, 128};
  args.a.arg.data = nullptr;
  args.c.shape = {0, 32};
  args.c.arg.data = nullptr;
  auto list = args.list();
  BoundArguments bound;
  CHECK(bind_arguments(*model, list, bound).ok());
  CHECK(bound.dims[0] == 0);
  CHECK(bound.tensors[0].bytes == 0);
}

TEST_CASE("4-bit tensors come packed or in bytes") {
  auto model = model_of(R"(tile 1
kernel unpack<Q: u4 | i4>(W: Q[N, K], C: out f32[N, K])
grid n < N
{
  fragment w: f32[1, 16]
  w = W[n +: 1, 0 +: 16]
  C[n +: 1, 0 +: 16] = w
})");
  BoundArguments bound;
  auto bind = [&](Tensor w, Tensor c) {
    Arg args[] = {w, c};
    return bind_arguments(*model, args, bound);
  };
  using ir::DType;
  Tensor c(DType::F32, {8, 32}, {}, 0x900000);
  REQUIRE(bind({DType::U4, {8, 32}}, c).ok());
  CHECK(bound.tensors[0].strides[0] == 32);
  CHECK(bound.tensors[0].bytes == 128);
  // Eight rows of sixteen bytes, and the same with a row pitch.
  REQUIRE(bind({DType::U8, {8, 16}}, c).ok());
  CHECK(bound.dims[1] == 32);
  CHECK(bound.tensors[0].strides[0] == 32);
  CHECK(bound.type_of(0) == DType::U4);
  REQUIRE(bind({DType::I8, {8, 16}, {24, 1}}, c).ok());
  CHECK(bound.tensors[0].strides[0] == 48);
  CHECK(bound.tensors[0].strides[1] == 1);
  CHECK(bound.tensors[0].bytes == 7 * 24 + 16);
  Status odd = bind({DType::U4, {8, 31}, {31, 1}}, Tensor(DType::F32, {8, 31}, {}, 0x900000));
  CHECK(odd.message().find("even") != std::string::npos);
  Status apart = bind({DType::U4, {8, 32}, {64, 2}}, c);
  CHECK(apart.message().find("last axis is 2") != std::string::npos);
  CHECK(bind({DType::I16, {8, 32}}, c).message().find("u4 or i4") != std::string::npos);
}

TEST_CASE("views that interleave without meeting are no overlap") {
  auto model = model_of(R"(tile 1
kernel copy(A: f32[M, N], B: f32[M, N], C: out f32[M, N])
grid n < N
{
  fragment w: f32[1, 16]
  w = A[n +: 1, 0 +: 16]
  C[n +: 1, 0 +: 16] = w
})");
  BoundArguments bound;
  using ir::DType;
  auto bind = [&](Tensor a, Tensor b, Tensor c) {
    Arg args[] = {a, b, c};
    return bind_arguments(*model, args, bound).ok();
  };
  const Tensor apart(DType::F32, {4, 8}, {}, 0x900000);
  // Columns 0..7 and 8..15 of one matrix with 24 columns.
  CHECK(bind({DType::F32, {4, 8}, {24, 1}, 0x1000}, apart, {DType::F32, {4, 8}, {24, 1}, 0x1000 + 32}));
  CHECK_FALSE(bind({DType::F32, {4, 8}, {24, 1}, 0x1000}, apart, {DType::F32, {4, 8}, {24, 1}, 0x1000 + 28}));
  // The last columns and, one row on, the first ones.
  CHECK(bind({DType::F32, {4, 8}, {24, 1}, 0x1000 + 64}, apart, {DType::F32, {4, 8}, {24, 1}, 0x1000 + 96}));
  // Even and odd elements.
  CHECK(bind({DType::F32, {4, 8}, {16, 2}, 0x1000}, apart, {DType::F32, {4, 8}, {16, 2}, 0x1000 + 4}));
  CHECK_FALSE(bind({DType::F32, {4, 8}, {16, 2}, 0x1000}, apart, {DType::F32, {4, 8}, {16, 2}, 0x1000 + 8}));
  // Inputs may be one tensor; an output may not be an input.
  CHECK(bind({DType::F32, {4, 8}, {}, 0x1000}, {DType::F32, {4, 8}, {}, 0x1000}, apart));
  CHECK_FALSE(bind({DType::F32, {4, 8}, {}, 0x1000}, apart, {DType::F32, {4, 8}, {}, 0x1000}));
  // Neighbours in memory.
  CHECK(bind({DType::F32, {4, 8}, {}, 0x1000}, apart, {DType::F32, {4, 8}, {}, 0x1000 + 128}));
  // A transposed output is as good as any.
  CHECK(bind({DType::F32, {4, 8}, {}, 0x1000}, apart, {DType::F32, {4, 8}, {1, 4}, 0x2000}));
}

TEST_CASE("consts are checked when the kernel is made") {
  auto module = ir::load(kGemm);
  REQUIRE(module.ok());
  auto make = [&](std::vector<ConstValue> consts) { return KernelModel::create(module->kernels[0], consts).status(); };
  CHECK(make({}).message().find("`group` has no value") != std::string::npos);
  CHECK(make({{"group", 16, 0}, {"other", 1, 0}}).message().find("no const `other`") != std::string::npos);
  CHECK(make({{"group", 16, 0}, {"group", 8, 0}}).message().find("twice") != std::string::npos);
  CHECK(make({{"group", int64_t{1} << 40, 0}}).message().find("i32") != std::string::npos);
  CHECK(make({{"group", 16, 0}}).ok());
}

}  // namespace
}  // namespace kachel::runtime
