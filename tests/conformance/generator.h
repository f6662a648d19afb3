// Random valid tile programs, as text, with arguments to run them on.
#pragma once
#include "tests/conformance/runner.h"

namespace kachel::conformance {

struct Program {
  std::string text;
  Case test;            // named p<seed>
  ir::Kernel concrete;  // of test
};

// The same seed gives the same program. kInternal, with the text, if the program is refused: a defect of the generator
// or of the verifier.
Result<Program> generate(uint64_t seed);

}  // namespace kachel::conformance
