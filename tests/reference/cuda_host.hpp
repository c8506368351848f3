// CUDA's words for a C++ compiler: kernels run on the host, block after block, each thread of a block a fibre that hands
// over where threads wait for each other. Slow, and the same arithmetic: what indices reach and what bits come out are
// those of a card. Compile with -include of this file, fused operations on and contraction off.
#pragma once

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define __CUDACC__ 1
#define __host__
#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)

struct double2 {
  double x, y;
};
struct float2 {
  float x, y;
};
inline double2 make_double2(double x, double y) { return {x, y}; }
inline float2 make_float2(float x, float y) { return {x, y}; }

struct Three {
  unsigned x = 0, y = 0, z = 0;
};
inline Three threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_host {

// Fibres stay: each runs a thread of one block after the other. A jump costs nothing; a context, which makes the stack
// of a fibre at its first start, asks the system twice.
struct Fibre {
  jmp_buf place;
  bool started, done;
};
inline constexpr std::size_t stack_bytes = 256 << 10;
inline Fibre fibres[1024];
inline jmp_buf scheduler;
inline unsigned current;
inline double slots[1024];
inline void (*entry)(const void*);
inline const void* argument;

// Hands over to the scheduler; goes on when it is this fibre's turn again.
inline void meet() {
  const Three me = threadIdx;
  if (_setjmp(fibres[me.x].place) == 0) _longjmp(scheduler, 1);
  threadIdx = me;
}
inline void run_fibre() {
  for (;;) {
    entry(argument);
    fibres[threadIdx.x].done = true;
    meet();
  }
}
inline void start_fibre(Fibre& fibre) {
  fibre.started = true;
  // A page below each stack that nobody may touch: one that is too small is a fault, not a riddle.
  char* memory = static_cast<char*>(
      mmap(nullptr, stack_bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(memory, 4096, PROT_NONE);
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = memory + 4096;
  context.uc_stack.ss_size = stack_bytes;
  context.uc_link = nullptr;
  makecontext(&context, run_fibre, 0);
  setcontext(&context);
}
inline void run_block(unsigned threads) {
  for (unsigned t = 0; t < threads; ++t) fibres[t].done = false;
  for (volatile bool any = true; any;) {
    any = false;
    for (current = 0; current < threads; ++current) {
      Fibre& fibre = fibres[current];
      if (fibre.done) continue;
      threadIdx.x = current;
      if (_setjmp(scheduler) == 0) {
        if (fibre.started) _longjmp(fibre.place, 1);
        start_fibre(fibre);
      }
      any = any || !fibres[current].done;
    }
  }
}

}  // namespace cuda_host

inline void __syncthreads() { cuda_host::meet(); }
inline void __syncwarp() { cuda_host::meet(); }
inline void __threadfence() {}
inline double __ldcg(const double* p) { return *p; }
inline unsigned atomicAdd(unsigned* p, unsigned n) { return (*p += n) - n; }
inline double __shfl_down_sync(unsigned, double x, int distance) {
  cuda_host::slots[threadIdx.x] = x;
  cuda_host::meet();
  const unsigned from = threadIdx.x + distance;
  const double r = from / 32 == threadIdx.x / 32 && from < blockDim.x ? cuda_host::slots[from] : x;
  cuda_host::meet();
  return r;
}

// A kernel takes one record by value; on x86-64 that is a copy on the stack, which `entry` makes.
#define CUDA_HOST_RUNNER(RECORD)                                                                              \
  extern "C" void run(void* kernel, const void* record, unsigned grid_x, unsigned grid_y, unsigned threads) { \
    static void (*chosen)(RECORD);                                                                            \
    chosen = reinterpret_cast<void (*)(RECORD)>(kernel);                                                      \
    cuda_host::entry = [](const void* r) { chosen(*static_cast<const RECORD*>(r)); };                         \
    cuda_host::argument = record;                                                                             \
    gridDim = {grid_x, grid_y, 1};                                                                            \
    blockDim = {threads, 1, 1};                                                                               \
    for (unsigned y = 0; y < grid_y; ++y)                                                                     \
      for (unsigned x = 0; x < grid_x; ++x) {                                                                 \
        blockIdx = {x, y, 0};                                                                                 \
        cuda_host::run_block(threads);                                                                        \
      }                                                                                                       \
  }
