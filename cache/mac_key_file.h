// A key for records in a file of its own, which nobody but its owner can read.
#pragma once
#include <string>

#include "support/status.h"

namespace kachel::cache {

// All bytes of the file, a newline at its end included. kInvalid, with the mend, where it cannot be read, is no regular
// file, belongs to neither this user nor root, or where its mode lets others read or write it.
Result<std::string> read_mac_key(const std::string& path);

}  // namespace kachel::cache
