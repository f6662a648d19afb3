#include "cache/place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cache/checksum.h"
#include "support/bytes.h"

namespace kachel::cache {
namespace {

// The part of the path that changes with the layout of the data file; older and newer libraries do not meet.
constexpr const char* kVersionDirectory = "store-1";

struct SharedFilesystem {
  uint64_t magic;
  const char* name;
};
constexpr SharedFilesystem kShared[] = {
    {0x6969, "nfs"},        {0xFF534D42, "cifs"},   {0xFE534D42, "smb2"},   {0x517B, "smb"},
    {0x01021997, "9p"},     {0x65735546, "fuse"},   {0x00C36400, "ceph"},   {0x0BD00BD0, "lustre"},
    {0x47504653, "gpfs"},   {0x5346414F, "afs"},    {0x6B414653, "afs"},    {0x73757245, "coda"},
    {0x19830326, "beegfs"}, {0xAAD7AAEA, "panfs"},  {0x01161970, "gfs2"},   {0x7461636F, "ocfs2"},
    {0x564C, "ncp"},        {0x786F4256, "vboxsf"}, {0x7C7C6673, "prl_fs"}, {0x20030528, "orangefs"},
};

bool trusted(uid_t owner) {
  return owner == ::geteuid() || owner == 0;
}

// mkdir -p, 0700 each. Errors show when the last one is examined.
void make_directories(const std::string& path) {
  for (size_t at = 1; at <= path.size(); ++at)
    if (at == path.size() || path[at] == '/') ::mkdir(path.substr(0, at).c_str(), 0700);
}

std::string absolute(const std::string& path) {
  std::error_code error;
  auto result = std::filesystem::absolute(path, error);
  return error ? path : result.lexically_normal().string();
}

Place none(std::string notice) {
  return {Access::kNone, {}, std::move(notice)};
}

// "" if `path` is a directory that we or root own.
std::string refuse_directory(const std::string& path, struct stat* info) {
  if (::stat(path.c_str(), info) != 0) return fmt::format("{}: {}", path, std::strerror(errno));
  if (!S_ISDIR(info->st_mode)) return fmt::format("{} is not a directory", path);
  if (!trusted(info->st_uid)) return fmt::format("{} belongs to user {}", path, info->st_uid);
  return {};
}

// The store's own directory in `base`, which exists.
Place private_directory(const std::string& base, bool read_only) {
  const std::string directory = base + "/" + kVersionDirectory;
  if (!read_only) ::mkdir(directory.c_str(), 0700);
  struct stat info;
  // lstat: whoever may write to `base` could lay a link here.
  if (::lstat(directory.c_str(), &info) != 0) return none(fmt::format("{}: {}", directory, std::strerror(errno)));
  if (std::string why = refuse_directory(directory, &info); !why.empty()) return none(why);
  if (::lstat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    return none(fmt::format("{} is a link", directory));
  const bool ours = info.st_uid == ::geteuid();
  if (ours && !read_only && (info.st_mode & 0077) != 0 && ::chmod(directory.c_str(), 0700) == 0) info.st_mode &= ~0077;
  if ((info.st_mode & 0022) != 0) return none(fmt::format("others may write to {}", directory));
  if (::faccessat(AT_FDCWD, directory.c_str(), R_OK | X_OK, AT_EACCESS) != 0)
    return none(fmt::format("{}: {}", directory, std::strerror(errno)));
  if (read_only) return {Access::kReadOnly, directory, {}};
  if (::faccessat(AT_FDCWD, directory.c_str(), W_OK, AT_EACCESS) != 0)
    return {Access::kReadOnly, directory, fmt::format("{}: {}", directory, std::strerror(errno))};
  return {Access::kReadWrite, directory, {}};
}

// On this host, apart for each user and each path that is stood in for.
std::string stand_in(const std::string& local_root, const std::string& path) {
  Digest digest = digest_of(path);
  return fmt::format("{}/kachel-{}/{}", local_root, ::geteuid(),
                     to_hex({reinterpret_cast<const char*>(digest.data()), 8}));
}

}  // namespace

const char* shared_filesystem_name(uint64_t statfs_magic) {
  for (const SharedFilesystem& shared : kShared)
    if (shared.magic == statfs_magic) return shared.name;
  return nullptr;
}

Place prepare_place(const std::string& path, const PlaceOptions& options) {
  const std::string base = absolute(path);
  if (!options.read_only) make_directories(base);
  struct stat info;
  if (std::string why = refuse_directory(base, &info); !why.empty()) return none(why);

  uint64_t magic = options.assume_filesystem;
  if (struct statfs fs; magic == 0 && ::statfs(base.c_str(), &fs) == 0) magic = static_cast<uint32_t>(fs.f_type);
  const char* shared = shared_filesystem_name(magic);
  if (!shared) return private_directory(base, options.read_only);

  std::string notice = fmt::format("{} is on a shared file system ({})", base, shared);
  if (options.local_root.empty()) return none(notice);
  const std::string local = stand_in(options.local_root, base);
  if (!options.read_only) make_directories(local);
  // The directory of this user under a root that everybody may write to: nobody else may have made it.
  const std::string per_user = std::filesystem::path(local).parent_path().string();
  if (struct stat mine; ::lstat(per_user.c_str(), &mine) != 0 || !S_ISDIR(mine.st_mode) || mine.st_uid != ::geteuid() ||
                        (mine.st_mode & 0022) != 0)
    return none(fmt::format("{}, and {} is not this user's alone", notice, per_user));
  struct statfs fs;
  if (::statfs(local.c_str(), &fs) != 0 || shared_filesystem_name(static_cast<uint32_t>(fs.f_type)))
    return none(fmt::format("{}, and so is {}", notice, local));
  Place place = private_directory(local, options.read_only);
  place.notice =
      notice + (place.notice.empty() ? "; this host keeps a store of its own in " + local : ", " + place.notice);
  return place;
}

}  // namespace kachel::cache
