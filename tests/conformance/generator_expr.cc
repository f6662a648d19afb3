// Scalar expressions of a wanted compute type.
#include <fmt/format.h>

#include <algorithm>

#include "tests/conformance/generator_state.h"

namespace kachel::conformance {

using ir::DType;

namespace {

const std::vector<DType> kCompute{DType::F32, DType::I32, DType::U32, DType::I64, DType::U64, DType::Bool};
const std::vector<DType> kIntegers{DType::I32, DType::U32, DType::I64, DType::U64};

// Types whose values are held in `compute`.
std::vector<DType> held_in(DType compute) {
  std::vector<DType> types;
  for (int i = 0; i < ir::kDTypeCount; ++i)
    if (ir::compute_type(static_cast<DType>(i)) == compute) types.push_back(static_cast<DType>(i));
  return types;
}

}  // namespace

Term Generator::number(DType type) {
  switch (type) {
    case DType::F32:
      return {choose(std::vector<std::string>{"0.5", "-1.25", "2.0", "0.31831", "1e-3", "pi", "ln2", "log2e", "3.0"}),
              type};
    case DType::Bool:
      return {chance(50) ? "true" : "false", type};
    default: {
      int64_t value = below(8) == 0 ? below(1000) : below(9);
      if (ir::is_signed(type) && chance(25)) value = -value;
      return {fmt::format("{}({})", ir::name(type), value), type};
    }
  }
}

// Along an axis of `extent` elements; mostly within.
std::string Generator::index(const Extent& axis, const Site& site) {
  std::vector<std::string> alike;
  for (const auto& [name, extent] : site.iters)
    if (extent.text == axis.text) alike.push_back(name);
  if (site.iters.empty() && chance(85)) return uniform_index();
  const int64_t way = below(100);
  if (!alike.empty() && way < 65) return choose(alike);
  if (!alike.empty() && way < 75) return fmt::format("{} - 1 - {}", axis.text, choose(alike));
  if (!site.iters.empty() && way < 90) {
    const std::string& name = choose(site.iters).first;
    switch (below(5)) {
      case 0:
        return fmt::format("{} + {}", name, below(4));
      case 1:
        return fmt::format("{} - 1", name);
      case 2:
        return fmt::format("{} / 2", name);
      case 3:
        for (const GridAxis& grid : grid_)
          if (!grid.tile.text.empty()) return fmt::format("{}*{} + {}", grid.var, grid.tile.text, name);
        return name;
      default:
        return name;
    }
  }
  if (way < 94) return index_of_data(site);
  return fmt::format("{}", below(std::max<int64_t>(axis.value, 1)));
}

std::string Generator::index_of_data(const Site& site) {
  Site inner = site;
  inner.exact = true;
  inner.reductions = 0;
  return expr(choose(kIntegers), 1, inner).text;
}

std::string Generator::uniform_index() {
  std::vector<std::string> names;
  for (const Term& term : scalars_)
    if (term.exact && term.type != DType::F32 && term.type != DType::Bool) names.push_back(term.text);
  if (names.empty() || chance(40)) return fmt::format("{}", below(4));
  const std::string& name = choose(names);
  switch (below(4)) {
    case 0:
      return fmt::format("{} % 4", name);
    case 1:
      return fmt::format("{} + {}", name, below(3));
    default:
      return name;
  }
}

std::optional<Term> Generator::load(DType type, const Site& site) {
  std::vector<const TileBuffer*> from;
  for (const TileBuffer& tile : tiles_)
    if (tile.ready && ir::compute_type(tile.type.type) == type && (tile.exact || !site.exact)) from.push_back(&tile);
  for (const TileBuffer& input : inputs_)
    if (ir::compute_type(input.type.type) == type) from.push_back(&input);
  if (from.empty()) return std::nullopt;
  // By number: making an index may declare nothing, but keep no pointer across it all the same.
  const TileBuffer buffer = *from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))];
  std::vector<std::string> indices;
  for (const Extent& axis : buffer.shape) indices.push_back(index(axis, site));
  return Term{fmt::format("{}[{}]", buffer.name, fmt::join(indices, ", ")), type, buffer.exact};
}

Term Generator::leaf(DType type, const Site& site) {
  if (chance(65))
    if (auto loaded = load(type, site)) return *loaded;
  std::vector<Term> names;
  for (const Term& term : scalars_)
    if (term.type == type && (term.exact || !site.exact)) names.push_back(term);
  if (type == DType::I64)
    for (const auto& iter : site.iters) names.push_back({iter.first, DType::I64});
  if (!names.empty() && chance(60)) return choose(names);
  if (type != DType::Bool && chance(80)) {
    const DType other = choose(kIntegers);
    auto loaded = load(other, site);
    if (loaded) return {fmt::format("{}({})", ir::name(type), loaded->text), type, loaded->exact};
    if (type != DType::F32 && !site.iters.empty())
      return {fmt::format("{}({})", ir::name(type), choose(site.iters).first), type};
  }
  return number(type);
}

// Not near an integer, whatever small integer or fraction of one `value` is, and not large.
std::string Generator::safe_for_integers(const Term& value) {
  return value.exact ? value.text : fmt::format("clamp({} * 2.71 + 0.137, -200.0, 200.0)", value.text);
}

Term Generator::cast(DType type, int depth, const Site& site) {
  DType from = choose(kCompute);
  if (site.exact && from == DType::F32) from = DType::I32;
  Term value = expr(from, depth - 1, site);
  if (type == DType::F32 && !symbols_.empty() && symbols_[0].name.type == DType::F32 && chance(30))
    return {fmt::format("{}({})", symbols_[0].name.text, value.text), type, value.exact};
  std::string text = value.text;
  if (from == DType::F32 && type != DType::F32 && type != DType::Bool && !chance(3)) text = safe_for_integers(value);
  return {fmt::format("{}({})", ir::name(choose(held_in(type))), text), type, value.exact};
}

Term Generator::selection(DType type, int depth, const Site& site) {
  Term condition = expr(DType::Bool, depth - 1, site);
  Term yes = expr(type, depth - 1, site), no = expr(type, depth - 1, site);
  const char* form = chance(50) ? "({} ? {} : {})" : "select({}, {}, {})";
  return {fmt::format(fmt::runtime(form), condition.text, yes.text, no.text), type,
          condition.exact && yes.exact && no.exact};
}

// What reduces the body, which is kept near 1 where its products would leave the range of f32.
std::string Generator::folding(DType type, const Site& site, Term* body) {
  const bool rounds = chance(40) && !(site.exact && type == DType::F32);
  if (!rounds) return chance(50) ? "max" : "min";
  if (!chance(30)) return "sum";
  if (type == DType::F32) body->text = fmt::format("1 + 0.0625 * clamp({}, -1, 1)", body->text);
  return "prod";
}

Term Generator::reduction(DType type, const Site& site) {
  const Extent extent = choose(extents_);
  Site inner = site;
  inner.runs *= extent.value;
  --inner.reductions;
  inner.reduced = true;
  std::string iters;
  for (int64_t count = chance(20) ? 2 : 1; count > 0 && inner.runs < 65536; --count) {
    inner.iters.push_back({fresh("j"), count == 1 ? extent : literal(1 + below(4))});
    if (count > 1) inner.runs *= inner.iters.back().second.value;
    iters +=
        fmt::format("{}{} < {}", iters.empty() ? "" : ", ", inner.iters.back().first, inner.iters.back().second.text);
  }
  if (iters.empty()) return leaf(type, site);
  // The reduced buffer is read along the new axis rather than anywhere.
  if (type == DType::I64 && chance(50)) {
    const DType compared = choose(kCompute);
    const Term body = expr(compared == DType::Bool ? DType::F32 : compared, chance(60) ? 0 : 2, inner);
    return {fmt::format("{}[{}]({})", chance(50) ? "argmax" : "argmin", iters, body.text), type, body.exact};
  }
  Term body = expr(type, chance(40) ? 0 : 2, inner);
  const std::string op = folding(type, site, &body);
  const bool exact = body.exact && (type != DType::F32 || (op != "sum" && op != "prod"));
  return {fmt::format("{}[{}]({})", op, iters, body.text), type, exact};
}

// Over what stands before an iteration along one of the region's axes.
Term Generator::scan(DType type, const Site& site) {
  const auto at = static_cast<size_t>(below(static_cast<int64_t>(site.iters.size())));
  const std::string index = site.iters[at].first;
  Site inner = site;
  inner.runs *= site.iters[at].second.value;
  --inner.reductions;
  inner.reduced = true;
  inner.iters[at].first = fresh("k");
  // Names of the region may stand for what depends on the index.
  const std::vector<Term> names(scalars_.begin() + static_cast<std::ptrdiff_t>(region_scalars_), scalars_.end());
  scalars_.resize(region_scalars_);
  Term body = expr(type, chance(40) ? 0 : 2, inner);
  scalars_.insert(scalars_.end(), names.begin(), names.end());
  const std::string op = folding(type, site, &body);
  const bool exact = body.exact && (type != DType::F32 || (op != "sum" && op != "prod"));
  return {fmt::format("{}[{} {} {}]({})", op, inner.iters[at].first, chance(60) ? "<=" : "<", index, body.text), type,
          exact};
}

Term Generator::float_function(int depth, const Site& site) {
  const Term x = expr(DType::F32, depth - 1, site);
  const bool guarded = !chance(4);
  auto within = [&](const char* guard) { return guarded ? fmt::format(fmt::runtime(guard), x.text) : x.text; };
  std::string name, operand;
  switch (below(8)) {
    case 0:
    case 1:
      name = chance(50) ? "exp" : "exp2";
      operand = within("clamp({}, -20, 4)");
      break;
    case 2:
    case 3:
      name = choose(std::vector<std::string>{"log", "log2", "sqrt", "rsqrt", "rcp"});
      operand = within("abs({}) + 0.5");
      break;
    case 4:
    case 5:
      name = chance(50) ? "sin" : "cos";
      operand = within("clamp({}, -3, 3)");
      break;
    default:
      name = chance(50) ? "tanh" : "erf";
      operand = x.text;
  }
  const bool has_approx = name != "sqrt" && name != "erf";
  if ((name == "tanh" || name == "erf") && chance(50)) {  // sums that are one function
    const std::vector<std::string> sums{"(1 + {}({}))", "(0.5 - 0.5 * {}({}))", "(3 * {}({}) - 3)",
                                        "(0.5 * ({}({}) + 1))"};
    return {fmt::format(fmt::runtime(choose(sums)), name, operand), DType::F32, false};
  }
  return {fmt::format("{}{}({})", has_approx && chance(25) ? "approx " : "", name, operand), DType::F32, false};
}

Term Generator::float_expr(int depth, const Site& site) {
  if (site.exact) {
    Term x = leaf(DType::F32, site);
    const std::string op = choose(std::vector<std::string>{"-", "abs", "floor", "ceil", "trunc", "round"});
    return op == "-" ? Term{fmt::format("(-({}))", x.text), DType::F32} : Term{op + "(" + x.text + ")", DType::F32};
  }
  auto operand = [&] { return expr(DType::F32, depth - 1, site).text; };
  std::string text;
  switch (below(16)) {
    case 0:
    case 1:
    case 2:
    case 3:
      text = fmt::format("({} {} {})", operand(), choose(std::vector<std::string>{"+", "-", "*"}), operand());
      break;
    case 4: {
      std::string a = operand(), b = operand();
      text = fmt::format("({} / (abs({}) + 0.5))", a, b);
      break;
    }
    case 5:
      text = fmt::format("fma({}, {}, {})", operand(), operand(), operand());
      break;
    case 6:
      text = fmt::format("{}({}, {}, {})", chance(50) ? "min" : "max", operand(), operand(), operand());
      break;
    case 7:
      text = fmt::format("clamp({}, -1, {})", operand(), number(DType::F32).text == "2.0" ? "2.0" : "1.5");
      break;
    case 8:
      text = fmt::format("{}({})", choose(std::vector<std::string>{"abs", "-", "floor", "ceil", "trunc", "round"}),
                         operand());
      break;
    case 9: {  // integers adapt
      Term other = expr(choose(kIntegers), depth - 1, site);
      text = fmt::format("({} {} {})", operand(), chance(50) ? "+" : "*", other.text);
      if (chance(50)) text = fmt::format("({} - {})", operand(), below(5));
      break;
    }
    default:
      return float_function(depth, site);
  }
  return {text, DType::F32, false};
}

Term Generator::integer_expr(DType type, int depth, const Site& site) {
  const Term a = expr(type, depth - 1, site);
  auto make = [&](std::string text, bool exact) { return Term{std::move(text), type, exact}; };
  const int64_t way = below(20);
  if (way == 0) return make(fmt::format("(-({}))", a.text), a.exact);
  if (way == 1) return make(fmt::format("(~({}))", a.text), a.exact);
  if (way == 2) return make(fmt::format("{}({})", chance(50) ? "abs" : "popcount", a.text), a.exact);
  if (way == 3) return make(fmt::format("clamp({}, {}, {})", a.text, below(3), 3 + below(100)), a.exact);
  if (way < 7) {  // a literal adapts to the other operand
    const std::string op = choose(std::vector<std::string>{"+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"});
    return make(fmt::format("({} {} {})", a.text, op, below(10)), a.exact);
  }
  if (way < 9) {  // other types join in
    DType other = type;
    if (type == DType::U64) other = DType::U32;
    if (type == DType::I64) other = chance(50) ? DType::I32 : DType::U32;
    const Term b = expr(other, depth - 1, site);
    return make(fmt::format("({} {} {})", b.text, choose(std::vector<std::string>{"+", "-", "*"}), a.text),
                a.exact && b.exact);
  }
  if (way < 11) {
    const Term amount = expr(choose(kIntegers), depth - 1, site);
    const std::string limit = chance(70) ? " & 31" : "";
    return make(fmt::format("({} {} ({}{}))", a.text, chance(50) ? "<<" : ">>", amount.text, limit),
                a.exact && amount.exact);
  }
  const Term b = expr(type, depth - 1, site);
  const bool exact = a.exact && b.exact;
  if (way < 14)
    return make(fmt::format("{}({}, {})", choose(std::vector<std::string>{"min", "max", "ceildiv"}), a.text, b.text),
                exact);
  const std::string op = choose(std::vector<std::string>{"+", "-", "*", "/", "%", "&", "|", "^"});
  return make(fmt::format("({} {} {})", a.text, op, b.text), exact);
}

Term Generator::bool_expr(int depth, const Site& site) {
  auto operand = [&] { return expr(DType::Bool, depth - 1, site); };
  const int64_t way = below(10);
  if (way == 0) {
    Term a = operand();
    return {fmt::format("(!{})", a.text), DType::Bool, a.exact};
  }
  if (way < 4) {
    Term a = operand(), b = operand();
    const std::string op = choose(std::vector<std::string>{"&&", "||", "==", "!="});
    return {fmt::format("({} {} {})", a.text, op, b.text), DType::Bool, a.exact && b.exact};
  }
  DType type = site.exact ? choose(kIntegers) : choose(kCompute);
  if (type == DType::Bool) type = DType::F32;
  const std::string op = choose(std::vector<std::string>{"==", "!=", "<", "<=", ">", ">="});
  Term a = expr(type, depth - 1, site);
  DType second = type == DType::F32 && chance(20) ? DType::I32 : type == DType::U32 && chance(20) ? DType::I64 : type;
  Term b = expr(second, depth - 1, site);
  if (type == DType::F32 && !(a.exact && b.exact)) b = number(DType::F32);
  return {fmt::format("({} {} {})", a.text, op, b.text), DType::Bool, a.exact && b.exact};
}

Term Generator::expr(DType type, int depth, const Site& site) {
  spend(site.runs);
  if (depth <= 0 || !rich() || chance(20)) return leaf(type, site);
  if (chance(12)) return cast(type, depth, site);
  if (chance(8)) return selection(type, depth, site);
  if (type != DType::Bool && site.reductions > 0 && chance(17))
    return !site.reduced && !site.iters.empty() && chance(32) ? scan(type, site) : reduction(type, site);
  if (type == DType::F32) return float_expr(depth, site);
  return type == DType::Bool ? bool_expr(depth, site) : integer_expr(type, depth, site);
}

Term Generator::value_for(const TypeName& type, int depth, const Site& site) {
  const DType held = ir::compute_type(type.type);
  DType from = held;
  if (chance(15)) from = choose(kCompute);
  if (from == DType::Bool && held != DType::Bool) from = held;
  Term value = expr(from, depth, site);
  if (from == DType::F32 && held != DType::F32 && held != DType::Bool) value.text = safe_for_integers(value);
  return {value.text, held, value.exact};
}

}  // namespace kachel::conformance
