#include "lowering/plan/wishes.h"

#include <algorithm>

#include "lowering/plan/pipeline_tiles.h"

namespace kachel::lowering {

bool has_room(const Schedule& schedule, Fetches fetches, bool gave_way) {
  return std::all_of(schedule.pipelines.begin(), schedule.pipelines.end(), [&](const Pipeline& pipeline) {
    if (gave_way && encloses_pipeline(pipeline.loop->body)) return true;
    const ir::ExprRef& stages = pipeline.loop->stages;
    if (fetches == Fetches::kRows)
      return pipeline.realisation != Pipeline::Realisation::kInOrder || !stages || stages->int_value < 2;
    return pipeline.realisation == Pipeline::Realisation::kBulkCopies &&
           (!stages || pipeline.depth == stages->int_value);
  });
}

}  // namespace kachel::lowering
