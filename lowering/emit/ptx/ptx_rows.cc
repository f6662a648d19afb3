// Rows of a tensor at any address, of which four lanes hold eight elements each beside each other, and as many again 32
// elements further: LoopIntrinsic::kStoreRow.
//
// The aligned 16 bytes around a lane's vector begin `shift` bytes in front of it, the same for the four lanes. Their
// first bytes are the last ones of the vector in front, which the lane before has, or for the first lane the last one a
// step ago; so each lane stores aligned 16 bytes, but for the ends of the row.
#include "lowering/emit/ptx/ptx_statements.h"

namespace kachel::lowering::ptx {

namespace {

constexpr int64_t kVectorBytes = 16;

Value number(int64_t value) {
  return Code::integer(value, 32);
}

}  // namespace

// Elements first <= i < end of the eight in four words, at 16 aligned bytes: the largest aligned parts of them.
void Statements::store_part(const Value& address, const std::vector<Value>& words, Value first, const Value& end) {
  const Value zero = number(0);
  const auto has = [&](const Value& value, int64_t bit) {
    return code_.compare("ne", "s32", code_.bits("and", value, number(bit)), zero);
  };
  const auto fits = [&](const Value& from, int64_t count) {
    return code_.compare("le", "s32", code_.add(from, number(count)), end);
  };
  const auto place = [&](const Value& at) { return code_.add(address, code_.widened(code_.mul(at, number(2)), true)); };
  const auto word = [&](const Value& at) {  // that has the element
    const Value low = code_.select(has(at, 2), words[1], words[0]), high = code_.select(has(at, 2), words[3], words[2]);
    return code_.select(has(at, 4), high, low);
  };
  const auto store = [&](const Value& wanted, const Value& at, int64_t count) {
    const Value to = place(at);
    if (count == 4) {
      const Value low = code_.select(has(at, 4), words[2], words[0]),
                  high = code_.select(has(at, 4), words[3], words[1]);
      return only_where(wanted, fmt::format("st.global.v2.b32 [{}+0], {};", to.text, braced({low.text, high.text})));
    }
    const Value held = word(at);
    if (count == 2) return only_where(wanted, fmt::format("st.global.b32 [{}+0], {};", to.text, held.text));
    const Value upper = code_.pure(Class::kB32, "shr.u32", {held, number(16)});
    const Value half = code_.select(has(at, 1), upper, held), narrow = code_.fresh(Class::kB16);
    code_.line("cvt.u16.u32 {}, {};", narrow.text, half.text);
    only_where(wanted, fmt::format("st.global.b16 [{}+0], {};", to.text, narrow.text));
  };
  const auto behind = [&](const Value& wanted, int64_t count) {
    return code_.select(wanted, code_.add(first, number(count)), first);
  };
  // Up to where the next larger part is aligned, then down to the rest.
  if (!first.is(0))
    for (const int64_t count : {1, 2, 4}) {
      const Value wanted = code_.in_register(code_.both(has(first, count), fits(first, count)));
      store(wanted, first, count);
      first = behind(wanted, count);
    }
  for (const int64_t count : {4, 2, 1}) {
    const Value wanted = code_.in_register(fits(first, count));
    store(wanted, first, count);
    first = behind(wanted, count);
  }
}

void Statements::store_row(const LoopIntrinsic& node) {
  const Place to = at(node, 0), from = at(node, 1);
  const int64_t vectors = node.immediate;
  const Value zero = number(0), none = code_.in_register(zero);
  const Value left = code_.settled(code_.in_register(expressions_.of(node.coordinates[0])));
  const Value address = code_.add(to.address, Code::integer(to.offset, 64));
  const Value shift = code_.bits("and", code_.narrowed(address), number(kVectorBytes - 1));
  const Value aligned = code_.bits("and", address, Code::integer(-kVectorBytes, 64));
  const Value elements = code_.shift(shift, number(1), false, false);
  const Value lane = code_.bits("and", tid_, number(3));
  const Value is_first = code_.compare("eq", "s32", lane, zero), is_last = code_.compare("eq", "s32", lane, number(3));
  const Value source =
      code_.bits("or", code_.bits("and", tid_, number(28)), code_.bits("and", code_.add(tid_, number(3)), number(3)));
  const Value by_two = code_.compare("ne", "s32", code_.bits("and", shift, number(8)), zero),
              by_one = code_.compare("ne", "s32", code_.bits("and", shift, number(4)), zero);
  const Value selector = code_.select(code_.compare("ne", "s32", code_.bits("and", shift, number(2)), zero),
                                      number(0x5432), number(0x7654));
  const auto vector = [&](int64_t i) {
    Place place = from;
    place.element += LoopIntrinsic::kRowStep * i;
    std::vector<Value> words;
    for (const std::string& text : memory_.words(place, 4)) words.push_back({text, Class::kB32, {}});
    return words;
  };
  // Of eight words the four that begin `shift` bytes in front of the last four.
  const auto moved = [&](const std::vector<Value>& x) {
    std::vector<Value> u, v, out;
    for (size_t i = 0; i < 6; ++i) u.push_back(code_.select(by_two, x[i], x[i + 2]));
    for (size_t i = 0; i < 5; ++i) v.push_back(code_.select(by_one, u[i], u[i + 1]));
    for (size_t i = 0; i < 4; ++i) out.push_back(code_.pure(Class::kB32, "prmt.b32", {v[i], v[i + 1], selector}));
    return out;
  };
  const auto clamped = [&](const Value& end, const Value& most) {
    return code_.extremum(true, "s32", code_.extremum(false, "s32", end, zero), most);
  };
  for (int64_t i = 0; i <= vectors; ++i) {
    const bool behind = i == vectors;  // what the last lane's last vector has left
    std::vector<Value> x;
    const std::vector<Value> own = vector(behind ? i - 1 : i);
    for (size_t word = 0; word < 4; ++word) {
      if (behind) {
        x.push_back(own[word]);
        continue;
      }
      const Value sent = code_.fresh(Class::kB32), received = code_.fresh(Class::kB32);
      code_.line("selp.b32 {}, {}, {}, {};", sent.text, i ? vector(i - 1)[word].text : none.text, own[word].text,
                 is_last.text);
      code_.line("shfl.sync.idx.b32 {}, {}, {}, 31, -1;", received.text, sent.text, source.text);
      x.push_back(received);
    }
    for (size_t word = 0; word < 4; ++word) x.push_back(behind ? none : own[word]);
    const std::vector<Value> out = moved(x);
    const int64_t column = LoopIntrinsic::kRowColumns * i, last = column - LoopIntrinsic::kRowColumns + 8;
    const Value place = code_.add(aligned, Code::integer(2 * (behind ? last : column), 64));
    const Value end = code_.add(code_.add(left, elements), number(-(behind ? last : column)));
    if (behind) {
      const Value part = code_.select(is_last, clamped(end, elements), zero);
      when(code_.compare("gt", "s32", part, zero), [&] { store_part(place, out, zero, part); });
      continue;
    }
    const Value first = i ? zero : code_.select(is_first, elements, zero), stop = clamped(end, number(8));
    const Value all = code_.compare("eq", "s32", code_.sub(stop, first), number(8));
    only_where(all, fmt::format("st.global.v4.b32 [{}+0], {};", place.text,
                                braced({out[0].text, out[1].text, out[2].text, out[3].text})));
    const Value some = code_.compare("gt", "s32", stop, first);
    when(code_.both(some, code_.opposite(all)), [&] { store_part(place, out, first, stop); });
  }
}

}  // namespace kachel::lowering::ptx
