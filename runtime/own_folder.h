// What is installed with this library lies at a fixed place from it.
#pragma once
#include <string>

namespace kachel::runtime {

// Where this library, or the program it was linked into, lies.
std::string own_folder();

}  // namespace kachel::runtime
