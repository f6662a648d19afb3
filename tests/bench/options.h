// Command lines of benchmarks: options, which may have a value, and other words.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace kachel::bench {

struct Option {
  std::string_view name;
  std::function<void(const std::string& value)> take;
  bool has_value = true;
};

inline Option text(std::string_view name, std::string* out) {
  return {name, [out](const std::string& value) { *out = value; }};
}
inline Option number(std::string_view name, int* out) {
  return {name, [out](const std::string& value) { *out = std::atoi(value.c_str()); }};
}
inline Option flag(std::string_view name, bool* out) {
  return {name, [out](const std::string&) { *out = true; }, false};
}

// Hands out values in the order of the words, and other words to `rest`; ends the process with 2 at a mistake.
inline void read_options(int argc, char** argv, const std::vector<Option>& options,
                         const std::function<void(const std::string& word)>& rest) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto option =
        std::find_if(options.begin(), options.end(), [&](const Option& known) { return known.name == word; });
    const bool is_option = word.rfind("--", 0) == 0;
    if (!is_option) {
      rest(word);
    } else if (option != options.end() && (!option->has_value || i + 1 < argc)) {
      option->take(option->has_value ? argv[++i] : "");
    } else {
      fmt::print(stderr, "{}; the head of this benchmark's source lists the options\n",
                 option == options.end() ? "there is no option " + word : word + " needs a value");
      std::exit(2);
    }
  }
}

}  // namespace kachel::bench
