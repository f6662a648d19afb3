// A kernel as CUDA C++ whose body is one piece of PTX: parameters, memory, roles and the walk over tiles. See emit.h.
//
// The text is an asm statement, in which % is written twice; registers are named without it. What the C++ around it has
// to say are the parameters' size, the block's, and that there is shared memory.
#include <bit>

#include "lowering/emit/lane_arrivals.h"
#include "lowering/emit/ptx/ptx_statements.h"
#include "lowering/loop_ir/loop_build.h"
#include "lowering/machine/machine.h"

namespace kachel::lowering {
namespace ptx {
namespace {

using ir::DType;

class Emitter {
 public:
  Emitter(const LoopKernel& kernel, bool overlaps, bool bounded)
      : kernel_(kernel), overlaps_(overlaps), bounded_(bounded), statements_(kernel, bounded, &code_) {}

  std::string run(std::string* missing) {
    params();
    buffers();
    names();
    if (has_producer()) {
      roles();
    } else {
      wait_for_previous();
      tiles_of_block();
    }
    statements_.wait_for_blocks();
    // What this block still writes to a neighbour's memory, or arrives at, is there before that one ends: a relaxed
    // arrival would not wait for it.
    if (clustered() && !ends_in_step()) statements_.cluster_barrier(".release", ".acquire");
    *missing = statements_.expressions().missing();
    return missing->empty() ? frame() : "";
  }

 private:
  // Whether a barrier stands behind all that blocks write to each other.
  bool ends_in_step() const {
    bool met = true;
    for (const LoopStmt& stmt : kernel_.body) {
      if (stores_to_shared(stmt)) met = false;
      if (std::holds_alternative<LoopBarrier>(stmt.node)) met = true;
    }
    return kernel_.tile_blocks > 1 && met;
  }
  // Blocks of a cluster.
  int together() const { return kernel_.tile_blocks > 1 ? kernel_.tile_blocks : blocks_of(kernel_.cluster); }
  bool clustered() const { return together() > 1; }
  bool has_producer() const { return statements_.has_producer(); }
  int consumers() const { return statements_.consumers(); }
  Value tid() const { return statements_.tid(); }
  static Value whole(int64_t value) { return Code::integer(value, 32); }

  std::string frame() const {
    const std::string maps = kernel_.maps.empty() ? "" : fmt::format(" kachel_map maps[{}];", kernel_.maps.size());
    std::string text = "struct __align__(128) kachel_map { unsigned long long v[16]; };\n";
    text += fmt::format("struct kachel_params {{ long long v[{}];{} }};\n", std::max<size_t>(kernel_.params.size(), 1),
                        maps);
    if (kernel_.shared_bytes) text += "extern __shared__ __align__(1024) unsigned char kachel_shared[];\n";
    text += fmt::format(
        "\nextern \"C\" __global__ void {}__launch_bounds__({}{}) {}(const __grid_constant__ kachel_params p) {{\n",
        clustered() ? fmt::format("__cluster_dims__({}, 1, 1) ", together()) : "",
        consumers() + (has_producer() ? kernel_.producer_threads : 0),
        kernel_.blocks ? fmt::format(", {}", kernel_.blocks) : "", kEntry);
    text += "asm volatile(R\"ptx({\n" + code_.declarations();
    text += ".reg .b32 shared;\nmov.b32 shared, %0;\n" + code_.text() + "}";
    text += fmt::format(")ptx\" :: \"r\"({}) : \"memory\");\n}}\n",
                        kernel_.shared_bytes ? "(unsigned)__cvta_generic_to_shared(kachel_shared)" : "0");
    return text;
  }

  static std::string param(size_t number) { return fmt::format("[{}_param_0+{}]", kEntry, 8 * number); }
  void params() {
    for (size_t i = 0; i < kernel_.params.size(); ++i) {
      const LoopParam& param = kernel_.params[i];
      const DType type = param.buffer ? DType::U64 : param.var->type.dtype;
      const bool is_bool = type == DType::Bool;
      const Value value = code_.fresh(is_bool ? Class::kB32 : class_of_type(type));
      const char* name = value.kind == Class::kB64 ? "b64" : "b32";
      code_.say(fmt::format("ld.param.{} {}, {};", name, value.text, this->param(i)), false, true);
      if (param.buffer) {
        Value base = value;
        if (param.slot.kind == Slot::Kind::kWorkspace) {
          base = code_.pure(Class::kB64, "mad.wide.u32",
                            {statements_.block_number(), whole(kernel_.workspace_bytes), value});
          workspace_ = base;
        }
        statements_.memory().declare(param.buffer, {Space::kGlobal, param.buffer->type.dtype, base, {}});
      } else {
        statements_.expressions().bind_own(param.var, is_bool ? code_.compare("ne", "b32", value, whole(0)) : value);
      }
    }
  }

  void buffers() {
    const Value shared{"shared", Class::kB32, {}};
    code_.at_most(shared, UINT32_MAX, 10);  // aligned to 1024 bytes, see text()
    for (const LoopBuffer& buffer : kernel_.buffers) {
      if (buffer.buffer->scope == ir::Scope::kRegister) {
        statements_.memory().declare_registers(buffer);
      } else if (buffer.spilled) {
        statements_.memory().declare(buffer.buffer, {Space::kGlobal,
                                                     buffer.buffer->type.dtype,
                                                     code_.add(*workspace_, Code::integer(buffer.byte_offset, 64)),
                                                     {}});
      } else {
        statements_.memory().declare(
            buffer.buffer,
            {Space::kShared, buffer.buffer->type.dtype, code_.add(shared, whole(buffer.byte_offset)), {}});
      }
    }
  }

  // The value that the first lane has, which the assembler then knows to be the warp's.
  Value of_warp(const Value& value) {
    const Value made = code_.fresh(Class::kB32);
    code_.line("shfl.sync.idx.b32 {}, {}, 0, 31, -1;", made.text, value.text);
    return made;
  }
  void names() {
    Expressions& expressions = statements_.expressions();
    // A register of its own: a producer's thread has another number than what is known of those that compute.
    const Value thread =
        kernel_.teams > 1 ? statements_.thread() : code_.pure(Class::kB32, "mov.b32", {statements_.thread()});
    if (kernel_.thread) expressions.bind_own(kernel_.thread, thread);
    if (kernel_.team)
      expressions.bind(kernel_.team, of_warp(code_.pure(Class::kB32, "div.u32", {tid(), whole(kernel_.threads)})));
    if (kernel_.rank)
      expressions.bind(kernel_.rank, code_.pure(Class::kB32, "rem.u32",
                                                {statements_.block_number(), whole(blocks_of(kernel_.cluster))}));
    if (kernel_.threads % kGroupThreads == 0)
      expressions.set_warp_group(
          kernel_.threads == kGroupThreads ? whole(0) : of_warp(code_.shift(thread, whole(7), false, false)));
  }

  void roles() {
    if (!kernel_.maps.empty())
      statements_.when(code_.compare("eq", "s32", tid(), whole(consumers())), [&] {
        for (size_t i = 0; i < kernel_.maps.size(); ++i)
          code_.line("prefetch.tensormap [{}];", statements_.map(static_cast<int64_t>(i)).text);
      });
    statements_.when(code_.compare("eq", "s32", tid(), whole(0)), [&] { begin_phases(); });
    if (clustered())
      statements_.cluster_barrier(".relaxed", "");
    else
      code_.line("bar.sync 0;");
    wait_for_previous();
    // By warps: what follows a branch that lanes might take apart has no uniform registers.
    statements_.branch(
        code_.compare("lt", "s32", of_warp(code_.shift(tid(), whole(5), false, false)), whole(consumers() / 32)),
        [&] {
          if (kernel_.registers) code_.line("setmaxnreg.inc.sync.aligned.u32 {};", kernel_.registers);
          first_turn();
          tiles_of_block();
        },
        [&] {
          if (kernel_.producer_registers) code_.line("setmaxnreg.dec.sync.aligned.u32 {};", kernel_.producer_registers);
          statements_.set_producing();
          statements_.when(code_.compare("lt", "s32", tid(), whole(consumers() + kernel_.copiers)),
                           [&] { tiles(kernel_.producer); });
        });
  }

  void begin_phases() {
    for (const LoopPhases& phases : kernel_.phases) {
      if (phases.turns) continue;
      const Value first = statements_.memory().of(phases.buffer).base;
      const int64_t arrivals = bounded_ ? lane_arrivals(kernel_, phases) : phases.arrivals;
      for (int64_t i = 0; i < phases.count; ++i)
        code_.line("mbarrier.init.shared::cta.b64 [{}], {};", code_.add(first, whole(8 * i)).text, arrivals);
    }
    code_.line("fence.mbarrier_init.release.cluster;");
  }
  // The first group waits for the last one too: once before that has had a turn. A loop's last turn is passed on to the
  // next loop's first one.
  void first_turn() {
    if (std::any_of(kernel_.phases.begin(), kernel_.phases.end(), [](const LoopPhases& each) { return each.turns; }))
      statements_.when(code_.compare("ge", "s32", tid(), whole(kernel_.threads - kGroupThreads)),
                       [&] { code_.line("bar.arrive 2, 256;"); });
  }
  void wait_for_previous() {
    if (!overlaps_) return;
    code_.line("griddepcontrol.launch_dependents;");
    code_.line("griddepcontrol.wait;");
  }

  void tiles_of_block() {
    kernel_.teams > 1 ? tiles_in_turn() : tiles(kernel_.body);
    // A block's shared memory is given away when it ends.
    const bool stores_boxes = std::any_of(kernel_.buffers.begin(), kernel_.buffers.end(),
                                          [](const LoopBuffer& buffer) { return buffer.of_warps; });
    if (stores_boxes) statements_.wait_for_box_stores(0);
  }

  // Of a number of blocks, those tiles that they compute at a time.
  Value of_tiles(const Value& blocks) {
    const int shift = std::countr_zero(static_cast<unsigned>(kernel_.tile_blocks));
    return code_.widened(shift ? code_.shift(blocks, whole(shift), false, false) : blocks, false);
  }
  void tiles(const LoopBlock& body) {
    Expressions& expressions = statements_.expressions();
    const Value first = of_tiles(statements_.block_number()), step = of_tiles(statements_.blocks());
    const Value count = expressions.of(ir::make_var(kernel_.tiles));
    const auto tile = [&](const Value& number) {
      expressions.bind(kernel_.tile, number);
      statements_.block(body);
    };
    if (kernel_.one_tile) return statements_.when(code_.compare("lt", "s64", first, count), [&] { tile(first); });
    if (!kernel_.back_and_forth) return statements_.loop(first, count, step, "s64", tile);
    // Every second round goes from its last tile to its first one.
    const Value back = code_.variable(Class::kB32);
    code_.line("mov.b32 {}, 0;", back.text);
    statements_.loop(first, count, step, "s64", [&](const Value& number) {
      const Value round = code_.sub(number, first), rest = code_.sub(count, round);
      const Value last = code_.add(code_.pure(Class::kB64, "min.s64", {step, rest}), Code::integer(-1, 64));
      const Value from_last = code_.add(round, code_.sub(last, first));
      tile(code_.select(code_.compare("ne", "b32", back, whole(0)), from_last, number));
      code_.line("xor.b32 {0}, {0}, 1;", back.text);
      code_.written(back);
    });
  }

  void tiles_in_turn() {
    Expressions& expressions = statements_.expressions();
    const Value first = code_.widened(statements_.block_number(), false);
    const Value step = code_.widened(statements_.blocks(), false);
    const Value turn = code_.variable(Class::kB32), team = expressions.of(ir::make_var(kernel_.team));
    code_.line("mov.b32 {}, 0;", turn.text);
    statements_.loop(first, expressions.of(ir::make_var(kernel_.tiles)), step, "s64", [&](const Value& number) {
      expressions.bind(kernel_.tile, number);
      statements_.branch(
          code_.compare("eq", "s32", turn, team), [&] { statements_.block(kernel_.body); },
          [&] { statements_.block(kernel_.passed_over); });
      const Value over = code_.compare("eq", "s32", turn, whole(kernel_.teams - 1));
      const Value next = code_.select(over, whole(0), code_.add(turn, whole(1)));
      code_.assign(turn, next, false);
    });
  }

  const LoopKernel& kernel_;
  const bool overlaps_, bounded_;
  Code code_;
  Statements statements_;
  std::optional<Value> workspace_;
};

}  // namespace

Value Statements::map(int64_t number) {
  const auto at =
      static_cast<int64_t>((8 * std::max<size_t>(kernel_.params.size(), 1) + 127) / 128 * 128 + 128 * number);
  const Value name{fmt::format("{}_param_0", kEntry), Class::kB64, {}};
  const Value first = code_.pure(Class::kB64, "mov.b64", {name});
  return code_.pure(Class::kB64, "cvta.param.u64", {code_.add(first, Code::integer(at, 64))});
}

}  // namespace ptx

std::string emit_ptx(const LoopKernel& kernel, bool overlaps, bool bounded, std::string* missing) {
  return ptx::Emitter(kernel, overlaps, bounded).run(missing);
}

}  // namespace kachel::lowering
