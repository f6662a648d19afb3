// What the generator knows while it writes a program. Private to the generator*.cc files:
// generator.cc header and order, generator_tile.cc statements on tiles, generator_loop.cc control flow and gemm loops,
// generator_mma.cc products for tensor cores, generator_region.cc parallel regions, generator_slice.cc slices and
// tensors, generator_expr.cc scalars.
//
// A program is valid by construction: whatever is written names only what is declared and defined, and the few rules
// that need thought (who may write what) are kept by the one place that makes tensors to be written, output_slice().
// Most programs are also decided: an integer, an index or a condition is made from values free of rounding error
// (`exact`), and functions get operands within their domain. A few deliberately are not.
#pragma once
#include <optional>
#include <set>

#include "tests/conformance/examples.h"
#include "tests/conformance/generator.h"

namespace kachel::conformance {

// Extents are equal if they are written alike, which is what the verifier can show.
struct Extent {
  std::string text;
  int64_t value = 1;
};
using Shape = std::vector<Extent>;

struct TypeName {
  std::string text;
  ir::DType type;  // of a type symbol: one of its options, which all have one compute type
};

struct TileBuffer {
  std::string name;
  ir::Scope scope = ir::Scope::kShared;
  TypeName type;
  Shape shape;
  bool ready = false;    // all of it is written
  bool exact = true;     // what it holds is free of rounding error
  bool saved = true;     // what it holds has been stored, or never changed
  bool product = false;  // the result of a gemm, or a copy of one
};

struct Term {  // an expression
  std::string text;
  ir::DType type;  // a compute type
  bool exact = true;
};

struct GridAxis {
  std::string var;
  Extent extent;
  Extent tile;  // a block owns elements [var * tile, (var + 1) * tile) of dimension `dim`; no text: element var
  Extent dim;
};

// Where an expression stands.
struct Site {
  std::vector<std::pair<std::string, Extent>> iters;  // of the region and of reductions around it
  bool exact = false;                                 // only exact terms will do
  int reductions = 1;                                 // that may still be nested
  bool reduced = false;                               // inside of one
  int64_t runs = 1;                                   // how often it is evaluated
};

// A tensor that this block owns a part of: the axes as a slice and as an element of a region.
struct Owned {
  std::string name;
  std::vector<std::string> slice;
  std::vector<std::string> element;  // with $0, $1, ... for the iteration variables
  std::string guard;                 // the blocks that own anything; "": all
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed), seed_(seed) {}
  Result<Program> run();

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  const T& choose(const std::vector<T>& from) {
    return from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))];
  }
  std::string fresh(const std::string& prefix) { return prefix + std::to_string(++names_); }
  void line(const std::string& text) { body_ += std::string(2 * static_cast<size_t>(depth_), ' ') + text + "\n"; }
  void open(const std::string& head);
  void close();
  bool rich() const { return work_ < kMostWork; }
  void spend(int64_t runs) { work_ += runs; }

  // generator.cc
  void choose_header();
  void choose_extents();
  void choose_grid();
  Extent new_dim(int64_t value);
  Extent literal(int64_t value) { return {std::to_string(value), value}; }
  std::string header() const;
  void finish();
  TypeName any_type(bool tensor_only = false);
  TypeName type_like(bool is_float);
  void note_symbol(const TypeName& type);

  // generator_expr.cc
  Term expr(ir::DType type, int depth, const Site& site);
  Term leaf(ir::DType type, const Site& site);
  Term number(ir::DType type);
  Term float_expr(int depth, const Site& site);
  Term float_function(int depth, const Site& site);
  Term integer_expr(ir::DType type, int depth, const Site& site);
  Term bool_expr(int depth, const Site& site);
  Term selection(ir::DType type, int depth, const Site& site);
  std::string folding(ir::DType type, const Site& site, Term* body);
  Term reduction(ir::DType type, const Site& site);
  Term scan(ir::DType type, const Site& site);
  Term cast(ir::DType type, int depth, const Site& site);
  std::optional<Term> load(ir::DType type, const Site& site);
  std::string index(const Extent& axis, const Site& site);
  std::string index_of_data(const Site& site);
  std::string uniform_index();  // an exact integer that is the same in the whole block
  Term value_for(const TypeName& type, int depth, const Site& site);  // what may be stored to an element of `type`
  static std::string safe_for_integers(const Term& value);

  // generator_slice.cc
  Shape random_shape(int64_t most_elements);
  Extent axis_extent(int64_t value);  // of a tensor, about `value` elements
  std::string start_of(const Extent& extent);
  std::string slice_of(const TileBuffer& buffer, const Shape& target);
  std::string gather(const Extent& extent, int64_t limit);
  std::string distinct_rows(const GridAxis& axis);
  std::string bounds(bool written);
  void add_param(const std::string& name, const std::string& direction, const TypeName& type, const Shape& shape);
  // A new or known input tensor, or a part of one, of shape `target`. `fixed`: the start along some axes, and the
  // dimension that it runs over.
  struct Fixed {
    std::string start;
    Extent dim;
  };
  std::string input_slice(const Shape& target, const TypeName& type, const std::vector<Fixed>& fixed = {});
  // A new tensor of which each block owns a part of shape `target`; for an atomic one that is not needed. `in_rows`:
  // the last axis of the part is whole and the last of the tensor.
  Owned owned(const Shape& target, const TypeName& type, const std::string& direction, bool atomic = false,
              bool in_rows = false);
  static std::string element(const Owned& owned, const std::vector<std::string>& vars);
  static std::string slice(const Owned& owned);

  // generator_tile.cc
  size_t new_tile(const Shape& shape, const TypeName& type);
  template <class Fn>
  std::vector<size_t> tiles_where(const Fn& accept) const {
    std::vector<size_t> found;
    for (size_t i = 0; i < tiles_.size(); ++i)
      if (accept(tiles_[i])) found.push_back(i);
    return found;
  }
  void mark_written(size_t tile, bool exact, bool whole);
  size_t filled_tile(const Shape& shape, const TypeName& type);
  void load_tile();
  void copy_tile();
  void fill_tile();
  void save_tile();
  // `as_product`: all of it, rounded to 16 bits, to rows that begin at whole lines.
  void save(size_t tile, bool as_product = false);
  void combine_tile();
  void copy_tensors();
  void update_in_place();
  void gemm();
  struct Operand {
    std::string text;
    size_t tile;
    bool is_f32;
  };
  size_t product_operand(size_t product, Extent* rows, Extent* columns);
  Operand gemm_operand(const Extent& rows, const Extent& columns, bool is_float, size_t result);

  // generator_loop.cc
  void statements(int count);
  void statement();
  void let();
  void loop();
  void branch();
  void gemm_loop();
  struct Entered {
    size_t scalars;
    int64_t runs;
    std::vector<bool> ready;
  };
  Entered enter(int64_t trips);
  void leave(const Entered& entered);
  // `head { body }`, where `body` writes statements that may run any number of times, `trips` about.
  template <class Fn>
  void nested(const std::string& head, int64_t trips, const Fn& body) {
    open(head);
    const Entered entered = enter(trips);
    body();
    leave(entered);
    close();
  }

  // generator_mma.cc
  Extent tile_extent(int64_t value);
  size_t declare(ir::Scope scope, const Shape& shape, const TypeName& type, bool ready);
  std::string operand_slice(const Shape& target, const TypeName& type, size_t along, const Fixed& fixed);
  std::string step_condition(const std::string& var);
  void load_operand(size_t tile, size_t along, const Fixed& fixed, const std::string& var);
  void change_in_place(size_t tile, const std::string& var);
  void statistics(size_t tile, bool use);
  void tensor_loop();

  // generator_region.cc
  void region();
  void region_into(size_t tile);
  void region_to_tensor();
  void half_region();
  void assign(size_t tile, const std::vector<std::string>& indices, const Site& site, bool first);
  void atomic_element(const Site& site, size_t set);
  void atomic_in_tile(const Site& site, size_t tile, const char* format);
  void region_lets(const Site& site);

  static constexpr int64_t kMostWork = 400'000;

  Random random_;
  uint64_t seed_;
  int names_ = 0, depth_ = 1, nesting_ = 0;
  int64_t work_ = 0;  // scalar operations, about
  int64_t runs_ = 1;  // blocks times iterations of the loops around
  std::string body_;
  std::vector<std::string> params_, tunables_, consts_, decls_;
  std::set<std::string> bound_;  // dimensions that a parameter has alone
  std::vector<Extent> dims_, extents_;
  std::vector<GridAxis> grid_;
  std::vector<TileBuffer> tiles_, inputs_;
  size_t region_scalars_ = 0;  // those in front of the names of the region at hand
  std::vector<Term> scalars_;  // visible names; lets and loop indices are taken off at the end of their block
  struct Symbol {
    TypeName name;
    std::string options;
    bool used = false;
  };
  std::vector<Symbol> symbols_;
  Wishes wishes_;
};

}  // namespace kachel::conformance
