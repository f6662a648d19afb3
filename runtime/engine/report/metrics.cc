#include "runtime/engine/report/metrics.h"

#include <fmt/format.h>

#include <iterator>

namespace kachel::runtime {
namespace {

class Dump {
 public:
  void counter(const char* name, const char* help, uint64_t value) { add(name, "counter", help, value); }
  void gauge(const char* name, const char* help, uint64_t value) { add(name, "gauge", help, value); }
  // One line for each value of a label.
  void begin_gauge(const char* name, const char* help) { head(name, "gauge", help); }
  void labelled(const char* name, const char* label, const std::string& of, uint64_t value) {
    fmt::format_to(std::back_inserter(text_), "kachel_{}{{{}=\"{}\"}} {}\n", name, label, of, value);
  }
  std::string take() { return std::move(text_); }

 private:
  void head(const char* name, const char* type, const char* help) {
    fmt::format_to(std::back_inserter(text_), "# HELP kachel_{0} {1}\n# TYPE kachel_{0} {2}\n", name, help, type);
  }
  void add(const char* name, const char* type, const char* help, uint64_t value) {
    head(name, type, help);
    fmt::format_to(std::back_inserter(text_), "kachel_{} {}\n", name, value);
  }
  std::string text_;
};

}  // namespace

std::string metrics_text(Engine& engine) {
  const EngineStats stats = engine.stats();
  const cache::StoreStats store = engine.store().stat();
  Dump dump;
  dump.counter("launches_total", "Launches, general and bound.", stats.launches);
  dump.counter("compiles_total", "Binaries made by a compiler.", stats.compiles);
  dump.counter("lowerings_total", "Lowering pipelines run.", stats.lowerings);
  dump.counter("loads_total", "Binaries loaded onto a device.", stats.loads);
  dump.counter("tunings_total", "Keys tuned.", stats.tunings);
  dump.counter("measurements_total", "Timed launches of candidates.", stats.measurements);
  dump.gauge("specialisations", "Binaries kept in memory.", stats.specialisations);
  dump.gauge("background_pending", "Keys that wait to be tuned in the background, or are.", stats.background_pending);
  dump.counter("background_tunings_total", "Keys tuned in the background.", stats.background_tunings);
  dump.counter("background_failures_total", "Keys given up by the background.", stats.background_failures);
  dump.counter("drift_checks_total", "Stored decisions measured anew.", stats.drift_checks);
  dump.counter("drift_replacements_total", "Those that another configuration replaced.", stats.drift_replacements);
  dump.counter("workers_total", "Worker processes that took up a tuning.", stats.workers);
  dump.counter("workers_lost_total", "Those that a candidate ended.", stats.workers_lost);
  dump.counter("store_hits_total", "Entries found in the store.", store.hits);
  dump.counter("store_layer_hits_total", "Those of the hits that a system store served.", store.layer_hits);
  dump.counter("store_misses_total", "Entries looked for and not found.", store.misses);
  dump.counter("store_puts_total", "Entries written.", store.puts);
  dump.counter("store_refused_total", "Entries that the disk did not take; kept in memory.", store.refused);
  dump.counter("store_evicted_total", "Entries removed for want of room.", store.evicted);
  dump.counter("store_damaged_total", "Entries found damaged.", stats.store_damaged);
  dump.counter("store_refused_macs_total", "Entries from elsewhere without a valid MAC.", store.refused_macs);
  dump.counter("remote_hits_total", "Those of the store's hits that the remote store served.", store.remote.hits);
  dump.counter("remote_misses_total", "Entries that it did not have, or none of use.", store.remote.misses);
  dump.counter("remote_puts_total", "Entries given to it.", store.remote.puts);
  dump.counter("remote_errors_total", "Calls of it that failed, or took too long.", store.remote.errors);
  dump.counter("remote_skipped_total", "Calls not made, since others had failed shortly before.", store.remote.skipped);
  dump.gauge("store_durable", "1 where the store is on disk.", store.durable ? 1 : 0);
  dump.gauge("store_writable", "1 where that may be written to.", store.writable ? 1 : 0);
  dump.gauge("store_limit_bytes", "What the store may take.", store.max_bytes);
  dump.begin_gauge("store_entries", "Entries in the store, without layers.");
  for (const auto& [kind, totals] : store.kinds)
    dump.labelled("store_entries", "kind", cache::kind_name(kind), totals.entries);
  dump.begin_gauge("store_bytes", "What they take.");
  for (const auto& [kind, totals] : store.kinds)
    dump.labelled("store_bytes", "kind", cache::kind_name(kind), totals.bytes);
  dump.gauge("device_lost", "1 after a fault that no launch of this process survives.", engine.device_lost() ? 1 : 0);
  return dump.take();
}

}  // namespace kachel::runtime
