// Products of the shapes and types that tensor cores multiply: operands in shared tiles that a pipelined loop fills
// from tensors, wide accesses possible or not; sums over the rows and columns of the result; products of products.
#include <fmt/format.h>

#include <algorithm>

#include "tests/conformance/generator_state.h"

namespace kachel::conformance {

using ir::DType;

namespace {

constexpr int64_t kMostProducts = 500'000, kMostGroupProducts = 2'000'000;  // over all blocks and iterations

struct Operands {
  const char *a, *b, *c;
  int64_t bytes;  // of an element of A
};
constexpr Operands kOperands[] = {
    {"f16", "f16", "f32", 2},       {"f16", "f16", "f32", 2},      {"bf16", "bf16", "f32", 2},
    {"bf16", "bf16", "f32", 2},     {"f32", "f32", "f32", 4},      {"i8", "i8", "i32", 1},
    {"u8", "u8", "i32", 1},         {"u8", "i8", "i32", 1},        {"f8e4m3", "f8e4m3", "f32", 1},
    {"f8e4m3", "f8e4m3", "f32", 1}, {"f8e5m2", "f8e4m3", "f32", 1}};

TypeName type_named(const std::string& name) {
  return {name, *ir::dtype_from_name(name)};
}

}  // namespace

// As it is, or a tunable.
Extent Generator::tile_extent(int64_t value) {
  if (chance(75)) return literal(value);
  Extent extent{fresh("B"), value};
  wishes_.values[extent.text] = value;
  tunables_.push_back(fmt::format("{} = {} | {}", extent.text, value, 2 * value));
  scalars_.push_back({extent.text, DType::I64});
  return extent;
}

size_t Generator::declare(ir::Scope scope, const Shape& shape, const TypeName& type, bool ready) {
  const bool shared = scope == ir::Scope::kShared;
  TileBuffer tile{fresh(shared ? "sh" : "fr"), scope, type, shape};
  tile.ready = ready;
  std::vector<std::string> extents;
  for (const Extent& extent : shape) extents.push_back(extent.text);
  decls_.push_back(fmt::format("{} {}: {}[{}]{}", shared ? "shared" : "fragment", tile.name, type.text,
                               fmt::join(extents, ", "), ready ? " = 0" : ""));
  tiles_.push_back(tile);
  return tiles_.size() - 1;
}

// A part of a tensor that begins at `fixed.start` along one axis; mostly where wide accesses are possible.
std::string Generator::operand_slice(const Shape& target, const TypeName& type, size_t along, const Fixed& fixed) {
  if (chance(20)) {
    std::vector<Fixed> places(2);
    if (along < places.size()) places[along] = fixed;
    return input_slice(target, type, places);
  }
  const std::string name = fresh("X");
  const int64_t unit = 16 * 8 / ir::bits(type.type);
  Shape shape;
  std::vector<std::string> axes;
  if (chance(25)) {
    shape.push_back(literal(1 + below(3)));
    axes.push_back(grid_.empty() || chance(50) ? std::to_string(below(shape[0].value)) : choose(grid_).var);
  }
  for (size_t axis = 0; axis < target.size(); ++axis) {
    const Extent& extent = target[axis];
    if (axis == along) {
      shape.push_back(fixed.dim);
      axes.push_back(fmt::format("{} +: {}", fixed.start, extent.text));
    } else if (chance(35)) {
      shape.push_back(extent);
      axes.push_back(":");
    } else {
      int64_t value = chance(50) ? extent.value : 1 + below(2 * extent.value);
      if (chance(75)) value = (value + unit - 1) / unit * unit;
      shape.push_back(new_dim(value));
      const bool by_block = !grid_.empty() && chance(50);
      axes.push_back(by_block ? fmt::format("{}*{} +: {}", choose(grid_).var, extent.text, extent.text)
                              : fmt::format("{} +: {}", chance(80) ? 0 : unit * below(2), extent.text));
    }
  }
  add_param(name, "", type, shape);
  if (chance(80)) wishes_.aligned.insert(name);
  return fmt::format("{}[{}]", name, fmt::join(axes, ", "));
}

// What may differ from one iteration to the next, and hardly ever by what a tile holds.
std::string Generator::step_condition(const std::string& var) {
  Site site;
  site.runs = runs_;
  site.exact = true;
  if (chance(25)) return expr(DType::Bool, 1, site).text;
  return chance(50) ? fmt::format("{} % 2 == {}", var, below(2)) : fmt::format("{} < {}", var, 1 + below(3));
}

// A copy to a tile of an operand, of one tensor or now and then of one of two.
void Generator::load_operand(size_t tile, size_t along, const Fixed& fixed, const std::string& var) {
  const TileBuffer to = tiles_[tile];
  auto copy = [&] { return fmt::format("{} = {}", to.name, operand_slice(to.shape, to.type, along, fixed)); };
  const std::string first = copy();
  if (!chance(12))
    line(first);
  else
    line(fmt::format("if {} {{ {} }} else {{ {} }}", step_condition(var), first, copy()));
  mark_written(tile, true, true);
  if (chance(15)) change_in_place(tile, var);
}

// What a loop has copied, changed where it lies: all of it or some, by values of its own or by others of the tile.
void Generator::change_in_place(size_t tile, const std::string& var) {
  const TileBuffer& of = tiles_[tile];
  const std::string i = fresh("r"), j = fresh("r"), own = fmt::format("{}[{}, {}]", of.name, i, j);
  const Extent &rows = of.shape[0], &columns = of.shape[1];
  std::string change;
  switch (below(6)) {
    case 0:
      change = fmt::format("{} = max({}, 0)", own, own);
      break;
    case 1:
      change = fmt::format("if ({} + {}) % 3 == 0 {{ {} = 0 }}", i, j, own);
      break;
    case 2:
      change = fmt::format("{} = {} < {} + {} ? {} : 0", own, i, j, var, own);
      break;
    case 3:
      change = fmt::format("{} = {}[{}, {} - 1 - {}]", own, of.name, i, columns.text, j);
      break;
    case 4:
      change = fmt::format("let x = {} {} = min(x, 1)", own, own);
      break;
    default:
      change = fmt::format("{} -= {} - {}", own, own, own);
  }
  const std::string first = fmt::format("{} < {}", i, rows.text), second = fmt::format("{} < {}", j, columns.text);
  const bool turned = chance(20);
  line(fmt::format("parallel {}, {} {{ {} }}", turned ? second : first, turned ? first : second, change));
  mark_written(tile, true, true);
}

// Sums or extremes of the rows or columns, then used on every element.
void Generator::statistics(size_t tile, bool use) {
  const TileBuffer of = tiles_[tile];
  const bool rows = chance(70), is_float = ir::is_float(of.type.type);
  const Extent &kept = of.shape[rows ? 0 : 1], &gone = of.shape[rows ? 1 : 0];
  const char* ops[] = {"sum", "max", "min"};
  const int64_t op = below(3);
  const size_t at = declare(chance(75) ? ir::Scope::kFragment : ir::Scope::kShared, {kept},
                            type_named(is_float ? "f32" : "i32"), nesting_ > 0);
  const std::string name = tiles_[at].name, i = fresh("r"), j = fresh("r");
  const std::string element = fmt::format("{}[{}, {}]", of.name, rows ? i : j, rows ? j : i);
  line(fmt::format("parallel {} < {} {{ {}[{}] = {}[{} < {}]({}) }}", i, kept.text, name, i, ops[op], j, gone.text,
                   element));
  mark_written(at, of.exact && !is_float, true);
  tiles_[at].exact = false;
  if (use) {
    const std::string x = fresh("r"), y = fresh("r");
    const std::string place = fmt::format("{}[{}, {}]", of.name, x, y),
                      value = fmt::format("{}[{}]", name, rows ? x : y);
    const std::string text =
        is_float && op == 0 ? fmt::format("{} / (abs({}) + 1)", place, value) : fmt::format("{} - {}", place, value);
    line(fmt::format("parallel {} < {}, {} < {} {{ {} = {} }}", x, of.shape[0].text, y, of.shape[1].text, place, text));
  }
  spend(runs_ * kept.value * gone.value * 2);
}

// A sum over K by tensor cores; sometimes its result, rounded to 16 bits, times a second matrix.
void Generator::tensor_loop() {
  constexpr int64_t kShapes[][2] = {{16, 32}, {32, 16}, {64, 8},  {32, 32}, {64, 16}, {64, 32}, {16, 64},
                                    {48, 32}, {16, 8},  {32, 48}, {64, 24}, {128, 8}, {80, 32}, {16, 16}};
  constexpr int64_t kGroupShapes[][2] = {{64, 64}, {64, 32}, {128, 32}, {64, 128}, {128, 64}, {192, 16}, {64, 48}};
  Operands types = kOperands[below(std::size(kOperands))];
  const bool chained = types.bytes == 2 && chance(45);
  const bool group = chance(types.bytes == 2 ? 45 : 60);  // what wgmma takes
  const auto* drawn = group ? kGroupShapes[below(std::size(kGroupShapes))] : kShapes[below(std::size(kShapes))];
  int64_t rows = drawn[0], columns = drawn[1], depth = (16 << below(3)) / types.bytes * 2;
  if (chance(15)) depth += 16 / types.bytes * 2;
  if (chained) columns = (columns + 15) / 16 * 16;
  constexpr int kThreads[] = {0, 0, 32, 64, 128, 128, 256};
  wishes_.threads = kThreads[below(7)];
  if (group) {
    wishes_.threads = chance(50) ? 0 : 128;
    wishes_.architecture = 90;
    if (depth * types.bytes < 128 && chance(50)) depth = 128 / types.bytes;
  }
  int64_t trips = 1 + below(5);
  const int64_t most = (group ? kMostGroupProducts : kMostProducts) / runs_;
  while (rows * columns * depth * trips > most && trips > 2) --trips;
  while (rows * columns * depth * trips > most && columns > 32) columns = columns / 32 * 16;
  while (rows * columns * depth * trips > most && rows > 16) rows = rows / 32 * 16;
  int64_t size = trips * depth;
  if (chance(40)) size -= below(depth);
  if (chance(65)) size = (size + 15) / 16 * 16;

  const Extent m = tile_extent(rows), n = tile_extent(columns), step = tile_extent(depth);
  // In a chain the loop runs over the columns of the product, else over its depth.
  const Extent total =
      new_dim(chained ? std::max<int64_t>(1, trips * columns - (chance(40) ? below(columns) : 0)) : size);
  const bool nt = ir::bits(type_named(types.a).type) != 16 ? chance(85) : chance(50);
  const bool ta = nt ? types.bytes == 2 && chance(30) : chance(50), tb = nt;
  const TypeName a_type = type_named(types.a), b_type = type_named(types.b);
  const size_t a = declare(ir::Scope::kShared, ta ? Shape{step, m} : Shape{m, step}, a_type, false);
  const size_t b = declare(chance(92) ? ir::Scope::kShared : ir::Scope::kFragment, tb ? Shape{n, step} : Shape{step, n},
                           b_type, false);
  const ir::Scope where = chance(88) ? ir::Scope::kFragment : ir::Scope::kShared;
  const size_t result = declare(where, {m, n}, type_named(types.c), !chained);
  const std::string var = fresh("k"), a_text = tiles_[a].name + (ta ? "^T" : ""),
                    b_text = tiles_[b].name + (tb ? "^T" : "");
  const Extent& unit = chained ? n : step;
  const Fixed along{fmt::format("{}*{}", var, unit.text), total};
  std::string precision;
  if (types.bytes == 4 && chance(85)) precision = " precision tf32";
  if (ir::is_float8(a_type.type) && chance(60)) precision = " precision fast";
  const bool pipelined = chance(85);
  std::string head =
      fmt::format("{} {} < ceildiv({}, {})", pipelined ? "pipelined" : "for", var, total.text, unit.text);
  if (pipelined) head += fmt::format(", {}", 2 + below(3));
  if (!chained) {
    auto step_of_sum = [&] {
      load_operand(a, ta ? 0 : 1, along, var);
      load_operand(b, tb ? 1 : 0, along, var);
      if (chance(10)) region_into(a);
      line(fmt::format("{} += {} @ {}{}", tiles_[result].name, a_text, b_text, precision));
      if (chance(10)) statistics(result, chance(50));
    };
    nested(head, trips, [&] {
      if (chance(12))
        nested("if " + step_condition(var), 1, step_of_sum);
      else
        step_of_sum();
    });
  } else {
    const Extent width = literal(std::vector<int64_t>{8, 16, 32, 24, 64}[static_cast<size_t>(below(5))]);
    const bool tv = chance(30);
    const size_t v = declare(ir::Scope::kShared, tv ? Shape{width, n} : Shape{n, width}, a_type, false);
    const size_t narrow = declare(chance(85) ? ir::Scope::kFragment : ir::Scope::kShared, {m, n}, a_type, false);
    const size_t sum = declare(ir::Scope::kFragment, {m, width}, type_named("f32"), true);
    line(fmt::format("{} = {}", tiles_[a].name, operand_slice(tiles_[a].shape, a_type, 2, {})));
    mark_written(a, true, true);
    nested(head, trips, [&] {
      load_operand(b, tb ? 0 : 1, along, var);
      if (chance(80)) load_operand(v, tv ? 1 : 0, along, var);
      line(fmt::format("{} = {} @ {}", tiles_[result].name, a_text, b_text));
      mark_written(result, false, true);
      const std::string i = fresh("r"), j = fresh("r"), place = fmt::format("{}[{}, {}]", tiles_[result].name, i, j);
      if (chance(60))
        line(fmt::format("parallel {} < {}, {} < {} {{ {} = {}*{} + {} < {} ? {} * 0.125 : 0 }}", i, m.text, j, n.text,
                         place, var, n.text, j, total.text, place));
      if (chance(70)) statistics(result, chance(80));
      line(fmt::format("{} = {}", tiles_[narrow].name, tiles_[result].name));
      mark_written(narrow, false, true);
      if (!tiles_[v].ready) load_operand(v, tv ? 1 : 0, along, var);
      line(fmt::format("{} += {} @ {}{}", tiles_[sum].name, tiles_[narrow].name, tiles_[v].name, tv ? "^T" : ""));
    });
    mark_written(sum, false, false);
    if (chance(50)) statistics(sum, true);
    if (group && chance(50)) save(sum, true);
    spend(runs_ * rows * columns * trips * width.value / 4);
  }
  spend(runs_ * rows * columns * size / 4);
  if (chained) return;
  mark_written(result, !ir::is_float(type_named(types.c).type), false);
  tiles_[result].product = true;
  if (group && types.bytes == 2 && chance(50)) save(result, true);
  if (chance(45)) statistics(result, chance(60));
}

}  // namespace kachel::conformance
