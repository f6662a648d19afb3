// Keeps exit() from pulling NVRTC's memory from under a compilation. A host may leave while an engine of its own still
// compiles in another thread (a garbage-collected one mostly does); the libraries' destructors then run beside the
// compiler and the process dies of SIGSEGV, its exit status lost.
//
// A handler, which exit() runs before those destructors, tells every compilation to stop, waits for them, and if one
// does not stop leaves at once with the exit status that was asked for. One gap is left, some milliseconds of the first
// compilation of a process: between a destructor that NVRTC registers then and our next poll.
#pragma once
#include <cstdint>

namespace kachel::runtime::cuda {

// Registers the handler with exit(). Handlers run last registered first, so ours must be younger than each destructor
// that NVRTC registers: while it is opened, and at a few points of the first compilation. Hence it is armed before
// NVRTC is opened (whose initialisers never end once exit() has begun), after, at each poll of a compilation, and at
// last, with `settled`, when one has succeeded; from then on it does nothing. Also pins this library in memory, since
// threads of it may be left running.
void arm_exit_guard(bool settled = false);

// Polled by the compiler's callback.
bool process_exits();

// Around every use of NVRTC, opening included. admitted() is false once the process exits; NVRTC must not be entered
// then.
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
