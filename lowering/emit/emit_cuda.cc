// Statements of loop IR to CUDA C++. See emit.h.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lowering/emit/cuda_helpers.h"
#include "lowering/emit/emit_cuda_intrinsic.h"
#include "lowering/emit/lane_arrivals.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/machine/machine.h"
#include "lowering/passes/memory_plan.h"

namespace kachel::lowering {

using namespace cuda_text;

namespace {

using ir::DType;
using ir::ExprRef;

class Emitter {
 public:
  Emitter(const LoopKernel& kernel, bool overlaps, bool bounded)
      : kernel_(kernel),
        expressions_(kernel),
        intrinsics_(kernel, expressions_),
        overlaps_(overlaps),
        bounded_(bounded) {}

  std::string run() {
    const std::string maps = kernel_.maps.empty() ? "" : fmt::format(" kachel_map maps[{}];", kernel_.maps.size());
    text_ =
        fmt::format("\nstruct kachel_params {{ i64 v[{}];{} }};\n\n", std::max<size_t>(kernel_.params.size(), 1), maps);
    text_ += fmt::format(
        "extern \"C\" __global__ void {}__launch_bounds__({}{}) {}(const __grid_constant__ kachel_params p) {{\n",
        clustered() ? fmt::format("__cluster_dims__({}, 1, 1) ", blocks_of(kernel_.cluster)) : "",
        consumers() + (has_producer() ? kernel_.producer_threads : 0),
        kernel_.blocks ? fmt::format(", {}", kernel_.blocks) : "", kEntry);
    params();
    buffers();
    if (kernel_.thread) line(1, "const int {} = {};", name(kernel_.thread), thread());
    if (kernel_.team)
      line(1, "const int {} = {};", name(kernel_.team), of_warp(fmt::format("threadIdx.x / {}", kernel_.threads)));
    if (kernel_.rank) line(1, "const int {} = blockIdx.x % {};", name(kernel_.rank), blocks_of(kernel_.cluster));
    const size_t names = text_.size();
    if (has_producer()) {
      if (!kernel_.maps.empty())
        line(1, "if (threadIdx.x == {}) for (int i = 0; i < {}; ++i) kachel_prefetch(&p.maps[i]);", consumers(),
             kernel_.maps.size());
      phases();
      wait_for_previous();
      line(1, "if (threadIdx.x < {}) {{", consumers());
      if (kernel_.registers) line(1, "kachel_more_registers<{}>();", kernel_.registers);
      first_turn();
    }
    if (!has_producer()) wait_for_previous();
    kernel_.teams > 1 ? tiles_in_turn() : tiles(kernel_.body);
    // A block's shared memory is given away when it ends.
    if (stores_boxes()) line(1, "kachel_bulk_store_wait<0>();");
    if (has_producer()) {
      line(1, "}} else {{");
      if (kernel_.producer_registers) line(1, "kachel_fewer_registers<{}>();", kernel_.producer_registers);
      producing_ = true;
      line(1, "if (threadIdx.x < {}) {{", consumers() + kernel_.copiers);
      tiles(kernel_.producer);
      line(1, "}} }}");
      producing_ = false;
    }
    if (clustered()) line(1, "kachel_cluster_end();");
    text_ += "}\n";
    if (expressions_.names_warp_group())
      text_.insert(names, fmt::format("  const int {} = {};\n", kWarpGroup,
                                      of_warp(fmt::format("{} / {}", name(kernel_.thread), kGroupThreads))));
    std::string functions;
    for (const std::string& function : group_functions_) functions += function;
    text_ = functions + text_;
    return (bounded_ ? "#define KACHEL_BOUNDED_WAITS\n" : "") + cuda_helpers(text_) + text_;
  }

 private:
  int consumers() const { return kernel_.teams * kernel_.threads; }
  // What a thread loop is dealt out to, and the number of one of them.
  int sharers() const { return producing_ ? kernel_.copiers : kernel_.threads; }
  std::string thread() const {
    if (producing_) return fmt::format("threadIdx.x - {}", consumers());
    return kernel_.teams > 1 ? fmt::format("threadIdx.x % {}", kernel_.threads) : "threadIdx.x";
  }
  bool clustered() const { return !kernel_.cluster.empty(); }
  bool has_producer() const { return !kernel_.producer.empty(); }
  bool stores_boxes() const {
    return std::any_of(kernel_.buffers.begin(), kernel_.buffers.end(),
                       [](const LoopBuffer& buffer) { return buffer.of_warps; });
  }

  void wait_for_previous() {
    if (overlaps_) line(1, "kachel_after_previous();");
  }
  void tiles(const LoopBlock& body) {
    const std::string &tile = name(kernel_.tile), &count = name(kernel_.tiles);
    if (kernel_.one_tile) {
      line(1, "if (const i64 {0} = blockIdx.x; {0} < {1}) {{", tile, count);
    } else if (kernel_.back_and_forth) {
      line(1, "bool kachel_back = false;");
      line(1,
           "for (i64 kachel_round = 0; kachel_round + blockIdx.x < {}; kachel_round += gridDim.x, kachel_back = "
           "!kachel_back) {{",
           count);
      line(2, "const i64 kachel_last = kachel_min((i64)gridDim.x, {} - kachel_round) - 1;", count);
      line(2, "const i64 {} = kachel_round + (kachel_back ? kachel_last - blockIdx.x : blockIdx.x);", tile);
    } else {
      line(1, "for (i64 {0} = blockIdx.x; {0} < {1}; {0} += gridDim.x) {{", tile, count);
    }
    block(body, 2);
    line(1, "}}");
  }
  void tiles_in_turn() {
    const std::string &tile = name(kernel_.tile), &count = name(kernel_.tiles);
    line(1, "int kachel_turn = 0;");
    line(1,
         "for (i64 {0} = blockIdx.x; {0} < {1}; {0} += gridDim.x, kachel_turn = kachel_turn == {2} ? 0 : kachel_turn + "
         "1) {{",
         tile, count, kernel_.teams - 1);
    line(2, "if (kachel_turn == {}) {{", name(kernel_.team));
    block(kernel_.body, 3);
    line(2, "}} else {{");
    block(kernel_.passed_over, 3);
    line(2, "}}");
    line(1, "}}");
  }
  static std::string of_warp(const std::string& value) { return fmt::format("__shfl_sync(0xffffffffu, {}, 0)", value); }
  // The first group waits for the last one too: once before that has had a turn. A loop's last turn is passed on to the
  // next loop's first one.
  void first_turn() {
    if (std::any_of(kernel_.phases.begin(), kernel_.phases.end(), [](const LoopPhases& each) { return each.turns; }))
      line(1, "if (threadIdx.x >= {}) kachel_pass_turn(0);", kernel_.threads - kGroupThreads);
  }
  void phases() {
    line(1, "if (threadIdx.x == 0) {{");
    for (const LoopPhases& phases : kernel_.phases)
      if (!phases.turns)
        line(2, "for (int i = 0; i < {}; ++i) kachel_phase_init({} + i, {});", phases.count, name(phases.buffer),
             bounded_ ? lane_arrivals(kernel_, phases) : phases.arrivals);
    line(2, "kachel_phase_fence();");
    line(1, "}}");
    line(1, "{}", clustered() ? "kachel_cluster_barrier();" : "__syncthreads();");
  }

  template <class... Args>
  void line(int depth, fmt::format_string<Args...> format, Args&&... args) {
    text_.append(2 * static_cast<size_t>(depth), ' ');
    text_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }
  void params() {
    for (size_t i = 0; i < kernel_.params.size(); ++i) {
      const LoopParam& param = kernel_.params[i];
      if (param.buffer) {
        const char* constant = param.buffer->direction == ir::Direction::kIn ? "const " : "";
        const char* type = memory_type(param.buffer->type.dtype);
        if (param.slot.kind == Slot::Kind::kWorkspace)
          line(1, "{0}* {1} = ({0}*)p.v[{2}] + blockIdx.x * (i64){3};", type, name(param.buffer), i,
               kernel_.workspace_bytes);
        else
          line(1, "{0}{1}* __restrict__ {2} = ({0}{1}*)p.v[{3}];", constant, type, name(param.buffer), i);
        if (param.slot.kind == Slot::Kind::kWorkspace) workspace_ = name(param.buffer);
      } else if (param.var->type.dtype == DType::F32) {
        line(1, "const float {} = __int_as_float((int)p.v[{}]);", name(param.var), i);
      } else if (param.var->type.dtype == DType::Bool) {
        line(1, "const bool {} = p.v[{}] != 0;", name(param.var), i);
      } else {
        line(1, "const {0} {1} = ({0})p.v[{2}];", value_type(param.var->type.dtype), name(param.var), i);
      }
    }
  }

  bool alone(const LoopBuffer& buffer) const {
    return std::none_of(kernel_.buffers.begin(), kernel_.buffers.end(),
                        [&](const LoopBuffer& other) { return &other != &buffer && share_memory(buffer, other); });
  }

  void buffers() {
    if (kernel_.shared_bytes) line(1, "extern __shared__ __align__(1024) u8 kachel_shared[];");
    for (const LoopBuffer& buffer : kernel_.buffers) {
      const char* type = memory_type(buffer.buffer->type.dtype);
      if (buffer.buffer->scope == ir::Scope::kRegister)
        line(1, "__align__(16) {} {}[{}]{};", type, name(buffer.buffer), buffer.elements, buffer.zeroed ? " = {}" : "");
      else
        line(1, "{0}*{4} {1} = ({0}*)({2} + {3});", type, name(buffer.buffer),
             buffer.spilled ? workspace_ : "kachel_shared", buffer.byte_offset, alone(buffer) ? " __restrict__" : "");
    }
  }

  void block(const LoopBlock& body, int depth) {
    for (size_t i = 0; i < body.size(); ++i) {
      const GroupRun run = group_run(body, i);
      if (!run.first) {
        std::visit([&](const auto& node) { statement(node, depth); }, body[i].node);
        continue;
      }
      group_functions_.insert(group_run_function(run));
      line(depth, "{}",
           group_run_call(run, intrinsics_.at(*run.first, 0), intrinsics_.at(*run.first, 1),
                          intrinsics_.at(*run.first, 2)));
      i += run.products.size() - 1;
    }
  }

  void statement(const LoopLet& let, int depth) {
    std::string value = expr(let.value, false);
    line(depth, "const {} {} = {};", value_type(let.value->type), name(let.var), value);
  }
  void statement(const LoopStore& store, int depth) {
    const DType type = store.buffer->type.dtype;
    std::string value = expr(store.value, false);
    if (const ir::Expr* moved = moved_element(store)) {
      value = fmt::format("{}[{}]", name(moved->buffer), expr(moved->args[0], true));
      if (moved != store.value.get())
        value = fmt::format("{} ? {} : kachel_to_{}(0.0f)", expr(store.value->args[0], false), value, ir::name(type));
    } else if (is_narrow_float(type)) {
      value = fmt::format("kachel_to_{}({})", ir::name(type), value);
    } else if (value_type(type) != std::string_view(memory_type(type))) {
      value = fmt::format("({}){}", memory_type(type), value);
    }
    line(depth, "{}[{}] = {};", name(store.buffer), expr(store.index, true), value);
  }
  void statement(const LoopAtomic& atomic, int depth) {
    constexpr const char* kNames[] = {"", "add", "max", "min"};
    const DType type = atomic.buffer->type.dtype;
    std::string suffix = is_narrow_float(type) ? fmt::format("_{}", ir::name(type)) : "";
    line(depth, "kachel_atomic_{}{}({} + {}, {});", kNames[static_cast<int>(atomic.op)], suffix, name(atomic.buffer),
         expr(atomic.index, true), expr(atomic.value, false));
  }
  void statement(const LoopFor& loop, int depth) {
    line(depth, "#pragma unroll{}", loop.unroll ? "" : " 1");
    line(depth, "for ({3} {0} = {1}; {0} < {2}; ++{0}) {{", name(loop.var), expr(loop.begin, false),
         expr(loop.end, false), value_type(loop.var->type.dtype));
    if (loop.apart)
      line(depth + 1, "{}__syncwarp();",
           loop.apart > 1 ? fmt::format("if ({} % {} == 0) ", name(loop.var), loop.apart) : "");
    block(loop.body, depth + 1);
    line(depth, "}}");
  }
  void statement(const LoopThreads& threads, int depth) {
    thread_loop(threads, depth);
    bool swaps = false;  // in a loop of compare-and-swap, see the prelude
    for_each_statement(threads.body, [&](const LoopStmt& stmt) {
      const auto* atomic = std::get_if<LoopAtomic>(&stmt.node);
      swaps |= atomic && atomic->buffer->type.dtype == DType::BF16;
    });
    if (swaps) line(depth, "kachel_converge();");
  }
  void thread_loop(const LoopThreads& threads, int depth) {
    const int64_t rounds = (threads.extent + sharers() - 1) / sharers();
    if (threads.extent == sharers()) {
      line(depth, "{{");
      const size_t begin = text_.size();
      block(threads.body, depth + 1);
      for (const auto& [var, value] : {std::pair(threads.slot, std::string("0")), std::pair(threads.index, thread())})
        if (has_word(std::string_view(text_).substr(begin), name(var)))
          text_.insert(begin, fmt::format("{:{}}const int {} = {};\n", "", 2 * (depth + 1), name(var), value));
      line(depth, "}}");
      return;
    }
    const std::string &slot = name(threads.slot), &index = name(threads.index);
    // Past this many copies the code grows beyond what unrolling saves; arrays then live in local memory.
    constexpr int64_t kMostUnrolled = 256;
    line(depth, "#pragma unroll{}", threads.unroll && rounds <= kMostUnrolled ? "" : " 1");
    line(depth, "for (int {0} = 0; {0} < {1}; ++{0}) {{", slot, rounds);
    line(depth + 1, "const int {} = {} * {} + (int)({});", index, slot, sharers(), thread());
    const bool partial = threads.extent % sharers() != 0;
    if (partial) line(depth + 1, "if ({} < {}) {{", index, threads.extent);
    block(threads.body, depth + (partial ? 2 : 1));
    if (partial) line(depth + 1, "}}");
    line(depth, "}}");
  }
  void statement(const LoopIf& branch, int depth) {
    line(depth, "if ({}) {{", expr(branch.condition, false));
    block(branch.then_body, depth + 1);
    if (!branch.else_body.empty()) {
      line(depth, "}} else {{");
      block(branch.else_body, depth + 1);
    }
    line(depth, "}}");
  }
  void statement(const LoopBarrier&, int depth) {
    if (has_producer())
      line(depth, "kachel_barrier<{}>();", kernel_.threads);
    else
      line(depth, "__syncthreads();");
  }
  void statement(const LoopIntrinsic& node, int depth) {
    for (const std::string& each : intrinsics_.statements(node)) line(depth, "{}", each);
  }
  void statement(const LoopShuffle& node, int depth) {
    if (node.lane_mask == kAnyLane)
      return line(depth, "const bool {} = __any_sync(0xffffffffu, {});", name(node.var), expr(node.value, false));
    line(depth, "const {} {} = __shfl_xor_sync(0xffffffffu, {}, {});", value_type(node.value->type), name(node.var),
         expr(node.value, false), node.lane_mask);
  }
  void statement(const LoopPipeline&, int) {}     // synchronise() leaves none
  void statement(const LoopMicroKernel&, int) {}  // not on a GPU, see loop_ir.h
  void statement(const LoopStream&, int) {}
  void statement(const LoopTranspose&, int) {}
  void statement(const LoopPrefetch&, int) {}
  void statement(const LoopComment& comment, int depth) { line(depth, "// {}", comment.text); }

  const std::string& name(const ir::VarRef& var) { return expressions_.name(var); }
  const std::string& name(const ir::BufferRef& buffer) { return expressions_.name(buffer); }
  std::string expr(const ExprRef& e, bool address) { return expressions_.text(e, address); }

  const LoopKernel& kernel_;
  CudaExpressions expressions_;
  CudaIntrinsics intrinsics_;
  std::set<std::string> group_functions_;
  std::string text_, workspace_;
  const bool overlaps_, bounded_;
  bool producing_ = false;
};

}  // namespace

std::string emit_cuda(const LoopKernel& kernel, bool overlaps, bool bounded) {
  return Emitter(kernel, overlaps, bounded).run();
}

}  // namespace kachel::lowering
