#include <cctype>

#include "lowering/emit/emit.h"

namespace kachel::lowering {

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

bool has_word(std::string_view text, std::string_view word) {
  for (size_t at = 0; (at = text.find(word, at)) != std::string_view::npos; ++at) {
    const size_t end = at + word.size();
    if ((at == 0 || !in_word(text[at - 1])) && (end == text.size() || !in_word(text[end]))) return true;
  }
  return false;
}

const std::string& Names::of(const void* object, const std::string& name) {
  auto it = names_.find(object);
  if (it != names_.end()) return it->second;
  // `__restrict__` and `__FILE__` are words that do end in an underscore; none begins with a letter.
  const std::string stem = name.starts_with('_') ? "n" + name : name;
  const int count = ++taken_[stem];
  std::string text = stem + "_";
  if (count > 1) text += std::to_string(count);
  return names_.emplace(object, std::move(text)).first->second;
}

}  // namespace kachel::lowering
