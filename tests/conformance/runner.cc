#include "tests/conformance/runner.h"

#include <fmt/format.h>

#include "runtime/engine/bind/tensor_maps.h"
#include "runtime/engine/specialise/cpu_target.h"
#include "tests/conformance/prepared.h"

namespace kachel::conformance {
namespace {

// Device memory of one run.
class Run {
 public:
  Run(runtime::Device& device, const Prepared& prepared) : device_(device), prepared_(prepared) {}
  ~Run() {
    for (void* pointer : allocations_) device_.free(pointer);
  }

  Status go(const lowering::Lowered& lowered, std::vector<OwnedTensor>* tensors) {
    KACHEL_ASSIGN(runtime::CompileResult compiled,
                  device_.compiler().compile({lowered.text, lowered.entry, device_.properties().architecture, 0}));
    KACHEL_ASSIGN(auto module, device_.load(compiled.binary));
    const auto shared = static_cast<uint32_t>(lowered.shared_bytes);
    KACHEL_ASSIGN(auto function, module->function(lowered.entry, shared));
    std::vector<void*> memory(tensors->size(), nullptr), pointers(tensors->size(), nullptr);
    for (size_t i = 0; i < tensors->size(); ++i) {
      if (!prepared_.kernel().params[i].tensor) continue;
      OwnedTensor& tensor = (*tensors)[i];
      KACHEL_ASSIGN(memory[i], allocate(tensor.bytes().size()));
      KACHEL_TRY(device_.copy(memory[i], tensor.bytes().data(), tensor.bytes().size(), nullptr));
      pointers[i] = static_cast<uint8_t*>(memory[i]) + tensor.offset();
    }
    KACHEL_ASSIGN(Prepared::Launch launch, prepared_.launch(lowered.slots, lowered.cluster, pointers, nullptr));
    const auto cluster = static_cast<uint32_t>(lowering::blocks_of(lowered.cluster));
    const uint32_t wanted = lowered.one_tile ? static_cast<uint32_t>(launch.tiles) : prepared_.blocks(launch.tiles);
    uint32_t blocks = (wanted + cluster - 1) / cluster * cluster * static_cast<uint32_t>(lowered.tile_blocks);
    if (lowered.workspace_bytes) {
      blocks = std::min(blocks, 64u);
      KACHEL_ASSIGN(void* scratch, allocate(static_cast<size_t>(lowered.workspace_bytes) * blocks + 1));
      KACHEL_ASSIGN(launch, prepared_.launch(lowered.slots, lowered.cluster, pointers, scratch));
    }
    KACHEL_TRY(add_maps(lowered, tensors, pointers, &launch.params));
    runtime::LaunchDims dims{blocks, static_cast<uint32_t>(lowered.threads), shared};
    KACHEL_TRY(function->launch(dims, launch.params.data(), launch.params.size() * 8, nullptr));
    KACHEL_TRY(device_.synchronize(nullptr));
    for (size_t i = 0; i < tensors->size(); ++i) {
      std::vector<uint8_t>& bytes = (*tensors)[i].bytes();
      if (memory[i]) KACHEL_TRY(device_.copy(bytes.data(), memory[i], bytes.size(), nullptr));
    }
    return device_.synchronize(nullptr);
  }

 private:
  Status add_maps(const lowering::Lowered& lowered, std::vector<OwnedTensor>* tensors,
                  const std::vector<void*>& pointers, std::vector<int64_t>* params) {
    for (const lowering::TensorMap& map : lowered.maps) {
      const auto index = static_cast<size_t>(map.param);
      const ir::HostTensor tensor = view_of(map, (*tensors)[index].view());
      alignas(128) uint64_t words[runtime::kTensorMapWords];
      const runtime::TensorMapRequest request{pointers[index],
                                              ir::bits(tensor.type),
                                              static_cast<int32_t>(map.box.size()),
                                              tensor.shape.data(),
                                              tensor.strides.data(),
                                              map.box.data(),
                                              map.swizzle,
                                              runtime::map_numbers(tensor.type)};
      KACHEL_TRY(device_.encode_map(request, words));
      params->resize((params->size() + 15) / 16 * 16);
      params->insert(params->end(), words, words + runtime::kTensorMapWords);
    }
    return {};
  }
  Result<void*> allocate(size_t bytes) {
    KACHEL_ASSIGN(void* memory, device_.allocate(bytes));
    allocations_.push_back(memory);
    return memory;
  }

  runtime::Device& device_;
  const Prepared& prepared_;
  std::vector<void*> allocations_;
};

}  // namespace

std::string describe(const Case& test) {
  std::string text = fmt::format("  seed {}, {} threads, {} teams{}, facts {:#x}, shared limit {}, most blocks {}\n",
                                 test.seed, test.threads, test.teams, test.one_tile ? ", one tile a block" : "",
                                 test.fact_mask, test.shared_limit, test.most_blocks);
  for (const auto& [name, type] : test.bindings.types) text += fmt::format("  {} = {}\n", name, ir::name(type));
  for (const auto& [name, value] : test.bindings.int_consts) text += fmt::format("  const {} = {}\n", name, value);
  for (const auto& [name, value] : test.bindings.tunables) text += fmt::format("  tune {} = {}\n", name, value);
  for (size_t i = 0; i < test.args.size(); ++i) {
    const TensorSpec& tensor = test.args[i].tensor;
    const std::string& name = test.kernel.params[i].name();
    if (!test.kernel.params[i].tensor)
      text += fmt::format("  {} = {} or {}\n", name, test.args[i].scalar.i, test.args[i].scalar.f);
    else
      text += fmt::format("  {}: {}[{}] strides [{}] misaligned by {}, contents {}\n", name, ir::name(tensor.type),
                          fmt::join(tensor.shape, ", "), fmt::join(tensor.strides, ", "), tensor.misalignment,
                          static_cast<int>(tensor.contents));
  }
  return text;
}

std::string Report::describe() const {
  if (!status.ok()) return fmt::format("did not run: {}\n{}", status.message(), status.log().substr(0, 2000));
  return fmt::format("{} of {} elements wrong, {} bytes damaged, {} undecided; {}", mismatches, elements, damaged,
                     undecided, first);
}

lowering::Target target_of(const runtime::DeviceProperties& properties, const Case& test) {
  lowering::Target target;
  const bool cuda = properties.kind == runtime::DeviceKind::kCuda;
  target.kind = cuda ? lowering::Target::Kind::kCuda : lowering::Target::Kind::kCpu;
  target.architecture = properties.compute_major * 10 + properties.compute_minor;
  target.threads = test.threads;
  target.teams = test.teams;
  target.cluster = test.cluster;
  target.cluster_columns = test.cluster_columns;
  target.one_tile = test.one_tile;
  target.bulk_copies = properties.tensor_maps;
  target.bounded_waits = properties.bounded_waits;
  target.streaming_stores = properties.streaming_stores;
  runtime::describe_cpu(properties.architecture, &target);
  target.shared_limit = test.shared_limit ? test.shared_limit : properties.shared_bytes_per_block;
  return target;
}

Report run_lowered(runtime::Device& device, const Prepared& prepared, const lowering::Lowered& lowered) {
  std::vector<OwnedTensor> tensors = prepared.arguments();
  Status status = Run(device, prepared).go(lowered, &tensors);
  Report report;
  if (status.ok()) report = prepared.judge(tensors);
  report.status = std::move(status);
  return report;
}

Report run_case(runtime::Device& device, const Case& test) {
  Report failed;
  auto prepared = Prepared::make(test);
  if (!prepared.ok()) {
    failed.status = prepared.status();
    return failed;
  }
  auto lowered = lowering::lower((*prepared)->kernel(), target_of(device.properties(), test), (*prepared)->facts());
  if (!lowered.ok()) {
    failed.status = lowered.status();
    return failed;
  }
  return run_lowered(device, **prepared, *lowered);
}

}  // namespace kachel::conformance
