// What a program calls things does not reach its code: consistently renamed, it lowers to the same text but for names.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "ir/lexer.h"
#include "ir/parse.h"
#include "lowering/emit/emit.h"
#include "lowering/lower.h"
#include "tests/conformance/examples.h"

namespace kachel::lowering {
namespace {

using conformance::Case;
using NameMap = std::map<std::string, std::string>;
using Naming = NameMap (*)(const std::set<std::string>& names);

constexpr Target kTargets[] = {
    {.kind = Target::Kind::kCuda, .architecture = 90, .threads = 128, .shared_limit = 227 * 1024},
    {.kind = Target::Kind::kCpu, .architecture = 0, .threads = 1, .shared_limit = 256 * 1024}};

// Against the alphabet and of other lengths: what orders or hashes by name orders differently.
NameMap reversed(const std::set<std::string>& names) {
  NameMap to;
  size_t i = names.size();
  for (const std::string& name : names) {
    --i;
    to[name] = fmt::format("v{:03}{}", i, std::string(i % 5, 'x'));
  }
  return to;
}

// Words of the target languages, of the preludes and of lowering itself.
NameMap hostile(const std::set<std::string>& names) {
  constexpr const char* kWords[] = {"int",
                                    "p",
                                    "kachel_params",
                                    "blockIdx",
                                    "__restrict",
                                    "asm",
                                    "t",
                                    "tiles",
                                    "e",
                                    "r",
                                    "x",
                                    "x_",
                                    "x_2",
                                    "x_2_",
                                    "define",
                                    "workspace",
                                    "__launch_bounds_",
                                    "float",
                                    "entry",
                                    "kachel_shared"};
  NameMap to;
  size_t i = 0;
  for (const std::string& name : names) {
    to[name] = i < std::size(kWords) ? kWords[i] : fmt::format("_{}", i);
    ++i;
  }
  return to;
}

// The names of `text`, where they stand. Left out are words with a meaning: `^T`, `precision tf32`, `acc(T)`, and
// `threads`, the tunable that sets the threads of a block.
std::vector<std::string_view> names_in(const std::string& text) {
  std::vector<ir::Diagnostic> diagnostics;
  std::vector<std::string_view> names;
  std::string_view before;
  const std::vector<ir::Token> tokens = ir::lex(text, diagnostics);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const ir::Token& token = tokens[i];
    const bool accumulator = token.text == "acc" && before == ":" && i + 1 < tokens.size() && tokens[i + 1].text == "(";
    const bool is_word =
        token.text == "threads" || (before == "^" && token.text == "T") || before == "precision" || accumulator;
    if (token.kind == ir::Token::Kind::kName && !is_word) names.push_back(token.text);
    before = token.text;
  }
  REQUIRE(diagnostics.empty());
  return names;
}

std::string rename(const std::string& text, const NameMap& to) {
  std::string out;
  size_t at = 0;
  for (std::string_view name : names_in(text)) {
    const auto begin = static_cast<size_t>(name.data() - text.data());
    out += text.substr(at, begin - at) + to.at(std::string(name));
    at = begin + name.size();
  }
  return out + text.substr(at);
}

NameMap names_by(Naming naming, const std::string& text) {
  const std::vector<std::string_view> names = names_in(text);
  NameMap to = naming({names.begin(), names.end()});
  to["threads"] = "threads";
  return to;
}

template <class Value>
std::map<std::string, Value> rename(const std::map<std::string, Value>& values, const NameMap& to) {
  std::map<std::string, Value> out;
  for (const auto& [name, value] : values) out[to.at(name)] = value;
  return out;
}

Case renamed_case(const Case& test, const ir::Kernel& kernel, const NameMap& to) {
  Case out = test;
  out.kernel = kernel;
  out.bindings.types = rename(test.bindings.types, to);
  out.bindings.float_consts = rename(test.bindings.float_consts, to);
  out.bindings.int_consts = rename(test.bindings.int_consts, to);
  out.bindings.tunables = rename(test.bindings.tunables, to);
  return out;
}

// Identifiers that class Names has made, which end in an underscore and maybe a number, become numbers in the order in
// which they first appear. Comments, which quote the program, are left out.
std::string normalise(std::string_view text, const Target& target) {
  const bool cpu = target.kind == Target::Kind::kCpu;
  const std::string_view prelude = cpu ? kLlvmPrelude : "", comment = cpu ? ";" : "//";
  REQUIRE(text.starts_with(prelude));
  text.remove_prefix(prelude.size());
  auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  std::map<std::string, size_t> seen;
  std::string out;
  bool commented = false;
  while (!text.empty()) {
    commented = (commented || text.starts_with(comment)) && text[0] != '\n';
    const auto length = static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_word) - text.begin());
    const std::string word(text.substr(0, std::max<size_t>(length, 1)));
    text.remove_prefix(word.size());
    const std::string stem = word.substr(0, word.find_last_not_of("0123456789") + 1);
    if (commented) continue;
    if (length == 0 || stem.empty() || stem.back() != '_') {
      out += word;
      continue;
    }
    out += fmt::format("${}", seen.emplace(word, seen.size()).first->second);
  }
  return out;
}

Lowered lower_case(const Case& test, const Target& target, uint64_t facts) {
  Target chosen = target;
  if (target.kind == Target::Kind::kCuda) chosen.threads = test.threads;
  auto concrete = conformance::concrete_kernel(test);
  REQUIRE_MESSAGE(concrete.ok(), concrete.status().message());
  auto lowered = lower(*concrete, chosen, facts);
  REQUIRE_MESSAGE(lowered.ok(), lowered.status().message());
  return *std::move(lowered);
}

// All of it, as one string to compare.
std::string form(const Case& test, const Target& target, uint64_t facts) {
  const Lowered lowered = lower_case(test, target, facts);
  std::string out = fmt::format("{} {} {} {} {}", lowered.entry, lowered.threads, lowered.shared_bytes,
                                lowered.workspace_bytes, lowered.deterministic);
  for (const Slot& slot : lowered.slots) out += fmt::format(" {}.{}.{}", int(slot.kind), slot.index, slot.axis);
  return out + "\n" + normalise(lowered.text, target);
}

// doctest would print both texts whole.
std::string first_difference(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string l, r;
  while (std::getline(left, l) && std::getline(right, r))
    if (l != r) return fmt::format("`{}` became `{}`", l, r);
  return a == b ? "" : "one ends before the other";
}

std::string read(const std::filesystem::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::vector<std::string> example_texts() {
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::directory_iterator(KACHEL_EXAMPLES))
    if (entry.path().extension() == ".tile") texts.push_back(read(entry.path()));
  std::sort(texts.begin(), texts.end());
  REQUIRE(texts.size() > 5);
  return texts;
}

ir::Module load(const std::string& text) {
  auto module = ir::load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  return *std::move(module);
}

Case some_case(const ir::Kernel& kernel, conformance::Random& random) {
  for (int attempt = 0; attempt < 1000; ++attempt)
    if (auto test = conformance::random_case(kernel, 100, random)) return *std::move(test);
  FAIL("no shapes found for " << kernel.name);
  return {};
}

TEST_CASE("every example, renamed throughout, lowers to the same code") {
  conformance::Random random(1);
  for (const std::string& text : example_texts()) {
    const ir::Module module = load(text);
    for (Naming naming : {reversed, hostile}) {
      const NameMap to = names_by(naming, text);
      const ir::Module renamed = load(rename(text, to));
      REQUIRE(renamed.kernels.size() == module.kernels.size());
      for (size_t k = 0; k < module.kernels.size(); ++k) {
        REQUIRE(renamed.kernels[k].name == to.at(module.kernels[k].name));
        for (int round = 0; round < 4; ++round) {
          const Case test = some_case(module.kernels[k], random);
          const Case other = renamed_case(test, renamed.kernels[k], to);
          const uint64_t facts = round == 0 ? 0 : round == 1 ? ~uint64_t{0} : random();
          for (const Target& target : kTargets) {
            INFO(test.name, target.kind == Target::Kind::kCpu ? " for the CPU" : " for CUDA");
            CHECK(first_difference(form(test, target, facts), form(other, target, facts)) == "");
            if (target.kind != Target::Kind::kCuda) continue;
            Target named = target;  // PTX has no names of the program's
            named.ptx = false;
            CHECK(first_difference(form(test, named, facts), form(other, named, facts)) == "");
            CHECK(lower_case(test, named, facts).text != lower_case(other, named, facts).text);
          }
        }
      }
    }
  }
}

TEST_CASE("no name becomes a word of the target, or another name") {
  Names names;
  std::set<std::string> seen;
  std::vector<std::string> all = {"__launch_bounds_", "n__launch_bounds_", "__FILE_", "_", "__", "n_", "n", "x", "x_"};
  for (const std::string& name : all)
    for (int twice = 0; twice < 2; ++twice) {
      const std::string& made = names.of(&*seen.insert(fmt::format("{} {}", name, twice)).first, name);
      CHECK(made[0] != '_');
      CHECK(made.substr(0, made.find_last_not_of("0123456789") + 1).ends_with('_'));
      CHECK_MESSAGE(seen.insert(made).second, made);
    }
}

TEST_CASE("different kernels differ when their names are gone") {
  conformance::Random random(2);
  for (const Target& target : kTargets) {
    std::map<std::string, std::string> seen;
    for (const std::string& text : example_texts())
      for (const ir::Kernel& kernel : load(text).kernels) {
        auto [same, fresh] = seen.emplace(form(some_case(kernel, random), target, 0), kernel.name);
        CHECK_MESSAGE(fresh, kernel.name << " is like " << same->second);
      }
  }
}

TEST_CASE("a name used in another place is a difference") {
  constexpr const char* kText = R"(tile 1
kernel f(X: f32[N], Y: f32[N], Z: out f32[N], s: f32, t: f32)
grid b < ceildiv(N, 64)
{
  fragment x: f32[64], y: f32[64]
  x = X[b*64 +: 64]
  y = Y[b*64 +: 64]
  parallel i < 64 { x[i] = x[i] - s * y[i] + t }
  Z[b*64 +: 64] = x
}
)";
  constexpr std::pair<const char*, const char*> kChanges[] = {
      {"- s * y[i] + t", "- t * y[i] + s"}, {"x[i] - s * y[i]", "y[i] - s * x[i]"}, {"y = Y[b", "y = X[b"}};
  conformance::Random random(3);
  const std::string text = kText;
  const Case test = some_case(load(text).kernels[0], random);
  for (const auto& [from, to] : kChanges) {
    std::string changed = text;
    changed.replace(changed.find(from), std::string_view(from).size(), to);
    Case other = test;
    other.kernel = load(changed).kernels[0];
    for (const Target& target : kTargets) CHECK(form(test, target, 0) != form(other, target, 0));
  }
}

}  // namespace
}  // namespace kachel::lowering
