#include "lowering/notes.h"

#include <fmt/format.h>

#include "ir/print.h"
#include "ir/visit.h"

namespace kachel::lowering {
namespace {

const char* sums_of(const GemmChoice& choice) {
  if (choice.a_in_registers) return choice.in_pairs ? ", A in registers, k in pairs" : ", A in registers";
  if (choice.b_in_registers) return ", B in registers";
  if (choice.by_words) return choice.in_pairs ? ", k in pairs" : ", B by words";
  if (!choice.mma->short_sums) return "";
  return choice.in_runs ? ", sums of runs of k" : choice.widened ? ", widened to f16" : ", short sums";
}

std::string sharers_of(const GemmChoice& choice) {
  if (choice.warps_k > 1) return fmt::format("k shared by {}", choice.warps_k);
  const std::string copies = choice.copies > 1 ? fmt::format("{} times ", choice.copies) : "";
  return fmt::format("{}{} x {}", copies, choice.warps_m, choice.warps_n);
}

std::string instruction_of(const GemmChoice& choice) {
  if (choice.mma)
    return fmt::format("{}k{}, {} {}{}", choice.group ? "wgmma.m64" : "mma.m16n8", choice.mma->k, sharers_of(choice),
                       choice.group ? "warp groups" : "warps", sums_of(choice));
  if (!choice.block_rows) return "fma";
  return fmt::format("{} in blocks of {} x {} registers", choice.dot4 ? "dp4a" : "fma", choice.block_rows,
                     choice.block_columns);
}

}  // namespace

std::string notes_of(const Schedule& schedule, const Placements& placements, const ir::Kernel& kernel,
                     const LoopKernel& loops) {
  std::string text = schedule.print();
  if (loops.tile_blocks > 1)
    text += fmt::format("tiles: {} blocks of a cluster compute each together\n", loops.tile_blocks);
  else if (loops.one_tile)
    text += "tiles: one a block, since the device takes the grid at once\n";
  for (const LoopHanded& handed : loops.handed)
    text += fmt::format("name {}: handed to the producer, since tiles decide about it\n", handed.var->name);
  for (const ir::Stmt& stmt : kernel.body) {
    const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node);
    if (!decl) continue;
    const Placement& placement = placements.at(decl->buffer.get());
    text += fmt::format("tile {}: {} in {}{}, layout {}{}\n", decl->buffer->name, ir::name(placement.storage),
                        placement.scope == ir::Scope::kRegister ? "registers" : "memory of the block",
                        placement.stages > 1 ? fmt::format(", {} stages", placement.stages) : "",
                        placement.fragment ? placement.fragment->print() : placement.layout.print(),
                        placement.reason.empty() ? "" : " (" + placement.reason + ")");
  }
  std::string stores;
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& stmt) {
    const auto* gemm = std::get_if<ir::GemmStmt>(&stmt.node);
    const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node);
    if (const auto found = placements.gemms.find(gemm); gemm && found != placements.gemms.end()) {
      const GemmChoice& choice = found->second;
      text += fmt::format("gemm {}: {}{}\n", gemm->c.buffer->name, instruction_of(choice),
                          choice.reason.empty() ? "" : " (" + choice.reason + ")");
    }
    if (const auto found = placements.boxes.find(copy); copy && found != placements.boxes.end()) {
      const auto& box = found->second;
      stores += fmt::format(
          "store {}: {}\n", ir::print(copy->dst),
          box.columns ? fmt::format("{}by the copy engine, {} boxes of 16 x {} a warp",
                                    copy->atomic == ir::AtomicOp::kNone ? "" : "added ", box.buffers, box.columns)
                      : fmt::format("by threads ({})", box.reason));
    }
  });
  text += stores;
  text += fmt::format("memory of the block: {} bytes shared, {} bytes in global scratch\n", loops.shared_bytes,
                      loops.workspace_bytes);
  if (loops.float_atomics)
    text += "float atomics: the order of additions, and so the last bits, may differ between runs\n";
  return text;
}

}  // namespace kachel::lowering
