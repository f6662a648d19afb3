// The files of a store in its private directory, opened so that nothing that lies there can hurt the host.
//
//   data.mdb             LMDB's file
//   guard                locks and the note of the last clean close (GuardFile)
//   journal              what has become of the entries (Journal)
//   data.mdb.damaged-<n> a bad data file that was set aside, at most four
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "cache/guard_file.h"
#include "cache/lmdb_database.h"
#include "support/status.h"

namespace kachel::cache {

struct StoreFile {
  ~StoreFile();

  std::string data_path;
  bool read_only = false;
  std::string notice;                // a file that was set aside, a degraded access; or ""
  std::unique_ptr<GuardFile> guard;  // null: read-only, and no writer can exist
  std::unique_ptr<LmdbDatabase> database;
  int descriptor = -1;  // of the data file, for its time stamps

  // Closes the database. With `clean`, and if nobody else has the store open, notes that the next opener need not walk
  // the file. Releases all locks.
  void close(bool clean);
};

// Checks, repairs by setting aside, opens. An error says why there is nothing to serve from disk.
Result<std::unique_ptr<StoreFile>> open_store_file(const std::string& directory, uint64_t limit_bytes, bool read_only);

}  // namespace kachel::cache
