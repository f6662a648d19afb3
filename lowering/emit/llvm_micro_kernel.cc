// The micro-kernel in LLVM IR: a function of its own, so that the registers of its loop are its alone.
#include <fmt/format.h>

#include "lowering/emit/emit.h"

namespace kachel::lowering {

std::string micro_kernel_key(const LoopMicroKernel& m) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {}", m.rows, m.columns, m.depth, m.lanes, m.c_row, m.a_row, m.a_step,
                     m.b_step, m.accumulate, static_cast<int>(m.pairs));
}

std::string emit_micro_kernel(const LoopMicroKernel& micro, const std::string& name) {
  constexpr int64_t kUnroll = 4;
  const int64_t vectors = micro.columns / micro.lanes, rows = micro.rows;
  const bool pairs = micro.pairs != Target::Dot16::kNone;
  const char* element = pairs ? "i32" : "float";
  const std::string type = fmt::format("<{} x {}>", micro.lanes, element);
  std::string text;
  int next = 0;
  auto line = [&]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    text += "  " + fmt::format(format, std::forward<Args>(args)...) + "\n";
  };
  auto value = [&]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    std::string result = fmt::format("%v{}", next++);
    text += "  " + result + " = " + fmt::format(format, std::forward<Args>(args)...) + "\n";
    return result;
  };
  auto c_address = [&](int64_t m, int64_t n) {
    return value("getelementptr inbounds {}, ptr %c, i64 {}", element, m * micro.c_row + n * micro.lanes);
  };
  using Sums = std::vector<std::string>;  // [row * vectors + vector]
  // One step of k: the rows of A and B begin at the two pointers.
  auto step = [&](Sums* sums, const std::string& a, const std::string& b, int64_t k) {
    std::vector<std::string> columns;
    for (int64_t n = 0; n < vectors; ++n) {
      std::string at =
          value("getelementptr inbounds {}, ptr {}, i64 {}", element, b, k * micro.b_step + n * micro.lanes);
      columns.push_back(value("load {}, ptr {}, align 4", type, at));
    }
    for (int64_t m = 0; m < rows; ++m) {
      std::string at =
          value("getelementptr inbounds {}, ptr {}, i64 {}", element, a, m * micro.a_row + k * micro.a_step);
      std::string scalar = value("load {}, ptr {}, align 4", element, at);
      std::string first = value("insertelement {} poison, {} {}, i64 0", type, element, scalar);
      std::string all =
          value("shufflevector {0} {1}, {0} poison, <{2} x i32> zeroinitializer", type, first, micro.lanes);
      for (int64_t n = 0; n < vectors; ++n) {
        std::string& sum = (*sums)[static_cast<size_t>(m * vectors + n)];
        const std::string& column = columns[static_cast<size_t>(n)];
        if (micro.pairs == Target::Dot16::kFused && micro.lanes == 16) {
          sum = value("call {0} @llvm.x86.avx512.vpdpwssd.512({0} {1}, {0} {2}, {0} {3})", type, sum, all, column);
        } else if (pairs) {
          const char* name = micro.lanes == 16  ? "avx512.pmaddw.d.512"
                             : micro.lanes == 8 ? "avx2.pmadd.wd"
                                                : "sse2.pmadd.wd";
          const std::string halves = fmt::format("<{} x i16>", 2 * micro.lanes);
          std::string a16 = value("bitcast {} {} to {}", type, all, halves);
          std::string b16 = value("bitcast {} {} to {}", type, column, halves);
          std::string product = value("call {0} @llvm.x86.{1}({2} {3}, {2} {4})", type, name, halves, a16, b16);
          sum = value("add {} {}, {}", type, sum, product);
        } else {
          std::string product = value("fmul contract {} {}, {}", type, all, column);
          sum = value("fadd contract {} {}, {}", type, sum, product);
        }
      }
    }
  };

  Sums sums;
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t n = 0; n < vectors; ++n)
      sums.push_back(micro.accumulate ? value("load {}, ptr {}, align 4", type, c_address(m, n)) : "zeroinitializer");
  const int64_t rounds = micro.depth / kUnroll;
  std::string a = "%a", b = "%b";
  if (rounds > 0) {
    line("br label %loop");
    std::string before = text;
    text.clear();
    Sums phis;
    for (size_t i = 0; i < sums.size(); ++i) phis.push_back(fmt::format("%sum{}", i));
    Sums updated = phis;
    for (int64_t k = 0; k < kUnroll; ++k) step(&updated, "%a_now", "%b_now", k);
    std::string body = std::exchange(text, "");
    text = before + "loop:\n";
    line("%round = phi i64 [ 0, %entry ], [ %round_next, %loop ]");
    line("%a_now = phi ptr [ %a, %entry ], [ %a_next, %loop ]");
    line("%b_now = phi ptr [ %b, %entry ], [ %b_next, %loop ]");
    for (size_t i = 0; i < sums.size(); ++i)
      line("{} = phi {} [ {}, %entry ], [ {}, %loop ]", phis[i], type, sums[i], updated[i]);
    text += body;
    line("%a_next = getelementptr inbounds {}, ptr %a_now, i64 {}", element, kUnroll * micro.a_step);
    line("%b_next = getelementptr inbounds {}, ptr %b_now, i64 {}", element, kUnroll * micro.b_step);
    line("%round_next = add nuw nsw i64 %round, 1");
    line("%more = icmp ult i64 %round_next, {}", rounds);
    line("br i1 %more, label %loop, label %rest");
    text += "rest:\n";
    sums = updated;
    a = "%a_next", b = "%b_next";
  }
  for (int64_t k = 0; k < micro.depth % kUnroll; ++k) step(&sums, a, b, k);
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t n = 0; n < vectors; ++n)
      line("store {} {}, ptr {}, align 4", type, sums[static_cast<size_t>(m * vectors + n)], c_address(m, n));
  line("ret void");
  return fmt::format(
      "\ndefine internal void @{}(ptr noalias %c, ptr noalias readonly %a, ptr noalias readonly %b) #3 "
      "{{\nentry:\n{}}}\n",
      name, text);
}

}  // namespace kachel::lowering
