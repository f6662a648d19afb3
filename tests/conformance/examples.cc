#include "tests/conformance/examples.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "ir/parse.h"
#include "ir/tunable_role.h"
#include "ir/verify.h"

namespace kachel::conformance {
namespace {

constexpr int kCasesPerKernel = 6;

int64_t random_extent(int64_t largest, Random& random) {
  switch (random() % 10) {
    case 0:
      return 1;
    case 1:
      return random() % 3 ? 2 : 0;
    case 2:
      return 64;
    default:
      return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(largest));
  }
}

ir::DType type_of(const ir::TypeRef& type, const ir::Bindings& bindings) {
  return type.symbol ? bindings.types.at(type.symbol->name) : type.dtype;
}

void collect_indices(const ir::TileRef& ref, std::set<const ir::Buffer*>* found) {
  for (const ir::AxisSpec& axis : ref.axes)
    if (axis.gather) found->insert(axis.gather->buffer.get());
}

void collect_indices(const ir::Block& body, std::set<const ir::Buffer*>* found) {
  for (const ir::Stmt& stmt : body) {
    if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) {
      collect_indices(copy->src, found);
      collect_indices(copy->dst, found);
    } else if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
      collect_indices(loop->body, found);
    } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
      collect_indices(branch->then_body, found);
      collect_indices(branch->else_body, found);
    }
  }
}

// Rows of whole 16 bytes along the last axis but one, what lies before them in order.
void transpose(TensorSpec* tensor) {
  const size_t rank = tensor->shape.size();
  const int64_t chunk = 128 / ir::bits(tensor->type);
  int64_t stride = (std::max<int64_t>(tensor->shape[rank - 2], 1) + chunk - 1) / chunk * chunk;
  tensor->misalignment = 0;
  tensor->strides.assign(rank, 1);
  tensor->strides[rank - 1] = stride;
  stride *= std::max<int64_t>(tensor->shape[rank - 1], 1);
  for (size_t axis = rank - 2; axis-- > 0; stride *= std::max<int64_t>(tensor->shape[axis], 1))
    tensor->strides[axis] = stride;
}

// FNV-1a: the draws of a kernel depend on nothing but its name, so that further files leave them as they are.
uint64_t hash_of(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return hash;
}

// A value that is not listed: whatever the role allows, as long as a simulated block is not too large.
int64_t random_value(ir::TunableRole role, Random& random) {
  const auto one_of = [&](std::initializer_list<int64_t> values) { return values.begin()[random() % values.size()]; };
  switch (role) {
    case ir::TunableRole::kThreads:
      return one_of({32, 64, 128, 256});
    case ir::TunableRole::kCluster:
    case ir::TunableRole::kClusterColumns:
      return one_of({1, 2, 4, 8});
    case ir::TunableRole::kStages:
      return one_of({1, 2, 3, 4});
    case ir::TunableRole::kProduct:
      return one_of({16, 32, 48, 64, 80, 128});
    case ir::TunableRole::kExtent:
      return one_of({1, 2, 4, 8, 32, 128});
    case ir::TunableRole::kParts:
    case ir::TunableRole::kUnknown:
      break;
  }
  return one_of({1, 2, 3, 8});
}

// Elements of all tensors, as far as their shapes are known.
int64_t elements_of(const ir::Kernel& kernel, const ir::HostEnv& env) {
  int64_t all = 0;
  for (const ir::Param& param : kernel.params) {
    int64_t elements = param.tensor ? 1 : 0;
    for (size_t i = 0; param.tensor && i < param.tensor->shape.size(); ++i) {
      const auto extent = ir::evaluate_int(param.tensor->shape[i], env);
      elements *= extent.ok() ? std::max<int64_t>(*extent, 1) : 1;
    }
    all += elements;
  }
  return all;
}

// Several dimensions that are drawn large are what takes an interpreter minutes: the largest one is halved until
// neither tensors nor what may be computed of all dimensions are large.
void bound_work(const ir::Kernel& kernel, const Wishes& wishes, ir::HostEnv* env) {
  constexpr int64_t kMostElements = 1 << 18;
  constexpr double kMostWork = 1 << 23;
  const auto work = [&] {
    double all = 1;
    for (const ir::VarRef& dim : kernel.dims) all *= static_cast<double>(std::max<int64_t>(env->at(dim.get()).i, 1));
    return all;
  };
  while (elements_of(kernel, *env) > kMostElements || work() > kMostWork) {
    ir::HostValue* largest = nullptr;
    for (const ir::VarRef& dim : kernel.dims) {
      ir::HostValue& value = env->at(dim.get());
      if (!wishes.values.count(dim->name) && value.i > 1 && (!largest || value.i > largest->i)) largest = &value;
    }
    if (!largest) return;
    largest->i /= 2;
  }
}

}  // namespace

std::optional<Case> random_case(const ir::Kernel& kernel, int64_t largest, Random& random, const Wishes& wishes) {
  Case test;
  test.name = kernel.name;
  test.kernel = kernel;
  test.seed = random();
  for (const ir::TypeSymbolRef& symbol : kernel.type_symbols)
    test.bindings.types[symbol->name] = symbol->options[random() % symbol->options.size()];
  ir::HostEnv env;
  auto wish = [&](const std::string& name, int64_t drawn) {
    auto it = wishes.values.find(name);
    return it == wishes.values.end() ? drawn : it->second;
  };
  for (const ir::VarRef& var : kernel.consts) {
    constexpr int64_t kChoices[] = {1, 2, 8, 16, 32};
    int64_t value = var->type.dtype == ir::DType::Bool ? static_cast<int64_t>(random() & 1) : kChoices[random() % 5];
    value = wish(var->name, value);
    test.bindings.int_consts[var->name] = value;
    test.bindings.float_consts[var->name] = 0.5;
    env[var.get()] = {var->type.dtype == ir::DType::F32, value, 0.5};
  }
  const std::vector<ir::TunableRole> roles = ir::roles_of(kernel);
  for (size_t i = 0; i < roles.size(); ++i) {
    const ir::Tunable& tunable = kernel.tunables[i];
    int64_t value = wish(tunable.var->name, tunable.automatic ? random_value(roles[i], random)
                                                              : tunable.values[random() % tunable.values.size()]);
    test.bindings.tunables[tunable.var->name] = value;
    if (tunable.var->name == "threads") test.threads = static_cast<int>(value);
    if (tunable.var->name == "cluster") test.cluster = static_cast<int>(value);
    if (tunable.var->name == "cluster_columns") test.cluster_columns = static_cast<int>(value);
    env[tunable.var.get()] = {false, value, 0};
  }
  for (const ir::VarRef& dim : kernel.dims)
    env[dim.get()] = {false, wish(dim->name, random_extent(largest, random)), 0};
  for (const ir::VarRef& dim : ir::static_dims(kernel)) env[dim.get()].i = std::max<int64_t>(env[dim.get()].i, 1);
  bound_work(kernel, wishes, &env);
  // `where` often bounds and relates dimensions (B <= 2, H % G == 0, Kg == K / group): enforce what is plain, then give
  // up on the rest.
  for (const ir::ExprRef& condition : kernel.where)
    ir::visit(condition, [&](const ir::ExprRef& node) {
      if (node->kind != ir::ExprKind::kApply) return;
      const auto& args = node->args;
      if (node->op == ir::Op::kEq && args[0]->kind == ir::ExprKind::kVar && args[0]->var->kind == ir::VarKind::kDim) {
        if (auto value = ir::evaluate_int(args[1], env); value.ok()) env[args[0]->var.get()].i = *value;
      } else if (node->op == ir::Op::kLe && args[0]->kind == ir::ExprKind::kVar &&
                 args[0]->var->kind == ir::VarKind::kDim) {
        int64_t& value = env[args[0]->var.get()].i;
        const auto most = ir::evaluate_int(args[1], env);
        if (most.ok() && *most > 0 && value > *most) value = 1 + value % *most;
      } else if (node->op == ir::Op::kMod && args[0]->kind == ir::ExprKind::kVar &&
                 args[0]->var->kind == ir::VarKind::kDim) {
        auto unit = ir::evaluate_int(args[1], env);
        if (unit.ok() && *unit > 0) {
          int64_t& value = env[args[0]->var.get()].i;
          value = std::max<int64_t>(1, value / *unit) * *unit;
        }
      }
    });
  for (const ir::ExprRef& condition : kernel.where) {
    auto holds = ir::evaluate(condition, env);
    if (!holds.ok() || !holds->i) return std::nullopt;
  }
  std::set<const ir::Buffer*> indices;
  collect_indices(kernel.body, &indices);
  const bool extremes = static_cast<int>(random() % 100) < wishes.extremes_percent;
  for (const ir::Param& param : kernel.params) {
    ArgumentSpec arg;
    if (!param.tensor) {
      arg.scalar = {0.25 + static_cast<double>(random() % 4) * 0.25, static_cast<int64_t>(1 + random() % 5)};
      const ir::DType type = param.scalar->type.dtype;
      if (type == ir::DType::Bool) arg.scalar.i &= 1;
      if ((type == ir::DType::I32 || type == ir::DType::I64) && random() % 8 == 0) arg.scalar.i = -arg.scalar.i;
      // Lengths come as scalars too.
      Random chance(test.seed ^ static_cast<uint64_t>(&param - kernel.params.data()));
      if (type != ir::DType::Bool && !kernel.dims.empty() && chance() % 2)
        arg.scalar.i = env.at(kernel.dims[chance() % kernel.dims.size()].get()).i;
      if (param.divides && chance() % 2) arg.scalar.i = 16 << chance() % 4;
      test.args.push_back(arg);
      continue;
    }
    arg.tensor.type = type_of(param.tensor->type, test.bindings);
    for (const ir::ExprRef& extent : param.tensor->shape) {
      auto value = ir::evaluate_int(extent, env);
      if (!value.ok()) return std::nullopt;
      arg.tensor.shape.push_back(*value);
    }
    arg.tensor.misalignment = random() % 2 ? static_cast<int64_t>(random() % 5) : 0;
    if (auto wished = wishes.contents.find(param.tensor->name); wished != wishes.contents.end()) {
      arg.tensor.contents = wished->second.first;
      arg.tensor.limit = wished->second.second;
    } else if (indices.count(param.tensor.get())) {
      arg.tensor.contents = Contents::kIndices;
      arg.tensor.limit = largest;
    } else if (extremes) {
      arg.tensor.contents = Contents::kExtremes;
    }
    const bool nibbles = ir::bits(arg.tensor.type) == 4, aligned = wishes.aligned.count(param.tensor->name) != 0;
    if (aligned) arg.tensor.misalignment = 0;
    if (random() % 2 && !nibbles && !aligned) {  // gaps between rows, sometimes between elements too
      arg.tensor.strides.assign(arg.tensor.shape.size(), 1);
      int64_t stride = random() % 3 ? 1 : 2;
      for (size_t i = arg.tensor.shape.size(); i-- > 0;) {
        arg.tensor.strides[i] = stride;
        stride *= std::max<int64_t>(arg.tensor.shape[i], 1);
        stride += static_cast<int64_t>(random() % 4);
      }
    }
    const auto index = static_cast<uint64_t>(&param - kernel.params.data());
    const bool turned =
        wishes.transposed.count(param.tensor->name) || (!aligned && Random(test.seed ^ index)() % 6 == 0);
    if (turned && !nibbles && arg.tensor.shape.size() >= 2 && param.tensor->direction == ir::Direction::kIn)
      transpose(&arg.tensor);
    test.args.push_back(arg);
  }
  constexpr int kThreads[] = {0, 32, 0, 64, 0, 96, 128, 256};
  if (!test.bindings.tunables.count("threads"))
    test.threads = wishes.threads >= 0 && random() % 4 ? wishes.threads : kThreads[random() % 8];
  if (random() % 3 == 0) test.fact_mask = random();
  if (random() % 4 == 0) test.most_blocks = 1 + static_cast<uint32_t>(random() % 4);
  if (random() % (wishes.threads >= 0 ? 16 : 5) == 0) test.shared_limit = 1024;
  const bool old = random() % 2;  // mma where 90 has wgmma
  test.teams = wishes.teams >= 0 ? wishes.teams : random() % 3 ? 0 : 2;
  test.architecture = wishes.architecture ? wishes.architecture : old ? 89 : 90;
  if (!test.bindings.tunables.count("cluster")) {
    test.cluster = wishes.cluster ? wishes.cluster : 1 << test.seed % 4;
    test.cluster_columns = test.seed / 16 % 2 ? 0 : std::min(test.cluster, 1 << test.seed / 32 % 4);
  }
  test.one_tile = wishes.one_tile >= 0 ? wishes.one_tile : test.seed / 2 % 3 == 0;
  return test;
}

Result<std::vector<Case>> example_cases(const std::string& folder, uint64_t seed) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".tile") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) return invalid(fmt::format("no .tile file in `{}`", folder));
  std::vector<Case> cases;
  for (const std::string& file : files) {
    std::stringstream text;
    text << std::ifstream(file).rdbuf();
    KACHEL_ASSIGN(ir::Module module, ir::load(text.str(), file));
    for (const ir::Kernel& kernel : module.kernels) {
      Random random(seed ^ hash_of(kernel.name));
      int made = 0;
      for (int attempt = 0; attempt < 100 && made < kCasesPerKernel; ++attempt) {
        const int64_t largest = kernel.dims.size() > 4 ? 12 + static_cast<int64_t>(random() % 60) : 200;
        auto test = random_case(kernel, largest, random);
        if (!test) continue;
        test->name = fmt::format("{}#{}", kernel.name, made++);
        cases.push_back(std::move(*test));
      }
      if (!made) return invalid(fmt::format("no shapes found for `{}`", kernel.name));
    }
  }
  return cases;
}

}  // namespace kachel::conformance
