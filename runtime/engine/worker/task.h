// A key that is to be tuned, in a form that another process can take up.
#pragma once
#include <functional>

#include "runtime/engine/specialise/keys.h"
#include "runtime/engine/worker/messages.h"

namespace kachel::runtime {

WorkerTask describe_task(const KernelModel& model, std::string text, const BoundArguments& arguments,
                         const std::vector<TunableValues>& candidates);

// Of the tensors and one more copy of what is written, as a tuning needs them; saturates.
int64_t task_bytes(const KernelModel& model, const BoundArguments& arguments);

// What makes samples and binaries of both processes the same thing: where these are equal, so are program, facts, key
// values, device, driver and lowering.
std::string task_keys(const KernelModel& model, const Point& point, const TunableValues& first,
                      const DeviceProperties& device);

// Hands out, piece by piece, the contents that the worker is to have. `stream`, which is waited for, is not captured.
using ContentsSink = std::function<Status(uint64_t param, uint64_t offset, std::string_view bytes)>;
Status read_contents(Device& device, const BoundArguments& arguments, const WorkerTask& task, void* stream,
                     const ContentsSink& sink);

}  // namespace kachel::runtime
