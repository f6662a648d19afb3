// LMDB trusts its file: it maps it, follows page numbers and node offsets as they stand, and answers surprises with an
// assertion or, past the end of the file, with SIGBUS. A host must not die of a bad cache file, so whatever LMDB would
// follow is followed here first.
//
// The walk starts at the newest meta page and visits the free list, the main tree and the trees that the main tree
// names. A bitmap holds one bit per page: reaching a page twice is an error, which also ends every cycle. For each page
// it checks its own number, its kind, that each node lies within the page, that keys ascend, that all leaves lie at the
// depth that the root states, and that runs of overflow pages lie within the file. The free list must name only
// pages that no tree reaches, each once; otherwise a later write would overwrite live pages. Values are not looked at:
// they carry their own checksums.
//
// Rejected: walking in a helper process through LMDB itself. It costs a process at start-up, needs a program to run,
// and still maps a file that may shrink; reading with pread needs no such care and takes a microsecond a page.
#include "cache/file_check.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <vector>

#include "cache/file_pages.h"

namespace kachel::cache {
namespace {

constexpr int kMaxDepth = 32;  // LMDB's own limit on a cursor

class Checker {
 public:
  Checker(int descriptor, uint64_t size) : file_(descriptor, size) {}

  std::string run(CheckDepth depth) {
    if (!read_metas()) return problem_;
    bool complete = newest_.last_page < file_.size() / page_size_;
    if (depth == CheckDepth::kTree || !complete) walk_all();
    return problem_;
  }

 private:
  bool fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return false;
  }

  bool read_metas() {
    Meta metas[2];
    for (int i = 0; i < 2; ++i) {
      PageHeader header;
      const uint64_t at = i * page_size_;
      Meta& meta = metas[i];
      if (!file_.read(at, &header, sizeof(header)) || !file_.read(at + sizeof(header), &meta, sizeof(meta)))
        return fail(fmt::format("{} bytes end within meta page {}", file_.size(), i));
      if (header.number != static_cast<PageNumber>(i) || header.flags != kMetaPage || meta.magic != kMetaMagic)
        return fail(fmt::format("page {} is no meta page", i));
      if (meta.version != kMetaVersion) return fail(fmt::format("data version {}", meta.version));
      uint64_t size = meta.free_tree.pad;
      if (size < 512 || size > 32768 || (size & (size - 1)) != 0 || (i == 1 && size != page_size_))
        return fail(fmt::format("meta page {} states a page size of {}", i, size));
      page_size_ = size;
      if (meta.address != 0 || meta.map_size >> 48 != 0 || meta.map_size / size <= meta.last_page)
        return fail(fmt::format("meta page {} states a map of {} bytes", i, meta.map_size));
      if (meta.last_page < 1 || meta.last_page >> 36 != 0)
        return fail(fmt::format("meta page {} states a last page of {}", i, meta.last_page));
      if ((meta.free_tree.flags & ~kNoDirectory) != kIntegerKeys || meta.main_tree.flags != 0)
        return fail(fmt::format("meta page {} has unknown flags", i));
    }
    // Transaction n is written to meta page n % 2; the other page keeps transaction n - 1.
    const uint64_t first = metas[0].transaction, second = metas[1].transaction;
    if (!(first == 0 && second == 0) &&
        !(first % 2 == 0 && second % 2 == 1 && (first + 1 == second || second + 1 == first)))
      return fail(fmt::format("meta pages of transactions {} and {}", first, second));
    newest_ = first < second ? metas[1] : metas[0];
    return true;
  }

  bool walk_all() {
    // A length that no file of this size can need must not size the bitmap; free pages at the end may be missing.
    if (newest_.last_page / 2 > file_.size() / page_size_ + (1 << 20))
      return fail(fmt::format("{} bytes where {} pages are stated", file_.size(), newest_.last_page + 1));
    seen_.assign(newest_.last_page + 1, false);
    seen_[0] = seen_[1] = true;
    std::vector<TreeRoot> named;
    auto take_named = [&](const Node& node) {
      if (node.flags != kTreeNode || node.rest.size() != sizeof(TreeRoot))
        return fail("a foreign entry beside the tables");
      TreeRoot tree;
      std::memcpy(&tree, node.rest.data(), sizeof(tree));
      if (tree.flags != 0) return fail("a table with unknown flags");
      named.push_back(tree);
      return true;
    };
    auto take_value = [&](const Node& node) { return node.flags & kTreeNode ? fail("a table within a table") : true; };
    if (!walk_tree(newest_.main_tree, take_named)) return false;
    for (const TreeRoot& tree : named)
      if (!walk_tree(tree, take_value)) return false;
    std::vector<PageNumber> free_pages;
    auto take_free = [&](const Node& node) { return collect_free(node, &free_pages); };
    if (!walk_tree(newest_.free_tree, take_free)) return false;
    for (PageNumber page : free_pages)
      if (!mark(page, 1)) return fail(fmt::format("page {} is free and in use", page));
    return true;
  }

  // Marks `count` pages from `first`; false if one does not exist or was reached before.
  bool mark(PageNumber first, uint64_t count) {
    if (first >= seen_.size() || count > seen_.size() - first) return false;
    for (PageNumber page = first; page < first + count; ++page) {
      if (seen_[page]) return false;
      seen_[page] = true;
    }
    return true;
  }

  using Visit = std::function<bool(const Node&)>;

  bool walk_tree(const TreeRoot& tree, const Visit& visit) {
    if (tree.root == kNoPage) return tree.entries == 0 && tree.depth == 0 ? true : fail("a tree without a root");
    if (tree.depth < 1 || tree.depth > kMaxDepth) return fail(fmt::format("a tree of depth {}", tree.depth));
    Walk walk{(tree.flags & kIntegerKeys) != 0, tree.depth, visit, {}, 0, 0, 0, 0};
    if (!walk_page(tree.root, 1, &walk)) return false;
    if (walk.entries != tree.entries || walk.leaves != tree.leaf_pages || walk.branches != tree.branch_pages ||
        walk.overflows != tree.overflow_pages)
      return fail("a tree whose counts are wrong");
    return true;
  }

  struct Walk {
    bool integer_keys;
    int depth;
    const Visit& visit;
    std::string last_key;
    uint64_t entries, leaves, branches, overflows;
  };

  bool walk_page(PageNumber number, int level, Walk* walk) {
    if (!mark(number, 1)) return fail(fmt::format("page {} is out of range or reached twice", number));
    std::string bytes(page_size_, '\0');
    if (!file_.read(number * page_size_, bytes.data(), bytes.size()))
      return fail(fmt::format("page {} lies beyond the end of the file", number));
    TreePage page(bytes);
    const PageHeader header = page.header();
    const uint16_t expected = level == walk->depth ? kLeafPage : kBranchPage;
    if (header.number != number || header.flags != expected || !page.well_formed())
      return fail(fmt::format("page {} is not the tree page it should be", number));
    if (page.count() < (expected == kBranchPage && !walk->integer_keys ? 2u : 1u))
      return fail(fmt::format("page {} has too few nodes", number));
    ++(expected == kLeafPage ? walk->leaves : walk->branches);
    for (size_t i = 0; i < page.count(); ++i) {
      Node node;
      if (!page.node(i, &node)) return fail(fmt::format("node {} leaves page {}", i, number));
      if (expected == kBranchPage) {
        if (!walk_page(node.child, level + 1, walk)) return false;
      } else if (!walk_leaf_node(node, walk)) {
        return fail(fmt::format("node {} of page {} is bad", i, number));
      }
    }
    return true;
  }

  bool walk_leaf_node(const Node& node, Walk* walk) {
    if ((node.flags & ~(kBigNode | kTreeNode)) != 0 || node.key.empty()) return fail("a node of unknown kind");
    if (walk->entries++ > 0 && !ascends(walk->last_key, node.key, walk->integer_keys)) return fail("keys out of order");
    walk->last_key = node.key;
    if ((node.flags & kBigNode) && !walk_run(node, walk)) return false;
    return walk->visit(node);
  }

  bool walk_run(const Node& node, Walk* walk) {
    PageNumber first;
    std::memcpy(&first, node.rest.data(), sizeof(first));
    PageHeader header;
    if (first >= seen_.size() || !file_.read(first * page_size_, &header, sizeof(header)))
      return fail(fmt::format("overflow page {} does not exist", first));
    // A value that was replaced within one transaction keeps the run of the longer one.
    const uint64_t pages = header.run_pages();
    if (header.number != first || header.flags != kOverflowPage ||
        pages < (sizeof(PageHeader) + node.size - 1) / page_size_ + 1)
      return fail(fmt::format("page {} does not begin the overflow run it should", first));
    if (!mark(first, pages)) return fail(fmt::format("the overflow run at page {} is reached twice", first));
    if ((first + pages) * page_size_ > file_.size())
      return fail(fmt::format("the overflow run at page {} ends beyond the file", first));
    walk->overflows += pages;
    return true;
  }

  static bool ascends(std::string_view before, std::string_view after, bool integer) {
    if (!integer) return before < after;
    uint64_t a, b;
    if (before.size() != 8 || after.size() != 8) return false;
    std::memcpy(&a, before.data(), 8);
    std::memcpy(&b, after.data(), 8);
    return a < b;
  }

  // A value of the free list: a count, then that many page numbers, descending; room may follow.
  bool collect_free(const Node& node, std::vector<PageNumber>* free_pages) {
    std::string value(node.rest);
    if (node.flags & kBigNode) {
      PageNumber first;
      std::memcpy(&first, node.rest.data(), sizeof(first));
      value.assign(node.size, '\0');
      if (!file_.read(first * page_size_ + sizeof(PageHeader), value.data(), value.size())) return false;
    }
    uint64_t count;
    if (value.size() < sizeof(count) || value.size() % 8 != 0) return fail("a free list of odd length");
    std::memcpy(&count, value.data(), sizeof(count));
    if (count > value.size() / 8 - 1) return fail("a free list longer than its value");
    PageNumber before = kNoPage;
    for (uint64_t i = 1; i <= count; ++i) {
      PageNumber page;
      std::memcpy(&page, value.data() + 8 * i, sizeof(page));
      if (page >= before) return fail("a free list out of order");
      free_pages->push_back(before = page);
    }
    return true;
  }

  PageFile file_;
  uint64_t page_size_ = 0;
  Meta newest_{};
  std::vector<bool> seen_;
  std::string problem_;
};

}  // namespace

std::string check_data_file(int descriptor, CheckDepth depth) {
  struct stat info;
  if (::fstat(descriptor, &info) != 0) return fmt::format("cannot be examined: {}", std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return "not a regular file";
  if (info.st_size == 0) return {};
  return Checker(descriptor, static_cast<uint64_t>(info.st_size)).run(depth);
}

}  // namespace kachel::cache
