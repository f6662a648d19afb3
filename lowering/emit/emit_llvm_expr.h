// Expressions of loop IR as LLVM IR text: part of emit_llvm(). Instructions are appended to the text as they are
// needed.
#pragma once
#include <fmt/format.h>

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lowering/emit/emit.h"

namespace kachel::lowering {

namespace llvm_text {

const char* value_type(ir::DType type);   // of a value in a register
const char* memory_type(ir::DType type);  // of an element in memory

}  // namespace llvm_text

class LlvmExpressions {
 protected:
  explicit LlvmExpressions(const LoopKernel& kernel) : kernel_(kernel) {}

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

  // The register, or constant, that holds the value; an element's address; the raw element of a type to and from its
  // value.
  std::string expr(const ir::ExprRef& e);
  std::string address(const ir::BufferRef& buffer, const ir::ExprRef& index);
  std::string index64(const ir::ExprRef& index);
  std::string from_memory(ir::DType type, const std::string& raw);
  std::string to_memory(ir::DType type, const std::string& v);
  std::string alias_of(const ir::BufferRef& buffer);

  const LoopKernel& kernel_;
  std::unordered_map<const ir::Var*, std::string> values_;
  std::unordered_map<const ir::Buffer*, std::string> bases_;
  std::unordered_map<const ir::Buffer*, int> scopes_;
  std::string text_, block_label_;
  int next_ = 0;
  bool reassociate_ = false;

 private:
  std::string load(const ir::ExprRef& e);
  std::string unsigned_as_float(const std::string& number, ir::DType type);
  std::string cast(ir::DType to, const ir::ExprRef& arg);
  std::string lazily(const std::string& condition, bool when, const char* type,
                     const std::function<std::string()>& value_if, const std::function<std::string()>& other);
  std::string apply(const ir::ExprRef& e);
  std::string compare(ir::Op op, ir::DType type, const std::string& a, const std::string& b);
  std::string float_op(const ir::ExprRef& e, const std::vector<std::string>& v);
  std::string integer_op(const ir::ExprRef& e, const std::vector<std::string>& v);
  std::string divide(bool quotient, const ir::ExprRef& e, const std::vector<std::string>& v);
  std::string shift(const ir::ExprRef& e, const std::vector<std::string>& v);
};

}  // namespace kachel::lowering
