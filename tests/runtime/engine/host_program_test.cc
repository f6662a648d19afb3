#include "runtime/engine/bind/host_program.h"

#include <doctest/doctest.h>

#include <bit>
#include <random>

#include "ir/numerics.h"

namespace kachel::runtime {
namespace {

using ir::DType;
using ir::ExprRef;
using ir::Op;

ir::VarRef var(ir::VarKind kind, const char* name, DType type) {
  return std::make_shared<ir::Var>(ir::Var{kind, name, ir::TypeRef{type, nullptr}, {}});
}

// Variables of every kind, with values in both forms.
struct World {
  std::vector<ir::VarRef> vars = {
      var(ir::VarKind::kDim, "M", DType::I64),      var(ir::VarKind::kDim, "N", DType::I64),
      var(ir::VarKind::kScalar, "n", DType::I32),   var(ir::VarKind::kScalar, "u", DType::U32),
      var(ir::VarKind::kScalar, "x", DType::F32),   var(ir::VarKind::kScalar, "w", DType::U64),
      var(ir::VarKind::kTunable, "BM", DType::I64), var(ir::VarKind::kConst, "group", DType::I32),
      var(ir::VarKind::kConst, "eps", DType::F32)};
  HostScope scope;
  ir::HostEnv env;
  int64_t dims[2], tunables[1];
  uint64_t scalars[4];

  explicit World(std::mt19937_64& random) {
    auto small = [&] { return static_cast<int64_t>(random() % 7 == 0 ? random() : random() % 200) - 20; };
    dims[0] = std::abs(small() / 2);
    dims[1] = std::abs(small() / 2);
    const auto n = static_cast<int32_t>(small());
    const auto u = static_cast<uint32_t>(small());
    const float x = static_cast<float>(small()) / 8;
    const auto w = static_cast<uint64_t>(small());
    scalars[0] = static_cast<uint64_t>(int64_t{n});
    scalars[1] = u;
    scalars[2] = std::bit_cast<uint32_t>(x);
    scalars[3] = w;
    tunables[0] = small();
    scope.dims = {{vars[0].get(), 0}, {vars[1].get(), 1}};
    scope.scalars = {{vars[2].get(), 0}, {vars[3].get(), 1}, {vars[4].get(), 2}, {vars[5].get(), 3}};
    scope.tunables = {{vars[6].get(), 0}};
    scope.consts[vars[7].get()] = {false, 16, 0};
    scope.consts[vars[8].get()] = {true, 0, 0.25};
    env = {{vars[0].get(), {false, dims[0], 0}},
           {vars[1].get(), {false, dims[1], 0}},
           {vars[2].get(), {false, n, 0}},
           {vars[3].get(), {false, u, 0}},
           {vars[4].get(), {true, 0, x}},
           {vars[5].get(), {false, static_cast<int64_t>(w), 0}},
           {vars[6].get(), {false, tunables[0], 0}},
           {vars[7].get(), {false, 16, 0}},
           {vars[8].get(), {true, 0, 0.25}}};
  }
  HostInputs inputs() const { return {dims, scalars, tunables}; }
};

ExprRef random_expr(std::mt19937_64& random, const World& world, int depth) {
  const auto pick = random() % 10;
  if (depth == 0 || pick < 3) {
    if (random() % 3 == 0) return ir::make_int(static_cast<int64_t>(random() % 40) - 5);
    if (random() % 8 == 0) return ir::make_float(static_cast<double>(random() % 64) / 4);
    return ir::make_var(world.vars[random() % world.vars.size()]);
  }
  if (pick == 3) {
    const DType types[] = {DType::I32, DType::I64, DType::F32, DType::U32, DType::F16, DType::U8, DType::Bool};
    return ir::make_cast(ir::TypeRef{types[random() % 7], nullptr}, random_expr(random, world, depth - 1));
  }
  const auto op = static_cast<Op>(random() % ir::kTextOpCount);
  std::vector<ExprRef> args;
  for (int i = 0; i < ir::info(op).arity; ++i) args.push_back(random_expr(random, world, depth - 1));
  return ir::make_apply(op, std::move(args));
}

TEST_CASE("host programs agree with ir::evaluate on random expressions") {
  std::mt19937_64 random(7);
  int valid = 0, refused = 0, floats = 0;
  for (int round = 0; round < 20000; ++round) {
    World world(random);
    ExprRef expr = random_expr(random, world, 4);
    auto expected = ir::evaluate(expr, world.env);
    auto program = HostProgram::compile(expr, world.scope);
    CAPTURE(round);
    REQUIRE(program.ok() == expected.ok());
    if (!program.ok()) {
      ++refused;
      CHECK(program.status().code() == expected.status().code());
      continue;
    }
    ++valid;
    const int64_t value = program->run(world.inputs());
    REQUIRE(program->form().run(world.inputs()) == value);
    const HostProgram concrete = program->with_tunables(world.tunables);
    REQUIRE_FALSE(concrete.mentions_tunables());
    REQUIRE(concrete.run({world.dims, world.scalars}) == value);
    REQUIRE(program->is_float() == expected->is_float);
    if (!program->is_float()) {
      REQUIRE(value == expected->i);
      continue;
    }
    ++floats;
    const auto real = std::bit_cast<double>(value);
    REQUIRE((real == expected->f || (real != real && expected->f != expected->f)));
  }
  CHECK(valid > 4000);
  CHECK(floats > 500);
  CHECK(refused > 1000);
}

TEST_CASE("common expressions have a form of their own") {
  std::mt19937_64 random(1);
  World world(random);
  const auto dim = ir::make_var(world.vars[0]), tile = ir::make_var(world.vars[6]);
  struct Case {
    ExprRef expr;
    HostForm::Kind kind;
  };
  const Case cases[] = {
      {ir::make_int(7), HostForm::Kind::kConst},
      {tile, HostForm::Kind::kConst},
      {dim, HostForm::Kind::kDim},
      {ir::make_var(world.vars[2]), HostForm::Kind::kScalar},
      {ir::make_apply(Op::kBucket, {dim}), HostForm::Kind::kBucket},
      {ir::make_apply(Op::kCeilDiv, {dim, tile}), HostForm::Kind::kCeilDiv},
      {ir::make_apply(Op::kCeilDiv, {dim, ir::make_apply(Op::kMul, {tile, ir::make_int(2)})}),
       HostForm::Kind::kCeilDiv},
      {ir::make_apply(Op::kEq, {ir::make_apply(Op::kMod, {dim, tile}), ir::make_int(0)}), HostForm::Kind::kMultipleOf},
      {ir::make_apply(Op::kCeilDiv, {ir::make_int(64), dim}), HostForm::Kind::kProgram},
      {ir::make_apply(Op::kSub, {dim, tile}), HostForm::Kind::kProgram},
  };
  world.tunables[0] = 16;
  world.env[world.vars[6].get()].i = 16;
  for (const Case& test : cases) {
    auto compiled = HostProgram::compile(test.expr, world.scope);
    REQUIRE(compiled.ok());
    const HostProgram program = compiled->with_tunables(world.tunables);
    CHECK(program.form().kind == test.kind);
    for (int64_t value : {int64_t{0}, int64_t{1}, int64_t{15}, int64_t{16}, int64_t{17}, int64_t{-1}, int64_t{-17},
                          (int64_t{1} << 62) + 1, INT64_MAX, INT64_MIN}) {
      world.dims[0] = value;
      world.env[world.vars[0].get()].i = value;
      auto expected = ir::evaluate(test.expr, world.env);
      REQUIRE(expected.ok());
      CHECK(program.form().run({world.dims, world.scalars}) == expected->i);
    }
  }
  // No constant by which it would be undefined to divide.
  world.tunables[0] = 0;
  auto by_zero = HostProgram::compile(cases[5].expr, world.scope);
  CHECK(by_zero->with_tunables(world.tunables).form().kind == HostForm::Kind::kProgram);
}

TEST_CASE("what a program reads is known") {
  std::mt19937_64 random(1);
  World world(random);
  auto compile = [&](ExprRef expr) {
    auto program = HostProgram::compile(expr, world.scope);
    REQUIRE(program.ok());
    return *program;
  };
  CHECK(compile(ir::make_var(world.vars[0])).mentions_dims());
  CHECK(compile(ir::make_var(world.vars[2])).mentions_scalars());
  CHECK(compile(ir::make_var(world.vars[6])).mentions_tunables());
  HostProgram folded = compile(ir::make_apply(Op::kMul, {ir::make_var(world.vars[7]), ir::make_int(4)}));
  CHECK_FALSE(folded.mentions_dims());
  CHECK(folded.run({}) == 64);
}

TEST_CASE("what has no value on the host, or is too deep, is refused with a mend") {
  HostScope scope;
  auto stray = ir::make_var(var(ir::VarKind::kLoop, "k", DType::I64));
  auto refused = HostProgram::compile(stray, scope);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().code() == Code::kInvalid);
  CHECK(refused.status().message().find("`k`") != std::string::npos);

  std::mt19937_64 random(1);
  World world(random);
  ExprRef deep = ir::make_var(world.vars[0]);
  for (int i = 0; i < 100; ++i) deep = ir::make_apply(Op::kSub, {ir::make_var(world.vars[1]), deep});
  auto too_deep = HostProgram::compile(deep, world.scope);
  REQUIRE_FALSE(too_deep.ok());
  CHECK(too_deep.status().code() == Code::kUnsupported);
  // As deep on the other side needs no stack.
  ExprRef left = ir::make_var(world.vars[0]);
  for (int i = 0; i < 100; ++i) left = ir::make_apply(Op::kSub, {left, ir::make_var(world.vars[1])});
  CHECK(HostProgram::compile(left, world.scope).ok());
}

}  // namespace
}  // namespace kachel::runtime
