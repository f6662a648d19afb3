#include "tests/cache/support.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace kachel::cache::testing {

Scratch::Scratch(Medium medium) {
  const char* chosen = std::getenv("KACHEL_TEST_DIR");
  const bool in_memory = medium == kAnywhere && ::access("/dev/shm", R_OK | W_OK | X_OK) == 0;
  path_ = std::string(chosen ? chosen : in_memory ? "/dev/shm" : "/tmp") + "/kachel-cache-test-XXXXXX";
  REQUIRE(::mkdtemp(path_.data()) != nullptr);
}

Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Pipe::Pipe() {
  REQUIRE(::pipe(ends) == 0);
}
Pipe::~Pipe() {
  ::close(ends[0]);
  ::close(ends[1]);
}
void Pipe::send(uint64_t value) {
  REQUIRE(::write(ends[1], &value, sizeof(value)) == sizeof(value));
}
uint64_t Pipe::receive() {
  uint64_t value = 0;
  REQUIRE(::read(ends[0], &value, sizeof(value)) == sizeof(value));
  return value;
}

TestLog::TestLog()
    : log_([this](LogLevel level, std::string_view message) {
        if (level < LogLevel::kWarning) return;
        std::lock_guard lock(mutex_);
        lines_.emplace_back(message);
      }) {}

size_t TestLog::count() const {
  std::lock_guard lock(mutex_);
  return lines_.size();
}

std::string TestLog::text() const {
  std::lock_guard lock(mutex_);
  std::string text;
  for (const std::string& line : lines_) text += line + "\n";
  return text;
}

pid_t start_child(const std::function<int()>& body) {
  pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(body());
  return child;
}

int wait_child(pid_t child) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int run_child(const std::function<int()>& body) {
  return wait_child(start_child(body));
}

std::shared_ptr<Store> open_store(StoreOptions options) {
  auto store = Store::open(std::move(options));
  REQUIRE(store.ok());
  return *store;
}

std::shared_ptr<const MacKeys> keys_of(const std::vector<std::string_view>& secrets) {
  auto keys = MacKeys::create(secrets);
  REQUIRE(keys.ok());
  return *keys;
}

std::string sealed(std::string body) {
  const Digest sum = digest_of(body);
  return body.append(reinterpret_cast<const char*>(sum.data()), sum.size());
}

Key number_key(uint64_t number, Kind kind) {
  return KeyBuilder(kind).text("body", "kernel").u64("number", number).finish();
}

std::string payload_of(uint64_t number, size_t size) {
  Random random(number + 1);
  std::string payload(size, '\0');
  for (char& byte : payload) byte = static_cast<char>(random.next() >> 24);
  return payload;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::vector<std::string> files_below(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory, error))
    names.push_back(entry.path().filename().string());
  return names;
}

int rounds_factor() {
  const char* text = std::getenv("KACHEL_CACHE_ROUNDS");
  return text ? std::max(1, std::atoi(text)) : 1;
}

}  // namespace kachel::cache::testing
