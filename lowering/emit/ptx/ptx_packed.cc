// Pairs of 16-bit numbers: unpacked from 4 and 8 bits, converted, and computed with.
#include "lowering/emit/ptx/ptx_statements.h"
#include "lowering/loop_ir/loop_build.h"

namespace kachel::lowering::ptx {

using ir::DType;

// Of four words that follow each other, one at `place`, the bytes of the lane's number among four: what is found for
// one of them serves all.
Value Statements::own_bytes(const Place& place) {
  const auto number = [](int64_t value) { return Code::integer(value, 32); };
  const Value lane = code_.bits("and", tid_, number(3));
  const Value of_two = code_.add(code_.mul(lane, number(0x11)), number(0x40));
  const auto joined = [&](const Value& a, const Value& b, const Value& by) {
    return code_.pure(Class::kB32, "prmt.b32", {a, b, by});
  };
  Value halves[2] = {number(0), number(0)};
  Place word = place;
  for (int64_t half = 0; half < 2; ++half) {
    word.element = place.element - place.element % 16 + 8 * half;
    if (word.element + 4 > place.buffer->elements) break;
    const Value first = memory_.load_bits(Memory::in_bytes(word, 4));
    word.element += 4;
    const bool two = word.element + 4 <= place.buffer->elements;
    halves[half] = joined(first, two ? memory_.load_bits(Memory::in_bytes(word, 4)) : first, of_two);
  }
  return joined(halves[0], halves[1], number(0x5410));
}

// In the mantissa of a power of two, whose last place counts ones, an integer needs no conversion: the power is taken
// away together with the number.
// A permutation takes one of eight bytes by three bits, of which it has four numbers in a word; a third one chooses by
// the fourth bit between what two have found.
void Statements::look_up(const LoopIntrinsic& node) {
  const int64_t elements = node.operands[0].elements;
  const Place to = at(node, 0), from = at(node, 1);
  const auto permute = [&](const Value& a, const Value& b, const Value& by) {
    return code_.pure(Class::kB32, "prmt.b32", {a, b, by});
  };
  const auto number = [](int64_t value) { return Code::integer(static_cast<int32_t>(value), 32); };
  const bool of_quad = node.immediate != 0;
  const Value word = of_quad ? own_bytes(from) : memory_.load_bits(Memory::in_bytes(from, elements / 2));
  const int64_t begin = of_quad ? from.element % 16 / 2 : 0;  // of the word's numbers
  const Value low = code_.bits("and", word, number(0x77777777));
  const Value fourth = code_.bits("and", code_.shift(word, number(1), false, false), number(0x44444444));
  const Value choice = code_.bits("or", fourth, number(0x32103210));
  std::vector<Value> table;
  for (const uint32_t one : table_words(node)) table.push_back(number(static_cast<int32_t>(one)));
  const std::vector<std::string> words = memory_.words(to, elements / 2);
  for (int64_t first = begin - begin % 4; first < begin + elements; first += 4) {
    const auto own = [&](const Value& of) { return first ? code_.shift(of, number(16), false, false) : of; };
    Value bytes[2];
    for (size_t i = 0; i < 2; ++i) {
      const auto* part = &table[4 * i];
      const auto alike = [](const Value& a, const Value& b) { return a.constant == b.constant; };
      const bool by_three = alike(part[0], part[2]) && alike(part[1], part[3]);
      const bool one = by_three && alike(part[0], part[1]) && *part[0].constant == 0;
      bytes[i] = one ? number(0) : permute(part[0], part[1], own(low));
      if (!by_three) bytes[i] = permute(bytes[i], permute(part[2], part[3], own(low)), own(choice));
    }
    for (int64_t pair = 0; pair < 2; ++pair)
      if (const int64_t at = first + 2 * pair - begin; at >= 0 && at < elements)
        code_.line("prmt.b32 {}, {}, {}, {};", words[static_cast<size_t>(at / 2)], bytes[0].text, bytes[1].text,
                   pair ? 0x7362 : 0x5140);
  }
  memory_.written(to, elements / 2);
}

void Statements::unpack(const LoopIntrinsic& node) {
  if (!node.table.empty()) return look_up(node);
  if (ir::bits(node.type_b) == 32) return unpack_words(node);
  if (ir::bits(node.type_b) == 8) return ir::is_float(node.type_b) ? unpack_floats(node) : unpack_bytes(node);
  const bool half = node.type == DType::F16, is_signed = node.type_b == DType::I4;
  const int64_t power = (half ? 0x6400 : 0x4300) + (is_signed ? 8 : 0), elements = node.operands[0].elements;
  const float number = (half ? 1024.0f : 128.0f) + (is_signed ? 8.0f : 0.0f);
  const int64_t bytes = node.immediate ? 4 : elements / 2, pairs = node.immediate ? 1 : elements / 2;
  const Place to = at(node, 0), from = at(node, 1);
  const Value word = memory_.load_bits(Memory::in_bytes(from, bytes));
  const Value high = code_.fresh(Class::kB32);
  code_.line("shr.u32 {}, {}, 4;", high.text, word.text);
  Value first = Code::integer(0x4400, 32);
  if (node.immediate)
    first = code_.add(code_.mul(code_.bits("and", tid_, Code::integer(3, 32)), Code::integer(0x1111, 32)), first);
  const Value base = code_.in_register(Code::integer(power * 0x10001, 32));
  const Value both = taken_pair(node, number);
  const std::vector<std::string> words = memory_.words(to, pairs);
  for (int64_t i = 0; i < pairs; ++i) {
    const Value spread = code_.fresh(Class::kB32), placed = code_.fresh(Class::kB32);
    code_.line("prmt.b32 {}, {}, {}, {};", spread.text, word.text, high.text,
               code_.add(first, Code::integer(i * 0x1111, 32)).text);
    // (x & 0x000f000f) ^ power
    code_.line("lop3.b32 {}, {}, 0x000f000f, {}, 0x6a;", placed.text, spread.text, base.text);
    code_.line("sub.rn.{}x2 {}, {}, {};", tensor_core_type(node.type), words[i], placed.text, both.text);
  }
  memory_.written(to, pairs);
}

// In the mantissa of 1024. That of bf16 has seven bits behind 128: the eighth one makes a power of two of it, 256, and
// what there is without the seven is taken away.
void Statements::unpack_bytes(const LoopIntrinsic& node) {
  const bool half = node.type == DType::F16, is_signed = node.type_b == DType::I8, less = node.operands.size() > 2;
  const int64_t pairs = node.operands[0].elements / 2;
  const Place to = at(node, 0), from = at(node, 1);
  const auto number = [](int64_t value) { return Code::integer(static_cast<int32_t>(value), 32); };
  const float offset = half ? (is_signed ? 1152.0f : 1024.0f) : (is_signed ? 0.0f : -128.0f);
  const Value power = code_.in_register(number(0x43004300)), flipped = code_.in_register(number(0x43804380));
  const Value both = taken_pair(node, offset);
  const std::vector<std::string> words = memory_.words(to, pairs);
  for (int64_t i = 0; i < pairs; ++i) {
    Place word = from;
    word.element += 2 * i;
    const int64_t first = word.element % 4;
    word.element -= first;
    const Value bytes = memory_.load_bits(Memory::in_bytes(word, 4));
    const Value spread = code_.pure(Class::kB32, "prmt.b32", {bytes, number(0), number(0x4140 + first * 0x101)});
    const std::string& result = words[static_cast<size_t>(i)];
    if (half) {
      const Value placed = code_.bits("xor", spread, number(is_signed ? 0x64806480 : 0x64006400));
      code_.line("sub.rn.f16x2 {}, {}, {};", result, placed.text, both.text);
      continue;
    }
    const Value low = code_.fresh(Class::kB32), high = code_.fresh(Class::kB32);
    // the seven bits; and the eighth one, the other way round without a sign
    code_.line("lop3.b32 {}, {}, 0x007f007f, {}, 0x6a;", low.text, spread.text, power.text);
    code_.line("lop3.b32 {}, {}, 0x00800080, {}, 0x6a;", high.text, spread.text, (is_signed ? power : flipped).text);
    const bool more = less || !is_signed;
    const std::string difference = more ? code_.fresh(Class::kB32).text : result;
    code_.line("sub.rn.bf16x2 {}, {}, {};", difference, low.text, high.text);
    if (more) code_.line("sub.rn.bf16x2 {}, {}, {};", result, difference, both.text);
  }
  memory_.written(to, pairs);
}

// What is to be taken from pairs of a 16-bit float type: `offset`, and what operands[2] has, if it is there.
Value Statements::taken_pair(const LoopIntrinsic& node, float offset) {
  const bool less = node.operands.size() > 2;
  const Value taken = less ? code_.pure(Class::kF32, "add.f32", {memory_.load(at(node, 2)), Code::number(offset)})
                           : Code::number(offset);
  const Value both = code_.fresh(Class::kB32), of_both = code_.in_register(taken);
  code_.line("cvt.rn.{0}x2.f32 {1}, {2}, {2};", tensor_core_type(node.type), both.text, of_both.text);
  return both;
}

// In the mantissa, as above: the low halves of two words, of which the bits that count are kept. The highest of these,
// where there is a sign, is turned round.
void Statements::unpack_words(const LoopIntrinsic& node) {
  const bool half = node.type == DType::F16, is_signed = ir::is_signed(node.type_b);
  const int64_t pairs = node.operands[0].elements / 2, top = int64_t{1} << (node.immediate - 1);
  const int64_t power = (half ? 0x6400 : 0x4300) + (is_signed ? top : 0);
  const auto number = [](int64_t value) { return Code::integer(static_cast<int32_t>(value), 32); };
  const Value base = code_.in_register(number(power * 0x10001));
  const Value both = taken_pair(node, (half ? 1024.0f : 128.0f) + (is_signed ? static_cast<float>(top) : 0.0f));
  const Place to = at(node, 0);
  const std::vector<std::string> from = memory_.words(at(node, 1), 2 * pairs), words = memory_.words(to, pairs);
  for (size_t i = 0; i < words.size(); ++i) {
    const Value pair = code_.fresh(Class::kB32), placed = code_.fresh(Class::kB32);
    code_.line("prmt.b32 {}, {}, {}, 0x5410;", pair.text, from[2 * i], from[2 * i + 1]);
    // (x & mask) ^ power
    code_.line("lop3.b32 {}, {}, {}, {}, 0x6a;", placed.text, pair.text, number((2 * top - 1) * 0x10001).text,
               base.text);
    code_.line("sub.rn.{}x2 {}, {}, {};", tensor_core_type(node.type), words[i], placed.text, both.text);
  }
  memory_.written(to, pairs);
}

// f16 has all of these numbers.
void Statements::unpack_floats(const LoopIntrinsic& node) {
  const int64_t pairs = node.operands[0].elements / 2;
  const Place to = at(node, 0), from = at(node, 1);
  const std::vector<std::string> words = memory_.words(to, pairs);
  for (int64_t i = 0; i < pairs; ++i) {
    Place word = from;
    word.element += 2 * i;
    const bool upper = word.element % 4 != 0;
    word.element -= word.element % 4;
    const auto [low, high] = memory_.halves(memory_.load_bits(Memory::in_bytes(word, 4)).text);
    const Value pair = memory_.f16_pair(upper ? high : low, node.type_b);
    const std::string& result = words[static_cast<size_t>(i)];
    if (node.type == DType::F16) {
      code_.line("mov.b32 {}, {};", result, pair.text);
      continue;
    }
    const auto [first, second] = memory_.halves(pair.text);
    const Value numbers[2] = {code_.pure(Class::kF32, "cvt.f32.f16", {first}),
                              code_.pure(Class::kF32, "cvt.f32.f16", {second})};
    code_.line("cvt.rn.bf16x2.f32 {}, {}, {};", result, numbers[1].text, numbers[0].text);
  }
  memory_.written(to, pairs);
}

void Statements::convert_pair(const LoopIntrinsic& node) {
  const Place to = at(node, 0);
  const std::vector<std::string> from = memory_.words(at(node, 1), 2);
  const std::string word = memory_.words(to, 1)[0];
  if (ir::is_float8(node.type)) {
    const Value pair = code_.fresh(Class::kB16);
    code_.line("cvt.rn.satfinite.{}x2.f32 {}, {}, {};", tensor_core_type(node.type), pair.text, from[1], from[0]);
    const bool upper = to.element % 4 != 0;
    if (!upper && to.element + 2 == to.buffer->elements) {
      // Half a word. Joined with one that nothing was written to, it ends NVRTC 13.0 where a loop carries the word.
      code_.line("cvt.u32.u16 {}, {};", word, pair.text);
    } else {
      const auto [low, high] = memory_.halves(word);
      code_.line("mov.b32 {}, {{{}, {}}};", word, upper ? low.text : pair.text, upper ? pair.text : high.text);
    }
  } else {
    code_.line("cvt.rn.{}x2.f32 {}, {}, {};", tensor_core_type(node.type), word, from[1], from[0]);
  }
  memory_.written(to, 1);
}

void Statements::packed_math(const LoopIntrinsic& node) {
  const char* const type = tensor_core_type(node.type);
  const auto words = [&](size_t operand, int64_t count) {
    if (node.operands[operand].elements > 1) return memory_.words(at(node, operand), count);
    const std::string number = memory_.words(at(node, operand), 1)[0];
    const Value both = code_.fresh(Class::kB32);
    code_.line("cvt.rn.{0}x2.f32 {1}, {2}, {2};", type, both.text, number);
    return std::vector<std::string>(static_cast<size_t>(count), both.text);
  };
  const char* op = node.op == ir::Op::kMul ? "mul" : node.op == ir::Op::kAdd ? "add" : "sub";
  const int64_t pairs = node.operands[0].elements / 2;
  const Place place = at(node, 0);
  const std::vector<std::string> to = memory_.words(place, pairs), a = words(1, pairs), b = words(2, pairs);
  for (size_t i = 0; i < to.size(); ++i) code_.line("{}.rn.{}x2 {}, {}, {};", op, type, to[i], a[i], b[i]);
  memory_.written(place, pairs);
}

}  // namespace kachel::lowering::ptx
