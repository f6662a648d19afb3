// What liblmdb's failed assertions print to, see CMakeLists.txt: the one variable that its archive would import.
#include <cstdio>

extern "C" {
__attribute__((visibility("hidden"))) FILE* kachel_lmdb_stderr = stderr;
}
