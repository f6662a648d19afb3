// Log events go to one sink per engine. Thread-safe; the sink may be called on any thread and must not call back.
#pragma once
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace kachel {

enum class LogLevel { kDebug = 0, kInfo, kWarning, kError };

class Log {
 public:
  using Sink = std::function<void(LogLevel, std::string_view message)>;

  // Without a sink nothing is written, except that KACHEL_LOG=debug|info|warning|error writes to stderr.
  explicit Log(Sink sink = {});

  void write(LogLevel level, std::string_view message);
  // Writes `message` the first time `topic` is seen; a degraded store says so once, not once a launch.
  void once(LogLevel level, const std::string& topic, std::string_view message);

 private:
  Sink sink_;
  std::mutex mutex_;
  std::set<std::string> seen_;
};

}  // namespace kachel
