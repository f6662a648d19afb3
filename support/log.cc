#include "support/log.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace kachel {
namespace {

constexpr const char* kNames[] = {"debug", "info", "warning", "error"};

Log::Sink stderr_sink() {
  const char* wanted = std::getenv("KACHEL_LOG");
  if (!wanted) return {};
  int threshold = -1;
  for (int i = 0; i < 4; ++i)
    if (!std::strcmp(wanted, kNames[i])) threshold = i;
  if (threshold < 0) return {};
  return [threshold](LogLevel level, std::string_view message) {
    if (static_cast<int>(level) >= threshold)
      std::fprintf(stderr, "kachel %s: %.*s\n", kNames[static_cast<int>(level)], static_cast<int>(message.size()),
                   message.data());
  };
}

}  // namespace

Log::Log(Sink sink) : sink_(sink ? std::move(sink) : stderr_sink()) {}

void Log::write(LogLevel level, std::string_view message) {
  if (!sink_) return;
  std::lock_guard lock(mutex_);
  sink_(level, message);
}

void Log::once(LogLevel level, const std::string& topic, std::string_view message) {
  {
    std::lock_guard lock(mutex_);
    if (!seen_.insert(topic).second) return;
  }
  write(level, message);
}

}  // namespace kachel
