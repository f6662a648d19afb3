// A launch's arguments: random tensors on the device, with the host's copy of what they held before; for commands that
// run nothing, memory alone.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "numbers.h"
#include "program.h"

namespace kachel::cli {

class Arguments {
 public:
  // Draws the elements and copies them to `device`. Both sources must outlive the result.
  static Outcome<std::unique_ptr<Arguments>> make(const Session& session, const Program& program, kachel_device device,
                                                  const Options& options);
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  const kachel_arg* data() const { return args_.data(); }
  size_t size() const { return args_.size(); }
  int64_t tensor_bytes() const;

  // Compares what one launch left on the device with the reference interpreter. `configuration` may be empty.
  Outcome<kachel_check_result> check(const kachel_kernel* kernel, const std::string& configuration) const;

 private:
  struct Tensor {
    kachel_tensor view{};
    std::vector<int64_t> shape, strides;
    std::vector<std::byte> before;
  };
  Arguments(const Session& session, kachel_device device) : session_(session), device_(device) {}
  Outcome<> add_tensor(const Parameter& parameter, const Options& options, uint64_t seed);

  const Session& session_;
  const kachel_device device_;
  std::vector<std::unique_ptr<Tensor>> tensors_;  // args_ point into them
  std::vector<kachel_arg> args_;
};

}  // namespace kachel::cli
