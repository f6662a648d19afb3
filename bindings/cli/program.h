// A kernel of a program file with everything bound that --bind, --type and --const say.
#pragma once
#include <string>
#include <vector>

#include "session.h"

namespace kachel::cli {

// The file's bytes; "-" reads standard input.
Outcome<std::string> read_text(const std::string& file);

// Parses and verifies; a wrong text is Exit::kRefused.
Outcome<ModuleHandle> load_module(const Session& session, const std::string& file);

struct Parameter {
  std::string name, type;  // type: a dtype's name; type symbols are resolved
  int32_t kind = KACHEL_IN;
  std::vector<int64_t> shape;  // empty for scalars
};

struct Program {
  ModuleHandle module;
  KernelHandle kernel;
  std::vector<std::string> dim_names;
  std::vector<int64_t> dims;
  std::vector<Parameter> parameters;

  std::string name() const { return kachel_kernel_name(kernel.get()); }
  std::string shape_text() const;  // "M=512 N=512 K=512"
};

Outcome<Program> load_program(const Session& session, const Options& options);

}  // namespace kachel::cli
