#include <fmt/format.h>

#include "commands.h"
#include "format.h"
#include "json.h"
#include "table.h"

namespace kachel::cli {

Outcome<Exit> devices(const Options& options) {
  Options quiet = options;
  quiet.store_path = "";
  KACHEL_CLI_LET(session, Session::open(quiet, nullptr));
  KACHEL_CLI_LET(infos, session->devices());
  if (options.json) {
    Json all = Json::array();
    for (const kachel_device_info& info : infos) all.push_back(json_of(info));
    print_json(all);
    return Exit::kOk;
  }
  Table table({{"device"},
               {"name"},
               {"units", Table::Align::kRight},
               {"memory", Table::Align::kRight},
               {"driver"},
               {"architecture"}});
  for (const kachel_device_info& info : infos)
    table.add({device_name(info.device), info.name, fmt::format("{}", info.multiprocessors),
               format_bytes(info.memory_bytes), *info.driver ? info.driver : "-", without_features(info.architecture)});
  fmt::print("{}", table.text());
  return Exit::kOk;
}

}  // namespace kachel::cli
