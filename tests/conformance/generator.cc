#include "tests/conformance/generator.h"

#include <fmt/format.h>

#include "ir/parse.h"
#include "tests/conformance/generator_state.h"

namespace kachel::conformance {

using ir::DType;

void Generator::open(const std::string& head) {
  line(head + " {");
  ++depth_;
}

void Generator::close() {
  --depth_;
  line("}");
}

Extent Generator::new_dim(int64_t value) {
  Extent dim{fresh("M"), value};
  wishes_.values[dim.text] = value;
  dims_.push_back(dim);
  scalars_.push_back({dim.text, DType::I64});
  return dim;
}

TypeName Generator::any_type(bool tensor_only) {
  if (!symbols_.empty() && chance(25)) {
    Symbol& symbol = symbols_[static_cast<size_t>(below(static_cast<int64_t>(symbols_.size())))];
    symbol.used |= tensor_only;
    return symbol.name;
  }
  auto type = static_cast<DType>(chance(25) ? 0 : below(ir::kDTypeCount));
  return {std::string(ir::name(type)), type};
}

TypeName Generator::type_like(bool is_float) {
  while (true) {
    TypeName type = any_type();
    if (type.type != DType::Bool && ir::is_float(type.type) == is_float) return type;
  }
}

void Generator::note_symbol(const TypeName& type) {
  for (Symbol& symbol : symbols_) symbol.used |= symbol.name.text == type.text;
}

void Generator::choose_header() {
  auto options = [&](std::vector<std::string> from, int64_t most) {
    std::string text;
    for (int64_t count = 1 + below(most); count > 0; --count) {
      size_t at = static_cast<size_t>(below(static_cast<int64_t>(from.size())));
      text += (text.empty() ? "" : " | ") + from[at];
      from.erase(from.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return text;
  };
  if (chance(35)) symbols_.push_back({{"T", DType::F32}, options({"f16", "bf16", "f32", "f8e4m3", "f8e5m2"}, 3)});
  if (chance(20)) symbols_.push_back({{"I", DType::I32}, options({"i8", "u8", "i16", "i32"}, 3)});
  const std::vector<DType> kTypes{DType::F32, DType::I32, DType::U32, DType::I64, DType::U64, DType::Bool};
  for (int64_t count = below(4); count > 0; --count) {
    DType type = choose(kTypes);
    Term scalar{fresh("n"), type};
    params_.push_back(fmt::format("{}: {}", scalar.text, ir::name(type)));
    scalars_.push_back(scalar);
  }
  for (int64_t count = below(3); count > 0; --count) {
    DType type = choose(kTypes);
    Term constant{fresh("c"), type};
    consts_.push_back(fmt::format("const {}: {}", constant.text, ir::name(type)));
    scalars_.push_back(constant);
  }
  if (chance(15)) tunables_.push_back("threads = 32 | 64 | 96 | 128");
  // Infinities and NaNs spread through sums; too many of them and nothing else is compared.
  wishes_.extremes_percent = 15;
}

void Generator::choose_extents() {
  const std::vector<int64_t> kValues{1, 2, 3, 4, 5, 8, 8, 16, 16, 16, 17, 24, 32, 32, 48, 64, 96};
  for (int64_t count = 2 + below(3); count > 0; --count) {
    const int64_t value = choose(kValues);
    switch (below(10)) {
      case 0:
      case 1:
      case 2: {
        Extent extent{fresh("B"), value};
        wishes_.values[extent.text] = value;
        std::string others;
        for (int64_t i = below(3); i > 0; --i) others += fmt::format(" | {}", value + 8 * i);
        tunables_.push_back(fmt::format("{} = {}{}", extent.text, value, others));
        scalars_.push_back({extent.text, DType::I64});
        extents_.push_back(extent);
        if (value <= 16 && chance(15)) extents_.push_back({"2*" + extent.text, 2 * value});
        break;
      }
      case 3:
        extents_.push_back(new_dim(std::min<int64_t>(value, 48)));
        break;
      case 4: {
        Extent extent{fresh("E"), value};
        wishes_.values[extent.text] = value;
        consts_.push_back(fmt::format("const {}: {}", extent.text, chance(50) ? "i32" : "i64"));
        extents_.push_back(extent);
        break;
      }
      default:
        extents_.push_back(literal(value));
    }
  }
}

void Generator::choose_grid() {
  const int64_t axes = std::vector<int64_t>{0, 1, 1, 1, 2, 2, 2, 3}[static_cast<size_t>(below(8))];
  int64_t blocks = 1;
  for (int64_t axis = 0; axis < axes; ++axis) {
    const int64_t count = 1 + below(blocks > 4 ? 1 : blocks > 2 ? 2 : 4);
    blocks *= count;
    GridAxis grid{fresh("g"), {}, {}, {}};
    if (chance(60)) {
      grid.tile = choose(extents_);
      grid.dim = new_dim(chance(2) ? 0 : (count - 1) * grid.tile.value + 1 + below(grid.tile.value));
      grid.extent = {fmt::format("ceildiv({}, {})", grid.dim.text, grid.tile.text), count};
    } else if (chance(50)) {
      grid.extent = grid.dim = new_dim(count);
    } else {
      grid.extent = literal(count);
    }
    scalars_.push_back({grid.var, DType::I64});
    grid_.push_back(grid);
  }
  runs_ = blocks;
}

std::string Generator::header() const {
  std::string text = fmt::format("tile 1\n\nkernel p{}", seed_);
  std::vector<std::string> angle;
  for (const Symbol& symbol : symbols_) angle.push_back(fmt::format("{}: {}", symbol.name.text, symbol.options));
  angle.insert(angle.end(), consts_.begin(), consts_.end());
  if (!angle.empty()) text += fmt::format("<{}>", fmt::join(angle, ", "));
  text += fmt::format("({})\n", fmt::join(params_, ", "));
  return text;
}

// Everything that was computed and not stored yet is stored, and what the header promises is kept.
void Generator::finish() {
  int stored = 0;
  for (size_t i = tiles_.size(); i-- > 0 && stored < 4;) {
    if (!tiles_[i].ready || (tiles_[i].saved && (stored > 0 || i > 0))) continue;
    save(i);
    ++stored;
  }
  for (const Extent& dim : dims_)
    if (bound_.insert(dim.text).second) params_.push_back(fmt::format("{}: f32[{}]", fresh("X"), dim.text));
  for (const Symbol& symbol : symbols_)
    if (!symbol.used) params_.push_back(fmt::format("{}: {}[1]", fresh("X"), symbol.name.text));
}

Result<Program> Generator::run() {
  choose_header();
  choose_extents();
  choose_grid();
  statements(static_cast<int>(3 + below(5)));
  finish();

  std::string text = header();
  if (!dims_.empty() && chance(30)) text += fmt::format("where {} < 1000\n", choose(dims_).text);
  if (!extents_.empty() && chance(10)) text += fmt::format("where {} >= 1\n", choose(extents_).text);
  if (!dims_.empty() && chance(40))
    text += fmt::format(fmt::runtime(chance(50) ? "key bucket({})\n" : "key {}\n"), choose(dims_).text);
  if (!tunables_.empty()) text += fmt::format("tune {}\n", fmt::join(tunables_, ", "));
  std::vector<std::string> axes;
  for (const GridAxis& axis : grid_) axes.push_back(fmt::format("{} < {}", axis.var, axis.extent.text));
  if (!axes.empty()) text += fmt::format("grid {}\n", fmt::join(axes, ", "));
  text += "{\n";
  for (const std::string& decl : decls_) text += "  " + decl + "\n";
  text += body_ + "}\n";

  auto refused = [&](const std::string& why) {
    return internal(fmt::format("program p{} is refused: {}\n{}", seed_, why, text));
  };
  auto module = ir::load(text, fmt::format("p{}", seed_));
  if (!module.ok()) return refused(module.status().message() + "\n" + module.status().log());
  std::optional<Case> test = random_case(module->kernels[0], 32, random_, wishes_);
  if (!test) return refused("no arguments satisfy it");
  auto concrete = concrete_kernel(*test);
  if (!concrete.ok()) return refused(concrete.status().message());
  return Program{std::move(text), std::move(*test), std::move(*concrete)};
}

Result<Program> generate(uint64_t seed) {
  return Generator(seed).run();
}

}  // namespace kachel::conformance
