// The text of PTX, line by line.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "tests/lowering/ptx_machine.h"

namespace kachel::lowering {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

// At commas outside of braces.
std::vector<std::string_view> listed(std::string_view text) {
  std::vector<std::string_view> out;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '{') ++depth;
    if (i < text.size() && text[i] == '}') --depth;
    if (i < text.size() && (text[i] != ',' || depth)) continue;
    if (const std::string_view part = trimmed(text.substr(begin, i - begin)); !part.empty()) out.push_back(part);
    begin = i + 1;
  }
  return out;
}

uint64_t mask_of(std::string_view type) {
  if (type == ".pred") return 1;
  if (type.size() < 3) return 0;
  const auto bits = std::strtoul(std::string(type.substr(2)).c_str(), nullptr, 10);
  return bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
}

class Parser {
 public:
  Parser() {
    out_.masks.assign(kPtxSpecials, 0xffffffff);
    for (const char* marker : {"%", "%%"})
      for (const auto& [name, word] : {std::pair{"tid.x", kPtxThread},
                                       {"ctaid.x", kPtxBlock},
                                       {"nctaid.x", kPtxBlocks},
                                       {"nctaid.y", kPtxRows},
                                       {"0", kPtxShared}})
        words_[std::string(marker) + name] = word;
    words_["kachel_kernel_param_0"] = kPtxNone;
  }

  Result<PtxProgram> run(std::string_view body) {
    while (!body.empty()) {
      const size_t end = std::min(body.find('\n'), body.size());
      line(trimmed(body.substr(0, end)));
      body.remove_prefix(std::min(end + 1, body.size()));
    }
    // Of the operands of instructions that are not known nothing is, so these come first.
    KACHEL_TRY(unknown_);
    out_.lines.emplace_back("the end");
    out_.code.emplace_back().kind = PtxKind::kExit;
    out_.code.back().line = out_.lines.size() - 1;
    for (const auto& [at, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) return internal(fmt::format("no label {}", label));
      out_.code[at].target = found->second;
    }
    KACHEL_TRY(broken_);
    return std::move(out_);
  }

 private:
  void line(std::string_view text) {
    if (text.empty()) return;
    out_.lines.emplace_back(text);
    if (text.back() == ':') {
      labels_[std::string(text.substr(0, text.size() - 1))] = out_.code.size();
      return;
    }
    if (text.back() != ';') return breaks("a line without an end");
    text.remove_suffix(1);
    if (text.rfind(".reg ", 0) == 0) return declare(text.substr(5));
    int32_t guard = -1;
    bool negated = false;
    if (text[0] == '@') {
      negated = text[1] == '!';
      const size_t end = text.find(' ');
      guard = word(text.substr(negated ? 2 : 1, end - (negated ? 2 : 1)));
      text = trimmed(text.substr(std::min(end, text.size())));
    }
    const size_t end = std::min(text.find(' '), text.size());
    auto decoded = decode_ptx(std::string(text.substr(0, end)));
    if (!decoded.ok()) {
      if (unknown_.ok()) unknown_ = decoded.status();
      return;
    }
    decoded->guard = guard;
    decoded->negated = negated;
    decoded->line = out_.lines.size() - 1;
    operands(&*decoded, listed(text.substr(end)));
    out_.code.push_back(std::move(*decoded));
  }

  // .b32 r<12>  or  .b32 a, b
  void declare(std::string_view text) {
    const size_t space = text.find(' ');
    const uint64_t mask = mask_of(text.substr(0, space));
    if (space == std::string_view::npos || !mask) return breaks("a declaration that says nothing");
    for (const std::string_view name : listed(text.substr(space))) {
      const size_t open = name.find('<');
      if (open == std::string_view::npos) {
        words_[std::string(name)] = new_word(mask);
        continue;
      }
      const int64_t count = std::strtoll(std::string(name.substr(open + 1)).c_str(), nullptr, 10);
      for (int64_t i = 0; i < count; ++i) words_[fmt::format("{}{}", name.substr(0, open), i)] = new_word(mask);
    }
  }

  void operands(PtxInstruction* to, const std::vector<std::string_view>& list) {
    if (to->kind == PtxKind::kNothing) return;
    if (to->kind == PtxKind::kBranch) {
      if (list.size() != 1) return breaks("a branch to nowhere");
      branches_.emplace_back(out_.code.size(), list[0]);
      return;
    }
    std::vector<size_t> sizes;
    for (const std::string_view operand : list) {
      const uint32_t before = to->operands;
      if (operand[0] == '{') {
        for (const std::string_view part : listed(operand.substr(1, operand.size() - 2))) add(to, word(part));
      } else if (operand[0] == '[') {
        address(to, operand.substr(1, operand.size() - 2));
      } else {
        add(to, word(operand));
      }
      sizes.push_back(to->operands - before);
    }
    to->mask = out_.masks[static_cast<size_t>(to->words[0])];
    check(to, sizes);
  }

  // What else the operands say of the instruction.
  void check(PtxInstruction* to, const std::vector<size_t>& sizes) {
    if (to->kind == PtxKind::kFunction) {
      if (sizes.size() < 2 || sizes.size() > 5) return breaks("too few or too many operands");
      if (sizes[0] == 1 && sizes[1] == 1) return;
      to->kind = sizes[0] > 1 ? PtxKind::kUnpack : PtxKind::kPack;
      to->results = static_cast<uint32_t>(sizes[0]);
      const auto parts = static_cast<int64_t>(std::max(sizes[0], sizes[1]));
      if (sizes.size() != 2 || !to->bytes || to->operands != parts + 1) return breaks("a vector that is none");
      to->bytes /= parts;
    } else if (to->kind == PtxKind::kAsyncWait || to->kind == PtxKind::kBarrier) {
      if (sizes.empty()) return breaks("too few or too many operands");
      const auto number = std::find_if(out_.literals.begin(), out_.literals.end(),
                                       [&](const auto& literal) { return literal.first == to->words[0]; });
      if (number == out_.literals.end()) return breaks("a number that is none");
      to->count = static_cast<int64_t>(number->second);
      if (to->kind == PtxKind::kBarrier && (to->count || sizes.size() > 1) && unknown_.ok())
        unknown_ = unsupported("the machine has no barriers but that of the block");
    } else if (to->kind == PtxKind::kMma) {
      if (sizes != std::vector<size_t>{4, 4, 2, 4}) breaks("fragments of another size");
    } else if (to->kind == PtxKind::kLoad || to->kind == PtxKind::kStore || to->kind == PtxKind::kLoadMatrix ||
               to->kind == PtxKind::kStoreMatrix || to->kind == PtxKind::kReduce) {
      if (sizes.size() != 2 || to->operands != to->results + 1 || to->addresses != 1)
        breaks("no address or another vector");
    } else if (to->kind == PtxKind::kCompareSwap) {
      if (to->addresses != 1 || sizes != std::vector<size_t>{1, 1, 1, 1}) breaks("too few or too many operands");
    } else if (to->kind == PtxKind::kCopyAsync) {
      if (to->addresses != 2 || sizes.size() < 3 || sizes.size() > 4) breaks("a copy without addresses");
    } else if (to->kind == PtxKind::kShuffle || to->kind == PtxKind::kShuffleIndex || to->kind == PtxKind::kVoteAny) {
      if (sizes.size() != (to->kind == PtxKind::kVoteAny ? 3 : 5)) breaks("too few or too many operands");
    }
  }

  void address(PtxInstruction* to, std::string_view text) {
    const size_t plus = text.find('+');
    add(to, word(trimmed(text.substr(0, plus))));
    if (to->addresses == to->offsets.size()) return breaks("too many addresses");
    if (plus != std::string_view::npos)
      to->offsets[to->addresses] = std::strtoll(std::string(text.substr(plus + 1)).c_str(), nullptr, 10);
    ++to->addresses;
  }
  void add(PtxInstruction* to, int32_t word) {
    if (to->operands == kPtxOperands) return breaks("too many operands");
    to->words[to->operands++] = word;
  }

  int32_t word(std::string_view name) {
    const std::string text(name);
    if (const auto found = words_.find(text); found != words_.end()) return found->second;
    const char first = text.empty() ? ' ' : text[0];
    if (first != '-' && !std::isdigit(static_cast<unsigned char>(first))) {
      breaks("an operand that is not declared");
      return kPtxNone;
    }
    const bool bits = text.rfind("0f", 0) == 0;
    const uint64_t value = bits           ? std::strtoull(text.c_str() + 2, nullptr, 16)
                           : first == '-' ? static_cast<uint64_t>(std::strtoll(text.c_str(), nullptr, 0))
                                          : std::strtoull(text.c_str(), nullptr, 0);
    const int32_t made = new_word(~uint64_t{0});
    out_.literals.emplace_back(made, value);
    return words_[text] = made;
  }

  int32_t new_word(uint64_t mask) {
    out_.masks.push_back(mask);
    return static_cast<int32_t>(out_.masks.size()) - 1;
  }
  void breaks(const char* what) {
    if (broken_.ok()) broken_ = internal(fmt::format("{}: `{}`", what, out_.lines.back()));
  }

  PtxProgram out_;
  std::unordered_map<std::string, int32_t> words_;
  std::unordered_map<std::string, size_t> labels_;
  std::vector<std::pair<size_t, std::string>> branches_;
  Status unknown_, broken_;
};

}  // namespace

std::string_view ptx_of(std::string_view text) {
  constexpr std::string_view kBegin = "R\"ptx({", kEnd = "})ptx\"";
  const size_t begin = text.find(kBegin), end = text.find(kEnd);
  if (begin == std::string_view::npos || end == std::string_view::npos) return {};
  return text.substr(begin + kBegin.size(), end - begin - kBegin.size());
}

Result<PtxProgram> parse_ptx(std::string_view body) {
  return Parser().run(body);
}

}  // namespace kachel::lowering
