// Kernels from C++. The builder checks nothing: verify() judges what comes out, as it judges parsed text.
//
//   KernelBuilder kb("scale");
//   Ex N = kb.dim("N"), BN = kb.tunable("BN", {128, 256});
//   Buf X = kb.tensor("X", DType::F32, {N}), Y = kb.tensor("Y", DType::F32, {N}, Direction::kOut);
//   Ex b = kb.grid("b", ceildiv(N, BN));
//   Buf x = kb.fragment("x", DType::F32, {BN});
//   kb.copy(x, X[{range(b * BN, BN)}]);
//   kb.parallel("i", BN, [&](Ex i) { kb.assign(x, {i}, x(i) * 2); });
//   kb.copy(Y[{range(b * BN, BN)}], x);
//   Kernel kernel = kb.take();
#pragma once
#include <concepts>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ir/kernel.h"

namespace kachel::ir {

// A scalar expression. A small handle; C++ numbers convert to it (floats are rounded to f32).
class Ex {
 public:
  Ex(ExprRef expr) : expr_(std::move(expr)) {}
  Ex(const VarRef& var) : expr_(make_untyped_var(var)) {}
  template <std::integral T>
  Ex(T value) : expr_(std::same_as<T, bool> ? make_bool(value != 0) : make_int(static_cast<int64_t>(value))) {}
  template <std::floating_point T>
  Ex(T value) : expr_(make_float(static_cast<float>(value))) {}

  const ExprRef& ref() const { return expr_; }
  operator const ExprRef&() const { return expr_; }

 private:
  ExprRef expr_;
};

Ex operator-(const Ex& a);
Ex operator!(const Ex& a);
Ex operator~(const Ex& a);
Ex operator+(const Ex& a, const Ex& b);
Ex operator-(const Ex& a, const Ex& b);
Ex operator*(const Ex& a, const Ex& b);
Ex operator/(const Ex& a, const Ex& b);
Ex operator%(const Ex& a, const Ex& b);
Ex operator&(const Ex& a, const Ex& b);
Ex operator|(const Ex& a, const Ex& b);
Ex operator^(const Ex& a, const Ex& b);
Ex operator<<(const Ex& a, const Ex& b);
Ex operator>>(const Ex& a, const Ex& b);
Ex operator&&(const Ex& a, const Ex& b);  // no short circuit while building, as everywhere in expressions
Ex operator||(const Ex& a, const Ex& b);
Ex operator==(const Ex& a, const Ex& b);
Ex operator!=(const Ex& a, const Ex& b);
Ex operator<(const Ex& a, const Ex& b);
Ex operator<=(const Ex& a, const Ex& b);
Ex operator>(const Ex& a, const Ex& b);
Ex operator>=(const Ex& a, const Ex& b);

// Any function or operator by its code; the common ones by name.
Ex apply(Op op, const std::vector<Ex>& args, bool approx = false);
Ex min(const Ex& a, const Ex& b);
Ex max(const Ex& a, const Ex& b);
Ex ceildiv(const Ex& a, const Ex& b);
Ex select(const Ex& condition, const Ex& yes, const Ex& no);
Ex cast(TypeRef type, const Ex& value);
Ex cast(DType type, const Ex& value);

// `sum[j < n](body(j))`; several indices with the list form.
using Extents = std::vector<std::pair<std::string, Ex>>;
Ex reduce(ReduceOp op, const Extents& extents, const std::function<Ex(const std::vector<Ex>&)>& body);
Ex sum(const std::string& name, const Ex& extent, const std::function<Ex(Ex)>& body);
Ex max(const std::string& name, const Ex& extent, const std::function<Ex(Ex)>& body);
Ex min(const std::string& name, const Ex& extent, const std::function<Ex(Ex)>& body);
// `sum[k <= j](body(k))`, without `inclusive` `sum[k < j](body(k))`. j: an index of the region, whose extent is given.
Ex scan(ReduceOp op, const std::string& name, const Ex& j, const Ex& extent, bool inclusive,
        const std::function<Ex(Ex)>& body);

class Buf;

// One axis of a slice: an index (any Ex converts), range(first, length), whole() or gather(slice).
struct Axis : AxisSpec {
  Axis() = default;
  template <class T>
    requires std::convertible_to<T, Ex>
  Axis(const T& index) {
    kind = Kind::kIndex;
    start = Ex(index).ref();
  }
};
Axis range(const Ex& first, const Ex& length);
Axis whole();

// A slice.
class Tile : public TileRef {
 public:
  Tile(const Buf& buffer);  // all of it
  Tile(BufferRef buffer, const std::vector<Axis>& axes);
  Tile within(const Ex& first, const Ex& length) const;
  Tile padded(const Ex& value) const;
};
Axis gather(const Tile& indices);

// A tensor or tile: `A(i, j)` is an element, `A[{range(i, n), whole()}]` a slice.
class Buf {
 public:
  Buf(BufferRef buffer) : buffer_(std::move(buffer)) {}
  template <class... Indices>
  Ex operator()(const Indices&... indices) const {
    return at({Ex(indices)...});
  }
  Ex at(const std::vector<Ex>& indices) const;
  Tile operator[](const std::vector<Axis>& axes) const { return Tile(buffer_, axes); }
  const BufferRef& ref() const { return buffer_; }

 private:
  BufferRef buffer_;
};

// Type given as DType or TypeRef.
struct AnyType : TypeRef {
  AnyType(DType type) : TypeRef{type, nullptr} {}
  AnyType(TypeRef type) : TypeRef(std::move(type)) {}
};

struct GemmOptions {
  bool transpose_a = false, transpose_b = false;
  bool accumulate = true;
  Precision precision = Precision::kDefault;
};

class KernelBuilder {
 public:
  explicit KernelBuilder(std::string name);

  // Header, in any order. Names are the caller's to keep apart.
  TypeRef type(const std::string& name, std::vector<DType> options);
  Ex constant(const std::string& name, DType type);
  Ex dim(const std::string& name);
  Ex tunable(const std::string& name, std::vector<int64_t> values);
  Ex automatic(const std::string& name);  // `tune auto`
  Buf tensor(const std::string& name, const AnyType& type, const std::vector<Ex>& shape,
             Direction direction = Direction::kIn);
  Ex scalar(const std::string& name, DType type);
  void where(const Ex& condition);
  void key(const Ex& value);
  Ex grid(const std::string& name, const Ex& extent);  // slowest first

  // Statements, added to the block that is open.
  Buf shared(const std::string& name, const AnyType& type, const std::vector<Ex>& shape);
  Buf fragment(const std::string& name, const AnyType& type, const std::vector<Ex>& shape);
  Buf fragment(const std::string& name, const AnyType& type, const std::vector<Ex>& shape, const Ex& init);
  Ex let(const std::string& name, const Ex& value);
  void copy(const Tile& dst, const Tile& src);
  void fill(const Tile& dst, const Ex& value);
  void gemm(const Tile& c, const Tile& a, const Tile& b, const GemmOptions& options = {});
  void assign(const Buf& buffer, const std::vector<Ex>& indices, const Ex& value, AssignOp op = AssignOp::kSet);
  void atomic(AtomicOp op, const Buf& buffer, const std::vector<Ex>& indices, const Ex& value);
  void atomic(AtomicOp op, const Tile& dst, const Tile& src);

  // Blocks: what the function adds is inside.
  using Body = std::function<void()>;
  void parallel(const Extents& extents, const std::function<void(const std::vector<Ex>&)>& body);
  void parallel(const std::string& i, const Ex& ni, const std::function<void(Ex)>& body);
  void parallel(const std::string& i, const Ex& ni, const std::string& j, const Ex& nj,
                const std::function<void(Ex, Ex)>& body);
  void loop(const std::string& name, const Ex& begin, const Ex& end, const std::function<void(Ex)>& body);
  // `stages` null: the depth is left to the engine.
  void pipelined(const std::string& name, const Ex& begin, const Ex& end, const Ex* stages,
                 const std::function<void(Ex)>& body);
  void branch(const Ex& condition, const Body& yes, const Body& no = nullptr);

  // The kernel; the builder is empty afterwards.
  Kernel take();

 private:
  void add(Stmt stmt) { open_.back()->push_back(std::move(stmt)); }
  template <class Fn>
  Block inside(const Fn& fn);
  Buf tile(Scope scope, const std::string& name, const AnyType& type, const std::vector<Ex>& shape, ExprRef init);

  Kernel kernel_;
  std::vector<Block*> open_;
  std::vector<VarRef> dims_;
};

}  // namespace kachel::ir
