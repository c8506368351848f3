// CUDA's words for a C++ compiler: kernels run on the host, each thread a fibre that hands over where it waits for
// others. Blocks come one after the other, those that meet (clusters, cooperative launches) at once. Slow, and the same
// arithmetic: what indices reach and what bits come out are those of a card. Compile with -include of this file, fused
// operations on and contraction off.
#pragma once

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#define __CUDACC__ 1
#define MF_CUDA_ON_HOST 1
#define __host__
#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)

struct double2 {
  double x, y;
};
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
inline double2 make_double2(double x, double y) { return {x, y}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

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
  Three thread, block;
};
// Those who wait for each other; who ends is not waited for.
struct Barrier {
  unsigned members = 0, arrived = 0, generation = 0;

  void open() {
    arrived = 0;
    ++generation;
  }
  void leave() {
    if (--members > 0 && arrived == members) open();
  }
};
inline constexpr std::size_t stack_bytes = 256 << 10;
inline Fibre fibres[4096];
inline jmp_buf scheduler;
inline unsigned current;  // fibre; those of a block follow each other
inline union {
  double real;
  std::uint64_t bits;
} slots[4096];
inline std::vector<Barrier> of_block, of_warp;
inline Barrier of_all;
inline std::vector<unsigned char> shared_memory;
inline std::size_t shared_bytes;
inline void (*entry)(const void*);
inline const void* argument;

inline unsigned my_block() { return current / blockDim.x; }
inline Barrier& block_barrier() { return of_block[my_block()]; }
inline Barrier& warp_barrier() { return of_warp[my_block() * ((blockDim.x + 31) / 32) + threadIdx.x / 32]; }

// Hands over to the scheduler; goes on when it is this fibre's turn again.
inline void hand_over() {
  const unsigned me = current;
  if (_setjmp(fibres[me].place) == 0) _longjmp(scheduler, 1);
}
inline void meet(Barrier& barrier) {
  if (++barrier.arrived == barrier.members) return barrier.open();
  const unsigned now = barrier.generation;
  while (barrier.generation == now) hand_over();
}
inline void run_fibre() {
  for (;;) {
    entry(argument);
    fibres[current].done = true;
    block_barrier().leave();
    warp_barrier().leave();
    of_all.leave();
    hand_over();
  }
}
inline void start_fibre(Fibre& fibre) {
  fibre.started = true;
  // A page below each stack that nobody may touch: one that is too small is a fault, not a riddle.
  char* memory =
      static_cast<char*>(mmap(nullptr, stack_bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(memory, 4096, PROT_NONE);
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = memory + 4096;
  context.uc_stack.ss_size = stack_bytes;
  context.uc_link = nullptr;
  makecontext(&context, run_fibre, 0);
  setcontext(&context);
}
// Runs `blocks` blocks from (x, y) on, at once.
inline void run_blocks(unsigned x, unsigned y, unsigned blocks) {
  const unsigned threads = blockDim.x, warps = (threads + 31) / 32;
  if (blocks * threads > 4096) std::abort();
  of_block.assign(blocks, {threads});
  of_warp.assign(blocks * warps, {});
  of_all = {blocks * threads};
  shared_memory.assign(blocks * shared_bytes, 0xff);  // not numbers
  for (unsigned n = 0; n < blocks * threads; ++n) {
    ++of_warp[n / threads * warps + n % threads / 32].members;
    fibres[n].done = false;
    fibres[n].thread = {n % threads, 0, 0};
    fibres[n].block = {x + n / threads, y, 0};
  }
  for (volatile bool any = true; any;) {
    any = false;
    for (current = 0; current < blocks * threads; ++current) {
      Fibre& fibre = fibres[current];
      if (fibre.done) continue;
      threadIdx = fibre.thread;
      blockIdx = fibre.block;
      if (_setjmp(scheduler) == 0) {
        if (fibre.started) _longjmp(fibre.place, 1);
        start_fibre(fibre);
      }
      any = any || !fibres[current].done;
    }
  }
}

// What another lane of the warp has.
inline double of_lane(double x, unsigned lane) {
  const unsigned first = current - threadIdx.x % 32;
  slots[current].real = x;
  meet(warp_barrier());
  const double its = slots[first + lane].real;
  meet(warp_barrier());
  return its;
}

// What together.cuh asks for.
inline unsigned char* dynamic_shared() { return shared_memory.data() + my_block() * shared_bytes; }
inline void gpu_fence() {}
template <class X>
inline X look_at(const X* slot) {
  hand_over();
  return *static_cast<const volatile X*>(slot);
}
inline void block_fence() {}
template <class E>
inline E strong_load(const E* at) {
  return *at;
}
using FarPlace = std::uintptr_t;
inline FarPlace near_place(const void* mine) { return reinterpret_cast<FarPlace>(mine); }
inline FarPlace far_place(const void* mine, int rank) {
  const std::ptrdiff_t offset = static_cast<const unsigned char*>(mine) - dynamic_shared();
  return near_place(shared_memory.data() + rank * shared_bytes + offset);
}
template <class E>
inline void far_load(FarPlace at, E& v) {
  v = *reinterpret_cast<const E*>(at);
}
inline void cluster_meet() { meet(of_all); }
// A mailbox: bytes that are awaited, whether its block said how many, and how often it was full.
struct Mailbox {
  int awaited;
  bool told;
  unsigned char phase;

  void look() {
    if (!told || awaited != 0) return;
    told = false;
    phase ^= 1;
  }
};
static_assert(sizeof(Mailbox) == 8);
inline void open_mailbox(void* box) { *static_cast<Mailbox*>(box) = {}; }
inline void expect_bytes(void* box, int bytes) {
  Mailbox& mail = *static_cast<Mailbox*>(box);
  mail.awaited += bytes;
  mail.told = true;
  mail.look();
}
inline void far_send(const double* mine, const void* box, int rank, double x) {
  *reinterpret_cast<double*>(far_place(mine, rank)) = x;
  Mailbox& mail = *reinterpret_cast<Mailbox*>(far_place(box, rank));
  mail.awaited -= static_cast<int>(sizeof x);
  mail.look();
}
inline void wait_for_mail(const void* box, unsigned phase) {
  while (static_cast<const volatile Mailbox*>(box)->phase == phase) hand_over();
}

}  // namespace cuda_host

inline void __syncthreads() { cuda_host::meet(cuda_host::block_barrier()); }
inline void __syncwarp() { cuda_host::meet(cuda_host::warp_barrier()); }
inline void __threadfence() {}
template <class E>
inline E __ldcg(const E* p) {
  return *p;
}
template <class E>
inline E __ldcs(const E* p) {
  return *p;
}
inline unsigned atomicAdd(unsigned* p, unsigned n) { return (*p += n) - n; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
template <class X>
inline X __shfl_sync(unsigned, X x, int lane) {
  return static_cast<X>(cuda_host::of_lane(static_cast<double>(x), static_cast<unsigned>(lane)));
}
inline double __shfl_xor_sync(unsigned, double x, int bits) {
  return cuda_host::of_lane(x, (threadIdx.x % 32) ^ static_cast<unsigned>(bits));
}
inline double __shfl_down_sync(unsigned, double x, int distance) {
  const unsigned lane = threadIdx.x % 32 + static_cast<unsigned>(distance);
  return cuda_host::of_lane(x, lane < 32 ? lane : threadIdx.x % 32);
}
inline unsigned __ballot_sync(unsigned, bool mine) {
  using namespace cuda_host;
  const unsigned first = current - threadIdx.x % 32;
  slots[current].bits = mine;
  meet(warp_barrier());
  unsigned all = 0;
  for (unsigned lane = 0; lane < warp_barrier().members; ++lane) all |= unsigned(slots[first + lane].bits) << lane;
  meet(warp_barrier());
  return all;
}

// A kernel takes one record by value; on x86-64 that is a copy on the stack, which `entry` makes. So many blocks of a
// row of the grid are at once as `together` says.
#define CUDA_HOST_RUNNER(RECORD)                                                                            \
  extern "C" void run(void* kernel, const void* record, unsigned grid_x, unsigned grid_y, unsigned threads, \
                      unsigned shared, unsigned together) {                                                 \
    static void (*chosen)(RECORD);                                                                          \
    chosen = reinterpret_cast<void (*)(RECORD)>(kernel);                                                    \
    cuda_host::entry = [](const void* r) { chosen(*static_cast<const RECORD*>(r)); };                       \
    cuda_host::argument = record;                                                                           \
    cuda_host::shared_bytes = shared;                                                                       \
    gridDim = {grid_x, grid_y, 1};                                                                          \
    blockDim = {threads, 1, 1};                                                                             \
    for (unsigned y = 0; y < grid_y; ++y)                                                                   \
      for (unsigned x = 0; x < grid_x; x += together) cuda_host::run_blocks(x, y, together);                \
  }
