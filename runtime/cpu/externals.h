// The functions outside a kernel's own object that it may call: a fixed list, so that neither a damaged store nor a
// surprising rewrite by the compiler can reach anything else of the process.
#pragma once
#include <string_view>

namespace kachel::runtime {

// The address of the function, or null for a name that is not on the list.
const void* find_external(std::string_view name);

struct External {
  std::string_view name;
  const void* address;
};
struct ExternalList {
  const External* first;
  const External* last;
  const External* begin() const { return first; }
  const External* end() const { return last; }
};
// All of them, sorted by name.
ExternalList all_externals();

}  // namespace kachel::runtime
