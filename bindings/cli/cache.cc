#include <fmt/format.h>

#include <cstdio>

#include "commands.h"
#include "format.h"
#include "json.h"
#include "table.h"

namespace kachel::cli {
namespace {

struct Entry {
  std::string kind, kernel, description, digest;
  uint64_t bytes = 0;
  int64_t created_unix_s = 0;
};

int32_t collect(void* user, const kachel_store_entry* entry) {
  static_cast<std::vector<Entry>*>(user)->push_back(
      {entry->kind, entry->kernel, entry->description, entry->digest, entry->bytes, entry->created_unix_s});
  return 0;
}

Outcome<Exit> list(const Session& session, bool json) {
  std::vector<Entry> entries;
  KACHEL_CLI_TRY(
      attempt([&](kachel_error** err) { return kachel_store_iterate(session.engine(), collect, &entries, err); }));
  if (json) {
    Json all = Json::array();
    for (const Entry& entry : entries)
      all.push_back({{"kind", entry.kind},
                     {"kernel", entry.kernel},
                     {"description", entry.description},
                     {"digest", entry.digest},
                     {"bytes", entry.bytes},
                     {"created_unix_s", entry.created_unix_s}});
    print_json(all);
    return Exit::kOk;
  }
  Table table({{"kind"}, {"kernel"}, {"size", Table::Align::kRight}, {"created"}, {"digest"}, {"description"}});
  for (const Entry& entry : entries)
    table.add({entry.kind, entry.kernel, format_bytes(static_cast<int64_t>(entry.bytes)),
               format_time(entry.created_unix_s), entry.digest.substr(0, 12), without_features(entry.description)});
  fmt::print("{}", table.text());
  return Exit::kOk;
}

Outcome<kachel_store_info> info_of(const Session& session) {
  kachel_store_info info{};
  info.struct_size = sizeof info;
  KACHEL_CLI_TRY(outcome_of(kachel_store_info_get(session.engine(), &info), nullptr));
  return info;
}

Outcome<Exit> stat(const Session& session, bool json) {
  KACHEL_CLI_LET(info, info_of(session));
  if (json) {
    print_json(
        {{"path", info.path}, {"writable", info.writable != 0}, {"entries", info.entries}, {"bytes", info.bytes}});
    return Exit::kOk;
  }
  fmt::print("path     {}\nwritable {}\nentries  {}\nsize     {}\n", *info.path ? info.path : "(memory)",
             info.writable ? "yes" : "no", info.entries, format_bytes(static_cast<int64_t>(info.bytes)));
  return Exit::kOk;
}

Outcome<Exit> clear(const Session& session, bool json) {
  KACHEL_CLI_LET(before, info_of(session));
  KACHEL_CLI_TRY(attempt([&](kachel_error** err) { return kachel_store_clear(session.engine(), err); }));
  if (json)
    print_json({{"path", before.path}, {"removed", before.entries}});
  else
    fmt::print("removed {} entries from {}\n", before.entries, *before.path ? before.path : "(memory)");
  return Exit::kOk;
}

// Entries that something was done with, and where.
Outcome<Exit> report(bool json, const char* done, uint64_t entries, const std::string& where) {
  if (json)
    print_json({{"path", where}, {done, entries}});
  else
    fmt::print("{} {} entries: {}\n", done, entries, where);
  return Exit::kOk;
}

Outcome<std::string> path_of(const Session& session) {
  KACHEL_CLI_LET(info, info_of(session));
  return std::string(*info.path ? info.path : "(memory)");
}

Outcome<Exit> gc(const Session& session, const Options& options) {
  uint64_t removed = 0;
  KACHEL_CLI_TRY(attempt(
      [&](kachel_error** err) { return kachel_store_shrink(session.engine(), options.max_bytes, &removed, err); }));
  KACHEL_CLI_LET(path, path_of(session));
  return report(options.json, "removed", removed, path);
}

Outcome<Exit> verify(const Session& session, const Options& options) {
  uint64_t sound = 0, damaged = 0;
  KACHEL_CLI_TRY(
      attempt([&](kachel_error** err) { return kachel_store_verify(session.engine(), &sound, &damaged, err); }));
  KACHEL_CLI_LET(path, path_of(session));
  if (options.json)
    print_json({{"path", path}, {"sound", sound}, {"damaged", damaged}});
  else
    fmt::print("{} entries are sound, {} were damaged and are removed: {}\n", sound, damaged, path);
  return Exit::kOk;
}

Outcome<Exit> ship(const Session& session, const Options& options) {
  uint64_t copied = 0;
  KACHEL_CLI_TRY(attempt(
      [&](kachel_error** err) { return kachel_store_export(session.engine(), options.folder.c_str(), &copied, err); }));
  return report(options.json, "exported", copied, options.folder);
}

Outcome<Exit> take(const Session& session, const Options& options) {
  uint64_t copied = 0;
  KACHEL_CLI_TRY(attempt(
      [&](kachel_error** err) { return kachel_store_import(session.engine(), options.folder.c_str(), &copied, err); }));
  return report(options.json, "imported", copied, options.folder);
}

// JSON either way: it is what is shipped.
Outcome<Exit> tunings(const Session& session, const Options& options) {
  if (options.take.empty()) {
    kachel_text* made = nullptr;
    KACHEL_CLI_TRY(attempt([&](kachel_error** err) { return kachel_tunings_export(session.engine(), &made, err); }));
    const TextHandle text(made);
    std::fwrite(kachel_text_data(made), 1, kachel_text_size(made), stdout);
    return Exit::kOk;
  }
  KACHEL_CLI_LET(text, read_text(options.take));
  uint64_t imported = 0;
  KACHEL_CLI_TRY(attempt([&](kachel_error** err) {
    return kachel_tunings_import(session.engine(), text.data(), text.size(), &imported, err);
  }));
  return report(options.json, "imported", imported, options.take);
}

}  // namespace

Outcome<Exit> cache(const Options& options) {
  KACHEL_CLI_LET(session, Session::open(options, nullptr));
  switch (options.command) {
    case Command::kCacheStat:
      return stat(*session, options.json);
    case Command::kCacheClear:
      return clear(*session, options.json);
    case Command::kCacheGc:
      return gc(*session, options);
    case Command::kCacheVerify:
      return verify(*session, options);
    case Command::kCacheExport:
      return ship(*session, options);
    case Command::kCacheImport:
      return take(*session, options);
    case Command::kCacheTunings:
      return tunings(*session, options);
    case Command::kCacheLog:
      return cache_log(*session, options);
    default:
      return list(*session, options.json);
  }
}

}  // namespace kachel::cli
