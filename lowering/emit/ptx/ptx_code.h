// PTX under construction: virtual registers, instructions, and what keeps their number small. NVRTC takes 60 us of its
// optimiser's time for each instruction, so none is written that a constant, an earlier result or an address's offset
// can stand for; the assembler does the rest. Source of the syntax: PTX ISA 9.0.
//
// Registers are written once, but for variables (elements of register arrays, mostly) and loop counters. A result is
// found again where its instruction dominates (scopes) and none of its operands has been written since (versions).
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace kachel::lowering::ptx {

enum class Class : uint8_t { kPred, kB16, kB32, kB64, kF32 };

struct Value {
  std::string text;  // a register or a literal
  Class kind = Class::kB32;
  std::optional<int64_t> constant;  // of integers, sign-extended, and of predicates
  bool is(int64_t value) const { return constant == value; }
};

class Code {
  struct Resting {
    uint32_t bits;
    std::string value;
  };

 public:
  Value fresh(Class kind);
  static Value integer(int64_t value, int bits);
  static Value truth(bool value);
  static Value number(float value);

  // A line, under the guard where one is set and `guarded`. `removable`: there for its result only.
  void say(const std::string& line, bool guarded = false, bool removable = false);
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    say(fmt::format(format, std::forward<Args>(args)...));
  }
  size_t lines() const { return lines_.size(); }
  void label(const std::string& name) { say(name + ":"); }
  std::string new_label() { return fmt::format("L{}", labels_++); }

  // instruction result, operands; once for the same operands.
  Value pure(Class kind, const char* instruction, const std::vector<Value>& operands);

  // Integers of one width, wrapping.
  Value add(const Value& a, const Value& b);
  Value sub(const Value& a, const Value& b);
  Value mul(const Value& a, const Value& b);
  Value bits(const char* op, const Value& a, const Value& b);  // "and", "or", "xor"
  Value shift(const Value& a, const Value& amount, bool left, bool is_signed);
  Value widened(const Value& a, bool is_signed);  // to 64 bits
  Value narrowed(const Value& a);                 // to 32
  // Predicates.
  Value both(const Value& a, const Value& b);
  Value either(const Value& a, const Value& b);
  Value opposite(const Value& a);
  // `type` is that of the operands, as "s32"; `op` as "lt".
  Value compare(const char* op, const char* type, const Value& a, const Value& b);
  // Of integers; `type` as in compare().
  Value magnitude(const Value& a);  // of one with a sign
  Value extremum(bool minimum, const char* type, const Value& a, const Value& b);
  Value select(const Value& condition, const Value& yes, const Value& no);
  Value in_register(const Value& value);  // of a literal

  // value = base + offset, as far as is known.
  struct Sum {
    Value base;
    int64_t offset = 0;
  };
  Sum split(const Value& value) const;
  // value = base ^ mask, as far as is known: of places in swizzled tiles, which sums and products leave as they are.
  struct Flip {
    Value base;
    int64_t mask = 0;
  };
  std::optional<Flip> flipped(const Value& value) const;

  // value = (bits [first, first + bits) of a word ^ flip) + offset, as far as is known and while the word is what it
  // was.
  struct Field {
    Value word;
    int first = 0, bits = 32;
    int64_t flip = 0, offset = 0;
  };
  std::optional<Field> field(const Value& value) const;
  void note_field(const Value& made, const Field& field);
  // The value, a number with a sign or without, as a float, and an integer added to that, where it is a field that a
  // mantissa has room for.
  std::optional<Value> part_as_number(const Value& value, bool is_signed, double addend);

  // What is known of the bits of an integer.
  struct Bits {
    uint64_t most = ~uint64_t{0};  // without a sign; all ones of the width: nothing
    int zeros = 0;                 // so many of the lowest are 0
  };
  Bits bits_of(const Value& value) const;
  // A value that was made elsewhere is in [0, most]; so many of its lowest bits are 0.
  void at_most(const Value& value, uint64_t most, int zeros = 0) {
    bits_.insert_or_assign(value.text, Bits{most, zeros});
  }
  // Not negative as a signed number.
  bool natural(const Value& value) const;

  // A register that is written more than once; no predicate.
  Value variable(Class kind);
  void written(const Value& variable) { ++versions_[variable.text]; }
  // variable = value; as the result of the instruction before where that made it for nothing else.
  void assign(const Value& variable, const Value& value, bool only_use);
  Value settled(const Value& value);  // what a variable is now
  // Behind and at the head of loops: any variable may have changed.
  void forget_variables() { ++epoch_; }

  // Results found from here on are forgotten at the end: code that may not be reached.
  class Scope {
   public:
    explicit Scope(Code* code) : code_(code) { code_->results_.emplace_back(); }
    ~Scope() { code_->results_.pop_back(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Code* code_;
  };
  // Loads and stores within are done only where the condition holds.
  class Guard {
   public:
    Guard(Code* code, const Value& condition) : code_(code), before_(code->guard_) {
      if (!condition.is(1)) code_->guard_ = before_ ? code_->both(*before_, condition) : condition;
    }
    ~Guard() { code_->guard_ = before_; }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Code* code_;
    std::optional<Value> before_;
  };

  // The condition, where a guard's holds too.
  Value guarded(const Value& condition) { return guard_ ? both(*guard_, condition) : condition; }

  // What loads within leave where a guard keeps them from being done, in place of zero: the bits of a register, which a
  // conversion makes `value` of.
  class Rest {
   public:
    Rest(Code* code, uint32_t bits, const Value& value) : code_(code), before_(code->rest_) {
      code_->rest_ = Resting{bits, value.text};
    }
    ~Rest() { code_->rest_ = before_; }
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;

   private:
    Code* code_;
    std::optional<Resting> before_;
  };

  // The register of a load that follows: zero, or what Rest says, where a guard may keep the load from being done.
  // ptxas 13.0 takes one guarded load for another of the same address where neither says what is there otherwise.
  // Nothing then has to choose behind the load: a choice holds a predicate until the load is done, and a thread has
  // seven.
  Value loaded(Class kind);
  // `made` is what `from` is where no load was done.
  void same_rest(const Value& from, const Value& made);

  std::string declarations() const;
  // All lines but those whose results nobody asks for.
  std::string text() const;

 private:
  std::string key(const char* instruction, const std::vector<Value>& operands) const;

  struct Line {
    std::string text;
    bool removable;
  };
  Value noted(const Value& made, Bits bits);
  Value exclusive(const Value& a, const Value& b);
  // `made` is `from` without its lowest places, but for its lowest bits, or with the mask's bits exchanged.
  void note_shifted(const Value& made, const Value& from, int places);
  void note_masked(const Value& made, const Value& from, int bits);
  void note_flipped(const Value& made, const Value& from, int64_t mask);
  // A part of data (a word that is written more than once) so many places up, straight from its word.
  std::optional<Value> shifted_part(const Value& value, int places);
  std::optional<Sum> shifted_sum(const Sum& sum, int n, int size);

  std::vector<Line> lines_;
  std::string last_key_;  // of the last line, if that is a pure instruction
  int counts_[5] = {};
  int labels_ = 0, epoch_ = 0;
  std::vector<std::unordered_map<std::string, Value>> results_{1};  // by instruction and operands, a map a scope
  std::unordered_map<std::string, int> versions_;
  std::unordered_map<std::string, Sum> sums_;
  std::unordered_map<std::string, Flip> flips_;
  struct Part {
    Field field;
    int version, epoch;  // of its word
  };
  std::unordered_map<std::string, Part> fields_;
  std::unordered_map<std::string, Value> narrow_;  // of registers that a widening made
  std::unordered_map<std::string, Bits> bits_;
  // Of registers that rest at a value, "" for zero, where a guard does not hold.
  struct Guarded {
    std::string guard, rest;
  };
  std::unordered_map<std::string, Guarded> guards_;
  std::optional<Value> guard_;
  std::optional<Resting> rest_;
};

}  // namespace kachel::lowering::ptx
