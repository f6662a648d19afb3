#include "graphs.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace serve {

Graph::~Graph() {
  owner_->destroy_executable_(executable_);
}

void Graph::launch(void* stream) const {
  if (const int result = owner_->launch_(executable_, stream))
    throw std::runtime_error("cuGraphLaunch: error " + std::to_string(result));
}

std::unique_ptr<Graphs> Graphs::open(int32_t id) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return nullptr;
  std::unique_ptr<Graphs> graphs(new Graphs);
  bool complete = true;
  auto find = [&](const char* symbol, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    complete = complete && function;
  };
  find("cuInit", graphs->init_);
  find("cuDeviceGet", graphs->device_);
  find("cuDevicePrimaryCtxRetain", graphs->retain_);
  find("cuCtxSetCurrent", graphs->set_current_);
  find("cuStreamBeginCapture_v2", graphs->begin_);
  find("cuStreamEndCapture", graphs->end_);
  find("cuGraphInstantiateWithFlags", graphs->instantiate_);
  find("cuGraphLaunch", graphs->launch_);
  find("cuGraphExecDestroy", graphs->destroy_executable_);
  find("cuGraphDestroy", graphs->destroy_);
  int device = 0;
  void* context = nullptr;
  if (!complete || graphs->init_(0) || graphs->device_(&device, id) || graphs->retain_(&context, device) ||
      graphs->set_current_(context))
    return nullptr;
  return graphs;
}

std::unique_ptr<Graph> Graphs::capture(void* stream, const std::function<bool()>& launches) const {
  constexpr int kGlobal = 0;  // the strictest: no other thread may do what could spoil a capture; the engine's do not
  if (begin_(stream, kGlobal)) return nullptr;
  const bool all = launches();
  void *graph = nullptr, *executable = nullptr;
  const bool whole = end_(stream, &graph) == 0 && all;
  if (whole && instantiate_(&executable, graph, 0)) executable = nullptr;
  if (graph) destroy_(graph);
  return executable ? std::make_unique<Graph>(*this, executable) : nullptr;
}

}  // namespace serve
