#include "ir/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>

namespace kachel::ir {
namespace {

constexpr size_t kMaxText = size_t{1} << 20;
constexpr size_t kMaxName = 100;
constexpr size_t kMaxNumber = 60;

// Sorted, for binary search.
constexpr std::string_view kReserved[] = {
    "abs",     "approx",   "argmax", "argmin",    "atomic",   "auto",      "bf16",    "bool",     "bucket", "ceil",
    "ceildiv", "clamp",    "const",  "cos",       "else",     "erf",       "exp",     "exp2",     "f16",    "f32",
    "f64",     "f8e4m3",   "f8e5m2", "false",     "floor",    "fma",       "for",     "fragment", "grid",   "hint",
    "i16",     "i32",      "i4",     "i64",       "i8",       "if",        "in",      "inf",      "inout",  "kernel",
    "key",     "let",      "ln2",    "log",       "log2",     "log2e",     "max",     "min",      "nan",    "out",
    "pad",     "parallel", "pi",     "pipelined", "popcount", "precision", "program", "rcp",      "round",  "rsqrt",
    "select",  "shared",   "sin",    "sqrt",      "sum",      "tanh",      "temp",    "tile",     "true",   "trunc",
    "tune",    "u16",      "u32",    "u4",        "u64",      "u8",        "where",   "while",    "within",
};
static_assert(std::is_sorted(std::begin(kReserved), std::end(kReserved)));

// Longest first, so that the first match is the token.
constexpr std::string_view kPuncts[] = {
    "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=", "/=", "+:", "..", "(", ")", "[", "]", "{",
    "}",  "<",  ">",  "=",  "+",  "-",  "*",  "/",  "%",  "&",  "|",  "^",  "~",  "!",  "?", ":", ",", ";", "@",
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Length of the well-formed UTF-8 sequence at the start of `s`, 0 if there is none.
size_t utf8_length(std::string_view s) {
  auto byte = [&](size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  auto tail = [&](size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  unsigned b = byte(0);
  if (b < 0x80) return 1;
  if (b >= 0xC2 && b <= 0xDF) return tail(1) ? 2 : 0;
  if (b >= 0xE0 && b <= 0xEF) {
    bool ok = tail(1) && tail(2) && !(b == 0xE0 && byte(1) < 0xA0) && !(b == 0xED && byte(1) > 0x9F);
    return ok ? 3 : 0;
  }
  if (b >= 0xF0 && b <= 0xF4) {
    bool ok = tail(1) && tail(2) && tail(3) && !(b == 0xF0 && byte(1) < 0x90) && !(b == 0xF4 && byte(1) > 0x8F);
    return ok ? 4 : 0;
  }
  return 0;
}

class Lexer {
 public:
  Lexer(std::string_view text, std::vector<Diagnostic>& diagnostics) : text_(text), diagnostics_(diagnostics) {}

  std::vector<Token> run() {
    if (text_.size() > kMaxText) {
      diagnostics_.push_back({{1, 1, 1}, "the program is longer than 1 MiB", "split it into several modules"});
    } else if (well_formed()) {
      while (at_ < text_.size()) step();
    }
    Token end;
    end.loc = {line_, column(), 1};
    end.starts_line = true;
    tokens_.push_back(end);
    return std::move(tokens_);
  }

 private:
  int column() const { return static_cast<int>(at_ - line_start_) + 1; }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  bool well_formed() {
    int line = 1;
    size_t start = 0;
    for (size_t i = 0; i < text_.size();) {
      size_t length = utf8_length(text_.substr(i));
      Loc loc{line, static_cast<int>(i - start) + 1, 1};
      if (length == 0 || text_[i] == '\0') {
        std::string what = length == 0 ? fmt::format("byte 0x{:02x} is not UTF-8", static_cast<unsigned char>(text_[i]))
                                       : "the text holds a NUL byte";
        diagnostics_.push_back({loc, what, "save the program as UTF-8 text"});
        return false;
      }
      if (text_[i] == '\n') ++line, start = i + 1;
      i += length;
    }
    return true;
  }

  void step() {
    char c = peek();
    if (c == '\n') {
      ++at_, ++line_;
      line_start_ = at_;
      fresh_line_ = true;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else if (c == '#') {
      while (at_ < text_.size() && peek() != '\n') ++at_;
    } else if (is_letter(c)) {
      word();
    } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
      number();
    } else {
      punct();
    }
  }

  Token& push(Token::Kind kind, size_t length) {
    Token token;
    token.kind = kind;
    token.starts_line = fresh_line_;
    token.loc = {line_, column(), static_cast<int>(length)};
    token.text = text_.substr(at_, length);
    at_ += length;
    fresh_line_ = false;
    tokens_.push_back(token);
    return tokens_.back();
  }

  void report(size_t length, std::string message, std::string mend) {
    if (diagnostics_.size() < 50)
      diagnostics_.push_back({{line_, column(), static_cast<int>(length)}, std::move(message), std::move(mend)});
  }

  void word() {
    size_t length = 1;
    while (is_letter(peek(length)) || is_digit(peek(length))) ++length;
    std::string_view text = text_.substr(at_, length);
    if (length > kMaxName) report(length, "a name has at most 100 characters", "shorten it");
    push(is_reserved(text) ? Token::Kind::kWord : Token::Kind::kName, length);
  }

  void number() {
    size_t length = 0;
    bool is_float = false, hex = peek() == '0' && (peek(1) == 'x' || peek(1) == 'X');
    if (hex) {
      length = 2;
      while (is_hex(peek(length))) ++length;
    } else {
      while (is_digit(peek(length))) ++length;
      if (peek(length) == '.' && is_digit(peek(length + 1))) {
        is_float = true;
        ++length;
        while (is_digit(peek(length))) ++length;
      }
      if (peek(length) == 'e' || peek(length) == 'E') {
        size_t digits = length + 1;
        if (peek(digits) == '+' || peek(digits) == '-') ++digits;
        if (is_digit(peek(digits))) {
          is_float = true;
          length = digits;
          while (is_digit(peek(length))) ++length;
        }
      }
    }
    size_t stray = length;
    while (is_letter(peek(stray)) || is_digit(peek(stray))) ++stray;
    std::string text(text_.substr(at_, length));
    float value = 0;
    uint64_t integer = 0;
    if (stray != length || (hex && length == 2)) {
      report(stray, "malformed number",
             "write 64, 0x40, 0.5 or 1e-5, without a suffix or an exponent of 2, and a space before a name");
    } else if (length > kMaxNumber) {
      report(length, "a number has at most 60 characters", "drop the digits that no type can hold");
    } else if (is_float) {
      value = std::strtof(text.c_str(), nullptr);
      if (std::isinf(value)) report(length, "the number is beyond the range of f32", "write `inf` if that is meant");
    } else if (!parse_int(text, hex, integer)) {
      report(length, "the integer does not fit in 64 bits", "write a smaller one, or a float as in 1e30");
    }
    Token& token = push(is_float ? Token::Kind::kFloat : Token::Kind::kInt, stray);
    token.float_value = value;
    token.int_value = integer;
  }

  static bool parse_int(std::string_view text, bool hex, uint64_t& value) {
    uint64_t base = hex ? 16 : 10;
    for (char c : text.substr(hex ? 2 : 0)) {
      uint64_t digit = is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
      if (value > (UINT64_MAX - digit) / base) return false;
      value = value * base + digit;
    }
    return true;
  }

  void punct() {
    std::string_view rest = text_.substr(at_);
    for (std::string_view punct : kPuncts) {
      if (rest.starts_with(punct)) {
        push(Token::Kind::kPunct, punct.size());
        return;
      }
    }
    size_t length = std::max<size_t>(utf8_length(rest), 1);
    report(length, "unexpected character", "remove it; outside comments a program is ASCII");
    at_ += length;
  }

  std::string_view text_;
  std::vector<Diagnostic>& diagnostics_;
  std::vector<Token> tokens_;
  size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
  bool fresh_line_ = true;
};

}  // namespace

std::vector<Token> lex(std::string_view text, std::vector<Diagnostic>& diagnostics) {
  return Lexer(text, diagnostics).run();
}

bool is_reserved(std::string_view word) {
  return std::binary_search(std::begin(kReserved), std::end(kReserved), word);
}

bool is_identifier(std::string_view word) {
  if (word.empty() || word.size() > kMaxName || !is_letter(word[0])) return false;
  return std::all_of(word.begin(), word.end(), [](char c) { return is_letter(c) || is_digit(c); });
}

}  // namespace kachel::ir
