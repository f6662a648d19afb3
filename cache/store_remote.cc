// What goes to the remote and comes from it, and which records from elsewhere may serve.
#include <fmt/format.h>

#include "cache/store.h"
#include "support/bytes.h"

namespace kachel::cache {
namespace {

// The digest is of the kind as well. The number is that of the record format.
std::string remote_name(const Slot& slot) {
  return "kachel:1:" + to_hex(bytes_of(slot).substr(1));
}

}  // namespace

void Store::open_remote() {
  if (options_.remote.get || options_.remote.put) remote_ = std::make_unique<Remote>(options_.remote, log_);
}

// Whether what came from elsewhere may serve.
bool Store::admits(const Record& record) {
  if (!options_.mac_keys || authentic(record, *options_.mac_keys)) return true;
  ++refused_macs_;
  if (record.mac.empty())
    say_once("unsigned", EventKind::kStoreRefused,
             "entries without a MAC are refused, since a key is set here; whoever writes them needs it too");
  else
    say_once("forged", EventKind::kStoreRefused,
             "entries with a MAC of another key are refused; set the key that they were written with as well");
  return false;
}

// What the remote has is judged like any stranger's bytes, and kept where it is sound.
std::optional<std::string> Store::fetch(const Key& key) {
  const std::string name = remote_name(slot_of(key));
  const std::optional<std::string> bytes = remote_->get(name);
  if (!bytes) return std::nullopt;
  auto record = decode(*bytes);
  bool useful = false;
  if (!record.ok()) {
    ++damaged_;
    say_once("remote damaged", EventKind::kStoreDamaged,
             fmt::format("remote entry {} is damaged ({}) and counts as absent, as all such do", name,
                         record.status().message()));
  } else if (record->key != key.bytes) {
    ++foreign_;
  } else {
    useful = admits(*record);
  }
  remote_->judge(useful);
  if (!useful) return std::nullopt;
  const Row row{slot_of(key), encode(key, record->payload, record->created_us, options_.mac_keys.get()), now_us()};
  const Change change{.what = ChangeKind::kFetched, .slot = row.slot, .bytes = row.record.size()};
  (void)write_rows({&row, 1}, {&change, 1});  // which says itself what it could not keep
  return std::string(record->payload);
}

// Here, and then to the remote, which takes it when it can.
Status Store::publish(std::vector<Row> rows, std::span<const Change> changes) {
  KACHEL_TRY(write_rows(rows, changes));
  if (remote_)
    for (Row& row : rows) remote_->put(remote_name(row.slot), std::move(row.record));
  return {};
}

bool Store::flush(uint64_t timeout_us) {
  return !remote_ || !here() || remote_->flush(timeout_us);
}

}  // namespace kachel::cache
