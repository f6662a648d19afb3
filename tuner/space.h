// A search space as a program declares it: axes with the values to try, and a predicate that prunes.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "support/status.h"
#include "tuner/configuration.h"

namespace kachel::tuner {

struct Axis {
  std::string name;
  std::vector<int64_t> values;  // in the order to try them; each once
};

class SearchSpace {
 public:
  // False drops the configuration. Called once for each point, in declared order.
  using Where = std::function<bool(const Configuration&)>;

  static constexpr size_t kMaxConfigurations = 4096;     // left after pruning
  static constexpr size_t kMaxPoints = size_t{1} << 20;  // before pruning

  explicit SearchSpace(std::vector<Axis> axes, Where where = {}) : axes_(std::move(axes)), where_(std::move(where)) {}

  const std::vector<Axis>& axes() const { return axes_; }
  // Every configuration that `where` keeps, in declared order: the first axis varies slowest. Without axes that is the
  // one empty configuration. kInvalid if the axes are malformed, the space is too large or nothing is left.
  Result<std::vector<Configuration>> enumerate() const;

 private:
  Result<size_t> count_points() const;

  std::vector<Axis> axes_;
  Where where_;
};

}  // namespace kachel::tuner
