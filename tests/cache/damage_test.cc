// What lies on disk may be anything. Whatever it is: no crash, no wrong payload, and a store that works afterwards.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "cache/file_check.h"
#include "cache/file_pages.h"
#include "cache/record.h"
#include "cache/registry.h"
#include "tests/cache/support.h"

namespace kachel::cache {
namespace {

using namespace testing;

constexpr uint64_t kEntries = 40;

// Records of all sizes that matter: within a page, on one overflow page, on a run of them.
size_t size_of(uint64_t number) {
  return number % 4 == 0 ? 30000 : number % 4 == 1 ? 3000 : 100;
}

void fill(const std::string& path) {
  auto store = open_store({.path = path});
  for (uint64_t i = 0; i < kEntries; ++i) REQUIRE(store->put(number_key(i), payload_of(i, size_of(i))).ok());
  // Some pages on the free list, too.
  for (uint64_t i = 0; i < kEntries; i += 5) REQUIRE(store->erase(number_key(i)).ok());
  for (uint64_t i = 0; i < kEntries; i += 10) REQUIRE(store->put(number_key(i), payload_of(i, size_of(i))).ok());
}

// Opens and uses a store over whatever is there. The number of entries found, or a negative number for what is wrong.
int use(const std::string& path, bool must_be_durable) {
  auto opened = Store::open({.path = path});
  if (!opened.ok()) return -1;
  Store& store = **opened;
  if (must_be_durable && !store.stat().writable) return -2;
  int found = 0;
  for (uint64_t i = 0; i < kEntries; ++i)
    if (auto payload = store.get(number_key(i))) {
      ++found;
      if (*payload != payload_of(i, size_of(i))) return -3;
    }
  Status walked = store.iterate(std::nullopt, [&](const EntryView& entry) { return !entry.key.empty(); });
  for (uint64_t i = 2; i < kEntries; i += 12) {
    if (!store.put(number_key(i), payload_of(i, size_of(i))).ok()) return -4;
    if (store.get(number_key(i)) != payload_of(i, size_of(i))) return -5;
  }
  (void)store.erase(number_key(1));
  if (store.get(number_key(1))) return -6;
  if (must_be_durable && !walked.ok()) return -7;
  (void)store.stat();
  return found;
}

// In a child, so that a signal is a failure with a name.
int use_in_child(const std::string& path, bool must_be_durable) {
  return run_child([&] { return use(path, must_be_durable) < 0 ? 1 : 0; });
}

std::string check_file(const std::string& path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(descriptor >= 0);
  std::string problem = check_data_file(descriptor, CheckDepth::kTree);
  ::close(descriptor);
  return problem;
}

bool set_aside(const Scratch& scratch) {
  auto names = files_below(scratch.store());
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.starts_with("data.mdb.damaged-"); });
}

// A store's file, as left by a clean close, to be damaged again and again.
struct Sample {
  Sample() {
    fill(scratch.store());
    bytes = read_file(scratch.data());
  }
  // Lays the file and nothing else into the scratch directory, with the guard of a clean close of other bytes.
  void restore(const std::string& data) const {
    for (const std::string& name : files_below(scratch.store()))
      if (name.starts_with("data.mdb")) std::filesystem::remove(scratch.store() + "/store-1/" + name);
    write_file(scratch.data(), data);
  }
  Scratch scratch;
  std::string bytes;
};

TEST_CASE("a record with any byte flipped is a miss, is counted, is removed and is reported") {
  Scratch scratch;
  TestLog log;
  auto store = open_store({.path = scratch.store(), .log = log.get()});
  auto table = open_disk_table({scratch.store() + "/store-1", 1 << 24, 1'000'000, false});
  REQUIRE(table.ok());
  const Key key = number_key(1);
  const std::string good = encode(key, "the payload", 1);
  auto lay = [&](const std::string& record) {
    Row row{slot_of(key), record, 1};
    REQUIRE((*table)->write({&row, 1}, {}).ok());
  };
  lay(good);
  REQUIRE(store->get(key) == "the payload");
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] ^= 0x10;
    lay(bad);
    REQUIRE_FALSE(store->get(key).has_value());
    REQUIRE(store->stat().entries == 0);
  }
  for (size_t size : {size_t{0}, size_t{1}, size_t{16}, good.size() - 1}) {
    lay(good.substr(0, size));
    REQUIRE_FALSE(store->get(key).has_value());
  }
  CHECK(store->stat().damaged == good.size() + 4);
  CHECK(log.count() == 1);
  CHECK(log.says("is damaged"));
  CHECK(store->put(key, "anew").ok());
  CHECK(store->get(key) == "anew");
}

TEST_CASE("a damaged record is removed only if nobody has replaced it") {
  Scratch scratch;
  auto store = open_store({.path = scratch.store()});
  auto table = open_disk_table({scratch.store() + "/store-1", 1 << 24, 1'000'000, false});
  REQUIRE(table.ok());
  CHECK(store->put(number_key(1), "good").ok());
  const std::string other = "bad";
  CHECK((*table)->erase(slot_of(number_key(1)), &other).ok());
  CHECK(store->get(number_key(1)) == "good");
}

TEST_CASE("iteration passes over damaged records") {
  Scratch scratch;
  auto store = open_store({.path = scratch.store()});
  auto table = open_disk_table({scratch.store() + "/store-1", 1 << 24, 1'000'000, false});
  REQUIRE(table.ok());
  for (uint64_t i = 0; i < 10; ++i) CHECK(store->put(number_key(i), "x").ok());
  Row row{slot_of(number_key(4)), "junk", 1};
  REQUIRE((*table)->write({&row, 1}, {}).ok());
  int shown = 0;
  CHECK(store->iterate(Kind::kPlan, [&](const EntryView&) { return ++shown > 0; }).ok());
  CHECK(shown == 9);
  CHECK(store->stat().damaged == 1);
  CHECK(store->stat().entries == 9);
}

TEST_CASE("truncated files are set aside and a fresh one is begun") {
  Sample sample;
  const size_t whole = sample.bytes.size();
  for (size_t size :
       {size_t{0}, size_t{1}, size_t{15}, size_t{100}, size_t{152}, size_t{4095}, size_t{4096}, size_t{4097},
        size_t{4096 + 151}, size_t{8191}, size_t{8192}, size_t{8193}, whole / 4, whole / 2, whole / 2 + 1}) {
    CAPTURE(size);
    sample.restore(sample.bytes.substr(0, size));
    CHECK(use_in_child(sample.scratch.store(), true) == 0);
    CHECK(set_aside(sample.scratch) == (size > 0));
    CHECK(check_file(sample.scratch.data()) == "");
  }
  // Cut by whole pages from the end: the first pages to go may be free ones, then the cut is none.
  for (size_t pages = 1; pages < 20; ++pages) {
    sample.restore(sample.bytes.substr(0, whole - 4096 * pages));
    const bool sound = check_file(sample.scratch.data()).empty();
    CHECK(use_in_child(sample.scratch.store(), true) == 0);
    CHECK(set_aside(sample.scratch) == !sound);
  }
  // A file that nobody has harmed is served whole, even without the note of a clean close.
  sample.restore(sample.bytes);
  CHECK(use(sample.scratch.store(), true) == 36);
  CHECK_FALSE(set_aside(sample.scratch));
}

TEST_CASE("foreign files are set aside") {
  Sample sample;
  Random random(3);
  std::string noise(50000, '\0');
  for (char& byte : noise) byte = static_cast<char>(random.next());
  for (const std::string& bytes : {std::string(1 << 20, '\0'), noise, std::string("SQLite format 3\0", 16) + noise}) {
    sample.restore(bytes);
    CHECK(use_in_child(sample.scratch.store(), true) == 0);
    CHECK(set_aside(sample.scratch));
  }
}

TEST_CASE("a set-aside file is reported once and at most four are kept") {
  Scratch scratch;
  std::filesystem::create_directories(scratch.store() + "/store-1");
  for (int round = 0; round < 7; ++round) {
    write_file(scratch.data(), "rubbish");
    TestLog log;
    auto store = open_store({.path = scratch.store(), .log = log.get()});
    CHECK(store->stat().writable);
    CHECK(log.count() == 1);
    CHECK(log.says("was damaged"));
  }
  auto names = files_below(scratch.store());
  CHECK(std::count_if(names.begin(), names.end(), [](auto& n) { return n.starts_with("data.mdb.damaged-"); }) == 4);
}

TEST_CASE("a flipped byte in a meta page never crashes") {
  Sample sample;
  for (size_t page : {0, 1})
    for (size_t at = 0; at < 152; ++at) {
      CAPTURE(page);
      CAPTURE(at);
      std::string bad = sample.bytes;
      bad[4096 * page + at] ^= static_cast<char>(at % 2 ? 0x81 : 0x05);
      sample.restore(bad);
      REQUIRE(use_in_child(sample.scratch.store(), true) == 0);
    }
}

TEST_CASE("random damage anywhere never crashes and never gives a wrong payload [rounds]") {
  Sample sample;
  Random random(5);
  const uint64_t pages = sample.bytes.size() / 4096;
  for (int round = 0; round < 120 * rounds_factor(); ++round) {
    CAPTURE(round);
    std::string bad = sample.bytes;
    for (uint64_t n = 1 + random.below(4); n > 0; --n) {
      // Half of the hits go to the heads of pages, where the structure is.
      uint64_t page = random.below(pages);
      uint64_t at = 4096 * page + random.below(random.below(2) ? 64 : 4096);
      bad[at] = static_cast<char>(random.next());
    }
    if (random.below(4) == 0) {
      uint64_t from = random.below(pages), to = random.below(pages);
      std::copy_n(sample.bytes.begin() + 4096 * from, 4096, bad.begin() + 4096 * to);
    }
    sample.restore(bad);
    REQUIRE(use_in_child(sample.scratch.store(), true) == 0);
    REQUIRE(check_file(sample.scratch.data()) == "");
  }
}

// Nothing crashes of it at once; the next write would go over live pages.
TEST_CASE("a free list that names a page in use is found") {
  Sample sample;
  Meta metas[2];
  for (int i = 0; i < 2; ++i) std::memcpy(&metas[i], sample.bytes.data() + 4096 * i + sizeof(PageHeader), sizeof(Meta));
  const Meta& meta = metas[0].transaction > metas[1].transaction ? metas[0] : metas[1];
  REQUIRE(meta.free_tree.depth == 1);
  TreePage leaf(std::string_view(sample.bytes).substr(4096 * meta.free_tree.root, 4096));
  Node node;
  REQUIRE(leaf.node(0, &node));
  REQUIRE(node.flags == 0);
  REQUIRE(node.rest.size() >= 16);
  const uint64_t list[] = {1, meta.main_tree.root};
  std::string bad = sample.bytes;
  std::memcpy(bad.data() + (node.rest.data() - sample.bytes.data()), list, sizeof(list));
  sample.restore(bad);
  CHECK(check_file(sample.scratch.data()).find("is free and in use") != std::string::npos);
  CHECK(use_in_child(sample.scratch.store(), true) == 0);
  CHECK(set_aside(sample.scratch));
}

// The guard's note of a clean close spares the walk. It must not spare it after a change that came at once.
TEST_CASE("a change right after a clean close is seen") {
  for (int round = 0; round < 10; ++round) {
    Scratch scratch;
    fill(scratch.store());
    CHECK(read_file(scratch.store() + "/store-1/guard").find("clean") != std::string::npos);
    int descriptor = ::open(scratch.data().c_str(), O_RDWR);
    // The root of some tree: all pages but the meta pages lose their kind.
    const uint64_t size = std::filesystem::file_size(scratch.data());
    for (uint64_t at = 8192; at < size; at += 4096) REQUIRE(::pwrite(descriptor, "\xff", 1, at + 10) == 1);
    ::close(descriptor);
    CHECK(use_in_child(scratch.store(), true) == 0);
    CHECK(set_aside(scratch));
  }
}

// What makes the case above certain rather than likely: the time in the note is not one that a write left.
TEST_CASE("a clean close stamps the file") {
  Scratch scratch;
  auto store = open_store({.path = scratch.store()});
  CHECK(store->put(number_key(1), "one").ok());
  ::usleep(20000);
  struct timespec before{};
  ::clock_gettime(CLOCK_REALTIME, &before);
  store.reset();
  struct stat info{};
  REQUIRE(::stat(scratch.data().c_str(), &info) == 0);
  CHECK(std::pair(info.st_mtim.tv_sec, info.st_mtim.tv_nsec) >= std::pair(before.tv_sec, before.tv_nsec));
  CHECK(read_file(scratch.store() + "/store-1/guard").find(std::to_string(info.st_mtim.tv_nsec)) != std::string::npos);
}

TEST_CASE("a file that others use is not set aside under them") {
  Scratch scratch;
  auto store = open_store({.path = scratch.store()});
  CHECK(store->put(number_key(1), "one").ok());
  const std::string good = read_file(scratch.data());
  int descriptor = ::open(scratch.data().c_str(), O_RDWR);
  // The version of both meta pages: a live environment does not look at it again.
  for (off_t at : {20, 4096 + 20}) REQUIRE(::pwrite(descriptor, "\x09", 1, at) == 1);
  CHECK(run_child([&] {
          TestLog log;
          auto other = Store::open({.path = scratch.store(), .log = log.get()});
          if (!other.ok() || (*other)->stat().durable) return 1;
          if (!(*other)->put(number_key(2), "two").ok() || (*other)->get(number_key(2)) != "two") return 2;
          return log.count() == 1 && log.says("damaged") ? 0 : 3;
        }) == 0);
  CHECK_FALSE(set_aside(scratch));
  for (off_t at : {20, 4096 + 20}) REQUIRE(::pwrite(descriptor, "\x01", 1, at) == 1);
  ::close(descriptor);
  CHECK(store->get(number_key(1)) == "one");
}

// The check knows the format from the outside; everything that LMDB writes must pass it.
TEST_CASE("the check accepts whatever LMDB writes [rounds]") {
  Random random(17);
  for (int round = 0; round < 6 * rounds_factor(); ++round) {
    Scratch scratch;
    for (int session = 0; session < 4; ++session) {
      auto store = open_store({.path = scratch.store(), .max_bytes = 3 << 20, .touch_after_us = 0});
      for (int step = 0; step < 25; ++step) {
        std::vector<Entry> batch;
        for (uint64_t n = random.below(12); n > 0; --n)
          batch.push_back(
              {number_key(random.below(200)), std::string(random.below(random.below(3) ? 600 : 60000), 'x')});
        REQUIRE(store->put_many(batch).ok());
        if (random.below(3) == 0) REQUIRE(store->erase(number_key(random.below(200))).ok());
        store->get(number_key(random.below(200)));
      }
      if (random.below(4) == 0) REQUIRE(store->clear().ok());
      store.reset();
      REQUIRE(check_file(scratch.data()) == "");
      REQUIRE(std::filesystem::file_size(scratch.data()) <= 3 << 20);
    }
    CHECK_FALSE(set_aside(scratch));
  }
}

}  // namespace
}  // namespace kachel::cache
