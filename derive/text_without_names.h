// What kernels are compared by. Private to derive/.
#pragma once
#include <string>

#include "ir/kernel.h"

namespace kachel::derive {

// The kernel's text with numbers in the places of the names that are its own, those of its outputs included, so that two
// that do the same to the same tensors are equal.
std::string text_without_names(const ir::Kernel& kernel);

}  // namespace kachel::derive
