// Statements of loop IR to LLVM IR text. See emit.h.
//
// Every buffer is memory of its own, which alias scopes tell LLVM: tiles by construction, tensors because a launch
// whose output overlaps anything is refused. One-element register buffers are allocas that mem2reg removes.
#include <fmt/format.h>

#include <functional>

#include "lowering/emit/emit_llvm_expr.h"

namespace kachel::lowering {

using namespace llvm_text;

namespace {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

class Emitter : LlvmExpressions {
 public:
  explicit Emitter(const LoopKernel& kernel) : LlvmExpressions(kernel) {}

  std::string run() {
    entry();
    std::string text = std::string(kLlvmPrelude) + kLlvmMath;
    text += fmt::format(
        "\ndefine void @{}(ptr noalias readonly %params, i64 %block_begin, i64 %block_end, i64 %blocks, ptr noalias "
        "%arena) #2 {{\nentry:\n",
        kEntry);
    text += allocas_ + text_ + (streams_ ? "  fence seq_cst\n" : "") + "  ret void\n}\n" + functions_ + metadata();
    return text;
  }

 private:
  // ---- function frame ----

  void entry() {
    for (size_t i = 0; i < kernel_.params.size(); ++i) {
      const LoopParam& param = kernel_.params[i];
      std::string slot = value("getelementptr i64, ptr %params, i64 {}", i);
      if (param.buffer) {
        bases_[param.buffer.get()] = value("load ptr, ptr {}, align 8", slot);
        scopes_[param.buffer.get()] = scope_of(fmt::format("param{}", param.slot.index));
      } else if (param.var->type.dtype == DType::F32) {
        values_[param.var.get()] = value("load float, ptr {}, align 8", slot);
      } else {
        std::string word = value("load i64, ptr {}, align 8", slot);
        const DType type = param.var->type.dtype;
        if (type == DType::Bool)
          word = value("icmp ne i64 {}, 0", word);
        else if (ir::bits(type) <= 32)
          word = value("trunc i64 {} to i32", word);
        values_[param.var.get()] = word;
      }
    }
    for (const LoopBuffer& buffer : kernel_.buffers) {
      const char* type = memory_type(buffer.buffer->type.dtype);
      scopes_[buffer.buffer.get()] = scope_of(fmt::format("local{}", bases_.size()));
      if (buffer.buffer->scope == ir::Scope::kRegister) {
        std::string slot = fmt::format("%t{}", next_++);
        allocas_ += fmt::format("  {} = alloca [{} x {}], align 16\n", slot, buffer.elements, type);
        bases_[buffer.buffer.get()] = slot;
      } else if (buffer.spilled) {
        spilled_.push_back(&buffer);
      } else {
        bases_[buffer.buffer.get()] = value("getelementptr i8, ptr %arena, i64 {}", buffer.byte_offset);
      }
    }
    // Each block walks its tiles: block, block + blocks, ...
    block_label_ = "entry";
    loop("%block_begin", "%block_end", [&](const std::string& block) {
      for (const LoopBuffer* buffer : spilled_) {
        std::string slice = value("mul i64 {}, {}", block, kernel_.workspace_bytes);
        std::string at = value("add i64 {}, {}", slice, buffer->byte_offset);
        bases_[buffer->buffer.get()] = value("getelementptr i8, ptr {}, i64 {}", workspace_base(), at);
      }
      loop(
          block, values_.at(kernel_.tiles.get()),
          [&](const std::string& tile) {
            values_[kernel_.tile.get()] = tile;
            this->block(kernel_.body);
          },
          "%blocks");
    });
  }

  std::string workspace_base() {
    for (const LoopParam& param : kernel_.params)
      if (param.slot.kind == Slot::Kind::kWorkspace) return bases_.at(param.buffer.get());
    return "null";
  }

  void loop(const std::string& begin, const std::string& end, const std::function<void(const std::string&)>& body,
            const std::string& step = "1") {
    std::string before = block_label_, head = new_label("head"), inside = new_label("body"), exit = new_label("exit");
    std::string index = fmt::format("%t{}", next_++), following = fmt::format("%t{}", next_++);
    jump(head);
    start(head);
    size_t phi_at = text_.size();
    std::string more = value("icmp slt i64 {}, {}", index, end);
    line("br i1 {}, label %{}, label %{}", more, inside, exit);
    start(inside);
    body(index);
    line("{} = add nsw i64 {}, {}", following, index, step);
    jump(head);
    text_.insert(phi_at, fmt::format("  {} = phi i64 [ {}, %{} ], [ {}, %{} ]\n", index, begin, before, following,
                                     block_label_));
    start(exit);
  }

  // ---- alias scopes ----

  int scope_of(const std::string& key) {
    auto [it, inserted] = scope_ids_.emplace(key, static_cast<int>(scope_ids_.size()));
    return it->second;
  }
  std::string metadata() {
    const size_t n = kernel_.params.size() + kernel_.buffers.size() + 1, used = scope_ids_.size();
    std::string text = "!0 = distinct !{!0}\n";
    for (size_t i = 0; i < used; ++i) {
      text += fmt::format("!{0} = distinct !{{!{0}, !0}}\n!{1} = !{{!{0}}}\n", 1 + i, 1 + n + i);
      std::string others;
      for (size_t j = 0; j < used; ++j)
        if (j != i) others += fmt::format("{}!{}", others.empty() ? "" : ", ", 1 + j);
      text += fmt::format("!{} = !{{{}}}\n", 1 + 2 * n + i, others);
    }
    return text;
  }

  // ---- statements ----

  void block(const LoopBlock& body) {
    for (const LoopStmt& stmt : body) std::visit([&](const auto& node) { statement(node); }, stmt.node);
  }
  void statement(const LoopLet& let) { values_[let.var.get()] = expr(let.value); }
  void statement(const LoopStore& store) {
    const DType type = store.buffer->type.dtype;
    std::string text;
    const bool scalar_sum = reassociate_ && store.buffer->scope == ir::Scope::kRegister &&
                            store.value->kind == ExprKind::kApply && ir::is_float(store.value->type);
    if (scalar_sum && store.value->op == Op::kFma) {
      std::string product = value("fmul contract float {}, {}", expr(store.value->args[0]), expr(store.value->args[1]));
      text = value("fadd reassoc contract float {}, {}", product, expr(store.value->args[2]));
    } else if (scalar_sum && store.value->op == Op::kAdd) {
      std::string a = expr(store.value->args[0]), b = expr(store.value->args[1]);
      text = value("fadd reassoc contract float {}, {}", a, b);
    } else {
      text = expr(store.value);
    }
    text = to_memory(type, text);
    std::string at = address(store.buffer, store.index);
    line("store {} {}, ptr {}, align {}{}", memory_type(type), text, at, ir::bits(type) / 8, alias_of(store.buffer));
  }
  void statement(const LoopAtomic& atomic) {
    if (atomic.buffer->scope != ir::Scope::kGlobal) {  // of the block, which is one thread
      constexpr Op kOps[] = {Op::kAdd, Op::kAdd, Op::kMax, Op::kMin};
      const ir::ExprRef held = ir::make_load(atomic.buffer, {atomic.index});
      return statement(LoopStore{atomic.buffer, atomic.index,
                                 ir::make_typed(kOps[static_cast<int>(atomic.op)], {held, atomic.value})});
    }
    const DType type = atomic.buffer->type.dtype;
    const bool is_float = ir::is_float(type), is_signed = ir::is_signed(type);
    const char* op = atomic.op == ir::AtomicOp::kAdd   ? (is_float ? "fadd" : "add")
                     : atomic.op == ir::AtomicOp::kMax ? (is_float    ? "fmax"
                                                          : is_signed ? "max"
                                                                      : "umax")
                                                       : (is_float    ? "fmin"
                                                          : is_signed ? "min"
                                                                      : "umin");
    std::string operand = expr(atomic.value), at = address(atomic.buffer, atomic.index);
    if (type == DType::BF16) return atomic_bf16(operand, at);
    const char* memory = memory_type(type);
    if (type == DType::F16) operand = to_memory(type, operand);
    value("atomicrmw {} ptr {}, {} {} monotonic, align {}", op, at, memory, operand, ir::bits(type) / 8);
  }
  // bf16 has no arithmetic of its own: a compare-and-exchange loop on its bits.
  void atomic_bf16(const std::string& operand, const std::string& at) {
    std::string rounded = from_memory(DType::BF16, to_memory(DType::BF16, operand));
    std::string first = value("load atomic i16, ptr {} monotonic, align 2", at);
    std::string before = block_label_, retry = new_label("retry"), done = new_label("done");
    std::string old = fmt::format("%t{}", next_++), seen = fmt::format("%t{}", next_++);
    jump(retry);
    start(retry);
    line("{} = phi i16 [ {}, %{} ], [ {}, %{} ]", old, first, before, seen, retry);
    std::string wide = value("call float @kachel_from_bf16(i16 {})", old);
    std::string sum = value("fadd float {}, {}", wide, rounded);
    std::string bits = value("call i16 @kachel_to_bf16(float {})", sum);
    std::string pair = value("cmpxchg ptr {}, i16 {}, i16 {} monotonic monotonic, align 2", at, old, bits);
    line("{} = extractvalue {{ i16, i1 }} {}, 0", seen, pair);
    std::string ok = value("extractvalue {{ i16, i1 }} {}, 1", pair);
    line("br i1 {}, label %{}, label %{}", ok, done, retry);
    start(done);
  }
  void statement(const LoopFor& stmt) {
    std::string begin = expr(stmt.begin), end = expr(stmt.end);
    const bool outer = std::exchange(reassociate_, stmt.reassociate);
    loop(begin, end, [&](const std::string& index) {
      values_[stmt.var.get()] = index;
      block(stmt.body);
    });
    reassociate_ = outer;
  }
  void statement(const LoopThreads&) {}  // not on the CPU, see loop_ir.h
  void statement(const LoopBarrier&) {}
  void statement(const LoopIntrinsic&) {}
  void statement(const LoopShuffle&) {}
  void statement(const LoopPipeline&) {}
  void statement(const LoopIf& branch) {
    std::string condition = expr(branch.condition), yes = new_label("then"), no = new_label("else"),
                end = new_label("end");
    line("br i1 {}, label %{}, label %{}", condition, yes, branch.else_body.empty() ? end : no);
    start(yes);
    block(branch.then_body);
    jump(end);
    if (!branch.else_body.empty()) {
      start(no);
      block(branch.else_body);
      jump(end);
    }
    start(end);
  }
  void statement(const LoopMicroKernel& micro) {
    auto [it, is_new] = micro_kernels_.try_emplace(micro_kernel_key(micro), micro_kernels_.size());
    const std::string name = fmt::format("kachel_micro{}", it->second);
    if (is_new) functions_ += emit_micro_kernel(micro, name);
    std::string c = address(micro.c, micro.c_at), a = address(micro.a, micro.a_at), b = address(micro.b, micro.b_at);
    line("call void @{}(ptr {}, ptr {}, ptr {})", name, c, a, b);
  }
  void statement(const LoopStream& stream) {
    std::string to = address(stream.to, stream.to_at), from = address(stream.from, stream.from_at);
    std::string bytes = value("mul i64 {}, {}", expr(stream.count), ir::bits(stream.to->type.dtype) / 8);
    line("call void @kachel_stream(ptr {}, ptr {}, i64 {})", to, from, bytes);
    streams_ = true;
  }
  void statement(const LoopTranspose& transpose) {
    const DType type = transpose.from->type.dtype;
    const std::string name = fmt::format("kachel_transpose_{}_{}", ir::name(type), transpose.lanes);
    if (micro_kernels_.try_emplace(name, 0).second) functions_ += emit_transpose(type, transpose.lanes, name);
    std::string to = address(transpose.to, transpose.to_at), to_row = expr(transpose.to_row);
    std::string from = address(transpose.from, transpose.from_at), from_row = expr(transpose.from_row);
    line("call void @{}(ptr {}, i64 {}, ptr {}, i64 {})", name, to, to_row, from, from_row);
  }
  void statement(const LoopPrefetch& prefetch) {
    std::string at = address(prefetch.buffer, prefetch.index);
    line("call void @llvm.prefetch.p0(ptr {}, i32 {:d}, i32 3, i32 1)", at,
         prefetch.write);  // into the nearest cache, of data
  }
  void statement(const LoopComment& comment) { text_ += "  ; " + comment.text + "\n"; }

  std::unordered_map<std::string, int> scope_ids_;
  std::vector<const LoopBuffer*> spilled_;
  std::string allocas_, functions_;
  std::unordered_map<std::string, size_t> micro_kernels_;
  bool streams_ = false;
};

}  // namespace

std::string emit_llvm(const LoopKernel& kernel) {
  return Emitter(kernel).run();
}

}  // namespace kachel::lowering
