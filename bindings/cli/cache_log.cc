// What has become of the store.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "commands.h"
#include "format.h"
#include "json.h"
#include "table.h"

namespace kachel::cli {
namespace {

struct Change {
  int64_t unix_us, pid;
  std::string host, version, what, kind, kernel, description, digest;
  uint64_t bytes;
};

int32_t collect(void* user, const kachel_store_change* change) {
  static_cast<std::vector<Change>*>(user)->push_back({change->unix_us, change->pid, change->host, change->version,
                                                      change->what, change->kind, change->kernel, change->description,
                                                      change->digest, change->bytes});
  return 0;
}

void print(const std::vector<Change>& changes) {
  Table table({{"when"},
               {"what"},
               {"kind"},
               {"kernel"},
               {"size", Table::Align::kRight},
               {"by", Table::Align::kRight},
               {"host"},
               {"digest"},
               {"description"}});
  for (const Change& change : changes)
    table.add({format_time_s(change.unix_us / 1'000'000), change.what, change.kind, change.kernel,
               change.bytes > 0 ? format_bytes(static_cast<int64_t>(change.bytes)) : "-", std::to_string(change.pid),
               change.host, change.digest.substr(0, 12), without_features(change.description)});
  fmt::print("{}", table.text());
}

void print_json_of(const std::vector<Change>& changes) {
  Json all = Json::array();
  for (const Change& change : changes)
    all.push_back({{"unix_us", change.unix_us},
                   {"what", change.what},
                   {"kind", change.kind},
                   {"kernel", change.kernel},
                   {"description", change.description},
                   {"digest", change.digest},
                   {"bytes", change.bytes},
                   {"pid", change.pid},
                   {"host", change.host},
                   {"version", change.version}});
  print_json(all);
}

}  // namespace

Outcome<Exit> cache_log(const Session& session, const Options& options) {
  std::vector<Change> changes;
  uint64_t damaged = 0;
  KACHEL_CLI_TRY(attempt(
      [&](kachel_error** err) { return kachel_store_log(session.engine(), collect, &changes, &damaged, err); }));
  if (!options.kernel.empty())
    std::erase_if(changes,
                  [&](const Change& change) { return change.kernel != options.kernel && !change.digest.empty(); });
  if (options.last > 0 && changes.size() > options.last)
    changes.erase(changes.begin(), changes.end() - static_cast<std::ptrdiff_t>(options.last));
  if (options.json)
    print_json_of(changes);
  else
    print(changes);
  if (damaged > 0) fmt::print(stderr, "kachel: {} lines of the log are damaged and left out\n", damaged);
  return Exit::kOk;
}

}  // namespace kachel::cli
