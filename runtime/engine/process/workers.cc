#include "runtime/engine/process/workers.h"

#include <unistd.h>

#include "runtime/own_folder.h"

namespace kachel::runtime {

std::string find_worker(const std::string& path) {
  if (path.empty() || path.find('/') != path.npos) return path;
  const std::string own = own_folder() + "/";
  // The last one: a library in a folder of its architecture's.
  for (const char* folder : {"", "../bin/", "../../bin/"})
    if (::access((own + folder + path).c_str(), X_OK) == 0) return own + folder + path;
  return own + path;
}

Result<std::unique_ptr<Worker>> Workers::take(bool patient) {
  {
    std::lock_guard lock(mutex_);
    if (!unusable_.ok()) return unusable_;
    if (std::unique_ptr<Worker> kept = std::move(kept_[patient]); kept && kept->is_free()) return kept;
  }
  auto started =
      Worker::start(find_worker(options_.path), build_, std::chrono::nanoseconds(options_.hello_limit_ns), log_);
  if (started.ok()) return started;
  std::lock_guard lock(mutex_);
  unusable_ = started.status();
  return started;
}

void Workers::give_back(std::unique_ptr<Worker> worker, bool patient) {
  if (!worker->is_free()) return;
  std::lock_guard lock(mutex_);
  kept_[patient].swap(worker);
}

void Workers::clear() {
  std::lock_guard lock(mutex_);
  for (std::unique_ptr<Worker>& kept : kept_) kept.reset();
}

}  // namespace kachel::runtime
