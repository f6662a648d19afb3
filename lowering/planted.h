// Planted bugs. The mutation check (tests/lowering/planted_test) builds this layer once more with
// KACHEL_PLANTED_BUGS and shows that the suite notices each of them; in the product planted() is constant false.
#pragma once

namespace kachel::lowering {

enum class Planted {
  kNone,
  kNoLowerBound,          // negative indices are not guarded
  kNoUpperBound,          // indices past the end are not guarded
  kBoundOffByOne,         // index <= extent
  kSwappedStrides,        // rows and columns of a matrix exchanged
  kWrongTilePitch,        // a tile's rows overlap
  kWrongPadding,          // loads outside give 1
  kWrongConversion,       // conversions go through i8
  kDroppedBarrier,        // no barrier before a read of what other threads wrote
  kDroppedLoopBarrier,    // no barrier for hazards around a loop's back edge
  kWrongLayout,           // a fragment's registers are addressed in reverse
  kSkippedTail,           // threads skip the last, incomplete round
  kGemmNoAccumulate,      // c = a @ b instead of c += a @ b
  kGemmShortK,            // the last k of a gemm is left out
  kTransposedOperand,     // a's transpose flag is ignored
  kReduceInit,            // max starts from 0
  kReduceSkipsFirst,      // a reduction starts at its second element
  kSnapshotBroken,        // a region writes before all its reads are done
  kWithinIgnored,         // `within` is not applied
  kPaddingIgnored,        // `pad` is taken as 0
  kGridOrder,             // grid axes decoded in the wrong order
  kAtomicLost,            // an atomic becomes a plain store
  kUnorderedAtomics,      // no barrier between atomics and what else is done with a tile
  kNibbleOrder,           // the two elements of a byte exchanged
  kShortWait,             // a pipeline waits for one group too few
  kWrongStage,            // copies go to the stage that is being read
  kSwappedFragment,       // the rows of an A fragment exchanged
  kWrongSwizzle,          // copies and reads disagree on the swizzle
  kDroppedShuffle,        // a row reduction leaves out one exchange between lanes
  kWrongReplica,          // every replica stores, and atomics count several times
  kPanelTail,             // CPU: the last, narrower panel is not filled
  kPanelPitch,            // CPU: panels overlap by a row
  kMicroShortK,           // CPU: the last k of a micro-kernel is left out
  kMicroTail,             // CPU: the rows and columns after the last whole block are left out
  kMicroAccumulates,      // CPU: c += a @ b instead of c = a @ b
  kLanesTail,             // CPU: a reduction leaves out what does not fill its lanes
  kTransposeTail,         // CPU: a transposing copy leaves out the k after the last whole block
  kStripTail,             // CPU: a region in strips leaves out what does not fill one
  kPairTail,              // CPU: an odd last k of an integer product is not stored
  kFragmentMap,           // the registers of an accumulator: column and row exchanged
  kWarpRow,               // the warps take each other's rows
  kMatrixNotTransposed,   // ldmatrix without .trans
  kDroppedMma,            // the last tile of 8 columns gets no products
  kRegisterOperand,       // A in registers: half as far from one step of k to the next
  kSwappedPair,           // the elements of a converted pair exchanged
  kCopySwizzle,           // copies between memory leave out a bit of the swizzle
  kVectorGuard,           // a wide copy reads outside of its source
  kNoZeroFill,            // where nothing is read nothing is written
  kStageStride,           // the stages of a tile overlap
  kShortPrologue,         // a pipeline begins with one stage too few filled
  kDroppedCommit,         // the loop's copies belong to no group
  kEarlyBarrier,          // the barrier before the wait, not after
  kRaggedLayout,          // places past the end of a ragged layout are used
  kReplicasCompute,       // replicas read what one of them writes
  kUnfencedPipeline,      // wgmma may not see what was written in front of a pipeline's barrier
  kStaleCopy,             // what reads a tile between its copy and what changes it reads the change before
  kReplicasRead,          // the same, without a use for it
  kDroppedPart,           // a reduction across warps leaves out a warp
  kPartialTwice,          // replicas write their partial results too
  kReducedAxis,           // a reduction over the other axis
  kArgLast,               // argmax finds the last of the largest elements
  kFirstColumn,           // every column that a region names is the first one
  kNeighbourSlot,         // neighbours that one access moves are taken for each other
  kGrownReduced,          // a reduction takes in what an axis has been padded with
  kGrownStored,           // and a store writes it
  kGrownDepth,            // and a product adds it up
  kFirstMatrix,           // every matrix of a tile is copied from the first one's place
  kGuardedBytes,          // a stage waits for what a condition leaves out, too
  kGuardTurned,           // copies under a condition are those of its other case
  kCarriedOn,             // sums that a loop carries go on from its last run
  kScanLanes,             // a prefix reduction leaves out one exchange between lanes
  kScanWarps,             // a prefix reduction counts its own warp where it must not, or leaves it out
  kNarrowConstant,        // a narrowed constant is cut to 8 bits
  kGroupRows,             // the warps of a group exchange their rows
  kGroupStep,             // wgmma reads the first k again and again
  kGroupSlab,             // slabs of an operand overlap
  kRunRestarts,           // a run of sums keeps its last step only
  kRunsCollide,           // a run is issued to registers that are still to be added up
  kGroupDroppedWait,      // accumulators are read while wgmma writes them
  kGroupEarlyCopy,        // copies into a stage that wgmma may still read
  kBulkSlab,              // the copy engine fills every slab with the first one's columns
  kBulkColumn,            // the copy engine reads from any column on
  kRightOperand,          // a right operand in registers has its halves and steps of k exchanged
  kGuardLeftBehind,       // a load is hoisted out of the guard that it stands under
  kPhaseParity,           // the producer does not wait until a stage is empty
  kPhaseEarlyRelease,     // a stage is released while wgmma reads it
  kShortLife,             // a tile's memory is another's after its first use
  kUnorderedLives,        // no barrier between two lives of the same memory
  kMatrixRow,             // stmatrix's matrices down the rows exchanged
  kReleaseNotFenced,      // a stage that threads read is released without a fence
  kCopiesNotAwaited,      // a stage is full before the producer's threads have copied
  kStoredNotFenced,       // nor is there a fence behind what they have stored
  kShiftedEnd,            // the end of a row that is copied from any address is not heeded
  kOperandNotRounded,     // a pair of a left operand is not rounded for the products that wait for it
  kCopiesNotFenced,       // wgmma reads what they have copied without a fence
  kMaskTooLate,           // a loop goes on without masks for one element too many
  kMaskEndsEarly,         // a loop begins to do without masks an element too early
  kSumRepeated,           // every lane begins with the sum that a loop is to carry on
  kSameDepth,             // warps that share k all multiply the first part of it
  kPartsForgotten,        // of their sums that of the first warp alone is taken
  kTurnNotPassed,         // a warp group does not tell the next one that it has issued its products
  kTurnNotTaken,          // nor does the next one wait
  kSameHalf,              // an operand is made where the products before still read
  kJoinedEnd,             // what lies outside of a tensor with short rows is read
  kWideGroup,             // neighbours of calculated places are loaded together where they are none
  kDirectPlace,           // a tensor is read at the place in its tile
  kWindowEnd,             // a window's last element is left out
  kStridedPart,           // of elements that are loaded together it is the first one that is used
  kSameAgain,             // what is loaded for the next iteration is this one's
  kFirstOfQuad,           // all lanes of a quad unpack the pair of its first one
  kTableHalves,           // tables of 4 bits have their halves exchanged
  kNothingTaken,          // packed integers forget the number that is subtracted from them
  kOtherOperand,          // of two operands that a region makes the first one is made twice
  kFirstDecides,          // of neighbours that are loaded together the first one's condition decides
  kScaledGroup,           // places that rise by several elements share what as many that rise by one would
  kShortField,            // of integers taken out of words the highest bit does not count
  kReadNeighbours,        // a region takes the neighbours that it has loaded together for each other
  kReadOnce,              // what a region reads once is read at its first place
  kFetchedPlace,          // a tile that is fetched for a region begins a row too early
  kNotPassedOver,         // a team does not step over the stages of a tile that is not its own
  kDroppedExchange,       // the threads of a row store each other's columns
  kHandedEarly,           // a value is handed over before the last one was taken
  kHandedNotAwaited,      // a handed value is taken before it is there
  kRowsUncut,             // rows that `within` bounds are copied in a box that reaches beyond its end
  kBytesUnannounced,      // a barrier is not told of the bytes of such a box
  kHalvesCollide,         // a half is unpacked while products may still read what was unpacked there before
  kNotTurned,             // of sums of turned products each 8 x 8 stay as they are
  kNotJoined,             // left operands of 8 bits stay as accumulators lie
  kBlockStrip,            // a thread multiplies its first strip of columns only, in place of the others
  kBlockStep,             // a right operand in blocks of registers is one k behind
  kBlockEdge,             // rows and columns of a thread past the edge of a tile are loaded
  kDotSign,               // dp4a takes signed bytes for unsigned
  kBoxNotAwaited,         // a box is filled again while the copy engine reads it
  kQuotientBelow,         // the reciprocal of a whole number is cut off, not rounded up
  kOneAxisOfAll,          // of pixels counted through all images, the place is taken for that in an image
  kDifferenceAdded,       // what a place takes away from a sum is added to it where terms are put in order
  kPartedSides,           // terms of a comparison that change sides keep their sign
  kDivisorNotScaledBack,  // a quotient by a divisor far from 1 keeps the power of two
  kEqualParts,            // of an axis in equal parts the first one is taken each time
  kSplitPart,             // all parts of a split fragment are copied from and to the first one's place
  kMovedEarly,            // sums move to a tile of their own in front of their products
  kMovedPart,             // all parts of sums are the first one
  kConvertedRest,         // of a vector that is converted on its way to memory the second half is the first one
  kPairPart,              // both of a pair of neighbours in registers are the first one
  kTransposedIndex,       // a region reads a transposed tile or tensor as it was
  kTransposedStrides,     // strides of a transposed tensor are not exchanged
  kClusterPart,           // all blocks of a cluster copy the same part for all
  kClusterPeers,          // a block copies its part for itself alone
  kClusterNotTold,        // a block tells itself that it has released a stage, the others not at all
  kSpareTileStored,       // a tile that fills a cluster up is stored as if it were the grid's
  kSpareTileFar,          // and is computed from beyond the edge
  kPlaceNotAwaited,       // a tile's place is said to be there before it is
  kPlaceTakenEarly,       // and to be read before it has been
  kRestOfRounds,          // of a loop whose iterations stand side by side the rest is left out
  kSameGroup,             // regions over groups of columns are the first group again and again
  kPartOfOperand,         // all parts of an operand are copied from its first columns
  kWideRead,              // of elements that are loaded together the last one comes first
  kWideWrite,             // and of what is stored together, too
  kNarrowTile,            // a tile that regions write to, too, holds 16-bit floats
  kSingleBound,           // of two bounds the lower one is forgotten
  kStagesAnew,            // a loop that goes on with another one's stages begins at the first of them
  kWideStore,             // neighbours that are written together change places
  kEarlyLoad,             // what is loaded early is that of the first iteration
  kGroupDivisor,          // the number of a group is divided as if it were an element's
  kCopiedWarps,           // warps that multiply what others do take further columns
  kOthersElements,        // iterations share elements that are taken for their own
  kAheadLoad,             // what a serial loop loads ahead is that of the iteration that loads it
  kNumberItself,          // what an index is made of is taken for it
  kLoopsExchanged,        // of joined loops, each does what the other one does
  kExchangeHere,          // what a thread exchanges with itself stays where it is
  kExchangeLanes,         // a lane exchanges with its neighbour, whoever was meant
  kExchangeWarps,         // and a warp with itself
  kExchangeAlways,        // an element that has the bits itself is exchanged as well
  kPairOfK,               // of two neighbours along k the first one is multiplied twice
  kRowRunsOn,             // a row that is stored at any address ends an element later
  kHalfOfParts,           // of the parts that warps leave, lanes take those of one half
  kPartFromStart,         // a part of a fragment is stored as if it began with it
  kCount,
};

#ifdef KACHEL_PLANTED_BUGS
void plant(Planted bug);  // not thread-safe: tests plant one, run, and plant kNone
bool planted(Planted bug);
#else
constexpr bool planted(Planted) {
  return false;
}
#endif

}  // namespace kachel::lowering
