#include "runtime/cpu/object_file.h"

#include <elf.h>
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <type_traits>

namespace kachel::runtime {
namespace {

// Not in every elf.h.
constexpr uint32_t kUnwindSection = 0x70000001;  // SHT_X86_64_UNWIND

Status malformed(std::string what) {
  return invalid("the CPU object is damaged: " + std::move(what));
}
Status refused(std::string what) {
  return invalid("the CPU object cannot be loaded: " + std::move(what));
}

// True where [offset, offset + size) lies within `total`.
bool within(uint64_t offset, uint64_t size, uint64_t total) {
  return offset <= total && size <= total - offset;
}

class Parser {
 public:
  explicit Parser(std::string_view bytes) : bytes_(bytes) {}

  Result<ObjectFile> parse() {
    KACHEL_TRY(read_header());
    KACHEL_TRY(read_sections());
    KACHEL_TRY(read_symbols());
    KACHEL_TRY(read_relocations());
    return std::move(file_);
  }

 private:
  // Copies, since nothing in the file need be aligned. REQUIRES: in range.
  template <class T>
  T read(uint64_t offset) const {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

  Status read_header();
  Status read_sections();
  Status read_symbols();
  Status read_relocations();
  Status classify(uint32_t index);
  Status read_relocation(const Elf64_Rela& entry, uint32_t section);
  // Null-terminated, from the string table in section `table`.
  Result<std::string_view> string_at(uint32_t table, uint32_t offset) const;

  std::string_view bytes_;
  ObjectFile file_;
  std::vector<Elf64_Shdr> headers_;
  std::vector<uint32_t> loaded_;  // section index in the file to index in file_.sections, or kNoSection
  uint32_t names_ = 0;
  uint32_t symbol_table_ = 0;
};

Status Parser::read_header() {
  if (bytes_.size() < sizeof(Elf64_Ehdr)) return malformed("too short for an ELF header");
  if (bytes_.size() > ObjectFile::kMaxBytes) return malformed("too large");
  auto header = read<Elf64_Ehdr>(0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return malformed("not an ELF file");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_ident[EI_VERSION] != EV_CURRENT || header.e_version != EV_CURRENT || header.e_type != ET_REL ||
      header.e_machine != EM_X86_64)
    return malformed("not a relocatable x86-64 object");
  if (header.e_ehsize != sizeof(Elf64_Ehdr) || header.e_shentsize != sizeof(Elf64_Shdr) || header.e_phnum != 0)
    return malformed("its header has unexpected sizes");
  // Zero sections would mean that their number is too large for the field; no kernel has that many.
  if (header.e_shnum == 0 || !within(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr), bytes_.size()))
    return malformed("its section table is out of range");
  for (uint32_t i = 0; i < header.e_shnum; ++i)
    headers_.push_back(read<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr)));
  names_ = header.e_shstrndx;
  if (names_ >= headers_.size() || headers_[names_].sh_type != SHT_STRTAB)
    return malformed("its section names are missing");
  for (const Elf64_Shdr& section : headers_)
    if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL &&
        !within(section.sh_offset, section.sh_size, bytes_.size()))
      return malformed("a section is out of range");
  return {};
}

Result<std::string_view> Parser::string_at(uint32_t table, uint32_t offset) const {
  if (table >= headers_.size() || headers_[table].sh_type != SHT_STRTAB) return malformed("a string table is missing");
  std::string_view strings = bytes_.substr(headers_[table].sh_offset, headers_[table].sh_size);
  if (offset >= strings.size()) return malformed("a name is out of range");
  size_t end = strings.find('\0', offset);
  if (end == std::string_view::npos) return malformed("a name does not end");
  return strings.substr(offset, end - offset);
}

Status Parser::read_sections() {
  loaded_.assign(headers_.size(), kNoSection);
  for (uint32_t i = 1; i < headers_.size(); ++i) KACHEL_TRY(classify(i));
  uint64_t total = 0;
  for (const ObjectSection& section : file_.sections) {
    if (section.size > ObjectFile::kMaxBytes) return malformed("a section is too large");
    total += section.size + section.alignment;
    if (total > ObjectFile::kMaxBytes) return malformed("its sections are too large");
  }
  return {};
}

Status Parser::classify(uint32_t index) {
  const Elf64_Shdr& header = headers_[index];
  KACHEL_ASSIGN(std::string_view name, string_at(names_, header.sh_name));
  switch (header.sh_type) {
    case SHT_SYMTAB:
      if (symbol_table_ != 0) return malformed("it has two symbol tables");
      symbol_table_ = index;
      return {};
    case SHT_NULL:
    case SHT_STRTAB:
    case SHT_RELA:
    case SHT_NOTE:
      return {};
    case SHT_REL:
    case SHT_GROUP:
    case SHT_SYMTAB_SHNDX:
      return refused(fmt::format("section '{}' is of an unsupported kind", name));
    default:
      break;
  }
  if (!(header.sh_flags & SHF_ALLOC) || header.sh_size == 0) return {};
  // Kernels do not throw, and nobody unwinds through them.
  if (header.sh_type == kUnwindSection || name == ".eh_frame") return {};
  if (header.sh_flags & SHF_TLS) return refused(fmt::format("section '{}' is thread-local", name));
  if (header.sh_type != SHT_PROGBITS && header.sh_type != SHT_NOBITS)
    return refused(fmt::format("section '{}' has the unsupported type {:#x}", name, header.sh_type));
  bool executable = header.sh_flags & SHF_EXECINSTR;
  // Tables of addresses are marked writable for the sake of the loader and are read-only from then on.
  bool relocated_constant = name == ".data.rel.ro" || name.starts_with(".data.rel.ro.");
  if ((header.sh_flags & SHF_WRITE) && (executable || !relocated_constant))
    return refused(fmt::format("section '{}' is writable; a kernel keeps no state between launches", name));
  if (executable && header.sh_type == SHT_NOBITS) return malformed("executable zeros");
  uint64_t alignment = header.sh_addralign == 0 ? 1 : header.sh_addralign;
  if (!std::has_single_bit(alignment) || alignment > ObjectFile::kMaxAlignment)
    return malformed(fmt::format("section '{}' wants the alignment {}", name, alignment));

  ObjectSection section;
  section.name = name;
  if (header.sh_type == SHT_PROGBITS) section.contents = bytes_.substr(header.sh_offset, header.sh_size);
  section.size = header.sh_size;
  section.alignment = alignment;
  section.executable = executable;
  loaded_[index] = static_cast<uint32_t>(file_.sections.size());
  file_.sections.push_back(section);
  return {};
}

Status Parser::read_symbols() {
  if (symbol_table_ == 0) return malformed("it has no symbols");
  const Elf64_Shdr& table = headers_[symbol_table_];
  if (table.sh_entsize != sizeof(Elf64_Sym) || table.sh_size % sizeof(Elf64_Sym) != 0)
    return malformed("its symbols have an unexpected size");
  file_.symbols.reserve(table.sh_size / sizeof(Elf64_Sym));
  for (uint64_t at = 0; at < table.sh_size; at += sizeof(Elf64_Sym)) {
    auto entry = read<Elf64_Sym>(table.sh_offset + at);
    ObjectSymbol symbol;
    KACHEL_ASSIGN(symbol.name, string_at(table.sh_link, entry.st_name));
    int type = ELF64_ST_TYPE(entry.st_info), binding = ELF64_ST_BIND(entry.st_info);
    if (type == STT_TLS) return refused(fmt::format("symbol '{}' is thread-local", symbol.name));
    if (type > STT_FILE) return refused(fmt::format("symbol '{}' has the unsupported type {}", symbol.name, type));
    if (binding > STB_WEAK) return refused(fmt::format("symbol '{}' has an unsupported binding", symbol.name));
    if (entry.st_shndx == SHN_UNDEF) {
      symbol.undefined = at != 0;
    } else if (entry.st_shndx == SHN_ABS) {
      // The file name; a relocation against such a symbol is refused below.
    } else if (entry.st_shndx >= headers_.size()) {
      return refused(fmt::format("symbol '{}' is in no ordinary section", symbol.name));
    } else if (uint32_t section = loaded_[entry.st_shndx]; section != kNoSection) {
      if (entry.st_value > file_.sections[section].size) return malformed("a symbol is out of range");
      symbol.section = section;
      symbol.offset = entry.st_value;
      symbol.global_function = type == STT_FUNC && binding == STB_GLOBAL && file_.sections[section].executable &&
                               entry.st_value < file_.sections[section].size;
    }
    file_.symbols.push_back(symbol);
  }
  return {};
}

Status Parser::read_relocations() {
  for (const Elf64_Shdr& table : headers_) {
    if (table.sh_type != SHT_RELA) continue;
    if (table.sh_info >= headers_.size()) return malformed("relocations of no section");
    uint32_t section = loaded_[table.sh_info];
    if (section == kNoSection) continue;
    if (table.sh_link != symbol_table_ || table.sh_entsize != sizeof(Elf64_Rela) ||
        table.sh_size % sizeof(Elf64_Rela) != 0)
      return malformed("its relocations have an unexpected form");
    for (uint64_t at = 0; at < table.sh_size; at += sizeof(Elf64_Rela))
      KACHEL_TRY(read_relocation(read<Elf64_Rela>(table.sh_offset + at), section));
  }
  return {};
}

Status Parser::read_relocation(const Elf64_Rela& entry, uint32_t section) {
  ObjectRelocation relocation;
  relocation.type = ELF64_R_TYPE(entry.r_info);
  switch (relocation.type) {
    case R_X86_64_NONE:
      return {};
    case R_X86_64_64:
    case R_X86_64_PC64:
      relocation.width = 8;
      break;
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
    case R_X86_64_32:
    case R_X86_64_32S:
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX:
      relocation.width = 4;
      break;
    default:
      return refused(fmt::format("unsupported relocation type {}", relocation.type));
  }
  relocation.section = section;
  relocation.offset = entry.r_offset;
  relocation.addend = entry.r_addend;
  uint64_t symbol = ELF64_R_SYM(entry.r_info);
  if (!within(entry.r_offset, relocation.width, file_.sections[section].contents.size()))
    return malformed("a relocation is out of range");
  if (symbol >= file_.symbols.size()) return malformed("a relocation names no symbol");
  relocation.symbol = static_cast<uint32_t>(symbol);
  const ObjectSymbol& target = file_.symbols[symbol];
  if (!target.undefined && target.section == kNoSection)
    return refused(fmt::format("a relocation against '{}', which is not loaded", target.name));
  file_.relocations.push_back(relocation);
  return {};
}

}  // namespace

Result<ObjectFile> ObjectFile::parse(std::string_view bytes) {
  return Parser(bytes).parse();
}

}  // namespace kachel::runtime
