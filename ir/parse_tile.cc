// Statements on tiles: copies, fills, gemms, and the slices in them.
#include <fmt/format.h>

#include "ir/parser.h"

namespace kachel::ir {
namespace {

bool is_tile(const TileRef& tile) {
  for (const AxisSpec& axis : tile.axes)
    if (axis.kind != AxisSpec::Kind::kIndex) return true;
  return false;
}

constexpr std::string_view kElementwise = "combine elements in `parallel i < M, j < N { c[i, j] = ... }`";
constexpr std::string_view kAdding =
    "a gemm adds to its tile by `c += a @ b`; combine elements in `parallel i < M, j < N { c[i, j] = ... }`";
constexpr std::string_view kToTensor =
    "add to a tensor by `atomic C[...] += c`, or read what is there and store the sum";

// What to do about `+=` with something that is no gemm.
std::string mend_of_adding(const TileRef& dst) {
  return std::string(dst.buffer->scope == Scope::kGlobal ? kToTensor : kElementwise);
}

}  // namespace

bool Parser::tile_assignment(Block& body, TileRef dst, AtomicOp atomic, size_t first) {
  if (!is_tile(dst)) {
    std::string_view wanted = dst.buffer->scope == Scope::kGlobal ? "tensor" : "tile";
    report(
        dst.loc, fmt::format("one element of a {} assigned outside `parallel`", wanted),
        "write `parallel i < n { ... }` over all elements in place of a loop, or `parallel i < 1 { ... }` around it");
    return false;
  }
  bool accumulate = at("+=");
  for (std::string_view op : {"-=", "*=", "/="})
    if (at(op))
      return fail(
          fmt::format("`{}` on a tile", op),
          std::string(kElementwise) + (op == "-=" ? "; of a product by way of a tile of its own, `p = a @ b`" : ""));
  if (!accumulate && !at("=")) return expect("=", "the tile that is assigned");
  const Token& op = peek();
  advance();
  if (atomic != AtomicOp::kNone && accumulate != (atomic == AtomicOp::kAdd)) {
    report(op.loc, fmt::format("`{}` does not go with this `atomic`", op.text),
           "write `atomic C[...] += x`, `atomic max C[...] = x` or `atomic min C[...] = x`");
  }
  return tile_value(body, std::move(dst), atomic, accumulate, first);
}

bool Parser::tile_value(Block& body, TileRef dst, AtomicOp atomic, bool accumulate, size_t first) {
  const Entity* entity = at_name() ? find(peek().text) : nullptr;
  if (entity && entity->buffer) {
    Mark begin = mark();
    TileRef src;
    if (!tile(src)) return false;
    if (is_tile(src)) {
      if (at("@") || at("^")) {
        if (atomic != AtomicOp::kNone)
          return fail("a gemm cannot be `atomic`", "accumulate in a fragment, then `atomic C[...] += acc`");
        return gemm(body, std::move(dst), std::move(src), accumulate, first);
      }
      for (std::string_view op : {"+", "-", "*", "/", "%", "<<", ">>", "&", "|", "?", "<", ">", "==", "&&", "||"})
        if (at(op))
          return fail(fmt::format("`{}` between whole tiles", op),
                      std::string(op == "+" && src.buffer == dst.buffer ? kAdding : kElementwise));
      if (accumulate && atomic == AtomicOp::kNone) {
        report(src.loc, "`+=` adds the product of a gemm only", mend_of_adding(dst));
        return true;
      }
      body.push_back({span(first), CopyStmt{std::move(dst), std::move(src), atomic}});
      return true;
    }
    rewind(begin);
  }
  Loc at_value = peek().loc;
  const Mark before = mark();
  ExprRef value = expr();
  if (value && at("@")) {
    rewind(before);
    return fail("an operand of `@` is a tile, this is an expression",
                "make it a tile first, `parallel i < M, j < K { a[i, j] = ... }`, and multiply that");
  }
  if (!value) return false;
  if (atomic != AtomicOp::kNone) {
    report(at_value, "`atomic` on a slice combines it with a tile", "fill a fragment with the value first");
    return true;
  }
  if (accumulate) {
    report(at_value, "`+=` adds the product of a gemm only", mend_of_adding(dst));
    return true;
  }
  body.push_back({span(first), FillStmt{std::move(dst), std::move(value)}});
  return true;
}

bool Parser::transpose(bool& flag) {
  if (!accept("^")) return true;
  flag = true;
  if (accept("T")) return true;
  return fail("`^` after a tile is followed by `T`", "write `B^T` for the transpose");
}

bool Parser::gemm(Block& body, TileRef dst, TileRef a, bool accumulate, size_t first) {
  GemmStmt stmt;
  stmt.c = std::move(dst);
  stmt.a = std::move(a);
  stmt.accumulate = accumulate;
  if (!transpose(stmt.transpose_a)) return false;
  if (stmt.transpose_a && !at("@")) {
    report(stmt.a.loc, "`^T` turns operands of products alone",
           "write `@` and the right operand, or turn a tile in `parallel i < M, j < N { y[i, j] = x[j, i] }`");
    return true;
  }
  if (!expect("@", "the left operand of a gemm")) return false;
  const Entity* entity = at_name() ? find(peek().text) : nullptr;
  if (at_name() && !entity) {
    unknown(peek(), "name");
    return false;
  }
  if (!entity || !entity->buffer) return fail("the operands of a gemm are tiles", "write `acc += a @ b^T`");
  if (!tile(stmt.b) || !transpose(stmt.transpose_b)) return false;
  if (at("@")) return fail("a gemm has two operands", "store the first product in a tile");
  if (accept("precision")) {
    if (accept("tf32"))
      stmt.precision = Precision::kTf32;
    else if (accept("fast"))
      stmt.precision = Precision::kFast;
    else
      return fail("the precisions that can be asked for are `tf32` and `fast`",
                  "write `precision tf32` for f32 operands, `precision fast` for 8-bit floats");
  }
  body.push_back({span(first), std::move(stmt)});
  return true;
}

// At the name of a buffer.
bool Parser::tile(TileRef& out) {
  Nest nest(*this);
  if (!nest.ok() || !count_node(peek().loc)) return false;
  size_t first = at_;
  const Token& name = peek();
  out.buffer = find(name.text)->buffer;
  advance();
  if (accept("[")) {
    do {
      if (!axis(out)) return false;
    } while (accept(","));
    if (!expect("]", "the slice")) return false;
    if (out.axes.size() != out.buffer->shape.size()) {
      report(span(first),
             fmt::format("`{}` has {} axes, {} are given", name.text, out.buffer->shape.size(), out.axes.size()),
             at("[") ? "write all indices in one pair of brackets: `x[i, j]`"
                     : "give an index, a range `a +: n` or `:` for each axis");
      return false;
    }
  } else {
    out.axes.resize(out.buffer->shape.size());
  }
  while (at("within") || at("pad")) {
    bool pad = at("pad");
    if (pad ? out.pad != nullptr : out.within_first != nullptr)
      return fail(fmt::format("`{}` is given twice", peek().text), "keep one");
    advance();
    ExprRef value = expr();
    if (!value) return false;
    if (pad) {
      out.pad = std::move(value);
    } else {
      out.within_first = std::move(value);
      if (!expect("+:", "the first element of `within`")) return false;
      if (!(out.within_length = expr())) return false;
    }
  }
  out.loc = span(first);
  return true;
}

bool Parser::axis(TileRef& tile) {
  AxisSpec axis;
  if (accept(":")) {
    tile.axes.push_back(std::move(axis));
    return true;
  }
  const Entity* entity = at_name() ? find(peek().text) : nullptr;
  if (entity && entity->buffer) {
    Mark begin = mark();
    auto gather = std::make_shared<TileRef>();
    if (!this->tile(*gather)) return false;
    if (is_tile(*gather)) {
      if (!at(",") && !at("]"))
        return fail(fmt::format("`{}` after a slice that is used as indices", peek().text),
                    "compute the indices into an integer tile first, then use it bare");
      axis.kind = AxisSpec::Kind::kGather;
      axis.gather = std::move(gather);
      tile.axes.push_back(std::move(axis));
      return true;
    }
    rewind(begin);
  }
  axis.start = expr();
  if (!axis.start) return false;
  axis.kind = AxisSpec::Kind::kIndex;
  if (accept("+:")) {
    axis.kind = AxisSpec::Kind::kRange;
    axis.extent = expr();
    if (!axis.extent) return false;
    if (at(":"))
      return fail("a slice has no step",
                  "read single elements in a region: `parallel i < n { x[i] = X[first + 2*i] }`");
  } else if (at(":")) {
    return fail("a slice is `first +: length`", "write `+:` and the number of elements");
  }
  if (at("within") || at("pad"))
    return fail(fmt::format("`{}` within the brackets", peek().text),
                at("pad")
                    ? "it stands behind them: `X[i, j +: n] pad -inf`"
                    : "it stands behind them, `X[i +: n, :] within first +: length`, and bounds the first axis that "
                      "is no index");
  tile.axes.push_back(std::move(axis));
  return true;
}

}  // namespace kachel::ir
