// Any bytes: parse, print, parse again, verify, instantiate. Run it on a copy of parse_corpus/ and examples/:
//   fuzz_parse -dict=tests/fuzz/parse.dict -max_len=4096 CORPUS examples tests/fuzz/parse_corpus
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "ir/instantiate.h"
#include "ir/lexer.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"

namespace {

using kachel::ir::Diagnostic;

void require(bool condition, const char* what, const std::string& text) {
  if (condition) return;
  std::fprintf(stderr, "%s\n%s\n", what, text.c_str());
  std::abort();
}

void check_diagnostics(const std::vector<Diagnostic>& diagnostics, std::string_view text) {
  for (const Diagnostic& diagnostic : diagnostics) {
    std::string shown = kachel::ir::format(diagnostic, "fuzz.tile", text);
    require(!diagnostic.message.empty() && !diagnostic.mend.empty(), "a diagnostic without message or mend", shown);
    for (char c : shown) require(c == '\n' || c == '\t' || (c >= ' ' && c <= '~'), "a message that is no text", shown);
  }
}

kachel::ir::Bindings bindings_of(const kachel::ir::Kernel& kernel, size_t pick) {
  kachel::ir::Bindings bindings;
  for (const auto& symbol : kernel.type_symbols)
    bindings.types[symbol->name] = symbol->options[pick % symbol->options.size()];
  for (const auto& var : kernel.consts) {
    if (is_float(var->type.dtype))
      bindings.float_consts[var->name] = 1.5;
    else
      bindings.int_consts[var->name] = static_cast<int64_t>(pick);
  }
  for (const auto& tunable : kernel.tunables)
    bindings.tunables[tunable.var->name] =
        tunable.automatic ? int64_t{1} + pick % 64 : tunable.values[pick % tunable.values.size()];
  for (const auto& dim : kernel.dims) bindings.dims[dim->name] = static_cast<int64_t>(8 + 24 * pick);
  return bindings;
}

// A run of tokens replaced by another run of the same program: bytes at random rarely parse.
std::string exchange_tokens(std::string_view text, std::minstd_rand& random) {
  std::vector<Diagnostic> ignored;
  std::vector<kachel::ir::Token> tokens = kachel::ir::lex(text, ignored);
  tokens.pop_back();
  if (tokens.size() < 2) return std::string(text);
  auto offset = [&](size_t i) { return static_cast<size_t>(tokens[i].text.data() - text.data()); };
  auto run = [&](size_t most) {
    size_t first = random() % tokens.size();
    size_t last = std::min(tokens.size() - 1, first + random() % most);
    return std::pair(offset(first), offset(last) + tokens[last].text.size());
  };
  if (random() % 2 == 0) {  // one token for another of its kind: often another valid program
    size_t at = random() % tokens.size(), other = random() % tokens.size();
    for (int tries = 0; tries < 20 && tokens[other].kind != tokens[at].kind; ++tries) other = random() % tokens.size();
    std::string out(text.substr(0, offset(at)));
    out += tokens[other].text;
    return out += text.substr(offset(at) + tokens[at].text.size());
  }
  size_t most = random() % 4 == 0 ? 24 : 2;
  auto [from, from_end] = run(most);
  auto [to, to_end] = run(most);
  if (random() % 3 == 0) to_end = to;      // insert
  if (random() % 6 == 0) from_end = from;  // delete
  std::string out(text.substr(0, to));
  out += ' ';
  out += text.substr(from, from_end - from);
  out += ' ';
  return out += text.substr(to_end);
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  std::minstd_rand random(seed);
  if (size == 0 || random() % 4 == 0) return LLVMFuzzerMutate(data, size, most);
  std::string text = exchange_tokens({reinterpret_cast<const char*>(data), size}, random);
  if (text.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  kachel::ir::ParseResult first = kachel::ir::parse(text);
  check_diagnostics(first.diagnostics, text);
  std::string printed = print(first.module);
  std::vector<Diagnostic> found = verify(first.module);
  check_diagnostics(found, text);
  if (!first.diagnostics.empty()) return 0;

  kachel::ir::ParseResult second = kachel::ir::parse(printed);
  require(second.diagnostics.empty(), "printed text does not parse", printed);
  require(print(second.module) == printed, "printed text is no fixed point", printed);
  std::vector<Diagnostic> again = verify(second.module);
  require(again.empty() == found.empty(), "printed text means something else", printed);
  for (size_t i = 0; i < first.module.kernels.size(); ++i)
    require(canonical_body(first.module.kernels[i]) == canonical_body(second.module.kernels[i]),
            "printed text has another canonical body", printed);
  if (!found.empty()) return 0;
  for (const auto& kernel : first.module.kernels)
    for (size_t pick : {0, 1}) (void)instantiate(kernel, bindings_of(kernel, pick));
  return 0;
}
