// The worker of the engine's tests: serves an engine on a fake device, and does harm where KACHEL_TEST_WORKER says so.
//
//   garbage | silent | leave | old | nonsense     instead of greeting, or after it
//   WHAT@WHERE:TILE[;...]                         of tile extents as in a lowered text: "crash@run5:32, 16"
//
// WHAT: crash, kill, exit, hang, lose. WHERE: lower, or runN, the N-th launch in this process.
#define DOCTEST_CONFIG_IMPLEMENT
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>

#include "runtime/engine/process/channel.h"
#include "runtime/engine/process/handshake.h"
#include "runtime/engine/process/worker.h"
#include "runtime/engine/serve/serve.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

std::string orders() {
  const char* given = std::getenv("KACHEL_TEST_WORKER");
  return given ? given : "";
}

FakeDevice* device = nullptr;

void do_harm(const std::string& what) {
  if (what == "crash") {
    ::signal(SIGSEGV, SIG_DFL);
    ::raise(SIGSEGV);
  }
  if (what == "kill") ::raise(SIGKILL);
  if (what == "exit") ::_exit(7);
  if (what == "lose") device->state().lose();
  if (what == "hang")
    for (;;) ::pause();
}

void obey(const std::string& where, const std::string& tile) {
  const std::string wanted = "@" + where + ":" + tile;
  std::string rest = orders() + ";";
  for (size_t end; (end = rest.find(';')) != rest.npos; rest.erase(0, end + 1)) {
    const std::string order = rest.substr(0, end);
    const size_t at = order.find('@');
    if (at != order.npos && order.substr(at) == wanted) do_harm(order.substr(0, at));
  }
}

int say_hello(int socket, const Hello& hello, const char* then) {
  Channel channel(socket);
  (void)channel.receive(Channel::kNever);
  (void)channel.send({0, kHelloMessage, encode_hello(hello)}, Channel::kNever);
  (void)channel.receive(Channel::kNever);
  (void)!::send(socket, then, std::strlen(then), MSG_NOSIGNAL);
  for (;;) ::pause();
}

int serve(int socket) {
  if (const char* path = std::getenv("KACHEL_TEST_WORKER_PIDS"))
    std::ofstream(path, std::ios::app) << ::getpid() << "\n";
  const std::string what = orders();
  if (what == "garbage") {
    (void)!::send(socket, "Content-Type: text/html\n\n", 25, MSG_NOSIGNAL);
    for (;;) ::pause();
  }
  if (what == "silent")
    for (;;) ::pause();
  if (what == "leave") return 7;
  if (what == "old") return say_hello(socket, {kWorkerProtocol + 1, "lowering version 1"}, "");
  if (what == "nonsense") return say_hello(socket, {kWorkerProtocol, worker_build()}, "this is no message at all");

  EngineFixture fixture;
  std::mutex mutex;
  std::map<std::string, int> runs;
  // The larger the tile, the faster.
  fixture.cost = [&](int64_t bm, int64_t bn, const FakeLaunch& launch) {
    const std::string tile = tile_of(launch.text);
    std::unique_lock lock(mutex);
    const int run = ++runs[tile];
    lock.unlock();
    obey("run" + std::to_string(run), tile);
    return 200'000 - 1000 * bm - 1000 * bn;
  };
  const LowerFunction lower = fixture.options.lower;
  const EngineOptions& fake = fixture.options;
  (void)serve_host(socket, [&](EngineOptions& options) {
    options.device_list = fake.device_list;
    options.open_device = [&](DeviceRef ref) {
      auto opened = fake.open_device(ref);
      if (opened.ok()) device = static_cast<FakeDevice*>(opened->get());
      return opened;
    };
    options.lower = [&](const ir::Kernel& kernel, const lowering::Target& target, uint64_t facts,
                        const lowering::LowerOptions& how) {
      auto lowered = lower(kernel, target, facts, how);
      if (lowered.ok()) obey("lower", tile_of(lowered->text));
      return lowered;
    };
  });
  return 0;
}

}  // namespace
}  // namespace kachel::runtime

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  return kachel::runtime::serve(std::atoi(argv[1]));
}
