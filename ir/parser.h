// The recursive-descent parser. Private: use parse.h.
//
// Errors of two kinds. A syntax error returns a null expression or false up to the statement, which skips to where the
// next one begins; a name that means nothing is reported and replaced by a constant, so that parsing goes on. No
// terminators are needed: a statement begins with a name or a keyword, and no expression can continue with one.
//
// One place needs more than a token of look-ahead. `x[...]` on a right-hand side or as an axis is a tile if one of its
// axes is a range, and else the beginning of a scalar expression. It is read as a tile first and read again as an
// expression if all axes turn out to be indices; indices within an expression are never tiles, so that this is
// quadratic in the nesting depth at worst.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/lexer.h"
#include "ir/parse.h"

namespace kachel::ir {

inline constexpr int kMaxNesting = 200;
inline constexpr int kMaxNodes = 100'000;
inline constexpr size_t kMaxDiagnostics = 50;

// What a name means. At most one is set; none: a name whose declaration failed.
struct Entity {
  VarRef var;
  BufferRef buffer;
  TypeSymbolRef type;
  ExprRef value;              // of a `let` within an expression: what stands in the name's place, and
  int nodes = 0, height = 0;  // how much that is
};

class Parser {
 public:
  explicit Parser(std::string_view text);
  ParseResult run();

 private:
  class Nest;
  struct Mark {
    size_t at, diagnostics, reported;
    int nodes;
  };

  // Tokens.
  const Token& peek(size_t ahead = 0) const;
  bool at(std::string_view text) const;
  bool at_name() const { return peek().kind == Token::Kind::kName; }
  bool at_end() const { return peek().kind == Token::Kind::kEnd; }
  void advance();
  // Past what brackets enclose, which begin here.
  void skip_group();
  bool accept(std::string_view text);
  bool expect(std::string_view text, std::string_view after);
  // How to mend what stands next, if that is a word of other languages.
  std::string mend_of_next(std::string otherwise) const;
  Loc span(size_t first) const;  // from token `first` to the token before the current one, within its line
  Mark mark() const;
  void rewind(const Mark& mark);

  // Diagnostics and limits.
  void report(Loc loc, std::string message, std::string mend);
  bool fail(std::string message, std::string mend);  // at the current token; returns false
  void give_up(Loc loc, std::string message, std::string mend);
  bool count_node(Loc loc);
  ExprRef finish(ExprRef expr, int height);

  // Names.
  bool declare(std::string_view name, Loc loc, Entity entity);
  const Entity* find(std::string_view name) const;
  void unknown(const Token& token, std::string_view what);
  std::string nearest(std::string_view name) const;
  bool new_name(std::string_view what, std::string& name, Loc& loc);
  void leave_scope(size_t depth);

  // parse.cc: modules and kernel headers.
  void module();
  void skip_to_kernel();
  void kernel();
  bool header(Kernel& kernel, std::string_view what);
  void recover_to_clause();
  bool angle_params(Kernel& kernel);
  bool params(Kernel& kernel);
  bool param(Kernel& kernel);
  void recover_to_param(size_t first);
  bool shape_entry(Kernel& kernel, std::vector<ExprRef>& shape);
  bool clauses(Kernel& kernel);
  void declare_tunables();
  bool tune(Kernel& kernel);
  bool listed_values(std::vector<int64_t>& values);
  bool grid(Kernel& kernel);
  bool type(TypeRef& out);
  void not_in_version_1(std::string_view what, std::string mend);

  // parse_program.cc
  void program();
  bool temp(Program& program);
  void calls(Program& program);
  bool conditional(Program& program);
  bool braced_calls(Program& program);
  bool call(Program& program);
  bool call_consts(Call& call);
  bool call_arg(Call& call);
  void recover_to_call();

  // parse_stmt.cc
  Block block();  // at `{`
  void statements(Block& body);
  bool statement(Block& body);
  void recover();
  bool recover_to_brace();
  bool decl(Block& body, Scope scope);
  bool let(Block& body);
  bool parallel(Block& body);
  bool loop(Block& body, bool pipelined);
  bool if_statement(Block& body);
  bool atomic(Block& body);
  bool assignment(Block& body, AtomicOp atomic, size_t first);
  bool tile_assignment(Block& body, TileRef dst, AtomicOp atomic, size_t first);
  bool tile_value(Block& body, TileRef dst, AtomicOp atomic, bool accumulate, size_t first);
  bool gemm(Block& body, TileRef dst, TileRef a, bool accumulate, size_t first);
  bool transpose(bool& flag);
  bool tile(TileRef& out);
  bool axis(TileRef& tile);
  bool iters(std::vector<IterVar>& out, VarKind kind);

  // parse_expr.cc. Null: a syntax error, already reported.
  ExprRef expr();
  ExprRef binary(int min_precedence);
  ExprRef unary();
  ExprRef primary();
  ExprRef literal();
  ExprRef name_use();
  ExprRef let_in(size_t first);
  ExprRef load(const Token& name, BufferRef buffer, size_t first);
  ExprRef call(size_t first, bool approx);
  ExprRef cast(TypeRef type, size_t first);
  ExprRef reduction(size_t first);
  const IterVar* scanned_index() const;
  ExprRef scan(ReduceOp op, const IterVar& index, size_t first);
  bool arguments(std::vector<ExprRef>& args, int& height);

  size_t at_ = 0;
  ParseResult result_;
  std::vector<Token> tokens_;
  bool stopped_ = false;  // a limit was exceeded: nothing more is read or reported
  int depth_ = 0, nodes_ = 0;
  int height_ = 0;  // of the expression that was read last
  bool in_parallel_ = false;
  std::vector<IterVar> region_;  // indices of the `parallel` that is read
  std::vector<Guard> guards_;    // around the call that is read
  std::unordered_map<std::string, Entity> names_;
  std::vector<std::string> order_;     // of declaration, to leave scopes
  std::vector<std::string> reported_;  // unknown names, each reported once a kernel
  bool half_declared_ = false;         // the grid was not read to its end: what is unknown may have stood there
};

// The reduction that a word names.
std::optional<ReduceOp> reduce_op(std::string_view name);

// Counts nesting; ok() is false, with a diagnostic, beyond the limit.
class Parser::Nest {
 public:
  explicit Nest(Parser& parser) : parser_(parser) {
    if (++parser_.depth_ > kMaxNesting)
      parser_.give_up(parser_.peek().loc, "nested more than 200 deep", "name parts of it with `let`");
  }
  ~Nest() { --parser_.depth_; }
  Nest(const Nest&) = delete;
  Nest& operator=(const Nest&) = delete;
  bool ok() const { return !parser_.stopped_; }

 private:
  Parser& parser_;
};

}  // namespace kachel::ir
