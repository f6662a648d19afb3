// The device functions that a CUDA text carries along, and values that lowering drops.
#include "lowering/emit/cuda_helpers.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "lowering/loop_ir/loop_build.h"
#include "lowering/passes/drop_unused.h"
#include "runtime/device.h"
#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

using ir::DType;

TEST_CASE("a text gets what it names, and what that names") {
  CHECK(cuda_helpers("int x = kachel_nothing_like_it(1);") == cuda_helpers(""));
  CHECK(cuda_helpers("// kachel_rcp(a)\n/") == cuda_helpers(""));
  const std::string kept = cuda_helpers("y = kachel_mma_widened_f8e4m3_f8e5m2(c, a, b);");
  for (const char* name : {"KACHEL_MMA_WIDENED(kachel_mma_widened_f8e4m3_f8e5m2", "KACHEL_WIDEN(kachel_widen_f8e4m3",
                           "KACHEL_WIDEN(kachel_widen_f8e5m2", "KACHEL_MMA(kachel_mma_f16_f16", "#define KACHEL_MMA("})
    CHECK_MESSAGE(has(kept, name), name);
  for (const char* name : {"kachel_mma_bf16_bf16", "kachel_mma_widened_f8e5m2_f8e4m3", "kachel_rcp"})
    CHECK_MESSAGE(!has(kept, name), name);
}

TEST_CASE("what the emitter names by types is there for each of them") {
  for (const char* type : {"f16", "bf16"}) {
    for (const char* from : {"u4", "i4", "u8", "i8"})
      CHECK(has(cuda_helpers(fmt::format("kachel_unpack_{}_{}<8>(a, b);", from, type)), "const u8* from"));
    for (const char* from : {"u32", "i32"})
      CHECK(has(cuda_helpers(fmt::format("kachel_words_{}_{}<2, 15>(a, b);", type, from)), "const u32* from"));
  }
}

TEST_CASE("conditions of the preprocessor stay around what they enclose") {
  const std::string both = cuda_helpers("kachel_packed_add_bf16(a, b)");
  CHECK(has(both, "#if __CUDA_ARCH__ >= 900\nKACHEL_PACKED(kachel_packed_add_bf16"));
  CHECK(has(both, "#if !(__CUDA_ARCH__ >= 900)\nKACHEL_DEVICE u32 kachel_packed_fma_bf16"));
  CHECK(!has(both, "mul_bf16"));
  size_t begins = 0, ends = 0;
  for (size_t at = 0; (at = both.find("#if ", at)) != both.npos; ++at) ++begins;
  for (size_t at = 0; (at = both.find("#endif", at)) != both.npos; ++at) ++ends;
  CHECK(begins == 2);
  CHECK(ends == 2);
}

TEST_CASE("every helper compiles with what it brings along") {
  auto compiler = runtime::make_cuda_compiler({});
  const std::string kernel = "extern \"C\" __global__ void kachel_kernel() {}\n";
  const auto first = compiler->compile({cuda_helpers("") + kernel, "kachel_kernel", "sm_90a", 0});
  if (first.status().code() == Code::kNoDevice) {
    MESSAGE("no NVRTC: helpers are not compiled");
    return;
  }
  const std::vector<std::string> names = cuda_helper_names();
  CHECK(names.size() > 100);
  for (const std::string& name : names) {
    const auto made = compiler->compile({cuda_helpers(name) + kernel, "kachel_kernel", "sm_90a", 0});
    CHECK_MESSAGE(made.ok(), name, ": ", made.status().message());
  }
}

TEST_CASE("what is lowered for sm_90 waits before it touches a tensor, since its launches may begin early") {
  const std::string copies = R"(tile 1
kernel add(A: f32[N], B: f32[N], C: out f32[N])
grid i < ceildiv(N, 256)
{
  fragment x: f32[256], y: f32[256]
  x = A[i*256 +: 256]
  y = B[i*256 +: 256]
  parallel j < 256 { x[j] = x[j] + y[j] }
  C[i*256 +: 256] = x
}
)",
                    product = R"(tile 1
kernel mm(A: f16[M, K], B: f16[N, K], C: out f16[M, N])
grid i < ceildiv(M, 128), j < ceildiv(N, 128)
{
  shared   a: f16[128, 64], b: f16[128, 64]
  fragment acc: f32[128, 128] = 0
  pipelined k < ceildiv(K, 64), 3 {
    a = A[i*128 +: 128, k*64 +: 64]
    b = B[j*128 +: 128, k*64 +: 64]
    acc += a @ b^T
  }
  C[i*128 +: 128, j*128 +: 128] = acc
}
)";
  for (const std::string& text : {copies, product})
    for (const int architecture : {80, 90, 100, 120})
      for (const bool generic : {false, true}) {
        Request request{text};
        request.target.architecture = architecture;
        request.target.generic = generic;
        request.target.bulk_copies = architecture >= 90;
        const std::string kernel = lowered(request).text;
        CAPTURE(architecture);
        CAPTURE(generic);
        CAPTURE(kernel);
        const bool ptx = has(kernel, "R\"ptx(");
        CHECK(ptx == (architecture == 90 && !generic));
        const char* const mark = ptx ? "griddepcontrol.wait;" : "  kachel_after_previous();";
        const size_t wait = kernel.find(mark), body = kernel.find("extern \"C\" __global__");
        CHECK((wait != kernel.npos) == (architecture >= 90));
        if (wait == kernel.npos) continue;
        const std::string before = kernel.substr(body, wait - body);
        for (const char* access : {"A_[", "A_ +", "B_[", "B_ +", "C_[", "C_ +", "kachel_bulk_", "kachel_copy",
                                   "ld.global", "st.global", "cp.async"})
          CHECK(!has(before, access));
        CHECK(kernel.find(mark, wait + 1) == kernel.npos);
      }
}

// A kernel's body by hand: names, an array of registers and one of the block.
struct Parts {
  ir::BufferRef registers = array("x", ir::Scope::kRegister), shared = array("s", ir::Scope::kShared);
  ir::VarRef i = var("i", DType::I32), a = var("a", DType::F32), b = var("b", DType::F32);

  static ir::BufferRef array(const char* name, ir::Scope scope) {
    auto made = std::make_shared<ir::Buffer>();
    made->name = name;
    made->type = {DType::F32, nullptr, false};
    made->scope = scope;
    made->shape = {ir::make_int(64)};
    return made;
  }
  static ir::VarRef var(const char* name, DType type) {
    return std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLet, name, {type, nullptr, false}, {}});
  }
  static ir::ExprRef load(const ir::BufferRef& buffer, const ir::ExprRef& at) { return ir::make_load(buffer, {at}); }
  static size_t left(LoopBlock body) {
    LoopKernel kernel;
    kernel.body = std::move(body);
    drop_unused(&kernel);
    size_t count = 0;
    for_each_statement(kernel.body, [&](const LoopStmt&) { ++count; });
    return count;
  }
};

TEST_CASE("what nothing reads is dropped, and what is empty without it") {
  const Parts p;
  const ir::ExprRef at = ir::make_var(p.i), value = Parts::load(p.shared, at);
  const LoopStmt named{LoopLet{p.a, value}}, used{LoopStore{p.registers, at, ir::make_var(p.a)}};
  CHECK(Parts::left({named}) == 0);
  CHECK(Parts::left({named, used}) == 2);
  CHECK(Parts::left({named, {LoopLet{p.b, ir::make_var(p.a)}}}) == 0);  // read by one that nothing reads
  CHECK(Parts::left({{LoopFor{p.i, int32(0), int32(8), true, false, {named}}}}) == 0);
  CHECK(Parts::left({{LoopIf{ir::make_var(p.i), {named}, {named, used}}}}) == 3);
  // A name of the loop's does not stand for the one outside that is read behind it.
  CHECK(Parts::left({named, {LoopFor{p.i, int32(0), int32(8), true, false, {named, used}}}, used}) == 5);
  CHECK(Parts::left({named, {LoopFor{p.i, int32(0), int32(8), true, false, {named, used}}}}) == 3);
}

TEST_CASE("a register that is stored into itself is left alone") {
  const Parts p;
  const ir::ExprRef at = ir::make_var(p.i), next = plus(at, int32(1));
  auto store = [&](const ir::BufferRef& to, const ir::ExprRef& index, const ir::ExprRef& value) {
    return LoopStmt{LoopStore{to, index, value}};
  };
  const LoopStmt named{LoopLet{p.a, Parts::load(p.registers, at)}};
  CHECK(Parts::left({store(p.registers, at, Parts::load(p.registers, at))}) == 0);
  CHECK(Parts::left({store(p.registers, next, Parts::load(p.registers, at))}) == 1);
  CHECK(Parts::left({store(p.shared, at, Parts::load(p.shared, at))}) == 1);
  CHECK(Parts::left({named, store(p.registers, at, ir::make_var(p.a))}) == 0);
  // Something else was stored in between.
  CHECK(Parts::left({named, store(p.registers, at, Parts::load(p.shared, at)),
                     store(p.registers, at, ir::make_var(p.a))}) == 3);
}

}  // namespace
}  // namespace kachel::lowering
