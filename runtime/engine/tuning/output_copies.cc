#include "runtime/engine/tuning/output_copies.h"

#include <fmt/format.h>

#include <algorithm>

namespace kachel::runtime {

Status OutputCopies::open(Device& device, const ScratchCallbacks& scratch, const KernelModel& model,
                          BoundArguments* arguments, void* stream) {
  device_ = &device, model_ = &model, stream_ = stream;
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
    outputs_.push_back(std::move(output));
  }
  return {};
}

Status OutputCopies::restore(bool inout_only) const {
  for (const Output& output : outputs_) {
    if ((inout_only && !output.restore_always) || output.bytes == 0) continue;
    KACHEL_TRY(device_->copy(output.copy.get(), output.original, static_cast<size_t>(output.bytes), stream_));
  }
  return {};
}

Result<std::vector<OutputPiece>> OutputCopies::fetch(const Output& output) const {
  std::vector<OutputPiece> pieces;
  if (output.bytes == 0) return pieces;
  for (const ByteRange& range : pieces_to_compare(output.bytes)) {
    OutputPiece& piece = pieces.emplace_back();
    piece.first_byte = range.first;
    piece.bytes.resize(static_cast<size_t>(range.size));
  }
  for (OutputPiece& piece : pieces)
    KACHEL_TRY(device_->copy(piece.bytes.data(), static_cast<const char*>(output.copy.get()) + piece.first_byte,
                             piece.bytes.size(), stream_));
  KACHEL_TRY(device_->synchronize(stream_));
  return pieces;
}

Status OutputCopies::keep() {
  for (Output& output : outputs_) {
    KACHEL_ASSIGN(std::vector<OutputPiece> pieces, fetch(output));
    output.reference = OutputReference(output.type, std::move(pieces));
  }
  return {};
}

Status OutputCopies::compare(const Roundings& roundings, const std::string& configuration,
                             const std::vector<Apart>& spare) const {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Output& output = outputs_[i];
    KACHEL_ASSIGN(const std::vector<OutputPiece> pieces, fetch(output));
    Tolerance tolerance = tolerance_for(output.type, roundings);
    if (!spare.empty()) tolerance.absolute = std::max(tolerance.absolute, spare[i].distance);
    const Mismatch mismatch = output.reference.compare(tolerance, pieces);
    if (mismatch.share() > (spare.empty() ? 0 : spare[i].share))
      return invalid(
          fmt::format("`{}` of configuration {}: {}", model_->params[output.param].name, configuration, mismatch.what));
  }
  return {};
}

Result<std::vector<Apart>> OutputCopies::apart(const Roundings& roundings) const {
  std::vector<Apart> all;
  for (const Output& output : outputs_) {
    KACHEL_ASSIGN(const std::vector<OutputPiece> pieces, fetch(output));
    all.push_back({output.reference.compare(tolerance_for(output.type, roundings), pieces).share(),
                   output.reference.distance(pieces)});
  }
  return all;
}

}  // namespace kachel::runtime
