// From a profile to the work of one tile, for given values of a launch.
#include <algorithm>
#include <optional>
#include <set>

#include "ir/instantiate.h"
#include "ir/query.h"
#include "lowering/machine/work_node.h"

namespace kachel::lowering {
namespace {

using ir::ExprRef;
using Kind = WorkNode::Kind;

// Iterations of a loop, most, whose work is looked at one by one; of longer ones some stand for all.
constexpr int64_t kSampledIterations = 8;

// What only the device knows, where it bounds a loop: the length of a sequence or of a list, mostly, and no more than
// the launch's tensors have along some axis. Configurations are compared by how they cut it up, which hardly depends on
// how long it is.
constexpr int64_t kLengthFromMemory = 4096;

bool is_length(const ir::Expr& node) {
  return node.kind == ir::ExprKind::kLoad && ir::is_integer(node.type) && ir::bits(node.type) >= 16;
}

ExprRef with_lengths(const ExprRef& expr, int64_t length) {
  return ir::rewrite(
      expr, [length](const ExprRef& node) { return is_length(*node) ? ir::make_int(length, node->type) : node; });
}

void need(const ExprRef& expr, std::set<const ir::Var*>* needed) {
  ir::visit(expr, [&](const ExprRef& part) {
    if (part->kind == ir::ExprKind::kVar) needed->insert(part->var.get());
  });
}

bool is_number(const ExprRef& expr) {
  return expr->kind == ir::ExprKind::kInt;
}

// From the last statement to the first, since names are used behind where they are made.
void prune(WorkNodes* nodes, std::set<const ir::Var*>* needed) {
  WorkNodes kept;
  for (auto node = nodes->rbegin(); node != nodes->rend(); ++node) {
    if (node->kind == Kind::kLet) {
      if (!needed->count(node->var.get())) continue;
      need(node->value, needed);
    } else if (node->kind == Kind::kLoop) {
      prune(&node->body, needed);
      if (node->body.empty()) continue;
      node->varies = needed->count(node->var.get()) > 0;
      need(node->value, needed);
      need(node->end, needed);
      if (is_number(node->value) && is_number(node->end) && !node->filled_ahead && node->body.size() == 1 &&
          node->body[0].kind == Kind::kWork) {
        const int64_t trips = std::max<int64_t>(node->end->int_value - node->value->int_value, 0);
        Work all;
        all.add(node->body[0].work, static_cast<double>(trips));
        *node = {};
        node->work = std::move(all);
      }
    } else if (node->kind == Kind::kBranch) {
      prune(&node->body, needed);
      prune(&node->otherwise, needed);
      if (node->body.empty() && node->otherwise.empty()) continue;
      need(node->value, needed);
    }
    if (node->kind == Kind::kWork && !kept.empty() && kept.back().kind == Kind::kWork)
      kept.back().work.add(node->work);
    else
      kept.push_back(std::move(*node));
  }
  std::reverse(kept.begin(), kept.end());
  *nodes = std::move(kept);
}

class Follower {
 public:
  Follower(ir::HostEnv env, int64_t length)
      : env_(std::move(env)), assumed_(env_), most_(env_), least_(env_), length_(length) {}

  bool unknown = false;
  BlockWork total;

  void follow(const WorkNodes& nodes, double times, bool ahead) {
    for (const WorkNode& node : nodes) {
      switch (node.kind) {
        case Kind::kWork:
          (ahead ? total.loops : total.rest).add(node.work, times);
          break;
        case Kind::kLet:
          let(node);
          break;
        case Kind::kLoop:
          loop(node, times, ahead || node.filled_ahead);
          break;
        case Kind::kBranch: {
          const auto taken = ir::evaluate_int(node.value, env_);
          const double share = taken.ok() ? (*taken ? 1 : 0) : 0.5;
          if (share > 0) follow(node.body, times * share, ahead);
          if (share < 1) follow(node.otherwise, times * (1 - share), ahead);
          break;
        }
      }
    }
  }

 private:
  void let(const WorkNode& node) {
    const ir::Var* var = node.var.get();
    for (ir::HostEnv* env : {&env_, &assumed_, &most_, &least_}) env->erase(var);
    if (auto value = ir::evaluate(node.value, env_); value.ok()) {
      set(var, *value);
      return;
    }
    const auto note = [&](const ExprRef& expr, ir::HostEnv* env) {
      if (auto length = ir::evaluate(expr, *env); length.ok()) (*env)[var] = *length;
    };
    note(with_lengths(node.value, length_), &assumed_);
    const ExprRef most = extreme(node.value, true), least = extreme(node.value, false);
    note(most, &most_), note(least, &least_);
  }
  void set(const ir::Var* var, const ir::HostValue& value) {
    for (ir::HostEnv* env : {&env_, &assumed_, &most_, &least_}) (*env)[var] = value;
  }

  // With what memory holds so that the value is large, or small: what is subtracted is 0.
  ExprRef extreme(const ExprRef& expr, bool most) const {
    if (is_length(*expr)) return ir::make_int(most ? length_ : 0, expr->type);
    if (expr->kind == ir::ExprKind::kVar && ir::is_integer(expr->type) && !env_.count(expr->var.get())) {
      const ir::HostEnv& values = most ? most_ : least_;
      const auto found = values.find(expr->var.get());
      return found == values.end() ? expr : ir::make_int(found->second.i, expr->type);
    }
    if (expr->args.empty()) return expr;
    auto made = std::make_shared<ir::Expr>(*expr);
    for (size_t i = 0; i < made->args.size(); ++i) {
      const bool subtracted = ir::is(expr, ir::Op::kNeg) || (ir::is(expr, ir::Op::kSub) && i == 1);
      made->args[i] = extreme(expr->args[i], most != subtracted);
    }
    return made;
  }

  struct Range {
    int64_t first, end;
  };
  std::optional<Range> range(const WorkNode& node) {
    auto first = ir::evaluate_int(node.value, env_), end = ir::evaluate_int(node.end, env_);
    if (first.ok() && end.ok()) return Range{*first, *end};
    first = ir::evaluate_int(with_lengths(node.value, length_), assumed_);
    end = ir::evaluate_int(with_lengths(node.end, length_), assumed_);
    // Differences, as of places where lists begin, are lengths too.
    if (!first.ok() || !end.ok() || *first >= *end) {
      first = ir::evaluate_int(extreme(node.value, false), least_);
      end = ir::evaluate_int(extreme(node.end, true), most_);
    }
    const bool known = first.ok() && end.ok();
    if (known)
      total.assumed = length_;
    else
      unknown = true;
    return known ? std::optional(Range{*first, *end}) : std::nullopt;
  }

  void loop(const WorkNode& node, double times, bool ahead) {
    const std::optional<Range> bounds = range(node);
    if (!bounds) return;
    const int64_t trips = bounds->end - bounds->first;
    if (trips <= 0) return;
    const int64_t samples = node.varies ? std::min(trips, kSampledIterations) : 1;
    for (int64_t i = 0; i < samples; ++i) {
      // The first and the last one are among them.
      const int64_t step = samples > 1 ? i * (trips - 1) / (samples - 1) : 0;
      set(node.var.get(), {.i = bounds->first + step});
      follow(node.body, times * static_cast<double>(trips) / static_cast<double>(samples), ahead);
    }
  }

  ir::HostEnv env_;                     // what is known
  ir::HostEnv assumed_, most_, least_;  // and what may bound loops: with all lengths alike, and with extreme ones
  const int64_t length_;                // assumed of what memory holds
};

ir::HostEnv environment(const WorkProfile& profile, const WorkInputs& inputs) {
  ir::HostEnv env;
  for (const WorkProfile::Input& input : profile.inputs) {
    const auto index = static_cast<size_t>(input.slot.index);
    auto from = [&](std::span<const int64_t> values) {
      if (index < values.size()) env[input.var.get()] = {.i = values[index]};
    };
    switch (input.slot.kind) {
      case Slot::Kind::kDim:
        from(inputs.dims);
        break;
      case Slot::Kind::kScalar:
        if (!ir::is_float(input.var->type.dtype)) from(inputs.scalars);
        break;
      case Slot::Kind::kGrid:
        from(inputs.grid);
        break;
      case Slot::Kind::kBlocks:
        env[input.var.get()] = {.i = inputs.tiles};
        break;
      default:
        break;
    }
  }
  return env;
}

int64_t length_from_memory(const WorkProfile& profile, const ir::HostEnv& env) {
  int64_t longest = 0;
  for (const WorkProfile::Tensor& tensor : profile.tensors)
    for (const ExprRef& extent : tensor.shape)
      if (const auto value = ir::evaluate_int(extent, env); value.ok()) longest = std::max(longest, *value);
  return longest > 0 ? std::min(longest, kLengthFromMemory) : kLengthFromMemory;
}

}  // namespace

void compact(WorkNodes* nodes) {
  std::set<const ir::Var*> needed;
  prune(nodes, &needed);
}

void Work::add(const Work& other, double times) {
  for (size_t i = 0; i < kProductKinds; ++i) multiply_adds[i] += times * other.multiply_adds[i];
  scalar_operations += times * other.scalar_operations;
  special_operations += times * other.special_operations;
  thread_operations += times * other.thread_operations;
  thread_specials += times * other.thread_specials;
  shared_bytes += times * other.shared_bytes;
  operand_bytes += times * other.operand_bytes;
  filled_bytes += times * other.filled_bytes;
  port_bytes += times * other.port_bytes;
  filled_port_bytes += times * other.filled_port_bytes;
  fills += times * other.fills;
  barriers += times * other.barriers;
  product_batches += times * other.product_batches;
  rounds += times * other.rounds;
  read_bytes.resize(std::max(read_bytes.size(), other.read_bytes.size()));
  written_bytes.resize(std::max(written_bytes.size(), other.written_bytes.size()));
  for (size_t i = 0; i < other.read_bytes.size(); ++i) read_bytes[i] += times * other.read_bytes[i];
  for (size_t i = 0; i < other.written_bytes.size(); ++i) written_bytes[i] += times * other.written_bytes[i];
  straddle_bytes.resize(std::max(straddle_bytes.size(), other.straddle_bytes.size()));
  for (size_t i = 0; i < other.straddle_bytes.size(); ++i) straddle_bytes[i] += times * other.straddle_bytes[i];
}

void Work::part(int blocks) {
  const double times = 1.0 / blocks;
  for (double& each : multiply_adds) each *= times;
  for (double* all : {&scalar_operations, &special_operations, &shared_bytes, &operand_bytes, &filled_bytes,
                      &port_bytes, &filled_port_bytes})
    *all *= times;
  for (std::vector<double>* of : {&read_bytes, &written_bytes, &straddle_bytes})
    for (double& each : *of) each *= times;
}

std::optional<BlockWork> work_of(const WorkProfile& profile, const WorkInputs& inputs, int64_t tile) {
  if (!profile.nodes) return std::nullopt;
  ir::HostEnv env = environment(profile, inputs);
  env[profile.tile.get()] = {.i = tile};
  if (profile.rank) env[profile.rank.get()] = {.i = tile % blocks_of(profile.cluster)};
  const int64_t length = length_from_memory(profile, env);
  Follower follower(std::move(env), length);
  follower.follow(*profile.nodes, 1, false);
  if (follower.unknown) return std::nullopt;
  return std::move(follower.total);
}

double tensor_bytes(const WorkProfile& profile, size_t tensor, const WorkInputs& inputs) {
  const ir::HostEnv env = environment(profile, inputs);
  double elements = 1;
  for (const ExprRef& extent : profile.tensors[tensor].shape) {
    const auto value = ir::evaluate_int(extent, env);
    if (!value.ok()) return 0;
    elements *= static_cast<double>(*value);
  }
  return elements * ir::bits(profile.tensors[tensor].type) / 8;
}

bool rows_straddle(const WorkProfile& profile, size_t tensor, const WorkInputs& inputs) {
  const WorkProfile::Tensor& about = profile.tensors[tensor];
  if (about.shape.size() < 2) return false;
  const auto row = ir::evaluate_int(about.shape.back(), environment(profile, inputs));
  return row.ok() && *row * ir::bits(about.type) / 8 % kLineBytes != 0;
}

}  // namespace kachel::lowering
