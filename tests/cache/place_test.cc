#include "cache/place.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/cache/support.h"

namespace kachel::cache {
namespace {

using namespace testing;

constexpr uint64_t kNfs = 0x6969;

mode_t mode_of(const std::string& path) {
  struct stat info{};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

// Opens, puts and gets: what must work wherever the path points.
void check_serves(const StoreOptions& options, bool durable) {
  auto store = open_store(options);
  CHECK(store->stat().durable == durable);
  Key key = number_key(1);
  CHECK(store->put(key, "payload").ok());
  CHECK(store->get(key) == "payload");
}

TEST_CASE("missing directories are made, private to their owner") {
  Scratch scratch;
  TestLog log;
  const std::string path = scratch.path() + "/a/b/c";
  check_serves({.path = path, .log = log.get()}, true);
  for (const char* part : {"/a", "/a/b", "/a/b/c", "/a/b/c/store-1"}) CHECK(mode_of(scratch.path() + part) == 0700);
  CHECK(mode_of(path + "/store-1/data.mdb") == 0600);
  CHECK(mode_of(path + "/store-1/guard") == 0600);
  CHECK(log.count() == 0);
}

TEST_CASE("an open mode of the store's own directory is mended, the directory that the user names is left alone") {
  Scratch scratch;
  const std::string path = scratch.store();
  std::filesystem::create_directories(path + "/store-1");
  REQUIRE(::chmod(path.c_str(), 0755) == 0);
  REQUIRE(::chmod((path + "/store-1").c_str(), 0777) == 0);
  check_serves({.path = path}, true);
  CHECK(mode_of(path) == 0755);
  CHECK(mode_of(path + "/store-1") == 0700);
}

TEST_CASE("a path that cannot be a directory gives a store in memory and one line") {
  Scratch scratch;
  write_file(scratch.path() + "/file", "x");
  for (std::string path : {scratch.path() + "/file", scratch.path() + "/file/below", std::string("/proc/kachel")}) {
    TestLog log;
    check_serves({.path = path, .log = log.get()}, false);
    CHECK(log.count() == 1);
    CHECK(log.says("in memory only"));
  }
  CHECK(read_file(scratch.path() + "/file") == "x");
}

TEST_CASE("odd things in place of the files give a store in memory") {
  for (std::string name : {"store-1", "store-1/data.mdb", "store-1/guard"}) {
    CAPTURE(name);
    Scratch scratch;
    const std::string target = scratch.path() + "/target", path = scratch.store() + "/" + name;
    std::filesystem::create_directories(scratch.store() + "/store-1");
    std::filesystem::remove(path);
    std::filesystem::create_directories(target);
    SUBCASE("link") {
      std::filesystem::create_symlink(target, path);
      check_serves({.path = scratch.store()}, false);
      CHECK(files_below(target).empty());
    }
    SUBCASE("directory in place of a file") {
      std::filesystem::create_directories(path + "/x");
      check_serves({.path = scratch.store()}, name == "store-1");
    }
  }
}

TEST_CASE("a directory of another user is not trusted") {
  if (::geteuid() != 0) return;
  Scratch scratch;
  {
    check_serves({.path = scratch.store()}, true);
  }
  for (std::string part : {"", "/store-1", "/store-1/data.mdb"}) {
    CAPTURE(part);
    const std::string path = scratch.store() + part;
    REQUIRE(::chown(path.c_str(), 1234, 1234) == 0);
    TestLog log;
    check_serves({.path = scratch.store(), .log = log.get()}, false);
    CHECK(log.count() == 1);
    CHECK(log.says("user 1234"));
    REQUIRE(::chown(path.c_str(), 0, 0) == 0);
  }
  check_serves({.path = scratch.store()}, true);
}

// Root passes every permission check, so that reading only takes a child that is somebody else.
TEST_CASE("a store that may only be read is read; new entries stay in memory") {
  if (::geteuid() != 0) return;
  Scratch scratch;
  {
    CHECK(open_store({.path = scratch.store()})->put(number_key(1), "from root").ok());
  }
  for (std::string part : {"", "/store", "/store/store-1"}) ::chmod((scratch.path() + part).c_str(), 0755);
  for (std::string part : {"/data.mdb", "/guard"}) ::chmod((scratch.store() + "/store-1" + part).c_str(), 0644);
  const std::string before = read_file(scratch.data());

  auto as_nobody = [&] {
    return run_child([&] {
      if (::seteuid(65534) != 0) return 10;
      TestLog log;
      auto store = Store::open({.path = scratch.store(), .log = log.get()});
      if (!store.ok()) return 11;
      if (!(*store)->stat().durable || (*store)->stat().writable) return 12;
      if ((*store)->get(number_key(1)) != "from root") return 13;
      if (!(*store)->put(number_key(2), "mine").ok() || (*store)->get(number_key(2)) != "mine") return 14;
      if (log.count() != 1 || !log.says("for reading only")) return 15;
      return 0;
    });
  };
  CHECK(as_nobody() == 0);
  // A medium that was written elsewhere has no guard file, and nobody can make one.
  std::filesystem::remove(scratch.store() + "/store-1/guard");
  CHECK(as_nobody() == 0);
  CHECK(read_file(scratch.data()) == before);
  // A directory that others may write to is trusted by nobody.
  ::chmod((scratch.store() + "/store-1").c_str(), 0777);
  CHECK(as_nobody() == 12);
}

TEST_CASE("a path on a shared file system is stood in for on this host") {
  Scratch scratch;
  TestLog log;
  StoreOptions options{.path = scratch.store(), .log = log.get(), .assume_filesystem = kNfs};
  options.local_root = scratch.path() + "/local";
  check_serves(options, true);
  CHECK(log.count() == 1);
  CHECK(log.says("nfs"));
  CHECK_FALSE(std::filesystem::exists(scratch.data()));
  // Another path has another stand-in; the same path finds its entries again.
  CHECK(open_store(options)->get(number_key(1)) == "payload");
  options.path += "-other";
  CHECK_FALSE(open_store(options)->get(number_key(1)).has_value());
}

TEST_CASE("a stand-in that somebody else prepared is refused") {
  if (::geteuid() != 0) return;
  Scratch scratch;
  const std::string theirs = scratch.path() + "/local/kachel-0";
  std::filesystem::create_directories(theirs);
  StoreOptions options{.path = scratch.store(), .assume_filesystem = kNfs};
  options.local_root = scratch.path() + "/local";
  REQUIRE(::chown(theirs.c_str(), 1234, 1234) == 0);
  check_serves(options, false);
  REQUIRE(::chown(theirs.c_str(), 0, 0) == 0);
  check_serves(options, true);
  REQUIRE(::chmod(theirs.c_str(), 0777) == 0);
  check_serves(options, false);
}

TEST_CASE("without a stand-in a shared file system means memory") {
  Scratch scratch;
  for (uint64_t magic : {0x6969u, 0xFF534D42u, 0xFE534D42u, 0x01021997u, 0x65735546u, 0x00C36400u, 0x0BD00BD0u}) {
    TestLog log;
    StoreOptions options{.path = scratch.store(), .log = log.get(), .assume_filesystem = magic};
    options.local_root = "";
    check_serves(options, false);
    CHECK(log.count() == 1);
  }
  for (uint64_t local : {0xEF53u, 0x58465342u, 0x9123683Eu, 0x01021994u, 0x794C7630u, 0x2FC12FC1u})
    CHECK(shared_filesystem_name(local) == nullptr);
}

}  // namespace
}  // namespace kachel::cache
