// The layout is one anonymous mapping of two parts, each a whole number of pages:
//
//     code     executable sections, then a stub for each external function        read and execute
//     data     a table of addresses, one per symbol that needs it, then constants   read
//
// All of it is writable while sections are copied and relocations applied, and never again; nothing is ever writable
// and executable at once. Kernels are compiled position-independent for the small code model: within the mapping
// everything is in reach of 32 bits, and what lies outside (the C library) is reached through the table, calls through
// a stub `jmp *slot(%rip)`. The formulas in apply() are those of the x86-64 psABI, chapter 4.4.
#include "runtime/cpu/object_loader.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/cpu/externals.h"
#include "runtime/cpu/object_file.h"

namespace kachel::runtime {
namespace {

constexpr uint64_t kStubBytes = 8;
constexpr uint64_t kSlotBytes = 8;
constexpr unsigned char kTrap = 0xcc;  // int3, between functions

uint64_t round_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

bool uses_table(uint32_t type) {
  return type == R_X86_64_GOTPCREL || type == R_X86_64_GOTPCRELX || type == R_X86_64_REX_GOTPCRELX;
}

// Where everything goes, as offsets from the start of the mapping.
class Layout {
 public:
  static constexpr uint64_t kNone = ~uint64_t{0};

  static Result<Layout> plan(const ObjectFile& file) {
    Layout layout;
    KACHEL_TRY(layout.resolve(file));
    layout.place(file);
    return layout;
  }

  std::vector<uint64_t> sections;      // by section
  std::vector<uint64_t> stubs, slots;  // by symbol, kNone where it needs none
  std::vector<const void*> externals;  // by symbol, null for a defined one
  uint64_t code_bytes = 0, total_bytes = 0;

 private:
  Status resolve(const ObjectFile& file);
  void place(const ObjectFile& file);
};

Status Layout::resolve(const ObjectFile& file) {
  externals.assign(file.symbols.size(), nullptr);
  stubs.assign(file.symbols.size(), kNone);
  slots.assign(file.symbols.size(), kNone);
  for (const ObjectRelocation& relocation : file.relocations) {
    uint32_t symbol = relocation.symbol;
    if (file.symbols[symbol].undefined) {
      externals[symbol] = find_external(file.symbols[symbol].name);
      if (!externals[symbol])
        return invalid(fmt::format("the CPU object cannot be loaded: it refers to '{}', which kernels may not use",
                                   file.symbols[symbol].name));
      stubs[symbol] = slots[symbol] = 0;
    } else if (uses_table(relocation.type)) {
      slots[symbol] = 0;
    }
  }
  return {};
}

void Layout::place(const ObjectFile& file) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  uint64_t end = 0;
  auto place_sections = [&](bool executable) {
    for (size_t i = 0; i < file.sections.size(); ++i) {
      if (file.sections[i].executable != executable) continue;
      sections[i] = round_up(end, file.sections[i].alignment);
      end = sections[i] + file.sections[i].size;
    }
  };
  sections.assign(file.sections.size(), kNone);
  place_sections(true);
  end = round_up(end, kStubBytes);
  for (uint64_t& stub : stubs)
    if (stub != kNone) stub = std::exchange(end, end + kStubBytes);
  code_bytes = end = round_up(end, page);
  for (uint64_t& slot : slots)
    if (slot != kNone) slot = std::exchange(end, end + kSlotBytes);
  place_sections(false);
  total_bytes = round_up(end, page);
}

void write_stub(char* base, uint64_t stub, uint64_t slot) {
  const unsigned char jump[2] = {0xff, 0x25};
  auto displacement = static_cast<int32_t>(slot - (stub + 6));
  std::memcpy(base + stub, jump, 2);
  std::memcpy(base + stub + 2, &displacement, 4);
}

void copy_sections(const ObjectFile& file, const Layout& layout, char* base) {
  std::memset(base, kTrap, layout.code_bytes);
  for (size_t i = 0; i < file.sections.size(); ++i)
    if (!file.sections[i].contents.empty())
      std::memcpy(base + layout.sections[i], file.sections[i].contents.data(), file.sections[i].contents.size());
  for (size_t i = 0; i < file.symbols.size(); ++i) {
    const ObjectSymbol& symbol = file.symbols[i];
    if (layout.stubs[i] != Layout::kNone) write_stub(base, layout.stubs[i], layout.slots[i]);
    if (layout.slots[i] == Layout::kNone) continue;
    const void* address =
        layout.externals[i] ? layout.externals[i] : base + layout.sections[symbol.section] + symbol.offset;
    std::memcpy(base + layout.slots[i], &address, kSlotBytes);
  }
}

// Unsigned arithmetic throughout: an absurd addend wraps and then fails the range check.
Status apply(const ObjectFile& file, const Layout& layout, char* base, const ObjectRelocation& relocation) {
  const auto origin = reinterpret_cast<uint64_t>(base);
  const ObjectSymbol& symbol = file.symbols[relocation.symbol];
  char* place = base + layout.sections[relocation.section] + relocation.offset;
  const auto from = reinterpret_cast<uint64_t>(place);
  const auto addend = static_cast<uint64_t>(relocation.addend);
  const auto external = reinterpret_cast<uint64_t>(layout.externals[relocation.symbol]);
  const uint64_t near = external ? origin + layout.stubs[relocation.symbol]  // in reach of 32 bits
                                 : origin + layout.sections[symbol.section] + symbol.offset;
  uint64_t value = 0;
  bool is_signed = true;
  switch (relocation.type) {
    case R_X86_64_64:
      value = (external ? external : near) + addend;
      break;
    case R_X86_64_32:
      value = near + addend;
      is_signed = false;
      break;
    case R_X86_64_32S:
      value = near + addend;
      break;
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
    case R_X86_64_PC64:
      value = near + addend - from;
      break;
    default:
      value = origin + layout.slots[relocation.symbol] + addend - from;
      break;  // the table's
  }
  if (relocation.width == 4) {
    bool fits = is_signed ? static_cast<int64_t>(value) == static_cast<int32_t>(value) : value >> 32 == 0;
    if (!fits) return invalid("the CPU object is damaged: a relocation is out of reach");
  }
  std::memcpy(place, &value, relocation.width);
  return {};
}

}  // namespace

Status LoadedObject::check(std::string_view bytes) {
  KACHEL_ASSIGN(ObjectFile file, ObjectFile::parse(bytes));
  return Layout::plan(file).status();
}

Result<std::unique_ptr<LoadedObject>> LoadedObject::load(std::string_view bytes) {
  KACHEL_ASSIGN(ObjectFile file, ObjectFile::parse(bytes));
  KACHEL_ASSIGN(Layout layout, Layout::plan(file));
  if (layout.code_bytes == 0) return invalid("the CPU object is damaged: it holds no code");

  void* mapping =
      mmap(nullptr, layout.total_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
  if (mapping == MAP_FAILED)
    return Status(Code::kNoMemory,
                  fmt::format("no memory for {} bytes of code: {}", layout.total_bytes, std::strerror(errno)));
  std::unique_ptr<LoadedObject> object(new LoadedObject);  // unmaps from here on
  object->base_ = static_cast<char*>(mapping);
  object->bytes_ = layout.total_bytes;

  copy_sections(file, layout, object->base_);
  for (const ObjectRelocation& relocation : file.relocations)
    KACHEL_TRY(apply(file, layout, object->base_, relocation));
  if (mprotect(mapping, layout.code_bytes, PROT_READ | PROT_EXEC) != 0)
    return unsupported(fmt::format("the system refuses to make code executable: {}", std::strerror(errno)));
  if (layout.total_bytes > layout.code_bytes &&
      mprotect(object->base_ + layout.code_bytes, layout.total_bytes - layout.code_bytes, PROT_READ) != 0)
    return internal(fmt::format("mprotect: {}", std::strerror(errno)));

  for (const ObjectSymbol& symbol : file.symbols)
    if (symbol.global_function)
      object->functions_.emplace_back(symbol.name, object->base_ + layout.sections[symbol.section] + symbol.offset);
  return object;
}

LoadedObject::~LoadedObject() {
  if (base_) munmap(base_, bytes_);
}

const void* LoadedObject::find(std::string_view name) const {
  for (const auto& [function, address] : functions_)
    if (function == name) return address;
  return nullptr;
}

}  // namespace kachel::runtime
