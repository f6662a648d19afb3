#include "support/own_thread.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <set>
#include <utility>

namespace kachel {
namespace {

constexpr auto kPatience = std::chrono::seconds(2);
constexpr int kMostHandlers = 64;

struct Registry {
  std::mutex mutex;
  std::set<const ExitWatch*> live;
};
Registry& registry() {
  static Registry& instance = *new Registry;  // used while static destructors run
  return instance;
}

}  // namespace

std::thread begin_thread(std::function<void()> work) {
  std::thread thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread = std::thread(std::move(work));
  } catch (const std::exception&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

ExitWatch::ExitWatch(Stop stop) : owner_(::getpid()), stop_(std::move(stop)) {
  std::lock_guard lock(registry().mutex);
  registry().live.insert(this);
}

ExitWatch::~ExitWatch() {
  std::lock_guard lock(registry().mutex);
  registry().live.erase(this);
}

void ExitWatch::arm() {
  static std::atomic<int> armed{0};
  if (armed.fetch_add(1, std::memory_order_relaxed) < kMostHandlers) (void)::on_exit(at_exit, nullptr);
}

void ExitWatch::at_exit(int status, void*) {
  // A child of fork() may have got it locked.
  std::unique_lock lock(registry().mutex, std::try_to_lock);
  if (!lock) return;
  const Deadline deadline = std::chrono::steady_clock::now() + kPatience;
  bool stopped = true;
  for (const ExitWatch* watch : registry().live)
    if (watch->owner_ == ::getpid()) stopped &= watch->stop_(deadline);
  if (stopped) return;
  std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace kachel
