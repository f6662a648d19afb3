// Names for what is derived. Private to derive/.
#pragma once
#include <string>

#include "ir/lexer.h"
#include "ir/print.h"

namespace kachel::derive {

// Names that the kernel's text does not have and that mean nothing in the language (`i4`), each once.
class FreshNames {
 public:
  explicit FreshNames(const ir::Kernel& kernel) : text_(ir::print(kernel)) {}
  std::string operator()(std::string name) {
    while (ir::is_reserved(name) || text_.find(name) != text_.npos) name += "_";
    text_ += " " + name;
    return name;
  }

 private:
  std::string text_;
};

}  // namespace kachel::derive
