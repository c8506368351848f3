// Blocks that work together within one launch: they read each other's memory and meet.
//
// A cluster's blocks (sm_90 and newer) read each other's shared memory. Blocks that are all resident, which a
// cooperative launch guarantees, meet through global memory.
#pragma once

#include "platform.hpp"

namespace mf::gpu {

inline constexpr int cluster_blocks = 8;  // as many as every card with clusters has at once

#if defined(MF_CUDA_ON_HOST)
using cuda_host::block_fence;
using cuda_host::cluster_meet;
using cuda_host::dynamic_shared;
using cuda_host::expect_bytes;
using cuda_host::far_load;
using cuda_host::far_place;
using cuda_host::far_send;
using cuda_host::FarPlace;
using cuda_host::gpu_fence;
using cuda_host::look_at;
using cuda_host::near_place;
using cuda_host::open_mailbox;
using cuda_host::strong_load;
using cuda_host::wait_for_mail;
#else
__device__ __forceinline__ unsigned char* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char memory[];
  return memory;
}
// All that was written before is seen by whoever sees what is written after.
__device__ __forceinline__ void gpu_fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
// What another block may be about to write. A fence after it shows what that block wrote before.
__device__ __forceinline__ double look_at(const double* slot) {
  double x;
  asm volatile("ld.relaxed.gpu.global.f64 %0, [%1];" : "=d"(x) : "l"(slot) : "memory");
  return x;
}
__device__ __forceinline__ u32 look_at(const u32* slot) {
  u32 x;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(slot) : "memory");
  return x;
}
// From memory that other blocks write, past the cache of the multiprocessor; or from shared memory.
__device__ __forceinline__ double2 strong_load(const double2* at) {
  double2 v;
  asm volatile("ld.relaxed.gpu.v2.f64 {%0, %1}, [%2];" : "=d"(v.x), "=d"(v.y) : "l"(at));
  return v;
}
__device__ __forceinline__ float2 strong_load(const float2* at) {
  float2 v;
  asm volatile("ld.relaxed.gpu.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(at));
  return v;
}
#if __CUDA_ARCH__ >= 900
// Shared memory of this block, and of another of the cluster.
using FarPlace = u32;
__device__ __forceinline__ FarPlace near_place(const void* mine) {
  return static_cast<u32>(__cvta_generic_to_shared(mine));
}
__device__ __forceinline__ FarPlace far_place(const void* mine, int rank) {
  u32 place;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(place) : "r"(near_place(mine)), "r"(rank));
  return place;
}
__device__ __forceinline__ void far_load(FarPlace at, double2& v) {
  asm volatile("ld.shared::cluster.v2.f64 {%0, %1}, [%2];" : "=d"(v.x), "=d"(v.y) : "r"(at));
}
__device__ __forceinline__ void far_load(FarPlace at, float2& v) {
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at));
}
__device__ __forceinline__ void cluster_meet() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Shared memory is as this warp wrote it.
__device__ __forceinline__ void block_fence() { asm volatile("fence.acq_rel.cta;" ::: "memory"); }
// A mailbox opens when the bytes that its block expects have come; a barrier of a cluster would wait for all memory.
__device__ __forceinline__ void open_mailbox(u64* box) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;" ::"r"(near_place(box))
               : "memory");
}
__device__ __forceinline__ void expect_bytes(u64* box, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(near_place(box)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void far_send(const double* mine, const u64* box, int rank, double x) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f64 [%0], %1, [%2];" ::"r"(far_place(mine, rank)),
      "d"(x), "r"(far_place(box, rank))
      : "memory");
}
__device__ __forceinline__ void wait_for_mail(const u64* box, u32 phase) {
  u32 open = 0;
  while (!open)
    asm volatile(
        "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(open)
        : "r"(near_place(box)), "r"(phase)
        : "memory");
}
#endif
#endif

}  // namespace mf::gpu
