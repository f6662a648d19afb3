// wgmma. A warp does the 16 rows of its own of each instruction. What an instruction reads must stay as it was from its
// issue to the wait for its batch, and its accumulators are poison meanwhile. Source of the addresses: PTX ISA,
// "Asynchronous Warpgroup Level Matrix Shared Memory Layout"; of the fragments, "Register Fragments for
// wgmma.mma_async".
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "tests/lowering/simulated_machine.h"
#include "tests/lowering/tensor_sums.h"

namespace kachel::lowering {

using ir::DType;

namespace {

constexpr size_t kRows = 16, kStepBytes = 32;

}  // namespace

// Element (mn, k) of a matrix that begins at the address `base`; null after a failure.
const uint8_t* Machine::matrix_element(const SimStmt::Operand& operand, int64_t base,
                                       const LoopIntrinsic::MatrixView& view, int64_t mn, int64_t k,
                                       const Thread& thread) {
  const int64_t width = ir::bits(type_of(operand.buffer)) / 8, across = view.transpose ? mn : k;
  const int64_t down = view.transpose ? k : mn, columns = view.swizzle / width;
  // Along the rows k stays within a slab, of which the instruction begins at some 32 bytes.
  if (!view.transpose && base % view.swizzle + across * width >= view.swizzle) {
    fail("wgmma reads past the end of a slab");
    return nullptr;
  }
  int64_t address =
      base + across / columns * view.slab + across % columns * width + down / 8 * view.stride + down % 8 * view.swizzle;
  address ^= (address >> 7 & (view.swizzle / 16 - 1)) << 4;
  const int64_t begin = memory_.shared_address(operand.buffer, 0);
  return memory_.vector(operand.buffer, (address - begin) / width, 1, width, {thread.number, nullptr, true},
                        Access::kProduct);
}

// Of a warp's left operand in registers, rows g and g + 8 of a lane, then the second half of k.
std::vector<uint8_t> Machine::left_registers(const SimStmt::Operand& operand, int64_t first, Warp warp) {
  std::vector<uint8_t> rows(kRows * kStepBytes);
  for (size_t number = 0; number < kLanes; ++number) {
    const uint8_t* part = vector(operand, first, 4, warp[number], Access::kRead);
    for (size_t i = 0; part && i < 4; ++i)
      std::memcpy(rows.data() + (number / 4 + 8 * (i % 2)) * kStepBytes + 16 * (i / 2) + 4 * (number % 4), part + 4 * i,
                  4);
  }
  return rows;
}

void Machine::group_mma(const SimStmt& stmt, Warp warp) {
  Group& group = groups_[static_cast<size_t>(warp[0].number) / kLanes];
  if (!group.fenced) return fail("wgmma without a fence in front of its batch");
  const SimStmt::Operand &c = stmt.operands[0], &a = stmt.operands[1], &b = stmt.operands[2];
  const auto width = static_cast<size_t>(ir::bits(stmt.type) / 8), depth = kStepBytes / width;
  const auto columns = static_cast<size_t>(stmt.immediate);
  if (columns < 8 || columns > 256 || columns % 8 || c.elements != stmt.immediate / 2)
    return fail("wgmma with accumulators of another size");
  GroupProduct product{&stmt, eval(c.index, warp[0]).i, 0, 0, {}, {}};
  auto base = [&](const SimStmt::Operand& operand, const LoopIntrinsic::MatrixView& view) {
    const int64_t first = eval(operand.index, warp[0]).i, at = memory_.shared_address(operand.buffer, first);
    for (Thread& lane : warp)
      if (eval(operand.index, lane).i != first) fail("the lanes of a warp give wgmma different addresses");
    if (at < 0) fail("wgmma reads an operand that is not in shared memory");
    const int64_t pattern = 8 * view.swizzle;
    if (memory_.shared_address(operand.buffer, 0) % pattern) fail("an operand of wgmma is not aligned to its swizzle");
    return at;
  };
  // A: rows of this warp; the instruction's begin at those of its group.
  const auto warp_row = static_cast<int64_t>(static_cast<size_t>(warp[0].number) / kLanes % 4 * kRows);
  auto read = [&](const SimStmt::Operand& operand, const LoopIntrinsic::MatrixView& view, int64_t first, size_t count,
                  int64_t* begin, std::vector<uint8_t>* out) {
    const int64_t at = *begin = base(operand, view);
    out->resize(count * kStepBytes);
    for (size_t mn = 0; mn < count && !stopped(); ++mn)
      for (size_t k = 0; k < depth && !stopped(); ++k) {
        const uint8_t* from =
            matrix_element(operand, at, view, first + static_cast<int64_t>(mn), static_cast<int64_t>(k), warp[0]);
        if (from) std::memcpy(out->data() + mn * kStepBytes + k * width, from, width);
      }
  };
  if (stmt.view_a.swizzle) {
    read(a, stmt.view_a, warp_row, kRows, &product.base_a, &product.a);
  } else {
    product.base_a = eval(a.index, warp[0]).i;
    product.a = left_registers(a, product.base_a, warp);
  }
  read(b, stmt.view_b, 0, columns, &product.base_b, &product.b);
  if (stopped()) return;
  for (Thread& lane : warp) {
    uint8_t* sums = vector(c, product.at, 4, lane, Access::kWrite);
    if (!sums) return;
    const auto bytes = static_cast<size_t>(c.elements * 4);
    auto [hidden, fresh] = group.sums.try_emplace({c.buffer, product.at, lane.number % static_cast<int32_t>(kLanes)});
    if (fresh) hidden->second.assign(sums, sums + bytes);
    std::memset(sums, kPoison, bytes);
  }
  group.open.push_back(std::move(product));
}

void Machine::finish_products(const std::vector<GroupProduct>& products, Group& group) {
  for (const GroupProduct& product : products) {
    const SimStmt& stmt = *product.stmt;
    const DType type_c = type_of(stmt.operands[0].buffer);
    const auto width = static_cast<size_t>(ir::bits(stmt.type) / 8), depth = kStepBytes / width;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      std::vector<uint8_t>& sums = group.sums.at({stmt.operands[0].buffer, product.at, static_cast<int32_t>(lane)});
      for (size_t i = 0; i < static_cast<size_t>(stmt.immediate) / 2; ++i) {
        const size_t m = lane / 4 + 8 * (i / 2 % 2), n = i / 4 * 8 + lane % 4 * 2 + i % 2;
        ir::Scalar total{ir::compute_type(type_c), 0, 0};
        if (stmt.accumulate) total = ir::load_element(type_c, sums.data(), static_cast<int64_t>(i));
        std::vector<double> terms{total.f};
        for (size_t k = 0; k < depth; ++k) {
          const auto at = static_cast<int64_t>(k);
          const ir::Scalar x = ir::load_element(stmt.type, product.a.data() + m * kStepBytes, at);
          const ir::Scalar y = ir::load_element(stmt.type_b, product.b.data() + n * kStepBytes, at);
          if (type_c == DType::I32)
            total.i = ir::wrap_integer(DType::I32, total.i + x.i * y.i);
          else if (ir::is_float8(stmt.type))
            terms.push_back(x.f * y.f);
          else if (stmt.type == DType::F32)
            total.f = static_cast<float>(total.f) + cut_to_tf32(x.f) * cut_to_tf32(y.f);
          else
            total.f = static_cast<float>(total.f) + static_cast<float>(x.f) * static_cast<float>(y.f);
        }
        if (ir::is_float8(stmt.type)) total.f = short_sum(terms);
        ir::store_element(type_c, sums.data(), static_cast<int64_t>(i), total);
      }
    }
  }
}

// A product is its group's: it has been issued when all four warps have, and is over for all of them when it is for
// one.
bool Machine::group_ready(const SimStmt& stmt, const Thread& thread) const {
  const size_t warp = static_cast<size_t>(thread.number) / kLanes, first = warp / kWarpsOfGroup * kWarpsOfGroup;
  const int64_t wanted = groups_[warp].committed - stmt.immediate;
  for (size_t i = first; i < std::min(first + kWarpsOfGroup, groups_.size()); ++i)
    if (groups_[i].committed < wanted) return false;
  return true;
}

void Machine::group_wait(const SimStmt& stmt, Warp warp) {
  const size_t number = static_cast<size_t>(warp[0].number) / kLanes, first = number / kWarpsOfGroup * kWarpsOfGroup;
  Group& group = groups_[number];
  for (size_t i = first; i < std::min(first + kWarpsOfGroup, groups_.size()); ++i) {
    Group& each = groups_[i];
    int64_t batch = each.committed - static_cast<int64_t>(each.batches.size());
    for (std::vector<GroupProduct>& products : each.batches)
      if (batch++ < group.committed - stmt.immediate)
        for (GroupProduct& product : products) reread(product, Warp(&threads_[i * kLanes], kLanes));
  }
  while (group.batches.size() > static_cast<size_t>(stmt.immediate) && !stopped()) {
    finish_products(group.batches.front(), group);
    group.batches.pop_front();
  }
  // Accumulators that nothing under way adds to.
  std::set<std::pair<int, int64_t>> busy;
  auto note = [&](const GroupProduct& product) { busy.insert({product.stmt->operands[0].buffer, product.at}); };
  for (const auto& batch : group.batches) std::for_each(batch.begin(), batch.end(), note);
  std::for_each(group.open.begin(), group.open.end(), note);
  for (auto it = group.sums.begin(); it != group.sums.end() && !stopped();) {
    const auto& [buffer, at, lane] = it->first;
    if (busy.count({buffer, at})) {
      ++it;
      continue;
    }
    const std::vector<uint8_t>& sums = it->second;
    const SimStmt::Operand operand{buffer, -1, static_cast<int64_t>(sums.size() / 4)};
    if (uint8_t* to = vector(operand, at, 4, warp[static_cast<size_t>(lane)], Access::kWrite))
      std::memcpy(to, sums.data(), sums.size());
    it = group.sums.erase(it);
  }
}

// Its operands once more: whoever has written to them meanwhile is noticed.
void Machine::reread(GroupProduct& product, Warp warp) {
  if (std::exchange(product.over, true)) return;
  const SimStmt& stmt = *product.stmt;
  const Thread& thread = warp[0];
  const auto changed = [&](const SimStmt::Operand& operand) {
    if (result_.races++ == 0)
      result_.first_race = fmt::format("`{}` changes while wgmma reads it", buffer(operand.buffer).name);
  };
  const auto width = static_cast<size_t>(ir::bits(stmt.type) / 8), depth = kStepBytes / width;
  auto same = [&](const SimStmt::Operand& operand, const LoopIntrinsic::MatrixView& view, int64_t base, int64_t first,
                  const std::vector<uint8_t>& seen) {
    for (size_t mn = 0; mn < seen.size() / kStepBytes && !stopped(); ++mn)
      for (size_t k = 0; k < depth && !stopped(); ++k) {
        const uint8_t* now =
            matrix_element(operand, base, view, first + static_cast<int64_t>(mn), static_cast<int64_t>(k), thread);
        if (now && std::memcmp(now, seen.data() + mn * kStepBytes + k * width, width)) changed(operand);
      }
  };
  const auto warp_row = static_cast<int64_t>(static_cast<size_t>(thread.number) / kLanes % 4 * kRows);
  if (stmt.view_a.swizzle)
    same(stmt.operands[1], stmt.view_a, product.base_a, warp_row, product.a);
  else if (left_registers(stmt.operands[1], product.base_a, warp) != product.a)
    changed(stmt.operands[1]);
  same(stmt.operands[2], stmt.view_b, product.base_b, 0, product.b);
}

void Machine::group_operation(const SimStmt& stmt, Warp warp) {
  Group& group = groups_[static_cast<size_t>(warp[0].number) / kLanes];
  switch (stmt.kind) {
    case SimStmt::Kind::kGroupFence:
      group.fenced = true;
      break;
    case SimStmt::Kind::kGroupCommit:
      group.batches.push_back(std::move(group.open));
      group.open.clear();
      ++group.committed;
      group.fenced = false;
      break;
    default:
      group_mma(stmt, warp);
  }
}

}  // namespace kachel::lowering
