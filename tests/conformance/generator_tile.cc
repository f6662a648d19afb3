// Statements on whole tiles: copies between all scopes, fills, atomics, gemm.
#include <fmt/format.h>

#include <algorithm>

#include "tests/conformance/generator_state.h"

namespace kachel::conformance {

using ir::DType;

namespace {

constexpr int64_t kMostTileElements = 4096;
constexpr int64_t kMostInTiles = 24'000;

int64_t elements(const Shape& shape) {
  int64_t product = 1;
  for (const Extent& extent : shape) product *= extent.value;
  return product;
}

}  // namespace

size_t Generator::new_tile(const Shape& shape, const TypeName& type) {
  TileBuffer tile{"", chance(50) ? ir::Scope::kShared : ir::Scope::kFragment, type, shape};
  const bool shared = tile.scope == ir::Scope::kShared;
  tile.name = fresh(shared ? "sh" : "fr");
  std::vector<std::string> extents;
  for (const Extent& extent : shape) extents.push_back(extent.text);
  std::string decl =
      fmt::format("{} {}: {}[{}]", shared ? "shared" : "fragment", tile.name, type.text, fmt::join(extents, ", "));
  tile.ready = nesting_ > 0 || chance(50);
  if (tile.ready) {
    const bool is_float = ir::is_float(type.type);
    const char* value = type.type == DType::Bool   ? "true"
                        : is_float && chance(10)   ? "-inf"
                        : is_float                 ? "0.75"
                        : ir::is_signed(type.type) ? "-3"
                                                   : "5";
    decl += fmt::format(" = {}", chance(60) ? "0" : value);
  }
  decls_.push_back(decl);
  tiles_.push_back(tile);
  return tiles_.size() - 1;
}

void Generator::mark_written(size_t at, bool exact, bool whole) {
  TileBuffer& tile = tiles_[at];
  tile.exact = whole && nesting_ == 0 ? exact : tile.exact && exact;
  tile.ready |= whole;
  tile.saved = false;
}

// A tile of this shape and type that holds something; loaded if there is none.
size_t Generator::filled_tile(const Shape& shape, const TypeName& type) {
  const size_t tile = new_tile(shape, type);
  line(fmt::format("{} = {}", tiles_[tile].name, input_slice(shape, chance(60) ? type : any_type())));
  spend(runs_ * elements(shape));
  mark_written(tile, true, true);
  return tile;
}

void Generator::load_tile() {
  auto known = tiles_where([](const TileBuffer&) { return true; });
  int64_t total = 0;
  for (const TileBuffer& tile : tiles_) total += elements(tile.shape);
  if (known.empty() || (chance(65) && total < kMostInTiles)) {
    filled_tile(random_shape(kMostTileElements), any_type());
    return;
  }
  const size_t tile = choose(known);
  Shape target = tiles_[tile].shape;
  std::string text = tiles_[tile].name;
  const bool whole = !tiles_[tile].ready || chance(60);
  if (!whole) {
    while (target.size() > 1 && chance(40)) target.pop_back();
    for (Extent& extent : target)
      if (chance(30)) extent = literal(1 + below(8));
    text = slice_of(tiles_[tile], target) + (chance(15) ? " within 0 +: 3" : "");
  }
  line(fmt::format("{} = {}", text, input_slice(target, any_type())));
  spend(runs_ * elements(target));
  mark_written(tile, true, whole);
}

void Generator::copy_tile() {
  auto sources = tiles_where([](const TileBuffer& tile) { return tile.ready; });
  if (sources.empty()) return load_tile();
  const size_t from = choose(sources);
  const TileBuffer source = tiles_[from];
  Shape target = source.shape;
  while (target.size() > 1 && chance(20)) target.erase(target.begin() + below(static_cast<int64_t>(target.size())));
  for (Extent& extent : target)
    if (chance(12)) extent = elements(target) * 8 < kMostTileElements ? choose(extents_) : literal(1 + below(4));
  auto fits = [&](const TypeName& type) {
    return source.exact || ir::is_float(type.type) || !ir::is_float(source.type.type) || chance(4);
  };
  auto others = tiles_where([&](const TileBuffer& tile) {
    if (!tile.ready || tile.name == source.name || tile.shape.size() < target.size()) return false;
    return source.exact || ir::is_float(tile.type.type) || !ir::is_float(source.type.type);
  });
  std::string text = slice_of(source, target) + bounds(false);
  spend(runs_ * elements(target));
  if (!others.empty() && chance(45)) {
    const size_t to = choose(others);
    std::string place = slice_of(tiles_[to], target);
    line(fmt::format("{}{} = {}", place, chance(10) ? " within 1 +: 4" : "", text));
    mark_written(to, source.exact, false);
    return;
  }
  TypeName type = any_type();
  while (!fits(type)) type = any_type();
  const size_t to = new_tile(target, type);
  line(fmt::format("{} = {}", tiles_[to].name, text));
  mark_written(to, source.exact, true);
}

void Generator::fill_tile() {
  auto known = tiles_where([](const TileBuffer&) { return true; });
  const size_t tile = known.empty() ? new_tile(random_shape(kMostTileElements), any_type()) : choose(known);
  Site site;
  site.runs = runs_;
  const Term value = value_for(tiles_[tile].type, 2, site);
  const bool whole = !tiles_[tile].ready || chance(50);
  Shape target = tiles_[tile].shape;
  std::string text = tiles_[tile].name;
  if (!whole) {
    target.resize(1 + static_cast<size_t>(below(static_cast<int64_t>(target.size()))));
    text = slice_of(tiles_[tile], target);
  }
  line(fmt::format("{} = {}", text, value.text));
  spend(runs_ * elements(target));
  mark_written(tile, value.exact, whole);
}

void Generator::save(size_t at, bool as_product) {
  const TileBuffer tile = tiles_[at];
  TypeName type = chance(40) ? tile.type : any_type();
  // As results of products are.
  const bool narrowed = as_product || (tile.product && tile.type.text == "f32" && chance(40));
  if (narrowed) type = chance(50) ? TypeName{"f16", DType::F16} : TypeName{"bf16", DType::BF16};
  while (!tile.exact && ir::is_float(tile.type.type) && !ir::is_float(type.type) && !chance(2)) type = any_type();
  Shape target = tile.shape;
  const bool whole = as_product || chance(80);
  if (!whole) target[static_cast<size_t>(below(static_cast<int64_t>(target.size())))] = choose(extents_);
  const Owned to = owned(target, type, "out ", false, as_product);
  if (narrowed && (as_product || chance(70))) wishes_.aligned.insert(to.name);
  const std::string from = whole ? tile.name : slice_of(tile, target);
  const bool packed = ir::bits(type.type) == 4;
  const std::string limits =
      chance(8) && !(packed && target.size() == 1) ? fmt::format(" within 0 +: {}", below(40)) : "";
  const std::string text = fmt::format("{}{} = {}", slice(to), limits, from);
  line(to.guard.empty() ? text : fmt::format("if {} {{ {} }}", to.guard, text));
  spend(runs_ * elements(target));
  tiles_[at].saved |= whole;
}

void Generator::save_tile() {
  auto ready = tiles_where([](const TileBuffer& tile) { return tile.ready; });
  if (ready.empty()) return load_tile();
  save(choose(ready));
}

namespace {

struct Atomic {
  const char* format;  // of place and value
  bool adds;
};
constexpr Atomic kAtomics[] = {{"atomic {} += {}", true}, {"atomic max {} = {}", false}, {"atomic min {} = {}", false}};

}  // namespace

void Generator::combine_tile() {
  auto ready = tiles_where([](const TileBuffer& tile) { return tile.ready; });
  if (ready.empty()) return load_tile();
  const TileBuffer tile = tiles_[choose(ready)];
  const Atomic& atomic = kAtomics[below(3)];
  std::vector<std::string> types{"f32"};
  if (atomic.adds && chance(30)) types = {"f16", "bf16"};
  if (!ir::is_float(tile.type.type) || (tile.exact && chance(40))) types = {"i32", "u32", "i64", "u64"};
  const std::string type = choose(types);
  const Owned to = owned(tile.shape, {type, *ir::dtype_from_name(type)}, "inout ", true);
  const std::string text = fmt::format(fmt::runtime(atomic.format), slice(to), slice_of(tile, tile.shape));
  line(to.guard.empty() ? text : fmt::format("if {} {{ {} }}", to.guard, text));
  spend(runs_ * elements(tile.shape));
}

// Of a tensor or a shared tile, which is another one than the region sets.
void Generator::atomic_element(const Site& site, size_t set) {
  const Atomic& atomic = kAtomics[below(3)];
  std::vector<std::string> types{"f32", "i32", "u32", "i64", "u64"};
  const auto tiles = tiles_where([&](const TileBuffer& tile) {
    return tile.ready && tile.scope == ir::Scope::kShared && tile.name != tiles_[set].name &&
           std::count(types.begin(), types.end(), tile.type.text);
  });
  if (!tiles.empty() && chance(50)) return atomic_in_tile(site, choose(tiles), atomic.format);
  if (atomic.adds) types.insert(types.end(), {"f16", "bf16"});
  const std::string type = choose(types);
  const TypeName held{type, *ir::dtype_from_name(type)};
  Shape shape;
  std::vector<std::string> indices;
  for (int64_t rank = 1 + below(3); rank > 0; --rank) {
    shape.push_back(chance(50) ? choose(extents_) : axis_extent(1 + below(12)));
    const int64_t extent = std::max<int64_t>(shape.back().value, 1);
    indices.push_back(chance(25) ? fmt::format("abs({}) % {}", index_of_data(site), extent)
                                 : index(shape.back(), site));
  }
  const std::string name = fresh("C");
  add_param(name, "inout ", held, shape);
  const Term value = value_for(held, 2, site);
  line(fmt::format(fmt::runtime(atomic.format), fmt::format("{}[{}]", name, fmt::join(indices, ", ")), value.text));
}

void Generator::atomic_in_tile(const Site& site, size_t tile, const char* format) {
  TileBuffer& to = tiles_[tile];
  std::vector<std::string> indices;
  for (const Extent& extent : to.shape)
    indices.push_back(chance(50) ? fmt::format("abs({}) % {}", index_of_data(site), std::max<int64_t>(extent.value, 1))
                                 : index(extent, site));
  const Term value = value_for(to.type, 2, site);
  line(fmt::format(fmt::runtime(format), fmt::format("{}[{}]", to.name, fmt::join(indices, ", ")), value.text));
  to.exact &= value.exact && !ir::is_float(to.type.type);
  to.saved = false;
}

void Generator::copy_tensors() {
  const Shape target = random_shape(1024);
  const TypeName type = any_type();
  const Owned to = owned(target, type, "out ");
  const std::string text = fmt::format("{} = {}", slice(to), input_slice(target, any_type()));
  line(to.guard.empty() ? text : fmt::format("if {} {{ {} }}", to.guard, text));
  spend(runs_ * elements(target));
}

// Read, changed and written back; the part that a block reads is the part that it owns.
void Generator::update_in_place() {
  const Shape target = random_shape(1024);
  const TypeName type = any_type();
  const Owned place = owned(target, type, "inout ");
  auto update = [&] {
    const size_t tile = new_tile(target, type);
    line(fmt::format("{} = {}", tiles_[tile].name, slice(place)));
    mark_written(tile, true, true);
    region_into(tile);
    line(fmt::format("{} = {}", slice(place), tiles_[tile].name));
  };
  if (place.guard.empty()) return update();
  nested("if " + place.guard, 1, update);
}

}  // namespace kachel::conformance
