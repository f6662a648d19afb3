// Exchanges between elements whose places differ in bits (tile_ir/exchanges.h). What a layout says of those bits
// decides: bits of a register's number are another register of the same thread, bits of a lane's a shuffle, and those
// of a warp's a pass through shared memory, in which every thread has a place for each of its registers.
#include <fmt/format.h>

#include <numeric>

#include "lowering/lower/tile_lowering.h"
#include "lowering/plan/exchanged_places.h"
#include "lowering/planted.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprRef;

namespace {

constexpr int64_t kLanes = 32, kVectorBytes = 16;

// What passes between threads: a word, or two.
ExprRef as_word(const ExprRef& value) {
  return value->type == DType::Bool ? ir::make_cast({DType::I32, nullptr}, value) : value;
}
ExprRef as_value(const ExprRef& word, DType type) {
  return word->type == type ? word : ir::make_typed(ir::Op::kNe, {word, int32(0)});
}

}  // namespace

void TileLowering::exchange(const ir::ParallelStmt& region, const Exchange& exchange, const FragmentLayout& layout) {
  std::vector<std::string> names;
  std::vector<size_t> axes(region.iters.size());
  std::iota(axes.begin(), axes.end(), size_t{0});
  for (const ir::IterVar& iter : region.iters) names.push_back(iter.var->name);
  const ExchangedPlaces places = *exchanged_places(layout, exchange.axis, exchange.bits);
  const ir::BufferRef from = storage(exchange.from);
  std::vector<ExprRef> values;
  for (int64_t reg = 0; reg < layout.registers(); ++reg)
    values.push_back(let(fmt::format("own{}", reg), ir::make_load(from, {int32(reg)})));
  values = exchanged(std::move(values), places, layout.threads());

  const bool direct = in_registers(exchange.to);
  const ir::BufferRef to =
      direct ? storage(exchange.to)
             : temporary("exchanged", exchange.to->type.dtype, ir::Scope::kRegister, layout.registers());
  for (size_t i = 0; i < values.size(); ++i) store(to, int32(static_cast<int64_t>(i)), values[i], nullptr);
  if (direct) return;
  each_in(layout, names, 1, [&](const Site& site) {
    store(storage(exchange.to), offset(exchange.to, site.coords, &site),
          ir::make_load(to, {register_of(layout, axes, site)}), site.owner);
  });
}

// By register: what the other thread has in the other register.
std::vector<ExprRef> TileLowering::exchanged(std::vector<ExprRef> values, const ExchangedPlaces& places,
                                             int64_t threads) {
  const DType type = values[0]->type;
  if (places.thread_bits >= kLanes) {
    values = passed(std::move(values), places.thread_bits, threads);
  } else if (places.thread_bits) {
    const int mask = planted(Planted::kExchangeLanes) ? 1 : static_cast<int>(places.thread_bits);
    int shuffled = 0;
    for (ExprRef& value : values) {
      const ExprRef word = as_word(value);
      const ir::VarRef other = make_local(fmt::format("other{}", shuffled++), word->type);
      emit({LoopShuffle{other, word, mask}});
      value = as_value(ir::make_var(other), type);
    }
  }
  std::vector<ExprRef> result;
  for (size_t i = 0; i < values.size(); ++i)
    result.push_back(values[planted(Planted::kExchangeHere) ? i : static_cast<size_t>(places.registers[i])]);
  return result;
}

// By way of shared memory: registers in groups of 16 bytes, which threads beside each other have beside each other.
std::vector<ExprRef> TileLowering::passed(const std::vector<ExprRef>& values, int64_t thread_bits, int64_t threads) {
  const DType type = as_word(values[0])->type;
  const auto count = static_cast<int64_t>(values.size());
  const int64_t vector = std::gcd(count, kVectorBytes / (ir::bits(type) / 8));
  const ir::BufferRef memory = temporary("passed", type, ir::Scope::kShared, count * threads);
  const ir::BufferRef given = temporary("given", type, ir::Scope::kRegister, count);
  const ir::BufferRef taken = temporary("taken", type, ir::Scope::kRegister, count);
  for (int64_t reg = 0; reg < count; ++reg)
    store(given, int32(reg), as_word(values[static_cast<size_t>(reg)]), nullptr);
  const auto place = [&](const ExprRef& thread, int64_t reg) {
    return plus(times(ir::make_cast({DType::I64, nullptr}, thread), vector), int64(reg * threads));
  };
  in_threads(threads, [&](const ExprRef& thread) {
    for (int64_t reg = 0; reg < count; reg += vector)
      move(LoopIntrinsic::Kind::kCopyVector, memory, place(thread, reg), given, int32(reg), vector, nullptr);
  });
  in_threads(threads, [&](const ExprRef& thread) {
    const int64_t bits = planted(Planted::kExchangeWarps) ? 0 : thread_bits;
    const ExprRef other = let("other", ir::make_typed(ir::Op::kBitXor, {thread, int32(bits)}));
    for (int64_t reg = 0; reg < count; reg += vector)
      move(LoopIntrinsic::Kind::kCopyVector, taken, int32(reg), memory, place(other, reg), vector, nullptr);
  });
  std::vector<ExprRef> result;
  for (int64_t reg = 0; reg < count; ++reg)
    result.push_back(as_value(let(fmt::format("other{}", reg), ir::make_load(taken, {int32(reg)})), values[0]->type));
  return result;
}

}  // namespace kachel::lowering
