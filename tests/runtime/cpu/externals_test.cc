#include "runtime/cpu/externals.h"

#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/cpu/object_loader.h"
#include "tests/runtime/cpu/cpu_test_support.h"

namespace kachel::runtime {
namespace {

TEST_CASE("the list is sorted, unique and without holes") {
  std::string_view previous;
  for (const External& external : all_externals()) {
    CHECK(external.name > previous);
    CHECK(external.address != nullptr);
    CHECK(find_external(external.name) == external.address);
    previous = external.name;
  }
  for (const char* name : {"", "malloc", "system", "memcp", "memcpyy", "zzz", "dlopen"})
    CHECK(find_external(name) == nullptr);
}

// One kernel that stores the address of every external: all of them resolve through the object's table.
TEST_CASE("an object may refer to every external at once") {
  std::string body, declarations;
  int64_t count = 0;
  for (const External& external : all_externals()) {
    std::string name(external.name), at = "%at" + std::to_string(count);
    body += "  " + at + " = getelementptr ptr, ptr %arena, i64 " + std::to_string(count++) + "\n";
    body += "  store ptr @" + name + ", ptr " + at + "\n";
    declarations += "declare void @" + name + "()\n";
  }
  auto object = LoadedObject::load(compile_or_fail(kernel_text(body, declarations), "kernel"));
  INFO(object.status().message());
  REQUIRE(object.ok());
  std::vector<const void*> addresses(static_cast<size_t>(count));
  as_kernel((*object)->find("kernel"))(nullptr, 0, 1, 1, addresses.data());
  size_t i = 0;
  for (const External& external : all_externals()) {
    CAPTURE(external.name);
    CHECK(addresses[i++] == external.address);
  }
}

struct MathCase {
  const char* name;
  float (*expected)(float);
};

TEST_CASE("calls through stubs compute") {
  const MathCase kCases[] = {
      {"expf", [](float x) { return std::exp(x); }},   {"exp2f", [](float x) { return std::exp2(x); }},
      {"logf", [](float x) { return std::log(x); }},   {"log2f", [](float x) { return std::log2(x); }},
      {"sinf", [](float x) { return std::sin(x); }},   {"cosf", [](float x) { return std::cos(x); }},
      {"tanhf", [](float x) { return std::tanh(x); }}, {"erff", [](float x) { return std::erf(x); }},
      {"sqrtf", [](float x) { return std::sqrt(x); }}, {"floorf", [](float x) { return std::floor(x); }},
      {"ceilf", [](float x) { return std::ceil(x); }}, {"truncf", [](float x) { return std::trunc(x); }},
      {"rintf", [](float x) { return std::rint(x); }}, {"roundevenf", [](float x) { return ::roundevenf(x); }},
      {"exp10f", [](float x) { return ::exp10f(x); }}, {"log1pf", [](float x) { return std::log1p(x); }},
  };
  std::string body, declarations;
  int64_t i = 0;
  for (const MathCase& math : kCases) {
    std::string n = std::to_string(i++), name = math.name;
    body += "  %in" + n + " = load float, ptr %params\n  %r" + n + " = call float @" + name + "(float %in" + n + ")\n" +
            "  %at" + n + " = getelementptr float, ptr %arena, i64 " + n + "\n  store float %r" + n + ", ptr %at" + n +
            "\n";
    declarations += "declare float @" + name + "(float)\n";
  }
  auto object = LoadedObject::load(compile_or_fail(kernel_text(body, declarations), "kernel"));
  REQUIRE(object.ok());
  for (float x : {0.25f, 1.0f, 2.75f, 7.5f}) {
    float results[std::size(kCases)] = {};
    as_kernel((*object)->find("kernel"))(&x, 0, 1, 1, results);
    for (size_t c = 0; c < std::size(kCases); ++c) {
      CAPTURE(kCases[c].name);
      CAPTURE(x);
      CHECK(results[c] == kCases[c].expected(x));
    }
  }
}

// On a machine without any extension every narrow conversion, fma and rounding becomes a call.
TEST_CASE("code for the plainest processor gets by with the list") {
  const char* body = R"(
  %x = load float, ptr %params
  %h = fptrunc float %x to half
  store half %h, ptr %arena
  %wide = fpext half %h to float
  %at1 = getelementptr float, ptr %arena, i64 1
  store float %wide, ptr %at1
  %b = fptrunc float %x to bfloat
  %at2 = getelementptr float, ptr %arena, i64 2
  store bfloat %b, ptr %at2
  %f = call float @llvm.fma.f32(float %x, float %x, float %wide)
  %at3 = getelementptr float, ptr %arena, i64 3
  store float %f, ptr %at3
  %s = call float @llvm.sin.f32(float %x)
  %c = call float @llvm.cos.f32(float %x)
  %sc = fadd float %s, %c
  %at4 = getelementptr float, ptr %arena, i64 4
  store float %sc, ptr %at4
  %rem = frem float %f, %x
  %at5 = getelementptr float, ptr %arena, i64 5
  store float %rem, ptr %at5
  %fl = call float @llvm.floor.f32(float %f)
  %at6 = getelementptr float, ptr %arena, i64 6
  store float %fl, ptr %at6
  %d = fpext float %x to double
  %dh = fptrunc double %d to half
  %at7 = getelementptr float, ptr %arena, i64 7
  store half %dh, ptr %at7)";
  const char* declarations = R"(
declare float @llvm.fma.f32(float, float, float)
declare float @llvm.sin.f32(float)
declare float @llvm.cos.f32(float)
declare float @llvm.floor.f32(float)
)";
  for (std::string architecture : {std::string("x86-64/x86-64/"), host_cpu_architecture()}) {
    CAPTURE(architecture);
    auto compiled = compile_for(kernel_text(body, declarations), "kernel", architecture);
    INFO(compiled.status().message());
    REQUIRE(compiled.ok());
    auto object = LoadedObject::load(compiled->binary);
    REQUIRE(object.ok());
    float x = 2.71828f, out[8] = {};
    as_kernel((*object)->find("kernel"))(&x, 0, 1, 1, out);
    uint16_t bits = 0;
    std::memcpy(&bits, &out[0], 2);
    CHECK(bits == 0x4170);
    CHECK(out[1] == 2.71875f);
    std::memcpy(&bits, &out[2], 2);
    CHECK(bits == 0x402e);
    CHECK(out[3] == std::fma(x, x, 2.71875f));
    CHECK(out[4] == std::sin(x) + std::cos(x));
    CHECK(out[5] == std::fmod(out[3], x));
    CHECK(out[6] == std::floor(out[3]));
    std::memcpy(&bits, &out[7], 2);
    CHECK(bits == 0x4170);
  }
}

}  // namespace
}  // namespace kachel::runtime
