#include "lowering/emit/ptx/ptx_code.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace kachel::lowering::ptx {
namespace {

constexpr char kPrefixes[] = {'p', 'h', 'r', 'd', 'f'};
constexpr const char* kTypes[] = {"pred", "b16", "b32", "b64", "f32"};

}  // namespace

Value Code::fresh(Class kind) {
  const auto i = static_cast<size_t>(kind);
  return {fmt::format("{}{}", kPrefixes[i], counts_[i]++), kind, {}};
}
Value Code::integer(int64_t value, int bits) {
  if (bits < 64) value = static_cast<int32_t>(static_cast<uint32_t>(value));
  // The most negative number is the negation of none.
  const bool least = value == INT64_MIN;
  return {least ? "0x8000000000000000" : fmt::format("{}", value), bits == 64 ? Class::kB64 : Class::kB32, value};
}
Value Code::truth(bool value) {
  return {value ? "1" : "0", Class::kPred, value};
}
Value Code::number(float value) {
  return {fmt::format("0f{:08X}", std::bit_cast<uint32_t>(value)), Class::kF32, {}};
}

void Code::say(const std::string& line, bool guarded, bool removable) {
  last_key_.clear();
  lines_.push_back({guarded && guard_ ? fmt::format("@{} {}", in_register(*guard_).text, line) : line, removable});
}

std::string Code::key(const char* instruction, const std::vector<Value>& operands) const {
  std::string key = instruction;
  for (const Value& operand : operands) {
    key += ' ' + operand.text;
    if (const auto version = versions_.find(operand.text); version != versions_.end())
      key += fmt::format("@{}.{}", epoch_, version->second);
  }
  return key;
}

Value Code::pure(Class kind, const char* instruction, const std::vector<Value>& operands) {
  std::string name = key(instruction, operands);
  for (auto scope = results_.rbegin(); scope != results_.rend(); ++scope)
    if (const auto found = scope->find(name); found != scope->end()) return found->second;
  const Value result = fresh(kind);
  std::string list = result.text;
  for (const Value& operand : operands) list += ", " + operand.text;
  say(fmt::format("{} {};", instruction, list), false, true);
  last_key_ = name;
  results_.back().emplace(std::move(name), result);
  return result;
}

Value Code::variable(Class kind) {
  const Value made = fresh(kind);
  versions_.emplace(made.text, 0);
  return made;
}

void Code::assign(const Value& variable, const Value& value, bool only_use) {
  if (variable.text == value.text) return;
  if (only_use && !last_key_.empty() && value.kind == variable.kind) {
    std::string& last = lines_.back().text;
    const size_t at = last.find(' ') + 1;
    if (last.compare(at, value.text.size() + 1, value.text + ",") == 0) {
      last.replace(at, value.text.size(), variable.text);
      lines_.back().removable = false;
      results_.back().erase(last_key_);
      last_key_.clear();
      return written(variable);
    }
  }
  line("mov.{} {}, {};", kTypes[static_cast<size_t>(variable.kind)], variable.text, value.text);
  written(variable);
}

Value Code::loaded(Class kind) {
  const Value made = fresh(kind);
  if (!guard_) return made;
  line("mov.{} {}, {};", kind == Class::kB64 ? "b64" : "b32", made.text, rest_ ? rest_->bits : 0);
  guards_.emplace(made.text, Guarded{guard_->text, rest_ ? rest_->value : ""});
  return made;
}

void Code::same_rest(const Value& from, const Value& made) {
  const auto guard = guards_.find(from.text);
  if (guard != guards_.end()) guards_.emplace(made.text, Guarded(guard->second));
}

Value Code::settled(const Value& value) {
  if (!versions_.count(value.text)) return value;
  const Value copy = fresh(value.kind);
  line("mov.{} {}, {};", kTypes[static_cast<size_t>(value.kind)], copy.text, value.text);
  return copy;
}

Value Code::in_register(const Value& value) {
  const bool literal = std::isdigit(static_cast<unsigned char>(value.text[0])) || value.text[0] == '-';
  if (!literal) return value;
  if (value.kind == Class::kPred) return pure(Class::kPred, "setp.ne.b32", {value, integer(0, 32)});
  return pure(value.kind, fmt::format("mov.{}", kTypes[static_cast<size_t>(value.kind)]).c_str(), {value});
}

namespace {

constexpr std::array<bool, 256> kInName = [] {
  std::array<bool, 256> in{};
  for (int c = 0; c < 256; ++c)
    in[c] = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.';
  return in;
}();

bool is_in_name(char c) {
  return kInName[static_cast<unsigned char>(c)];
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The registers that a line names, by class and number.
template <class Fn>
void each_register(const std::string& line, const Fn& fn) {
  for (size_t at = 0; at < line.size();) {
    if (!is_in_name(line[at])) {
      ++at;
      continue;
    }
    const auto* prefix = std::find(std::begin(kPrefixes), std::end(kPrefixes), line[at]);
    if (prefix != std::end(kPrefixes) && at + 1 < line.size() && is_digit(line[at + 1])) {
      size_t number = 0;
      for (++at; at < line.size() && is_digit(line[at]); ++at)
        number = 10 * number + static_cast<size_t>(line[at] - '0');
      fn(static_cast<size_t>(prefix - kPrefixes), number);
    }
    while (at < line.size() && is_in_name(line[at])) ++at;
  }
}

}  // namespace

std::string Code::text() const {
  std::vector<bool> used[std::size(kPrefixes)];
  for (size_t i = 0; i < std::size(used); ++i) used[i].resize(static_cast<size_t>(counts_[i]));
  std::vector<const std::string*> kept;
  size_t length = 0;
  for (auto line = lines_.rbegin(); line != lines_.rend(); ++line) {
    bool wanted = !line->removable, first = true;
    if (line->removable)
      each_register(line->text, [&](size_t kind, size_t number) {
        if (std::exchange(first, false)) wanted = number < used[kind].size() && used[kind][number];
      });
    if (!wanted) continue;
    each_register(line->text, [&](size_t kind, size_t number) {
      if (number < used[kind].size()) used[kind][number] = true;
    });
    kept.push_back(&line->text);
    length += line->text.size() + 1;
  }
  std::string out;
  out.reserve(length);
  for (auto line = kept.rbegin(); line != kept.rend(); ++line) out.append(**line).push_back('\n');
  return out;
}

std::string Code::declarations() const {
  std::string out;
  for (size_t i = 0; i < std::size(kTypes); ++i)
    if (counts_[i]) out += fmt::format(".reg .{} {}<{}>;\n", kTypes[i], kPrefixes[i], counts_[i]);
  return out;
}

}  // namespace kachel::lowering::ptx
