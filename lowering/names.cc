#include "lowering/emit.h"

namespace kachel::lowering {

const std::string& Names::of(const void* object, const std::string& name) {
  auto it = names_.find(object);
  if (it != names_.end()) return it->second;
  int count = ++taken_[name];
  std::string text = name + "_";
  if (count > 1) text += std::to_string(count);
  return names_.emplace(object, std::move(text)).first->second;
}

}  // namespace kachel::lowering
