#include "runtime/engine/tuning/output_copies.h"

#include <fmt/format.h>

#include <algorithm>

namespace kachel::runtime {
namespace {

int64_t sampled_bytes(const OutputSample& sample) {
  int64_t bytes = 0;
  for (const ByteRange& place : sample.places) bytes += place.size;
  return bytes;
}

}  // namespace

Status OutputCopies::open(Device& device, const ScratchCallbacks& scratch, const KernelModel& model,
                          BoundArguments* arguments, void* stream) {
  device_ = &device, model_ = &model, stream_ = stream;
  int64_t gathered = 0;
  for (int index : model.tensors) {
    const ir::Direction direction = model.params[index].direction;
    if (direction == ir::Direction::kIn) continue;
    BoundTensor& tensor = arguments->tensors[index];
    Output output;
    output.param = index;
    output.restore_always = direction == ir::Direction::kInOut;
    output.type = tensor.dtype;
    output.bytes = tensor.bytes;
    output.original = tensor.data;
    KACHEL_ASSIGN(output.copy, Workspace::allocate(device, scratch, std::max<int64_t>(tensor.bytes, 1), stream));
    tensor.data = static_cast<char*>(output.copy.get());
    output.sample.places = pieces_to_compare(output.bytes);
    if (output.sample.places.size() > 1) gathered = std::max(gathered, sampled_bytes(output.sample));
    outputs_.push_back(std::move(output));
  }
  if (gathered == 0) return {};
  if (Result<Workspace> room = Workspace::allocate(device, scratch, gathered, stream); room.ok())
    gathered_ = *std::move(room);
  return {};
}

void OutputCopies::close() {
  outputs_.clear();
  gathered_.reset();
}

Status OutputCopies::restore(bool inout_only) const {
  for (const Output& output : outputs_) {
    if ((inout_only && !output.restore_always) || output.bytes == 0) continue;
    KACHEL_TRY(device_->copy(output.copy.get(), output.original, static_cast<size_t>(output.bytes), stream_));
  }
  return {};
}

// A copy to memory of the host's that is not pinned takes some 16 us whatever its size, one within the device 2: pieces
// are put side by side there.
Status OutputCopies::fetch(Output* output) {
  OutputSample& sample = output->sample;
  sample.bytes.resize(static_cast<size_t>(sampled_bytes(sample)));
  if (sample.bytes.empty()) return {};
  const auto* from = static_cast<const char*>(output->copy.get());
  auto* together = static_cast<char*>(gathered_.get());
  const bool gather = sample.places.size() > 1 && together;
  char* to = gather ? together : sample.bytes.data();
  for (const ByteRange& place : sample.places) {
    KACHEL_TRY(device_->copy(to, from + place.first, static_cast<size_t>(place.size), stream_));
    to += place.size;
  }
  if (gather) KACHEL_TRY(device_->copy(sample.bytes.data(), together, sample.bytes.size(), stream_));
  return device_->synchronize(stream_);
}

Status OutputCopies::keep() {
  for (Output& output : outputs_) {
    KACHEL_TRY(fetch(&output));
    output.reference = OutputReference(output.type, output.sample);
    output.passed.clear();
  }
  return {};
}

// Configurations that add up in one order, as most of those do that differ in their tiles alone, write the same bytes.
Status OutputCopies::compare(const Roundings& roundings, const std::string& configuration,
                             const std::vector<Apart>& spare) {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    KACHEL_TRY(fetch(&output));
    if (output.sample.bytes == output.passed) continue;
    Tolerance tolerance = tolerance_for(output.type, roundings);
    if (!spare.empty()) tolerance.absolute = std::max(tolerance.absolute, spare[i].distance);
    const Mismatch mismatch = output.reference.compare(tolerance, output.sample);
    if (mismatch.share() > (spare.empty() ? 0 : spare[i].share))
      return invalid(
          fmt::format("`{}` of configuration {}: {}", model_->params[output.param].name, configuration, mismatch.what));
    output.passed.swap(output.sample.bytes);
  }
  return {};
}

Result<std::vector<Apart>> OutputCopies::apart(const Roundings& roundings) {
  std::vector<Apart> all;
  for (Output& output : outputs_) {
    KACHEL_TRY(fetch(&output));
    all.push_back({output.reference.compare(tolerance_for(output.type, roundings), output.sample).share(),
                   output.reference.distance(output.sample)});
  }
  return all;
}

}  // namespace kachel::runtime
