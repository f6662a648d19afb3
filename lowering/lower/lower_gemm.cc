// gemm by fused multiply-add. See tile_lowering.h.
//
// GPU: the elements of C are dealt out to the threads, each runs its own loop over k; a C in registers is
// lower_fma.cc's or, in the generic lowering, keeps k outermost, so that one pass updates all of a thread's
// accumulators. CPU: with B as [K, N] the loops are i, k, j and the innermost is contiguous; with B transposed it is a
// dot product along k.
#include "ir/print.h"
#include "lowering/lower/tile_lowering.h"
#include "lowering/plan/cpu_placement.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;
using ir::Op;

namespace {

// f16 has as many bits of a number, of those that are neither too large for it nor subnormal there.
ExprRef rounded_to_tf32(const ExprRef& value) {
  const ExprRef size = ir::make_typed(Op::kAbs, {value});
  const ExprRef fits = ir::make_typed(Op::kAnd, {ir::make_typed(Op::kLt, {size, ir::make_float(65504)}),
                                                 ir::make_typed(Op::kGe, {size, ir::make_float(0x1p-14)})});
  const ExprRef rounded = ir::make_cast({DType::F32, nullptr}, ir::make_cast({DType::F16, nullptr}, value));
  return ir::make_typed(Op::kSelect, {fits, rounded, value});
}

}  // namespace

void TileLowering::statement(const ir::GemmStmt& gemm) {
  comment(ir::print(gemm.c) + (gemm.accumulate ? " += " : " = ") + ir::print(gemm.a) +
          (gemm.transpose_a ? "^T @ " : " @ ") + ir::print(gemm.b) + (gemm.transpose_b ? "^T" : ""));
  const auto choice = placements_.gemms.find(&gemm);
  if (choice != placements_.gemms.end() && choice->second.mma) {
    if (choice->second.group) return gemm_group(gemm, choice->second);
    return gemm_mma(gemm, choice->second);
  }
  if (on_cpu() && takes_micro_kernel(gemm, placements_)) return micro_gemm(gemm);
  const ir::BufferRef& c = gemm.c.buffer;
  if (choice != placements_.gemms.end() && choice->second.block_rows) return gemm_blocks(gemm, choice->second);
  const DType type = ir::compute_type(c->type.dtype);
  const std::vector<int64_t> shape = slice_shape(gemm.c);
  const int64_t k_extent = slice_shape(gemm.a)[gemm.transpose_a ? 0 : 1] - (planted(Planted::kGemmShortK) ? 1 : 0);
  const bool accumulate = gemm.accumulate && !planted(Planted::kGemmNoAccumulate);
  const Slice a = slice(gemm.a), b = slice(gemm.b), c_slice = slice(gemm.c);

  const bool in_tf32 = target_.reversed && !on_cpu() && gemm.precision == ir::Precision::kTf32 && type == DType::F32;
  auto operand = [&](const Slice& from, std::vector<ExprRef> indices) {
    const ExprRef value = convert(load_element(from, {std::move(indices), nullptr}), type);
    return in_tf32 ? rounded_to_tf32(value) : value;
  };
  auto a_at = [&](const ExprRef& m, const ExprRef& k) {
    bool transpose =
        gemm.transpose_a != (planted(Planted::kTransposedOperand) && slice_shape(gemm.a)[0] == slice_shape(gemm.a)[1]);
    return operand(a, transpose ? std::vector{k, m} : std::vector{m, k});
  };
  auto b_at = [&](const ExprRef& k, const ExprRef& n) {
    return operand(b, gemm.transpose_b ? std::vector{n, k} : std::vector{k, n});
  };
  auto multiply_add = [&](const ExprRef& x, const ExprRef& y, const ExprRef& sum) {
    if (ir::is_float(type)) return ir::make_typed(Op::kFma, {x, y, sum});
    return ir::make_typed(Op::kAdd, {ir::make_typed(Op::kMul, {x, y}), sum});
  };
  const ExprRef zero = ir::is_float(type) ? ir::make_float(0) : ir::make_int(0, type);

  // Element of C at a site, with its guard if C is a slice that may leave its tile.
  auto c_at = [&](const Site& site, ExprRef* guard) {
    std::vector<ExprRef> indices = element(c_slice, site, guard);
    *guard = in_bounds(c, indices, *guard);
    return offset(c, indices, &site);
  };
  auto clear = [&] {
    each_of(c, shape, {"m", "n"}, [&](const Site& site) {
      ExprRef guard, at = c_at(site, &guard);
      store(storage(c), at, zero, guard);
    });
  };
  // C at the site gains one product.
  auto update = [&](const Site& site, const ExprRef& x, const ExprRef& y) {
    ExprRef guard, at = c_at(site, &guard);
    store(storage(c), at, multiply_add(x, y, ir::make_load(storage(c), {at})), guard);
  };

  const auto along_k = [&](bool reassociate, const std::function<void(ExprRef)>& fn) {
    serial("k", int64(k_extent), reassociate, [&](const ExprRef& k) { fn(in_order(k, k_extent)); });
  };
  if (!on_cpu() && in_registers(c)) {
    if (!accumulate) clear();
    along_k(false, [&](const ExprRef& k) {
      auto one = [&](const Site& site) { update(site, a_at(site.coords[0], k), b_at(k, site.coords[1])); };
      each_of(c, shape, {"m", "n"}, one);
    });
    return;
  }
  if (on_cpu() && !gemm.transpose_b) {
    if (!accumulate) clear();
    serial("m", int64(shape[0]), false, [&](ExprRef m) {
      along_k(false, [&](const ExprRef& k) {
        ExprRef x = let("a", a_at(m, k));
        serial("n", int64(shape[1]), false, [&](ExprRef n) { update({{m, n}, nullptr}, x, b_at(k, n)); });
      });
    });
    return;
  }
  ir::BufferRef sum = temporary("sum", type, ir::Scope::kRegister, 1);
  const ExprRef first = ir::make_int(0, DType::I32);
  each(shape, {"m", "n"}, false, [&](const Site& site) {
    ExprRef guard, at = c_at(site, &guard);
    ExprRef old = ir::make_load(storage(c), {at});
    if (guard) old = ir::make_typed(Op::kSelect, {guard, old, zero});
    store(sum, first, accumulate ? old : zero, nullptr);
    along_k(true, [&](const ExprRef& k) {
      ExprRef x = a_at(site.coords[0], k), y = b_at(k, site.coords[1]);
      store(sum, first, multiply_add(x, y, ir::make_load(sum, {first})), nullptr);
    });
    store(storage(c), at, ir::make_load(sum, {first}), guard);
  });
}

}  // namespace kachel::lowering
