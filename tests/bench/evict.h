// Puts the processor into the state in which other people's code leaves it: caches, translation buffers and branch
// predictors full of something else.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

class Evictor {
 public:
  // Touches `bytes` of data and runs through `bytes` of code at each call; the code on x86-64 only.
  explicit Evictor(size_t bytes) : data_(bytes) {
#ifdef __x86_64__
    code_bytes_ = bytes + 16;
    void* memory = mmap(nullptr, code_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("mmap");
    // A branch that depends on the argument and one that is always taken, four of each a cache line:
    // test dil, mask; jnz +2; nop; jmp +6; six bytes that nobody runs.
    auto* at = static_cast<uint8_t*>(memory);
    for (size_t i = 0; i < bytes / 16; ++i, at += 16) {
      const uint8_t group[16] = {
          0x40, 0xf6, 0xc7, static_cast<uint8_t>(1 + i * 7 % 255), 0x75, 0x02, 0x66, 0x90, 0xeb, 0x06, 0xcc, 0xcc, 0xcc,
          0xcc, 0xcc, 0xcc};
      std::memcpy(at, group, sizeof group);
    }
    *at = 0xc3;  // ret
    if (mprotect(memory, code_bytes_, PROT_READ | PROT_EXEC) != 0) fail("mprotect");
    code_ = reinterpret_cast<void (*)(int)>(memory);
#endif
  }
  ~Evictor() {
    if (code_) munmap(reinterpret_cast<void*>(code_), code_bytes_);
  }
  Evictor(const Evictor&) = delete;
  Evictor& operator=(const Evictor&) = delete;

  void operator()() {
    for (size_t at = 0; at < data_.size(); at += 64) {
      volatile uint8_t& byte = data_[at];
      byte = static_cast<uint8_t>(byte + 1);
    }
    turn_ = turn_ * 1103515245 + 12345;
    if (code_) code_(static_cast<int>(turn_ >> 16));
  }

 private:
  [[noreturn]] static void fail(const char* what) {
    std::perror(what);
    std::exit(1);
  }

  std::vector<uint8_t> data_;
  void (*code_)(int) = nullptr;
  size_t code_bytes_ = 0;
  uint32_t turn_ = 1;
};
