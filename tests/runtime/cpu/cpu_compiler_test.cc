#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/cpu/object_loader.h"
#include "tests/runtime/cpu/cpu_test_support.h"

namespace kachel::runtime {
namespace {

Status refused(const std::string& text, const std::string& entry = "kernel") {
  Result<CompileResult> result = compile_for(text, entry, host_cpu_architecture());
  REQUIRE(!result.ok());
  CHECK(result.status().code() == Code::kCompile);
  return result.status();
}

TEST_CASE("errors of the text name the place") {
  Status syntax = refused("define void @kernel() {\n  this is not IR\n}\n");
  CHECK(syntax.log().find("kernel:2:") != std::string::npos);
  Status type = refused(kernel_text("  %x = add i32 %begin, 1"));
  CHECK(type.log().find("i64") != std::string::npos);
  Status empty = refused("");
  CHECK(empty.log().find("'kernel'") != std::string::npos);
  // Well-formed text that only the verifier objects to: a definition that does not dominate its use.
  Status verifier = refused(kernel_text(R"(
  br i1 undef, label %a, label %b
a:
  %x = add i64 %begin, 1
  br label %b
b:
  store i64 %x, ptr %arena)"));
  CHECK(verifier.log().find("dominate") != std::string::npos);
  Status bytes = refused(std::string("\0\1\2\xff", 4));
  CHECK(!bytes.log().empty());
}

TEST_CASE("the entry must be there and have the kernel's type") {
  CHECK(refused(kernel_text(""), "absent").log().find("'absent'") != std::string::npos);
  CHECK(refused("define void @kernel(ptr %p) {\n  ret void\n}\n").log().find("type") != std::string::npos);
  CHECK(refused("declare void @kernel(ptr, i64, i64, i64, ptr)\n").log().find("'kernel'") != std::string::npos);
}

// In a process of its own that ends without a leak check: what such an error interrupts is given up by design.
TEST_CASE("what LLVM cannot select is an error, not the end of the process") {
  // A byte shuffle of SSSE3 for a processor without it.
  std::string text = kernel_text(R"(
  %v = load <16 x i8>, ptr %params
  %s = call <16 x i8> @llvm.x86.ssse3.pshuf.b.128(<16 x i8> %v, <16 x i8> %v)
  store <16 x i8> %s, ptr %arena)",
                                 "declare <16 x i8> @llvm.x86.ssse3.pshuf.b.128(<16 x i8>, <16 x i8>)\n");
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int wrong = 0;
    for (int i = 0; i < 3; ++i) {
      auto result = compile_for(text, "kernel", "x86-64/x86-64/");
      wrong += result.ok() || result.status().code() != Code::kCompile ||
               result.status().log().find("Cannot select") == std::string::npos;
      // The next compilation is none the worse.
      wrong += !compile_for(kernel_text(""), "kernel", host_cpu_architecture()).ok();
    }
    _exit(wrong);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("bad inline assembly is an error") {
  Status status = refused(kernel_text("  call void asm sideeffect \"not_an_instruction\", \"\"()"));
  CHECK(status.log().find("not_an_instruction") != std::string::npos);
}

TEST_CASE("architectures are checked") {
  std::string text = kernel_text("");
  auto code_for = [&](const char* architecture) { return compile_for(text, "kernel", architecture).status().code(); };
  CHECK(code_for("x86-64/x86-64-v3/+avx2") == Code::kOk);
  CHECK(code_for("x86-64/no-such-cpu/+avx2") == Code::kCompile);
  CHECK(code_for("x86-64/x86-64-v3/+no-such-feature") == Code::kCompile);
  CHECK(code_for("x86-64/x86-64-v3/avx2") == Code::kCompile);
  CHECK(code_for("sm_90a") == Code::kUnsupported);
}

TEST_CASE("loops compute what they say, whatever is made of them") {
  std::string text = R"(
define void @kernel(ptr noalias %params, i64 %begin, i64 %end, i64 %blocks, ptr noalias %arena) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %in = getelementptr float, ptr %params, i64 %i
  %x = load float, ptr %in
  %y = call float @llvm.fma.f32(float %x, float %x, float 1.0)
  %out = getelementptr float, ptr %arena, i64 %i
  store float %y, ptr %out
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
declare float @llvm.fma.f32(float, float, float)
)";
  std::vector<std::string> architectures = {host_cpu_architecture(), "x86-64/x86-64/"};
  for (const std::string& architecture : architectures) {
    auto compiled = compile_for(text, "kernel", architecture);
    REQUIRE(compiled.ok());
    auto object = LoadedObject::load(compiled->binary);
    REQUIRE(object.ok());
    std::vector<float> in(1003), out(1003);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i) * 0.37f - 100;
    as_kernel((*object)->find("kernel"))(in.data(), 0, 1003, 1, out.data());
    int wrong = 0;
    for (size_t i = 0; i < in.size(); ++i) wrong += out[i] != std::fma(in[i], in[i], 1.0f);
    CHECK(wrong == 0);
  }
}

TEST_CASE("no contraction: a product and a sum stay two roundings") {
  std::string text = kernel_text(R"(
  %a = load float, ptr %params
  %p = fmul float %a, %a
  %s = fadd float %p, -1.0
  store float %s, ptr %arena)");
  auto object = LoadedObject::load(compile_or_fail(text, "kernel"));
  REQUIRE(object.ok());
  float a = 1.0f + 0x1p-12f, out = 0;
  as_kernel((*object)->find("kernel"))(&a, 0, 1, 1, &out);
  CHECK(out == 0x1p-11f);  // with an fma the 2^-24 would survive
}

TEST_CASE("a time limit ends a compilation") {
  // Enough straight-line work for the optimiser to be busy well beyond a millisecond.
  std::string body;
  for (int i = 0; i < 6000; ++i) {
    std::string n = std::to_string(i);
    body += "  %at" + n + " = getelementptr float, ptr %params, i64 " + n + "\n  %x" + n + " = load float, ptr %at" +
            n + "\n  %y" + n + " = fmul float %x" + n + ", %x" + n + "\n  %o" + n +
            " = getelementptr float, ptr %arena, i64 " + n + "\n  store float %y" + n + ", ptr %o" + n + "\n";
  }
  auto compiler = make_cpu_compiler(test_options());
  std::string text = kernel_text(body);
  auto limited = compiler->compile({text, "kernel", host_cpu_architecture(), 1'000'000});
  REQUIRE(!limited.ok());
  CHECK(limited.status().code() == Code::kCompile);
  CHECK(limited.status().message().find("longer than 1 ms") != std::string::npos);
  CHECK(compiler->compile({kernel_text(""), "kernel", host_cpu_architecture(), 60'000'000'000}).ok());
}

TEST_CASE("compilations run side by side") {
  auto compiler = make_cpu_compiler(test_options());
  std::string good = kernel_text("  store i64 %begin, ptr %arena"), bad = kernel_text("  nonsense");
  std::string expected = compile_or_fail(good, "kernel");
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 8; ++i) {
        auto result = compiler->compile({i % 2 ? bad : good, "kernel", host_cpu_architecture(), 0});
        wrong[t] += i % 2 ? result.ok() : !result.ok() || result->binary != expected;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("an absent compiler is a matter of the machine, with a mend") {
  for (const char* path : {"/nonexistent/libkachel_llvm.so", "/nonexistent", "/usr"}) {
    DeviceOptions options;
    options.cpu_compiler_path = path;
    auto compiler = make_cpu_compiler(options);
    auto result = compiler->compile({kernel_text(""), "kernel", host_cpu_architecture(), 0});
    REQUIRE(!result.ok());
    CHECK(result.status().code() == Code::kNoDevice);
    CHECK(result.status().message().find("KACHEL_LLVM") != std::string::npos);
    CHECK(!compiler->opened());
  }
}

TEST_CASE("the environment wins over the option, and a folder will do") {
  std::string module = KACHEL_LLVM_MODULE;
  DeviceOptions folder;
  folder.cpu_compiler_path = module.substr(0, module.rfind('/'));
  CHECK(make_cpu_compiler(folder)->compile({kernel_text(""), "kernel", host_cpu_architecture(), 0}).ok());

  DeviceOptions wrong;
  wrong.cpu_compiler_path = "/nonexistent";
  setenv("KACHEL_LLVM", module.c_str(), 1);
  auto result = make_cpu_compiler(wrong)->compile({kernel_text(""), "kernel", host_cpu_architecture(), 0});
  unsetenv("KACHEL_LLVM");
  CHECK(result.ok());
}

}  // namespace
}  // namespace kachel::runtime
