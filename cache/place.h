// Where a store may lie: the directory's owner, its mode and its file system, looked at before anything is opened.
#pragma once
#include <cstdint>
#include <string>

namespace kachel::cache {

enum class Access { kNone, kReadOnly, kReadWrite };

struct PlaceOptions {
  bool read_only = false;          // create nothing
  std::string local_root;          // for stores named on a shared file system; "" keeps such a store in memory
  uint64_t assume_filesystem = 0;  // statfs magic to go by instead of the real one; 0 asks the system
};

struct Place {
  Access access = Access::kNone;
  std::string directory;  // private to its owner (0700), holds the files of the store
  std::string notice;     // one sentence on why the access is less, or the directory another, than was asked for; or ""
};

// The private directory below `path` for this version of the format. Creates what is missing, unless read-only.
Place prepare_place(const std::string& path, const PlaceOptions& options);

// "nfs" and the like for file systems that are shared between hosts or cannot share a mapping; nullptr for others.
const char* shared_filesystem_name(uint64_t statfs_magic);

}  // namespace kachel::cache
