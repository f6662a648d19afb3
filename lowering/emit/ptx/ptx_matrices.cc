// Tensor cores by way of registers, and what lanes exchange for them.
#include "lowering/emit/ptx/ptx_statements.h"
#include "lowering/loop_ir/loop_build.h"

namespace kachel::lowering::ptx {

using ir::DType;

void Statements::load_matrix(const LoopIntrinsic& node) {
  const Place to = at(node, 0);
  code_.line("ldmatrix.sync.aligned.m8n8.x{}{}.shared.b16 {}, {};", node.immediate, node.transpose ? ".trans" : "",
             braced(memory_.words(to, node.immediate)), at(node, 1).text());
  memory_.written(to, node.immediate);
}

void Statements::mma(const LoopIntrinsic& node) {
  const Place sums = at(node, 0);
  const std::vector<std::string> a = memory_.words(at(node, 1), 4), b = memory_.words(at(node, 2), 2);
  const std::string c = braced(memory_.words(sums, 4));
  const char* result = ir::is_float(node.type) ? "f32" : "s32";
  const auto product = [&](int64_t depth, const std::string& types, const std::vector<std::string>& left,
                           const std::vector<std::string>& right) {
    code_.line("mma.sync.aligned.m16n8k{0}.row.col.{1}.{2}.{1} {3}, {4}, {5}, {3};", depth, result, types, c,
               braced(left), braced(right));
  };
  const auto each = [&](const std::vector<std::string>& words, const auto& made) {
    std::vector<std::string> out;
    for (const std::string& word : words) out.push_back(made(word));
    return out;
  };
  if (node.widened) {
    // Four 8-bit floats to two pairs of f16. The order of k within an instruction is free as long as A and B agree: the
    // first product takes the lower pair of every four, the second the upper.
    for (const bool upper : {false, true}) {
      const auto widened = [&](ir::DType type) {
        return [&, type](const std::string& word) {
          const auto [low, high] = memory_.halves(word);
          return memory_.f16_pair(upper ? high : low, type).text;
        };
      };
      product(16, "f16.f16", each(a, widened(node.type)), each(b, widened(node.type_b)));
    }
  } else if (node.type == DType::F32) {
    const auto rounded = [&](const std::string& word) {
      const Value made = code_.fresh(Class::kB32);
      code_.line("cvt.rna.tf32.f32 {}, {};", made.text, word);
      return made.text;
    };
    product(8, "tf32.tf32", each(a, rounded), each(b, rounded));
  } else {
    product(256 / ir::bits(node.type), fmt::format("{}.{}", tensor_core_type(node.type), tensor_core_type(node.type_b)),
            a, b);
  }
  memory_.written(sums, 4);
}

void Statements::dot4(const LoopIntrinsic& node) {
  const Place sum = at(node, 0);
  const std::string c = memory_.words(sum, 1)[0];
  const auto type = [](DType of) { return ir::is_signed(of) ? "s32" : "u32"; };
  code_.line("dp4a.{}.{} {}, {}, {}, {};", type(node.type), type(node.type_b), c, memory_.words(at(node, 1), 1)[0],
             memory_.words(at(node, 2), 1)[0], c);
  memory_.written(sum, 1);
}

// A 4 x 4 matrix of registers, a column a lane, is transposed.
void Statements::quad_exchange(const LoopIntrinsic& node) {
  const Place place = at(node, 0);
  const std::vector<std::string> r = memory_.words(place, 4);
  for (size_t mask = 1; mask < 4; mask <<= 1) {
    const Value bit = code_.bits("and", tid_, Code::integer(static_cast<int64_t>(mask), 32));
    const Value upper = code_.compare("ne", "s32", bit, Code::integer(0, 32));
    for (size_t i = 0; i < 4; ++i) {
      if (i & mask) continue;
      const Value mine = code_.fresh(Class::kB32), other = code_.fresh(Class::kB32);
      code_.line("selp.b32 {}, {}, {}, {};", mine.text, r[i], r[i | mask], upper.text);
      code_.line("shfl.sync.bfly.b32 {}, {}, {}, 31, -1;", other.text, mine.text, mask);
      code_.line("selp.b32 {}, {}, {}, {};", r[i], other.text, r[i], upper.text);
      code_.line("selp.b32 {0}, {0}, {1}, {2};", r[i | mask], other.text, upper.text);
    }
  }
  memory_.written(place, 4);
}

// Of a lane's two words one is for one of the two lower lanes, the other for one of the upper: lanes 0 and 3 send the
// first word first, so that every lane receives both that it wants, in two exchanges.
void Statements::quad_join(const LoopIntrinsic& node) {
  const auto word = [](int64_t value) { return Code::integer(value, 32); };
  const Place place = at(node, 0);
  const std::vector<std::string> to = memory_.words(place, 2), r = memory_.words(at(node, 1), 2);
  const Value q = code_.bits("and", tid_, word(3)), half = code_.shift(q, word(1), false, false);
  const Value inner = code_.compare("ne", "s32", code_.bits("and", code_.bits("xor", q, half), word(1)), word(0));
  const Value nibbles = code_.pure(Class::kB32, "shr.u32", {word(0x2130), code_.mul(q, word(4))});
  const Value lanes = code_.bits("and", tid_, word(28));
  const Value first = code_.bits("or", lanes, code_.bits("and", nibbles, word(3)));
  const Value second = code_.bits("xor", first, word(1));
  const auto exchanged = [&](const std::string& outer, const std::string& other, const Value& from) {
    const Value mine = code_.fresh(Class::kB32), received = code_.fresh(Class::kB32);
    code_.line("selp.b32 {}, {}, {}, {};", mine.text, other, outer, inner.text);
    code_.line("shfl.sync.idx.b32 {}, {}, {}, 31, -1;", received.text, mine.text, from.text);
    return received;
  };
  const Value a = exchanged(r[0], r[1], first), b = exchanged(r[1], r[0], second);
  const Value low = code_.select(inner, word(0x1054), word(0x5410)),
              high = code_.select(inner, word(0x3276), word(0x7632));
  code_.line("prmt.b32 {}, {}, {}, {};", to[0], a.text, b.text, low.text);
  code_.line("prmt.b32 {}, {}, {}, {};", to[1], a.text, b.text, high.text);
  memory_.written(place, 2);
}

// movmatrix turns elements of 16 bits: the lower halves of all, and the upper ones.
void Statements::turn_matrix(const LoopIntrinsic& node) {
  const Place place = at(node, 0);
  const std::vector<std::string> to = memory_.words(place, 2), from = memory_.words(at(node, 1), 2);
  Value halves[2];
  for (size_t i = 0; i < 2; ++i) {
    const Value both = code_.fresh(Class::kB32);
    halves[i] = code_.fresh(Class::kB32);
    code_.line("prmt.b32 {}, {}, {}, {};", both.text, from[0], from[1], i ? 0x7632 : 0x5410);
    code_.line("movmatrix.sync.aligned.m8n8.trans.b16 {}, {};", halves[i].text, both.text);
  }
  for (size_t i = 0; i < 2; ++i)
    code_.line("prmt.b32 {}, {}, {}, {};", to[i], halves[0].text, halves[1].text, i ? 0x7632 : 0x5410);
  memory_.written(place, 2);
}

}  // namespace kachel::lowering::ptx
