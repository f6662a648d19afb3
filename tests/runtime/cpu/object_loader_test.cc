#include "runtime/cpu/object_loader.h"

#include <elf.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "runtime/cpu/object_file.h"
#include "tests/runtime/cpu/cpu_test_support.h"

namespace kachel::runtime {
namespace {

// Replaces a name in the string table by another of the same length.
std::string rename(std::string object, const std::string& from, const std::string& to) {
  REQUIRE(from.size() == to.size());
  size_t at = object.find(from + '\0');
  REQUIRE(at != std::string::npos);
  return object.replace(at, from.size(), to);
}

std::string permissions_at(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::string permissions;
    std::istringstream fields(line);
    fields >> std::hex >> begin >> dash >> end >> permissions;
    auto wanted = reinterpret_cast<uintptr_t>(address);
    if (wanted >= begin && wanted < end) return permissions;
  }
  return "";
}

const char kTableKernel[] = R"(
@squares = private constant [8 x i64] [i64 0, i64 1, i64 4, i64 9, i64 16, i64 25, i64 36, i64 49]
@names = private constant [2 x ptr] [ptr @squares, ptr @helper]
define internal i64 @helper(i64 %x) noinline {
  %at = getelementptr [8 x i64], ptr @squares, i64 0, i64 %x
  %v = load volatile i64, ptr %at
  ret i64 %v
}
define void @other(ptr %params, i64 %begin, i64 %end, i64 %blocks, ptr %arena) {
  store i64 77, ptr %arena
  ret void
}
define void @kernel(ptr %params, i64 %begin, i64 %end, i64 %blocks, ptr %arena) {
  %i = load i64, ptr %params
  %direct = call i64 @helper(i64 %i)
  store i64 %direct, ptr %arena
  ; through a table of addresses, which needs absolute relocations
  %slot = getelementptr [2 x ptr], ptr @names, i64 0, i64 1
  %f = load volatile ptr, ptr %slot
  %called = call i64 %f(i64 %i)
  %at1 = getelementptr i64, ptr %arena, i64 1
  store i64 %called, ptr %at1
  store ptr @squares, ptr %arena.end
  ret void
}
)";

std::string table_text() {
  std::string text = kTableKernel;
  text.replace(text.find("  store ptr @squares, ptr %arena.end"), 36,
               "  %arena.end = getelementptr i64, ptr %arena, i64 2\n  store ptr @squares, ptr %arena.end");
  return text;
}

TEST_CASE("constants, local calls and tables of addresses work, and nothing is writable and executable") {
  std::string text = table_text();
  auto object = LoadedObject::load(compile_or_fail(text, "kernel"));
  INFO(object.status().message());
  REQUIRE(object.ok());
  int64_t index = 7, out[3] = {};
  as_kernel((*object)->find("kernel"))(&index, 0, 1, 1, out);
  CHECK(out[0] == 49);
  CHECK(out[1] == 49);
  as_kernel((*object)->find("other"))(nullptr, 0, 1, 1, out);
  CHECK(out[0] == 77);
  CHECK((*object)->find("helper") == nullptr);
  CHECK((*object)->find("squares") == nullptr);
  CHECK((*object)->find("") == nullptr);

  CHECK(permissions_at((*object)->find("kernel")) == "r-xp");
  CHECK(permissions_at(reinterpret_cast<void*>(out[2])) == "r--p");
}

TEST_CASE("a name off the list is refused, and the message says which") {
  auto compiled = compile_for(kernel_text("  call void @system(ptr %params)", "declare void @system(ptr)\n"), "kernel",
                              host_cpu_architecture());
  REQUIRE(!compiled.ok());
  CHECK(compiled.status().message().find("'system'") != std::string::npos);

  // The loader refuses it too when the compiler was not asked: the call is renamed in the finished object.
  std::string body = "  %x = load float, ptr %params\n  %y = call float @tanhf(float %x)\n  store float %y, ptr %arena";
  std::string good = compile_or_fail(kernel_text(body, "declare float @tanhf(float)\n"), "kernel");
  REQUIRE(LoadedObject::load(good).ok());
  Status refused = LoadedObject::load(rename(good, "tanhf", "abort")).status();
  CHECK(refused.code() == Code::kInvalid);
  CHECK(refused.message().find("'abort'") != std::string::npos);
  CHECK(!LoadedObject::check(rename(good, "tanhf", "abort")).ok());
}

TEST_CASE("what a kernel has no business with is refused") {
  auto refused = [](const std::string& text, const std::string& because) {
    auto compiled = compile_for(text, "kernel", host_cpu_architecture());
    REQUIRE(!compiled.ok());
    CHECK(compiled.status().code() == Code::kCompile);
    CAPTURE(compiled.status().message());
    CHECK(compiled.status().message().find(because) != std::string::npos);
  };
  refused("@t = thread_local global i32 0\n" + kernel_text("  store i32 1, ptr @t"), "thread-local");
  refused("@g = global i32 5\n" + kernel_text("  store i32 1, ptr @g"), "writable");
  refused("@z = global i32 0\n" + kernel_text("  store i32 1, ptr @z"), "writable");
  refused(
      "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @c, ptr null "
      "}]\n"
      "define internal void @c() {\n  call void asm sideeffect \"nop\", \"\"()\n  ret void\n}\n" +
          kernel_text(""),
      "cannot be");
}

TEST_CASE("sections of zeros are zero") {
  std::string text = "@zeros = private constant [1000 x i64] zeroinitializer, align 64\n" + kernel_text(R"(
  %i = load i64, ptr %params
  %at = getelementptr i64, ptr @zeros, i64 %i
  %v = load volatile i64, ptr %at
  store i64 %v, ptr %arena)");
  auto object = LoadedObject::load(compile_or_fail(text, "kernel"));
  REQUIRE(object.ok());
  for (int64_t i : {0, 1, 999}) {
    int64_t out = -1;
    as_kernel((*object)->find("kernel"))(&i, 0, 1, 1, &out);
    CHECK(out == 0);
  }
}

TEST_CASE("objects for other machines and of other kinds are refused") {
  const std::string good = compile_or_fail(kernel_text(""), "kernel");
  auto with = [&](size_t offset, auto value) {
    std::string changed = good;
    std::memcpy(changed.data() + offset, &value, sizeof(value));
    return LoadedObject::load(changed).status();
  };
  CHECK(LoadedObject::load(good).ok());
  CHECK(!with(offsetof(Elf64_Ehdr, e_machine), Elf64_Half{EM_AARCH64}).ok());
  CHECK(!with(offsetof(Elf64_Ehdr, e_type), Elf64_Half{ET_DYN}).ok());
  CHECK(!with(EI_CLASS, static_cast<unsigned char>(ELFCLASS32)).ok());
  CHECK(!with(EI_DATA, static_cast<unsigned char>(ELFDATA2MSB)).ok());
  CHECK(!with(offsetof(Elf64_Ehdr, e_shnum), Elf64_Half{0}).ok());
  CHECK(!with(offsetof(Elf64_Ehdr, e_shoff), Elf64_Off{~0ull}).ok());
  CHECK(!with(offsetof(Elf64_Ehdr, e_shoff), Elf64_Off{good.size() - 8}).ok());
  CHECK(!with(offsetof(Elf64_Ehdr, e_shstrndx), Elf64_Half{0xffff}).ok());
}

// Changes one field of the first section header for which `wanted` holds.
template <class Wanted, class Change>
std::string change_section(std::string object, Wanted wanted, Change change) {
  Elf64_Ehdr header;
  std::memcpy(&header, object.data(), sizeof(header));
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    char* at = object.data() + header.e_shoff + i * sizeof(section);
    std::memcpy(&section, at, sizeof(section));
    if (!wanted(section)) continue;
    change(section);
    std::memcpy(at, &section, sizeof(section));
    return object;
  }
  FAIL("no such section");
  return object;
}

TEST_CASE("lies in section headers are found") {
  const std::string good = compile_or_fail(table_text(), "kernel");
  auto code = [](const Elf64_Shdr& s) { return s.sh_flags & SHF_EXECINSTR; };
  auto relocations = [](const Elf64_Shdr& s) { return s.sh_type == SHT_RELA; };
  auto symbols = [](const Elf64_Shdr& s) { return s.sh_type == SHT_SYMTAB; };
  auto refused = [&](auto wanted, auto change) {
    return !LoadedObject::load(change_section(good, wanted, change)).ok();
  };
  CHECK(refused(code, [](Elf64_Shdr& s) { s.sh_addralign = 3; }));
  CHECK(refused(code, [](Elf64_Shdr& s) { s.sh_addralign = uint64_t{1} << 40; }));
  CHECK(refused(code, [](Elf64_Shdr& s) { s.sh_size = ~0ull; }));
  CHECK(refused(code, [](Elf64_Shdr& s) { s.sh_offset = ~0ull - 4; }));
  CHECK(refused(code, [](Elf64_Shdr& s) { s.sh_flags |= SHF_WRITE; }));
  CHECK(refused(code, [](Elf64_Shdr& s) { s.sh_flags |= SHF_TLS; }));
  CHECK(refused(code, [](Elf64_Shdr& s) { s.sh_type = SHT_NOBITS; }));
  CHECK(refused(code, [](Elf64_Shdr& s) { s.sh_size = 1; }));  // relocations and symbols now lie outside
  CHECK(refused(code, [](Elf64_Shdr& s) { s.sh_name = 0x7fffffff; }));
  CHECK(refused(relocations, [](Elf64_Shdr& s) { s.sh_info = 0xffff; }));
  CHECK(refused(relocations, [](Elf64_Shdr& s) { s.sh_link = 0; }));
  CHECK(refused(relocations, [](Elf64_Shdr& s) { s.sh_entsize = 8; }));
  CHECK(refused(relocations, [](Elf64_Shdr& s) { s.sh_size -= 1; }));
  CHECK(refused(relocations, [](Elf64_Shdr& s) { s.sh_type = SHT_REL; }));
  CHECK(refused(symbols, [](Elf64_Shdr& s) { s.sh_link = 0; }));
  CHECK(refused(symbols, [](Elf64_Shdr& s) { s.sh_size = 24; }));
  CHECK(refused(symbols, [](Elf64_Shdr& s) { s.sh_type = SHT_NOTE; }));
}

TEST_CASE("huge zeros do not allocate") {
  // A section of zeros claims most of the address space without adding a byte to the file.
  std::string text = "@zeros = private constant [1000 x i64] zeroinitializer\n" + kernel_text(R"(
  %v = load volatile i64, ptr @zeros
  store i64 %v, ptr %arena)");
  std::string good = compile_or_fail(text, "kernel");
  auto constants = [](const Elf64_Shdr& s) {
    return (s.sh_flags & SHF_ALLOC) && !(s.sh_flags & SHF_EXECINSTR) && s.sh_size >= 8000;
  };
  CHECK(!LoadedObject::load(change_section(good, constants, [](Elf64_Shdr& s) {
           s.sh_type = SHT_NOBITS;
           s.sh_size = uint64_t{1} << 45;
         })).ok());
  CHECK(!LoadedObject::load(change_section(good, constants, [](Elf64_Shdr& s) {
           s.sh_type = SHT_NOBITS;
           s.sh_size = ~uint64_t{0} - 100;
         })).ok());
}

}  // namespace
}  // namespace kachel::runtime
