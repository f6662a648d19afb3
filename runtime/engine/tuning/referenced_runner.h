// A runner whose prepare() can be told which attempt to make, by a host in another process.
#pragma once
#include "tuner/runner.h"

namespace kachel::runtime {

// What candidates are compared with is made by one of twice as many attempts as there are candidates, from the first on
// that is worth one. Those behind the first half run candidate `attempt - candidates`.
class ReferencedRunner : public tuner::CandidateRunner {
 public:
  virtual size_t first_attempt() const = 0;
  virtual Status make_reference(size_t attempt) = 0;
};

}  // namespace kachel::runtime
