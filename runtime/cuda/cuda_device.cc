#include "runtime/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "runtime/cuda/cuda_module.h"
#include "runtime/cuda/cuda_timer.h"
#include "runtime/cuda/nvrtc_target.h"

namespace kachel::runtime::cuda {
namespace {

// Where the driver names no L2, this is larger than any.
constexpr int64_t kUnknownL2Bytes = int64_t{128} << 20;

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value && *value != '0';
}

}  // namespace

Result<std::unique_ptr<Device>> CudaDevice::open(const DriverApi& api, int32_t id, const DeviceOptions& options) {
  RelaxedScope relaxed(api);
  int count = 0;
  KACHEL_DRIVER_TRY(api, api.device_get_count(&count), "cuDeviceGetCount");
  if (id < 0 || id >= count)
    return {Code::kNoDevice, fmt::format("there is no CUDA device {}: this process sees {} of them, counted from 0; "
                                         "nvidia-smi -L lists them, CUDA_VISIBLE_DEVICES hides some",
                                         id, count)};
  DeviceOrdinal ordinal = 0;
  KACHEL_DRIVER_TRY(api, api.device_get(&ordinal, id), "cuDeviceGet");
  KACHEL_ASSIGN(auto context, CudaContext::retain(api, ordinal));
  std::unique_ptr<CudaDevice> device(new CudaDevice(std::move(context), options));
  KACHEL_TRY(device->read_properties(id, options));
  return std::unique_ptr<Device>(std::move(device));
}

CudaDevice::~CudaDevice() {
  if (flush_buffer_) free(flush_buffer_);
  if (!pool_) return;
  CudaContext::Current current(*context_);
  if (current.status().ok()) (void)context_->api().mem_pool_destroy(pool_);
}

Status CudaDevice::read_properties(int32_t id, const DeviceOptions& options) {
  const DriverApi& api = context_->api();
  const DeviceOrdinal ordinal = context_->device();
  char name[256] = {};
  size_t memory_bytes = 0;
  int major = 0, minor = 0, multiprocessors = 0, warp = 0, threads = 0, shared = 0, l2 = 0, pools = 0;
  KACHEL_DRIVER_TRY(api, api.device_get_name(name, sizeof(name) - 1, ordinal), "cuDeviceGetName");
  KACHEL_DRIVER_TRY(api, api.device_total_mem(&memory_bytes, ordinal), "cuDeviceTotalMem");
  const struct {
    DeviceAttribute attribute;
    int* value;
  } wanted[] = {
      {DeviceAttribute::kComputeMajor, &major},
      {DeviceAttribute::kComputeMinor, &minor},
      {DeviceAttribute::kMultiprocessorCount, &multiprocessors},
      {DeviceAttribute::kWarpSize, &warp},
      {DeviceAttribute::kMaxThreadsPerBlock, &threads},
      {DeviceAttribute::kMaxSharedPerBlockOptin, &shared},
      {DeviceAttribute::kL2CacheSize, &l2},
  };
  for (const auto& [attribute, value] : wanted)
    KACHEL_DRIVER_TRY(api, api.device_get_attribute(value, attribute, ordinal), "cuDeviceGetAttribute");
  if (api.device_get_attribute(&pools, DeviceAttribute::kMemoryPoolsSupported, ordinal) != DriverResult::kSuccess)
    pools = 0;
  KACHEL_ASSIGN(properties_.instructions, chosen_instructions(10 * major + minor, std::getenv("KACHEL_INSTRUCTIONS")));
  properties_.tensor_maps = properties_.instructions >= 90 && api.tensor_map_encode && api.tensor_map_move;
  // What is lowered for sm_90 waits by itself. Graphs can have such launches since CUDA 12.3.
  properties_.overlapping_launches = properties_.instructions >= 90 && api.launch_kernel_ex &&
                                     api.cuda_version >= 12030 && !options.launches_apart &&
                                     !is_set("KACHEL_LAUNCHES_APART");
  properties_.bounded_waits = is_set("KACHEL_BOUNDED_WAITS");

  properties_.kind = DeviceKind::kCuda;
  properties_.id = id;
  properties_.name = name;
  properties_.architecture = device_architecture(major, minor);
  properties_.model = name;
  if (properties_.instructions < 10 * major + minor)
    properties_.model += fmt::format(", instructions of {}", properties_.instructions);
  if (properties_.bounded_waits) properties_.model += ", bounded waits";
  properties_.driver = api.version;
  properties_.compute_major = major;
  properties_.compute_minor = minor;
  properties_.multiprocessors = multiprocessors;
  properties_.warp_size = warp;
  properties_.max_threads_per_block = threads;
  properties_.shared_bytes_per_block = shared;
  properties_.l2_bytes = l2;
  properties_.memory_bytes = static_cast<int64_t>(memory_bytes);
  if (pools != 0) open_pool();
  return {};
}

Result<std::unique_ptr<DeviceModule>> CudaDevice::load(std::string_view binary) {
  return CudaModule::load(context_, properties_.shared_bytes_per_block, binary);
}

Result<void*> CudaDevice::create_stream() {
  CudaContext::Current current(*context_);
  KACHEL_TRY(current.status());
  StreamRef stream = nullptr;
  KACHEL_DRIVER_TRY(context_->api(), context_->api().stream_create(&stream, kStreamNonBlocking), "cuStreamCreate");
  return static_cast<void*>(stream);
}

void CudaDevice::destroy_stream(void* stream) {
  if (is_default_stream(stream)) return;
  CudaContext::Current current(*context_);
  if (current.status().ok()) (void)context_->api().stream_destroy(to_stream(stream));
}

Status CudaDevice::synchronize(void* stream) {
  CudaContext::Current current(*context_);
  KACHEL_TRY(current.status());
  return driver_status(context_->api(), context_->api().stream_synchronize(to_stream(stream)), "cuStreamSynchronize");
}

Result<bool> CudaDevice::is_capturing(void* stream) {
  const DriverApi& api = context_->api();
  CaptureStatus status = CaptureStatus::kNone;
  if (is_default_stream(stream)) {
    CudaContext::Current current(*context_);
    KACHEL_TRY(current.status());
    KACHEL_DRIVER_TRY(api, api.stream_is_capturing(to_stream(stream), &status), "cuStreamIsCapturing");
  } else {
    KACHEL_DRIVER_TRY(api, api.stream_is_capturing(to_stream(stream), &status), "cuStreamIsCapturing");
  }
  return status != CaptureStatus::kNone;
}

Result<std::unique_ptr<Device::Timer>> CudaDevice::create_timer() {
  return CudaTimer::create(context_);
}

// Twice the last level: half of it would still hold lines of the kernel before.
Status CudaDevice::flush_cache(void* stream) {
  const size_t bytes = 2 * (properties_.l2_bytes > 0 ? properties_.l2_bytes : kUnknownL2Bytes);
  void* buffer = nullptr;
  {
    std::lock_guard lock(flush_mutex_);
    if (!flush_buffer_) {
      KACHEL_ASSIGN(flush_buffer_, allocate(bytes));
    }
    buffer = flush_buffer_;
  }
  return fill(buffer, 0, bytes, stream);
}

int CudaDevice::enter_relaxed_capture() {
  CaptureMode mode = CaptureMode::kRelaxed;
  if (context_->api().thread_exchange_capture_mode(&mode) != DriverResult::kSuccess) mode = CaptureMode::kGlobal;
  return static_cast<int>(mode);
}

void CudaDevice::leave_relaxed_capture(int previous) {
  auto mode = static_cast<CaptureMode>(previous);
  (void)context_->api().thread_exchange_capture_mode(&mode);
}

}  // namespace kachel::runtime::cuda
