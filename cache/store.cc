#include "cache/store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "cache/place.h"
#include "cache/record.h"
#include "cache/registry.h"

namespace kachel::cache {
namespace {

constexpr uint64_t kDefaultMax_bytes = uint64_t{4} << 30, kLeastMax_bytes = uint64_t{1} << 20,
                   kMostMax_bytes = uint64_t{1} << 44;
constexpr size_t kTouchedPerWrite = 256;

}  // namespace

uint64_t Store::now_us() {
  using namespace std::chrono;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

Result<std::shared_ptr<Store>> Store::open(StoreOptions options) {
  if (options.path.find('\0') != std::string::npos) return invalid("the path of a store contains a zero byte");
  if (options.max_bytes == 0) options.max_bytes = kDefaultMax_bytes;
  options.max_bytes = std::clamp(options.max_bytes, kLeastMax_bytes, kMostMax_bytes);
  std::shared_ptr<Store> store(new Store(std::move(options)));
  if (!store->options_.path.empty()) store->open_disk();
  store->open_layers();
  store->open_remote();
  return store;
}

Store::Store(StoreOptions options)
    : options_(std::move(options)),
      owner_(::getpid()),
      log_(options_.log ? *options_.log : own_log_),
      memory_(options_.memory_max_bytes) {}

Store::~Store() {
  if (::getpid() != owner_) {
    (void)remote_.release();  // its thread is the parent's
    return;
  }
  remote_.reset();  // first: what it still puts is a copy, what it says goes to the log
  if (!disk_ || disk_->read_only()) return;
  if (auto touched = take_touched(kMostTouched); !touched.empty()) (void)disk_->write({}, touched);
}

void Store::open_disk() {
  Place place = prepare_place(options_.path, {options_.read_only, options_.local_root, options_.assume_filesystem});
  std::string why = place.notice;
  if (place.access != Access::kNone) {
    auto table = open_disk_table(
        {place.directory, options_.max_bytes, options_.lock_wait_us, place.access == Access::kReadOnly});
    if (table.ok()) {
      disk_ = *std::move(table);
      location_ = place.directory;
      if (!disk_->notice().empty()) why += (why.empty() ? "" : "; ") + disk_->notice();
    } else {
      why = table.status().message();
    }
  }
  if (disk_ && !disk_->read_only()) {
    auto claims = Claims::open(location_ + "/claims");
    if (claims.ok())
      claims_ = *std::move(claims);
    else
      why += (why.empty() ? "" : "; ") + claims.status().message();
  }
  if (!disk_)
    say(EventKind::kStoreDegraded, "in memory only: " + why, {{"access", std::string("memory")}});
  else if (disk_->read_only() && !options_.read_only)
    say(EventKind::kStoreDegraded, "for reading only: " + why, {{"access", std::string("read")}});
  else if (!why.empty())
    say(EventKind::kStoreDegraded, why, {{"access", std::string(disk_->read_only() ? "read" : "write")}});
}

void Store::open_layers() {
  for (const std::string& path : options_.layers) {
    StoreOptions below;
    below.path = path;
    below.read_only = true;
    below.mac_keys = options_.mac_keys;
    below.only_authentic = options_.mac_keys != nullptr;
    below.log = &log_;
    below.lock_wait_us = options_.lock_wait_us;
    auto layer = open(std::move(below));  // says itself why it has nothing on disk
    if (layer.ok() && (*layer)->disk_) layers_.push_back(*std::move(layer));
  }
}

bool Store::here() {
  if (::getpid() == owner_) return true;
  say_once("fork", EventKind::kStoreDegraded, "is not served in a child of the process that opened it");
  return false;
}

void Store::say(EventKind kind, const std::string& message, std::vector<EventField> fields) {
  const std::string name = options_.path.empty() ? "memory" : options_.path;
  fields.emplace_back("store", name);
  log_.write({.kind = kind,
              .level = LogLevel::kWarning,
              .message = fmt::format("store {}: {}", name, message),
              .fields = std::move(fields)});
}

void Store::say_once(const std::string& topic, EventKind kind, const std::string& message, const std::string& key) {
  const std::string name = options_.path.empty() ? "memory" : options_.path;
  log_.once(fmt::format("store {} {}", options_.path, topic), {.kind = kind,
                                                               .level = LogLevel::kWarning,
                                                               .message = fmt::format("store {}: {}", name, message),
                                                               .key = key,
                                                               .fields = {{"store", name}}});
}

void Store::tell_evicted(uint64_t entries) {
  evicted_ += entries;
  if (entries == 0 || !log_.heard()) return;
  log_.write({.kind = EventKind::kStoreEvicted,
              .level = LogLevel::kInfo,
              .message = fmt::format("store {}: {} entries that were used longest ago have given way",
                                     options_.path.empty() ? "memory" : options_.path, entries),
              .fields = {{"entries", entries}, {"store", options_.path}}});
}

// A record that does not decode is counted, reported and removed, unless somebody has replaced it meanwhile.
Result<Record> Store::examine(Table& table, const Row& row) {
  auto record = decode(row.record);
  if (record.ok()) {
    if (options_.only_authentic && !admits(*record)) return Status(Code::kStore, "no valid MAC");
    return record;
  }
  ++damaged_;
  const std::string name = to_hex(bytes_of(row.slot));
  say_once("damaged " + name, EventKind::kStoreDamaged,
           fmt::format("entry {} is damaged ({}) and counts as absent", name, record.status().message()),
           to_hex(bytes_of(row.slot).substr(1)));
  if (table.erase(row.slot, &row.record).ok() && &table == disk_.get())
    note({.what = ChangeKind::kDamaged, .slot = row.slot, .bytes = row.record.size()});
  return record;
}

std::optional<std::string> Store::look_up(Table& table, const Slot& slot, const Key& key) {
  auto row = table.read(slot);
  if (!row.ok()) {
    say_once("read", EventKind::kStoreDegraded, row.status().message());
    return std::nullopt;
  }
  if (!row->has_value()) return std::nullopt;
  auto record = examine(table, **row);
  if (!record.ok()) return std::nullopt;
  if (record->key != key.bytes) {
    ++foreign_;
    return std::nullopt;
  }
  if (uint64_t now = now_us(); now > (*row)->used_us && now - (*row)->used_us > options_.touch_after_us) {
    std::lock_guard lock(touched_mutex_);
    if (touched_.size() < kMostTouched) touched_[slot] = now;
  }
  return std::string(record->payload);
}

std::optional<std::string> Store::get(const Key& key) {
  if (!here()) return std::nullopt;
  std::optional<std::string> payload = find_here(key);
  if (!payload && remote_) payload = fetch(key);
  ++(payload ? hits_ : misses_);
  return payload;
}

std::optional<std::string> Store::get_here(const Key& key) {
  if (!here()) return std::nullopt;
  std::optional<std::string> payload = find_here(key);
  ++(payload ? hits_ : misses_);
  return payload;
}

std::optional<std::string> Store::find_here(const Key& key) {
  const Slot slot = slot_of(key);
  // Memory first: an entry is there because the disk would not take it, so what the disk has is older.
  std::optional<std::string> payload = look_up(memory_, slot, key);
  if (!payload && disk_) payload = look_up(*disk_, slot, key);
  for (size_t i = 0; !payload && i < layers_.size(); ++i)
    if ((payload = layers_[i]->get(key))) ++layer_hits_;
  return payload;
}

Status Store::put(const Key& key, std::string_view payload, const Label& label) {
  if (!here()) return {Code::kStore, "the store belongs to the parent process"};
  std::vector<Row> rows;
  rows.push_back({slot_of(key), encode(key, payload, now_us(), options_.mac_keys.get()), now_us()});
  const Change change{.slot = rows[0].slot, .bytes = rows[0].record.size(), .label = label};
  return publish(std::move(rows), {&change, 1});
}

Status Store::put_many(std::span<const Entry> entries) {
  if (!here()) return {Code::kStore, "the store belongs to the parent process"};
  std::vector<Row> rows;
  std::vector<Change> changes;
  const uint64_t now = now_us();
  for (const Entry& entry : entries) {
    rows.push_back({slot_of(entry.key), encode(entry.key, entry.payload, now, options_.mac_keys.get()), now});
    changes.push_back(
        {.what = entry.what, .slot = rows.back().slot, .bytes = rows.back().record.size(), .label = entry.label});
  }
  return rows.empty() ? Status() : publish(std::move(rows), changes);
}

// On disk, which this store may write to.
void Store::note(const Change& change) {
  if (disk_ && !disk_->read_only()) disk_->journal().append({&change, 1});
}

Journal::Contents Store::journal() {
  return disk_ && here() ? disk_->journal().read() : Journal::Contents();
}

Status Store::write_rows(std::span<const Row> rows, std::span<const Change> changes) {
  Status refused;
  if (disk_ && !disk_->read_only()) {
    auto too_large = [&](const Row& row) { return row.record.size() > disk_->largest_record(); };
    auto written = std::any_of(rows.begin(), rows.end(), too_large)
                       ? Result<uint64_t>(Code::kStore, "an entry is larger than a quarter of the limit")
                       : disk_->write(rows, take_touched(kTouchedPerWrite));
    if (written.ok()) {
      for (const Row& row : rows) (void)memory_.erase(row.slot, nullptr);
      tell_evicted(*written);
      puts_ += rows.size();
      disk_->journal().append(changes);
      return {};
    }
    refused_ += rows.size();
    say_once("write " + written.status().message(), EventKind::kStoreDegraded,
             fmt::format("new entries stay in memory: {}", written.status().message()));
  }
  auto kept = memory_.write(rows, {});
  if (!kept.ok()) return kept.status();
  tell_evicted(*kept);
  puts_ += rows.size();
  return {};
}

std::vector<Use> Store::take_touched(size_t most) {
  std::lock_guard lock(touched_mutex_);
  std::vector<Use> taken;
  while (!touched_.empty() && taken.size() < most) {
    taken.push_back({touched_.begin()->first, touched_.begin()->second, 0});
    touched_.erase(touched_.begin());
  }
  return taken;
}

Store::Claim Store::claim(const Key& key, uint64_t wait_us, const std::function<bool()>& give_up) {
  Claim claim;
  if (!claims_ || !here()) return claim;
  bool held = claims_->take(key.digest, 0, {});
  if (!held) {
    claim.waited_ = true;
    held = claims_->take(key.digest, wait_us, give_up);
  }
  if (held) claim.store_ = this, claim.digest_ = key.digest;
  return claim;
}

// Not in a child of fork(), which shares the parent's lock.
Store::Claim::~Claim() {
  if (store_ && ::getpid() == store_->owner_) store_->claims_->drop(digest_);
}

Status Store::erase(const Key& key) {
  if (!here()) return {Code::kStore, "the store belongs to the parent process"};
  KACHEL_TRY(memory_.erase(slot_of(key), nullptr));
  if (!disk_ || disk_->read_only()) return {};
  KACHEL_TRY(disk_->erase(slot_of(key), nullptr));
  note({.what = ChangeKind::kRemoved, .slot = slot_of(key)});
  return {};
}

}  // namespace kachel::cache
