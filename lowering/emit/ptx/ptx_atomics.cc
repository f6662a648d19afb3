// Combining with memory. A float's extremum is one of integers: floats without a sign are in the order of their bits,
// those with one in the opposite order. No loop of compare-and-swap, see kachel_converge() in cuda_prelude.cc.
#include "lowering/emit/ptx/ptx_statements.h"

namespace kachel::lowering::ptx {

using ir::AtomicOp;
using ir::DType;

namespace {

const char* space_of(const Place& place) {
  return place.buffer->space == Space::kShared ? "shared" : "global";
}

}  // namespace

// Nothing is done where memory holds what would be left there; a NaN there is replaced first, after which there is
// none.
void Statements::float_extremum(bool maximum, const Place& place, const Value& value) {
  const Value old = code_.fresh(Class::kF32);
  const char* space = space_of(place);
  code_.line("ld.relaxed.{}.{}.f32 {}, {};", place.buffer->space == Space::kShared ? "cta" : "gpu", space, old.text,
             place.text());
  const Value number = code_.compare("num", "f32", value, value);
  const Value changes = code_.both(number, code_.compare(maximum ? "ltu" : "gtu", "f32", old, value));
  const Value replaces = code_.both(number, code_.compare("nan", "f32", old, old));
  const Value bits = code_.pure(Class::kB32, "mov.b32", {value}), from = code_.pure(Class::kB32, "mov.b32", {old});
  const Value has_sign = code_.compare("lt", "s32", bits, Code::integer(0, 32));
  only_where(replaces, fmt::format("atom.{}.cas.b32 {}, {}, {}, {};", space, code_.fresh(Class::kB32).text,
                                   place.text(), from.text, bits.text));
  const auto combine = [&](const Value& condition, const char* operation) {
    only_where(code_.both(changes, condition),
               fmt::format("red.{}.{} {}, {};", space, operation, place.text(), bits.text));
  };
  combine(code_.opposite(has_sign), maximum ? "max.s32" : "min.s32");
  combine(has_sign, maximum ? "min.u32" : "max.u32");
}

void Statements::statement(const LoopAtomic& atomic) {
  const DType type = atomic.buffer->type.dtype;
  constexpr const char* kNames[] = {"", "add", "max", "min"};
  const bool add = atomic.op == AtomicOp::kAdd, half = type == DType::F16 || type == DType::BF16;
  if (ir::bits(type) < 32 && !(half && add)) {
    expressions_.lacks(fmt::format("atomics of {}", ir::name(type)));
    return;
  }
  const Value value = code_.in_register(expressions_.of(atomic.value));
  const Place place = expressions_.place(atomic.buffer, atomic.index);
  if (half) {
    const char* name = type == DType::F16 ? "f16" : "bf16";
    const Value rounded = code_.pure(Class::kB16, fmt::format("cvt.rn.{}.f32", name).c_str(), {value});
    return code_.line("red.global.add.noftz.{} {}, {};", name, place.text(), rounded.text);
  }
  if (ir::is_float(type) && !add) return float_extremum(atomic.op == AtomicOp::kMax, place, value);
  code_.line("red.{}.{}.{} {}, {};", space_of(place), kNames[static_cast<int>(atomic.op)],
             add && type == DType::I64 ? "u64" : number_type(type), place.text(), value.text);
}

void Statements::add_vector(const LoopIntrinsic& node) {
  const int64_t words = bytes_of(node) / 4;
  const std::string many = words > 1 ? fmt::format(".v{}", words) : "";
  const std::string type = node.type == DType::F32   ? many + ".f32"
                           : node.type == DType::F16 ? ".noftz" + many + ".f16x2"
                                                     : ".noftz" + many + ".bf16x2";
  const std::vector<std::string> values = memory_.words(at(node, 1), words);
  code_.line("red.global.add{} {}, {};", type, at(node, 0).text(), words > 1 ? braced(values) : values[0]);
}

}  // namespace kachel::lowering::ptx
