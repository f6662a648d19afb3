// The device functions that emitted CUDA calls, of which a text gets those that it names. NVRTC parses one text at a
// time whatever the number of threads, so what it does not have to read is saved once for each candidate of a tuning.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace kachel::lowering {

// What `text` names, and what that names in turn, in the library's order, after the types that everything uses.
// Comments in `text` name nothing. Thread-safe.
std::string cuda_helpers(std::string_view text);

// Every name that the library defines, for tests.
std::vector<std::string> cuda_helper_names();

}  // namespace kachel::lowering
