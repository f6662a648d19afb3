// CUDA graphs of a step: what a server replays instead of launching kernel by kernel. The driver is opened at run time,
// so that the same program runs where there is none.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace serve {

class Graphs;

// What was captured; released by its destructor.
class Graph {
 public:
  Graph(const Graphs& owner, void* executable) : owner_(&owner), executable_(executable) {}
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(void* stream) const;  // throws where the driver refuses

 private:
  const Graphs* owner_;
  void* executable_;
};

class Graphs {
 public:
  // Makes the primary context of CUDA device `id` current for the calling thread, which alone may use the object.
  // Null where there is no driver with graphs.
  static std::unique_ptr<Graphs> open(int32_t id);

  // What `launches` puts on the stream. Null if a launch reports that it cannot be captured (it returns false) or the
  // driver gives the capture up; nothing has run then.
  std::unique_ptr<Graph> capture(void* stream, const std::function<bool()>& launches) const;

 private:
  friend class Graph;
  Graphs() = default;

  int (*init_)(unsigned) = nullptr;
  int (*device_)(int* device, int ordinal) = nullptr;
  int (*retain_)(void** context, int device) = nullptr;
  int (*set_current_)(void* context) = nullptr;
  int (*begin_)(void* stream, int mode) = nullptr;
  int (*end_)(void* stream, void** graph) = nullptr;
  int (*instantiate_)(void** executable, void* graph, unsigned long long flags) = nullptr;
  int (*launch_)(void* executable, void* stream) = nullptr;
  int (*destroy_executable_)(void* executable) = nullptr;
  int (*destroy_)(void* graph) = nullptr;
};

}  // namespace serve
