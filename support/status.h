// Errors as values. Every layer returns Status or Result<T>; nothing below capi throws for bad input.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kachel {

// The categories of kachel_status in capi/kachel.h, with the same values.
enum class Code : int32_t {
  kOk = 0,
  kInvalid,      // the caller's text or arguments are wrong; the message says how to mend them
  kUnsupported,  // valid, but this library or device cannot do it
  kNoDevice,     // no such device, or its driver or compiler is absent
  kNoMemory,
  kCompile,  // the compiler refused or exceeded a limit
  kLaunch,
  kStore,
  kBusy,       // would have to compile, allocate or synchronise under capture
  kNotCached,  // policy cached_only and the store has no entry
  kCancelled,
  kDeviceLost,  // sticky device fault
  kInternal,
};

std::string_view code_name(Code code);

// A code with a message for people and, for compilers, their log. Value type; one null pointer when ok, since the warm
// path of a launch passes it up through several calls.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message, std::string log = {})
      : failure_(code == Code::kOk ? nullptr : new Failure{code, std::move(message), std::move(log)}) {}
  Status(Status&&) = default;
  Status& operator=(Status&&) = default;
  Status(const Status& other) : failure_(other.failure_ ? new Failure(*other.failure_) : nullptr) {}
  Status& operator=(const Status& other) { return *this = Status(other); }

  bool ok() const { return !failure_; }
  Code code() const { return failure_ ? failure_->code : Code::kOk; }
  // Empty when ok.
  const std::string& message() const { return failure_ ? failure_->message : none(); }
  const std::string& log() const { return failure_ ? failure_->log : none(); }

 private:
  struct Failure {
    Code code;
    std::string message, log;
  };
  static const std::string& none();

  std::unique_ptr<const Failure> failure_;
};

inline Status invalid(std::string message) {
  return {Code::kInvalid, std::move(message)};
}
inline Status unsupported(std::string message) {
  return {Code::kUnsupported, std::move(message)};
}
inline Status internal(std::string message) {
  return {Code::kInternal, std::move(message)};
}

// A value or the Status that explains its absence. REQUIRES: ok() before value access.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}
  Result(Code code, std::string message) : status_(code, std::move(message)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace kachel

// Returns from the enclosing function if `expr`, a Status, is not ok.
#define KACHEL_TRY(expr)                                                           \
  do {                                                                             \
    if (auto kachel_status_ = (expr); !kachel_status_.ok()) return kachel_status_; \
  } while (0)

// KACHEL_ASSIGN(auto x, f()): x takes the value of a Result, or its Status is returned.
#define KACHEL_CONCAT2(a, b) a##b
#define KACHEL_CONCAT(a, b) KACHEL_CONCAT2(a, b)
#define KACHEL_ASSIGN(target, expr) KACHEL_ASSIGN_(KACHEL_CONCAT(kachel_result_, __LINE__), target, expr)
#define KACHEL_ASSIGN_(tmp, target, expr) \
  auto tmp = (expr);                      \
  if (!tmp.ok()) return tmp.status();     \
  target = *std::move(tmp)
