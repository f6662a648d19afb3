#include "runtime/cuda/nvrtc_target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace kachel::runtime::cuda {

std::string device_architecture(int compute_major, int compute_minor) {
  return fmt::format("sm_{}{}{}", compute_major, compute_minor, compute_major >= 9 ? "a" : "");
}

Result<int> chosen_instructions(int architecture, const char* wanted) {
  if (!wanted || !*wanted) return architecture;
  const std::string_view text = wanted;
  int chosen = 0;
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), chosen);
  if (error != std::errc() || rest != text.data() + text.size() || chosen < 80)
    return invalid(
        fmt::format("KACHEL_INSTRUCTIONS is \"{}\"; write the architecture whose instructions are to be used as "
                    "80, 86, 89 or 90, or unset it",
                    text));
  return std::min(chosen, architecture);
}

Result<NvrtcTarget> choose_target(const std::string& architecture, const std::vector<int>& known,
                                  const std::string& compiler_name) {
  int number = 0;
  const char* end = architecture.data() + architecture.size();
  bool valid = architecture.starts_with("sm_");
  if (valid) {
    auto [rest, error] = std::from_chars(architecture.data() + 3, end, number);
    const std::string_view suffix(rest, end - rest);
    valid = error == std::errc() && number >= 10 && number < 1000 && (suffix.empty() || suffix == "a" || suffix == "f");
  }
  if (!valid)
    return invalid(fmt::format("\"{}\" is no CUDA architecture: write it like sm_80 or sm_90a", architecture));
  if (std::binary_search(known.begin(), known.end(), number)) return NvrtcTarget{"-arch=" + architecture, false, ""};

  const auto above = std::upper_bound(known.begin(), known.end(), number);
  if (above == known.begin())
    return unsupported(fmt::format("{} does not compile for {}, only for {}: set KACHEL_NVRTC to an older one",
                                   compiler_name, architecture, fmt::join(known, ", ")));
  const int nearest = *std::prev(above);
  NvrtcTarget target;
  target.ptx = nearest / 10 != number / 10;
  target.option = fmt::format("-arch={}_{}", target.ptx ? "compute" : "sm", nearest);
  target.note =
      fmt::format("kachel: {} does not know {}, so this was compiled for {}; a newer NVRTC serves it better\n",
                  compiler_name, architecture, target.option.substr(6));
  return target;
}

}  // namespace kachel::runtime::cuda
