// Damage as a disk or an editor of the store makes it. Nothing here runs a damaged kernel: the loader promises not to
// crash and not to reach outside of its inputs, which the address sanitizer checks; it cannot tell wrong code from
// right.
#include <algorithm>
#include <cstdint>
#include <memory>

#include "runtime/cpu/object_loader.h"
#include "tests/runtime/cpu/cpu_test_support.h"

namespace kachel::runtime {
namespace {

std::string make_object() {
  std::string text = "@table = private constant [4 x ptr] [ptr @a, ptr @b, ptr @a, ptr @b]\n" + kernel_text(R"(
  %x = load float, ptr %params
  %e = call float @expf(float %x)
  %s = call float @sinf(float %e)
  store float %s, ptr %arena
  %i = load i64, ptr %params
  %small = and i64 %i, 3
  %slot = getelementptr ptr, ptr @table, i64 %small
  %f = load ptr, ptr %slot
  call void %f(ptr %arena)
  store ptr @erff, ptr %arena)",
                                                                                                            R"(
define internal void @a(ptr %p) { store float 1.25, ptr %p ret void }
define internal void @b(ptr %p) { store float 2.25, ptr %p ret void }
declare float @expf(float)
declare float @sinf(float)
declare float @erff(float)
)");
  return compile_or_fail(text, "kernel");
}

// An exact copy on the heap, so that one byte too far is a report of the sanitizer.
bool loads(const std::string& bytes, size_t size) {
  std::unique_ptr<char[]> exact(new char[size]);
  std::copy_n(bytes.data(), size, exact.get());
  return LoadedObject::load({exact.get(), size}).ok();
}

TEST_CASE("an object cut off anywhere is refused") {
  std::string object = make_object();
  REQUIRE(loads(object, object.size()));
  // Section headers come last in what LLVM writes, so that no prefix is complete.
  for (size_t size = 0; size < object.size(); ++size) {
    CAPTURE(size);
    REQUIRE(!loads(object, size));
  }
}

TEST_CASE("one changed byte anywhere is survived") {
  const std::string object = make_object();
  int64_t refused = 0;
  for (size_t i = 0; i < object.size(); ++i)
    for (unsigned char flip : {0x01, 0x80, 0xff}) {
      std::string changed = object;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      refused += !loads(changed, changed.size());
    }
  CHECK(refused > 0);
}

TEST_CASE("random damage is survived") {
  const std::string object = make_object();
  uint64_t state = 0x9e3779b97f4a7c15;
  auto random = [&state] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  };
  for (int round = 0; round < 20'000; ++round) {
    std::string changed = object;
    for (uint64_t edits = 1 + random() % 8; edits > 0; --edits) {
      // Half of the edits are words of the kind that sizes and offsets are made of.
      size_t at = random() % changed.size();
      uint64_t value = random() % 3 == 0 ? ~uint64_t{0} >> random() % 64 : random() >> random() % 64;
      for (size_t byte = 0; byte < 1 + random() % 8 && at + byte < changed.size(); ++byte)
        changed[at + byte] = static_cast<char>(value >> 8 * byte);
    }
    (void)loads(changed, random() % 4 == 0 ? random() % (changed.size() + 1) : changed.size());
  }
}

}  // namespace
}  // namespace kachel::runtime
