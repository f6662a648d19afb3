#include "cache/registry.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

namespace kachel::cache {
namespace {

// Never destroyed, so that stores may outlive static destruction.
struct Registry {
  using Id = std::tuple<dev_t, ino_t, bool>;  // of the directory; and whether for reading only
  std::mutex mutex;
  std::map<Id, std::weak_ptr<DiskTable>> tables;
  std::set<int> guards;  // descriptors that hold locks

  static Registry& get() {
    static Registry* const registry = [] {
      auto* made = new Registry;
      ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
      return made;
    }();
    return *registry;
  }

  static void before_fork() { get().mutex.lock(); }
  static void after_fork_in_parent() { get().mutex.unlock(); }
  // Locks belong to the open file, which parent and child share: a child that kept it open would keep the lock of a
  // parent that dies in the middle of a write.
  static void after_fork_in_child() {
    Registry& registry = get();
    for (int descriptor : registry.guards) ::close(descriptor);
    registry.guards.clear();
    registry.tables.clear();
    registry.mutex.unlock();
  }
};

void close_table(DiskTable* table, int guard, pid_t owner) {
  // In a child the number may mean another file by now.
  if (::getpid() == owner) keep_in_child(guard);
  delete table;
}

}  // namespace

void close_in_child(int descriptor) {
  std::lock_guard lock(Registry::get().mutex);
  Registry::get().guards.insert(descriptor);
}

void keep_in_child(int descriptor) {
  std::lock_guard lock(Registry::get().mutex);
  Registry::get().guards.erase(descriptor);
}

Result<std::shared_ptr<DiskTable>> open_disk_table(const DiskOptions& options) {
  Registry& registry = Registry::get();
  std::lock_guard lock(registry.mutex);
  struct stat info;
  if (::stat(options.directory.c_str(), &info) != 0)
    return {Code::kStore, fmt::format("{}: {}", options.directory, std::strerror(errno))};
  std::erase_if(registry.tables, [](const auto& item) { return item.second.expired(); });
  std::weak_ptr<DiskTable>& known = registry.tables[{info.st_dev, info.st_ino, options.read_only}];
  if (auto table = known.lock()) {
    table->raise_limit(options.limit_bytes);
    return table;
  }
  auto opened = DiskTable::open(options);
  if (!opened.ok()) return opened.status();
  const int guard = (*opened)->guard_descriptor();
  if (guard >= 0) registry.guards.insert(guard);
  std::shared_ptr<DiskTable> table((*opened).release(),
                                   [guard, owner = ::getpid()](DiskTable* t) { close_table(t, guard, owner); });
  known = table;
  return table;
}

}  // namespace kachel::cache
