// The store, as a tool sees it.
#include "cache/store.h"

#include <fmt/format.h>

#include <map>

#include "cache/transfer.h"
#include "capi/boundary.h"
#include "capi/handles.h"
#include "runtime/engine/report/entry_label.h"
#include "runtime/engine/report/tunings_json.h"
#include "support/bytes.h"

using namespace kachel;

namespace {

// Of what is in the store now, those that the journal does not name.
void name_entries(cache::Store& store, std::vector<cache::Change>& changes) {
  std::map<cache::Slot, cache::Label> labels;
  for (const cache::Change& change : changes)
    if (change.slot[0] != 0 && change.label.kernel.empty()) labels[change.slot];
  if (labels.empty()) return;
  (void)store.iterate(std::nullopt, [&](const cache::EntryView& view) {
    const cache::Slot slot = cache::slot_of({view.kind, cache::digest_of(view.key), {}});
    if (const auto wanted = labels.find(slot); wanted != labels.end())
      wanted->second = runtime::entry_label(view.kind, view.payload);
    return true;
  });
  for (cache::Change& change : changes)
    if (const auto known = labels.find(change.slot); known != labels.end() && change.label.kernel.empty())
      change.label = known->second;
}

Result<std::shared_ptr<cache::Store>> other_store(const kachel_engine& engine, const char* path, bool read_only) {
  if (!path || !*path) return capi::missing("path");
  cache::StoreOptions options;
  options.path = path;
  options.read_only = read_only;
  options.mac_keys = engine.engine->options().store_mac_keys;
  options.only_authentic = read_only && options.mac_keys != nullptr;
  options.log = &engine.engine->log();
  return cache::Store::open(std::move(options));
}

}  // namespace

kachel_status kachel_store_info_get(kachel_engine* engine, kachel_store_info* out) {
  return capi::guarded(nullptr, [&]() -> Status {
    if (!engine) return capi::missing("engine");
    const cache::StoreStats stats = engine->engine->store().stat();
    std::call_once(engine->path_once, [&] {
      if (stats.durable) engine->store_path = stats.location;
    });
    kachel_store_info info{};
    info.path = engine->store_path.c_str();
    info.writable = stats.writable ? 1 : 0;
    info.entries = stats.entries;
    info.bytes = stats.bytes;
    return capi::write_struct(out, info, "out");
  });
}

kachel_status kachel_store_iterate(kachel_engine* engine, int32_t (*entry)(void* user, const kachel_store_entry* entry),
                                   void* user, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!engine) return capi::missing("engine");
    if (!entry) return capi::missing("entry");
    return engine->engine->store().iterate(std::nullopt, [&](const cache::EntryView& view) {
      const std::string kind = cache::kind_name(view.kind);
      const cache::Digest digest = cache::digest_of(view.key);
      const std::string hex = to_hex({reinterpret_cast<const char*>(digest.data()), digest.size()});
      const cache::Label label = runtime::entry_label(view.kind, view.payload);
      kachel_store_entry out{};
      out.struct_size = sizeof(out);
      out.kind = kind.c_str();
      out.kernel = label.kernel.c_str();
      out.description = label.description.c_str();
      out.digest = hex.c_str();
      out.bytes = view.key.size() + view.payload.size();
      out.created_unix_s = static_cast<int64_t>(view.created_us / 1'000'000);
      return entry(user, &out) == 0;
    });
  });
}

kachel_status kachel_store_log(kachel_engine* engine, int32_t (*change)(void* user, const kachel_store_change* change),
                               void* user, uint64_t* damaged, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!engine) return capi::missing("engine");
    if (!change) return capi::missing("change");
    cache::Journal::Contents log = engine->engine->store().journal();
    if (damaged) *damaged = log.damaged;
    name_entries(engine->engine->store(), log.changes);
    for (const cache::Change& entry : log.changes) {
      const bool of_entry = entry.slot[0] != 0;
      const std::string kind = of_entry ? cache::kind_name(static_cast<cache::Kind>(entry.slot[0])) : "";
      const std::string digest = of_entry ? to_hex(cache::bytes_of(entry.slot).substr(1)) : "";
      kachel_store_change out{};
      out.struct_size = sizeof(out);
      out.unix_us = static_cast<int64_t>(entry.unix_us);
      out.pid = entry.pid;
      out.host = entry.host.c_str();
      out.version = entry.version.c_str();
      out.what = cache::change_name(entry.what).data();
      out.kind = kind.c_str();
      out.kernel = entry.label.kernel.c_str();
      out.description = entry.label.description.c_str();
      out.digest = digest.c_str();
      out.bytes = entry.bytes;
      if (change(user, &out) != 0) break;
    }
    return {};
  });
}

kachel_status kachel_store_clear(kachel_engine* engine, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!engine) return capi::missing("engine");
    return engine->engine->store().clear();
  });
}

kachel_status kachel_store_shrink(kachel_engine* engine, uint64_t max_bytes, uint64_t* removed, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!engine) return capi::missing("engine");
    KACHEL_ASSIGN(const uint64_t left, engine->engine->store().shrink(max_bytes));
    if (removed) *removed = left;
    return {};
  });
}

kachel_status kachel_store_verify(kachel_engine* engine, uint64_t* entries, uint64_t* damaged, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!engine) return capi::missing("engine");
    KACHEL_ASSIGN(const cache::Verified seen, engine->engine->store().verify());
    if (entries) *entries = seen.entries;
    if (damaged) *damaged = seen.damaged;
    return {};
  });
}

kachel_status kachel_store_export(kachel_engine* engine, const char* path, uint64_t* copied, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!engine) return capi::missing("engine");
    KACHEL_ASSIGN(const std::shared_ptr<cache::Store> to, other_store(*engine, path, false));
    if (!to->stat().writable)
      return Status(Code::kStore, fmt::format("{}: no store can be written there; see the log for the reason", path));
    KACHEL_ASSIGN(const uint64_t count, cache::copy_entries(engine->engine->store(), *to, runtime::entry_label));
    if (copied) *copied = count;
    return {};
  });
}

kachel_status kachel_store_import(kachel_engine* engine, const char* path, uint64_t* copied, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!engine) return capi::missing("engine");
    KACHEL_ASSIGN(const std::shared_ptr<cache::Store> from, other_store(*engine, path, true));
    if (!from->stat().durable)
      return Status(Code::kStore, fmt::format("{}: no store can be read there; see the log for the reason", path));
    KACHEL_ASSIGN(const uint64_t count, cache::copy_entries(*from, engine->engine->store(), runtime::entry_label));
    if (copied) *copied = count;
    const uint64_t refused = from->stat().refused_macs;
    if (refused == 0) return {};
    return Status(
        Code::kStore,
        fmt::format("{}: {} entries carry no valid MAC and are left out, {} are imported; have the store exported "
                    "with the key that is set here",
                    path, refused, count));
  });
}

kachel_status kachel_tunings_export(kachel_engine* engine, kachel_text** out, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!engine) return capi::missing("engine");
    if (!out) return capi::missing("out");
    KACHEL_ASSIGN(std::string text, runtime::tunings_to_json(engine->engine->store()));
    *out = new kachel_text{std::move(text)};
    return {};
  });
}

kachel_status kachel_tunings_import(kachel_engine* engine, const char* text, size_t size, uint64_t* imported,
                                    kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!engine) return capi::missing("engine");
    if (!text && size != 0) return capi::missing("text");
    KACHEL_ASSIGN(const uint64_t count,
                  runtime::tunings_from_json(engine->engine->store(), size ? std::string_view(text, size) : ""));
    if (imported) *imported = count;
    return {};
  });
}
