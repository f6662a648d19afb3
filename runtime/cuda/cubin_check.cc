#include "runtime/cuda/cubin_check.h"

#include <elf.h>
#include <fmt/format.h>

#include <cstring>

namespace kachel::runtime::cuda {
namespace {

constexpr uint16_t kMachineCuda = 190;

bool within(uint64_t offset, uint64_t bytes, uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

template <class T>
T read(std::string_view binary, uint64_t offset) {
  T value;
  std::memcpy(&value, binary.data() + offset, sizeof(T));
  return value;
}

Status damaged(const char* what) {
  return invalid(fmt::format("the binary is damaged: {}", what));
}

Status check_elf(std::string_view binary) {
  const uint64_t size = binary.size();
  if (size < sizeof(Elf64_Ehdr)) return damaged("shorter than an ELF header");
  const auto header = read<Elf64_Ehdr>(binary, 0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != kMachineCuda)
    return invalid("the binary is an ELF file, but not for CUDA devices");
  if (header.e_shnum == 0 || header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum ||
      !within(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr), size))
    return damaged("its section table is not within it");
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    const auto section = read<Elf64_Shdr>(binary, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (section.sh_type == SHT_NULL || section.sh_type == SHT_NOBITS) continue;
    if (!within(section.sh_offset, section.sh_size, size)) return damaged("a section is not within it");
    if (section.sh_type == SHT_STRTAB && section.sh_size > 0 && binary[section.sh_offset + section.sh_size - 1] != '\0')
      return damaged("a string table does not end");
  }
  if (header.e_phnum > 0 && (header.e_phentsize != sizeof(Elf64_Phdr) ||
                             !within(header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr), size)))
    return damaged("its segment table is not within it");
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = read<Elf64_Phdr>(binary, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (!within(segment.p_offset, segment.p_filesz, size)) return damaged("a segment is not within it");
  }
  return {};
}

}  // namespace

Status check_cubin(std::string_view binary) {
  if (binary.starts_with(ELFMAG)) return check_elf(binary);
  // PTX as NVRTC writes it: text, comments first, then the version directive.
  const bool text = binary.find('\0') == std::string_view::npos;
  if (text && (binary.starts_with("//") || binary.starts_with(".version")) &&
      binary.find(".version") != std::string_view::npos && binary.find(".target") != std::string_view::npos)
    return {};
  return invalid("the binary is neither a cubin nor PTX");
}

}  // namespace kachel::runtime::cuda
