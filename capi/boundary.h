// The C boundary, once: no exception crosses it, failures become a status and an error object, and structs that grow
// are read and written by their struct_size.
#pragma once
#include <cstddef>
#include <cstring>
#include <new>
#include <string>
#include <type_traits>

#include "capi/kachel.h"
#include "support/status.h"

struct kachel_error {
  kachel_status status = KACHEL_E_INTERNAL;
  std::string message, log;
};

namespace kachel::capi {

// Makes the error object where the caller wants one; without memory for it, a static one.
[[gnu::cold]] kachel_status fail(const Status& status, kachel_error** err) noexcept;
[[gnu::cold]] kachel_status fail_current_exception(kachel_error** err) noexcept;

inline kachel_status ok_or(const Status& status, kachel_error** err) noexcept {
  if (status.ok()) [[likely]]
    return KACHEL_OK;
  return fail(status, err);
}

// Runs `body`, which returns a Status, behind the one catch.
template <class Body>
kachel_status guarded(kachel_error** err, Body&& body) noexcept {
  try {
    return ok_or(body(), err);
  } catch (...) {
    return fail_current_exception(err);
  }
}

// For getters: `fallback` where `body` throws.
template <class T, class Body>
T guarded_value(T fallback, Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return fallback;
  }
}

[[gnu::cold]] inline Status missing(const char* what) {
  return invalid(std::string("`") + what + "` is NULL; pass a valid pointer");
}

// A caller's struct, as this library knows it: what the caller's version lacks is zero. Null gives all zero. kInvalid
// for a size that cannot be right, kUnsupported for fields that this library does not know and that are not zero.
Status check_struct_size(size_t given, size_t known, const void* bytes, const char* name);
template <class T>
Status read_struct(const T* given, T& out, const char* name) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memset(static_cast<void*>(&out), 0, sizeof(T));
  if (!given) return {};
  KACHEL_TRY(check_struct_size(given->struct_size, sizeof(T), given, name));
  std::memcpy(static_cast<void*>(&out), given, given->struct_size < sizeof(T) ? given->struct_size : sizeof(T));
  return {};
}
// The other way: fills what fits into the caller's struct, zeroes what only a newer library would know, and leaves
// struct_size as it is.
template <class T>
Status write_struct(T* out, T value, const char* name) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (!out) return missing(name);
  const size_t size = out->struct_size;
  KACHEL_TRY(check_struct_size(size, size, out, name));
  value.struct_size = size;
  std::memcpy(static_cast<void*>(out), &value, size < sizeof(T) ? size : sizeof(T));
  if (size > sizeof(T)) std::memset(reinterpret_cast<char*>(out) + sizeof(T), 0, size - sizeof(T));
  return {};
}

}  // namespace kachel::capi
