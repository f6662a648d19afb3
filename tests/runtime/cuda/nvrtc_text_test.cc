// What needs neither NVRTC nor a GPU: where NVRTC is looked for, which architecture is asked of it, what its log says,
// which binaries are let through to the driver.
#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/cuda/cubin_check.h"
#include "runtime/cuda/nvrtc_search.h"
#include "runtime/cuda/nvrtc_target.h"
#include "runtime/cuda/ptxas_log.h"
#include "tests/runtime/cuda/cuda_test_support.h"

namespace kachel::runtime::cuda {
namespace {

namespace fs = std::filesystem;

// A tree of empty files, gone at the end.
class Tree {
 public:
  Tree() {
    char name[] = "/tmp/kachel_nvrtc_[x]_XXXXXX";  // brackets: a folder's name is no pattern
    REQUIRE(mkdtemp(name));
    root_ = name;
  }
  ~Tree() { fs::remove_all(root_); }
  std::string add(const std::string& path) {
    const fs::path file = root_ + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file).put('\n');
    return file;
  }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

NvrtcSearch bare_search(const Tree& tree) {
  NvrtcSearch search;
  search.system_root = tree.root();
  search.ask_loader = false;
  return search;
}

}  // namespace

TEST_CASE("toolkits come before wheels, newer before older") {
  Tree tree;
  const std::string old_toolkit = tree.add("/usr/local/cuda-12.9/lib64/libnvrtc.so.12");
  const std::string new_toolkit = tree.add("/usr/local/cuda-13.0/targets/x86_64-linux/lib/libnvrtc.so.13");
  const std::string newest = tree.add("/usr/local/cuda-13.10/targets/x86_64-linux/lib/libnvrtc.so.13");
  tree.add("/usr/local/cuda-13.0/targets/x86_64-linux/lib/libnvrtc-builtins.so.13.0");
  tree.add("/usr/local/cuda-13.0/targets/x86_64-linux/lib/libnvrtc.alt.so.13");
  const std::string system = tree.add("/usr/local/lib/python3.11/dist-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  const std::string image = tree.add("/opt/torch/.venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  const std::string venv = tree.add("/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  const std::string user = tree.add("/me/.local/lib/python3.9/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  const std::string pyenv =
      tree.add("/me/.pyenv/versions/3.11.7/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  const std::string conda = tree.add("/conda/lib/libnvrtc.so.12");
  NvrtcSearch search = bare_search(tree);
#if !defined(__x86_64__)
  MESSAGE("SKIPPED: the tree is one of x86-64");
  return;
#endif
  CHECK(search.candidates() == std::vector<std::string>{newest, new_toolkit, old_toolkit, system, image});
  search.virtual_env = tree.root() + "/venv";
  search.conda_prefix = tree.root() + "/conda";
  search.home = tree.root() + "/me";
  CHECK(search.candidates() ==
        std::vector<std::string>{newest, new_toolkit, old_toolkit, venv, conda, user, pyenv, system, image});
  search.cuda_home = tree.root() + "/usr/local/cuda-12.9";
  CHECK(search.candidates().front() == old_toolkit);
  search.ask_loader = true;
  CHECK(search.candidates().front() == "libnvrtc.so.13");
}

TEST_CASE("the wheels of PATH's python3 are found, through its link as well") {
  Tree tree;
  tree.add("/base/bin/python3.12");
  const std::string base = tree.add("/base/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  fs::create_directories(tree.root() + "/env/bin");
  fs::create_symlink(tree.root() + "/base/bin/python3.12", tree.root() + "/env/bin/python3");
  const std::string env = tree.add("/env/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  NvrtcSearch search = bare_search(tree);
  search.path = "/nonexistent::" + tree.root() + "/env/bin:" + tree.root() + "/base/bin";
  const auto found = search.candidates();
  REQUIRE(found.size() == 2);
  CHECK(fs::equivalent(found[0], env));
  CHECK(fs::equivalent(found[1], base));
}

TEST_CASE("an explicit path is a file or a folder and nothing else is tried") {
  Tree tree;
  const std::string toolkit = tree.add("/usr/local/cuda-13.0/lib64/libnvrtc.so.13");
  const std::string mine = tree.add("/mine/libnvrtc.so.12");
  NvrtcSearch search = bare_search(tree);
  search.explicit_path = mine;
  CHECK(search.candidates() == std::vector<std::string>{mine});
  search.explicit_path = tree.root() + "/mine";
  CHECK(search.candidates() == std::vector<std::string>{mine});
  search.explicit_path = tree.root() + "/usr/local/cuda-13.0";
  CHECK(search.candidates() == std::vector<std::string>{toolkit});
  search.explicit_path = tree.root() + "/absent";
  CHECK(search.candidates() == std::vector<std::string>{tree.root() + "/absent"});
}

TEST_CASE("versions in names compare as numbers") {
  CHECK(version_less("cuda-9.2", "cuda-13.0"));
  CHECK(version_less("cuda-13.2", "cuda-13.10"));
  CHECK(!version_less("cuda-13.10", "cuda-13.2"));
  CHECK(version_less("libnvrtc.so", "libnvrtc.so.12"));
  CHECK(!version_less("a", "a"));
  CHECK(version_less("a07b", "a7c"));
}

TEST_CASE("the architecture of a device and what an NVRTC makes of it") {
  CHECK(device_architecture(8, 0) == "sm_80");
  CHECK(device_architecture(8, 9) == "sm_89");
  CHECK(device_architecture(9, 0) == "sm_90a");
  CHECK(device_architecture(10, 0) == "sm_100a");
  CHECK(device_architecture(12, 1) == "sm_121a");

  const std::vector<int> known = {75, 80, 86, 89, 90, 100, 120};
  const auto target = [&](const char* architecture) { return value_of(choose_target(architecture, known, "nvrtc 9")); };
  CHECK(target("sm_90a").option == "-arch=sm_90a");
  CHECK(target("sm_90").option == "-arch=sm_90");
  CHECK(target("sm_120f").option == "-arch=sm_120f");
  CHECK(target("sm_90a").note.empty());
  CHECK(!target("sm_90a").ptx);
  // The same generation: a cubin for an older member of it, which the suffix would forbid to run.
  CHECK(target("sm_121a").option == "-arch=sm_120");
  CHECK(!target("sm_121a").ptx);
  CHECK(target("sm_121a").note.find("does not know sm_121a") != std::string::npos);
  CHECK(target("sm_103a").option == "-arch=sm_100");
  // Another generation: only PTX reaches it.
  CHECK(target("sm_110a").option == "-arch=compute_100");
  CHECK(target("sm_110a").ptx);
  CHECK(target("sm_130a").option == "-arch=compute_120");
  CHECK(choose_target("sm_70", known, "nvrtc 9").status().code() == Code::kUnsupported);
  for (const char* bad : {"", "sm_", "sm_90b", "sm_90aa", "sm_9", "90", "compute_90", "sm_x", "sm_-90", "sm_90 -G"}) {
    CAPTURE(bad);
    CHECK(choose_target(bad, known, "nvrtc 9").status().code() == Code::kInvalid);
  }
}

TEST_CASE("older instructions on a newer device") {
  for (const char* none : {static_cast<const char*>(nullptr), ""}) CHECK(value_of(chosen_instructions(90, none)) == 90);
  CHECK(value_of(chosen_instructions(90, "80")) == 80);
  CHECK(value_of(chosen_instructions(89, "120")) == 89);
  for (const char* bad : {"sm_80", "80a", "75", "-1", " "}) {
    const Status status = chosen_instructions(90, bad).status();
    CHECK(status.code() == Code::kInvalid);
    CHECK(status.message().find("write the architecture") != std::string::npos);
  }
}

TEST_CASE("ptxas's log: two kernels, a called function, both styles of versions") {
  constexpr std::string_view kLog =
      "kernel.cu(3): warning #177-D: variable \"Used 99 registers\" was declared but never referenced\n"
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to x in "
      "function 'g'\n"
      "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at "
      "entry.\n"
      "ptxas info    : 304 bytes gmem\n"
      "ptxas info    : Compiling entry function 'f' for 'sm_90a'\n"
      "ptxas info    : Function properties for f\n"
      "ptxas         .     720 bytes stack frame, 1292 bytes spill stores, 1464 bytes spill loads\n"
      "ptxas info    : Used 32 registers, used 0 barriers, 720 bytes cumulative stack size\n"
      "ptxas info    : Compile time = 37.021 ms\n"
      "ptxas info    : Compiling entry function 'g' for 'sm_90a'\n"
      "ptxas info    : Function properties for g\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 202 registers, 256 bytes smem, 380 bytes cmem[0]\n"
      "ptxas info    : Function properties for helper\n"
      "ptxas         .     8 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads";
  PtxasReport f = parse_ptxas_log(kLog, "f");
  CHECK(f.usage.registers == 32);
  CHECK(f.usage.spill_bytes == 1292 + 1464);
  CHECK(f.usage.shared_bytes == 0);
  REQUIRE(f.losses.size() == 2);
  CHECK(f.losses[0].find("C7510") != std::string::npos);
  CHECK(f.losses[1].find("C7508") != std::string::npos);
  PtxasReport g = parse_ptxas_log(kLog, "g");
  CHECK(g.usage.registers == 202);
  CHECK(g.usage.spill_bytes == 12);
  CHECK(g.usage.shared_bytes == 256);
  for (std::string_view log : {kLog, std::string_view(), std::string_view("Used registers\n bytes smem")}) {
    PtxasReport none = parse_ptxas_log(log, "h");
    CHECK(none.usage.registers == -1);
    CHECK(none.usage.spill_bytes == -1);
    CHECK(none.usage.shared_bytes == -1);
  }
}

TEST_CASE("a binary whose parts lie outside it never reaches the driver") {
  // A header, one segment, two sections and the string table that the second is.
  std::string binary(sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) + 2 * sizeof(Elf64_Shdr) + 8, '\0');
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_machine = 190;
  header.e_phoff = sizeof(Elf64_Ehdr);
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  header.e_shoff = header.e_phoff + sizeof(Elf64_Phdr);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 2;
  header.e_shstrndx = 1;
  Elf64_Phdr segment{};
  segment.p_filesz = binary.size();
  Elf64_Shdr names{};
  names.sh_type = SHT_STRTAB;
  names.sh_offset = binary.size() - 8;
  names.sh_size = 8;
  const auto assemble = [&](const Elf64_Ehdr& h, const Elf64_Phdr& p, const Elf64_Shdr& s) {
    std::string copy = binary;
    std::memcpy(copy.data(), &h, sizeof(h));
    std::memcpy(copy.data() + header.e_phoff, &p, sizeof(p));
    std::memcpy(copy.data() + header.e_shoff + sizeof(Elf64_Shdr), &s, sizeof(s));
    return copy;
  };
  const auto check = [&](const Elf64_Ehdr& h, const Elf64_Phdr& p, const Elf64_Shdr& s) {
    return check_cubin(assemble(h, p, s)).code();
  };
  CHECK(check(header, segment, names) == Code::kOk);
  const auto spoiled = [](auto value, auto spoil) {
    spoil(value);
    return value;
  };
  const auto bad_header = [&](auto spoil) { return check(spoiled(header, spoil), segment, names); };
  CHECK(bad_header([](auto& h) { h.e_machine = EM_X86_64; }) == Code::kInvalid);
  CHECK(bad_header([](auto& h) { h.e_ident[EI_CLASS] = ELFCLASS32; }) == Code::kInvalid);
  CHECK(bad_header([](auto& h) { h.e_shnum = 4; }) == Code::kInvalid);
  CHECK(bad_header([](auto& h) { h.e_shnum = 0; }) == Code::kInvalid);
  CHECK(bad_header([](auto& h) { h.e_shoff = ~uint64_t{0} - 7; }) == Code::kInvalid);
  CHECK(bad_header([](auto& h) { h.e_shstrndx = 2; }) == Code::kInvalid);
  CHECK(bad_header([](auto& h) { h.e_shentsize = 16; }) == Code::kInvalid);
  CHECK(bad_header([](auto& h) { h.e_phoff = 1 << 20; }) == Code::kInvalid);
  CHECK(bad_header([](auto& h) { h.e_phentsize = 1; }) == Code::kInvalid);
  CHECK(check(header, spoiled(segment, [](auto& p) { ++p.p_filesz; }), names) == Code::kInvalid);
  CHECK(check(header, segment, spoiled(names, [](auto& s) { s.sh_size = 9; })) == Code::kInvalid);
  CHECK(check(header, segment, spoiled(names, [](auto& s) { s.sh_offset = ~uint64_t{0}; })) == Code::kInvalid);
  // A section without contents may claim any size.
  CHECK(check(header, segment, spoiled(names, [](auto& s) { s.sh_type = SHT_NOBITS, s.sh_size = ~uint64_t{0}; })) ==
        Code::kOk);
  const std::string whole = assemble(header, segment, names);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    CAPTURE(bytes);
    CHECK(!check_cubin(std::string_view(whole).substr(0, bytes)).ok());
  }
  CHECK(check_cubin("// c\n.version 8.0\n.target sm_90\n").ok());
  CHECK(!check_cubin("// c\n.version 8.0\n").ok());
  CHECK(!check_cubin("hello").ok());
}

}  // namespace kachel::runtime::cuda
