// A few lines of PTX over an array of words: what tests of the machine run.
#pragma once
#include <doctest/doctest.h>

#include <bit>
#include <string>
#include <vector>

#include "tests/lowering/ptx_machine.h"

namespace kachel::lowering::ptx_bench {

inline constexpr uint32_t kPoison = 0xA5A5A5A5;

// Registers: d0 is the address of the words, d1 that of the thread's own, r0 the thread's number, `shared` where shared
// memory begins.
inline constexpr const char* kHead = R"(
.reg .pred p<4>;
.reg .b16 h<4>;
.reg .b32 r<24>;
.reg .b64 d<6>;
.reg .f32 f<6>;
.reg .b32 shared;
mov.b32 shared, %0;
ld.param.b64 d0, [kachel_kernel_param_0+0];
mov.u32 r0, %%tid.x;
mad.wide.s32 d1, r0, 4, d0;
)";

struct Words {
  std::vector<uint32_t> words = std::vector<uint32_t>(512, kPoison);
  uint32_t threads = 32, blocks = 1;
  ThreadOrder order = ThreadOrder::kForward;
  int64_t budget = 10000;

  Status run(const std::string& body) {
    auto program = parse_ptx(kHead + body);
    if (!program.ok()) return program.status();
    PtxLaunch launch;
    launch.params = {std::bit_cast<int64_t>(words.data())};
    launch.memory = {{words.data(), 4 * words.size()}};
    launch.threads = threads;
    launch.blocks = blocks;
    launch.shared_bytes = 1024;
    launch.order = order;
    launch.budget = budget;
    return run_ptx(*program, launch);
  }
};

// What r1 holds behind the lines, of thread `thread`.
inline uint32_t result(const std::string& lines, size_t thread = 0) {
  Words memory;
  const Status status = memory.run(lines + "\nst.global.b32 [d1+0], r1;\n");
  CHECK_MESSAGE(status.ok(), status.message());
  return memory.words[thread];
}
// With a message that has this in it.
inline void failing(const std::string& lines, const char* message, uint32_t threads = 32) {
  Words memory;
  memory.threads = threads;
  const Status status = memory.run(lines);
  CHECK(status.code() == Code::kInternal);
  CHECK_MESSAGE(status.message().find(message) != std::string::npos, status.message());
}

}  // namespace kachel::lowering::ptx_bench
