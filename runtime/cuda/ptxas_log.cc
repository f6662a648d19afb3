#include "runtime/cuda/ptxas_log.h"

#include <charconv>
#include <cstdint>
#include <optional>

namespace kachel::runtime::cuda {
namespace {

// 256 of "used 1 barriers, 256 bytes smem" for " bytes smem".
std::optional<int64_t> number_before(std::string_view line, std::string_view words) {
  const size_t end = line.find(words);
  if (end == std::string_view::npos) return std::nullopt;
  size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int64_t value = 0;
  const auto [rest, error] = std::from_chars(line.data() + begin, line.data() + end, value);
  if (error != std::errc() || rest != line.data() + end) return std::nullopt;
  return value;
}

// f of "Compiling entry function 'f' for 'sm_90a'".
std::optional<std::string_view> entry_begun(std::string_view line) {
  constexpr std::string_view kWords = "Compiling entry function '";
  size_t begin = line.find(kWords);
  if (begin == std::string_view::npos) return std::nullopt;
  begin += kWords.size();
  const size_t end = line.find('\'', begin);
  if (end == std::string_view::npos) return std::nullopt;
  return line.substr(begin, end - begin);
}

}  // namespace

PtxasReport parse_ptxas_log(std::string_view log, std::string_view entry) {
  PtxasReport report;
  ResourceUsage& usage = report.usage;
  bool within = false;
  while (!log.empty()) {
    const size_t length = std::min(log.find('\n'), log.size());
    const std::string_view line = log.substr(0, length);
    log.remove_prefix(std::min(length + 1, log.size()));

    if (line.find("Potential Performance Loss") != std::string_view::npos) report.losses.emplace_back(line);
    if (auto name = entry_begun(line)) within = *name == entry;
    if (!within) continue;
    if (auto stores = number_before(line, " bytes spill stores")) {
      const int64_t loads = number_before(line, " bytes spill loads").value_or(0);
      usage.spill_bytes = std::max<int64_t>(usage.spill_bytes, 0) + *stores + loads;
    }
    if (line.find("Used ") != std::string_view::npos) {
      if (auto registers = number_before(line, " registers")) {
        usage.registers = static_cast<int32_t>(*registers);
        usage.shared_bytes = number_before(line, " bytes smem").value_or(0);
      }
    }
  }
  return report;
}

}  // namespace kachel::runtime::cuda
