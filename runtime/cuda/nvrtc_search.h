// Where libnvrtc may lie. Only file names are made here; nothing is opened.
#pragma once
#include <string>
#include <vector>

namespace kachel::runtime::cuda {

// What of the environment the search depends on. from_process() reads it; tests write their own.
struct NvrtcSearch {
  std::string explicit_path;  // KACHEL_NVRTC, else the option: a file or a folder
  std::string cuda_home;      // CUDA_HOME, else CUDA_PATH
  std::string home, virtual_env, conda_prefix;
  std::string path;         // PATH, for the folder of its python3
  std::string system_root;  // before /usr and /opt; "" but in tests
  bool ask_loader = true;   // offer plain names, which the loader looks up itself

  static NvrtcSearch from_process(const std::string& option);

  // What to open, best first: with an explicit path only what it names, else the loader's own names, toolkits, and the
  // wheels that pip installs, each newest first.
  std::vector<std::string> candidates() const;
};

// "libnvrtc.so.13" < "libnvrtc.so.14", "cuda-12.9" < "cuda-13.0": digits compare as numbers.
bool version_less(const std::string& a, const std::string& b);

}  // namespace kachel::runtime::cuda
