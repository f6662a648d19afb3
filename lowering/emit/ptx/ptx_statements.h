// Statements and intrinsics of loop IR as PTX: part of emit_ptx().
#pragma once
#include "lowering/emit/emit.h"
#include "lowering/emit/ptx/ptx_expr.h"

namespace kachel::lowering::ptx {

// Of straight code (ptx_pieces.cc).
struct Pieces {
  bool allowed = true;  // false: in a branch, in a loop within the code, or beside products under way
  bool within = false;  // an unrolled loop
  size_t begin = 0;     // the line where the present piece began
  bool first = true;    // nothing has been cut yet
  std::string end;      // the label behind the present piece; empty: there is none
};

// Of warp groups.
struct Products {
  bool in_loop = false;    // in a loop around this statement
  bool under_way = false;  // may not have been waited for
};

class Statements {
 public:
  // `bounded`: as for emit_cuda().
  Statements(const LoopKernel& kernel, bool bounded, Code* code);

  void block(const LoopBlock& body);
  // From here on the producer's threads run.
  void set_producing() { producing_ = true; }

  int consumers() const { return kernel_.block_threads(); }
  bool has_producer() const { return !kernel_.producer.empty(); }
  Expressions& expressions() { return expressions_; }
  Memory& memory() { return memory_; }
  // %tid.x, %ctaid.x and %nctaid.x.
  const Value& tid() const { return tid_; }
  const Value& block_number() const { return block_; }
  const Value& blocks() const { return blocks_; }
  Value map(int64_t number);                                    // the address of a tensor map
  Value thread() const;                                         // the number of one of those that share a thread loop
  void cluster_barrier(const char* arrival, const char* wait);  // of all threads of its blocks
  // Where blocks compute a tile together: nobody writes to the memory of one before that has begun, so all say that
  // they have, and wait in front of the first statement of the tile that writes.
  void wait_for_blocks();
  void wait_for_box_stores(int64_t left);  // until at most so many of the warp's are still to be read
  // if (condition) { then() } else { otherwise() }
  template <class Then, class Else>
  void branch(const Value& condition, const Then& then, const Else& otherwise);
  template <class Then>
  void when(const Value& condition, const Then& then);
  // for (counter = begin; counter < end; counter += step) body(counter), with a condition behind each iteration
  template <class Body>
  void loop(const Value& begin, const Value& end, const Value& step, const char* type, const Body& body);

 private:
  void statement(const LoopLet& let);
  void statement(const LoopStore& store);
  void statement(const LoopAtomic& atomic);
  void statement(const LoopFor& loop);
  void statement(const LoopThreads& threads);
  void statement(const LoopIf& branch);
  void lower_branch(const LoopIf& branch);
  bool stores_alone(const LoopBlock& body) const;
  void statement(const LoopBarrier&);
  void statement(const LoopIntrinsic& node);
  void statement(const LoopShuffle& node);
  void statement(const LoopComment&) {}
  void statement(const LoopPipeline&) {}  // synchronise() leaves none
  void statement(const LoopMicroKernel&) {}
  void statement(const LoopStream&) {}
  void statement(const LoopTranspose&) {}
  void statement(const LoopPrefetch&) {}

  void float_extremum(bool maximum, const Place& place, const Value& value);
  void copy_vector(const LoopIntrinsic& node);
  void copy_async(const LoopIntrinsic& node);
  void load_shifted(const LoopIntrinsic& node);
  void store_shifted(const LoopIntrinsic& node);
  void store_row(const LoopIntrinsic& node);
  void store_part(const Value& address, const std::vector<Value>& words, Value first, const Value& end);
  void load_matrix(const LoopIntrinsic& node);
  void mma(const LoopIntrinsic& node);
  void dot4(const LoopIntrinsic& node);
  void quad_exchange(const LoopIntrinsic& node);
  void quad_join(const LoopIntrinsic& node);
  void turn_matrix(const LoopIntrinsic& node);
  Value own_bytes(const Place& place);
  void unpack(const LoopIntrinsic& node);
  Value taken_pair(const LoopIntrinsic& node, float offset);
  void unpack_bytes(const LoopIntrinsic& node);
  void unpack_words(const LoopIntrinsic& node);
  void unpack_floats(const LoopIntrinsic& node);
  void look_up(const LoopIntrinsic& node);
  void convert_pair(const LoopIntrinsic& node);
  void packed_math(const LoopIntrinsic& node);
  void bulk_copy(const LoopIntrinsic& node);
  void add_vector(const LoopIntrinsic& node);
  void bulk_store(const LoopIntrinsic& node);
  void turn(const char* operation, const LoopIntrinsic& node);
  void phase_wait(const LoopIntrinsic& node);
  void group_fence(const LoopIntrinsic& node);
  void phase_arrive(const LoopIntrinsic& node);
  void group_products(const GroupRun& run);

  Place at(const LoopIntrinsic& node, size_t operand) {
    return expressions_.place(node.operands[operand].buffer, node.operands[operand].index);
  }
  Value condition(const ir::ExprRef& guard) { return guard ? expressions_.of(guard) : Code::truth(true); }
  int sharers() const { return producing_ ? kernel_.copiers : kernel_.threads; }
  Value first_of(int64_t threads);  // that many neighbours, a power of two
  Value first_producer();
  Value peers(const LoopIntrinsic& node);
  std::string coordinates(const LoopIntrinsic& node);
  static int64_t bytes_of(const LoopIntrinsic& node);  // that a copy moves
  static bool arrives_alone(const LoopBlock& body);
  bool ends_here(const ir::ExprRef& value, const Value& made);
  void only_where(const Value& condition, const std::string& line);
  // In front of an iteration of an unrolled loop: begins a piece, if the present one is long enough.
  void cut_here();
  void close_piece();
  // In front of iteration `at` of a loop of which `apart` are to be kept apart from others (LoopFor).
  void keep_apart(const Value& at, int64_t apart, const char* type);
  // Whether products of warp groups stand in the block, and whether some do, its loops left out but for unrolled ones.
  static bool multiplies(const LoopBlock& body);
  static bool multiplies_alone(const LoopBlock& body);

  const LoopKernel& kernel_;
  const bool bounded_;
  Code& code_;
  Memory memory_;
  Expressions expressions_;
  Value tid_, block_, blocks_;
  const LoopBlock* body_ = nullptr;  // the statement is number `at_` of it
  size_t at_ = 0;
  // Of the names of a block, the last statement of it that mentions them.
  std::unordered_map<const LoopBlock*, std::unordered_map<const ir::Var*, size_t>> lives_;
  bool producing_ = false;
  bool waits_for_blocks_ = false;  // still to be done
  Pieces pieces_;
  Products products_;
  int64_t exits_ = 0;
};

template <class Then, class Else>
void Statements::branch(const Value& condition, const Then& then, const Else& otherwise) {
  if (condition.constant) return condition.is(0) ? otherwise() : then();
  const std::string other = code_.new_label(), end = code_.new_label();
  code_.line("@!{} bra {};", condition.text, other);
  {
    const Code::Scope scope(&code_);
    then();
  }
  code_.line("bra.uni {};", end);
  code_.label(other);
  {
    const Code::Scope scope(&code_);
    otherwise();
  }
  code_.label(end);
}

template <class Then>
void Statements::when(const Value& condition, const Then& then) {
  if (condition.constant) return condition.is(0) ? void() : then();
  const std::string end = code_.new_label();
  code_.line("@!{} bra {};", condition.text, end);
  {
    const Code::Scope scope(&code_);
    then();
  }
  code_.label(end);
}

template <class Body>
void Statements::loop(const Value& begin, const Value& end, const Value& step, const char* type, const Body& body) {
  const std::string head = code_.new_label(), behind = code_.new_label();
  const Value counter = code_.fresh(begin.kind), last = code_.settled(end);
  code_.line("mov.{} {}, {};", begin.kind == Class::kB64 ? "b64" : "b32", counter.text, begin.text);
  const Value any = code_.compare("lt", type, begin, last);
  if (any.is(0)) return;
  if (!any.constant) code_.line("@!{} bra {};", any.text, behind);
  code_.forget_variables();
  {
    const Code::Scope scope(&code_);
    code_.label(head);
    code_.line(".pragma \"nounroll\";");
    body(counter);
    code_.line("add.{0} {1}, {1}, {2};", type, counter.text, step.text);
    const Value more = code_.fresh(Class::kPred);
    code_.line("setp.lt.{} {}, {}, {};", type, more.text, counter.text, last.text);
    code_.line("@{} bra {};", more.text, head);
  }
  code_.label(behind);
  code_.forget_variables();
}

}  // namespace kachel::lowering::ptx
