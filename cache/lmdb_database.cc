#include "cache/lmdb_database.h"

#include <lmdb.h>

#include <sys/stat.h>
#include <cstdio>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

// What liblmdb's failed assertions print to, see CMakeLists.txt.
extern "C" {
__attribute__((visibility("hidden"))) FILE* kachel_lmdb_stderr = stderr;
}

namespace kachel::cache {
namespace {

constexpr uint64_t kFirstMap_bytes = uint64_t{16} << 20, kMapUnit_bytes = uint64_t{1} << 20;
constexpr int kTables = 2;
constexpr const char* kTableNames[kTables] = {"records", "uses"};

Outcome outcome_of(int rc) {
  switch (rc) {
    case MDB_SUCCESS:
      return {};
    case MDB_MAP_FULL:
      return {Failure::kMapFull, rc};
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EIO:  // LMDB's word for a write that ended early
      return {Failure::kNoSpace, rc};
    case MDB_INVALID:
    case MDB_VERSION_MISMATCH:
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_PANIC:
    case MDB_INCOMPATIBLE:
    case MDB_BAD_VALSIZE:
      return {Failure::kDamaged, rc};
    default:
      return {Failure::kOther, rc};
  }
}

MDB_val value_of(std::string_view bytes) {
  return {bytes.size(), const_cast<char*>(bytes.data())};
}
std::string_view view_of(const MDB_val& value) {
  return {static_cast<const char*>(value.mv_data), value.mv_size};
}

uint64_t round_up(uint64_t bytes) {
  return (bytes + kMapUnit_bytes - 1) / kMapUnit_bytes * kMapUnit_bytes;
}

}  // namespace

std::string Outcome::text() const {
  return ok() ? "ok" : mdb_strerror(error);
}

struct Transaction::Impl {
  MDB_txn* txn;
  const std::array<MDB_dbi, kTables>& tables;
  MDB_dbi handle(TableId id) const { return tables[static_cast<int>(id)]; }
};

struct LmdbDatabase::Impl {
  MDB_env* env = nullptr;
  std::array<MDB_dbi, kTables> tables{};
  uint64_t map_bytes = 0, limit_bytes = 0;

  ~Impl() {
    if (env) mdb_env_close(env);
  }

  // Remaps. If that fails the environment has no map and must not be used again.
  Outcome resize(uint64_t bytes) {
    if (int rc = mdb_env_set_mapsize(env, bytes)) return {Failure::kDamaged, rc};
    MDB_envinfo info;
    mdb_env_info(env, &info);
    map_bytes = info.me_mapsize;
    return {};
  }
};

Outcome Transaction::get(TableId table, std::string_view key, std::string_view* value) {
  MDB_val k = value_of(key), v{};
  int rc = mdb_get(impl_.txn, impl_.handle(table), &k, &v);
  *value = rc == MDB_SUCCESS ? view_of(v) : std::string_view();
  return rc == MDB_NOTFOUND ? Outcome{} : outcome_of(rc);
}

Outcome Transaction::put(TableId table, std::string_view key, std::string_view value) {
  MDB_val k = value_of(key), v = value_of(value);
  return outcome_of(mdb_put(impl_.txn, impl_.handle(table), &k, &v, 0));
}

Outcome Transaction::erase(TableId table, std::string_view key) {
  MDB_val k = value_of(key);
  int rc = mdb_del(impl_.txn, impl_.handle(table), &k, nullptr);
  return rc == MDB_NOTFOUND ? Outcome{} : outcome_of(rc);
}

Outcome Transaction::clear(TableId table) {
  return outcome_of(mdb_drop(impl_.txn, impl_.handle(table), 0));
}

Outcome Transaction::for_each(TableId table, std::string_view from, const Visit& visit) {
  MDB_cursor* cursor;
  if (int rc = mdb_cursor_open(impl_.txn, impl_.handle(table), &cursor)) return outcome_of(rc);
  MDB_val key = value_of(from), value{};
  int rc = mdb_cursor_get(cursor, &key, &value, from.empty() ? MDB_FIRST : MDB_SET_RANGE);
  while (rc == MDB_SUCCESS && visit(view_of(key), view_of(value))) rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
  mdb_cursor_close(cursor);
  return rc == MDB_NOTFOUND ? Outcome{} : outcome_of(rc);
}

Outcome Transaction::bytes_in_use(uint64_t* bytes) {
  *bytes = 0;
  // 0 and 1 are LMDB's handles of the free list and of the table of tables.
  for (MDB_dbi dbi : {MDB_dbi{0}, MDB_dbi{1}, impl_.tables[0], impl_.tables[1]}) {
    MDB_stat stat;
    if (int rc = mdb_stat(impl_.txn, dbi, &stat)) return outcome_of(rc);
    *bytes += (stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages) * stat.ms_psize;
  }
  return {};
}

LmdbDatabase::LmdbDatabase(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LmdbDatabase::~LmdbDatabase() = default;

Outcome LmdbDatabase::open(const std::string& path, uint64_t limit_bytes, bool read_only,
                           std::unique_ptr<LmdbDatabase>* out) {
  auto impl = std::make_unique<Impl>();
  impl->limit_bytes = limit_bytes;
  if (int rc = mdb_env_create(&impl->env)) return outcome_of(rc);
  struct stat info{};
  uint64_t file_bytes = ::stat(path.c_str(), &info) == 0 ? info.st_size : 0;
  uint64_t first = std::min(std::max(kFirstMap_bytes, round_up(2 * file_bytes)), limit_bytes);
  if (int rc = mdb_env_set_mapsize(impl->env, first)) return outcome_of(rc);
  if (int rc = mdb_env_set_maxdbs(impl->env, kTables)) return outcome_of(rc);
  // NOMETASYNC: a power cut may undo the last entry, never the file. NOTLS: a read belongs to no thread.
  unsigned flags = MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOTLS | MDB_NOMETASYNC | (read_only ? MDB_RDONLY : 0);
  if (int rc = mdb_env_open(impl->env, path.c_str(), flags, 0600)) return outcome_of(rc);
  MDB_envinfo map;
  mdb_env_info(impl->env, &map);
  impl->map_bytes = map.me_mapsize;

  MDB_txn* txn;
  if (int rc = mdb_txn_begin(impl->env, nullptr, read_only ? MDB_RDONLY : 0, &txn)) return outcome_of(rc);
  for (int i = 0; i < kTables; ++i) {
    if (int rc = mdb_dbi_open(txn, kTableNames[i], read_only ? 0 : MDB_CREATE, &impl->tables[i])) {
      mdb_txn_abort(txn);
      return outcome_of(rc);
    }
  }
  if (int rc = mdb_txn_commit(txn)) return outcome_of(rc);
  out->reset(new LmdbDatabase(std::move(impl)));
  return {};
}

void LmdbDatabase::raise_limit(uint64_t limit_bytes) {
  impl_->limit_bytes = std::max(impl_->limit_bytes, limit_bytes);
}

Outcome LmdbDatabase::run_once(const Body& body, bool read_only) {
  MDB_txn* txn;
  int rc = mdb_txn_begin(impl_->env, nullptr, read_only ? MDB_RDONLY : 0, &txn);
  if (rc == MDB_MAP_RESIZED) {
    // Another process has grown the file past this map: take over the size that it recorded.
    if (Outcome resized = impl_->resize(0); !resized.ok()) return resized;
    rc = mdb_txn_begin(impl_->env, nullptr, read_only ? MDB_RDONLY : 0, &txn);
  }
  if (rc != MDB_SUCCESS) return outcome_of(rc);
  Transaction::Impl state{txn, impl_->tables};
  Transaction transaction(state);
  Outcome outcome = body(transaction);
  if (read_only || !outcome.ok()) {
    mdb_txn_abort(txn);
    return outcome;
  }
  return outcome_of(mdb_txn_commit(txn));
}

Outcome LmdbDatabase::run(const Body& body, bool read_only) {
  for (;;) {
    Outcome outcome = run_once(body, read_only);
    if (outcome.failure != Failure::kMapFull || impl_->map_bytes >= impl_->limit_bytes) return outcome;
    if (Outcome grown = impl_->resize(std::min(2 * impl_->map_bytes, impl_->limit_bytes)); !grown.ok()) return grown;
  }
}

Outcome LmdbDatabase::read(const Body& body) {
  return run(body, true);
}
Outcome LmdbDatabase::write(const Body& body) {
  return run(body, false);
}

}  // namespace kachel::cache
