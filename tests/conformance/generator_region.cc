// Parallel regions.
#include <fmt/format.h>

#include <algorithm>

#include "tests/conformance/generator_state.h"

namespace kachel::conformance {

using ir::DType;

namespace {

std::string joined(const std::vector<std::pair<std::string, Extent>>& iters) {
  std::string text;
  for (const auto& [name, extent] : iters)
    text += fmt::format("{}{} < {}", text.empty() ? "" : ", ", name, extent.text);
  return text;
}

int64_t count(const std::vector<std::pair<std::string, Extent>>& iters) {
  int64_t product = 1;
  for (const auto& iter : iters) product *= iter.second.value;
  return product;
}

}  // namespace

void Generator::region_lets(const Site& site) {
  for (int64_t lets = below(3); lets > 0; --lets) {
    const std::vector<DType> kTypes{DType::F32, DType::F32, DType::I32, DType::U32,
                                    DType::I64, DType::U64, DType::Bool};
    Term value = expr(choose(kTypes), 2, site);
    const std::string name = fresh("v");
    line(fmt::format("let {} = {}", name, value.text));
    scalars_.push_back({name, value.type, value.exact});
  }
}

// One assignment; `first`: the tile may hold nothing yet, and no condition is around it.
void Generator::assign(size_t at, const std::vector<std::string>& indices, const Site& site, bool first) {
  const TypeName type = tiles_[at].type;
  const DType held = ir::compute_type(type.type);
  const std::string place = fmt::format("{}[{}]", tiles_[at].name, fmt::join(indices, ", "));
  const bool ready = tiles_[at].ready || !first;
  if (ready && held != DType::Bool && chance(35)) {
    const Term value = expr(held, 2, site);
    const std::string op = choose(std::vector<std::string>{"+=", "-=", "*=", "/="});
    const bool guarded = op == "/=" && held == DType::F32;
    line(fmt::format("{} {} {}", place, op, guarded ? fmt::format("abs({}) + 0.5", value.text) : value.text));
    tiles_[at].exact &= value.exact && held != DType::F32;
    return;
  }
  const Term value = value_for(type, 3, site);
  line(fmt::format("{} = {}", place, value.text));
  tiles_[at].exact = value.exact && (tiles_[at].exact || (first && nesting_ == 0));
}

void Generator::region_into(size_t at) {
  const Shape shape = tiles_[at].shape;
  Site site;
  site.reductions = chance(50) ? 2 : 1;
  std::vector<std::string> indices(shape.size());
  std::vector<size_t> order(shape.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (chance(20)) std::shuffle(order.begin(), order.end(), random_);
  const bool ready = tiles_[at].ready;
  bool whole = true;
  for (size_t axis : order) {
    const std::string var = fresh("r");
    Extent extent = shape[axis];
    indices[axis] = var;
    const int64_t way = below(100);
    if (way < 8) {
      indices[axis] = fmt::format("{} - 1 - {}", extent.text, var);
    } else if (ready && way < 13 && shape.size() > 1) {  // one row
      indices[axis] = chance(50) ? uniform_index() : fmt::format("{}", below(extent.value));
      whole = false;
      continue;
    } else if (ready && way < 20) {  // a part, or beyond the end
      extent = literal(1 + below(extent.value));
      indices[axis] = fmt::format("{} + {}", var, below(4));
      whole = false;
    }
    site.iters.push_back({var, extent});
  }
  if (site.iters.empty()) {
    site.iters.push_back({fresh("r"), literal(1)});
    indices[0] = fmt::format("i64({}) + {}", indices[0], site.iters[0].first);
  }
  site.runs = runs_ * count(site.iters);
  const size_t outer = scalars_.size();
  region_scalars_ = outer;
  open("parallel " + joined(site.iters));
  region_lets(site);
  const bool conditional = ready && chance(20);
  if (conditional) {
    open(fmt::format("if {}", expr(DType::Bool, 2, site).text));
    assign(at, indices, site, false);
    if (chance(50)) {
      --depth_;
      line("} else {");
      ++depth_;
      assign(at, indices, site, false);
    }
    close();
    whole = false;
  } else {
    assign(at, indices, site, true);
  }
  if (chance(25)) assign(at, indices, site, false);  // reads back what was just written
  if (chance(15)) atomic_element(site, at);
  if (chance(12) && whole) {
    const bool in_order = std::is_sorted(order.begin(), order.end());
    const TypeName type = type_like(chance(60));
    if (in_order && ir::bits(type.type) != 4) {
      const Owned to = owned(shape, type, "out ");
      const Term value = value_for(type, 2, site);
      std::vector<std::string> vars;
      for (const auto& iter : site.iters) vars.push_back(iter.first);
      const std::string text = fmt::format("{} = {}", element(to, vars), value.text);
      line(to.guard.empty() ? text : fmt::format("if {} {{ {} }}", to.guard, text));
    }
  }
  close();
  scalars_.resize(outer);
  if (whole) tiles_[at].ready = true;
  tiles_[at].saved = false;
  spend(site.runs);
}

// Two halves of the last axis are read together and both written.
void Generator::half_region() {
  const int64_t half = std::vector<int64_t>{1, 2, 3, 8, 16}[static_cast<size_t>(below(5))];
  const Shape shape{choose(extents_), literal(2 * half)};
  const TypeName type = type_like(chance(70));
  const size_t tile = filled_tile(shape, type);
  const std::string i = fresh("r"), j = fresh("r"), low = fresh("v"), high = fresh("v"), name = tiles_[tile].name;
  open(fmt::format("parallel {} < {}, {} < {}", i, shape[0].text, j, half));
  line(fmt::format("let {} = {}[{}, {}], {} = {}[{}, {} + {}]", low, name, i, j, high, name, i, j, half));
  const char* ops[] = {"+", "-", "*"};
  line(fmt::format("{}[{}, {}] = {} {} {}", name, i, j, low, ops[below(3)], high));
  line(fmt::format("{}[{}, {} + {}] = {} {} {}", name, i, j, half, high, ops[below(3)], low));
  if (chance(40)) line(fmt::format("{}[{}, {}] {}= {}[{}, {}]", name, i, j, ops[below(3)], name, i, j));
  close();
  mark_written(tile, !ir::is_float(type.type), true);
  spend(runs_ * shape[0].value * half * 6);
}

// Elements of a tensor, written straight from the region; in place, or two axes of the region in one of the tensor.
void Generator::region_to_tensor() {
  TypeName type = any_type();
  while (ir::bits(type.type) == 4) type = any_type();
  const bool in_place = chance(40);
  const Shape shape = random_shape(2048);
  Site site;
  site.reductions = chance(50) ? 2 : 1;
  std::vector<std::string> vars;
  for (const Extent& extent : shape) {
    vars.push_back(fresh("r"));
    site.iters.push_back({vars.back(), extent});
  }
  site.runs = runs_ * count(site.iters);
  const Owned to = owned(shape, type, in_place ? "inout " : "out ");
  const DType held = ir::compute_type(type.type);
  const size_t outer = scalars_.size();
  region_scalars_ = outer;
  const bool outside = !to.guard.empty() && chance(50);
  if (outside) open("if " + to.guard);
  open("parallel " + joined(site.iters));
  region_lets(site);
  const Term value = value_for(type, 3, site);
  const std::string place = element(to, vars);
  std::string text = fmt::format("{} = {}", place, value.text);
  if (in_place && held != DType::Bool && chance(50)) {
    text = fmt::format("{} {}= {}", place, chance(50) ? "+" : "-", expr(held, 2, site).text);
  } else if (in_place && chance(60)) {  // another element of the block's own, as it was before
    std::vector<std::string> mirrored;
    for (size_t i = 0; i < vars.size(); ++i)
      mirrored.push_back(chance(50) ? fmt::format("({} - 1 - {})", shape[i].text, vars[i]) : vars[i]);
    text = fmt::format("{} = {}", place, element(to, mirrored));
    if (held != DType::Bool && chance(50)) text += fmt::format(" + {}", expr(held, 1, site).text);
  }
  if (!to.guard.empty() && !outside) text = fmt::format("if {} {{ {} }}", to.guard, text);
  line(text);
  if (in_place && chance(25) && held != DType::Bool && to.guard.empty()) line(fmt::format("{} += {}", place, place));
  close();
  if (outside) close();
  scalars_.resize(outer);
  spend(site.runs);
}

void Generator::region() {
  const int64_t way = below(100);
  if (way < 20) return region_to_tensor();
  if (way < 27) return half_region();
  std::vector<size_t> known;
  for (size_t i = 0; i < tiles_.size(); ++i) known.push_back(i);
  if (!known.empty() && chance(65)) return region_into(choose(known));
  region_into(new_tile(random_shape(2048), any_type()));
}

}  // namespace kachel::conformance
