#include "lowering/tile_ir/column_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "ir/tunable_role.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/element_copies.h"
#include "lowering/tile_ir/part_access.h"
#include "lowering/tile_ir/reduce_ops.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::BufferRef;
using ir::ExprKind;
using ir::ExprRef;

constexpr int64_t kMostColumns = 8;

int64_t columns_of(const ir::Buffer& tile) {
  return tile.shape.back()->int_value;
}

bool is_candidate(const ir::Buffer& buffer) {
  return buffer.scope == ir::Scope::kFragment && buffer.shape.size() > 1 && ir::bits(buffer.type.dtype) >= 8 &&
         columns_of(buffer) > 1 && columns_of(buffer) <= kMostColumns;
}

// Whether a reduction over one index can be written out, once.
bool is_short(const ir::Expr& expr) {
  if (expr.kind != ExprKind::kReduce || ir::is_arg(expr.reduce) || expr.iters.size() != 1 ||
      expr.iters[0].extent->int_value > kMostColumns)
    return false;
  bool nested = false;
  ir::visit(expr.args[0], [&nested](const ExprRef& node) { nested |= ir::is_reduction(*node); });
  return !nested;
}

// Calls fn(buffer, indices, written) on each access of a region's statements.
template <class Fn>
void for_each_access(const ir::Block& body, const Fn& fn) {
  ir::for_each_stmt(body, [&](const ir::Stmt& stmt) {
    ir::for_each_expr(stmt, [&](const ExprRef& expr) {
      ir::visit(expr, [&](const ExprRef& node) {
        if (node->kind == ExprKind::kLoad) fn(node->buffer, node->args, false);
      });
    });
    if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) fn(assign->buffer, assign->indices, true);
  });
}

// Which tiles become columns.
class Choice {
 public:
  explicit Choice(const ir::Kernel& kernel) {
    block(kernel.body);
    for (const ir::Buffer* tile : refused_) named_.erase(tile);
    // A region over columns is written out for all of its tiles or for none.
    for (size_t before = ~size_t{0}; before != named_.size();) {
      before = named_.size();
      for (const auto& [region, var] : walked_)
        if (!parts_columns(*region, var))
          for_each_access(region->body, [&](const BufferRef& buffer, const std::vector<ExprRef>& indices, bool) {
            if (is_var(indices.back(), var.get())) named_.erase(buffer.get());
          });
    }
  }
  bool empty() const { return named_.empty(); }
  bool has(const ir::Buffer& tile) const { return named_.count(&tile) != 0; }
  // The index of the region that walks over columns; null: there is none.
  ir::VarRef over_columns(const ir::ParallelStmt& region) const {
    ir::VarRef found;
    for (const ir::IterVar& iter : region.iters)
      for_each_access(region.body, [&](const BufferRef& buffer, const std::vector<ExprRef>& indices, bool) {
        if (has(*buffer) && is_var(indices.back(), iter.var.get())) found = iter.var;
      });
    return found;
  }

 private:
  static bool is_var(const ExprRef& expr, const ir::Var* var) {
    return expr->kind == ExprKind::kVar && expr->var.get() == var;
  }

  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) {
        this->region(*region);
        continue;
      }
      const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
      const bool fill = std::holds_alternative<ir::FillStmt>(stmt.node);
      ir::for_each_tile(stmt, [&](const ir::TileRef& tile, bool) {
        const bool side = copy && (&tile == &copy->dst || &tile == &copy->src);
        if (!((side && is_by_elements(*copy)) || (fill && has_whole_axes(tile)))) refused_.insert(tile.buffer.get());
      });
      ir::for_each_expr(stmt, [&](const ExprRef& expr) { note_loads(expr, &refused_); });
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) block(loop->body);
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) block(branch->then_body), block(branch->else_body);
    }
  }

  void region(const ir::ParallelStmt& region) {
    BufferSet written;
    for (const ir::Stmt& stmt : region.body) note_writes(stmt, &written);
    // A reduction sees what there was before, an element by its name what the iteration has written: written out, its
    // operand must not name what the region writes.
    std::map<const ir::Var*, int64_t> reduced;
    for_each_node(region.body, [&](const ExprRef& node) {
      if (!is_short(*node)) return;
      BufferSet loaded;
      note_loads(node, &loaded);
      if (std::none_of(loaded.begin(), loaded.end(), [&](const ir::Buffer* buffer) { return written.count(buffer); }))
        reduced[node->iters[0].var.get()] = node->iters[0].extent->int_value;
    });
    for_each_access(region.body, [&](const BufferRef& buffer, const std::vector<ExprRef>& indices, bool) {
      if (!is_candidate(*buffer)) return;
      const ExprRef& column = indices.back();
      const int64_t columns = columns_of(*buffer);
      if (column->kind == ExprKind::kInt && column->int_value >= 0 && column->int_value < columns) {
        named_.insert(buffer.get());
        return;
      }
      const auto sum = column->kind == ExprKind::kVar ? reduced.find(column->var.get()) : reduced.end();
      if (sum != reduced.end() && sum->second <= columns) return;
      const auto iter = std::find_if(region.iters.begin(), region.iters.end(), [&](const ir::IterVar& one) {
        return is_var(column, one.var.get()) && one.extent->int_value <= columns;
      });
      if (iter == region.iters.end() || region.iters.size() < 2)
        refused_.insert(buffer.get());
      else
        walked_.emplace_back(&region, iter->var);
    });
  }

  // Whether what an iteration writes has the column for an index, so that no other column's reads it.
  bool parts_columns(const ir::ParallelStmt& region, const ir::VarRef& var) const {
    std::map<const ir::Buffer*, size_t> axes;  // of what is written, that the column is an index of
    bool apart = true;
    for_each_node(region.body, [&](const ExprRef& node) {
      if (node->kind == ExprKind::kScan) apart &= !ir::mentions(node, var);
    });
    using Places = std::vector<const std::vector<ExprRef>*>;
    std::map<const ir::Buffer*, Places> places;  // where what is written is
    for_each_access(region.body, [&](const BufferRef& buffer, const std::vector<ExprRef>& indices, bool written) {
      if (!written) return;
      size_t axis = 0;
      while (axis < indices.size() && !is_var(indices[axis], var.get())) ++axis;
      const auto [known, fresh] = axes.try_emplace(buffer.get(), axis);
      apart &= axis < indices.size() && known->second == axis;
      places[buffer.get()].push_back(&indices);
    });
    for_each_access(region.body, [&](const BufferRef& buffer, const std::vector<ExprRef>& indices, bool) {
      // By the name that it is written by, or that name comes to be the same once the column is a number.
      if (const auto own = places.find(buffer.get()); own != places.end())
        apart &= std::any_of(own->second.begin(), own->second.end(), [&](const std::vector<ExprRef>* place) {
          return std::equal(place->begin(), place->end(), indices.begin(), indices.end(), ir::same);
        });
      // Another index of the region in the place of the column is another tile's matter.
      if (has(*buffer) && indices.back()->kind == ExprKind::kVar && !is_var(indices.back(), var.get()))
        apart &= std::none_of(region.iters.begin(), region.iters.end(),
                              [&](const ir::IterVar& one) { return is_var(indices.back(), one.var.get()); });
    });
    return apart;
  }

  BufferSet named_, refused_;
  std::vector<std::pair<const ir::ParallelStmt*, ir::VarRef>> walked_;
};

class Writer {
 public:
  explicit Writer(const Choice& choice) : choice_(choice) {}

  ir::Block block(const ir::Block& body) {
    ir::Block out;
    for (const ir::Stmt& stmt : body) statement(stmt, &out);
    return out;
  }

 private:
  const BufferRef& column(const BufferRef& tile, int64_t number) {
    std::vector<BufferRef>& made = made_[tile.get()];
    for (int64_t i = static_cast<int64_t>(made.size()); i < columns_of(*tile); ++i) {
      ir::Buffer one = *tile;
      one.name += fmt::format("_{}", i);
      one.shape.pop_back();
      made.push_back(std::make_shared<const ir::Buffer>(std::move(one)));
    }
    return made[static_cast<size_t>(number)];
  }
  // The column that an access names, without which its indices are those there.
  const BufferRef& renamed(const BufferRef& tile, std::vector<ExprRef>* indices) {
    const int64_t number = indices->back()->int_value;
    indices->pop_back();
    return column(tile, planted(Planted::kFirstColumn) ? 0 : number);
  }

  void statement(const ir::Stmt& stmt, ir::Block* out) {
    if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node); decl && choice_.has(*decl->buffer)) {
      for (int64_t i = 0; i < columns_of(*decl->buffer); ++i)
        out->push_back({stmt.loc, ir::DeclStmt{column(decl->buffer, i), decl->init}});
      return;
    }
    if (const auto* fill = std::get_if<ir::FillStmt>(&stmt.node); fill && choice_.has(*fill->dst.buffer)) {
      for (int64_t i = 0; i < columns_of(*fill->dst.buffer); ++i)
        out->push_back({stmt.loc, ir::FillStmt{whole_tile(column(fill->dst.buffer, i)), fill->value}});
      return;
    }
    if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) {
      if (choice_.has(*copy->dst.buffer) || choice_.has(*copy->src.buffer)) {
        out->push_back({stmt.loc, moved(*copy, stmt.loc)});
        return;
      }
    }
    if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) return written_out(*region, stmt.loc, out);
    out->push_back(stmt);
    replace_blocks(&out->back(), [this](const ir::Block& inner) { return block(inner); });
  }

  // Each row's elements one after the other.
  ir::ParallelStmt moved(const ir::CopyStmt& copy, ir::Loc loc) {
    const CopySides sides = sides_of(copy);
    const BufferRef& tile = sides.tile->buffer;
    std::vector<ExprRef> rows;
    ir::ParallelStmt region = region_over({tile->shape.begin(), tile->shape.end() - 1}, &rows);
    for (int64_t number = 0; number < columns_of(*tile); ++number) {
      std::vector<ExprRef> places = rows;
      places.push_back(ir::make_int(number));
      region.body.push_back(element_copy(sides, column(tile, number), rows, element_of(*sides.slice, places), loc));
    }
    return region;
  }

  void written_out(const ir::ParallelStmt& region, ir::Loc loc, ir::Block* out) {
    const ir::VarRef var = choice_.over_columns(region);
    if (!var) {
      out->push_back({loc, ir::ParallelStmt{region.iters, renamed(region.body)}});
      return;
    }
    ir::ParallelStmt one{region.iters, {}};
    const auto over =
        std::find_if(one.iters.begin(), one.iters.end(), [&](const ir::IterVar& iter) { return iter.var == var; });
    const int64_t columns = over->extent->int_value;
    one.iters.erase(over);
    for (int64_t number = 0; number < columns; ++number) {
      one.body = renamed(substituted(region.body, var, ir::make_int(number, var->type.dtype)));
      out->push_back({loc, one});
    }
  }

  ir::Block renamed(ir::Block body) {
    rewrite_region(&body, [this](const ExprRef& expr) { return renamed(summed(expr)); });
    assigned(&body);
    return body;
  }
  void assigned(ir::Block* body) {
    for (ir::Stmt& stmt : *body) {
      if (auto* assign = std::get_if<ir::AssignStmt>(&stmt.node); assign && choice_.has(*assign->buffer))
        assign->buffer = renamed(assign->buffer, &assign->indices);
      if (auto* branch = std::get_if<ir::IfStmt>(&stmt.node))
        assigned(&branch->then_body), assigned(&branch->else_body);
    }
  }
  ExprRef renamed(const ExprRef& expr) {
    return ir::rewrite(expr, [this](const ExprRef& node) {
      if (node->kind != ExprKind::kLoad || !choice_.has(*node->buffer)) return node;
      std::vector<ExprRef> indices = node->args;
      const BufferRef& one = renamed(node->buffer, &indices);
      return ir::make_load(one, std::move(indices));
    });
  }
  // Reductions over columns, in their order.
  ExprRef summed(const ExprRef& expr) {
    return ir::rewrite(expr, [this](const ExprRef& node) {
      if (!is_short(*node)) return node;
      const ir::IterVar& iter = node->iters[0];
      bool over = false;
      ir::visit(node->args[0], [&](const ExprRef& inner) {
        over |= inner->kind == ExprKind::kLoad && choice_.has(*inner->buffer) &&
                inner->args.back()->kind == ExprKind::kVar && inner->args.back()->var == iter.var;
      });
      if (!over) return node;
      ExprRef all;
      for (int64_t i = 0; i < iter.extent->int_value; ++i) {
        const ExprRef one = substituted(node->args[0], iter.var, ir::make_int(i, iter.var->type.dtype));
        all = all ? combined(node->reduce, all, one) : one;
      }
      return all;
    });
  }

  const Choice& choice_;
  std::map<const ir::Buffer*, std::vector<BufferRef>> made_;
};

}  // namespace

ir::Kernel column_tiles(const ir::Kernel& kernel) {
  const Choice choice(kernel);
  if (choice.empty()) return kernel;
  ir::Kernel out = kernel;
  out.body = Writer(choice).block(kernel.body);
  return out;
}

}  // namespace kachel::lowering
