#include "runtime/own_folder.h"

#include <dlfcn.h>

namespace kachel::runtime {

std::string own_folder() {
  static const char marker = 0;
  Dl_info info;
  if (!dladdr(&marker, &info) || !info.dli_fname) return ".";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace kachel::runtime
