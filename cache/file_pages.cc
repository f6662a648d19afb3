#include "cache/file_pages.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace kachel::cache {

namespace {
struct NodeHeader {
  uint16_t low, high, flags, key_size;
};
static_assert(sizeof(NodeHeader) == 8);
}  // namespace

PageHeader TreePage::header() const {
  PageHeader header;
  std::memcpy(&header, bytes_.data(), sizeof(header));
  return header;
}

bool TreePage::well_formed() const {
  PageHeader h = header();
  return h.lower >= sizeof(PageHeader) && h.lower % 2 == 0 && h.lower <= h.upper && h.upper <= bytes_.size();
}

bool TreePage::node(size_t index, Node* out) const {
  const PageHeader page = header();
  uint16_t at;
  std::memcpy(&at, bytes_.data() + sizeof(PageHeader) + 2 * index, sizeof(at));
  if (at < page.upper || at % 2 != 0 || at + sizeof(NodeHeader) > bytes_.size()) return false;
  NodeHeader node;
  std::memcpy(&node, bytes_.data() + at, sizeof(node));
  std::string_view rest = bytes_.substr(at + sizeof(NodeHeader));
  if (node.key_size > rest.size()) return false;
  out->key = rest.substr(0, node.key_size);
  rest.remove_prefix(node.key_size);
  if (page.flags & kBranchPage) {
    out->flags = 0;
    out->size = 0;
    out->rest = {};
    out->child = node.low | uint64_t{node.high} << 16 | uint64_t{node.flags} << 32;
    return true;
  }
  out->flags = node.flags;
  out->size = node.low | uint64_t{node.high} << 16;
  out->child = 0;
  size_t in_page = node.flags & kBigNode ? sizeof(PageNumber) : out->size;
  if (in_page > rest.size()) return false;
  out->rest = rest.substr(0, in_page);
  return true;
}

bool PageFile::read(uint64_t offset, void* into, size_t size) const {
  if (offset > size_ || size > size_ - offset) return false;
  char* to = static_cast<char*>(into);
  while (size > 0) {
    ssize_t got = ::pread(descriptor_, to, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    offset += got;
    size -= got;
  }
  return true;
}

}  // namespace kachel::cache
