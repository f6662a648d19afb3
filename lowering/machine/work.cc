// Walks the loop IR with the number of threads and warps that run a statement, and sums up what lies between loops and
// branches.
//
// What is counted as an operation: arithmetic on data, that is on elements of tensors and tiles and on what is made of
// them. Arithmetic on indices is not, since most of it is folded or shared; an access to memory stands for its address
// with one operation.
#include "lowering/machine/work.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <set>
#include <unordered_map>

#include "lowering/loop_ir/loop_build.h"
#include "lowering/machine/machine.h"
#include "lowering/machine/operation_price.h"
#include "lowering/machine/thread_conditions.h"
#include "lowering/machine/work_node.h"
#include "lowering/tile_ir/live_ranges.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;
using Kind = LoopIntrinsic::Kind;

constexpr double kBoxAlign = 16;  // where rows of boxes begin: cuTensorMapEncodeTiled
constexpr double kBankRow = 128;  // bytes of shared memory that an access of a warp takes at least

// Who runs a statement: threads and warps, each counted as often as it does, and how often the busiest thread does.
struct Runs {
  double threads, warps, each;
  double rounds;  // how often its loads are waited for
};

ProductKind kind_of(const LoopIntrinsic& mma) {
  const bool group = mma.kind == Kind::kGroupMma;
  if (mma.widened) return ProductKind::kWarpWidened;
  switch (ir::bits(mma.type)) {
    case 16:
      return group ? ProductKind::kGroup16 : ProductKind::kWarp16;
    case 32:
      return group ? ProductKind::kGroup32 : ProductKind::kWarp32;
    default:
      return group ? ProductKind::kGroup8 : ProductKind::kWarp8;
  }
}

double element_bytes(const ir::BufferRef& buffer) {
  return ir::bits(buffer->type.dtype) / 8.0;
}

class Summary {
 public:
  Summary(const LoopKernel& kernel, const std::unordered_map<const ir::Buffer*, size_t>& tensor_of, size_t tensors)
      : kernel_(kernel), tensor_of_(tensor_of), tensors_(tensors) {
    for (const LoopPhases& phases : kernel.phases) depth_[phases.buffer.get()] = static_cast<double>(phases.count);
    for (const LoopBuffer& buffer : kernel.buffers)
      if (buffer.spilled) spilled_.insert(buffer.buffer.get());
    if (kernel.thread) conditions_.add_domain(kernel.thread, kernel.threads);
  }

  // Stages that are held for an iteration more.
  void hold_longer(bool longer) { held_ = longer ? 1 : 0; }
  void consumers(WorkNodes* out) {
    const double threads = threads_;
    block(kernel_.body, {threads, std::ceil(threads / kWarp), 1, 1}, out);
  }
  // A few threads, whose instructions nobody waits for.
  void producer(WorkNodes* out) {
    producing_ = true;
    threads_ = kernel_.copiers;
    block(kernel_.producer, {1, 1, 1, 1}, out);
  }

 private:
  Work& work(WorkNodes* out) const {
    if (out->empty() || out->back().kind != WorkNode::Kind::kWork) {
      out->emplace_back();
      out->back().work.read_bytes.resize(tensors_);
      out->back().work.written_bytes.resize(tensors_);
      out->back().work.straddle_bytes.resize(tensors_);
    }
    return out->back().work;
  }
  void block(const LoopBlock& body, const Runs& runs, WorkNodes* out) {
    const double around = rings_;
    rings_ = static_cast<double>(std::count_if(body.begin(), body.end(), [](const LoopStmt& stmt) {
      const auto* node = std::get_if<LoopIntrinsic>(&stmt.node);
      return node && node->kind == Kind::kPhaseExpect;
    }));
    for (const LoopStmt& stmt : body) std::visit([&](const auto& node) { statement(node, runs, out); }, stmt.node);
    rings_ = around;
  }

  void statement(const LoopLet& let, const Runs& runs, WorkNodes* out) {
    if (value(let.value, runs, out)) data_.insert(let.var.get());
    conditions_.add_let(let);
    WorkNode node;
    node.kind = WorkNode::Kind::kLet;
    node.var = let.var;
    node.value = let.value;
    out->push_back(std::move(node));
  }
  void statement(const LoopStore& store, const Runs& runs, WorkNodes* out) {
    const bool data = value(store.value, runs, out);
    if (data && ir::bits(store.buffer->type.dtype) < 32 && ir::is_float(store.value->type)) operate(1, runs, out);
    access(store.buffer, element_bytes(store.buffer), true, runs, out);
  }
  void statement(const LoopAtomic& atomic, const Runs& runs, WorkNodes* out) {
    value(atomic.value, runs, out);
    access(atomic.buffer, element_bytes(atomic.buffer), true, runs, out);
  }
  void statement(const LoopFor& loop, const Runs& runs, WorkNodes* out) {
    Runs inside = runs;
    if (loop.unroll && loop.begin->kind == ExprKind::kInt && loop.end->kind == ExprKind::kInt)
      inside.rounds /= static_cast<double>(std::max<int64_t>(loop.end->int_value - loop.begin->int_value, 1));
    else
      waits_ = false;
    if (loop.ahead) inside.rounds /= static_cast<double>(loop.ahead);
    WorkNode node;
    node.kind = WorkNode::Kind::kLoop;
    node.var = loop.var;
    node.value = loop.begin;
    node.end = loop.end;
    for (const LoopStmt& stmt : loop.body) {
      const auto* wait = std::get_if<LoopIntrinsic>(&stmt.node);
      if (wait) node.filled_ahead |= wait->kind == Kind::kPhaseWait || wait->kind == Kind::kAsyncWait;
    }
    block(loop.body, inside, &node.body);
    out->push_back(std::move(node));
    if (!loop.unroll) waits_ = false;
  }
  void statement(const LoopThreads& threads, const Runs& runs, WorkNodes* out) {
    const double extent = static_cast<double>(threads.extent), slots = std::ceil(extent / threads_);
    conditions_.add_domain(threads.index, threads.extent);
    waits_ = false;
    block(threads.body,
          {extent * runs.each, std::ceil(extent / kWarp) * runs.each, slots * runs.each,
           threads.unroll ? runs.rounds : slots * runs.rounds},
          out);
  }
  void statement(const LoopIf& branch, const Runs& runs, WorkNodes* out) {
    if (const auto share = conditions_.share_of(branch.condition)) {
      auto part = [&](double threads, double warps) {
        return Runs{runs.threads * threads, runs.warps * warps, threads > 0 ? runs.each : 0, runs.rounds};
      };
      block(branch.then_body, part(share->threads, share->warps), out);
      block(branch.else_body, part(1 - share->threads, share->other_warps), out);
      return;
    }
    const bool data = value(branch.condition, runs, out);
    // Threads outside of a tensor are few.
    if (!data && conditions_.asks_for_thread(branch.condition)) return block(branch.then_body, runs, out);
    WorkNode node;
    node.kind = WorkNode::Kind::kBranch;
    node.value = branch.condition;
    block(branch.then_body, runs, &node.body);
    block(branch.else_body, runs, &node.otherwise);
    out->push_back(std::move(node));
  }
  void statement(const LoopBarrier&, const Runs& runs, WorkNodes* out) {
    work(out).barriers += runs.each;
    waits_ = false;
  }
  void statement(const LoopIntrinsic& node, const Runs& runs, WorkNodes* out) {
    const std::vector<LoopIntrinsic::Operand>& operands = node.operands;
    auto bytes = [&] { return static_cast<double>(operands[0].elements) * element_bytes(operands[0].buffer); };
    const double k = kMmaBytes * 8.0 / ir::bits(node.type);
    switch (node.kind) {
      case Kind::kCopyVector:
        access(operands[0].buffer, bytes(), true, runs, out);
        access(operands[1].buffer, bytes(), false, runs, out);
        break;
      case Kind::kAddVector:
        access(operands[0].buffer, bytes(), true, runs, out);
        break;
      case Kind::kStoreRow:
        access(operands[0].buffer, static_cast<double>(2 * LoopIntrinsic::kRowVector * node.immediate), true, runs,
               out);
        operate(30 + 24 * static_cast<double>(node.immediate), runs, out);
        break;
      case Kind::kLoadShifted:
        break;
      case Kind::kCopyAsync:
        operate(1, runs, out);
        [[fallthrough]];
      case Kind::kStoreShifted:
      case Kind::kBulkCopy: {
        const bool box = node.kind == Kind::kBulkCopy;
        const double row = box ? kernel_.maps[static_cast<size_t>(node.immediate)].swizzle : kLineBytes;
        // The block asks for its own part, and gets those of the others too.
        const double all = runs.threads * bytes(), filled = all * std::max(std::popcount(node.peers & 0xff), 1);
        work(out).filled_bytes += filled;
        work(out).port_bytes += filled * kLineBytes / row;
        work(out).filled_port_bytes += filled * kLineBytes / row;
        if (auto tensor = tensor_of_.find(operands[node.kind == Kind::kStoreShifted ? 2 : 1].buffer.get());
            tensor != tensor_of_.end()) {
          work(out).read_bytes[tensor->second] += all;
          if (box) work(out).straddle_bytes[tensor->second] += all * (row - kBoxAlign) / row;
        }
        break;
      }
      case Kind::kAsyncWait:
        work(out).fills += runs.each;
        work(out).rounds += runs.each / static_cast<double>(node.immediate + 1);
        break;
      case Kind::kPhaseExpect:
        work(out).fills += runs.each / rings_;
        work(out).rounds += runs.each / rings_ / std::max(depth_[operands[0].buffer.get()] - held_, 1.0);
        break;
      case Kind::kPhaseBytes:
      case Kind::kPhaseCopied:
      case Kind::kInOrder:
        break;
      case Kind::kPhaseWait:
        if (!producing_) work(out).barriers += runs.each;
        break;
      case Kind::kLoadMatrix:
      case Kind::kStoreMatrix:
        operate(1, runs, out);
        work(out).shared_bytes += runs.warps * kBankRow * static_cast<double>(node.immediate);
        break;
      case Kind::kMma:
        operate(1, runs, out);
        work(out).multiply_adds[static_cast<size_t>(kind_of(node))] += runs.warps * kMmaRows * kMmaColumns * k;
        break;
      case Kind::kGroupMma: {
        const double groups = runs.warps / kGroupWarps, columns = static_cast<double>(node.immediate);
        operate(1, runs, out);
        work(out).multiply_adds[static_cast<size_t>(kind_of(node))] += groups * kGroupRows * columns * k;
        work(out).operand_bytes += groups * kMmaBytes * (columns + (node.view_a.swizzle ? kGroupRows : 0));
        break;
      }
      case Kind::kBulkStore: {
        const double all = runs.warps * bytes();
        operate(4, runs, out);
        work(out).port_bytes += all;
        if (auto tensor = tensor_of_.find(operands[0].buffer.get()); tensor != tensor_of_.end())
          work(out).written_bytes[tensor->second] += all;
        break;
      }
      case Kind::kGroupWait:
        work(out).product_batches += runs.each;
        break;
      case Kind::kQuadExchange:
        operate(12, runs, out);
        break;
      case Kind::kQuadJoin:
        operate(6, runs, out);
        break;
      case Kind::kTurnMatrix:
        operate(8, runs, out);
        break;
      case Kind::kConvertPair:
      case Kind::kDot4:
        operate(1, runs, out);
        break;
      case Kind::kUnpack:
        operate(1 + (!node.table.empty()           ? 3
                     : ir::bits(node.type_b) == 32 ? 1.5
                                                   : 2) *
                        static_cast<double>(operands[0].elements),
                runs, out);
        break;
      case Kind::kPackedMath:
        operate(static_cast<double>(operands[0].elements) / 2, runs, out);
        break;
      case Kind::kAsyncCommit:
      case Kind::kGroupFence:
      case Kind::kGroupCommit:
      case Kind::kProxyFence:
      case Kind::kPhaseArrive:
      case Kind::kBulkStoreWait:
        break;
    }
  }
  void statement(const LoopShuffle& shuffle, const Runs& runs, WorkNodes* out) {
    value(shuffle.value, runs, out);
    data_.insert(shuffle.var.get());
    operate(2, runs, out);
  }
  void statement(const LoopComment&, const Runs&, WorkNodes*) {}
  // synchronise() leaves no pipeline; the others are of the CPU.
  void statement(const LoopPipeline&, const Runs&, WorkNodes*) {}
  void statement(const LoopMicroKernel&, const Runs&, WorkNodes*) {}
  void statement(const LoopStream&, const Runs&, WorkNodes*) {}
  void statement(const LoopTranspose&, const Runs&, WorkNodes*) {}
  void statement(const LoopPrefetch&, const Runs&, WorkNodes*) {}

  void operate(double count, const Runs& runs, WorkNodes* out) {
    if (producing_) return;
    work(out).scalar_operations += count * runs.warps;
    work(out).thread_operations += count * runs.each;
  }
  void access(const ir::BufferRef& buffer, double bytes, bool write, const Runs& runs, WorkNodes* out) {
    if (buffer->scope == ir::Scope::kRegister || producing_) return;
    operate(1, runs, out);
    if (buffer->scope == ir::Scope::kShared && !spilled_.count(buffer.get())) {
      work(out).shared_bytes += std::max(runs.threads * bytes, runs.warps * kBankRow);
      return;
    }
    work(out).port_bytes += runs.threads * bytes;
    if (auto tensor = tensor_of_.find(buffer.get()); tensor != tensor_of_.end())
      (write ? work(out).written_bytes : work(out).read_bytes)[tensor->second] += runs.threads * bytes;
    // Loads that stand together are under way together.
    if (!write && !waits_) work(out).rounds += runs.rounds;
    waits_ |= !write;
  }

  // Counts what computing `expr` takes; whether it is data.
  bool value(const ExprRef& expr, const Runs& runs, WorkNodes* out) {
    if (expr->kind == ExprKind::kVar) return data_.count(expr->var.get()) > 0;
    if (expr->kind == ExprKind::kLoad) {
      access(expr->buffer, element_bytes(expr->buffer), false, runs, out);
      if (ir::bits(expr->buffer->type.dtype) < 32) operate(1, runs, out);
      return true;
    }
    bool data = false;
    for (const ExprRef& arg : expr->args) data |= value(arg, runs, out);
    if (!data) return false;
    if (expr->kind == ExprKind::kCast && expr->args[0]->type != expr->type) operate(1, runs, out);
    if (expr->kind != ExprKind::kApply) return true;
    // A product that is added to something is one operation with the sum.
    const bool fused = (expr->op == Op::kAdd || expr->op == Op::kSub) && expr->type == DType::F32 &&
                       std::any_of(expr->args.begin(), expr->args.end(), [](const ExprRef& arg) {
                         return arg->kind == ExprKind::kApply && arg->op == Op::kMul;
                       });
    if (fused) return true;
    const OperationPrice price = price_of(*expr);
    operate(price.scalar, runs, out);
    if (price.special == 0 || producing_) return true;
    work(out).special_operations += price.special * runs.warps;
    work(out).thread_specials += price.special * runs.each;
    return true;
  }

  const LoopKernel& kernel_;
  const std::unordered_map<const ir::Buffer*, size_t>& tensor_of_;
  const size_t tensors_;
  std::unordered_map<const ir::Buffer*, double> depth_;  // of a pipeline, by its barriers
  std::set<const ir::Buffer*> spilled_;
  ThreadConditions conditions_;
  std::set<const ir::Var*> data_;
  double held_ = 0;
  double rings_ = 0;  // that the loop at hand fills
  bool producing_ = false;
  int threads_ = kernel_.threads;  // that thread loops are dealt out to
  bool waits_ = false;             // the statements at hand already wait for memory
};

// Of loops over stages: whether one releases another stage than it waits for first, and one that it does not wait for
// at all, but has held since the iteration before.
struct Releases {
  bool later = false, held = false;
};
Releases releases_of(const LoopBlock& body) {
  Releases releases;
  for_each_statement(body, [&](const LoopStmt& stmt) {
    const auto* loop = std::get_if<LoopFor>(&stmt.node);
    if (!loop) return;
    std::vector<const LoopIntrinsic::Operand*> waits;
    for (const LoopStmt& part : loop->body) {
      const auto* node = std::get_if<LoopIntrinsic>(&part.node);
      if (node && node->kind == Kind::kPhaseWait) waits.push_back(&node->operands[0]);
    }
    if (waits.empty()) return;
    for_each_statement(loop->body, [&](const LoopStmt& part) {
      const auto* node = std::get_if<LoopIntrinsic>(&part.node);
      if (!node || node->kind != Kind::kPhaseArrive) return;
      const LoopIntrinsic::Operand& released = node->operands[0];
      const auto same = [&](const LoopIntrinsic::Operand* wait) { return ir::same(released.index, wait->index); };
      if (std::any_of(waits.begin(), waits.end(), [&](const auto* wait) { return wait->buffer == released.buffer; }))
        return;
      releases.later |= !same(waits[0]);
      releases.held |= std::none_of(waits.begin(), waits.end(), same);
    });
  });
  return releases;
}

}  // namespace

WorkProfile profile_of(const LoopKernel& kernel, const ir::Kernel& concrete) {
  WorkProfile profile;
  profile.tile = kernel.tile;
  profile.rank = kernel.rank;
  profile.cluster = kernel.cluster;
  profile.tile_blocks = kernel.tile_blocks;
  profile.threads = kernel.threads / kernel.tile_blocks;
  profile.teams = kernel.teams;
  profile.shared_bytes = kernel.shared_bytes;
  if (!kernel.thread) return profile;
  std::unordered_map<const ir::Buffer*, size_t> tensor_of;
  for (const LoopParam& param : kernel.params) {
    if (param.var) profile.inputs.push_back({param.slot, param.var});
    if (!param.buffer || param.slot.kind != Slot::Kind::kPointer) continue;
    const ir::BufferRef& tensor = concrete.params[static_cast<size_t>(param.slot.index)].tensor;
    size_t at = 0;
    while (at < profile.tensors.size() && profile.tensors[at].param != param.slot.index) ++at;
    if (at == profile.tensors.size()) profile.tensors.push_back({param.slot.index, tensor->type.dtype, tensor->shape});
    tensor_of[param.buffer.get()] = at;
  }
  for (size_t i = 0; i < concrete.dims.size(); ++i)
    profile.inputs.push_back({{Slot::Kind::kDim, static_cast<int>(i), 0}, concrete.dims[i]});
  if (!kernel.producer.empty()) profile.producer_threads = kernel.producer_threads;
  profile.consumer_registers = kernel.registers;
  profile.blocks = kernel.blocks;
  profile.fragment_registers = live_registers(kernel);
  profile.most_live_registers = most_live_registers(kernel);
  const Releases releases = releases_of(kernel.body);
  profile.releases_later = releases.later;

  Summary summary(kernel, tensor_of, profile.tensors.size());
  summary.hold_longer(releases.held);
  auto nodes = std::make_shared<WorkNodes>();
  summary.consumers(nodes.get());
  summary.producer(nodes.get());
  compact(nodes.get());
  profile.nodes = std::move(nodes);
  return profile;
}

}  // namespace kachel::lowering
