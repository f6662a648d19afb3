// What a lowering tries at first, and gives up where the schedule turns out to have no place for it.
#pragma once
#include "lowering/plan/bounded_boxes.h"
#include "lowering/plan/schedule.h"

namespace kachel::lowering {

// What is loaded ahead for regions, if all else stays as it is.
enum class Fetches { kNothing, kRows, kTiles };

// Whether pipelines overlap all the same, those around others left out where these gave way to boxes; with tiles,
// whether the copy engine fills all, as many stages as are asked for.
bool has_room(const Schedule& schedule, Fetches fetches, bool gave_way);

struct Wishes {
  Fetches fetches = Fetches::kTiles;
  bool shared_stages = true;
  BoundedBoxes bounded;
  bool turned_sums = true;
  bool wide_sums = false;  // where there is no room for them in fewer warp groups

  template <class Fn>
  Wishes changed(const Fn& change) const {
    Wishes other = *this;
    change(&other);
    return other;
  }
  Wishes with(Fetches other) const {
    return changed([other](Wishes* wishes) { wishes->fetches = other; });
  }
};

}  // namespace kachel::lowering
