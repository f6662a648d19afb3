#include "runtime/engine/worker/messages.h"

namespace kachel::runtime {
namespace {

void put_numbers(ByteWriter& out, const std::vector<int64_t>& numbers) {
  out.put<uint64_t>(numbers.size());
  for (int64_t number : numbers) out.put(number);
}
std::vector<int64_t> get_numbers(ByteReader& in) {
  std::vector<int64_t> numbers(in.get_count(sizeof(int64_t)));
  for (int64_t& number : numbers) number = in.get<int64_t>();
  return numbers;
}

void put_argument(ByteWriter& out, const WorkerArgument& argument) {
  out.put<uint8_t>(argument.tensor.has_value());
  if (!argument.tensor) return out.put(argument.scalar);
  const WorkerTensor& tensor = *argument.tensor;
  out.put(static_cast<uint8_t>(tensor.dtype));
  put_numbers(out, tensor.shape);
  put_numbers(out, tensor.strides);
  out.put(tensor.bytes);
  out.put(tensor.address);
  out.put<uint8_t>(tensor.read);
}
bool get_argument(ByteReader& in, WorkerArgument& argument) {
  if (in.get<uint8_t>() == 0) {
    argument.scalar = in.get<uint64_t>();
    return in.ok();
  }
  WorkerTensor& tensor = argument.tensor.emplace();
  const auto dtype = in.get<uint8_t>();
  if (dtype >= ir::kDTypeCount) return false;
  tensor.dtype = static_cast<ir::DType>(dtype);
  tensor.shape = get_numbers(in);
  tensor.strides = get_numbers(in);
  tensor.bytes = in.get<uint64_t>();
  tensor.address = in.get<uint64_t>();
  tensor.read = in.get<uint8_t>() != 0;
  return in.ok() && tensor.shape.size() == tensor.strides.size() && tensor.address < WorkerTensor::kAlign &&
         tensor.bytes <= static_cast<uint64_t>(kMaxTensorBytes);
}

}  // namespace

std::string encode_task(const WorkerTask& task) {
  ByteWriter out;
  out.put_bytes(task.devices.nvrtc_path);
  out.put_bytes(task.devices.cpu_compiler_path);
  out.put(task.devices.cpu_threads);
  out.put<uint8_t>(task.devices.launches_apart);
  out.put(task.compile_limit_ns);
  out.put(task.spare_bytes);
  out.put(task.device.type);
  out.put(task.device.id);
  out.put_bytes(task.text);
  out.put<uint64_t>(task.consts.size());
  for (const ConstValue& value : task.consts) {
    out.put_bytes(value.name);
    out.put(value.i);
    out.put(value.f);
  }
  out.put<uint64_t>(task.arguments.size());
  for (const WorkerArgument& argument : task.arguments) put_argument(out, argument);
  out.put<uint64_t>(task.candidates.size());
  for (const TunableValues& values : task.candidates) put_numbers(out, values);
  return out.take();
}

std::optional<WorkerTask> decode_task(std::string_view bytes) {
  ByteReader in(bytes);
  WorkerTask task;
  task.devices.nvrtc_path = in.get_bytes();
  task.devices.cpu_compiler_path = in.get_bytes();
  task.devices.cpu_threads = in.get<int32_t>();
  task.devices.launches_apart = in.get<uint8_t>() != 0;
  task.compile_limit_ns = in.get<int64_t>();
  task.spare_bytes = in.get<int64_t>();
  task.device.type = in.get<int32_t>();
  task.device.id = in.get<int32_t>();
  task.text = in.get_bytes();
  task.consts.resize(in.get_count(3 * sizeof(uint64_t)));
  for (ConstValue& value : task.consts) {
    value.name = in.get_bytes();
    value.i = in.get<int64_t>();
    value.f = in.get<double>();
  }
  task.arguments.resize(in.get_count(1 + sizeof(uint64_t)));
  for (WorkerArgument& argument : task.arguments)
    if (!get_argument(in, argument)) return std::nullopt;
  task.candidates.resize(in.get_count(sizeof(uint64_t)));
  for (TunableValues& values : task.candidates) values = get_numbers(in);
  if (!in.at_end() || task.arguments.size() > static_cast<size_t>(kMaxParams)) return std::nullopt;
  return task;
}

std::string encode_answer(const WorkerAnswer& answer) {
  ByteWriter out;
  out.put(static_cast<int32_t>(answer.status.code()));
  out.put_bytes(answer.status.message());
  out.put_bytes(answer.status.log());
  out.put_bytes(answer.body);
  return out.take();
}

std::optional<WorkerAnswer> decode_answer(std::string_view bytes) {
  ByteReader in(bytes);
  const auto code = in.get<int32_t>();
  const std::string message(in.get_bytes()), log(in.get_bytes());
  WorkerAnswer answer;
  answer.body = in.get_bytes();
  if (!in.at_end() || code < 0 || code > static_cast<int32_t>(Code::kInternal)) return std::nullopt;
  answer.status = {static_cast<Code>(code), message, log};
  return answer;
}

}  // namespace kachel::runtime
