// 16 bytes from any address of a tensor, by way of the 32 around them: loads that are issued ahead of their use, and
// what shifts and stores them. See LoopIntrinsic::kLoadShifted.
#include "lowering/emit/ptx/ptx_statements.h"

namespace kachel::lowering::ptx {

void Statements::load_shifted(const LoopIntrinsic& node) {
  const Place to = at(node, 0), from = at(node, 1);
  const std::vector<std::string> x = memory_.words(to, 8);
  const Value address =
      code_.bits("and", code_.add(from.address, Code::integer(from.offset, 64)), Code::integer(-16, 64));
  const Value whole = condition(node.guard);
  for (const size_t half : {0, 1})
    only_where(whole, fmt::format("ld.global.v4.b32 {}, [{}+{}];",
                                  braced({x.begin() + 4 * half, x.begin() + 4 * half + 4}), address.text, 16 * half));
  memory_.written(to, 8);
}

void Statements::store_shifted(const LoopIntrinsic& node) {
  const Place to = at(node, 0), from = at(node, 2);
  const std::vector<std::string> x = memory_.words(at(node, 1), 8);
  const Value address = code_.add(from.address, Code::integer(from.offset, 64));
  const Value shift = code_.bits("and", code_.narrowed(address), Code::integer(15, 32)), none = Code::integer(0, 32);
  const auto has = [&](int64_t bit) {
    return code_.compare("ne", "s32", code_.bits("and", shift, Code::integer(bit, 32)), none);
  };
  // By 8 bytes, by 4, then by what is left.
  const auto stepped = [&](const std::vector<std::string>& words, size_t step, size_t count, const Value& wanted) {
    std::vector<std::string> out;
    for (size_t i = 0; i < count; ++i) {
      out.push_back(code_.fresh(Class::kB32).text);
      code_.line("selp.b32 {}, {}, {}, {};", out.back(), words[i + step], words[i], wanted.text);
    }
    return out;
  };
  const std::vector<std::string> z = stepped(stepped(x, 2, 6, has(8)), 1, 5, has(4));
  const Value bits = code_.mul(shift, Code::integer(8, 32));
  std::vector<Value> all;
  for (size_t i = 0; i < 4; ++i) {
    all.push_back(code_.variable(Class::kB32));
    code_.line("shf.r.wrap.b32 {}, {}, {}, {};", all[i].text, z[i], z[i + 1], bits.text);
  }
  const Value first = code_.settled(expressions_.of(node.coordinates[0]));
  const Value end = code_.settled(expressions_.of(node.coordinates[1]));
  const int64_t size = ir::bits(from.type) / 8, each = 4 / size;
  when(code_.opposite(condition(node.guard)), [&] {
    for (const Value& word : all) code_.line("mov.b32 {}, 0;", word.text);
    for (int64_t i = 0; i < 16 / size; ++i) {
      const Value at = Code::integer(i, 32), element = code_.fresh(Class::kB32), moved = code_.fresh(Class::kB32);
      code_.line("mov.b32 {}, 0;", element.text);
      const Value exists =
          code_.in_register(code_.both(code_.compare("le", "s32", first, at), code_.compare("gt", "s32", end, at)));
      const std::string& word = all[i / each].text;
      code_.line("@{} ld.global.u{} {}, [{}+{}];", exists.text, 8 * size, element.text, address.text, i * size);
      code_.line("shl.b32 {}, {}, {};", moved.text, element.text, i % each * 8 * size);
      code_.line("or.b32 {0}, {0}, {1};", word, moved.text);
    }
  });
  code_.line("st.shared.v4.b32 {}, {};", to.text(), braced({all[0].text, all[1].text, all[2].text, all[3].text}));
}

}  // namespace kachel::lowering::ptx
