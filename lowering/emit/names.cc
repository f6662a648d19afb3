#include "lowering/emit/emit.h"

namespace kachel::lowering {

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
