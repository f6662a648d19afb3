// What a text holds. Names of kernels and programs differ.
#pragma once
#include "ir/program.h"

namespace kachel::ir {

struct Module {
  int version = 1;  // of the language
  std::vector<Kernel> kernels;
  std::vector<Program> programs;

  const Kernel* find(std::string_view name) const {
    for (const Kernel& kernel : kernels)
      if (kernel.name == name) return &kernel;
    return nullptr;
  }
  const Program* find_program(std::string_view name) const {
    for (const Program& program : programs)
      if (program.header.name == name) return &program;
    return nullptr;
  }
};

}  // namespace kachel::ir
