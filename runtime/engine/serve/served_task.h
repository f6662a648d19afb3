// A task in the worker: the kernel or program, tensors like those of the host, and the tuning's session over both.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/engine/programs/program_handle.h"
#include "runtime/engine/tuning/referenced_runner.h"
#include "runtime/engine/worker/task.h"

namespace kachel::runtime {

class ServedTask {
 public:
  // Gives the tensors memory, and contents to those whose contents are not copied.
  static Result<std::unique_ptr<ServedTask>> open(std::shared_ptr<Engine> engine, WorkerTask task);
  ~ServedTask();

  Status put(uint64_t param, uint64_t offset, std::string_view bytes);
  // Once all contents are there. The task's keys, as the worker sees them.
  Result<std::string> start();

  // REQUIRES of the rest: start() was ok, index < candidates().
  size_t candidates() const { return task_.candidates.size(); }
  ReferencedRunner& session() { return *session_; }
  // Makes it ready by what is `given` with it, else by compiling; then the plan is returned. Called from several
  // threads at once.
  Result<std::string> compile(size_t index, std::string_view given);

 private:
  ServedTask(std::shared_ptr<Engine> engine, Device& device, WorkerTask task)
      : engine_(std::move(engine)), device_(device), task_(std::move(task)) {}
  Status read_text();
  LaunchSettings settings() const;
  Status add_tensor(WorkerTensor& tensor);
  PlanBuilder::Request request(size_t index) const { return {device_, *model_, point_, task_.candidates[index]}; }

  std::shared_ptr<Engine> engine_;
  Device& device_;
  WorkerTask task_;
  std::shared_ptr<const KernelModel> model_;  // of a program, its header
  std::unique_ptr<ProgramHandle> program_;    // null: a kernel
  std::vector<void*> memory_;
  std::vector<TensorArg> tensors_;  // by parameter
  std::vector<Arg> args_;
  BoundArguments arguments_;
  Point point_;
  std::unique_ptr<ReferencedRunner> session_;
};

}  // namespace kachel::runtime
