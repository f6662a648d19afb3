#include "format.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kachel.h"

namespace kachel::cli {

std::string format_ns(double ns) {
  const char* unit = "ns";
  double value = ns;
  for (const char* larger : {"us", "ms", "s"}) {
    if (value < 999.5) break;
    value /= 1000;
    unit = larger;
  }
  int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, unit);
}

std::string format_bytes(int64_t bytes) {
  if (bytes < 0) return "-";
  if (bytes < 1024) return fmt::format("{} B", bytes);
  const char* unit = "KiB";
  double value = static_cast<double>(bytes) / 1024;
  for (const char* larger : {"MiB", "GiB", "TiB"}) {
    if (value < 1023.5) break;
    value /= 1024;
    unit = larger;
  }
  int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, unit);
}

std::string format_time_s(int64_t unix_s) {
  std::time_t time = static_cast<std::time_t>(unix_s);
  std::tm local{};
  if (localtime_r(&time, &local) == nullptr) return "-";
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
}

std::string format_time(int64_t unix_s) {
  return format_time_s(unix_s).substr(0, sizeof("2030-01-31 09:15") - 1);
}

std::string without_features(std::string text) {
  size_t begin = text.find("/+");
  if (begin == std::string::npos) return text;
  size_t end = std::min(text.find(' ', begin), text.size());
  return text.replace(begin + 1, end - begin - 1, "..");
}

const char* candidate_state_name(int32_t state) {
  switch (state) {
    case KACHEL_CANDIDATE_UNTRIED:
      return "untried";
    case KACHEL_CANDIDATE_COMPILE_FAILED:
      return "compile failed";
    case KACHEL_CANDIDATE_REJECTED_WRONG:
      return "wrong result";
    case KACHEL_CANDIDATE_LAUNCH_FAILED:
      return "launch failed";
    case KACHEL_CANDIDATE_PRUNED:
      return "pruned";
    case KACHEL_CANDIDATE_MEASURED:
      return "measured";
    case KACHEL_CANDIDATE_REJECTED_FLAW:
      return "rejected";
    case KACHEL_CANDIDATE_CRASHED:
      return "crashed";
    case KACHEL_CANDIDATE_TIMED_OUT:
      return "timed out";
    default:
      return "?";
  }
}

}  // namespace kachel::cli
