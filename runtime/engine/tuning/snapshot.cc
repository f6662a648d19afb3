#include "runtime/engine/tuning/snapshot.h"

#include <fmt/format.h>

namespace kachel::runtime {
namespace {

constexpr int64_t kAlign = 256;  // what facts ask of addresses divides this

}  // namespace

Snapshot::~Snapshot() {
  RelaxedCapture relaxed(device_);
  if (copied_) (void)wait();
  copies_.clear();
  copied_.reset();
  taken_bytes_ -= bytes_;
}

Result<std::unique_ptr<Snapshot>> Snapshot::take(Device& device, const ScratchCallbacks& scratch,
                                                 const KernelModel& model, const BoundArguments& arguments,
                                                 std::span<const Arg> args, const Room& room, void* stream) {
  int64_t bytes = 0;
  for (int index : model.tensors) bytes += arguments.tensors[index].bytes + 2 * kAlign;
  if (bytes > room.most_bytes)
    return Status(Code::kNoMemory,
                  fmt::format("copies of its arguments would take {} bytes, more than {}", bytes, room.most_bytes));
  if (room.taken_bytes.fetch_add(bytes) + bytes > room.most_bytes) {
    room.taken_bytes -= bytes;
    return Status(Code::kBusy, "other copies take the room");
  }
  std::unique_ptr<Snapshot> made(new Snapshot(device, room.taken_bytes, bytes));
  made->args_.assign(args.begin(), args.end());
  KACHEL_ASSIGN(made->copied_, device.create_timer());
  KACHEL_TRY(made->copied_->start(stream));
  for (int index : model.tensors) {
    const BoundTensor& from = arguments.tensors[index];
    const TensorArg& given = *args[static_cast<size_t>(index)].tensor;
    auto copy = std::make_unique<Copy>();
    KACHEL_ASSIGN(copy->memory, Workspace::allocate_lasting(device, scratch, from.bytes + kAlign));
    auto* begin = static_cast<char*>(copy->memory.get()) + reinterpret_cast<uintptr_t>(from.data) % kAlign;
    if (from.bytes > 0 && model.params[static_cast<size_t>(index)].direction != ir::Direction::kOut)
      KACHEL_TRY(device.copy(begin, from.data, static_cast<size_t>(from.bytes), stream));
    const auto rank = static_cast<size_t>(given.ndim);
    copy->tensor = given;
    copy->tensor.data = begin;
    copy->tensor.byte_offset = 0;
    copy->shape.assign(given.shape, given.shape + rank);
    copy->tensor.shape = copy->shape.data();
    if (given.strides) {
      copy->strides.assign(given.strides, given.strides + rank);
      copy->tensor.strides = copy->strides.data();
    }
    made->args_[static_cast<size_t>(index)].tensor = &copy->tensor;
    made->copies_.push_back(std::move(copy));
  }
  KACHEL_TRY(made->copied_->stop(stream));
  return made;
}

}  // namespace kachel::runtime
