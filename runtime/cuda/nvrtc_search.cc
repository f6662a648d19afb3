#include "runtime/cuda/nvrtc_search.h"

#include <glob.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace kachel::runtime::cuda {
namespace {

#if defined(__aarch64__)
constexpr const char* kTarget = "targets/sbsa-linux/lib";
#else
constexpr const char* kTarget = "targets/x86_64-linux/lib";
#endif

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_folder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::vector<std::string> matches(const std::string& pattern) {
  std::vector<std::string> found;
  glob_t result{};
  if (glob(pattern.c_str(), 0, nullptr, &result) == 0) found.assign(result.gl_pathv, result.gl_pathv + result.gl_pathc);
  globfree(&result);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return version_less(b, a); });
  return found;
}

// A folder's own characters are no pattern.
std::string quoted(const std::string& path) {
  std::string out;
  for (char c : path) {
    if (c == '*' || c == '?' || c == '[' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

void add_folder(const std::string& pattern, std::vector<std::string>& out) {
  for (std::string& file : matches(pattern + "/libnvrtc.so.*")) out.push_back(std::move(file));
  for (std::string& file : matches(pattern + "/libnvrtc.so")) out.push_back(std::move(file));
}

// `pattern` may match several toolkits; a newer one comes with all its folders before an older.
void add_toolkit(const std::string& pattern, std::vector<std::string>& out) {
  for (const std::string& root : matches(pattern))
    for (const char* folder : {"lib64", "lib", kTarget}) add_folder(quoted(root) + "/" + folder, out);
}

// prefix/lib/python3.12/site-packages/nvidia/{cuda_nvrtc,cu13}/lib
void add_python(const std::string& prefix, std::vector<std::string>& out) {
  for (const char* packages : {"site-packages", "dist-packages"})
    add_folder(prefix + "/lib/python3*/" + packages + "/nvidia/*/lib", out);
}

// The folders above that of PATH's python3, once as named and once as linked.
std::vector<std::string> python_prefixes(const std::string& path) {
  std::vector<std::string> prefixes;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    begin = end + 1;
    struct stat info;
    if (folder.empty() || stat((folder + "/python3").c_str(), &info) != 0) continue;
    prefixes.push_back(folder + "/..");
    if (char* resolved = realpath((folder + "/python3").c_str(), nullptr)) {
      std::string file = resolved;
      ::free(resolved);
      prefixes.push_back(file.substr(0, file.rfind('/')) + "/..");
    }
    break;
  }
  return prefixes;
}

}  // namespace

bool version_less(const std::string& a, const std::string& b) {
  const auto digit = [](const std::string& s, size_t i) {
    return i < s.size() && std::isdigit(static_cast<unsigned char>(s[i]));
  };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a, i) && digit(b, j)) {
      size_t i_end = i, j_end = j;
      while (digit(a, i_end)) ++i_end;
      while (digit(b, j_end)) ++j_end;
      while (i < i_end && a[i] == '0') ++i;
      while (j < j_end && b[j] == '0') ++j;
      if (i_end - i != j_end - j) return i_end - i < j_end - j;
      const int order = a.compare(i, i_end - i, b, j, j_end - j);
      if (order != 0) return order < 0;
      i = i_end;
      j = j_end;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

NvrtcSearch NvrtcSearch::from_process(const std::string& option) {
  NvrtcSearch search;
  search.explicit_path = environment("KACHEL_NVRTC");
  if (search.explicit_path.empty()) search.explicit_path = option;
  search.cuda_home = environment("CUDA_HOME");
  if (search.cuda_home.empty()) search.cuda_home = environment("CUDA_PATH");
  search.home = environment("HOME");
  search.virtual_env = environment("VIRTUAL_ENV");
  search.conda_prefix = environment("CONDA_PREFIX");
  search.path = environment("PATH");
  return search;
}

std::vector<std::string> NvrtcSearch::candidates() const {
  std::vector<std::string> out;
  if (!explicit_path.empty()) {
    if (!is_folder(explicit_path)) return {explicit_path};
    add_folder(quoted(explicit_path), out);
    add_toolkit(quoted(explicit_path), out);
    return out;
  }
  if (ask_loader) out = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  if (!cuda_home.empty()) add_toolkit(quoted(cuda_home), out);
  const std::string root = quoted(system_root);
  add_toolkit(root + "/usr/local/cuda", out);
  add_toolkit(root + "/usr/local/cuda-*", out);
  add_toolkit(root + "/opt/cuda*", out);
  if (!virtual_env.empty()) add_python(quoted(virtual_env), out);
  if (!conda_prefix.empty()) {
    add_folder(quoted(conda_prefix) + "/lib", out);
    add_python(quoted(conda_prefix), out);
  }
  for (const std::string& prefix : python_prefixes(path)) add_python(quoted(prefix), out);
  if (!home.empty()) {
    add_python(quoted(home) + "/.local", out);
    add_python(quoted(home) + "/.pyenv/versions/*", out);
  }
  for (const char* prefix : {"/usr/local", "/usr", "/opt/*/.venv"}) add_python(root + prefix, out);
  return out;
}

}  // namespace kachel::runtime::cuda
