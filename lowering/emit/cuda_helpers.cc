// The library is CUDA C++ in the strings of emit.h. A definition begins at the start of a line and ends where its
// braces are closed and no backslash follows; it is called by the first word in it that begins with kachel_, a macro by
// its own. So a macro that defines a function is given the function's whole name first, and those of what it calls.
// Definitions without such a word (types) belong to every text. Conditions (#if, #else) enclose definitions and are not
// nested.
#include "lowering/emit/cuda_helpers.h"

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_map>

#include "lowering/emit/emit.h"

namespace kachel::lowering {
namespace {

struct Definition {
  std::string condition;  // of the preprocessor, "": none
  std::string text;       // with the comments ahead of it
  std::string name;       // "": belongs to every text
  std::vector<std::string> uses;
};

bool is_helper(std::string_view word) {
  return word.starts_with("kachel_") || word.starts_with("KACHEL_");
}

// Calls `found` with each word in the text that may be a helper's, comments left out.
void each_helper(std::string_view text, const std::function<void(std::string_view)>& found) {
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with("//")) {
      at = std::min(text.find('\n', at), text.size());
    } else if (!in_word(text[at])) {
      ++at;
    } else {
      const size_t begin = at;
      while (at < text.size() && in_word(text[at])) ++at;
      const std::string_view word = text.substr(begin, at - begin);
      if (is_helper(word)) found(word);
    }
  }
}

class Library {
 public:
  Library() {
    for (const char* part : {kCudaPrelude, kCudaPacked, kCudaMath, kHopperPrelude}) parse(part);
    for (size_t i = 0; i < definitions_.size(); ++i) by_name_[definitions_[i].name].push_back(i);
  }

  std::string used_by(std::string_view text) const {
    std::vector<bool> wanted(definitions_.size());
    std::vector<std::string> open = {""};
    std::set<std::string> seen;
    each_helper(text, [&](std::string_view word) { open.emplace_back(word); });
    while (!open.empty()) {
      const std::string name = std::move(open.back());
      open.pop_back();
      const auto known = by_name_.find(name);
      if (known == by_name_.end() || !seen.insert(name).second) continue;
      for (size_t i : known->second) {
        wanted[i] = true;
        open.insert(open.end(), definitions_[i].uses.begin(), definitions_[i].uses.end());
      }
    }
    std::string out, condition;
    for (size_t i = 0; i < definitions_.size(); ++i) {
      if (!wanted[i]) continue;
      const Definition& definition = definitions_[i];
      if (definition.condition != condition) {
        if (!condition.empty()) out += "#endif\n";
        condition = definition.condition;
        if (!condition.empty()) out += condition + "\n";
      }
      out += definition.text;
    }
    if (!condition.empty()) out += "#endif\n";
    return out;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& [name, places] : by_name_)
      if (!name.empty()) out.push_back(name);
    std::sort(out.begin(), out.end());
    return out;
  }

 private:
  void parse(std::string_view text) {
    std::string comments, condition;
    while (!text.empty()) {
      const std::string_view line = take_line(text);
      if (line == "\n") {
        comments.clear();
      } else if (line.starts_with("//")) {
        comments += line;
      } else if (line.starts_with("#if ")) {
        condition = line.substr(0, line.size() - 1);
      } else if (line.starts_with("#else")) {
        condition = "#if !(" + condition.substr(4) + ")";
      } else if (line.starts_with("#endif")) {
        condition.clear();
      } else {
        add(condition, comments, line, text);
        comments.clear();
      }
    }
  }
  static std::string_view take_line(std::string_view& text) {
    const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
    text.remove_prefix(line.size());
    return line;
  }
  void add(const std::string& condition, const std::string& comments, std::string_view first, std::string_view& rest) {
    std::string body(first);
    const auto is_open = [&] {
      return std::count(body.begin(), body.end(), '{') != std::count(body.begin(), body.end(), '}') ||
             body.ends_with("\\\n");
    };
    while (is_open() && !rest.empty()) body += take_line(rest);
    Definition made{condition, comments + body, "", {}};
    const bool macro = body.starts_with("#define ");
    each_helper(body, [&](std::string_view word) {
      if (made.name.empty() && (macro || word.starts_with("kachel_")))
        made.name = word;
      else
        made.uses.emplace_back(word);
    });
    definitions_.push_back(std::move(made));
  }

  std::vector<Definition> definitions_;
  std::unordered_map<std::string, std::vector<size_t>> by_name_;
};

const Library& library() {
  static const Library made;
  return made;
}

}  // namespace

std::string cuda_helpers(std::string_view text) {
  return library().used_by(text);
}

std::vector<std::string> cuda_helper_names() {
  return library().names();
}

}  // namespace kachel::lowering
