// What happened, for whoever watches: a kind, what it is about, values by name, and the sentence that the text log has
// of it.
#pragma once
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace kachel {

enum class LogLevel { kDebug = 0, kInfo, kWarning, kError };
std::string_view level_name(LogLevel level);  // "debug", ...

// The values of KACHEL_EVENT_* in capi/kachel.h, which says what each means: append only.
enum class EventKind : int32_t {
  kMessage = 0,
  kLost,
  kCompiled,
  kLoaded,
  kTuned,
  kUntuned,
  kServedUndecided,
  kCandidateFailed,
  kCandidateRejected,
  kCandidateCrashed,
  kCandidateTimedOut,
  kDemoted,
  kDeviceLost,
  kWorkerUnusable,
  kStoreDegraded,
  kStoreDamaged,
  kStoreEvicted,
  kStoreRefused,
  kRemoteFailed,
  kDriftChecked,
  kDriftNoticed,
  kDecisionReplaced,
  kCount,
};
std::string_view event_name(EventKind kind);  // "compiled", ...

// Names are lower case with underscores, units at their end.
struct EventField {
  EventField(std::string its_name, std::integral auto number)
      : name(std::move(its_name)), value(static_cast<int64_t>(number)) {}
  EventField(std::string its_name, double number) : name(std::move(its_name)), value(number) {}
  EventField(std::string its_name, std::string text) : name(std::move(its_name)), value(std::move(text)) {}

  std::string name;
  std::variant<int64_t, double, std::string> value;
};

struct Event {
  EventKind kind = EventKind::kMessage;
  LogLevel level = LogLevel::kInfo;
  std::string message;
  std::string kernel = {};  // or program; "": none
  std::string key = {};     // of the entry in the store that it is about, 32 hexadecimal digits; "": none
  int64_t duration_ns = 0;  // of what has happened; 0: no matter
  std::vector<EventField> fields = {};
  uint64_t unix_us = 0;  // set by the log
};

// One line without its end: an object of time_us, level, event, kernel, key and duration_ns where there are such, the
// fields, message. Bytes that are not UTF-8 are replaced; what is no number is null.
std::string to_json(const Event& event);

// From one process to another of the same build.
std::string encode_event(const Event& event);
std::optional<Event> decode_event(std::string_view bytes);

}  // namespace kachel
