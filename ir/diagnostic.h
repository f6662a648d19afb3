// What a mistake in a program looks like: place, caret, message, and how to mend it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "support/status.h"

namespace kachel::ir {

// 1-based; length in bytes of the underlined text. line 0 means "no place" (a built program).
struct Loc {
  int line = 0, column = 0, length = 1;
};

struct Diagnostic {
  Loc loc;
  std::string message;  // "`Bs` is T[BN, BK], the gemm needs [BK, BN] on the right"
  std::string mend;     // "write `Bs^T`"; never empty
};

// file:line:column: error: message, the source line, a caret line, the mend.
std::string format(const Diagnostic& diagnostic, std::string_view file, std::string_view text);
// kInvalid with all diagnostics formatted, at most ten of them. REQUIRES: not empty.
Status to_status(const std::vector<Diagnostic>& diagnostics, std::string_view file, std::string_view text);

}  // namespace kachel::ir
