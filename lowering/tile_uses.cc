#include "lowering/tile_uses.h"

namespace kachel::lowering {

void note_loads(const ir::ExprRef& expr, BufferSet* buffers) {
  if (!expr) return;
  ir::visit(expr, [&](const ir::ExprRef& node) {
    if (node->kind == ir::ExprKind::kLoad) buffers->insert(node->buffer.get());
  });
}

void note_uses(const ir::TileRef& tile, BufferSet* buffers) {
  buffers->insert(tile.buffer.get());
  for (const ir::AxisSpec& axis : tile.axes) {
    note_loads(axis.start, buffers);
    if (axis.gather) note_uses(*axis.gather, buffers);
  }
  note_loads(tile.within_first, buffers);
  note_loads(tile.within_length, buffers);
}

}  // namespace kachel::lowering
