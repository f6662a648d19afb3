// The candidates of one tuning as the tuner sees them. The runtime implements this over a device, the tests over a
// simulated one. Candidates are named by their index in TuneRequest::candidates.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/status.h"
#include "tuner/cost_model.h"

namespace kachel::tuner {

// What is expected of a candidate before anything is compiled.
struct Forecast {
  double ns = std::numeric_limits<double>::quiet_NaN();  // NaN: nothing is known
  bool flawed = false;                                   // likely to have a flaw
  uint64_t code = 0;  // equal for candidates that come to the same code and launch; 0: not known
  Effort effort;
  size_t text_bytes = 0;  // of what is compiled: compiling takes the longer the more
};

// What a failure of a candidate means beyond the call that failed.
enum class Verdict {
  kFailed,    // what the status says; a later tuning may try again
  kCrashed,   // the process that tried it did not survive
  kTimedOut,  // it exceeded a limit, and was ended together with the process that tried it
  kNotTried,  // nothing was found out of it, nor will be by this runner
};

enum class Caches {
  kEvicted,  // the operands are in none, since more bytes were written than the last-level cache holds
  kAsLeft,   // by whatever ran last
  kRotated,  // in none, although launches follow each other: each has operands of its own
};

// kDeviceLost and kCancelled from any function end the whole tuning with that status; any other failure only ends the
// candidate. The runner owes the time limits: a call that never returns is a tuning that never returns.
class CandidateRunner {
 public:
  virtual ~CandidateRunner() = default;

  // In a small fraction of the time that compiling takes. Called from several threads at once. It changes the order in
  // which candidates are tried and so what a short budget comes to, never how they compare.
  virtual Forecast forecast([[maybe_unused]] size_t index) { return {}; }
  // What compile() is expected to take in nanoseconds; 0: no more than loading it; NaN: nothing is known.
  virtual double expected_compile_ns([[maybe_unused]] size_t index) { return std::numeric_limits<double>::quiet_NaN(); }
  // Makes the candidate ready to launch, from the store or by compiling. Called from several threads at once, for
  // different candidates. May be called for a candidate whose samples are known and that is to be measured again.
  virtual Status compile(size_t index) = 0;
  // What prepare() will want compiled, made beside the candidates; prepare() makes what is missing, and reports what
  // fails. Called once at most, from any thread, before prepare().
  virtual void compile_reference() {}

  // The remaining functions are called from the thread that called tune(), one at a time, after compile() has returned
  // ok for that candidate. While other candidates are being compiled, prepare() and check() alone are, and only where
  // the runner allows it.
  virtual bool checks_beside_compiling() const { return false; }

  // What the compiler holds against the candidate, a few words; "" if nothing. A candidate with a flaw is served only
  // if every one that works has one.
  virtual std::string flaw([[maybe_unused]] size_t index) { return {}; }
  // Once, before the first check: private copies of what the program writes, the generic lowering's output. A failure
  // ends the tuning, since without an oracle no candidate may win.
  virtual Status prepare() = 0;
  // Runs the candidate on private copies and compares what it wrote with the generic lowering's output. kLaunch and
  // kNoMemory say that it could not run; any other failure that its output is wrong, with where and by how much.
  virtual Status check(size_t index) = 0;
  // Called before every timed run: what the candidate reads is as the caller has it, and the device's caches are as
  // they are asked for (see measurement.h).
  virtual void prepare_run(Caches caches) = 0;
  // Asked once in a series, before its rounds, where runs are as short as `run_ns`: whether Caches::kRotated can be had
  // for them. A runner that has said so keeps to it.
  virtual bool rotate([[maybe_unused]] double run_ns) { return false; }
  // One launch; the device's own time for it in nanoseconds, without what prepare_run() takes. On caches as they are
  // left another launch may run ahead of it. With rotated operands the mean of several that follow each other.
  virtual Result<double> time_once_ns(size_t index) = 0;

  // Of the latest failure of compile, check or time_once_ns of that candidate.
  virtual Verdict verdict([[maybe_unused]] size_t index) const { return Verdict::kFailed; }
  // Since the last call: whoever was found to do harm, be it in prepare() or while another candidate was tried.
  struct Harm {
    size_t index;
    Verdict verdict;
    std::string how;
  };
  virtual std::vector<Harm> take_harms() { return {}; }
  // Samples in nanoseconds that somebody else has taken: asked for once in place of timed runs where
  // TuneRequest::own_benchmark says so.
  virtual Result<std::vector<double>> benchmark([[maybe_unused]] size_t index) {
    return internal("there is no benchmark of the host's");
  }
};

}  // namespace kachel::tuner
