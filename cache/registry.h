// The process's disk tables: one per directory, however many stores ask for it. Also the place where fork is dealt
// with.
#pragma once
#include <memory>

#include "cache/disk_table.h"
#include "support/status.h"

namespace kachel::cache {

// The table of that directory that this process has open, or a new one. The widest limit that was asked for holds.
// A child of fork starts with an empty registry: it opens tables of its own. Thread-safe.
Result<std::shared_ptr<DiskTable>> open_disk_table(const DiskOptions& options);

// A descriptor with locks is closed in children of fork(), where nothing else may be done with it; until it is kept
// again, which comes before it is closed.
void close_in_child(int descriptor);
void keep_in_child(int descriptor);

}  // namespace kachel::cache
