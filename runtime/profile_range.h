// What the engine does besides launching, as ranges in a profiler's timeline: NVTX, domain "kachel". Where the build
// had no NVTX headers, or no profiler has injected itself, a range costs a test of a pointer.
#pragma once
#include <fmt/format.h>

#include <string>
#include <utility>

namespace kachel::runtime {

// Whether a profiler listens; the first call asks NVTX, which then loads what the profiler wants loaded.
bool profiling();

// From its construction to its destruction, on one thread. Nests.
class ProfileRange {
 public:
  template <class... Arguments>
  explicit ProfileRange(fmt::format_string<Arguments...> text, Arguments&&... arguments) : open_(profiling()) {
    if (open_) begin(fmt::format(text, std::forward<Arguments>(arguments)...));
  }
  ~ProfileRange() {
    if (open_) end();
  }
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

 private:
  static void begin(const std::string& text);
  static void end();
  const bool open_;
};

}  // namespace kachel::runtime
