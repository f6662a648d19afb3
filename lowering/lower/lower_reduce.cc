// Reductions inside expressions. A reduction is taken out of its region, so that it runs once for every combination of
// the region's variables that it depends on and not once an iteration, into a temporary of that shape. Where there are
// fewer results than threads, several threads share one: each reduces every G-th element, then the G partial results
// are combined. Reductions nested in a reduction are run in place. See tile_lowering.h.
#include <algorithm>
#include <bit>
#include <numeric>

#include "ir/numerics.h"
#include "ir/parallel.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/machine/operation_price.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

namespace {

bool uses(const ExprRef& expr, const ir::VarRef& var) {
  bool found = false;
  ir::visit(expr, [&](const ExprRef& node) { found |= node->kind == ExprKind::kVar && node->var == var; });
  return found;
}

int64_t extent_of(const std::vector<ir::IterVar>& iters) {
  int64_t product = 1;
  for (const ir::IterVar& iter : iters) product *= iter.extent->int_value;
  return product;
}

// Terms that are written out, 0: all of a thread's. 512 of 150 instructions took NVRTC 13.0 more than a minute, 256 ten
// seconds; the sums themselves are registers.
int64_t longest_written_out(const ir::Expr& reduce, const FragmentLayout& terms, const FragmentLayout& sums) {
  constexpr double kMostInstructions = 16384;
  const double instructions = instructions_of(reduce.args[0]);
  if (instructions * static_cast<double>(terms.registers()) <= kMostInstructions) return 0;
  return std::max<int64_t>(sums.registers(), static_cast<int64_t>(kMostInstructions / instructions));
}

ExprRef inline_lets(const ExprRef& expr, const std::unordered_map<const ir::Var*, ExprRef>& lets) {
  return ir::rewrite(expr, [&](const ExprRef& node) {
    if (node->kind != ExprKind::kVar) return node;
    auto it = lets.find(node->var.get());
    return it == lets.end() ? node : it->second;
  });
}

}  // namespace

ExprRef TileLowering::extract_reductions(const ExprRef& expr, const std::vector<ir::IterVar>& iters,
                                         const std::unordered_map<const ir::Var*, ExprRef>& lets) {
  if (!expr) return expr;
  if (!ir::is_reduction(*expr)) {
    auto copy = std::make_shared<ir::Expr>(*expr);
    bool changed = false;
    for (ExprRef& arg : copy->args) {
      ExprRef replaced = extract_reductions(arg, iters, lets);
      changed |= replaced != arg;
      arg = replaced;
    }
    return changed ? ExprRef(copy) : expr;
  }
  ExprRef reduce = inline_lets(expr, lets);
  std::vector<ir::IterVar> outer;
  std::vector<ExprRef> coords;
  for (const ir::IterVar& iter : iters)
    if (uses(reduce, iter.var)) {
      outer.push_back(iter);
      coords.push_back(ir::make_var(iter.var));
    }
  const bool scan = expr->kind == ExprKind::kScan;
  ir::BufferRef result = scan ? scan_into_temporary(*reduce, outer) : reduce_into_temporary(*reduce, outer);
  if (coords.empty()) coords.push_back(int64(0));
  return ir::make_load(result, coords);
}

// Which of so many terms is added as number `step`.
ExprRef TileLowering::in_order(const ExprRef& step, int64_t count) {
  if (!target_.reversed) return step;
  const ExprRef from_end = let("from_end", ir::make_typed(Op::kSub, {int64(count - 1), step}));
  out_.ranges.set(from_end->var, {0, count - 1});
  return from_end;
}

ir::BufferRef TileLowering::reduce_into_temporary(const ir::Expr& reduce, const std::vector<ir::IterVar>& outer) {
  const int64_t results = extent_of(outer), inner = extent_of(reduce.iters);
  const DType type = reduce.type;
  // A tile of its own, so that loads of it go the way of all loads.
  auto tile = std::make_shared<ir::Buffer>(
      ir::Buffer{"reduced", ir::Scope::kShared, ir::Direction::kInOut, {type, nullptr}, {}, {}});
  std::vector<int64_t> shape;
  std::vector<std::string> names;
  for (const ir::IterVar& iter : outer) {
    shape.push_back(iter.extent->int_value);
    names.push_back(iter.var->name);
  }
  if (shape.empty()) shape.push_back(1);
  for (int64_t extent : shape) tile->shape.push_back(int64(extent));
  storage_[tile.get()] = temporary("reduced", type, ir::Scope::kShared, results);

  const int64_t first_element = planted(Planted::kReduceSkipsFirst) && inner > 1 ? 1 : 0;
  const ExprRef zero = ir::make_int(0, DType::I32);
  auto bind = [&](const Site& site) {
    for (size_t i = 0; i < outer.size(); ++i) values_[outer[i].var.get()] = site.coords[i];
  };

  int64_t group = 1;
  if (!on_cpu() && results < out_.threads)
    group = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::min(out_.threads / results, inner))));
  if (group == 1) {
    each(shape, names, false, [&](const Site& site) {
      bind(site);
      ExprRef value = inline_reduction(reduce, &site);
      store(storage(tile), offset(tile, site.coords, &site), value, nullptr);
    });
    return tile;
  }

  ir::BufferRef partial = temporary("partial", type, ir::Scope::kShared, results * group);
  ir::BufferRef sum = temporary("sum", type, ir::Scope::kRegister, 1);
  std::vector<int64_t> spread = shape;
  spread.push_back(group);
  std::vector<std::string> spread_names = names;
  spread_names.resize(shape.size(), "o");
  spread_names.push_back("g");
  auto flat = [&](const Site& site) {
    ExprRef at = site.coords[0];
    for (size_t i = 1; i < site.coords.size(); ++i)
      at = ir::make_typed(Op::kAdd, {ir::make_typed(Op::kMul, {at, int64(spread[i])}), site.coords[i]});
    return at;
  };
  each(spread, spread_names, false, [&](const Site& site) {
    bind(site);
    store(sum, zero, neutral_element(reduce.reduce, type), nullptr);
    serial("step", int64((inner + group - 1) / group), true, [&](ExprRef step) {
      const ExprRef row = in_order(step, (inner + group - 1) / group);
      ExprRef linear =
          let("linear", ir::make_typed(Op::kAdd, {ir::make_typed(Op::kMul, {row, int64(group)}), site.coords.back()}));
      LoopBlock body = nested([&] {
        int64_t below = inner;
        for (const ir::IterVar& iter : reduce.iters) {
          below /= iter.extent->int_value;
          ExprRef coord = below == 1 ? linear : ir::make_typed(Op::kDiv, {linear, int64(below)});
          if (&iter != &reduce.iters.front()) coord = ir::make_typed(Op::kMod, {coord, iter.extent});
          ExprRef named = let(iter.var->name, coord);
          if (named == linear) named = let(iter.var->name, ir::make_typed(Op::kAdd, {linear, int64(0)}));
          out_.ranges.set(named->var, {0, iter.extent->int_value - 1});
          values_[iter.var.get()] = named;
        }
        ExprRef value = scalar(reduce.args[0], &site);
        store(sum, zero, combined(reduce.reduce, ir::make_load(sum, {zero}), value), nullptr);
      });
      ExprRef guard;
      if (inner % group) guard = ir::make_typed(Op::kLt, {linear, int64(inner)});
      if (first_element) guard = both(guard, ir::make_typed(Op::kGe, {linear, int64(first_element)}));
      if (guard)
        emit({LoopIf{guard, std::move(body), {}}});
      else
        for (LoopStmt& stmt : body) emit(std::move(stmt));
    });
    store(partial, flat(site), ir::make_load(sum, {zero}), nullptr);
  });
  each(shape, names, false, [&](const Site& site) {
    store(sum, zero, neutral_element(reduce.reduce, type), nullptr);
    ExprRef base = offset(tile, site.coords, &site);
    ExprRef start = ir::make_typed(Op::kMul, {ir::make_cast({DType::I64, nullptr}, base), int64(group)});
    serial("g", int64(group), true, [&](ExprRef g) {
      ExprRef at = ir::make_typed(Op::kAdd, {start, in_order(g, group)});
      store(sum, zero, combined(reduce.reduce, ir::make_load(sum, {zero}), ir::make_load(partial, {at})), nullptr);
    });
    store(storage(tile), base, ir::make_load(sum, {zero}), nullptr);
  });
  return tile;
}

// What the thread holds, then what those hold that share a result with it.
void TileLowering::reduction(const ir::ParallelStmt& region, const ir::Expr& reduce, const FragmentLayout& layout) {
  const auto& assign = std::get<ir::AssignStmt>(region.body[0].node);
  const size_t rank = region.iters.size();
  const DType type = reduce.type;
  std::vector<size_t> kept;
  std::vector<std::string> names;
  for (size_t i = 0; i < rank; ++i) {
    kept.push_back(i);
    names.push_back(region.iters[i].var->name);
  }
  const std::vector<std::string> outer_names = names;
  for (const ir::IterVar& iter : reduce.iters) names.push_back(iter.var->name);
  const FragmentLayout results = layout.keep(kept);
  const bool direct = in_registers(assign.buffer);
  const ir::BufferRef sum =
      direct ? storage(assign.buffer) : temporary("sum", type, ir::Scope::kRegister, results.registers());
  auto fold = [&](const ExprRef& at, const ExprRef& value) {
    store(sum, at, combined(reduce.reduce, ir::make_load(sum, {at}), value), nullptr);
  };

  unrolled("r", results.registers(),
           [&](ExprRef at) { store(sum, at, neutral_element(reduce.reduce, type), nullptr); });
  // More sums than a thread has registers lie in memory, along which loops go. Written out, 1024 of them took
  // ptxas 13.0 half a minute.
  constexpr int64_t kMostHeld = 255, kWrittenOut = 64;
  const int64_t written_out = results.registers() > kMostHeld ? kWrittenOut : 0;
  region_written_out_ = written_out ? written_out : longest_written_out(reduce, layout, results);
  // What is read of tensors beside each other is loaded together, what few terms read alike once.
  ir::ForwardedRegion terms;
  terms.iters = region.iters;
  terms.iters.insert(terms.iters.end(), reduce.iters.begin(), reduce.iters.end());
  terms.lets.push_back({make_local("term", type), reduce.args[0]});
  const auto wide_reads = [&](const FragmentLayout& of) {
    std::vector<RegionRead> reads =
        of.vector() > 1 ? reads_of(terms, RegionIndexes(terms.iters), of) : std::vector<RegionRead>{};
    std::erase_if(reads, [](const RegionRead& read) {
      return (read.width == 1 && !read.once) || read.matrices || read.words ||
             read.load->buffer->scope != ir::Scope::kGlobal;
    });
    return reads;
  };
  std::vector<RegionRead> reads = wide_reads(layout);
  // Where these are elements of neighbouring results, all results are walked along for each term: what several of them
  // read of a tensor is loaded once for them, and not kept meanwhile.
  FragmentLayout walked = layout;
  std::vector<size_t> place(terms.iters.size());  // of an axis in the order of the walk
  std::iota(place.begin(), place.end(), size_t{0});
  if (reads.empty() && rank) {
    std::vector<size_t> order = place;
    std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(rank), order.end());
    const std::vector<ir::IterVar> iters = terms.iters;
    for (size_t i = 0; i < order.size(); ++i) terms.iters[i] = iters[order[i]];
    const FragmentLayout other = layout.keep(order).by_rows();
    reads = wide_reads(other);
    if (reads.empty()) {
      terms.iters = iters;
    } else {
      walked = other;
      for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i, names[i] = terms.iters[i].var->name;
    }
  }
  const std::vector<size_t> kept_places(place.begin(), place.begin() + static_cast<std::ptrdiff_t>(rank));
  each_with_reads(reads, terms.iters, walked, names, [&](const Site& site) {
    for (size_t i = 0; i < terms.iters.size(); ++i) values_[terms.iters[i].var.get()] = site.coords[i];
    ExprRef value = scalar(reduce.args[0], &site);
    LoopBlock body = nested([&] { fold(register_of(results, kept_places, site), value); });
    if (planted(Planted::kReduceSkipsFirst)) {
      ExprRef first = site.coords[place.back()];
      if (first->kind == ir::ExprKind::kVar)
        return emit({LoopIf{ir::make_typed(Op::kGt, {first, int64(0)}), std::move(body), {}}});
    }
    for (LoopStmt& stmt : body) emit(std::move(stmt));
  });

  region_written_out_ = 0;

  if (!parts_.count(&region)) combine_shared(reduce.reduce, sum, results, sharers_of(layout, rank));
  if (direct) return;
  WalkOptions options;
  options.most_unrolled = written_out;
  const auto keep = [&](const Site& site) {
    store(storage(assign.buffer), offset(assign.buffer, site.coords, &site),
          ir::make_load(sum, {register_of(results, kept, site)}), site.owner);
  };
  each_in(results, outer_names, 1, keep, options);
}

ExprRef TileLowering::inline_reduction(const ir::Expr& reduce, const Site* site) {
  if (ExprRef done = reduce_in_lanes(reduce, site, neutral_element(reduce.reduce, reduce.type))) return done;
  ir::BufferRef sum = temporary("sum", reduce.type, ir::Scope::kRegister, 1);
  const ExprRef zero = ir::make_int(0, DType::I32);
  store(sum, zero, neutral_element(reduce.reduce, reduce.type), nullptr);
  std::function<void(size_t)> nest = [&](size_t axis) {
    if (axis == reduce.iters.size()) {
      ExprRef value = scalar(reduce.args[0], site);
      store(sum, zero, combined(reduce.reduce, ir::make_load(sum, {zero}), value), nullptr);
      return;
    }
    const ir::IterVar& iter = reduce.iters[axis];
    serial(iter.var->name, iter.extent, true, [&](ExprRef coord) {
      if (planted(Planted::kReduceSkipsFirst) && iter.extent->int_value > 1 && axis == 0) {
        values_[iter.var.get()] = let("skipped", ir::make_typed(Op::kMax, {coord, int64(1)}));
        return nest(axis + 1);
      }
      values_[iter.var.get()] = in_order(coord, iter.extent->int_value);
      nest(axis + 1);
    });
  };
  nest(0);
  return let("reduced", ir::make_load(sum, {zero}));
}

}  // namespace kachel::lowering
