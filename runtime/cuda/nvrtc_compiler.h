// CUDA C++ to a cubin through NVRTC. Needs no GPU and no driver.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "runtime/cuda/nvrtc_api.h"
#include "runtime/device.h"

namespace kachel::runtime::cuda {

// Compilations run in parallel. NVRTC's own cache stays off: the store is ours, NVRTC's would start the CUDA driver in
// the middle of a compilation, and a hit in it loses the log.
class NvrtcCompiler : public Compiler {
 public:
  // explicit_path as in open_nvrtc.
  explicit NvrtcCompiler(std::string explicit_path) : explicit_path_(std::move(explicit_path)) {}

  // kCompile with NVRTC's log where it refuses the text, and where the time limit is exceeded. With a limit the work is
  // done on a thread of its own: NVRTC asks at a few points only whether to go on, and one pass over a pathological
  // text can take minutes. Such a thread is left to end by itself when NVRTC next asks.
  Result<CompileResult> compile(const CompileRequest& request) override;
  std::string version() const override;
  bool opened() const override { return api_.load() != nullptr; }

 private:
  Result<const NvrtcApi*> open();

  const std::string explicit_path_;
  std::atomic<const NvrtcApi*> api_{nullptr};
};

}  // namespace kachel::runtime::cuda
