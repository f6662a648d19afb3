// Which tiles are only accessed along their rows: neighbouring lanes at neighbouring elements, whole rows of banks at a
// time. They need no swizzle, whose price is an exclusive-or for each place that is not known in advance.
#pragma once
#include "lowering/plan/placement.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {

// Of the kernel's tiles those that something accesses in another way. Layouts of memory are not looked at.
BufferSet accessed_across(const ir::Kernel& kernel, const Placements& placements);
// Those that regions access at places which are made of bits, as the order is in which a Fourier transform begins.
BufferSet accessed_by_bits(const ir::Kernel& kernel);

}  // namespace kachel::lowering
