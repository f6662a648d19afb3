#include "lowering/plan/turned_sums.h"

#include <algorithm>
#include <utility>

#include "ir/parallel.h"
#include "lowering/plan/gemm_choice.h"
#include "lowering/plan/packed_tiles.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::BufferRef;

// Fewer rows are the columns of smaller instructions, which measured quicker by a tenth to a fifth (16 rows on 8192 x
// 8192 weights of 8 bits, an H200; 64 rows are quicker by so much turned).
constexpr int64_t kLeastTurned = 32;

bool is_half_matrix(const ir::Buffer& tile) {
  return tile.shape.size() == 2 && ir::is_float(tile.type.dtype) && ir::bits(tile.type.dtype) == 16;
}

// Whether the region sets all of the tile, of what has 4 or 8 bits or is words of such.
bool unpacks(const ir::ParallelStmt& region, const ir::Buffer* tile) {
  bool sets = false, packed = false;
  for (const ir::Stmt& stmt : region.body) {
    const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
    sets |= assign && assign->buffer.get() == tile && assign->op == ir::AssignOp::kSet && ir::sets_all(region, *assign);
  }
  for_each_node(region.body, [&](const ir::ExprRef& node) {
    const bool load = node->kind == ir::ExprKind::kLoad;
    if (!load || node->buffer->scope != ir::Scope::kShared) return;
    packed |= ir::is_integer(node->buffer->type.dtype) || ir::is_float8(node->buffer->type.dtype);
  });
  return sets && packed;
}

class Turner {
 public:
  explicit Turner(const ir::Kernel& kernel) : kernel_(kernel) {}

  ir::Kernel run() {
    for (size_t at = 0; at < kernel_.body.size(); ++at) {
      const auto* loop = std::get_if<ir::ForStmt>(&kernel_.body[at].node);
      if (!loop) continue;
      for (const BufferRef& sums : sums_of(*loop))
        if (const size_t last = last_of(sums, at); turns(sums, at, last)) at = turn(sums, at, last);
    }
    return std::move(kernel_);
  }

 private:
  static std::vector<BufferRef> sums_of(const ir::ForStmt& loop) {
    std::vector<BufferRef> sums;
    for (const ir::Stmt& stmt : loop.body)
      if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node)) sums.push_back(gemm->c.buffer);
    return sums;
  }

  // The last of the loops that follow each other from `at` on, of which each adds to the sums.
  size_t last_of(const BufferRef& sums, size_t at) const {
    for (; at + 1 < kernel_.body.size(); ++at) {
      const auto* next = std::get_if<ir::ForStmt>(&kernel_.body[at + 1].node);
      if (!next || !uses_of(sums.get(), next->body)) break;
    }
    return at;
  }

  // Of a fragment that holds nothing but sums of products, which these loops alone add up: it is cleared in front of
  // them.
  bool turns(const BufferRef& sums, size_t at, size_t last) const {
    if (sums->scope != ir::Scope::kFragment || sums->type.dtype != ir::DType::F32 || sums->shape.size() != 2)
      return false;
    const std::vector<int64_t> shape = tile_shape(sums);
    if (shape[0] < kLeastTurned || shape[0] % (2 * kMmaColumns) || shape[0] > kGroupMostColumns ||
        shape[1] % kGroupRows)
      return false;
    for (size_t i = at; i <= last; ++i) {
      const ir::ForStmt& loop = std::get<ir::ForStmt>(kernel_.body[i].node);
      int64_t products = 0;
      for (const ir::Stmt& stmt : loop.body)
        if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node); gemm && gemm->c.buffer == sums) {
          if (!turns(*gemm, loop)) return false;
          ++products;
        }
      if (!products || products != uses_of(sums.get(), loop.body)) return false;
    }
    for (size_t i = 0; i < at; ++i) {
      const ir::Stmt& stmt = kernel_.body[i];
      const auto* fill = std::get_if<ir::FillStmt>(&stmt.node);
      if (std::holds_alternative<ir::DeclStmt>(stmt.node) || (fill && fill->dst.buffer == sums && is_whole(fill->dst)))
        continue;
      if (uses_of(sums.get(), {stmt})) return false;
    }
    bool again = false;
    ir::for_each_stmt({kernel_.body.begin() + static_cast<std::ptrdiff_t>(last) + 1, kernel_.body.end()},
                      [&](const ir::Stmt& stmt) {
                        const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node);
                        again |= gemm && gemm->c.buffer == sums;
                      });
    return !again;
  }

  bool turns(const ir::GemmStmt& gemm, const ir::ForStmt& loop) const {
    const BufferRef &a = gemm.a.buffer, &b = gemm.b.buffer;
    if (!gemm.transpose_b || !is_half_matrix(*a) || !is_half_matrix(*b) || a->scope != ir::Scope::kShared ||
        b->scope == ir::Scope::kGlobal)
      return false;
    for (const ir::TileRef* ref : {&gemm.a, &gemm.b, &gemm.c})
      if (!is_whole(*ref)) return false;
    bool copied = false, unpacked = false;
    for (const ir::Stmt& stmt : loop.body) {
      const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
      copied |= copy && copy->dst.buffer == a && copy->src.buffer->scope == ir::Scope::kGlobal;
      const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
      unpacked |= region && unpacks(*region, b.get());
    }
    // Made by the region, read by products.
    int64_t read = 0;
    for (const ir::Stmt& stmt : loop.body)
      if (const auto* other = std::get_if<ir::GemmStmt>(&stmt.node))
        read += other->b.buffer == b && other->a.buffer != b && other->c.buffer != b;
    return copied && unpacked && uses_of(b.get(), kernel_.body) == read + 1;
  }

  // Returns where the last loop stands then.
  size_t turn(const BufferRef& sums, size_t at, size_t last) {
    auto made = std::make_shared<ir::Buffer>(*sums);
    made->name += "_turned";
    std::reverse(made->shape.begin(), made->shape.end());
    const BufferRef turned = made;
    ir::Block body;
    for (size_t i = 0; i < kernel_.body.size(); ++i) {
      ir::Stmt stmt = kernel_.body[i];
      auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
      if (decl && decl->buffer == sums)
        body.push_back({stmt.loc, ir::DeclStmt{turned, std::exchange(decl->init, nullptr)}});
      if (auto* fill = std::get_if<ir::FillStmt>(&stmt.node); fill && i < at && fill->dst.buffer == sums)
        fill->dst = whole_tile(turned);
      if (i >= at && i <= last)
        for (ir::Stmt& inner : std::get<ir::ForStmt>(stmt.node).body)
          if (auto* gemm = std::get_if<ir::GemmStmt>(&inner.node); gemm && gemm->c.buffer == sums)
            exchange(gemm, turned);
      const ir::Loc loc = stmt.loc;
      body.push_back(std::move(stmt));
      if (i != last) continue;
      std::vector<ir::ExprRef> places;
      ir::ParallelStmt region = region_over(sums->shape, &places);
      ir::AssignStmt back{sums, places};
      back.value = ir::make_load(turned, {places[1], places[0]});
      region.body.push_back({loc, std::move(back)});
      body.push_back({loc, std::move(region)});
    }
    kernel_.body = std::move(body);
    return last + 1;  // behind one more tile
  }

  static void exchange(ir::GemmStmt* gemm, const BufferRef& turned) {
    gemm->c = whole_tile(turned);
    std::swap(gemm->a, gemm->b);
    const bool down = gemm->transpose_a;
    gemm->transpose_a = false;
    gemm->transpose_b = !down;
  }

  ir::Kernel kernel_;
};

}  // namespace

std::optional<Turn> turn_of(const ir::ParallelStmt& region) {
  if (region.iters.size() != 2 || region.body.size() != 1) return std::nullopt;
  const auto* assign = std::get_if<ir::AssignStmt>(&region.body[0].node);
  if (!assign || assign->op != ir::AssignOp::kSet || assign->atomic != ir::AtomicOp::kNone ||
      !ir::sets_all(region, *assign) || assign->buffer->shape.size() != 2)
    return std::nullopt;
  const ir::ExprRef& value = assign->value;
  if (value->kind != ir::ExprKind::kLoad || value->buffer == assign->buffer || value->args.size() != 2 ||
      value->buffer->type.dtype != assign->buffer->type.dtype || ir::bits(value->buffer->type.dtype) != 32)
    return std::nullopt;
  for (size_t axis = 0; axis < 2; ++axis)
    if (!ir::same(value->args[axis], assign->indices[1 - axis]) ||
        !ir::same(value->buffer->shape[axis], assign->buffer->shape[1 - axis]))
      return std::nullopt;
  return Turn{assign->buffer, value->buffer};
}

bool turn_as_wished(const ir::Kernel& kernel, const Placements& placements) {
  bool fine = true;
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& stmt) {
    const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
    const std::optional<Turn> turn = region ? turn_of(*region) : std::nullopt;
    if (!turn) return;
    for (const auto& [gemm, choice] : placements.gemms)
      if (gemm->c.buffer == turn->from)
        fine &= choice.group && choice.a_in_registers && placements.at(turn->to.get()).scope == ir::Scope::kRegister;
  });
  return fine;
}

ir::Kernel turned_sums(const ir::Kernel& kernel) {
  return Turner(kernel).run();
}

}  // namespace kachel::lowering
