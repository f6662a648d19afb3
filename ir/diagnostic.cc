#include "ir/diagnostic.h"

#include <fmt/format.h>

namespace kachel::ir {
namespace {

constexpr size_t kMostShown = 10;
constexpr size_t kLongestLine = 160;

std::string_view line_of(std::string_view text, int line) {
  for (int at = 1; at < line; ++at) {
    size_t end = text.find('\n');
    if (end == text.npos) return {};
    text.remove_prefix(end + 1);
  }
  text = text.substr(0, text.find('\n'));
  if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  return text;
}

}  // namespace

std::string format(const Diagnostic& diagnostic, std::string_view file, std::string_view text) {
  const Loc& loc = diagnostic.loc;
  if (loc.line <= 0) return fmt::format("{}: error: {}\n   {}\n", file, diagnostic.message, diagnostic.mend);
  // What is not printable ASCII becomes one `?` a byte: columns count bytes, and the text may not even be UTF-8.
  std::string source(line_of(text, loc.line).substr(0, kLongestLine));
  for (char& c : source)
    if (c != '\t' && (c < ' ' || c > '~')) c = '?';
  std::string caret;
  for (size_t i = 0; i + 1 < static_cast<size_t>(loc.column) && i < source.size(); ++i)
    caret.push_back(source[i] == '\t' ? '\t' : ' ');
  size_t room = source.size() > caret.size() ? source.size() - caret.size() : 1;
  caret.append(std::min<size_t>(std::max(loc.length, 1), room), '^');
  std::string number = std::to_string(loc.line);
  return fmt::format("{}:{}:{}: error: {}\n   {} | {}\n   {} | {}\n   {}\n", file, loc.line, loc.column,
                     diagnostic.message, number, source, std::string(number.size(), ' '), caret, diagnostic.mend);
}

Status to_status(const std::vector<Diagnostic>& diagnostics, std::string_view file, std::string_view text) {
  std::string all;
  for (size_t i = 0; i < diagnostics.size() && i < kMostShown; ++i) all += format(diagnostics[i], file, text);
  if (diagnostics.size() > kMostShown) all += fmt::format("and {} more\n", diagnostics.size() - kMostShown);
  if (!all.empty() && all.back() == '\n') all.pop_back();
  return invalid(std::move(all));
}

}  // namespace kachel::ir
