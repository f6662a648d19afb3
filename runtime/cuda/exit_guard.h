// Keeps exit() from pulling NVRTC's memory from under a compilation. A host may leave while an engine of its own still
// compiles in another thread (a garbage-collected one mostly does); the libraries' destructors then run beside the
// compiler and the process dies of SIGSEGV, its exit status lost.
//
// A handler, which exit() runs before those destructors, tells every compilation to stop, waits for them, and if one
// does not stop leaves at once with the exit status that was asked for.
#pragma once
#include <cstdint>

namespace kachel::runtime::cuda {

// Registers the handler with exit(). Handlers run last registered first: call it after NVRTC has been opened, and again
// after the first compilation, which may register destructors of its own. Cheap from the third call on. Also pins this
// library in memory, since threads of it may be left running.
void arm_exit_guard();

// Polled by the compiler's callback.
bool process_exits();

// Around every use of NVRTC. admitted() is false once the process exits; NVRTC must not be entered then.
class ExitGuardScope {
 public:
  ExitGuardScope();
  ~ExitGuardScope();
  ExitGuardScope(const ExitGuardScope&) = delete;
  ExitGuardScope& operator=(const ExitGuardScope&) = delete;
  bool admitted() const { return admitted_; }

 private:
  bool admitted_ = false;
};

}  // namespace kachel::runtime::cuda
