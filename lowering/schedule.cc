#include "lowering/schedule.h"

#include <fmt/format.h>

#include <algorithm>

namespace kachel::lowering {
namespace {

// The tiles that copies of this loop's body fill from tensors: what a deeper pipeline would hold several stages of.
std::vector<ir::BufferRef> filled_tiles(const ir::Block& body) {
  std::vector<ir::BufferRef> tiles;
  for (const ir::Stmt& stmt : body) {
    const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
    if (!copy || copy->src.buffer->scope != ir::Scope::kGlobal || copy->dst.buffer->scope == ir::Scope::kGlobal)
      continue;
    if (std::find(tiles.begin(), tiles.end(), copy->dst.buffer) == tiles.end()) tiles.push_back(copy->dst.buffer);
  }
  return tiles;
}

void collect(const ir::Block& body, Schedule* schedule) {
  for (const ir::Stmt& stmt : body) {
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
      if (loop->pipelined)
        schedule->pipelines.push_back({Pipeline::Realisation::kInOrder, filled_tiles(loop->body), 1});
      collect(loop->body, schedule);
    } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
      collect(branch->then_body, schedule);
      collect(branch->else_body, schedule);
    }
  }
}

}  // namespace

Schedule make_generic_schedule(const ir::Kernel& kernel, const Target& target) {
  Schedule schedule;
  schedule.roles.push_back({"all", 0, target.kind == Target::Kind::kCpu ? 1 : target.threads, 0});
  collect(kernel.body, &schedule);
  return schedule;
}

std::string Schedule::print() const {
  std::string text;
  for (const Role& role : roles)
    text += fmt::format("role {}: threads {}..{}{}\n", role.name, role.first_thread, role.first_thread + role.threads,
                        role.registers ? fmt::format(", {} registers", role.registers) : "");
  for (const Pipeline& pipeline : pipelines) {
    std::string names;
    for (const ir::BufferRef& buffer : pipeline.buffers) names += (names.empty() ? "" : ", ") + buffer->name;
    text += fmt::format("pipeline {{{}}}: depth {}, in order\n", names, pipeline.depth);
  }
  return text;
}

}  // namespace kachel::lowering
