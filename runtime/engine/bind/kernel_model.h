// A kernel with its consts fixed, prepared for launching: everything that can be worked out before arguments are known.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/kernel.h"
#include "lowering/lower.h"
#include "runtime/engine/bind/bind_table.h"
#include "runtime/engine/bind/host_program.h"
#include "support/status.h"

namespace kachel::runtime {

// The value of a `const` parameter: `i` for integers and bools, `f` for f32.
struct ConstValue {
  std::string name;
  int64_t i = 0;
  double f = 0;
};

struct AxisModel {
  enum class Kind : uint8_t {
    kBind,   // the first use of dimension `dim`
    kCheck,  // a later one
    kValue,  // `program` gives the extent
    kTuned,  // its extent is kept as hidden dimension `dim`, which a condition on configurations compares
  } kind;
  int dim = -1;
  HostProgram program;
  std::string text;  // as written, for messages
};

struct ParamModel {
  std::string name;
  bool is_tensor = false;
  ir::Direction direction = ir::Direction::kIn;
  ir::DType dtype = ir::DType::F32;  // where symbol < 0
  int symbol = -1;                   // index of the type symbol
  std::vector<AxisModel> axes;       // tensors
  std::string shape;                 // "M, K"
};

struct Condition {
  HostProgram program;
  std::string text;
};

struct TunableModel {
  std::string name;
  std::vector<int64_t> values;  // empty where they are derived
  int64_t most = 0;             // of derived values, which are at least 1; 0: they are listed

  bool automatic() const { return most != 0; }
  bool allows(int64_t value) const;
};

// Values of the tunables, in their declared order.
using TunableValues = std::vector<int64_t>;

// Immutable; shared by every handle of the kernel.
struct KernelModel {
  // kInvalid for missing, unknown or ill-typed consts, kUnsupported past the limits above.
  static Result<std::shared_ptr<const KernelModel>> create(const ir::Kernel& kernel, std::span<const ConstValue> consts,
                                                           bool derived = false);
  // The same of what a program has of a kernel. `body` is its own, since there is nothing to lower.
  static Result<std::shared_ptr<const KernelModel>> create_header(const ir::Kernel& header,
                                                                  std::span<const ConstValue> consts, std::string body,
                                                                  bool derived = false);

  BindTable table;  // of what follows, for launches
  bool is_program = false;
  bool derived = false;  // by the engine: the host knows neither its name nor, of a program, its tunables
  ir::Kernel kernel;     // generic
  std::map<std::string, int64_t> int_consts;  // as ir::Bindings wants them
  std::map<std::string, double> float_consts;
  std::string body;  // ir::canonical_body()
  HostScope scope;   // of all host expressions
  std::vector<ParamModel> params;
  std::vector<int> tensors, scalars;  // indices of parameters
  std::vector<std::string> dims;      // names; hidden dimensions follow them without one
  int dim_slots = 0;                  // hidden ones included
  std::vector<std::string> types;
  std::vector<std::vector<ir::DType>> type_options;
  std::vector<int> static_dims;  // indices of dims
  std::vector<lowering::Fact> facts;
  std::vector<HostProgram> keys;
  std::vector<HostProgram> grid;      // extents, slowest axis first
  std::vector<Condition> where;       // must hold for every launch
  std::vector<Condition> conditions;  // mention tunables: they prune configurations
  // Dimensions and scalars that `conditions` read: they are part of a dispatch signature beside the key.
  std::vector<int> condition_dims, condition_scalars;
  std::vector<TunableModel> tunables;
  int threads_tunable = -1;   // the one named `threads`, which sets the threads of a block
  int cluster_tunable = -1;   // the one named `cluster`: blocks that may copy for each other
  int columns_tunable = -1;   // the one named `cluster_columns`: of these, along the axis that changes fastest
  bool automatic = false;     // values of some tunable are derived from the device
  size_t configurations = 1;  // points of the listed space before any pruning, saturating

  std::vector<uint64_t> const_words() const;  // their values by position, for keys
};

}  // namespace kachel::runtime
