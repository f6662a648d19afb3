// The normal form of regions (ir/parallel.h), which must mean what the region means.
#include <functional>

#include "ir/parallel.h"
#include "tests/ir/interpret_values.h"

namespace kachel::ir {
namespace {

// The same region, rebuilt from its normal form.
Kernel normalised(const Kernel& kernel) {
  Kernel copy = kernel;
  std::function<void(Block&)> walk = [&](Block& body) {
    for (Stmt& stmt : body) {
      if (auto* loop = std::get_if<ForStmt>(&stmt.node)) walk(loop->body);
      if (auto* choice = std::get_if<IfStmt>(&stmt.node)) {
        walk(choice->then_body);
        walk(choice->else_body);
      }
      auto* region = std::get_if<ParallelStmt>(&stmt.node);
      if (!region) continue;
      ForwardedRegion forwarded = forward_stores(*region);
      region->body.clear();
      for (const LetStmt& let : forwarded.lets) region->body.push_back({{}, let});
      for (const GuardedStore& store : forwarded.stores) {
        for (const ExprRef& index : store.store.indices)
          visit(index, [](const ExprRef& node) { CHECK(node->kind != ExprKind::kLoad); });
        CHECK((is_const(store.store.value) || store.store.value->kind == ExprKind::kVar));
        if (store.guard)
          region->body.push_back({{}, IfStmt{store.guard, {{{}, store.store}}, {}}});
        else
          region->body.push_back({{}, store.store});
      }
    }
  };
  walk(copy.body);
  return copy;
}

TEST_CASE("forward_stores keeps the meaning of a region") {
  const char* bodies[] = {
      "parallel i < 8 { x[i] = x[7 - i] }",
      "parallel i < 8 { x[i] = x[i] + 10  x[i] = x[i] * 2  y[i] = x[i]  x[i] = y[i] - x[7 - i] }",
      "parallel i < 8 { let old = x[i]  x[i] = 100  x[i] = x[i] + old }",
      "parallel i < 8 { if i < 4 { x[i] = 50 }  x[i] = x[i] + 1 }",
      "parallel i < 8 { if i < 4 { x[i] = 50  if i > 1 { x[i] += 3 } } else { x[i] += 1  x[i] *= 2 }  y[i] = x[i]  "
      "x[i] = y[i] }",
      "parallel i < 8 { x[i] = sum[k < 8](x[k] * x[i]) + x[i]  x[i] = x[i] - max[k < 8](x[k] + x[i]) }",
      "parallel i < 8 { if x[i] % 2 == 0 { x[i] = x[i] + 1 }  if x[i] % 2 == 0 { x[i] = 0 - x[i] } else { x[i] = x[i] "
      "* 3 } }",
      "parallel i < 8 { if i < 2 { x[i] = 9 } else if i < 5 { x[i] = x[7 - i]  y[i] = x[i] } else { y[i] = 3  x[i] += "
      "4 "
      "}  x[i] += y[i] }",
      "parallel i < 8 { x[i] += 1  if i < 6 { if i < 3 { x[i] *= 2 } else { x[i] *= 3 }  y[i] = x[i] } else { x[i] = 0 "
      "} }",
      "parallel i < 8 { if i < 4 { y[i] = 1  y[x[i]] = 2 } else { y[i] = 3 }  x[i] = y[i] }",
      "parallel i < 8 { y[x[i]] = i  y[x[i]] += 5  x[7 - x[i]] = y[x[i]] }",
      "parallel i < 8 { x[i] = 1  if i > 100 { x[i] = 2 }  x[7 - i] = x[i] + 5 }",
  };
  for (std::string type : {"i32", "u8", "f16", "i64"})
    for (const char* body : bodies) {
      if (type == "f16" &&
          (std::string(body).find("x[x") != std::string::npos || std::string(body).find('%') != std::string::npos ||
           std::string(body).find("y[x") != std::string::npos))
        continue;
      CAPTURE(type);
      CAPTURE(body);
      DType dtype = *dtype_from_name(type);
      Kernel kernel = concrete_kernel(region(type, body));
      const TestTensor x = iota(dtype, {8}), y(dtype, {8});
      auto direct = interpreted(kernel, {x, y})[1], rebuilt = interpreted(normalised(kernel), {x, y})[1];
      REQUIRE(direct.size() == rebuilt.size());
      for (size_t i = 0; i < direct.size(); ++i) {
        CHECK(direct[i].undecided == rebuilt[i].undecided);
        CHECK(direct[i].value == rebuilt[i].value);
        CHECK(direct[i].bits == rebuilt[i].bits);
      }
    }
}

TEST_CASE("forward_stores drops overwritten assignments and loads of values nobody reads") {
  Kernel kernel = concrete_kernel(region("i32", "parallel i < 8 { x[i] = 3  if i < 4 { y[i] = 2 }  x[i] = x[i] + 1 }"));
  for (const Stmt& stmt : kernel.body)
    if (const auto* parallel = std::get_if<ParallelStmt>(&stmt.node)) {
      ForwardedRegion forwarded = forward_stores(*parallel);
      REQUIRE(forwarded.stores.size() == 2);
      CHECK(forwarded.stores[0].store.buffer->name == "y");
      CHECK(forwarded.stores[0].guard != nullptr);
      CHECK(is_int(forwarded.stores[1].store.value, 4));
      CHECK(forwarded.stores[1].guard == nullptr);
      for (const LetStmt& let : forwarded.lets)
        visit(let.value, [](const ExprRef& node) { CHECK(node->kind != ExprKind::kLoad); });
    }
}

TEST_CASE("what both branches of an if assign is one assignment, but where others of its buffer stand between them") {
  const auto stores = [](const char* body) {
    const Kernel kernel = concrete_kernel(region("i32", body));
    for (const Stmt& stmt : kernel.body)
      if (const auto* parallel = std::get_if<ParallelStmt>(&stmt.node)) return forward_stores(*parallel).stores;
    return std::vector<GuardedStore>();
  };
  const auto joined =
      stores("parallel i < 8 { if i < 4 { x[i] = 3 } else if i < 6 { x[i] = y[i] } else { x[i] = 5 } }");
  REQUIRE(joined.size() == 1);
  CHECK(joined[0].guard == nullptr);
  CHECK(stores("parallel i < 8 { if i < 4 { x[i] = 3  y[i] = 1 } else { y[i] = 2  x[i] = 4 } }").size() == 2);
  CHECK(stores("parallel i < 8 { if i < 4 { y[i] = 1  y[x[i]] = 2 } else { y[i] = 3 } }").size() == 3);
  CHECK(stores("parallel i < 8 { if i < 4 { x[i] = 1 } else { x[7 - i] = 3 } }").size() == 2);
}

}  // namespace
}  // namespace kachel::ir
