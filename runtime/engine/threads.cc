#include "runtime/engine/threads.h"

#include <signal.h>

#include <exception>
#include <thread>
#include <vector>

namespace kachel::runtime {

void on_threads(size_t count, const std::function<void()>& work) {
  std::vector<std::thread> threads;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    while (threads.size() + 1 < count) threads.emplace_back(work);
  } catch (const std::exception&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace kachel::runtime
