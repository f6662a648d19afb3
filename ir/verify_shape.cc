#include <fmt/format.h>

#include "ir/print.h"
#include "ir/verify_rules.h"

namespace kachel::ir {
namespace {

class Shapes {
 public:
  Shapes(const Kernel& kernel, Diagnostics& out) : out_(out) { assume_where(kernel, polys_); }

  void statement(const Stmt& stmt) {
    size_t before = out_.size();
    for_each_tile(stmt, [&](const TileRef& tile, bool written) { slice(tile, written); });
    if (out_.size() != before) return;
    if (const auto* copy = std::get_if<CopyStmt>(&stmt.node)) this->copy(*copy);
    if (const auto* gemm = std::get_if<GemmStmt>(&stmt.node)) this->gemm(*gemm);
  }

 private:
  void report(Loc loc, std::string message, std::string mend) {
    out_.push_back({loc, std::move(message), std::move(mend)});
  }

  void slice(const TileRef& tile, bool written) {
    if (written && tile.pad)
      report(tile.loc, fmt::format("`pad` on the written tile `{}`", tile.buffer->name),
             "remove it; elements outside are never written");
    for (const AxisSpec& axis : tile.axes) {
      if (!axis.gather) continue;
      std::vector<ExprRef> shape = tile_shape(*axis.gather);
      bool nested = false;
      for (const AxisSpec& inner : axis.gather->axes) nested |= inner.kind == AxisSpec::Kind::kGather;
      if (shape.size() != 1)
        report(axis.gather->loc,
               fmt::format("`{}` selects elements along one axis, but has {} axes itself", axis.gather->buffer->name,
                           shape.size()),
               "index all of its axes but one");
      else if (nested)
        report(axis.gather->loc, "indices that are selected by indices", "copy the inner selection to a tile first");
    }
  }

  bool equal(const ExprRef& a, const ExprRef& b) { return polys_.equal(a, b); }

  void copy(const CopyStmt& copy) {
    std::vector<ExprRef> dst = tile_shape(copy.dst), src = tile_shape(copy.src);
    if (dst.size() != src.size()) {
      report(copy.src.loc,
             fmt::format("`{}` is {} here, a tile {} is expected", copy.src.buffer->name, show_shape(src),
                         show_shape(dst)),
             dst.size() < src.size()
                 ? "index the axes that are too many, or declare those that lie in one row as one axis"
                 : "give a range `i +: 1` where an axis is missing; what lies in other axes is copied in a `parallel`");
      return;
    }
    const auto same = [this](const ExprRef& a, const ExprRef& b) { return equal(a, b); };
    if (std::equal(dst.begin(), dst.end(), src.begin(), same)) return;
    const size_t at = static_cast<size_t>(std::mismatch(dst.begin(), dst.end(), src.begin(), same).first - dst.begin());
    const bool turned = dst.size() == 2 && std::equal(dst.rbegin(), dst.rend(), src.begin(), same);
    report(copy.src.loc,
           fmt::format("`{}` is {} here, `{}` is {}", copy.src.buffer->name, show_shape(src), copy.dst.buffer->name,
                       show_shape(dst)),
           turned ? "a copy does not turn a tile: declare it as it lies in memory, and turn an operand with `^T`, "
                    "anything else in `parallel i < M, j < N { y[j, i] = x[i, j] }`"
                  : fmt::format("make axis {} of both the same length: {} or {}", at, print(dst[at]), print(src[at])));
  }

  bool operand(const TileRef& tile, std::string_view role) {
    if (tile.buffer->scope == Scope::kGlobal) {
      report(tile.loc, fmt::format("`{}` is a tensor, {} is a tile", tile.buffer->name, role),
             "copy the part that is needed to a `shared` tile, or accumulate in a `fragment`");
      return false;
    }
    if (tile.within_first || tile.pad) {
      report(tile.loc, "`within` and `pad` do not apply to a gemm", "give them to the copy that fills the tile");
      return false;
    }
    for (const AxisSpec& axis : tile.axes) {
      if (!axis.gather) continue;
      report(tile.loc, "rows selected by indices cannot be the operand of a gemm", "copy them to a tile first");
      return false;
    }
    size_t rank = tile_shape(tile).size();
    if (rank == 2) return true;
    report(
        tile.loc,
        fmt::format("`{}` has {} ax{} here, a gemm works on two", tile.buffer->name, rank, rank == 1 ? "is" : "es"),
        rank > 1 ? "index the axes that are too many"
        : tile.buffer->shape.size() == 1
            ? "declare it with a second axis, as `[n, 1]`, or add products up in a region: `sum[k < n](a[i, k] * x[k])`"
            : "give a range `i +: 1` for the other axis");
    return false;
  }

  void gemm(const GemmStmt& gemm) {
    bool ok = operand(gemm.c, "the result of a gemm");
    ok &= operand(gemm.a, "the operand of a gemm");
    ok &= operand(gemm.b, "the operand of a gemm");
    for (const TileRef* tile : {&gemm.a, &gemm.b}) {
      if (tile->buffer != gemm.c.buffer) continue;
      report(tile->loc, fmt::format("`{}` is result and operand of one gemm", tile->buffer->name),
             "write the result to another tile");
      ok = false;
    }
    if (!ok) return;
    std::vector<ExprRef> a = tile_shape(gemm.a), b = tile_shape(gemm.b), c = tile_shape(gemm.c);
    if (gemm.transpose_a) std::swap(a[0], a[1]);
    if (gemm.transpose_b) std::swap(b[0], b[1]);
    std::string_view a_name = gemm.a.buffer->name, b_name = gemm.b.buffer->name, c_name = gemm.c.buffer->name;
    if (!equal(a[0], c[0]) || !equal(a[1], b[0])) {
      if (equal(a[1], c[0]) && equal(a[0], b[0])) {
        report(gemm.a.loc,
               fmt::format("`{}` is {}, the gemm needs {} on the left", a_name, show(gemm.a), show_shape({c[0], b[0]})),
               toggle("left", a_name, gemm.transpose_a));
        return;
      }
      if (!equal(a[0], c[0])) {
        report(gemm.a.loc,
               fmt::format("`{}` is {}, the gemm needs {} rows on the left as `{}` has", a_name, show(gemm.a),
                           print(c[0]), c_name),
               fmt::format("make both {} or both {}", print(c[0]), print(a[0])));
        return;
      }
    }
    if (equal(a[1], b[0]) && equal(b[1], c[1])) return;
    std::string message =
        fmt::format("`{}` is {}, the gemm needs {} on the right", b_name, show(gemm.b), show_shape({a[1], c[1]}));
    if (equal(a[1], b[1]) && equal(b[0], c[1])) {
      report(gemm.b.loc, message,
             fmt::format("`{}` is {}, so the right operand must begin with {}; {}", a_name, show_shape(a), print(a[1]),
                         toggle("right", b_name, gemm.transpose_b)));
    } else {
      report(gemm.b.loc, message,
             fmt::format("`{}` is {} and `{}` is {}: make the axes that meet equal", a_name, show_shape(a), c_name,
                         show_shape(c)));
    }
  }

  static std::string toggle(std::string_view, std::string_view name, bool transposed) {
    return transposed ? fmt::format("write `{}` without `^T`", name) : fmt::format("write `{}^T`", name);
  }
  static std::string show(const TileRef& tile) { return show_type(tile.buffer->type) + show_shape(tile_shape(tile)); }

  Diagnostics& out_;
  PolyContext polys_;
};

}  // namespace

std::string show_shape(const std::vector<ExprRef>& shape) {
  std::string text = "[";
  for (const ExprRef& extent : shape) text += (text.size() > 1 ? ", " : "") + print(extent);
  return text + "]";
}

std::vector<ExprRef> tile_shape(const TileRef& tile) {
  std::vector<ExprRef> shape;
  for (size_t i = 0; i < tile.axes.size(); ++i) {
    const AxisSpec& axis = tile.axes[i];
    if (axis.kind == AxisSpec::Kind::kRange) shape.push_back(axis.extent);
    if (axis.kind == AxisSpec::Kind::kWhole) shape.push_back(tile.buffer->shape[i]);
    if (axis.kind == AxisSpec::Kind::kGather) {
      for (const ExprRef& extent : tile_shape(*axis.gather)) shape.push_back(extent);
    }
  }
  return shape;
}

void assume_where(const Kernel& kernel, PolyContext& polys) {
  auto assume = [&](auto&& self, const ExprRef& expr) -> void {
    if (expr->kind != ExprKind::kApply) return;
    if (expr->op == Op::kAnd) {
      self(self, expr->args[0]);
      self(self, expr->args[1]);
    }
    if (expr->op != Op::kEq) return;
    for (int side : {0, 1}) {
      const ExprRef& name = expr->args[static_cast<size_t>(side)];
      if (name->kind != ExprKind::kVar || name->var->kind != VarKind::kDim) continue;
      polys.equate(name->var, expr->args[static_cast<size_t>(1 - side)]);
      return;
    }
  };
  for (const ExprRef& expr : kernel.where) assume(assume, expr);
}

void check_shapes(const Kernel& kernel, Diagnostics& out) {
  Shapes shapes(kernel, out);
  for_each_stmt(kernel.body, [&](const Stmt& stmt) { shapes.statement(stmt); });
}

}  // namespace kachel::ir
