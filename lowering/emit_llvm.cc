// Loop IR to LLVM IR text. See emit.h.
//
// Every buffer is memory of its own, which alias scopes tell LLVM: tiles by construction, tensors because a launch
// whose output overlaps anything is refused. One-element register buffers are allocas that mem2reg removes.
#include <fmt/format.h>

#include <bit>
#include <functional>

#include "lowering/emit.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;

const char* value_type(DType type) {
  switch (ir::compute_type(type)) {
    case DType::F32:
      return "float";
    case DType::I64:
    case DType::U64:
      return "i64";
    case DType::Bool:
      return "i1";
    default:
      return "i32";
  }
}

const char* memory_type(DType type) {
  switch (type) {
    case DType::F32:
      return "float";
    case DType::F16:
      return "half";
    case DType::BF16:
    case DType::I16:
      return "i16";
    case DType::I32:
    case DType::U32:
      return "i32";
    case DType::I64:
    case DType::U64:
      return "i64";
    default:
      return "i8";
  }
}

bool loads_memory(const ExprRef& expr) {
  bool found = false;
  ir::visit(expr, [&](const ExprRef& node) { found |= node->kind == ExprKind::kLoad; });
  return found;
}

class Emitter {
 public:
  explicit Emitter(const LoopKernel& kernel) : kernel_(kernel) {}

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
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_ += "  " + fmt::format(format, std::forward<Args>(args)...) + "\n";
  }
  // Emits `%tN = <instruction>` and returns %tN.
  template <class... Args>
  std::string value(fmt::format_string<Args...> format, Args&&... args) {
    std::string result = fmt::format("%t{}", next_++);
    text_ += "  " + result + " = " + fmt::format(format, std::forward<Args>(args)...) + "\n";
    return result;
  }
  std::string new_label(const char* what) { return fmt::format("{}{}", what, next_++); }
  void start(const std::string& label) {
    text_ += label + ":\n";
    block_label_ = label;
  }
  void jump(const std::string& label) { line("br label %{}", label); }

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
  // Metadata ids: 0 the domain; 1 + i scope i; 1 + n + i the list {i}; 1 + 2n + i the list of all others.
  std::string alias_of(const ir::BufferRef& buffer) {
    const size_t n = kernel_.params.size() + kernel_.buffers.size() + 1;
    int scope = scopes_.at(buffer.get());
    return fmt::format(", !alias.scope !{}, !noalias !{}", 1 + n + scope, 1 + 2 * n + scope);
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
    line("call void @llvm.prefetch.p0(ptr {}, i32 0, i32 3, i32 1)", at);  // a read, into the nearest cache, of data
  }
  void statement(const LoopComment& comment) { text_ += "  ; " + comment.text + "\n"; }

  // ---- memory ----

  std::string address(const ir::BufferRef& buffer, const ExprRef& index) {
    std::string at = index64(index);
    return value("getelementptr {}, ptr {}, i64 {}", memory_type(buffer->type.dtype), bases_.at(buffer.get()), at);
  }
  std::string index64(const ExprRef& index) {
    std::string at = expr(index);
    return index->type == DType::I64 ? at : value("sext i32 {} to i64", at);
  }
  std::string load(const ExprRef& e) {
    const DType type = e->buffer->type.dtype;
    if (ir::bits(type) == 4)
      return value("call i32 @kachel_load_{}(ptr {}, i64 {})", ir::name(type), bases_.at(e->buffer.get()),
                   index64(e->args[0]));
    std::string at = address(e->buffer, e->args[0]);
    std::string raw =
        value("load {}, ptr {}, align {}{}", memory_type(type), at, ir::bits(type) / 8, alias_of(e->buffer));
    return from_memory(type, raw);
  }
  std::string from_memory(DType type, const std::string& raw) {
    switch (type) {
      case DType::F16:
        return value("fpext half {} to float", raw);
      case DType::BF16:
        return value("call float @kachel_from_bf16(i16 {})", raw);
      case DType::F8E4M3:
      case DType::F8E5M2:
        return value("call float @kachel_from_{}(i8 {})", ir::name(type), raw);
      case DType::I8:
        return value("sext i8 {} to i32", raw);
      case DType::U8:
        return value("zext i8 {} to i32", raw);
      case DType::I16:
        return value("sext i16 {} to i32", raw);
      case DType::Bool:
        return value("icmp ne i8 {}, 0", raw);
      default:
        return raw;
    }
  }
  std::string to_memory(DType type, const std::string& v) {
    switch (type) {
      case DType::F16:
        return value("fptrunc float {} to half", v);
      case DType::BF16:
        return value("call i16 @kachel_to_bf16(float {})", v);
      case DType::F8E4M3:
      case DType::F8E5M2:
        return value("call i8 @kachel_to_{}(float {})", ir::name(type), v);
      case DType::I8:
      case DType::U8:
        return value("trunc i32 {} to i8", v);
      case DType::I16:
        return value("trunc i32 {} to i16", v);
      case DType::Bool:
        return value("zext i1 {} to i8", v);
      default:
        return v;
    }
  }

  // ---- expressions ----

  std::string expr(const ExprRef& e) {
    switch (e->kind) {
      case ExprKind::kInt:
        return e->type == DType::U32 ? fmt::format("{}", static_cast<int32_t>(e->int_value))
                                     : fmt::format("{}", e->int_value);
      case ExprKind::kBool:
        return e->int_value ? "true" : "false";
      case ExprKind::kFloat:
        return fmt::format("0x{:016X}",
                           std::bit_cast<uint64_t>(static_cast<double>(static_cast<float>(e->float_value))));
      case ExprKind::kVar:
        return values_.at(e->var.get());
      case ExprKind::kLoad:
        return load(e);
      case ExprKind::kCast:
        return cast(e->cast_type.dtype, e->args[0]);
      case ExprKind::kApply:
        return apply(e);
      case ExprKind::kReduce:
        break;
    }
    return "";
  }

  std::string cast(DType to, const ExprRef& arg) {
    const DType from = arg->type;
    std::string v = expr(arg);
    const char* from_type = value_type(from);
    if (to == DType::Bool) {
      if (from == DType::Bool) return v;
      return from == DType::F32 ? value("fcmp une float {}, 0.0", v) : value("icmp ne {} {}, 0", from_type, v);
    }
    if (ir::is_float(to)) {
      if (from != DType::F32) v = value("{} {} {} to float", ir::is_signed(from) ? "sitofp" : "uitofp", from_type, v);
      return to == DType::F32 ? v : from_memory(to, to_memory(to, v));
    }
    const int width = ir::bits(to);
    if (from == DType::F32) {
      const char* sign = ir::is_signed(to) ? "s" : "u";
      v = value("call i{0} @llvm.fpto{1}i.sat.i{0}.f32(float {2})", width, sign, v);
      return width >= 32 ? v : value("{}ext i{} {} to i32", ir::is_signed(to) ? "s" : "z", width, v);
    }
    if (from == DType::Bool) return value("zext i1 {} to {}", v, value_type(to));
    const int from_width = ir::bits(from);
    if (width == from_width) return v;
    if (width > from_width)
      return value("{} i{} {} to i{}", ir::is_signed(from) ? "sext" : "zext", from_width, v, width);
    v = value("trunc i{} {} to i{}", from_width, v, width);
    return width >= 32 ? v : value("{}ext i{} {} to i32", ir::is_signed(to) ? "s" : "z", width, v);
  }

  // `value_if` is evaluated only where `condition` is `when`; else the result is `other`.
  std::string lazily(const std::string& condition, bool when, const char* type,
                     const std::function<std::string()>& value_if, const std::function<std::string()>& other) {
    std::string run = new_label("run"), skip = new_label("skip"), join = new_label("join");
    line("br i1 {}, label %{}, label %{}", condition, when ? run : skip, when ? skip : run);
    start(run);
    std::string a = value_if(), a_from = block_label_;
    jump(join);
    start(skip);
    std::string b = other(), b_from = block_label_;
    jump(join);
    start(join);
    return value("phi {} [ {}, %{} ], [ {}, %{} ]", type, a, a_from, b, b_from);
  }

  std::string apply(const ExprRef& e) {
    const Op op = e->op;
    const auto& args = e->args;
    const char* type = value_type(e->type);
    if (op == Op::kSelect) {
      std::string condition = expr(args[0]);
      if (loads_memory(args[1]) || loads_memory(args[2]))
        return lazily(
            condition, true, type, [&] { return expr(args[1]); }, [&] { return expr(args[2]); });
      std::string a = expr(args[1]), b = expr(args[2]);
      return value("select i1 {}, {} {}, {} {}", condition, type, a, type, b);
    }
    if (op == Op::kAnd || op == Op::kOr) {
      std::string a = expr(args[0]);
      if (loads_memory(args[1]))
        return lazily(
            a, op == Op::kAnd, "i1", [&] { return expr(args[1]); },
            [&] { return std::string(op == Op::kAnd ? "false" : "true"); });
      std::string b = expr(args[1]);
      return value("{} i1 {}, {}", op == Op::kAnd ? "and" : "or", a, b);
    }
    std::vector<std::string> v;
    for (const ExprRef& arg : args) v.push_back(expr(arg));
    const DType operand = args[0]->type;
    if (ir::is_comparison(op)) return compare(op, operand, v[0], v[1]);
    return ir::is_float(operand) ? float_op(e, v) : integer_op(e, v);
  }

  std::string compare(Op op, DType type, const std::string& a, const std::string& b) {
    const size_t which = static_cast<size_t>(op) - static_cast<size_t>(Op::kEq);
    if (ir::is_float(type)) {
      constexpr const char* kNames[] = {"oeq", "une", "olt", "ole", "ogt", "oge"};
      return value("fcmp {} float {}, {}", kNames[which], a, b);
    }
    constexpr const char* kSigned[] = {"eq", "ne", "slt", "sle", "sgt", "sge"};
    constexpr const char* kUnsigned[] = {"eq", "ne", "ult", "ule", "ugt", "uge"};
    const bool is_signed = type == DType::I32 || type == DType::I64;
    return value("icmp {} {} {}, {}", is_signed ? kSigned[which] : kUnsigned[which], value_type(type), a, b);
  }

  std::string float_op(const ExprRef& e, const std::vector<std::string>& v) {
    switch (e->op) {
      case Op::kNeg:
        return value("fneg float {}", v[0]);
      case Op::kAdd:
        return value("fadd contract float {}, {}", v[0], v[1]);
      case Op::kSub:
        return value("fsub contract float {}, {}", v[0], v[1]);
      case Op::kMul:
        return value("fmul contract float {}, {}", v[0], v[1]);
      case Op::kDiv:
        return value("fdiv float {}, {}", v[0], v[1]);
      case Op::kMin:
        return value("call float @llvm.minnum.f32(float {}, float {})", v[0], v[1]);
      case Op::kMax:
        return value("call float @llvm.maxnum.f32(float {}, float {})", v[0], v[1]);
      case Op::kClamp: {
        std::string raised = value("call float @llvm.maxnum.f32(float {}, float {})", v[0], v[1]);
        return value("call float @llvm.minnum.f32(float {}, float {})", raised, v[2]);
      }
      case Op::kFma:
        return value("call float @llvm.fma.f32(float {}, float {}, float {})", v[0], v[1], v[2]);
      case Op::kAbs:
        return value("call float @llvm.fabs.f32(float {})", v[0]);
      case Op::kRcp:
        return value("fdiv float 1.0, {}", v[0]);
      case Op::kRsqrt:
        return value("fdiv float 1.0, {}", value("call float @llvm.sqrt.f32(float {})", v[0]));
      case Op::kSqrt:
      case Op::kFloor:
      case Op::kCeil:
      case Op::kTrunc:
        return value("call float @llvm.{}.f32(float {})", ir::info(e->op).spelling, v[0]);
      case Op::kRound:
        return value("call float @llvm.rint.f32(float {})", v[0]);
      default:
        return value("call float @kachel_{}(float {})", ir::info(e->op).spelling, v[0]);
    }
  }

  std::string integer_op(const ExprRef& e, const std::vector<std::string>& v) {
    const DType operand = e->args[0]->type;
    const char* type = value_type(operand);
    const char* sign = operand == DType::I32 || operand == DType::I64 ? "s" : "u";
    auto binary = [&](const char* name) { return value("{} {} {}, {}", name, type, v[0], v[1]); };
    auto extreme = [&](const char* name, const std::string& a, const std::string& b) {
      return value("call {0} @llvm.{1}{2}.{0}({0} {3}, {0} {4})", type, sign, name, a, b);
    };
    switch (e->op) {
      case Op::kNot:
        return value("xor i1 {}, true", v[0]);
      case Op::kNeg:
        return value("sub {} 0, {}", type, v[0]);
      case Op::kBitNot:
        return value("xor {} {}, -1", type, v[0]);
      case Op::kAdd:
        return binary("add");
      case Op::kSub:
        return binary("sub");
      case Op::kMul:
        return binary("mul");
      case Op::kBitAnd:
        return binary("and");
      case Op::kBitOr:
        return binary("or");
      case Op::kBitXor:
        return binary("xor");
      case Op::kDiv:
      case Op::kMod:
        return divide(e->op == Op::kDiv, e, v);
      case Op::kCeilDiv: {
        std::string quotient = divide(true, e, v), rest = divide(false, e, v);
        std::string inexact = value("icmp ne {} {}, 0", type, rest);
        if (*sign == 's') {
          std::string rest_negative = value("icmp slt {} {}, 0", type, rest),
                      divisor_negative = value("icmp slt {} {}, 0", type, v[1]);
          std::string same_sign = value("icmp eq i1 {}, {}", rest_negative, divisor_negative);
          inexact = value("and i1 {}, {}", inexact, same_sign);
        }
        return value("add {} {}, {}", type, quotient, value("zext i1 {} to {}", inexact, type));
      }
      case Op::kShl:
      case Op::kShr:
        return shift(e, v);
      case Op::kMin:
        return extreme("min", v[0], v[1]);
      case Op::kMax:
        return extreme("max", v[0], v[1]);
      case Op::kClamp:
        return extreme("min", extreme("max", v[0], v[1]), v[2]);
      case Op::kAbs:
        return *sign == 's' ? value("call {0} @llvm.abs.{0}({0} {1}, i1 false)", type, v[0]) : v[0];
      case Op::kPopcount:
        return value("call {0} @llvm.ctpop.{0}({0} {1})", type, v[0]);
      default:
        return v[0];
    }
  }

  std::string divide(bool quotient, const ExprRef& e, const std::vector<std::string>& v) {
    const DType operand = e->args[0]->type;
    const char* type = value_type(operand);
    const char* sign = operand == DType::I32 || operand == DType::I64 ? "s" : "u";
    const char* name = quotient ? "div" : "rem";
    if (operand != DType::U64 && kernel_.ranges.of(e->args[1]).lo >= 1)
      return value("{}{} {} {}, {}", sign, name, type, v[0], v[1]);
    return value("call {0} @kachel_{1}{2}_{0}({0} {3}, {0} {4})", type, sign, name, v[0], v[1]);
  }

  // The amount counts as unsigned; from the width on, everything is shifted out.
  std::string shift(const ExprRef& e, const std::vector<std::string>& v) {
    const DType operand = e->args[0]->type, amount_type = e->args[1]->type;
    const int width = ir::bits(operand);
    const char *type = value_type(operand), *from = value_type(amount_type);
    const bool arithmetic = e->op == Op::kShr && (operand == DType::I32 || operand == DType::I64);
    std::string inside = value("icmp ult {} {}, {}", from, v[1], width);
    std::string amount = value("select i1 {}, {} {}, {} {}", inside, from, v[1], from, arithmetic ? width - 1 : 0);
    if (ir::bits(amount_type) < width) amount = value("zext i32 {} to i64", amount);
    if (ir::bits(amount_type) > width) amount = value("trunc i64 {} to i32", amount);
    std::string result = value("{} {} {}, {}",
                               e->op == Op::kShl ? "shl"
                               : arithmetic      ? "ashr"
                                                 : "lshr",
                               type, v[0], amount);
    return arithmetic ? result : value("select i1 {}, {} {}, {} 0", inside, type, result, type);
  }

  const LoopKernel& kernel_;
  std::unordered_map<const ir::Var*, std::string> values_;
  std::unordered_map<const ir::Buffer*, std::string> bases_;
  std::unordered_map<const ir::Buffer*, int> scopes_;
  std::unordered_map<std::string, int> scope_ids_;
  std::vector<const LoopBuffer*> spilled_;
  std::string text_, allocas_, block_label_, functions_;
  std::unordered_map<std::string, size_t> micro_kernels_;
  int next_ = 0;
  bool reassociate_ = false;
  bool streams_ = false;
};

}  // namespace

std::string emit_llvm(const LoopKernel& kernel) {
  return Emitter(kernel).run();
}

}  // namespace kachel::lowering
