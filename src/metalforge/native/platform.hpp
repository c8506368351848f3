// What differs between the compilers that read these headers: GCC/Clang on a CPU, NVRTC/nvcc on a GPU.
#pragma once

#if defined(__CUDACC__)
#define MF_CUDA 1
#define MF_INLINE __host__ __device__ __forceinline__
#define MF_FUNCTION __host__ __device__ inline
#define MF_UNROLL _Pragma("unroll")
#define MF_ROLLED_ON_CPU _Pragma("unroll")
#define MF_ROLLED_ON_GPU _Pragma("unroll 1")
#else
#define MF_CUDA 0
#define MF_INLINE inline __attribute__((always_inline))
#define MF_FUNCTION inline
#define MF_UNROLL _Pragma("GCC unroll 16")
#define MF_ROLLED_ON_CPU _Pragma("GCC unroll 1")
#define MF_ROLLED_ON_GPU
#endif

#if !MF_CUDA && (defined(__x86_64__) || defined(_M_X64))
#define MF_X86 1
#include <immintrin.h>
#else
#define MF_X86 0
#endif

namespace mf {

// NVRTC brings no <cstdint>; these are the sizes on every target we build for.
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;
static_assert(sizeof(u32) == 4 && sizeof(u64) == 8);

template <class To, class From>
MF_INLINE To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

}  // namespace mf
