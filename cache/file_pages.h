// The part of LMDB's file format (0.9, data version 1) that a check from outside must know, read with pread and never
// through a mapping: a file that ends early gives a short read here where the mapping would give SIGBUS.
// Layouts are for 64-bit little-endian hosts, which is where such a file can come from.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kachel::cache {

using PageNumber = uint64_t;
inline constexpr PageNumber kNoPage = ~PageNumber{0};

enum PageFlags : uint16_t { kBranchPage = 1, kLeafPage = 2, kOverflowPage = 4, kMetaPage = 8 };
enum NodeFlags : uint16_t { kBigNode = 1, kTreeNode = 2 };

struct PageHeader {
  PageNumber number;
  uint16_t pad, flags;
  uint16_t lower, upper;  // both together: the number of pages of an overflow run
  uint32_t run_pages() const { return lower | uint32_t{upper} << 16; }
};
static_assert(sizeof(PageHeader) == 16);

// One B+tree: what LMDB calls a database.
struct TreeRoot {
  uint32_t pad;
  uint16_t flags, depth;
  uint64_t branch_pages, leaf_pages, overflow_pages, entries;
  PageNumber root;
};
static_assert(sizeof(TreeRoot) == 48);

struct Meta {
  uint32_t magic, version;
  uint64_t address, map_size;
  TreeRoot free_tree, main_tree;  // free_tree.pad is the page size
  PageNumber last_page;
  uint64_t transaction;
};
static_assert(sizeof(Meta) == 136);

inline constexpr uint32_t kMetaMagic = 0xBEEFC0DE, kMetaVersion = 1;
// Flags of a tree. The free list's also keep how its environment was opened.
inline constexpr uint16_t kIntegerKeys = 8, kNoDirectory = 0x4000;

// A node of a leaf or branch page, bounds-checked against its page.
struct Node {
  uint16_t flags;
  std::string_view key;
  uint64_t size;          // of the value, in the page or in its overflow run
  std::string_view rest;  // leaf: the value, or the page number of its overflow run; branch: empty
  PageNumber child;       // branch
};

// A branch or leaf page in memory.
class TreePage {
 public:
  explicit TreePage(std::string_view bytes) : bytes_(bytes) {}
  PageHeader header() const;
  // Bounds of the node table hold; node() may be called for each index below count().
  bool well_formed() const;
  size_t count() const { return (header().lower - sizeof(PageHeader)) / 2; }
  // False if the node leaves its page.
  bool node(size_t index, Node* out) const;

 private:
  std::string_view bytes_;
};

// Positioned reads of whole pages.
class PageFile {
 public:
  PageFile(int descriptor, uint64_t size) : descriptor_(descriptor), size_(size) {}
  uint64_t size() const { return size_; }
  bool read(uint64_t offset, void* into, size_t size) const;

 private:
  int descriptor_;
  uint64_t size_;
};

}  // namespace kachel::cache
