// Decides, without mapping it, whether a data file may be handed to LMDB.
#pragma once
#include <string>

namespace kachel::cache {

enum class CheckDepth {
  kMeta,  // the two meta pages and the length of the file
  kTree,  // every page that the newest meta page reaches, and the free list
};

// "" if the file is sound or empty, else what is wrong with it. kMeta turns into kTree by itself where the file ends
// before the last page that it claims to have: those pages may be free ones that were never written.
// REQUIRES: nobody writes meanwhile (the caller holds GuardFile's kTransaction, or is the only user).
std::string check_data_file(int descriptor, CheckDepth depth);

}  // namespace kachel::cache
