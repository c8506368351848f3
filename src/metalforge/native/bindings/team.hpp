// Threads that stay together over many steps, and memory and sums for them.
#pragma once

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

#include "layout.hpp"

namespace mf::bindings {

// Zeros that start on a cache line; large arrays on large pages, where the system gives them: a sweep over tens of
// megabytes otherwise misses the translation buffer at every link.
template <class T>
class AlignedArray {
 public:
  AlignedArray() = default;
  explicit AlignedArray(i64 n) {
    constexpr std::size_t line = 64, page = std::size_t{1} << 21;
    const std::size_t wanted = static_cast<std::size_t>(n) * sizeof(T);
    const std::size_t unit = wanted >= page ? page : line;
    const std::size_t bytes = (wanted + unit - 1) / unit * unit;
    data_.reset(static_cast<T*>(std::aligned_alloc(unit, bytes)));
    if (!data_) throw std::bad_alloc();
#ifdef __linux__
    if (unit == page) madvise(data_.get(), bytes, MADV_HUGEPAGE);
#endif
    std::memset(data_.get(), 0, bytes);
  }
  T* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
};

// Where the members of a team meet. A waiting thread spins for some ten microseconds, the length of a pass on a small
// lattice, then sleeps. In between it offers its core once: on a busy machine the thread it waits for may be queued on
// the same one, and then neither spinning nor sleeping helps. With OpenMP's own barrier an iteration on a busy machine
// took twice as long.
class Barrier {
 public:
  void wait(int members) {
    const u32 phase = phase_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == members) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      phase_.notify_all();
      return;
    }
    for (int turn = 0; turn < turns; ++turn) {
      if (phase_.load(std::memory_order_acquire) != phase) return;
      if (turn == offer) std::this_thread::yield();
#if MF_X86
      _mm_pause();
#endif
    }
    while (phase_.load(std::memory_order_acquire) == phase) phase_.wait(phase, std::memory_order_acquire);
  }

 private:
  static constexpr int offer = 100, turns = 400;  // a turn takes some 30 ns
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<u32> phase_{0};
};

// One member of a team of threads, inside run_team.
struct Team {
  int index, size;
  Barrier* meeting;

  struct Range {
    i64 begin, end;
  };
  // This member's share of n things.
  Range share(i64 n) const { return {n * index / size, n * (index + 1) / size}; }
  // Everything written before it is seen by every member after it.
  void barrier() const {
    if (size > 1) meeting->wait(size);
  }
};

// Calls work(team) on every thread. It must not throw.
template <class Work>
void run_team([[maybe_unused]] int threads, Work work) {
  Barrier meeting;
#ifdef _OPENMP
#pragma omp parallel num_threads(threads) if (threads > 1)
  work(Team{omp_get_thread_num(), omp_get_num_threads(), &meeting});
#else
  work(Team{0, 1, &meeting});
#endif
}

// Ordered sums: a block of vectors is summed by one thread into `partial`, and every thread joins the blocks for
// itself, in the same order. So the bits do not depend on how many threads there are.
inline constexpr i64 block_vectors = 8;
inline i64 blocks_of(i64 vectors) { return (vectors + block_vectors - 1) / block_vectors; }

// Calls work(begin, end) for each block of this member's share; its result is the sum of that block.
template <class Work>
MF_INLINE void sum_blocks(const Team& team, i64 vectors, double* partial, Work work) {
  const Team::Range range = team.share(blocks_of(vectors));
  for (i64 b = range.begin; b < range.end; ++b) {
    const i64 begin = b * block_vectors, end = begin + block_vectors;
    partial[b] = work(begin, end < vectors ? end : vectors);
  }
}

inline double join_blocks(const double* partial, i64 blocks) {
  constexpr int turns = 8;  // running sums, to hide the latency of an addition
  double sum[turns] = {};
  i64 b = 0;
  for (; b + turns <= blocks; b += turns)
    for (int k = 0; k < turns; ++k) sum[k] += partial[b + k];
  for (int k = 0; b < blocks; ++b, ++k) sum[k] += partial[b];
  return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

// A running sum in double of vectors of V.
template <class V>
class LaneSum {
 public:
  MF_INLINE void add(V x) {
    if constexpr (wide) {
      low_ = low_ + x;
    } else {
      low_ = low_ + convert<double>(half_of<0>(x));
      high_ = high_ + convert<double>(half_of<1>(x));
    }
  }
  MF_INLINE double value() const { return horizontal_sum(wide ? low_ : low_ + high_); }

 private:
  static constexpr bool wide = sizeof(typename LaneTraits<V>::Real) == sizeof(double);
  using Sum = Simd<double, wide ? LaneTraits<V>::lanes : LaneTraits<V>::lanes / 2>;
  Sum low_ = Sum(0.0), high_ = Sum(0.0);
};

}  // namespace mf::bindings
