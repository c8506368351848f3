// Blocks that work together within one launch: they read each other's memory and meet.
//
// A cluster's blocks (sm_90 and newer) read each other's shared memory. Blocks that are all resident, which a
// cooperative launch guarantees, meet through global memory.
#pragma once

#include "platform.hpp"

namespace mf::gpu {

inline constexpr int cluster_blocks = 8;  // as many as every card with clusters has at once

#if defined(MF_CUDA_ON_HOST)
using cuda_host::cluster_meet;
using cuda_host::dynamic_shared;
using cuda_host::far_load;
using cuda_host::far_place;
using cuda_host::far_store;
using cuda_host::FarPlace;
using cuda_host::gpu_fence;
using cuda_host::look_at;
#else
__device__ __forceinline__ unsigned char* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char memory[];
  return memory;
}
// All that was written before is seen by whoever sees what is written after.
__device__ __forceinline__ void gpu_fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
// What another block may be about to write.
__device__ __forceinline__ double look_at(const double* slot) {
  double x;
  asm volatile("ld.relaxed.gpu.global.f64 %0, [%1];" : "=d"(x) : "l"(slot) : "memory");
  return x;
}
#if __CUDA_ARCH__ >= 900
// Shared memory of a block of the cluster.
using FarPlace = u32;
__device__ __forceinline__ FarPlace far_place(const void* mine, int rank) {
  u32 place;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(place)
      : "r"(static_cast<u32>(__cvta_generic_to_shared(mine))), "r"(rank));
  return place;
}
__device__ __forceinline__ void far_load(FarPlace at, double2& v) {
  asm volatile("ld.shared::cluster.v2.f64 {%0, %1}, [%2];" : "=d"(v.x), "=d"(v.y) : "r"(at));
}
__device__ __forceinline__ void far_load(FarPlace at, float2& v) {
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at));
}
__device__ __forceinline__ void far_store(FarPlace at, double x) {
  asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(at), "d"(x) : "memory");
}
__device__ __forceinline__ void cluster_meet() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#endif
#endif

}  // namespace mf::gpu
