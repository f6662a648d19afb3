// From LLVM IR as text to a relocatable object: parse, verify, optimise, emit.
#pragma once
#include <chrono>
#include <string>

#include "runtime/llvm/llvm_module.h"

namespace kachel::llvm_module {

// What one compilation owns. LLVM's fatal errors leave generate_object by a long jump, over the heads of destructors,
// so everything of consequence hangs off this object, which the thread that catches the jump still holds.
class Codegen {
 public:
  explicit Codegen(const KachelLlvmRequest& request);
  ~Codegen();
  Codegen(const Codegen&) = delete;
  Codegen& operator=(const Codegen&) = delete;

  // Returns a KACHEL_LLVM_ status. Called once.
  int32_t run();
  std::string take_object();
  std::string& log() { return log_; }

 private:
  struct State;

  int32_t parse();
  int32_t create_target();
  int32_t check_entry();
  void prepare_functions();
  void optimize();
  int32_t emit();
  bool expired() const;
  void note(const std::string& line);

  const KachelLlvmRequest& request_;
  const std::chrono::steady_clock::time_point begin_;
  std::string log_;
  State* state_;  // owned
};

}  // namespace kachel::llvm_module
