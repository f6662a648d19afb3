// Loop IR to text. Thin: one construct of loop IR becomes one construct of the target, and the preludes hold what the
// target has no construct for. No toolkit header is used, which keeps compilation short.
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

inline constexpr const char* kEntry = "kachel_kernel";

// __global__ void kachel_kernel(const __grid_constant__ kachel_params), params: one 8-byte slot a parameter. `overlaps`
// (sm_90): its launches may begin before what precedes them has ended, so it waits for that itself.
// `bounded`: who waits for 20 s at a barrier of phases traps, and each lane arrives at one by itself, which racecheck
// follows; a warp that arrives as one when its lanes have met it does not.
std::string emit_cuda(const LoopKernel& kernel, bool overlaps, bool bounded);
// The same kernel with a body of PTX, which compiles in little more than half of the time: NVRTC's optimiser has
// nothing to do. Empty where something in it has no code there, which `missing` then names. REQUIRES: sm_90.
std::string emit_ptx(const LoopKernel& kernel, bool overlaps, bool bounded, std::string* missing);
// void kachel_kernel(ptr params, i64 block_begin, i64 block_end, i64 blocks, ptr arena). REQUIRES: threads == 1.
std::string emit_llvm(const LoopKernel& kernel);

// A function void (ptr c, ptr a, ptr b) that does what the statement does at these addresses; it depends on the key
// alone.
std::string micro_kernel_key(const LoopMicroKernel& micro);
std::string emit_micro_kernel(const LoopMicroKernel& micro, const std::string& name);
// A function void (ptr to, i64 to_row, ptr from, i64 from_row): LoopTranspose from elements of this type.
std::string emit_transpose(ir::DType from, int64_t lanes, const std::string& name);

// kGroupMma that follow one another into the same registers, all but the first of them adding.
struct GroupRun {
  struct Product {
    int64_t a, b;  // operands behind those of the first: in registers, or in 16 bytes of shared memory
  };
  const LoopIntrinsic* first = nullptr;  // null: there is none at that place
  std::vector<Product> products;
};
GroupRun group_run(const LoopBlock& body, size_t at);
// An element's type in instructions of tensor cores, where f32 is tf32.
const char* tensor_core_type(ir::DType type);
// Of one product: the instruction with its types; what follows its operands: the signs of A and B, which integers do
// not know, then which of the operands in memory have k down their rows, for 16 bits.
std::string group_instruction(const LoopIntrinsic& mma);
std::string group_flags(const LoopIntrinsic& mma);
// The part of a matrix's descriptor that does not depend on the address: distances in 16 bytes, and the swizzle.
uint64_t matrix_descriptor(const LoopIntrinsic::MatrixView& view);
// A CUDA function for it, and a call with the operands of the first.
std::string group_run_function(const GroupRun& run);
std::string group_run_call(const GroupRun& run, const std::string& c, const std::string& a, const std::string& b);

// Device helpers of which an emitted CUDA text has those that it names (cuda_helpers.h).
extern const char* const kCudaPrelude;
extern const char* const kCudaPacked;     // kachel_unpack_u4_f16 and its like
extern const char* const kCudaMath;       // kachel_tanh and its like
extern const char* const kHopperPrelude;  // what only sm_90a has
// Helper functions that every emitted LLVM module begins with.
extern const char* const kLlvmPrelude;
extern const char* const kLlvmMath;  // kachel_exp and its like

// Letters, digits and underscores; whether `word` stands in the text by itself.
bool in_word(char c);
bool has_word(std::string_view text, std::string_view word);

// Identifiers: `acc_`, `acc_2`, ...: the program's name with an underscore, which no word that begins with a letter
// ends in, and a number where the name is taken. One that begins with an underscore gets a letter.
class Names {
 public:
  const std::string& of(const void* object, const std::string& name);

 private:
  std::unordered_map<const void*, std::string> names_;
  std::unordered_map<std::string, int> taken_;
};

}  // namespace kachel::lowering
