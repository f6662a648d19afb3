// Who makes an entry, among processes, stores and threads.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <thread>

#include "tests/cache/support.h"

namespace kachel::cache {
namespace {

using namespace testing;

TEST_CASE("one process at a time makes an entry") {
  Scratch scratch;
  auto store = open_store({.path = scratch.store()});
  const Key key = number_key(1), other = number_key(2);
  Pipe held, go;
  const pid_t child = start_child([&] {
    auto opened = Store::open({.path = scratch.store()});
    if (!opened.ok()) return 1;
    Store::Claim claim = (*opened)->claim(key, 0);
    held.send(claim.waited());
    go.receive();
    if (!(*opened)->put(key, "made").ok()) return 2;
    return 0;
  });
  CHECK(held.receive() == 0);
  CHECK_FALSE(store->claim(other, 0).waited());
  CHECK(store->claim(key, 1000).waited());
  CHECK_FALSE(store->get(key));
  int asked = 0;
  CHECK(store->claim(key, 60'000'000, [&] { return ++asked == 3; }).waited());
  CHECK(asked == 3);
  go.send(1);
  {
    const Store::Claim claim = store->claim(key, 60'000'000);
    CHECK(store->get(key) == "made");
  }
  CHECK(wait_child(child) == 0);
  CHECK_FALSE(store->claim(key, 0).waited());
}

TEST_CASE("a claim goes with the process that held it") {
  Scratch scratch;
  auto store = open_store({.path = scratch.store()});
  const Key key = number_key(1);
  Pipe held;
  const pid_t child = start_child([&] {
    auto opened = Store::open({.path = scratch.store()});
    Store::Claim claim = (*opened)->claim(key, 0);
    held.send(1);
    for (;;) ::pause();
    return 0;
  });
  held.receive();
  CHECK(store->claim(key, 0).waited());
  ::kill(child, SIGKILL);
  const auto start = std::chrono::steady_clock::now();
  (void)store->claim(key, 60'000'000);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
  int status;
  ::waitpid(child, &status, 0);
  CHECK_FALSE(store->claim(key, 0).waited());
}

TEST_CASE("claims of two stores and of two threads in one process exclude each other") {
  Scratch scratch;
  auto first = open_store({.path = scratch.store()}), second = open_store({.path = scratch.store()});
  const Key key = number_key(7);
  {
    const Store::Claim claim = first->claim(key, 0);
    CHECK_FALSE(claim.waited());
    CHECK(second->claim(key, 0).waited());
    CHECK(first->claim(key, 0).waited());
    std::thread([&] { CHECK(first->claim(key, 0).waited()); }).join();
    // What was not got is not dropped either.
    CHECK(second->claim(key, 0).waited());
  }
  CHECK_FALSE(second->claim(key, 0).waited());
  auto memory = open_store({});
  const Store::Claim one = memory->claim(key, 0), two = memory->claim(key, 0);
  CHECK_FALSE(two.waited());
}

TEST_CASE("a child of fork keeps no claim of a parent that dies") {
  Scratch scratch;
  const Key key = number_key(3);
  Pipe held, orphan;
  const pid_t parent = start_child([&] {
    auto opened = Store::open({.path = scratch.store()});
    Store::Claim claim = (*opened)->claim(key, 0);
    const pid_t child = ::fork();
    if (child == 0) {
      held.send(1);
      orphan.receive();
      ::_exit(0);
    }
    for (;;) ::pause();
    return 0;
  });
  held.receive();
  auto store = open_store({.path = scratch.store()});
  CHECK(store->claim(key, 0).waited());
  ::kill(parent, SIGKILL);
  int status;
  ::waitpid(parent, &status, 0);
  CHECK_FALSE(store->claim(key, 0).waited());
  orphan.send(1);
}

TEST_CASE("a child of fork drops no claim of its parent") {
  Scratch scratch;
  auto store = open_store({.path = scratch.store()});
  const Key key = number_key(7);
  auto claim = std::make_unique<Store::Claim>(store->claim(key, 0));
  const pid_t child = start_child([&] {
    claim.reset();
    return 0;
  });
  CHECK(wait_child(child) == 0);
  auto other = open_store({.path = scratch.store()});
  CHECK(other->claim(key, 0).waited());
  claim.reset();
  CHECK_FALSE(other->claim(key, 0).waited());
}

}  // namespace
}  // namespace kachel::cache
