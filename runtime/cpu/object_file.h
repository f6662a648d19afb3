// A checked view of a relocatable ELF64 x86-64 object.
//
// The bytes come from a store that may be damaged or written by somebody else. parse() reads every header, section,
// symbol and relocation once, refuses what is malformed or what a kernel has no business with (thread-local storage,
// writable data, constructors, absolute or common symbols), and leaves structures whose offsets and indices are in
// range, so that the loader needs no further checks.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/status.h"

namespace kachel::runtime {

constexpr uint32_t kNoSection = ~uint32_t{0};

struct ObjectSection {
  std::string_view name;
  std::string_view contents;  // empty for a section of zeros
  uint64_t size = 0;          // in memory
  uint64_t alignment = 1;     // a power of two, at most kMaxAlignment
  bool executable = false;
};

struct ObjectSymbol {
  std::string_view name;          // empty for sections
  uint32_t section = kNoSection;  // index into ObjectFile::sections; kNoSection: undefined, or in a section not loaded
  uint64_t offset = 0;            // at most the section's size
  bool undefined = false;
  bool global_function = false;
};

struct ObjectRelocation {
  uint32_t type = 0;
  uint32_t section = 0;  // index into ObjectFile::sections; it has contents, and width bytes of them at offset
  uint64_t offset = 0;
  uint32_t width = 0;   // 4 or 8
  uint32_t symbol = 0;  // index into ObjectFile::symbols; defined in a loaded section, or undefined
  int64_t addend = 0;
};

struct ObjectFile {
  static constexpr uint64_t kMaxAlignment = 4096;
  static constexpr uint64_t kMaxBytes = uint64_t{256} << 20;  // of the file and of what it occupies when loaded

  std::vector<ObjectSection> sections;  // those that are loaded
  std::vector<ObjectSymbol> symbols;
  std::vector<ObjectRelocation> relocations;

  // Views into `bytes`, which must outlive the result. kInvalid for anything it cannot vouch for.
  static Result<ObjectFile> parse(std::string_view bytes);
};

}  // namespace kachel::runtime
