// What a step of the command yields: a value, or why there is none and with which status the process ends.
#pragma once
#include <string>
#include <utility>
#include <variant>

namespace kachel::cli {

// Exit statuses; docs/command.md is the table that users read.
enum class Exit : int {
  kOk = 0,
  kRefused = 1,    // the program text is wrong, or a check found a difference
  kUsage = 2,      // the command line or the launch it describes is wrong
  kNoDevice = 3,   // the device, its driver or its compiler is absent, or cannot do it
  kFailed = 4,     // compiling, launching or the store failed
  kNotCached = 5,  // policy cached_only and nothing stored
  kInterrupted = 130,
};

struct Failure {
  Exit exit = Exit::kFailed;
  std::string message;  // for people, with the mend where there is one
  std::string log;      // the compiler's words, or empty
};

inline Failure usage(std::string message) {
  return {Exit::kUsage, std::move(message), {}};
}

// REQUIRES: ok() before the value is used, !ok() before failure().
template <class T = std::monostate>
class [[nodiscard]] Outcome {
 public:
  Outcome() = default;
  Outcome(T value) : state_(std::move(value)) {}
  Outcome(Failure failure) : state_(std::move(failure)) {}

  bool ok() const { return state_.index() == 0; }
  T& operator*() { return std::get<0>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  const Failure& failure() const { return std::get<1>(state_); }

 private:
  std::variant<T, Failure> state_;
};

}  // namespace kachel::cli

// Returns the Failure of `expr`, an Outcome, from the enclosing function.
#define KACHEL_CLI_TRY(expr)                                               \
  do {                                                                     \
    if (auto outcome_ = (expr); !outcome_.ok()) return outcome_.failure(); \
  } while (0)

// KACHEL_CLI_LET(x, f()): declares x with the value of an Outcome, or returns its Failure.
#define KACHEL_CLI_LET(name, expr)                           \
  auto name##_outcome = (expr);                              \
  if (!name##_outcome.ok()) return name##_outcome.failure(); \
  auto& name = *name##_outcome
