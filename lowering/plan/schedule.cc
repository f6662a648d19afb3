#include "lowering/plan/schedule.h"

#include <fmt/format.h>

#include <algorithm>

namespace kachel::lowering {
namespace {

void collect(const ir::Block& body, Schedule* schedule) {
  for (const ir::Stmt& stmt : body) {
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
      if (loop->pipelined) {
        Pipeline pipeline;
        pipeline.loop = loop;
        pipeline.reason = "the generic lowering overlaps nothing";
        schedule->pipelines.push_back(std::move(pipeline));
      }
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
  if (teams > 1) text += fmt::format("consumers: {} teams, which compute tiles in turn\n", teams);
  if (!cluster.empty()) text += fmt::format("cluster: {} blocks of the grid\n", fmt::join(cluster, " x "));
  for (const auto& [copy, axes] : shared)
    text += fmt::format("copy {}: in parts, for the blocks of a cluster along axis {}\n", copy->dst.buffer->name,
                        fmt::join(axes, ", "));
  for (size_t axis : backwards) text += fmt::format("grid axis {}: from its end, where loops are longer\n", axis);
  for (size_t axis : forwards) text += fmt::format("grid axis {}: from its beginning, where loops are longer\n", axis);
  if (!order.empty()) text += fmt::format("grid: axis {} fastest, whose tiles read the same\n", order.back());
  if (raster > 1)
    text += fmt::format("grid: {} rows of tiles together{}\n", raster, row_bytes ? " at most, as the L2 holds" : "");
  for (const auto& [copy, near, far] : reread) {
    std::vector<size_t> axes = near;
    axes.insert(axes.end(), far.begin(), far.end());
    text +=
        fmt::format("copy {}: the first to leave the L2{}\n", copy->dst.buffer->name,
                    axes.empty() ? "" : fmt::format(" where few tiles along axis {} read it", fmt::join(axes, ", ")));
  }
  for (const Pipeline& pipeline : pipelines) {
    std::string names;
    for (const ir::BufferRef& buffer : pipeline.buffers) names += (names.empty() ? "" : ", ") + buffer->name;
    constexpr const char* kRealisations[] = {"in order", "asynchronous copies", "the copy engine"};
    const bool ahead = pipeline.realisation != Pipeline::Realisation::kInOrder;
    const bool goes_on = pipeline.stages_of >= 0;
    text += fmt::format("pipeline {}: depth {}, {}{}{}\n", pipeline.loop->var->name, pipeline.depth,
                        kRealisations[static_cast<int>(pipeline.realisation)] +
                            std::string(ahead ? fmt::format(" into {{{}}}", names) : ""),
                        goes_on ? ", the stages of the pipeline before" : "",
                        pipeline.reason.empty() ? "" : " (" + pipeline.reason + ")");
  }
  return text;
}

const Pipeline* Schedule::of(const ir::ForStmt& loop) const {
  for (const Pipeline& pipeline : pipelines)
    if (pipeline.loop == &loop) return &pipeline;
  return nullptr;
}

}  // namespace kachel::lowering
