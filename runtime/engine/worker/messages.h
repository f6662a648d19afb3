// What a host says to its worker and hears from it. Each call has one answer, which begins with a status.
//
//   kOpen      a task                         the engine and the device are there, the tensors have memory
//   kContents  u64 parameter, offset, bytes   these are there
//   kStart                                    everything is; keys of the task as the worker sees it, u64 attempts
//                                             at a reference (TuneSession), of which the first is worth a try
//   kCompile   u64 index, plan or ""          the flaw, and the plan where it was given none; of a program, entries of
//                                             the host's store, and nothing in return
//   kCompileReference                         what the first attempt at a reference needs is compiled, if it can be
//   kRefer     u64 attempt                    the reference is made
//   kCheck     u64 index                      it computes what the reference does
//   kMeasure   u64 index                      f64 nanoseconds of one run on evicted caches
//   kMeasureAgain   u64 index                 f64 nanoseconds of one run on caches as they are
//   kRotate    f64 nanoseconds of a run       u8: whether runs on rotated operands can be had
//   kMeasureRotated   u64 index               f64 nanoseconds, the mean of several of these
//   kClose                                    nothing is left of the task
//
// Several kCompile and kCompileReference may be under way at once, anything else by itself.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/device.h"
#include "runtime/engine/bind/argument_binder.h"
#include "support/bytes.h"

namespace kachel::runtime {

// Types of messages; 0 and 1 are the process's own (worker.h).
enum class WorkerCall : uint8_t {
  kOpen = 2,
  kContents,
  kStart,
  kCompile,
  kCompileReference,
  kRefer,
  kCheck,
  kMeasure,
  kMeasureAgain,
  kRotate,
  kMeasureRotated,
  kClose
};

// A tensor without its contents. Its copy lies at the same place within an alignment, so that the same facts hold.
struct WorkerTensor {
  static constexpr uint64_t kAlign = 256;

  ir::DType dtype = ir::DType::F32;
  std::vector<int64_t> shape, strides;  // in elements
  uint64_t bytes = 0;                   // from the first element to the end of the last
  uint64_t address = 0;                 // modulo kAlign
  bool read = true;                     // the kernel reads it
};

struct WorkerArgument {
  std::optional<WorkerTensor> tensor;
  uint64_t scalar = 0;  // else, as in BoundArguments
};

// One key to be tuned.
struct WorkerTask {
  DeviceOptions devices;
  int64_t compile_limit_ns = 0;
  int64_t spare_bytes = 0;  // TuneSession::Setup
  DeviceRef device;
  std::string text;  // a module with the kernel alone, or with one program and its kernels
  std::vector<ConstValue> consts;
  std::vector<WorkerArgument> arguments;  // by parameter
  std::vector<TunableValues> candidates;

  // Integers decide what a kernel does: those of its inputs are copied. Floats are made up.
  static bool copies(const WorkerTensor& tensor) { return tensor.read && !ir::is_float(tensor.dtype); }
};

std::string encode_task(const WorkerTask& task);
// Nothing for bytes that encode_task cannot have written.
std::optional<WorkerTask> decode_task(std::string_view bytes);

struct WorkerAnswer {
  Status status;
  std::string body;
};
std::string encode_answer(const WorkerAnswer& answer);
std::optional<WorkerAnswer> decode_answer(std::string_view bytes);

}  // namespace kachel::runtime
