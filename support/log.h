// Events go to an engine's sinks: its sentence to one, the whole to another, and to memory where they wait to be asked
// for. Thread-safe; sinks may be called on any thread, one call at a time, and must not call back.
#pragma once
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "support/event.h"

namespace kachel {

class Log {
 public:
  using Sink = std::function<void(LogLevel, std::string_view message)>;
  using EventSink = std::function<void(const Event&)>;

  // Without sinks nothing is written, except that KACHEL_LOG=debug|info|warning|error, json or json:LEVEL writes to
  // stderr. `kept`: how many events wait for take(), the latest; 0: none.
  explicit Log(Sink sink = {}, EventSink events = {}, size_t kept = 0);

  // Whether anybody is told of what is written: else it need not be made.
  bool heard() const { return sink_ || events_ || most_kept_ > 0; }
  void write(Event event);
  void write(LogLevel level, std::string_view message) {
    write(Event{.level = level, .message = std::string(message)});
  }
  // Writes it the first time `topic` is seen; a degraded store says so once, not once a launch.
  void once(const std::string& topic, Event event);
  void once(LogLevel level, const std::string& topic, std::string_view message) {
    once(topic, Event{.level = level, .message = std::string(message)});
  }
  // What is kept, oldest first, a line of JSON each; where some had to go, how many those were in the first. Forgets
  // it.
  std::string take();

 private:
  Sink sink_;
  EventSink events_;
  const size_t most_kept_;
  std::mutex mutex_;  // guards what follows, and calls of the sinks
  std::set<std::string> seen_;
  std::deque<std::string> kept_;
  uint64_t lost_ = 0;
};

}  // namespace kachel
