// Control flow, names for scalars, and matrix products.
#include <fmt/format.h>

#include <algorithm>

#include "tests/conformance/generator_state.h"

namespace kachel::conformance {

using ir::DType;

namespace {

constexpr int kMostNesting = 3;
constexpr int64_t kMostProducts = 200'000;  // of gemms, over all blocks and iterations

}  // namespace

Generator::Entered Generator::enter(int64_t trips) {
  Entered entered{scalars_.size(), runs_, {}};
  for (TileBuffer& tile : tiles_) {
    entered.ready.push_back(tile.ready);
    // What a later iteration finds there is not known yet.
    if (trips > 1 && ir::is_float(tile.type.type)) tile.exact = false;
  }
  ++nesting_;
  runs_ *= std::max<int64_t>(trips, 1);
  return entered;
}

// What was written within may not have been.
void Generator::leave(const Entered& entered) {
  for (size_t i = 0; i < entered.ready.size(); ++i) tiles_[i].ready = entered.ready[i];
  scalars_.resize(entered.scalars);
  runs_ = entered.runs;
  --nesting_;
}

void Generator::let() {
  const std::vector<DType> kTypes{DType::F32, DType::I32, DType::U32, DType::I64, DType::I64, DType::U64, DType::Bool};
  Site site;
  site.runs = runs_;
  site.exact = chance(60);
  site.reductions = chance(50) ? 2 : 1;
  const DType type = choose(kTypes);
  const Term value = type != DType::Bool && chance(35) ? reduction(type, site) : expr(type, 2, site);
  const std::string name = fresh("v");
  line(fmt::format("let {} = {}", name, value.text));
  scalars_.push_back({name, type, value.exact});
}

void Generator::loop() {
  const std::string var = fresh("k");
  int64_t trips = 1 + below(3);
  std::string range;
  switch (below(5)) {
    case 0: {  // from memory
      Site site;
      site.runs = runs_;
      site.exact = true;
      range = fmt::format(" < clamp({}, 0, {})", expr(DType::I32, 1, site).text, trips);
      break;
    }
    case 1: {
      const int64_t first = below(5) - 2;
      range = fmt::format(" in {} .. {}", first, first + trips);
      break;
    }
    case 2: {
      const std::string first = uniform_index();
      range = fmt::format(" in {} .. {} + {}", first, first, trips);
      break;
    }
    case 3: {
      Extent dim{"", 0};
      for (const Extent& known : dims_)
        if (known.value <= 24) dim = known;
      if (!dim.text.empty()) {
        range = fmt::format(" < ceildiv({}, 8)", dim.text);
        trips = (dim.value + 7) / 8;
        break;
      }
      [[fallthrough]];
    }
    default:
      range = fmt::format(" < {}", trips);
  }
  const bool pipelined = chance(35);
  if (pipelined && chance(70)) range += fmt::format(", {}", 1 + below(4));
  nested((pipelined ? "pipelined " : "for ") + var + range, trips, [&] {
    scalars_.push_back({var, DType::I64});
    statements(static_cast<int>(1 + below(3)));
  });
}

void Generator::branch() {
  Site site;
  site.runs = runs_;
  site.exact = true;
  nested("if " + expr(DType::Bool, 2, site).text, 1, [&] { statements(static_cast<int>(1 + below(2))); });
  if (!chance(45)) return;
  body_.pop_back();  // the end of the line after `}`
  body_ += chance(30) ? " else if " + expr(DType::Bool, 1, site).text + " {\n" : " else {\n";
  ++depth_;
  const Entered entered = enter(1);
  statements(static_cast<int>(1 + below(2)));
  leave(entered);
  close();
}

Generator::Operand Generator::gemm_operand(const Extent& rows, const Extent& columns, bool is_float, size_t result) {
  const bool transposed = chance(50);
  const Shape shape = transposed ? Shape{columns, rows} : Shape{rows, columns};
  std::vector<size_t> alike, others;
  for (size_t i = 0; i < tiles_.size(); ++i) {
    const TileBuffer& tile = tiles_[i];
    if (i == result || !tile.ready || tile.shape.size() < 2 || tile.type.type == DType::Bool ||
        ir::is_float(tile.type.type) != is_float)
      continue;
    const bool same =
        tile.shape.size() == 2 && tile.shape[0].text == shape[0].text && tile.shape[1].text == shape[1].text;
    (same ? alike : others).push_back(i);
  }
  size_t at;
  std::string text;
  if (!alike.empty() && chance(70)) {
    at = chance(60) ? alike.back() : choose(alike);
    text = tiles_[at].name;
  } else if (!others.empty() && chance(30)) {
    at = choose(others);
    text = slice_of(tiles_[at], shape);
  } else {
    at = filled_tile(shape, type_like(is_float));
    if (chance(15)) region_into(at);
    text = tiles_[at].name;
  }
  return {text + (transposed ? "^T" : ""), at, tiles_[at].type.text == "f32"};
}

// A product as the left operand of the next, as it is or rounded to another type.
size_t Generator::product_operand(size_t product, Extent* rows, Extent* columns) {
  const TileBuffer source = tiles_[product];
  *rows = source.shape[0];
  *columns = source.shape[1];
  if (chance(40)) return product;
  const size_t tile = new_tile(source.shape, type_like(ir::is_float(source.type.type)));
  line(fmt::format("{} = {}", tiles_[tile].name, source.name));
  mark_written(tile, source.exact, true);
  return tile;
}

void Generator::gemm() {
  const std::vector<size_t> products =
      tiles_where([](const TileBuffer& tile) { return tile.product && tile.ready && tile.shape.size() == 2; });
  const bool chained = !products.empty() && chance(60);
  const size_t product = chained ? choose(products) : 0;
  const bool is_float = chained ? ir::is_float(tiles_[product].type.type) : chance(68);
  Extent m = choose(extents_), n = choose(extents_), k = choose(extents_);
  const size_t left = chained ? product_operand(product, &m, &k) : 0;
  auto accepts = [&](const TileBuffer& tile) {
    if (is_float) return tile.type.text == "f32";
    return tile.type.text == "i32" || tile.type.text == "i64";
  };
  std::vector<size_t> known;
  for (size_t i = 0; i < tiles_.size(); ++i)
    if (accepts(tiles_[i]) && tiles_[i].shape.size() >= 2 && (tiles_[i].ready || tiles_[i].shape.size() == 2) &&
        !(chained && i == left))
      known.push_back(i);
  size_t result;
  if (known.empty() || chained || chance(45)) {
    const std::string type = is_float ? "f32" : chance(70) ? "i32" : "i64";
    result = new_tile({m, n}, {type, *ir::dtype_from_name(type)});
  } else {
    result = choose(known);
    const Shape& shape = tiles_[result].shape;
    if (!tiles_[result].ready || (shape.size() == 2 && chance(75))) m = shape[0], n = shape[1];
  }
  if (!chained && m.value * n.value * k.value * runs_ > kMostProducts) k = literal(1 + below(4));
  const bool ready = tiles_[result].ready;
  const bool whole = tiles_[result].shape.size() == 2 && tiles_[result].shape[0].text == m.text &&
                     tiles_[result].shape[1].text == n.text;
  const Operand a = chained ? Operand{tiles_[left].name, left, tiles_[left].type.text == "f32"}
                            : gemm_operand(m, k, is_float, result);
  const Operand b = gemm_operand(k, n, is_float, result);
  const std::string place = ready ? slice_of(tiles_[result], {m, n}) : tiles_[result].name;
  const bool accumulate = ready && chance(65);
  const bool tf32 = a.is_f32 && b.is_f32 && chance(30);
  const bool fast = ir::is_float8(tiles_[a.tile].type.type) && ir::is_float8(tiles_[b.tile].type.type) && chance(50);
  line(fmt::format("{} {} {} @ {}{}", place, accumulate ? "+=" : "=", a.text, b.text,
                   tf32   ? " precision tf32"
                   : fast ? " precision fast"
                          : ""));
  spend(runs_ * m.value * n.value * k.value / 4);
  mark_written(result, !is_float && tiles_[a.tile].exact && tiles_[b.tile].exact,
               whole && place == tiles_[result].name);
  tiles_[result].product = true;
}

// The usual one: a sum over K in steps, whose last may be short, or missing.
void Generator::gemm_loop() {
  const bool is_float = chance(70);
  Extent m = choose(extents_), n = choose(extents_), step = choose(extents_);
  const int64_t size = chance(8) ? 0 : 1 + below(std::min<int64_t>(4 * step.value, 90));
  if (m.value * n.value * size * runs_ > kMostProducts) m = literal(1 + below(4));
  const Extent k = new_dim(size);
  const std::string type = is_float ? "f32" : "i32";
  const size_t result = new_tile({m, n}, {type, *ir::dtype_from_name(type)});
  if (!tiles_[result].ready) {
    line(fmt::format("{} = 0", tiles_[result].name));
    tiles_[result].ready = true;
  }
  const bool ta = chance(50), tb = chance(50);
  const TypeName a_type = type_like(is_float), b_type = chance(60) ? a_type : type_like(is_float);
  const size_t a = new_tile(ta ? Shape{step, m} : Shape{m, step}, a_type);
  const size_t b = new_tile(tb ? Shape{n, step} : Shape{step, n}, b_type);
  const std::string var = fresh("k");
  const Fixed along{fmt::format("{}*{}", var, step.text), k};
  std::string head = chance(70) ? "pipelined " : "for ";
  head += fmt::format("{} < ceildiv({}, {})", var, k.text, step.text);
  if (head[0] == 'p' && chance(70)) head += fmt::format(", {}", 1 + below(4));
  const int64_t trips = (size + step.value - 1) / step.value;
  nested(head, std::max<int64_t>(trips, 2), [&] {
    scalars_.push_back({var, DType::I64});
    using Places = std::vector<Fixed>;
    line(fmt::format("{} = {}", tiles_[a].name,
                     input_slice(tiles_[a].shape, chance(70) ? a_type : type_like(is_float),
                                 ta ? Places{along, {}} : Places{{}, along})));
    line(fmt::format("{} = {}", tiles_[b].name,
                     input_slice(tiles_[b].shape, chance(70) ? b_type : type_like(is_float),
                                 tb ? Places{{}, along} : Places{along, {}})));
    tiles_[a].ready = tiles_[b].ready = true;
    if (chance(25)) region_into(a);
    line(fmt::format("{} += {}{} @ {}{}", tiles_[result].name, tiles_[a].name, ta ? "^T" : "", tiles_[b].name,
                     tb ? "^T" : ""));
    if (chance(25)) statement();
  });
  spend(runs_ * m.value * n.value * size / 4);
  mark_written(result, !is_float, false);
  tiles_[result].product = true;
}

void Generator::statement() {
  const int64_t way = below(100);
  const bool deep = nesting_ >= kMostNesting || !rich();
  if (way < 13) return load_tile();
  if (way < 22) return copy_tile();
  if (way < 26) return fill_tile();
  if (way < 31) return deep ? fill_tile() : gemm();
  if (way < 42) return deep || nesting_ > 0 ? fill_tile() : tensor_loop();
  if (way < 47) return deep || nesting_ > 1 ? copy_tile() : gemm_loop();
  if (way < 65) return region();
  if (way < 71) return let();
  if (way < 80) return deep ? let() : loop();
  if (way < 86) return deep ? let() : branch();
  if (way < 89) return save_tile();
  if (way < 93) return combine_tile();
  if (way < 96) return copy_tensors();
  return update_in_place();
}

void Generator::statements(int count) {
  for (; count > 0; --count) statement();
}

}  // namespace kachel::conformance
