// What has become of a store: who did what, in order, within bounds, whatever happens to the file.
#include "cache/journal.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <thread>

#include "cache/record.h"
#include "cache/transfer.h"
#include "tests/cache/fake_remote.h"
#include "tests/cache/support.h"

namespace kachel::cache {
namespace {

using namespace testing;

std::string journal_of(const Scratch& scratch) {
  return scratch.store() + "/store-1/journal";
}
std::vector<std::string> names_of(const Journal::Contents& contents) {
  std::vector<std::string> names;
  for (const Change& change : contents.changes) names.emplace_back(change_name(change.what));
  return names;
}
using Names = std::vector<std::string>;

Change numbered(uint64_t number) {
  return {.slot = slot_of(number_key(number)), .bytes = number, .label = {"kernel", std::to_string(number)}};
}

TEST_CASE("who stored, removed and cleared what is there, in order, and outlives the process") {
  Scratch scratch;
  const Key key = number_key(7);
  {
    auto store = open_store({.path = scratch.store()});
    CHECK(store->journal().changes.empty());
    REQUIRE(store->put(key, "payload", {"matmul", "BM=64 for sm_90a"}).ok());
    const Entry two[] = {{number_key(8), "a", {"softmax", "D=1"}}, {number_key(9), "b", {}}};
    REQUIRE(store->put_many(two).ok());
    REQUIRE(store->get(key).has_value());
    REQUIRE(store->erase(key).ok());
    REQUIRE(store->clear().ok());
  }
  const Journal::Contents contents = open_store({.path = scratch.store(), .read_only = true})->journal();
  CHECK(contents.damaged == 0);
  CHECK(names_of(contents) == Names{"stored", "stored", "stored", "removed", "cleared"});
  const Change& first = contents.changes[0];
  CHECK(first.slot == slot_of(key));
  CHECK(first.bytes > 7);
  CHECK(first.label.kernel == "matmul");
  CHECK(first.label.description == "BM=64 for sm_90a");
  CHECK(first.pid == ::getpid());
  CHECK(first.unix_us > 1'600'000'000'000'000);
  CHECK(!first.host.empty());
  CHECK(!first.version.empty());
  CHECK(contents.changes[1].label.kernel == "softmax");
  CHECK(contents.changes[2].label.kernel.empty());
  // Named by what stored it.
  CHECK(contents.changes[3].label.kernel == "matmul");
  CHECK(contents.changes[4].slot == Slot{});
}

TEST_CASE("what was imported, fetched, evicted and found damaged is told apart") {
  Scratch from_scratch, scratch;
  FakeRemote remote;
  const Key far = number_key(500), bad = number_key(0);
  remote.set("kachel:1:" + far.hex(), encode(far, "from afar", 1, nullptr));
  auto from = open_store({.path = from_scratch.store()});
  REQUIRE(from->put(number_key(1), "one").ok());
  auto store = open_store({.path = scratch.store(), .max_bytes = 1 << 20, .remote = remote.options()});
  REQUIRE(*copy_entries(*from, *store,
                        [](Kind, std::string_view payload) { return Label{"named", std::string(payload)}; }) == 1);
  REQUIRE(store->get(far) == "from afar");
  CHECK(names_of(store->journal()) == Names{"imported", "fetched"});
  CHECK(store->journal().changes[0].label.description == "one");

  uint64_t stored = 0;
  while (store->stat().evicted == 0) {
    REQUIRE(store->put(number_key(1000 + stored), payload_of(stored, 40'000)).ok());
    REQUIRE(++stored < 100);
  }
  std::map<std::string, uint64_t> count;
  for (const std::string& name : names_of(store->journal())) ++count[name];
  CHECK(count["stored"] == stored);
  CHECK(count["evicted"] == store->stat().evicted);
  // Whoever stored it still names it.
  CHECK(names_of(from->journal()) == Names{"stored"});
}

TEST_CASE("a damaged entry and a data file that is set aside are in it") {
  Scratch scratch;
  std::string record;
  {
    auto store = open_store({.path = scratch.store()});
    REQUIRE(store->put(number_key(1), std::string(200, 'x')).ok());
  }
  std::string bytes = read_file(scratch.data());
  const size_t at = bytes.rfind(std::string(100, 'x'));
  REQUIRE(at != bytes.npos);
  bytes[at] = 'y';
  write_file(scratch.data(), bytes);
  {
    auto store = open_store({.path = scratch.store()});
    CHECK_FALSE(store->get(number_key(1)).has_value());
    CHECK(names_of(store->journal()) == Names{"stored", "damaged"});
  }
  write_file(scratch.data(), "nonsense");
  auto store = open_store({.path = scratch.store()});
  const Journal::Contents contents = store->journal();
  CHECK(names_of(contents) == Names{"stored", "damaged", "set_aside"});
  CHECK(contents.changes[2].label.description.find("data.mdb.damaged-1") != std::string::npos);
}

TEST_CASE("reading writes nothing, and memory has no history") {
  Scratch scratch;
  {
    auto store = open_store({.path = scratch.store()});
    REQUIRE(store->put(number_key(1), "x").ok());
  }
  const std::string before = read_file(journal_of(scratch));
  {
    auto store = open_store({.path = scratch.store()});
    for (int i = 0; i < 100; ++i) REQUIRE(store->get(number_key(1)).has_value());
    CHECK_FALSE(store->get(number_key(2)).has_value());
  }
  auto reader = open_store({.path = scratch.store(), .read_only = true});
  REQUIRE(reader->put(number_key(3), "in memory").ok());
  REQUIRE(reader->clear().ok());
  CHECK(read_file(journal_of(scratch)) == before);
  auto memory = open_store({});
  REQUIRE(memory->put(number_key(1), "x").ok());
  CHECK(memory->journal().changes.empty());
}

TEST_CASE("two files at most, each within the limit, and the latest is never what goes") {
  Scratch scratch;
  std::filesystem::create_directories(scratch.path());
  constexpr uint64_t kMost = 4096;
  const Journal journal(scratch.path(), kMost);
  constexpr uint64_t kCount = 500;
  for (uint64_t i = 0; i < kCount; ++i) {
    const Change change = numbered(i);
    journal.append({&change, 1});
    struct stat info;
    REQUIRE(::stat((scratch.path() + "/journal").c_str(), &info) == 0);
    REQUIRE(static_cast<uint64_t>(info.st_size) < kMost + 512);
  }
  CHECK(files_below(scratch.path()).size() == 2);
  CHECK(std::filesystem::file_size(scratch.path() + "/journal.old") < kMost + 512);
  const Journal::Contents contents = journal.read();
  CHECK(contents.damaged == 0);
  REQUIRE(contents.changes.size() > 20);
  CHECK(contents.changes.size() < kCount);
  for (size_t i = 0; i < contents.changes.size(); ++i)
    REQUIRE(contents.changes[i].bytes == kCount - contents.changes.size() + i);
}

TEST_CASE("processes and threads append at once, and no line is torn") {
  Scratch scratch;
  const Journal journal(scratch.path());
  constexpr uint64_t kProcesses = 4, kThreads = 4, kEach = 50;
  auto work = [&](uint64_t process) {
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (uint64_t i = 0; i < kEach; ++i) {
          const Change two[] = {numbered(((process * kThreads + t) * kEach + i) * 2),
                                numbered(((process * kThreads + t) * kEach + i) * 2 + 1)};
          journal.append(two);
        }
      });
    for (std::thread& thread : threads) thread.join();
    return 0;
  };
  std::vector<pid_t> children;
  for (uint64_t p = 0; p < kProcesses; ++p) children.push_back(start_child([&, p] { return work(p); }));
  for (pid_t child : children) CHECK(wait_child(child) == 0);
  const Journal::Contents contents = journal.read();
  CHECK(contents.damaged == 0);
  std::map<uint64_t, int> seen;
  for (const Change& change : contents.changes) ++seen[change.bytes];
  CHECK(contents.changes.size() == kProcesses * kThreads * kEach * 2);
  CHECK(seen.size() == contents.changes.size());
}

TEST_CASE("several that find it full at once keep all that fits") {
  Scratch scratch;
  constexpr uint64_t kMost = 8192;
  const Journal journal(scratch.path(), kMost);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 200; ++i) {
        const Change change = numbered(t * 1000 + i);
        journal.append({&change, 1});
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(journal.read().damaged == 0);
  CHECK(files_below(scratch.path()).size() == 2);
  for (const char* name : {"/journal", "/journal.old"})
    CHECK(std::filesystem::file_size(scratch.path() + name) < kMost + 8 * 512);
}

TEST_CASE("a line that was cut short takes no other with it") {
  Scratch scratch;
  const Journal journal(scratch.path());
  const std::string path = scratch.path() + "/journal";
  for (uint64_t i = 0; i < 3; ++i) {
    const Change change = numbered(i);
    journal.append({&change, 1});
  }
  const std::string whole = read_file(path);
  write_file(path, whole.substr(0, whole.size() - 10));
  const Change more = numbered(3);
  journal.append({&more, 1});
  const Journal::Contents contents = journal.read();
  CHECK(contents.damaged == 1);
  REQUIRE(contents.changes.size() == 3);
  CHECK(contents.changes[1].bytes == 1);
  CHECK(contents.changes[2].bytes == 3);
}

TEST_CASE("whatever lies there, what is whole is read and the rest is counted") {
  Scratch scratch;
  const Journal journal(scratch.path());
  const std::string path = scratch.path() + "/journal";
  std::vector<Change> changes;
  for (uint64_t i = 0; i < 20; ++i) changes.push_back(numbered(i));
  journal.append(changes);
  const std::string whole = read_file(path);
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = whole;
    for (uint64_t flips = 1 + random.below(4); flips > 0; --flips)
      bytes[random.below(bytes.size())] ^= static_cast<char>(1 << random.below(8));
    write_file(path, bytes);
    const Journal::Contents contents = journal.read();
    CHECK(contents.changes.size() >= 16);
    CHECK(contents.changes.size() <= 20);
    for (const Change& change : contents.changes) CHECK(change.label.description == std::to_string(change.bytes));
  }
  write_file(path, payload_of(1, 100'000));
  CHECK(journal.read().changes.empty());
  CHECK(journal.read().damaged > 0);
}

TEST_CASE("text cannot pass for another line, and is kept short") {
  Scratch scratch;
  const Journal journal(scratch.path());
  const Change strange{.label = {"a\tb\nc\rd", std::string(10'000, 'e')}};
  journal.append({&strange, 1});
  const Journal::Contents contents = journal.read();
  CHECK(contents.damaged == 0);
  REQUIRE(contents.changes.size() == 1);
  CHECK(contents.changes[0].label.kernel == "a b c d");
  CHECK(contents.changes[0].label.description == std::string(256, 'e'));
}

TEST_CASE("what is no file of ours is left alone, and does no harm") {
  Scratch scratch;
  const std::string path = scratch.path() + "/journal", other = scratch.path() + "/other";
  const Journal journal(scratch.path());
  const Change change = numbered(1);
  write_file(other, "theirs");
  std::filesystem::create_symlink(other, path);
  journal.append({&change, 1});
  CHECK(journal.read().changes.empty());
  CHECK(read_file(other) == "theirs");
  std::filesystem::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);  // nobody reads it
  journal.append({&change, 1});
  CHECK(journal.read().changes.empty());
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  journal.append({&change, 1});
  CHECK(journal.read().changes.empty());
  Journal("/proc/nowhere").append({&change, 1});
  CHECK(Journal("/proc/nowhere").read().changes.empty());
}

}  // namespace
}  // namespace kachel::cache
