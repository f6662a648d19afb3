// Text to tokens. Private to the parser.
#pragma once
#include <string_view>
#include <vector>

#include "ir/diagnostic.h"

namespace kachel::ir {

struct Token {
  enum class Kind : uint8_t { kName, kWord, kInt, kFloat, kPunct, kEnd } kind = Kind::kEnd;
  bool starts_line = false;
  Loc loc;
  std::string_view text;  // borrowed from the program
  uint64_t int_value = 0;
  float float_value = 0;
};

// The last token is always kEnd. A text that is too long or not UTF-8 gives one diagnostic and no other token.
std::vector<Token> lex(std::string_view text, std::vector<Diagnostic>& diagnostics);

// Reserved words: keywords, types, functions and constants; none of them may name anything.
bool is_reserved(std::string_view word);
bool is_identifier(std::string_view word);

}  // namespace kachel::ir
