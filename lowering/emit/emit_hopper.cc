// What only sm_90a has, as CUDA C++: the copy engine with its barriers, and what wgmma needs beside itself
// (emit_group_mma.cc). Source: PTX ISA, "wgmma.fence", "mbarrier", "cp.async.bulk.tensor".
#include "lowering/emit/emit.h"

namespace kachel::lowering {
const char* const kHopperPrelude = R"cuda(
KACHEL_DEVICE void kachel_proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// what a loop reads in every iteration stays where it is: docs/assembler.md
template <int kWords> KACHEL_DEVICE void kachel_keep(u32* words) {
  u32 hours;
  asm volatile("mov.u32 %0, %%clock_hi;" : "=r"(hours));
#pragma unroll
  for (int i = 0; i < kWords; ++i) asm volatile("or.b32 %0, %0, %1;" : "+r"(words[i]) : "r"(hours >> 31));
}
KACHEL_DEVICE void kachel_group_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
KACHEL_DEVICE void kachel_group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kGroups> KACHEL_DEVICE void kachel_group_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(kGroups) : "memory"); }
// A branch that is never taken, which the assembler's scheduler keeps to: grids have one dimension.
KACHEL_DEVICE void kachel_in_order() { if (gridDim.y > 1) asm volatile("trap;"); }
// nothing that reads these registers moves to the other side
KACHEL_DEVICE void kachel_pin(float& x) { asm volatile("" : "+f"(x) :: "memory"); }
KACHEL_DEVICE void kachel_pin(int& x) { asm volatile("" : "+r"(x) :: "memory"); }
template <int kCount, class T> KACHEL_DEVICE void kachel_pin(T* x) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) kachel_pin(x[i]);
}
KACHEL_DEVICE u64 kachel_matrix(const void* p, u64 view) { return view | ((u64)(kachel_shared_address(p) & 0x3ffff) >> 4); }

struct __align__(128) kachel_map { u64 v[16]; };
KACHEL_DEVICE void kachel_prefetch(const kachel_map* map) { asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory"); }
#define KACHEL_LIST(...) __VA_ARGS__

// the threads that compute
template <int kThreads> KACHEL_DEVICE void kachel_barrier() { asm volatile("bar.sync 1, %0;" :: "n"(kThreads) : "memory"); }
template <int kCount> KACHEL_DEVICE void kachel_more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(kCount)); }
template <int kCount> KACHEL_DEVICE void kachel_fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(kCount)); }
KACHEL_DEVICE void kachel_phase_init(u64* b, int arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(kachel_shared_address(b)), "r"(arrivals) : "memory"); }
KACHEL_DEVICE void kachel_phase_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
KACHEL_DEVICE void kachel_phase_bytes(u64* b, int bytes) { asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" :: "r"(kachel_shared_address(b)), "r"(bytes) : "memory"); }
KACHEL_DEVICE void kachel_phase_expect(u64* b, int bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(kachel_shared_address(b)), "r"(bytes) : "memory"); }
KACHEL_DEVICE void kachel_phase_arrive_group(u64* b) {
#ifndef KACHEL_BOUNDED_WAITS
  if ((threadIdx.x & 127) == 0)
#endif
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(kachel_shared_address(b)) : "memory");
}
KACHEL_DEVICE void kachel_phase_arrive(u64* b) {
  __syncwarp();
#ifndef KACHEL_BOUNDED_WAITS
  if ((threadIdx.x & 31) == 0)
#endif
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(kachel_shared_address(b)) : "memory");
}
// two groups meet at a barrier; 1 is that of all
KACHEL_DEVICE void kachel_take_turn(int group) { asm volatile("bar.sync %0, 256;" :: "r"(group + 2) : "memory"); }
KACHEL_DEVICE void kachel_pass_turn(int group) { asm volatile("bar.arrive %0, 256;" :: "r"(group + 2) : "memory"); }
// once this thread's cp.async are there
KACHEL_DEVICE void kachel_phase_copied(u64* b) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(kachel_shared_address(b)) : "memory"); }
KACHEL_DEVICE void kachel_not_for_ever(u64& since) {
  u64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  if (!since) since = now;
  if (now - since > 20000000000ull) asm volatile("trap;");
}
KACHEL_DEVICE void kachel_phase_wait(u64* b, int parity) {
  u32 over;
#ifdef KACHEL_BOUNDED_WAITS
  u64 since = 0;
#endif
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(over) : "r"(kachel_shared_address(b)), "r"(parity) : "memory");
#ifdef KACHEL_BOUNDED_WAITS
    if (!over) kachel_not_for_ever(since);
#endif
  } while (!over);
}
// 16 bytes from any address, by way of the 32 around them; loads stay where they are, ahead of their use
KACHEL_DEVICE void kachel_load_shifted(u32* x, const void* from, bool whole) {
  const u64 at = (u64)from & ~15ull;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %9, 0;\n"
      "@p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%8];\n"
      "@p ld.global.nc.v4.u32 {%4, %5, %6, %7}, [%8 + 16]; }"
      : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]), "=r"(x[4]), "=r"(x[5]), "=r"(x[6]), "=r"(x[7]) : "l"(at), "r"((u32)whole));
}
template <class T> KACHEL_DEVICE u32 kachel_bits(const T* p) {
  return sizeof(T) == 1 ? *(const u8*)p : sizeof(T) == 2 ? *(const u16*)p : *(const u32*)p;
}
template <class T> KACHEL_DEVICE void kachel_store_shifted(T* to, const u32* x, const T* from, int first, int end, bool whole) {
  const u32 shift = (u32)(u64)from & 15;
  const bool two = shift & 8, one = shift & 4;
  u32 y[6], z[5];
  uint4 all;
#pragma unroll
  for (int i = 0; i < 6; ++i) y[i] = two ? x[i + 2] : x[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) z[i] = one ? y[i + 1] : y[i];
  all.x = __funnelshift_r(z[0], z[1], shift * 8);
  all.y = __funnelshift_r(z[1], z[2], shift * 8);
  all.z = __funnelshift_r(z[2], z[3], shift * 8);
  all.w = __funnelshift_r(z[3], z[4], shift * 8);
  if (!whole) {
    u32 part[4] = {};
    if (first < end) {
      constexpr int kCount = 16 / sizeof(T), kEach = 4 / sizeof(T);
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (i >= first && i < end) part[i / kEach] |= kachel_bits(from + i) << i % kEach * 8 * (int)sizeof(T);
    }
    all = make_uint4(part[0], part[1], part[2], part[3]);
  }
  *(uint4*)to = all;
}

#define KACHEL_BULK_COPY(name, rank, types, places, values) \
  KACHEL_DEVICE void name(void* to, const kachel_map* map, u64* b, i64 policy, types) { \
    asm volatile("cp.async.bulk.tensor." #rank "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {" places "}], [%2], %3;" \
                 :: "r"(kachel_shared_address(to)), "l"(map), "r"(kachel_shared_address(b)), "l"(policy), values : "memory"); \
  }
KACHEL_BULK_COPY(kachel_bulk_copy_2d, 2, KACHEL_LIST(int x, int y), "%4, %5", KACHEL_LIST("r"(x), "r"(y)))
KACHEL_BULK_COPY(kachel_bulk_copy_3d, 3, KACHEL_LIST(int x, int y, int z), "%4, %5, %6", KACHEL_LIST("r"(x), "r"(y), "r"(z)))
KACHEL_BULK_COPY(kachel_bulk_copy_4d, 4, KACHEL_LIST(int x, int y, int z, int u), "%4, %5, %6, %7", KACHEL_LIST("r"(x), "r"(y), "r"(z), "r"(u)))
KACHEL_BULK_COPY(kachel_bulk_copy_5d, 5, KACHEL_LIST(int x, int y, int z, int u, int v), "%4, %5, %6, %7, %8", KACHEL_LIST("r"(x), "r"(y), "r"(z), "r"(u), "r"(v)))
)cuda"
    // The shared memory of a cluster's blocks is laid out alike, so that an address in one names the same place in all; a
    // copy to several counts at the barrier of each. `blocks`: as bits, by their numbers, 8 at most. Without qualifiers the
    // arrival at another block's barrier is no fence of the whole device, which wgmma and the copy engine have no need of.
    R"cuda(
KACHEL_DEVICE void kachel_cluster_barrier() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
}
// Of blocks that end: what they write to others' memory, or arrive at, is there, which a relaxed arrival does not wait for.
KACHEL_DEVICE void kachel_cluster_end() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
KACHEL_DEVICE void kachel_phase_there(u64* b, u32 block) {
  asm volatile("{ .reg .u32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there]; }"
               :: "r"(kachel_shared_address(b)), "r"(block) : "memory");
}
template <int kThreads> KACHEL_DEVICE void kachel_phase_tell(u64* b, u32 blocks) {
#ifdef KACHEL_BOUNDED_WAITS
  for (u32 block = 0; block < 8; ++block)
    if (blocks >> block & 1) kachel_phase_there(b, block);
#else
  const u32 block = threadIdx.x & (kThreads - 1);
  if (block < 8 && (blocks >> block & 1)) kachel_phase_there(b, block);
#endif
}
#define KACHEL_BULK_MULTICAST(name, rank, types, places, values) \
  KACHEL_DEVICE void name(void* to, const kachel_map* map, u64* b, i64 policy, u32 blocks, types) { \
    asm volatile("cp.async.bulk.tensor." #rank "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], [%1, {" places "}], [%2], %3, %4;" \
                 :: "r"(kachel_shared_address(to)), "l"(map), "r"(kachel_shared_address(b)), "h"((u16)blocks), "l"(policy), values : "memory"); \
  }
KACHEL_BULK_MULTICAST(kachel_bulk_multicast_2d, 2, KACHEL_LIST(int x, int y), "%5, %6", KACHEL_LIST("r"(x), "r"(y)))
KACHEL_BULK_MULTICAST(kachel_bulk_multicast_3d, 3, KACHEL_LIST(int x, int y, int z), "%5, %6, %7", KACHEL_LIST("r"(x), "r"(y), "r"(z)))
KACHEL_BULK_MULTICAST(kachel_bulk_multicast_4d, 4, KACHEL_LIST(int x, int y, int z, int u), "%5, %6, %7, %8", KACHEL_LIST("r"(x), "r"(y), "r"(z), "r"(u)))
KACHEL_BULK_MULTICAST(kachel_bulk_multicast_5d, 5, KACHEL_LIST(int x, int y, int z, int u, int v), "%5, %6, %7, %8, %9", KACHEL_LIST("r"(x), "r"(y), "r"(z), "r"(u), "r"(v)))
// by the first lane, once the warp's writes can be seen by the copy engine
#define KACHEL_PLAIN(word) ""
#define KACHEL_ADDS(word) #word
#define KACHEL_BULK_STORE(name, op, rank, types, places, values) \
  KACHEL_DEVICE void name(const kachel_map* map, const void* from, types) { \
    kachel_proxy_fence(); \
    __syncwarp(); \
    if ((threadIdx.x & 31) == 0) { \
      asm volatile("cp." op(reduce.) "async.bulk.tensor." #rank "d.global.shared::cta." op(add.) "tile.bulk_group [%1, {" places "}], [%0];" \
                   :: "r"(kachel_shared_address(from)), "l"(map), values : "memory"); \
      asm volatile("cp.async.bulk.commit_group;" ::: "memory"); \
    } \
  }
KACHEL_BULK_STORE(kachel_bulk_store_2d, KACHEL_PLAIN, 2, KACHEL_LIST(int x, int y), "%2, %3", KACHEL_LIST("r"(x), "r"(y)))
KACHEL_BULK_STORE(kachel_bulk_add_2d, KACHEL_ADDS, 2, KACHEL_LIST(int x, int y), "%2, %3", KACHEL_LIST("r"(x), "r"(y)))
KACHEL_BULK_STORE(kachel_bulk_store_3d, KACHEL_PLAIN, 3, KACHEL_LIST(int x, int y, int z), "%2, %3, %4", KACHEL_LIST("r"(x), "r"(y), "r"(z)))
KACHEL_BULK_STORE(kachel_bulk_add_3d, KACHEL_ADDS, 3, KACHEL_LIST(int x, int y, int z), "%2, %3, %4", KACHEL_LIST("r"(x), "r"(y), "r"(z)))
KACHEL_BULK_STORE(kachel_bulk_store_4d, KACHEL_PLAIN, 4, KACHEL_LIST(int x, int y, int z, int u), "%2, %3, %4, %5", KACHEL_LIST("r"(x), "r"(y), "r"(z), "r"(u)))
KACHEL_BULK_STORE(kachel_bulk_add_4d, KACHEL_ADDS, 4, KACHEL_LIST(int x, int y, int z, int u), "%2, %3, %4, %5", KACHEL_LIST("r"(x), "r"(y), "r"(z), "r"(u)))
KACHEL_BULK_STORE(kachel_bulk_store_5d, KACHEL_PLAIN, 5, KACHEL_LIST(int x, int y, int z, int u, int v), "%2, %3, %4, %5, %6", KACHEL_LIST("r"(x), "r"(y), "r"(z), "r"(u), "r"(v)))
KACHEL_BULK_STORE(kachel_bulk_add_5d, KACHEL_ADDS, 5, KACHEL_LIST(int x, int y, int z, int u, int v), "%2, %3, %4, %5, %6", KACHEL_LIST("r"(x), "r"(y), "r"(z), "r"(u), "r"(v)))
template <int kBoxes> KACHEL_DEVICE void kachel_bulk_store_wait() {
  if ((threadIdx.x & 31) == 0) asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(kBoxes) : "memory");
  __syncwarp();
}
)cuda";

}  // namespace kachel::lowering
