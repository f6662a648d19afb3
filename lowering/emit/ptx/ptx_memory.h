// Buffers of loop IR in PTX: tensors and scratch in global memory, tiles in shared memory, and arrays of the thread,
// whose elements are registers: of 16- and 8-bit types two and four to a word.
#pragma once
#include <algorithm>
#include <functional>
#include <unordered_map>

#include "lowering/emit/ptx/ptx_code.h"
#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering::ptx {

// kCluster: the shared memory of any block of the cluster.
enum class Space : uint8_t { kRegister, kShared, kCluster, kGlobal };

struct Buffer {
  Space space = Space::kRegister;
  ir::DType type = ir::DType::F32;
  Value base;                    // of memory: the address of the first element; shared memory's has 32 bits
  std::vector<Value> registers;  // of kRegister
  bool raw = false;              // one to an element, whose bits are the lowest
  int64_t elements = 0;          // of kRegister

  int64_t each() const { return raw ? 1 : std::max(32 / ir::bits(type), 1); }  // elements to a register
};

// Where an access goes: base + offset bytes; or, in registers, the element. `type`: what is accessed, the buffer's
// elements or the same memory as something else.
struct Place {
  const Buffer* buffer = nullptr;
  ir::DType type = ir::DType::F32;
  Value address;
  int64_t offset = 0;
  int64_t element = 0;
  bool in_registers() const { return buffer->space == Space::kRegister; }
  std::string text() const { return fmt::format("[{}+{}]", address.text, offset); }
};

// Registers as one operand of an instruction.
std::string braced(const std::vector<std::string>& registers);

class Memory {
 public:
  explicit Memory(Code* code) : code_(*code) {}

  void declare(const ir::BufferRef& buffer, Buffer made) { buffers_.insert_or_assign(buffer.get(), std::move(made)); }
  const Buffer& of(const ir::BufferRef& buffer) const { return buffers_.at(buffer.get()); }
  // A register array. `zeroed`: holds zeros.
  void declare_registers(const LoopBuffer& buffer);

  // The element's value in its compute type; what is in memory is read under the guard. No 4-bit types.
  Value load(const Place& place);
  void store(const Place& place, const Value& value, bool only_use);
  // To the same place in the shared memory of each block of the cluster.
  void store_to_blocks(const Place& place, const Value& value, int blocks);
  // The element as it is.
  Value load_bits(const Place& place);
  void store_bits(const Place& place, const Value& value);
  // to = from, so many bytes, 1, 2, 4, 8 or 16; zeros where the guard does not hold. False: there is no code for it.
  bool copy(const Place& to, const Place& from, int64_t bytes, const Value& guard);

  // The same place as one of numbers without a sign, of 1, 2 or 4 bytes.
  static Place in_bytes(Place place, int64_t bytes);
  // The words of 32 bits from an element of a register array on.
  std::vector<std::string> words(const Place& place, int64_t count) const;
  void written(const Place& place, int64_t words);
  // An 8-bit float in the lowest byte of a word; too large ones become the largest.
  Value to_f8(const Value& number, ir::DType type);
  Value from_f8(const Value& bits, ir::DType type);
  // Two of them, in 16 bits, as f16 in a word.
  Value f16_pair(const Value& pair, ir::DType type);
  // Two elements of 16 bits from a word.
  std::pair<Value, Value> halves(const std::string& word);

 private:
  // By a conversion that makes 0 of 0.
  Value widened(const Value& bits, const std::function<Value(const Value&)>& conversion);
  Value part_of_word(const Place& place, bool is_signed);
  std::vector<std::string> parts(const Place& place, int64_t bytes) const;
  void fill_word(const Place& place, const Value& value);

  Code& code_;
  std::unordered_map<const ir::Buffer*, Buffer> buffers_;
};

}  // namespace kachel::lowering::ptx
