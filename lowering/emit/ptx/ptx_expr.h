// Expressions of loop IR as PTX. Operands that an expression may leave out are computed nevertheless, and what they
// load is loaded under a guard.
#pragma once
#include "lowering/emit/ptx/ptx_memory.h"

namespace kachel::lowering::ptx {

class Expressions {
 public:
  Expressions(const LoopKernel& kernel, Code* code, Memory* memory) : kernel_(kernel), code_(*code), memory_(*memory) {}

  void bind(const ir::VarRef& var, const Value& value) {
    names_.insert_or_assign(var.get(), value);
    ++bound_[value.text];
  }
  // How many names the value has had.
  int names_of(const Value& value) const {
    const auto found = bound_.find(value.text);
    return found == bound_.end() ? 0 : found->second;
  }
  // A register that is the variable's alone, so that what is known of the one holds for the other.
  void bind_own(const ir::VarRef& var, const Value& value);
  Value of(const ir::ExprRef& expr);
  // An element's address. Overflow of the index does not matter.
  Place place(const ir::BufferRef& buffer, const ir::ExprRef& index);

  // The number of the thread's warp group, the same in a warp's lanes.
  void set_warp_group(const Value& value) { warp_group_ = value; }
  // What has no code here, "": there is code for all.
  const std::string& missing() const { return missing_; }
  Value lacks(const std::string& what, Class kind = Class::kB32);

 private:
  Value load_nibble(const ir::ExprRef& expr);
  std::optional<Value> integer_and_more(const ir::ExprRef& expr);
  Value cast(const ir::ExprRef& expr);
  Value apply(const ir::ExprRef& expr);
  void compare_multiples(const ir::Expr& comparison, std::vector<Value>* args);
  Value function(const ir::ExprRef& expr, const std::vector<Value>& args);
  std::pair<Value, Value> magnitude(const ir::ExprRef& x);
  Value quotient(const ir::ExprRef& expr, const Value& a, const Value& b, bool rest);
  Value rounded_up(const ir::ExprRef& expr, const Value& a, const Value& b);
  Value low(const ir::ExprRef& expr);   // modulo 2^32
  Value wide(const ir::ExprRef& expr);  // of 64 bits, if nothing overflows

  const LoopKernel& kernel_;
  Code& code_;
  Memory& memory_;
  std::unordered_map<const ir::Var*, Value> names_;
  std::unordered_map<std::string, int> bound_;
  std::optional<Value> warp_group_;
  std::string missing_;
};

// Of values of the type as they are computed with: "s32", "u64", "f32", ...; the registers; bits.
const char* number_type(ir::DType type);
Class class_of_type(ir::DType type);
int width_of_type(ir::DType type);

}  // namespace kachel::lowering::ptx
