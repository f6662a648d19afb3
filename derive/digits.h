// Counters of which only a quotient and a remainder are used: `g = h / (H / G)`, `tap = k / chunks` beside
// `c = k % chunks * BK`. Each is then two counters, of which an operand may depend on one alone. Private to derive/.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "derive/lets.h"

namespace kachel::derive {

struct Digits {
  ir::VarRef of;
  ir::ExprRef by;                   // of dimensions, constants and tunables; lets written out
  ir::IterVar quotient, remainder;  // new variables; without a `var` where it does not occur

  // What the digit is where the counter itself is there.
  ir::ExprRef value_of(const ir::VarRef& digit) const;
};

// Of a counter from 0 to its extent, if every use of it in the statements is a quotient or a remainder by one divisor.
// prefix: what the names of the new variables begin with.
std::optional<Digits> digits_of(const ir::IterVar& counter, const std::vector<const ir::Stmt*>& statements, Lets& lets,
                                const std::string& prefix);

// With those variables in the places of quotients and remainders. lets: to be written out in divisors.
ir::ExprRef in_digits(const ir::ExprRef& expr, const std::vector<Digits>& digits, Lets& lets);
// The same in copies, fills, lets and regions.
ir::Block in_digits(ir::Block block, const std::vector<Digits>& digits, Lets& lets);

}  // namespace kachel::derive
