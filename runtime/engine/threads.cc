#include "runtime/engine/threads.h"

#include <thread>
#include <vector>

#include "support/own_thread.h"

namespace kachel::runtime {

void on_threads(size_t count, const std::function<void()>& work) {
  std::vector<std::thread> threads;
  threads.reserve(count);
  while (threads.size() + 1 < count) {
    threads.push_back(begin_thread(work));
    if (threads.back().joinable()) continue;
    threads.pop_back();
    break;
  }
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace kachel::runtime
