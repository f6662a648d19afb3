#include "lowering/planted.h"

#ifdef KACHEL_PLANTED_BUGS
namespace kachel::lowering {
namespace {
Planted current = Planted::kNone;
}
void plant(Planted bug) {
  current = bug;
}
bool planted(Planted bug) {
  return current == bug;
}
}  // namespace kachel::lowering
#endif
