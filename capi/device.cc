// Devices, memory and streams. Whatever the host captures in other threads survives these calls.
#include <fmt/format.h>

#include <algorithm>

#include "capi/boundary.h"
#include "capi/handles.h"

using namespace kachel;

namespace {

template <size_t N>
void put_text(char (&out)[N], const std::string& text) {
  const size_t size = std::min(text.size(), N - 1);
  std::memcpy(out, text.data(), size);
  std::memset(out + size, 0, N - size);
}

Result<runtime::Device*> device_of(kachel_engine* engine, kachel_device device) {
  if (!engine) return capi::missing("engine");
  return engine->engine->devices().get({device.type, device.id});
}

}  // namespace

kachel_status kachel_engine_device_count(kachel_engine* engine, int32_t* out) {
  if (!engine || !out) return KACHEL_E_INVALID;
  *out = static_cast<int32_t>(engine->engine->devices().list().size());
  return KACHEL_OK;
}

kachel_status kachel_engine_device_info(kachel_engine* engine, int32_t index, kachel_device_info* out,
                                        kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!engine) return capi::missing("engine");
    const auto& list = engine->engine->devices().list();
    if (index < 0 || static_cast<size_t>(index) >= list.size())
      return invalid(fmt::format("device {} is not one of the {} there are; use 0 to {}", index, list.size(),
                                 static_cast<int64_t>(list.size()) - 1));
    const runtime::DeviceRef ref = list[static_cast<size_t>(index)];
    KACHEL_ASSIGN(runtime::Device * device, engine->engine->devices().get(ref));
    const runtime::DeviceProperties& properties = device->properties();
    kachel_device_info info{};
    info.device = {ref.type, ref.id};
    put_text(info.name, properties.name);
    put_text(info.architecture, properties.architecture);
    put_text(info.driver, properties.driver);
    put_text(info.compiler, device->compiler().version());
    info.multiprocessors = properties.multiprocessors;
    info.compute_major = properties.compute_major;
    info.compute_minor = properties.compute_minor;
    info.memory_bytes = properties.memory_bytes;
    info.shared_bytes_per_block = properties.shared_bytes_per_block;
    info.l2_bytes = properties.l2_bytes;
    return capi::write_struct(out, info, "out");
  });
}

kachel_status kachel_memory_alloc(kachel_engine* engine, kachel_device device, size_t size, void** out,
                                  kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!out) return capi::missing("out");
    KACHEL_ASSIGN(runtime::Device * found, device_of(engine, device));
    runtime::RelaxedCapture relaxed(*found);
    KACHEL_ASSIGN(*out, found->allocate(size));
    return {};
  });
}

kachel_status kachel_memory_free(kachel_engine* engine, kachel_device device, void* pointer) {
  return capi::guarded(nullptr, [&]() -> Status {
    if (!pointer) return {};
    KACHEL_ASSIGN(runtime::Device * found, device_of(engine, device));
    runtime::RelaxedCapture relaxed(*found);
    found->free(pointer);
    return {};
  });
}

kachel_status kachel_memory_copy(kachel_engine* engine, kachel_device device, void* to, const void* from, size_t size,
                                 void* stream, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    KACHEL_ASSIGN(runtime::Device * found, device_of(engine, device));
    if (size == 0) return {};
    if (!to) return capi::missing("to");
    if (!from) return capi::missing("from");
    runtime::RelaxedCapture relaxed(*found);
    KACHEL_TRY(found->copy(to, from, size, stream));
    return stream ? Status() : found->synchronize(nullptr);
  });
}

kachel_status kachel_stream_create(kachel_engine* engine, kachel_device device, void** out, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!out) return capi::missing("out");
    KACHEL_ASSIGN(runtime::Device * found, device_of(engine, device));
    runtime::RelaxedCapture relaxed(*found);
    KACHEL_ASSIGN(*out, found->create_stream());
    return {};
  });
}

kachel_status kachel_stream_synchronize(kachel_engine* engine, kachel_device device, void* stream, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    KACHEL_ASSIGN(runtime::Device * found, device_of(engine, device));
    runtime::RelaxedCapture relaxed(*found);
    return engine->engine->services().noticed(found->synchronize(stream));
  });
}

void kachel_stream_release(kachel_engine* engine, kachel_device device, void* stream) {
  (void)capi::guarded(nullptr, [&]() -> Status {
    if (!stream) return {};
    KACHEL_ASSIGN(runtime::Device * found, device_of(engine, device));
    found->destroy_stream(stream);
    return {};
  });
}
