// Makes loaded specialisations and keeps them: from memory, else from the store, else by compiling.
//
//   plan key ─► loaded? ─► stored? decode, load ─► instantiate ─► lower ─► compile ─► load ─► put
//
// A binary is stored after it has been loaded once, so that what is in the store can be loaded; a record that does not
// decode or load is a miss, said in the log, and is overwritten. One thread builds a plan, others that want it wait.
// Failures that would happen again are remembered.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "cache/store.h"
#include "runtime/engine/specialise/counters.h"
#include "runtime/engine/specialise/keys.h"
#include "runtime/engine/specialise/prediction.h"
#include "runtime/engine/specialise/specialisation.h"
#include "support/log.h"

namespace kachel::runtime {

using LowerFunction = std::function<Result<lowering::Lowered>(const ir::Kernel&, const lowering::Target&, uint64_t,
                                                              const lowering::LowerOptions&)>;

// What the parts of an engine share. Outlives them all.
struct EngineServices {
  Log& log;
  cache::Store& store;
  Counters& counters;
  LowerFunction lower;
  // Set by the first sticky device fault; nothing is stored after it.
  std::atomic<bool>& device_lost;
  int64_t compile_limit_ns;  // of what compiling one kernel takes

  // Notes a lost device; passes the status on.
  Status noticed(Status status) const {
    if (status.code() == Code::kDeviceLost && !device_lost.exchange(true))
      log.write({.kind = EventKind::kDeviceLost,
                 .level = LogLevel::kError,
                 .message = "a device has failed for good, and nothing is stored from now on: " + status.message()});
    return status;
  }
};

// Thread-safe.
class PlanBuilder {
 public:
  explicit PlanBuilder(const EngineServices& services) : services_(services) {}

  // What to build.
  struct Request {
    Device& device;
    const KernelModel& model;
    const Point& point;
    const TunableValues& values;
    bool may_compile = true;  // false: kNotCached where that would be needed
    bool generic = false;     // by the generic lowering: the reference that candidates are compared with
    bool compact = false;     // lowering::Target::compact; kept in memory only
    bool reversed = false;    // generic: lowering::Target::reversed
    bool roomy = false;       // lowering::Target::roomy

    Request in_compact_form() const {
      Request other = *this;
      other.compact = true;
      return other;
    }
  };
  // Lives as long as the builder.
  Result<const Specialisation*> get(const Request& request);
  // Where get() would have to compile, and the compact form is another one, that form, which is there sooner.
  struct Soon {
    const Specialisation* specialisation;
    bool compact;
  };
  Result<Soon> get_soon(const Request& request);
  // Into the store, where it is not there yet, without loading it: for devices that are elsewhere. True if it was
  // compiled now.
  Result<bool> compile(const Request& request);
  // The bytes of a plan as the store has them, and the other way: for plans that are made elsewhere.
  std::optional<std::string> stored(const Request& request);
  void keep(const Request& request, std::string_view plan);
  // Whether get() would not have to compile. Builds and loads nothing.
  bool is_built(const Request& request);
  // What the compiler said of a plan that is loaded or stored; all unknown otherwise. Builds and loads nothing.
  ResourceUsage usage(const Request& request);
  // What the cost model expects of a launch, without compiling anything; nothing where it cannot tell. Lowers at the
  // first call for a plan, which takes milliseconds.
  std::optional<LaunchPrediction> predict(const Request& request, const BoundArguments& arguments);
  // What get() would take for compiling, by what compiling took so far: 0 where is_built(), NaN where nothing is known.
  double expected_compile_ns(const Request& request);
  // The lowering alone, for `explain`.
  Result<lowering::Lowered> lower(const Request& request, const lowering::LowerOptions& options) const;

 private:
  // One plan on one device. The mutex is held while it is built.
  struct Entry {
    std::mutex mutex;
    std::unique_ptr<const Specialisation> specialisation;
    std::unique_ptr<const Status> failure;
  };
  // Of a plan, for predictions: the work and the flaw of its lowering, and what stands for the text. No lowering: there
  // is none.
  struct Profile {
    std::optional<lowering::Lowered> lowered;
    uint64_t code = 0;
    size_t text_bytes = 0;
  };
  std::shared_ptr<const Profile> profile_of(const Request& request);
  bool is_other_code(const Request& one, const Request& other);
  static cache::Key key_of(const Request& request);
  Result<lowering::Lowered> lower_uncounted(const Request& request, const lowering::LowerOptions& options) const;
  static std::string name_of(const DeviceProperties& device, const cache::Key& key);
  void put(const Request& request, const cache::Key& key, std::string_view plan);
  std::shared_ptr<Entry> entry_of(const DeviceProperties& device, const cache::Key& key, bool create);
  Result<std::unique_ptr<Specialisation>> from_store(const Request& request, const cache::Key& key);
  Result<std::unique_ptr<Specialisation>> by_compiling(const Request& request, const cache::Key& key);
  // limit_ns: 0 for none.
  Result<CompileResult> compiled(const Request& request, const lowering::Lowered& lowered, int64_t limit_ns);
  Result<PlanRecord> make_plan(const Request& request);
  void tell_compiled(const Request& request, const PlanRecord& plan, int64_t duration_ns) const;

  // Of the compilations so far, on CPUs and on GPUs.
  struct Compiled {
    double ns = 0, texts = 0, text_bytes = 0;
  };
  Compiled& compiled_on(const DeviceProperties& device) { return compiled_[device.compute_major > 0]; }

  const EngineServices& services_;
  std::mutex mutex_;  // guards what follows, not the entries
  Compiled compiled_[2];
  std::unordered_map<std::string, std::shared_ptr<Entry>> entries_;
  std::unordered_map<std::string, std::shared_ptr<const Profile>> profiles_;  // at most kMostProfiles
};

}  // namespace kachel::runtime
