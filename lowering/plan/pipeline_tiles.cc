#include "lowering/plan/pipeline_tiles.h"

#include <algorithm>

#include "lowering/plan/placement.h"

namespace kachel::lowering {
namespace {

constexpr int64_t kSlots = 2;  // the tile that is worked on, and the next one

bool loads_once(const ir::Stmt& stmt) {
  const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
  return copy && copy->src.buffer->scope == ir::Scope::kGlobal && copy->dst.buffer->scope == ir::Scope::kShared &&
         is_whole(copy->dst);
}

bool is_pipelined(const ir::Stmt& stmt) {
  const auto* loop = std::get_if<ir::ForStmt>(&stmt.node);
  return loop && loop->pipelined;
}

// The body, or where its loop depends on a condition, that of the branch.
ir::Block loaded_ahead(const ir::Block& body) {
  const auto loop = std::find_if(body.begin(), body.end(), is_pipelined);
  const auto first = std::find_if(body.begin(), loop, loads_once);
  ir::Block out = body;
  if (first != loop) {
    ir::ForStmt once = single_pipeline("once");
    once.body.assign(first, body.end());
    out.resize(static_cast<size_t>(first - body.begin()));
    out.push_back({first->loc, std::move(once)});
  } else if (loop == body.end()) {
    for (ir::Stmt& stmt : out) {
      auto* branch = std::get_if<ir::IfStmt>(&stmt.node);
      if (branch && branch->else_body.empty() && encloses_pipeline(branch->then_body))
        branch->then_body = loaded_ahead(branch->then_body);
    }
  }
  return out;
}

}  // namespace

bool encloses_pipeline(const ir::Block& body) {
  return std::any_of(body.begin(), body.end(), [](const ir::Stmt& stmt) {
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node))
      return loop->pipelined || encloses_pipeline(loop->body);
    const auto* branch = std::get_if<ir::IfStmt>(&stmt.node);
    return branch && (encloses_pipeline(branch->then_body) || encloses_pipeline(branch->else_body));
  });
}

ir::ForStmt single_pipeline(const char* name) {
  ir::ForStmt once;
  once.var = std::make_shared<ir::Var>(ir::Var{ir::VarKind::kLoop, name, {ir::DType::I64, nullptr}, {}});
  once.begin = ir::make_int(0, ir::DType::I64);
  once.end = ir::make_int(1, ir::DType::I64);
  once.pipelined = true;
  once.stages = ir::make_int(kSlots, ir::DType::I64);
  return once;
}

bool is_single(const ir::ForStmt& loop) {
  return loop.pipelined && ir::is_int(loop.begin, 0) && ir::is_int(loop.end, 1);
}

ir::Kernel pipeline_tiles(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  out.body = loaded_ahead(kernel.body);
  return out;
}

}  // namespace kachel::lowering
