// Shapes, slices, and the tensors that a program asks for as it goes.
#include <fmt/format.h>

#include <algorithm>

#include "tests/conformance/generator_state.h"

namespace kachel::conformance {

using ir::DType;

namespace {

constexpr int64_t kMostElements = 20'000;  // of a tensor
constexpr size_t kMostAxes = 5;

int64_t elements(const Shape& shape) {
  int64_t product = 1;
  for (const Extent& extent : shape) product *= std::max<int64_t>(extent.value, 1);
  return product;
}

}  // namespace

Shape Generator::random_shape(int64_t most_elements) {
  const int64_t draw = below(100);
  const int rank = draw < 22 ? 1 : draw < 76 ? 2 : draw < 89 ? 3 : draw < 95 ? 4 : 5;
  Shape shape;
  for (int axis = 0; axis < rank; ++axis) {
    Extent extent = choose(extents_);
    if (rank > 2 && chance(60)) extent = literal(1 + below(4));
    if (elements(shape) * extent.value > most_elements) extent = literal(1 + below(3));
    shape.push_back(extent);
  }
  return shape;
}

Extent Generator::axis_extent(int64_t value) {
  std::vector<Extent> known;
  for (const Extent& dim : dims_)
    if (bound_.count(dim.text) && dim.value >= value / 2 && dim.value <= 2 * value + 4) known.push_back(dim);
  const int64_t way = below(100);
  if (!known.empty() && way < 20) return choose(known);
  if (!known.empty() && way < 32) {
    const Extent dim = choose(known);
    switch (below(3)) {
      case 0:
        return {dim.text + " + 1", dim.value + 1};
      case 1:
        return {"2*" + dim.text, 2 * dim.value};
      default:
        return {fmt::format("ceildiv({}, 2)", dim.text), (dim.value + 1) / 2};
    }
  }
  return way < 45 ? literal(std::max<int64_t>(value, 1)) : new_dim(value);
}

std::string Generator::start_of(const Extent& extent) {
  for (const GridAxis& axis : grid_)
    if (axis.tile.text == extent.text && chance(50)) return fmt::format("{}*{}", axis.var, extent.text);
  switch (below(8)) {
    case 0:
      return fmt::format("{}", 1 + below(5));
    case 1:
      return fmt::format("-{}", 1 + below(3));
    case 2:
      return uniform_index();
    default:
      return "0";
  }
}

// Part of a buffer that has at least as many axes as `target`.
std::string Generator::slice_of(const TileBuffer& buffer, const Shape& target) {
  bool whole = buffer.shape.size() == target.size();
  for (size_t i = 0; whole && i < target.size(); ++i) whole = buffer.shape[i].text == target[i].text;
  if (whole && chance(70)) return buffer.name;
  std::vector<std::string> axes;
  size_t next = 0;
  for (size_t axis = 0; axis < buffer.shape.size(); ++axis) {
    const size_t left = buffer.shape.size() - axis;
    const bool taken = next < target.size() && (left == target.size() - next || chance(60));
    if (!taken)
      axes.push_back(chance(50) ? fmt::format("{}", below(std::max<int64_t>(1, buffer.shape[axis].value)))
                                : uniform_index());
    else if (buffer.shape[axis].text == target[next].text && chance(60))
      axes.push_back(":");
    else
      axes.push_back(fmt::format("{} +: {}", start_of(target[next]), target[next].text));
    next += taken;
  }
  return fmt::format("{}[{}]", buffer.name, fmt::join(axes, ", "));
}

void Generator::add_param(const std::string& name, const std::string& direction, const TypeName& type,
                          const Shape& shape) {
  std::vector<std::string> texts;
  for (const Extent& extent : shape) {
    texts.push_back(extent.text);
    for (const Extent& dim : dims_)
      if (dim.text == extent.text) bound_.insert(dim.text);
  }
  note_symbol(type);
  params_.push_back(fmt::format("{}: {}{}[{}]", name, direction, type.text, fmt::join(texts, ", ")));
}

// Indices of `extent` elements of an axis of `limit`.
std::string Generator::gather(const Extent& extent, int64_t limit) {
  for (const TileBuffer& tile : tiles_)
    if (tile.ready && tile.exact && tile.shape.size() == 1 && tile.shape[0].text == extent.text &&
        ir::is_integer(tile.type.type) && chance(60))
      return tile.name + (chance(50) ? "[:]" : "");
  TypeName type = type_like(false);
  const std::string name = fresh("X");
  wishes_.contents[name] = {Contents::kIndices, limit};
  std::string start = start_of(extent);
  Shape shape{axis_extent(extent.value + 3)};
  std::string slice = fmt::format("{} +: {}", start, extent.text);
  if (chance(25)) {
    shape = {extent};
    slice = ":";
  }
  if (chance(30)) {
    shape.insert(shape.begin(), literal(1 + below(3)));
    slice = uniform_index() + ", " + slice;
  }
  add_param(name, "", type, shape);
  return fmt::format("{}[{}]", name, slice);
}

// For each block along `axis` its own rows of a shuffled numbering.
std::string Generator::distinct_rows(const GridAxis& axis) {
  const std::string name = fresh("X");
  wishes_.contents[name] = {Contents::kDistinct, 0};
  const std::string type = choose(std::vector<std::string>{"i16", "i32", "u32", "i64", "u64"});
  add_param(name, "", {type, *ir::dtype_from_name(type)}, {axis.dim});
  return fmt::format("{}[{}*{} +: {}]", name, axis.var, axis.tile.text, axis.tile.text);
}

std::string Generator::bounds(bool written) {
  std::string text;
  if (chance(10)) text += fmt::format(" within {} +: {}", uniform_index(), chance(50) ? "5" : uniform_index());
  if (written || !chance(15)) return text;
  const std::string pad =
      choose(std::vector<std::string>{"1", "0.5", "-2", "7.25", "true", "1e3", chance(15) ? "-inf" : "3"});
  return text + " pad " + pad;
}

std::string Generator::input_slice(const Shape& target, const TypeName& type, const std::vector<Fixed>& fixed) {
  if (fixed.empty() && chance(20))
    for (const TileBuffer& input : inputs_)
      if (input.type.text == type.text && input.shape.size() >= target.size())
        return slice_of(input, target) + bounds(false);
  Shape shape;
  std::vector<std::string> axes;
  auto small = [&](int64_t value) { return std::max<int64_t>(1, std::min(value, kMostElements / elements(shape))); };
  bool whole = true;
  for (size_t i = 0; i < target.size(); ++i) {
    const size_t room = kMostAxes - shape.size() - (target.size() - i);
    if (room > 0 && chance(18)) {
      const GridAxis* grid = grid_.empty() || chance(40) ? nullptr : &choose(grid_);
      shape.push_back(grid && grid->tile.text.empty() ? grid->extent : literal(1 + below(4)));
      axes.push_back(grid ? grid->var : uniform_index());
      whole = false;
    }
    const Extent& extent = target[i];
    if (i < fixed.size() && !fixed[i].start.empty()) {
      axes.push_back(fmt::format("{} +: {}", fixed[i].start, extent.text));
      shape.push_back(fixed[i].dim);
      whole = false;
      continue;
    }
    const GridAxis* tiled = nullptr;
    for (const GridAxis& axis : grid_)
      if (axis.tile.text == extent.text && !tiled && chance(70)) tiled = &axis;
    if (tiled) {
      axes.push_back(fmt::format("{}*{} +: {}", tiled->var, extent.text, extent.text));
      shape.push_back(tiled->dim);
      whole = false;
    } else if (chance(30)) {
      axes.push_back(":");
      shape.push_back(extent);
    } else if (chance(15)) {
      const Extent dim = axis_extent(small(2 + below(12)));
      axes.push_back(gather(extent, dim.value));
      shape.push_back(dim);
      whole = false;
    } else {
      axes.push_back(fmt::format("{} +: {}", start_of(extent), extent.text));
      shape.push_back(axis_extent(small(1 + below(2 * extent.value + 3))));
      whole = false;
    }
  }
  TileBuffer input{fresh("X"), ir::Scope::kGlobal, type, shape};
  input.ready = true;
  add_param(input.name, chance(10) ? "in " : "", type, shape);
  inputs_.push_back(input);
  if (whole && chance(50)) return input.name + bounds(false);
  return fmt::format("{}[{}]{}", input.name, fmt::join(axes, ", "), bounds(false));
}

Owned Generator::owned(const Shape& target, const TypeName& type, const std::string& direction, bool atomic,
                       bool in_rows) {
  Owned result{fresh(atomic ? "C" : direction == "inout " ? "R" : "Y"), {}, {}, ""};
  const bool packed = ir::bits(type.type) == 4;
  std::vector<const GridAxis*> along(target.size(), nullptr), others;
  for (const GridAxis& axis : grid_) {
    size_t place = target.size();
    for (size_t i = 0; i < target.size(); ++i) {
      const bool odd = packed && i + 1 == target.size() && target[i].value % 2 != 0;
      if (!along[i] && !odd && axis.tile.text == target[i].text && chance(85)) place = i;
    }
    if (place < target.size())
      along[place] = &axis;
    else if (!atomic || chance(40))
      others.push_back(&axis);
  }
  std::string guard;
  while (target.size() + others.size() > kMostAxes || (!others.empty() && chance(12))) {
    guard += fmt::format("{}{} == {}", guard.empty() ? "" : " && ", others.back()->var, below(2));
    others.pop_back();
  }
  result.guard = guard;
  Shape shape;
  auto index_axis = [&] {
    const GridAxis* axis = others.back();
    others.pop_back();
    result.slice.push_back(axis->var);
    result.element.push_back(axis->var);
    shape.push_back(axis->tile.text.empty() && chance(80) ? axis->extent : literal(1 + below(4)));
  };
  for (size_t i = 0; i < target.size(); ++i) {
    while (!others.empty() && (chance(50) || ((packed || in_rows) && i + 1 == target.size()))) index_axis();
    const Extent& extent = target[i];
    const bool last = i + 1 == target.size();
    const std::string var = fmt::format("${}", i);
    if (along[i] && direction == "out " && !(packed && last) && chance(10)) {
      result.slice.push_back(distinct_rows(*along[i]));
      result.element.push_back(fmt::format("{}*{} + {}", along[i]->var, extent.text, var));
      shape.push_back(along[i]->dim);
    } else if (along[i]) {
      result.slice.push_back(fmt::format("{}*{} +: {}", along[i]->var, extent.text, extent.text));
      result.element.push_back(fmt::format("{}*{} + {}", along[i]->var, extent.text, var));
      shape.push_back(along[i]->dim);
    } else if (atomic && chance(25)) {  // rows may coincide
      shape.push_back(axis_extent(2 + below(12)));
      result.slice.push_back(gather(extent, shape.back().value));
      result.element.push_back(var);
    } else if (in_rows || chance(50) || (packed && last && extent.value % 2 != 0)) {
      result.slice.push_back(":");
      result.element.push_back(var);
      shape.push_back(extent);
    } else {
      const int64_t start = packed ? 2 * below(3) : below(3);
      result.slice.push_back(fmt::format("{} +: {}", start, extent.text));
      result.element.push_back(start ? fmt::format("{} + {}", start, var) : var);
      shape.push_back(axis_extent(std::max<int64_t>(1, extent.value + below(5) - 1)));
    }
  }
  while (!others.empty()) index_axis();
  add_param(result.name, direction, type, shape);
  return result;
}

std::string Generator::element(const Owned& owned, const std::vector<std::string>& vars) {
  std::string text = owned.name + "[";
  for (size_t i = 0; i < owned.element.size(); ++i) {
    std::string axis = owned.element[i];
    if (size_t at = axis.find('$'); at != axis.npos)
      axis = axis.substr(0, at) + vars[static_cast<size_t>(axis[at + 1] - '0')] + axis.substr(at + 2);
    text += (i ? ", " : "") + axis;
  }
  return text + "]";
}

std::string Generator::slice(const Owned& owned) {
  return fmt::format("{}[{}]", owned.name, fmt::join(owned.slice, ", "));
}

}  // namespace kachel::conformance
