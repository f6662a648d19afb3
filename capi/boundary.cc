#include "capi/boundary.h"

#include <fmt/format.h>

#include <exception>

namespace kachel::capi {
namespace {

// A struct this large is not one of ours; its size was not set.
constexpr size_t kAbsurdSize = 1 << 16;

kachel_error* out_of_memory() {
  static kachel_error error{KACHEL_E_NO_MEMORY, "out of memory", ""};  // short enough to need no allocation
  return &error;
}

}  // namespace

kachel_status fail(const Status& status, kachel_error** err) noexcept {
  const auto code = static_cast<kachel_status>(status.code());
  if (!err) return code;
  try {
    *err = new kachel_error{code, status.message(), status.log()};
  } catch (...) {
    *err = out_of_memory();
    return KACHEL_E_NO_MEMORY;
  }
  return code;
}

kachel_status fail_current_exception(kachel_error** err) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    if (err) *err = out_of_memory();
    return KACHEL_E_NO_MEMORY;
  } catch (const std::exception& exception) {
    try {
      return fail(internal(fmt::format("a defect of the library: {}", exception.what())), err);
    } catch (...) {
    }
  } catch (...) {
  }
  if (err) *err = out_of_memory();
  return KACHEL_E_INTERNAL;
}

Status check_struct_size(size_t given, size_t known, const void* bytes, const char* name) {
  if (given < sizeof(size_t) || given > kAbsurdSize)
    return invalid(fmt::format("`{}` has struct_size {}; set it to sizeof(the struct) before the call", name, given));
  for (size_t at = known; at < given; ++at)
    if (static_cast<const unsigned char*>(bytes)[at] != 0)
      return unsupported(
          fmt::format("`{}` sets a field at byte {} that this library ({} bytes) does not know; use a newer "
                      "library, or leave the field zero",
                      name, at, known));
  return {};
}

}  // namespace kachel::capi

using namespace kachel;

kachel_status kachel_error_status(const kachel_error* error) {
  return error ? error->status : KACHEL_OK;
}
const char* kachel_error_message(const kachel_error* error) {
  return error ? error->message.c_str() : "";
}
const char* kachel_error_log(const kachel_error* error) {
  return error ? error->log.c_str() : "";
}
void kachel_error_release(kachel_error* error) {
  if (error != capi::out_of_memory()) delete error;
}
