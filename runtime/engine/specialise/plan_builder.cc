#include "runtime/engine/specialise/plan_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "ir/instantiate.h"
#include "runtime/engine/specialise/configurations.h"
#include "runtime/profile_range.h"

namespace kachel::runtime {
namespace {

double now_ns() {
  return static_cast<double>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

// Would happen again in this process, whatever else is going on.
bool is_lasting(Code code) {
  return code == Code::kInvalid || code == Code::kUnsupported || code == Code::kCompile;
}

ir::Bindings bindings_of(const PlanBuilder::Request& request) {
  const KernelModel& model = request.model;
  ir::Bindings bindings;
  for (size_t i = 0; i < model.types.size(); ++i)
    bindings.types[model.types[i]] = static_cast<ir::DType>(request.point.types >> (4 * i) & 15);
  bindings.int_consts = model.int_consts;
  bindings.float_consts = model.float_consts;
  for (size_t i = 0; i < model.tunables.size(); ++i) bindings.tunables[model.tunables[i].name] = request.values[i];
  for (size_t i = 0; i < model.static_dims.size(); ++i)
    bindings.dims[model.dims[model.static_dims[i]]] = request.point.static_dims[i];
  return bindings;
}

// Dimensions of the concrete kernel to those of the generic one, by name.
Status generic_slots(const KernelModel& model, const ir::Kernel& concrete, std::vector<lowering::Slot>& slots) {
  for (lowering::Slot& slot : slots) {
    if (slot.kind != lowering::Slot::Kind::kDim) continue;
    auto found =
        std::find(model.dims.begin(), model.dims.end(), concrete.dims.at(static_cast<size_t>(slot.index))->name);
    if (found == model.dims.end()) return internal("the lowering refers to a dimension that the kernel does not have");
    slot.index = static_cast<int>(found - model.dims.begin());
  }
  return {};
}

// Of the compiler only what it says itself: a loaded function's local memory may as well be arrays of the program.
std::string flaw_of(const lowering::Lowered& lowered, const CompileResult& compiled) {
  std::string flaw = lowered.flaw;
  if (compiled.usage.spill_bytes > 0)
    flaw += fmt::format("{}spills {} bytes", flaw.empty() ? "" : "; ", compiled.usage.spill_bytes);
  for (const std::string& loss : compiled.losses) flaw += (flaw.empty() ? "" : "; ") + loss;
  return flaw;
}

// Whether the compiler has stored registers in memory though a thread of the block could have had more of them, for
// another block's sake: few bytes mostly, which cost more than the residency is worth and the configuration its place.
bool spills_for_residency(const lowering::Lowered& lowered, const ResourceUsage& usage) {
  constexpr int64_t kRegisterFile = 65536, kMostOfThread = 255, kGranule = 8;
  if (usage.spill_bytes <= 0 || lowered.blocks == 1 || lowered.threads <= 0) return false;
  return usage.registers + kGranule < std::min(kRegisterFile / lowered.threads, kMostOfThread);
}

// For the store's journal.
cache::Label label_of(const PlanBuilder::Request& request) {
  const std::string configuration = configuration_text(request.model, request.values);
  return {request.model.kernel.name, fmt::format("{}{}{}", configuration, configuration.empty() ? "" : " for ",
                                                 request.device.properties().architecture)};
}

// A `threads` tunable that no launch could use.
Status check_threads(const PlanBuilder::Request& request) {
  const KernelModel& model = request.model;
  const DeviceProperties& device = request.device.properties();
  if (model.threads_tunable < 0 || device.compute_major == 0) return {};
  const int64_t threads = request.values[model.threads_tunable];
  if (threads >= 32 && threads % 32 == 0 && threads <= device.max_threads_per_block) return {};
  return unsupported(fmt::format("threads={} cannot be launched; use a multiple of 32 up to {}", threads,
                                 device.max_threads_per_block));
}

Status check_cluster(const PlanBuilder::Request& request) {
  const int all = request.model.cluster_tunable, along = request.model.columns_tunable;
  const int64_t blocks = all < 0 ? 1 : request.values[all], columns = along < 0 ? 1 : request.values[along];
  if (blocks < 1 || blocks > lowering::kMostCluster || (blocks & (blocks - 1)))
    return unsupported(fmt::format("cluster={} is no number of blocks that can copy for each other; use 1, 2, 4 or {}",
                                   blocks, lowering::kMostCluster));
  if (columns < 1 || blocks % columns)
    return unsupported(
        fmt::format("cluster_columns={} does not divide cluster={}; use a divisor, or say with `where` "
                    "which belong together",
                    columns, blocks));
  return {};
}

}  // namespace

std::string PlanBuilder::name_of(const DeviceProperties& device, const cache::Key& key) {
  return fmt::format("{}.{}.{}", static_cast<int>(device.kind), device.id, key.bytes);
}

cache::Key PlanBuilder::key_of(const Request& request) {
  return plan_key(request.model, request.point, request.values, request.device.properties(), request.generic,
                  request.compact, request.reversed);
}

std::shared_ptr<PlanBuilder::Entry> PlanBuilder::entry_of(const DeviceProperties& device, const cache::Key& key,
                                                          bool create) {
  const std::string name = name_of(device, key);
  std::lock_guard lock(mutex_);
  auto found = entries_.find(name);
  if (found != entries_.end()) return found->second;
  if (!create) return nullptr;
  return entries_[name] = std::make_shared<Entry>();
}

std::optional<std::string> PlanBuilder::stored(const Request& request) {
  return services_.store.get(key_of(request));
}

void PlanBuilder::keep(const Request& request, std::string_view plan) {
  put(request, key_of(request), plan);
}

void PlanBuilder::put(const Request& request, const cache::Key& key, std::string_view plan) {
  if (services_.device_lost.load(std::memory_order_relaxed)) return;
  Status stored = services_.store.put(key, plan, label_of(request));
  if (!stored.ok()) services_.log.write(LogLevel::kWarning, fmt::format("a plan was not stored: {}", stored.message()));
}

bool PlanBuilder::is_built(const Request& request) {
  const cache::Key key = key_of(request);
  if (const auto entry = entry_of(request.device.properties(), key, false)) {
    std::unique_lock lock(entry->mutex, std::try_to_lock);
    if (!lock) return false;  // somebody is at it
    if (entry->specialisation) return true;
  }
  return services_.store.get_here(key).has_value();
}

ResourceUsage PlanBuilder::usage(const Request& request) {
  const cache::Key key = key_of(request);
  if (const auto entry = entry_of(request.device.properties(), key, false)) {
    std::lock_guard lock(entry->mutex);
    if (entry->specialisation) return entry->specialisation->step().usage;
  }
  const auto bytes = services_.store.get_here(key);
  if (!bytes) return {};
  auto plan = decode_plan(*bytes, request.model);
  if (!plan.ok()) return {};
  ResourceUsage usage = plan->steps[0].usage;
  if (usage.shared_bytes < 0) usage.shared_bytes = plan->steps[0].shared_bytes;
  return usage;
}

Result<const Specialisation*> PlanBuilder::get(const Request& request) {
  const DeviceProperties& properties = request.device.properties();
  const cache::Key key = key_of(request);
  const std::shared_ptr<Entry> entry = entry_of(properties, key, true);
  std::lock_guard lock(entry->mutex);
  if (entry->specialisation) return entry->specialisation.get();
  if (entry->failure) return *entry->failure;
  auto built = request.compact ? by_compiling(request, key) : from_store(request, key);
  if (!request.compact && !built.ok() && built.status().code() == Code::kNotCached && request.may_compile) {
    // One of the processes that share the store compiles, the others load what it has made.
    const cache::Store::Claim claim =
        services_.store.claim(key, static_cast<uint64_t>(services_.compile_limit_ns / 1000));
    if (claim.waited()) built = from_store(request, key);
    if (!built.ok() && built.status().code() == Code::kNotCached) built = by_compiling(request, key);
  }
  if (!built.ok()) {
    if (is_lasting(built.status().code())) entry->failure = std::make_unique<const Status>(built.status());
    return services_.noticed(built.status());
  }
  entry->specialisation = *std::move(built);
  services_.counters.specialisations.fetch_add(1, std::memory_order_relaxed);
  return entry->specialisation.get();
}

Result<PlanBuilder::Soon> PlanBuilder::get_soon(const Request& request) {
  constexpr int kLeastMajor = 9;  // of those whose loops are parted
  const Request compact = request.in_compact_form();
  const bool other = request.may_compile && request.device.properties().compute_major >= kLeastMajor &&
                     !is_built(request) && is_other_code(request, compact);
  if (other)
    if (const auto made = get(compact); made.ok()) return Soon{*made, true};
  KACHEL_ASSIGN(const Specialisation* made, get(request));
  return Soon{made, false};
}

// kNotCached where it is not stored, or stored in a form that is of no use here.
Result<std::unique_ptr<Specialisation>> PlanBuilder::from_store(const Request& request, const cache::Key& key) {
  const double start_ns = now_ns();
  std::optional<std::string> bytes = services_.store.get(key);
  Status missing(Code::kNotCached,
                 fmt::format("kernel `{}`, configuration {}: the store has no binary for {}; prepare it "
                             "with a policy that may compile",
                             request.model.kernel.name, configuration_text(request.model, request.values),
                             request.device.properties().name));
  if (!bytes) return missing;
  const ProfileRange range("load {}", request.model.kernel.name);
  auto useless = [&](const Status& why) {
    services_.log.write(
        {.kind = EventKind::kStoreDamaged,
         .level = LogLevel::kWarning,
         .message = fmt::format("stored plan {} cannot be used and is made again: {}", key.hex(), why.message()),
         .kernel = request.model.kernel.name,
         .key = key.hex()});
    services_.counters.damaged_plans.fetch_add(1, std::memory_order_relaxed);
    return missing;
  };
  auto plan = decode_plan(*bytes, request.model);
  if (!plan.ok()) return useless(plan.status());
  auto loaded = Specialisation::load(request.device, request.model, *std::move(plan), request.values);
  if (!loaded.ok()) {
    const Code code = loaded.status().code();
    if (code == Code::kDeviceLost || code == Code::kNoMemory) return loaded.status();
    return useless(loaded.status());
  }
  services_.counters.loads.fetch_add(1, std::memory_order_relaxed);
  const double took_ns = now_ns() - start_ns;
  services_.counters.last_load_ns.store(took_ns, std::memory_order_relaxed);
  if (services_.log.heard()) {
    const std::string configuration = configuration_text(request.model, request.values);
    services_.log.write(
        {.kind = EventKind::kLoaded,
         .level = LogLevel::kDebug,
         .message = fmt::format("kernel `{}` loaded from the store: {}", request.model.kernel.name, configuration),
         .kernel = request.model.kernel.name,
         .key = key.hex(),
         .duration_ns = static_cast<int64_t>(took_ns),
         .fields = {{"configuration", configuration}, {"bytes", bytes->size()}}});
  }
  return loaded;
}

Result<lowering::Lowered> PlanBuilder::lower(const Request& request, const lowering::LowerOptions& options) const {
  services_.counters.lowerings.fetch_add(1, std::memory_order_relaxed);
  return lower_uncounted(request, options);
}

Result<lowering::Lowered> PlanBuilder::lower_uncounted(const Request& request,
                                                       const lowering::LowerOptions& options) const {
  KACHEL_TRY(check_threads(request));
  KACHEL_TRY(check_cluster(request));
  KACHEL_ASSIGN(ir::Kernel concrete, ir::instantiate(request.model.kernel, bindings_of(request)));
  lowering::Target target = target_of(request.device.properties(), request.model, request.point, request.values);
  target.generic = request.generic;
  target.reversed = request.reversed;
  target.compact = request.compact;
  target.roomy = request.roomy;
  KACHEL_ASSIGN(lowering::Lowered lowered, services_.lower(concrete, target, request.point.facts, options));
  KACHEL_TRY(generic_slots(request.model, concrete, lowered.slots));
  return lowered;
}

void PlanBuilder::tell_compiled(const Request& request, const PlanRecord& plan, int64_t duration_ns) const {
  const PlanStep& step = plan.steps[0];
  services_.log.write({.kind = EventKind::kCompiled,
                       .level = LogLevel::kDebug,
                       .message = fmt::format("kernel `{}` compiled{}: {}", plan.kernel,
                                              request.generic   ? " plainly, to compare with"
                                              : request.compact ? " in a compact form"
                                                                : "",
                                              plan.configuration),
                       .kernel = plan.kernel,
                       .key = key_of(request).hex(),
                       .duration_ns = duration_ns,
                       .fields = {{"configuration", plan.configuration},
                                  {"generic", request.generic ? 1 : 0},
                                  {"compact", request.compact ? 1 : 0},
                                  {"compiler", plan.compiler},
                                  {"compile_ns", plan.compile_ns},
                                  {"registers", step.usage.registers},
                                  {"shared_bytes", step.shared_bytes},
                                  {"spill_bytes", step.usage.spill_bytes},
                                  {"flaw", step.flaw},
                                  {"bytes", step.binary.size()}}});
}

Result<CompileResult> PlanBuilder::compiled(const Request& request, const lowering::Lowered& lowered,
                                            int64_t limit_ns) {
  auto compiled = request.device.compiler().compile({.text = lowered.text,
                                                     .entry = lowered.entry,
                                                     .architecture = request.device.properties().architecture,
                                                     .time_limit_ns = limit_ns});
  if (!compiled.ok()) return compiled;
  services_.counters.compiles.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  Compiled& all = compiled_on(request.device.properties());
  all.ns += static_cast<double>(compiled->compile_ns);
  all.texts += 1;
  all.text_bytes += static_cast<double>(lowered.text.size());
  return compiled;
}

Result<PlanRecord> PlanBuilder::make_plan(const Request& request) {
  const KernelModel& model = request.model;
  const DeviceProperties& properties = request.device.properties();
  const ProfileRange range("compile {} {}", model.kernel.name, configuration_text(model, request.values));
  const double start_ns = now_ns();
  KACHEL_ASSIGN(lowering::Lowered lowered, lower(request, {}));
  Compiler& compiler = request.device.compiler();
  const int64_t limit_ns = services_.compile_limit_ns;
  Result<CompileResult> at_first = this->compiled(request, lowered, limit_ns);
  const int64_t left_ns = limit_ns - static_cast<int64_t>(now_ns() - start_ns);  // both share one limit
  if (!at_first.ok() && limit_ns > 0 && left_ns <= 0) return at_first.status();
  const bool refused = !at_first.ok() && lowered.blocks > 1;  // an instruction may need more than it was left
  if (refused || (at_first.ok() && spills_for_residency(lowered, at_first->usage))) {
    Request roomy = request;
    roomy.roomy = true;
    KACHEL_ASSIGN(lowering::Lowered other, lower(roomy, {}));
    Result<CompileResult> made = this->compiled(roomy, other, limit_ns > 0 ? std::max<int64_t>(left_ns, 1) : 0);
    if (refused && !made.ok()) return made.status();
    if (made.ok() && !refused) made->compile_ns += at_first->compile_ns;
    if (made.ok() && (refused || made->usage.spill_bytes < at_first->usage.spill_bytes))
      lowered = std::move(other), at_first = std::move(made);
  }
  KACHEL_ASSIGN(CompileResult compiled, std::move(at_first));
  PlanRecord plan;
  plan.kernel = model.kernel.name;
  plan.configuration = configuration_text(model, request.values);
  plan.architecture = properties.architecture;
  plan.compiler = compiler.version();
  plan.deterministic = lowered.deterministic;
  plan.compile_ns = compiled.compile_ns;
  plan.steps.push_back({.entry = lowered.entry,
                        .threads = lowered.threads,
                        .shared_bytes = lowered.shared_bytes,
                        .workspace_bytes = lowered.workspace_bytes,
                        .slots = std::move(lowered.slots),
                        .maps = std::move(lowered.maps),
                        .resident = lowered.resident,
                        .cluster = lowered.cluster,
                        .tile_blocks = lowered.tile_blocks,
                        .usage = compiled.usage,
                        .flaw = flaw_of(lowered, compiled),
                        .binary = std::move(compiled.binary)});
  if (services_.log.heard()) tell_compiled(request, plan, static_cast<int64_t>(now_ns() - start_ns));
  return plan;
}

Result<std::unique_ptr<Specialisation>> PlanBuilder::by_compiling(const Request& request, const cache::Key& key) {
  KACHEL_ASSIGN(PlanRecord plan, make_plan(request));
  const std::string bytes = encode_plan(plan);
  KACHEL_ASSIGN(std::unique_ptr<Specialisation> loaded,
                Specialisation::load(request.device, request.model, std::move(plan), request.values));
  services_.counters.loads.fetch_add(1, std::memory_order_relaxed);
  if (!request.compact) put(request, key, bytes);
  return loaded;
}

Result<bool> PlanBuilder::compile(const Request& request) {
  const cache::Key key = key_of(request);
  const cache::Store::Claim claim =
      services_.store.claim(key, static_cast<uint64_t>(services_.compile_limit_ns / 1000));
  if (services_.store.get(key)) return false;
  KACHEL_ASSIGN(const PlanRecord plan, make_plan(request));
  KACHEL_TRY(services_.store.put(key, encode_plan(plan), label_of(request)));
  return true;
}

}  // namespace kachel::runtime
