#include "lowering/emit/ptx/ptx_memory.h"

#include <bit>

namespace kachel::lowering::ptx {

using ir::DType;

namespace {

const char* space_name(Space space) {
  return space == Space::kShared ? "shared" : space == Space::kCluster ? "shared::cluster" : "global";
}
// Not `.nc` even where nothing writes while the kernel runs: ptxas moves such loads over barriers, all of a region's in
// front of the products before it, and spills what they bring (attention with a bias, 192 x 96: 504 bytes).
std::string load_name(Space space) {
  return fmt::format("ld.{}", space_name(space));
}
Class class_of(DType type) {
  return type == DType::F32 ? Class::kF32 : ir::bits(type) == 64 ? Class::kB64 : Class::kB32;
}
// Elements to a register.
int64_t packed(DType type) {
  return std::max(32 / ir::bits(type), 1);
}
// f32 numbers of these bits.
Value as_float(Code* code, const Value& bits) {
  return code->pure(Class::kF32, "mov.b32", {bits});
}
bool is_signed_narrow(DType type) {
  return type == DType::I8 || type == DType::I16;
}

}  // namespace

void Memory::declare_registers(const LoopBuffer& buffer) {
  Buffer made{Space::kRegister, buffer.buffer->type.dtype, {}, {}, buffer.raw, buffer.elements};
  const int64_t each = made.each();
  for (int64_t i = 0; i < (buffer.elements + each - 1) / each; ++i) {
    made.registers.push_back(code_.variable(class_of(made.type)));
    if (buffer.zeroed)
      code_.line("mov.{} {}, {};", class_of(made.type) == Class::kB64 ? "b64" : "b32", made.registers.back().text, 0);
  }
  declare(buffer.buffer, std::move(made));
}

std::pair<Value, Value> Memory::halves(const std::string& word) {
  const std::pair<Value, Value> made = {code_.fresh(Class::kB16), code_.fresh(Class::kB16)};
  code_.line("mov.b32 {{{}, {}}}, {};", made.first.text, made.second.text, word);
  return made;
}

Value Memory::to_f8(const Value& number, DType type) {
  const char* name = type == DType::F8E4M3 ? "cvt.rn.satfinite.e4m3x2.f32" : "cvt.rn.satfinite.e5m2x2.f32";
  const Value pair = code_.pure(Class::kB16, name, {Code::number(0), number});
  return code_.pure(Class::kB32, "cvt.u32.u16", {pair});
}
Value Memory::f16_pair(const Value& pair, DType type) {
  return code_.pure(Class::kB32, type == DType::F8E4M3 ? "cvt.rn.f16x2.e4m3x2" : "cvt.rn.f16x2.e5m2x2", {pair});
}
Value Memory::from_f8(const Value& bits, DType type) {
  const Value pair = code_.pure(Class::kB16, "cvt.u16.u32", {bits});
  return code_.pure(Class::kF32, "cvt.f32.f16", {halves(f16_pair(pair, type).text).first});
}

Value Memory::part_of_word(const Place& place, bool is_signed) {
  const int bits = ir::bits(place.type);
  const int64_t each = packed(place.type);
  const Value& word = place.buffer->registers[place.element / each];
  const int64_t at = place.element % each;
  const auto part = [&](const Value& made) {
    const int64_t sign = is_signed ? int64_t{1} << (bits - 1) : 0;
    if (!is_signed) code_.at_most(made, (uint64_t{1} << bits) - 1);
    code_.note_field(made, {word, static_cast<int>(at) * bits, bits, sign, -sign});
    return made;
  };
  if (is_signed && bits >= 8) {
    // By bytes: ptxas takes the conversion of a signed field to f32 for a signed one, also where it is cvt.rn.f32.u32.
    const int64_t low = at * bits / 8, high = low + bits / 8 - 1, sign = high | 8;
    const int64_t selector = low | (bits == 16 ? high : sign) << 4 | sign << 8 | sign << 12;
    return part(code_.pure(Class::kB32, "prmt.b32", {word, Code::integer(0, 32), Code::integer(selector, 32)}));
  }
  return part(code_.pure(Class::kB32, is_signed ? "bfe.s32" : "bfe.u32",
                         {word, Code::integer(at * bits, 32), Code::integer(bits, 32)}));
}
void Memory::fill_word(const Place& place, const Value& value) {
  const int bits = ir::bits(place.type);
  const int64_t each = packed(place.type);
  const Value& word = place.buffer->registers[place.element / each];
  code_.line("bfi.b32 {0}, {1}, {0}, {2}, {3};", word.text, value.text, place.element % each * bits, bits);
  code_.written(word);
}

Value Memory::load_bits(const Place& place) {
  const DType type = place.type;
  const int bits = std::max(ir::bits(type), 8);
  if (place.in_registers())
    return bits >= 32 || place.buffer->raw ? place.buffer->registers[place.element]
                                           : part_of_word(place, is_signed_narrow(type));
  const Value made = code_.loaded(class_of(type));
  const char* kind = bits == 64               ? "b64"
                     : bits == 32             ? "b32"
                     : bits == 16             ? (is_signed_narrow(type) ? "s16" : "u16")
                     : is_signed_narrow(type) ? "s8"
                                              : "u8";
  code_.say(fmt::format("{}.{} {}, {};", load_name(place.buffer->space), kind, made.text, place.text()), true);
  return made;
}

void Memory::store_bits(const Place& place, const Value& value) {
  const int bits = ir::bits(place.type);
  if (!place.in_registers())
    return code_.say(fmt::format("st.{}.b{} {}, {};", space_name(place.buffer->space), bits, place.text(), value.text),
                     true);
  if (bits < 32 && !place.buffer->raw) return fill_word(place, value);
  code_.assign(place.buffer->registers[place.element], value, false);
}

Place Memory::in_bytes(Place place, int64_t bytes) {
  place.element = place.element * ir::bits(place.type) / 8 / bytes;
  place.type = bytes == 4 ? DType::U32 : bytes == 2 ? DType::F16 : DType::U8;
  return place;
}

Value Memory::widened(const Value& bits, const std::function<Value(const Value&)>& conversion) {
  const Value made = conversion(bits);
  code_.same_rest(bits, made);
  return made;
}

Value Memory::load(const Place& place) {
  const DType type = place.type;
  const bool in_word = place.in_registers() && !place.buffer->raw && ir::bits(type) == 16;
  switch (type) {
    case DType::BF16:
      if (in_word) {
        const Value& word = place.buffer->registers[place.element / 2];
        return as_float(&code_, place.element % 2 ? code_.bits("and", word, Code::integer(0xffff0000, 32))
                                                  : code_.shift(word, Code::integer(16, 32), true, false));
      }
      return widened(load_bits(place), [&](const Value& bits) {
        return as_float(&code_, code_.shift(bits, Code::integer(16, 32), true, false));
      });
    case DType::F16: {
      const Value word = in_word ? place.buffer->registers[place.element / 2] : load_bits(place);
      return widened(word, [&](const Value& bits) {
        const auto [low, high] = halves(bits.text);
        return code_.pure(Class::kF32, "cvt.f32.f16", {in_word && place.element % 2 ? high : low});
      });
    }
    case DType::F8E4M3:
    case DType::F8E5M2:
      return widened(load_bits(place), [&](const Value& bits) { return from_f8(bits, type); });
    case DType::Bool:
      return code_.compare("ne", "b32", load_bits(place), Code::integer(0, 32));
    default:
      return load_bits(place);
  }
}

void Memory::store(const Place& place, const Value& value, bool only_use) {
  const DType type = place.type;
  switch (type) {
    case DType::BF16:
    case DType::F16: {
      const Value half = code_.pure(Class::kB16, type == DType::F16 ? "cvt.rn.f16.f32" : "cvt.rn.bf16.f32", {value});
      if (!place.in_registers()) {
        store_bits(place, half);
      } else if (place.buffer->raw) {
        store_bits(place, code_.pure(Class::kB32, "cvt.u32.u16", {half}));
      } else {
        const Value& word = place.buffer->registers[place.element / 2];
        const auto [low, high] = halves(word.text);
        code_.line("mov.b32 {}, {{{}, {}}};", word.text, place.element % 2 ? low.text : half.text,
                   place.element % 2 ? half.text : high.text);
        code_.written(word);
      }
      return;
    }
    case DType::Bool:
      return store_bits(place, code_.select(value, Code::integer(1, 32), Code::integer(0, 32)));
    case DType::F8E4M3:
    case DType::F8E5M2:
      return store_bits(place, to_f8(value, type));
    default:
      if (place.in_registers() && ir::bits(type) >= 32)
        code_.assign(place.buffer->registers[place.element], value, only_use);
      else
        store_bits(place, value);
  }
}

void Memory::store_to_blocks(const Place& place, const Value& value, int blocks) {
  Buffer everywhere = *place.buffer;
  everywhere.space = Space::kCluster;
  const Value own = code_.add(place.address, Code::integer(place.offset, 32));
  for (int block = 0; block < blocks; ++block) {
    Place there = place;
    there.buffer = &everywhere;
    there.address = code_.pure(Class::kB32, "mapa.shared::cluster.u32", {own, Code::integer(block, 32)});
    there.offset = 0;
    store(there, value, false);
  }
}

// Registers of `bytes` bytes from the place on, as an instruction of their width takes them.
std::vector<std::string> Memory::parts(const Place& place, int64_t bytes) const {
  const DType type = place.type;
  const int64_t first = place.element / packed(type), size = std::max(ir::bits(type) / 8, 4);
  std::vector<std::string> out;
  for (int64_t i = 0; i < bytes / size; ++i) out.push_back(place.buffer->registers[first + i].text);
  return out;
}
std::vector<std::string> Memory::words(const Place& place, int64_t count) const {
  return parts(place, 4 * count);
}
void Memory::written(const Place& place, int64_t words) {
  const int64_t first = place.element / packed(place.type);
  for (int64_t i = 0; i < words; ++i) code_.written(place.buffer->registers[first + i]);
}

std::string braced(const std::vector<std::string>& registers) {
  return fmt::format("{{{}}}", fmt::join(registers, ", "));
}

namespace {

std::string vector_name(size_t parts, int64_t bytes) {
  const auto size = 8 * bytes / static_cast<int64_t>(parts);
  return parts == 1 ? fmt::format("b{}", size) : fmt::format("v{}.b{}", parts, size);
}

}  // namespace

bool Memory::copy(const Place& to, const Place& from, int64_t bytes, const Value& guard) {
  const bool from_registers = from.in_registers(), to_registers = to.in_registers();
  if (from_registers && !guard.is(1)) return false;
  if (!std::has_single_bit(static_cast<uint64_t>(bytes)) && !(from_registers && to_registers)) return false;
  const int64_t whole = std::max<int64_t>(ir::bits(to.type) / 8, 4);
  if (bytes < whole) {
    Value bits;
    {
      const Code::Guard scope(&code_, guard);
      bits = load_bits(to_registers && to.buffer->raw ? from : in_bytes(from, bytes));  // an element, with its sign
    }
    const Value filled = code_.select(guard, bits, Code::integer(0, 32));
    const bool all = to_registers && !to.buffer->raw && 8 * bytes == to.buffer->elements * ir::bits(to.buffer->type);
    if (all)
      code_.assign(to.buffer->registers[0], filled, false);
    else
      store_bits(in_bytes(to, bytes), filled);
    return true;
  }
  std::vector<std::string> parts;
  if (to_registers || from_registers) {
    parts = this->parts(to_registers ? to : from, bytes);
  } else {
    for (int64_t i = 0; i < bytes / 4; ++i) parts.push_back(code_.fresh(Class::kB32).text);
  }
  const std::string operand = parts.size() == 1 ? parts[0] : braced(parts);
  const std::string name = vector_name(parts.size(), bytes), size = vector_name(1, bytes / parts.size());
  if (from_registers && to_registers) {
    const std::vector<std::string> sources = this->parts(from, bytes);
    for (size_t i = 0; i < parts.size(); ++i) code_.line("mov.{} {}, {};", size, parts[i], sources[i]);
  } else if (!from_registers) {
    if (!guard.is(1))
      for (const std::string& part : parts) code_.line("mov.{} {}, 0;", size, part);
    const Code::Guard scope(&code_, guard);
    if (!guard.is(0))
      code_.say(fmt::format("{}.{} {}, {};", load_name(from.buffer->space), name, operand, from.text()), true);
  }
  if (to_registers)
    written(to, static_cast<int64_t>(parts.size()));
  else
    code_.say(fmt::format("st.{}.{} {}, {};", space_name(to.buffer->space), name, to.text(), operand), true);
  return true;
}

}  // namespace kachel::lowering::ptx
