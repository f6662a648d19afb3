// The groups of rules that verify() applies in turn. Private. Each adds what it finds to `out`.
#pragma once
#include "ir/module.h"
#include "ir/poly.h"
#include "ir/tunable_role.h"
#include "ir/visit.h"

namespace kachel::ir {

using Diagnostics = std::vector<Diagnostic>;

// Objects are complete, declared before use and named apart; statements stand where they may. The other groups
// REQUIRE a kernel in which this one finds nothing.
void check_structure(const Kernel& kernel, Diagnostics& out);
// Parameters, type symbols, host expressions and everything that must be known at compile time.
void check_header(const Kernel& kernel, Diagnostics& out);
void check_extents(const Kernel& kernel, Diagnostics& out);
// Shapes of copies and gemms, forms of slices.
void check_shapes(const Kernel& kernel, Diagnostics& out);
// Directions, atomics, 4-bit stores, tiles read before they are written.
void check_access(const Kernel& kernel, Diagnostics& out);
// Distinct iterations and distinct blocks write distinct elements.
void check_writes(const Kernel& kernel, Diagnostics& out);
// Reductions that are too much once the names in them are written out.
void check_expansion(const Kernel& kernel, Diagnostics& out);
// Prefix reductions stand in a region, over an index of it that their operands do not depend on.
void check_scans(const Kernel& kernel, Diagnostics& out);
// Type rules, for every choice of types.
void check_all_types(const Kernel& kernel, Diagnostics& out);

// A program of `module`: its header, its temporaries, and each call against the kernel that it names.
void check_program(const Module& module, const Program& program, Diagnostics& out);
// `tune auto` where nothing can be derived. `roles`: of the header's tunables.
void check_automatic(const Kernel& header, const std::vector<TunableRole>& roles, Diagnostics& out);
// What the host evaluates: dimensions, constants, tunables and, where they are known, run-time scalars.
void check_host(const ExprRef& expr, bool scalars, std::string_view place, Diagnostics& out);

// Facts of `where a == b` where one side is a dimension.
void assume_where(const Kernel& kernel, PolyContext& polys);

// `T[BN, BK]`.
std::string show_type(const TypeRef& type);
std::string show_shape(const std::vector<ExprRef>& shape);
// The tile shape of a slice, as expressions.
std::vector<ExprRef> tile_shape(const TileRef& tile);
// The types a TypeRef may stand for.
std::vector<DType> possible_types(const TypeRef& type);

}  // namespace kachel::ir
