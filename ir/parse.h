// Text to tile IR: lexer and recursive descent; names are resolved, nothing is typed.
#pragma once
#include <string_view>

#include "ir/module.h"

namespace kachel::ir {

// Never crashes or hangs, whatever the bytes: nesting is limited to 200, a text to 1 MiB, a kernel to 100,000 nodes.
// On error the list is not empty and the module holds what could be read.
struct ParseResult {
  Module module;
  std::vector<Diagnostic> diagnostics;
};
ParseResult parse(std::string_view text);

// parse() and verify() (ir/verify.h); the Status shows every diagnostic with its caret.
Result<Module> load(std::string_view text, std::string_view file = "program.tile");

}  // namespace kachel::ir
