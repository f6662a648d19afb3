#include "lowering/tile_ir/live_fragments.h"

#include <algorithm>
#include <iterator>

#include "ir/parallel.h"
#include "lowering/tile_ir/live_ranges.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

// Whether the statement sets all of the fragment, whatever that held.
bool defines(const ir::Buffer* fragment, const ir::Stmt& stmt) {
  if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node)) return decl->buffer.get() == fragment && decl->init;
  if (const auto* fill = std::get_if<ir::FillStmt>(&stmt.node))
    return fill->dst.buffer.get() == fragment && has_whole_axes(fill->dst);
  if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node))
    return copy->dst.buffer.get() == fragment && copy->src.buffer.get() != fragment && has_whole_axes(copy->dst);
  if (const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node))
    return gemm->c.buffer.get() == fragment && !gemm->accumulate && has_whole_axes(gemm->c);
  if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node))
    return branch->then_body.size() == 1 && branch->else_body.size() == 1 && defines(fragment, branch->then_body[0]) &&
           defines(fragment, branch->else_body[0]);
  const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node);
  if (!region) return false;
  BufferSet read;
  bool sets = false;
  for (const ir::Stmt& inner : region->body) {
    if (const auto* let = std::get_if<ir::LetStmt>(&inner.node)) note_loads(let->value, &read);
    const auto* assign = std::get_if<ir::AssignStmt>(&inner.node);
    if (!assign) continue;
    note_loads(assign->value, &read);
    sets |= assign->buffer.get() == fragment && assign->op == ir::AssignOp::kSet && ir::sets_all(*region, *assign);
  }
  return sets && !read.count(fragment);
}

// A region, with masks or without.
bool is_region(const ir::Stmt& stmt) {
  const auto alone = [](const ir::Block& body) { return body.size() == 1 && is_region(body[0]); };
  const auto* branch = std::get_if<ir::IfStmt>(&stmt.node);
  return branch ? alone(branch->then_body) && alone(branch->else_body)
                : std::holds_alternative<ir::ParallelStmt>(stmt.node);
}

// With the bodies of loops of one iteration in their places: what lives in one ends where its last use is.
ir::Block written_out(const ir::Block& body) {
  ir::Block out;
  for (const ir::Stmt& stmt : body) {
    const auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
    if (!loop || !ir::is_int(loop->begin, 0) || !ir::is_int(loop->end, 1)) {
      out.push_back(stmt);
      continue;
    }
    ir::Block inner = written_out(loop->body);
    out.insert(out.end(), std::make_move_iterator(inner.begin()), std::make_move_iterator(inner.end()));
  }
  return out;
}

class Lives {
 public:
  explicit Lives(const std::map<const ir::Buffer*, int64_t>& registers) : registers_(registers) {}

  // The most of a block beside `throughout`, which live all the time.
  int64_t most(const ir::Block& body, const BufferSet& throughout) const {
    const LiveRanges ranges = ranges_of(body, throughout);
    int64_t most = total(throughout);
    for (size_t at = 0; at < body.size(); ++at) {
      BufferSet around = throughout;
      int64_t ends = 0, begins = 0, within = 0;
      const bool by_element = is_region(body[at]);
      for (const auto& [fragment, range] : ranges) {
        if (at < range.first || at > range.last) continue;
        const bool from_before = range.first<at, beyond = range.last> at;
        if (by_element && from_before != beyond)
          (beyond ? begins : ends) += registers_.at(fragment);
        else if (from_before || beyond || !anew(fragment, body[at]))
          around.insert(fragment);
        else
          within += registers_.at(fragment);
      }
      const int64_t here = total(around) + std::max(ends, begins) + (nested(body[at]) ? 0 : within);
      most = std::max({most, here, by_element ? 0 : inside(body[at], around)});
    }
    return most;
  }

 private:
  static bool nested(const ir::Stmt& stmt) {
    return std::holds_alternative<ir::ForStmt>(stmt.node) ||
           (std::holds_alternative<ir::IfStmt>(stmt.node) && !is_region(stmt));
  }
  int64_t inside(const ir::Stmt& stmt, const BufferSet& around) const {
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) return most(loop->body, around);
    const auto* branch = std::get_if<ir::IfStmt>(&stmt.node);
    return branch ? std::max(most(branch->then_body, around), most(branch->else_body, around)) : 0;
  }
  // Whether no iteration sees what was there before it. REQUIRES: nothing outside the statement uses the fragment.
  static bool anew(const ir::Buffer* fragment, const ir::Stmt& stmt) {
    const auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
    if (!loop) return true;
    const auto uses = [&](const ir::Stmt& inner) { return uses_of(fragment, {inner}) != 0; };
    const auto first = std::find_if(loop->body.begin(), loop->body.end(), uses);
    if (first == loop->body.end() || defines(fragment, *first)) return true;
    return std::holds_alternative<ir::ForStmt>(first->node) && anew(fragment, *first) &&
           std::none_of(first + 1, loop->body.end(), uses);
  }
  LiveRanges ranges_of(const ir::Block& body, const BufferSet& throughout) const {
    LiveRanges ranges;
    for (size_t at = 0; at < body.size(); ++at) {
      const auto* decl = std::get_if<ir::DeclStmt>(&body[at].node);
      if (decl && !decl->init) continue;
      BufferSet used;
      note_uses(body[at], &used);
      for (const ir::Buffer* buffer : used)
        if (registers_.count(buffer) && !throughout.count(buffer))
          ranges.try_emplace(buffer, LiveRange{at, at}).first->second.last = at;
    }
    return ranges;
  }
  int64_t total(const BufferSet& fragments) const {
    int64_t sum = 0;
    for (const ir::Buffer* fragment : fragments) sum += registers_.at(fragment);
    return sum;
  }

  const std::map<const ir::Buffer*, int64_t>& registers_;
};

}  // namespace

int64_t live_registers(const ir::Kernel& kernel, const std::map<const ir::Buffer*, int64_t>& registers) {
  return Lives(registers).most(written_out(kernel.body), {});
}

}  // namespace kachel::lowering
