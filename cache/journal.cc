#include "cache/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <thread>

#include "cache/byte_lock.h"
#include "cache/checksum.h"
#include "support/bytes.h"

namespace kachel::cache {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(ChangeKind::kCount)> kNames = {
    "stored",  "fetched", "imported", "demoted", "barred",   "replaced",
    "evicted", "removed", "cleared",  "damaged", "set_aside"};
constexpr std::string_view kVersion = "1";
constexpr size_t kFields = 12, kMostText_bytes = 256, kCheckDigits = 8;

std::string check_of(std::string_view line) {
  const Digest digest = digest_of(line);
  return to_hex({reinterpret_cast<const char*>(digest.data()), kCheckDigits / 2});
}

// A field has no end of its own.
std::string plain(std::string_view text) {
  std::string out(text.substr(0, kMostText_bytes));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return out;
}

// It begins with the end of whatever somebody could not finish.
void put_line(std::string& out, const Change& change) {
  const std::string line = fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}", kVersion, change.unix_us,
                                       change.pid, plain(change.host), plain(change.version), change_name(change.what),
                                       change.slot[0], to_hex(bytes_of(change.slot).substr(1)), change.bytes,
                                       plain(change.label.kernel), plain(change.label.description));
  fmt::format_to(std::back_inserter(out), "\n{}\t{}\n", line, check_of(line));
}

template <class T>
bool parse(std::string_view text, T* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

std::optional<Change> parse_line(std::string_view line) {
  const size_t last = line.rfind('\t');
  if (last == line.npos || line.substr(last + 1) != check_of(line.substr(0, last))) return std::nullopt;
  std::vector<std::string_view> fields;
  for (std::string_view rest = line;;) {
    const size_t end = rest.find('\t');
    fields.push_back(rest.substr(0, end));
    if (end == rest.npos) break;
    rest.remove_prefix(end + 1);
  }
  if (fields.size() != kFields || fields[0] != kVersion) return std::nullopt;
  Change change;
  const auto name = std::find(kNames.begin(), kNames.end(), fields[5]);
  const auto digest = from_hex(fields[7]);
  if (name == kNames.end() || !digest || digest->size() != sizeof(Digest) || !parse(fields[1], &change.unix_us) ||
      !parse(fields[2], &change.pid) || !parse(fields[6], &change.slot[0]) || !parse(fields[8], &change.bytes))
    return std::nullopt;
  change.what = static_cast<ChangeKind>(name - kNames.begin());
  std::copy(digest->begin(), digest->end(), change.slot.begin() + 1);
  change.host = fields[3];
  change.version = fields[4];
  change.label = {std::string(fields[9]), std::string(fields[10])};
  return change;
}

std::string read_whole(const std::string& path, uint64_t most) {
  std::string text;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return text;
  struct stat info;
  if (::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode)) {
    char buffer[1 << 16];
    for (ssize_t got; text.size() < most && (got = ::read(descriptor, buffer, sizeof(buffer))) > 0;)
      text.append(buffer, static_cast<size_t>(got));
  }
  ::close(descriptor);
  return text;
}

}  // namespace

std::string_view change_name(ChangeKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

// -1 where there can be none. Of several that find it full at once, one renames it, and the others wait for that, but
// not for ever: it may have been stopped.
int Journal::open_to_append() const {
  constexpr int kMostTries = 20;
  for (int tries = 0;; ++tries) {
    const int descriptor =
        ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    struct stat own, there;
    if (descriptor < 0) return -1;
    if (::fstat(descriptor, &own) != 0 || !S_ISREG(own.st_mode)) {
      ::close(descriptor);
      return -1;
    }
    if (tries == kMostTries || static_cast<uint64_t>(own.st_size) < most_bytes_) return descriptor;
    const bool ours = set_byte_lock(descriptor, 0, ByteLock::kExclusive);
    if (ours && ::stat(path_.c_str(), &there) == 0 && there.st_ino == own.st_ino && there.st_dev == own.st_dev)
      (void)::rename(path_.c_str(), (path_ + ".old").c_str());
    ::close(descriptor);
    if (!ours) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Journal::append(std::span<const Change> changes) const {
  if (changes.empty()) return;
  using namespace std::chrono;
  const auto now_us =
      static_cast<uint64_t>(duration_cast<microseconds>(system_clock::now().time_since_epoch()).count());
  char host[65] = "";
  if (::gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  std::string text;
  for (Change change : changes) {
    change.unix_us = now_us;
    change.pid = ::getpid();
    change.host = host;
    change.version = KACHEL_VERSION;
    put_line(text, change);
  }
  const int descriptor = open_to_append();
  if (descriptor < 0) return;
  (void)!::write(descriptor, text.data(), text.size());
  ::close(descriptor);
}

Journal::Contents Journal::read() const {
  Contents contents;
  std::map<Slot, Label> labels;
  for (const char* end : {".old", ""}) {
    // Beyond the limit there is what was written at once, and what was under way elsewhere.
    const std::string text = read_whole(path_ + end, 4 * most_bytes_);
    for (std::string_view rest = text; !rest.empty();) {
      const size_t at = std::min(rest.find('\n'), rest.size());
      const std::string_view line = rest.substr(0, at);
      rest.remove_prefix(std::min(at + 1, rest.size()));
      if (line.empty()) continue;
      auto change = parse_line(line);
      if (!change) {
        ++contents.damaged;
        continue;
      }
      if (!change->label.kernel.empty()) labels[change->slot] = change->label;
      contents.changes.push_back(*std::move(change));
    }
  }
  for (Change& change : contents.changes)
    if (auto known = labels.find(change.slot); change.label.kernel.empty() && known != labels.end()) {
      change.label.kernel = known->second.kernel;
      if (change.label.description.empty()) change.label.description = known->second.description;
    }
  return contents;
}

}  // namespace kachel::cache
