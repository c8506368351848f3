// Where the numbers of a lattice lie on a GPU, and which thread has which site.
//
// Sites of one parity are numbered as in a file (x fastest), halved; they lie in blocks of 32, the even ones of a
// chain, then its odd ones, then the next chain. The last block of a parity may be part empty. In a block, numbers of
// the same kind of all 32 sites follow each other, so that a warp reads whole lines. A site's number is a sum of one
// term a direction: a step adds a difference, and no tables are needed.
#pragma once

#include "su3.hpp"

namespace mf::gpu {

inline constexpr int block_sites = 32;

struct Lattice {
  int extent[4];
  int half;    // sites of one parity
  int padded;  // the same, in whole blocks
};

// What random numbers and actions need to know of a chain.
struct ChainRow {
  double beta;
  u64 seed;
  u32 stream, step;
};

struct Coordinates {
  int x[4];
};

MF_INLINE Coordinates coordinates_of(const Lattice& l, int i, int parity) {
  const int row_length = l.extent[0] / 2;
  int rest = i / row_length;
  const int column = i - rest * row_length, y = rest % l.extent[1];
  rest /= l.extent[1];
  const int z = rest % l.extent[2], t = rest / l.extent[2];
  return {{2 * column + ((y + z + t + parity) & 1), y, z, t}};
}
MF_INLINE u32 number_in_file(const Lattice& l, const Coordinates& c) {
  return static_cast<u32>(((c.x[3] * l.extent[2] + c.x[2]) * l.extent[1] + c.x[1]) * l.extent[0] + c.x[0]);
}

// A site of a chain: its parity, its number within that, and where the chain begins.
struct Site {
  int i, parity, first;

  MF_INLINE int place(const Lattice& l) const { return first + parity * l.padded + i; }
};

// How a step changes the number of a site.
struct Hops {
  int up[4], down[4];

  MF_INLINE Hops(const Lattice& l, const Coordinates& c) {
    const bool odd = c.x[0] & 1;
    const int column = c.x[0] >> 1, last = l.extent[0] / 2 - 1;
    up[0] = !odd ? 0 : column == last ? -last : 1;
    down[0] = odd ? 0 : column == 0 ? last : -1;
    int stride = l.extent[0] / 2;
    MF_UNROLL
    for (int mu = 1; mu < 4; ++mu) {
      const int around = (l.extent[mu] - 1) * stride;
      up[mu] = c.x[mu] == l.extent[mu] - 1 ? -around : stride;
      down[mu] = c.x[mu] == 0 ? around : -stride;
      stride *= l.extent[mu];
    }
  }
  // By selection: an index that is not a constant would send the numbers to memory.
  MF_INLINE int forward(int mu) const { return mu == 0 ? up[0] : mu == 1 ? up[1] : mu == 2 ? up[2] : up[3]; }
  MF_INLINE int backward(int mu) const { return mu == 0 ? down[0] : mu == 1 ? down[1] : mu == 2 ? down[2] : down[3]; }
};

// A position within one step a direction of where the hops were made.
struct Near {
  const Hops* hops;
  Site site;

  MF_INLINE Near forward(int mu) const { return {hops, {site.i + hops->forward(mu), site.parity ^ 1, site.first}}; }
  MF_INLINE Near backward(int mu) const { return {hops, {site.i + hops->backward(mu), site.parity ^ 1, site.first}}; }
};

// A position that goes anywhere.
struct Far {
  const Lattice* lattice;
  Site site;

  MF_INLINE Far forward(int mu) const { return {lattice, {site.i + hops().forward(mu), site.parity ^ 1, site.first}}; }
  MF_INLINE Far backward(int mu) const {
    return {lattice, {site.i + hops().backward(mu), site.parity ^ 1, site.first}};
  }

 private:
  MF_INLINE Hops hops() const { return Hops(*lattice, coordinates_of(*lattice, site.i, site.parity)); }
};

// A complex number in memory.
template <class T>
struct Element;
template <>
struct Element<double> {
  using type = double2;
  static MF_INLINE double2 of(Complex<double> z) { return make_double2(z.re, z.im); }
};
template <>
struct Element<float> {
  using type = float2;
  static MF_INLINE float2 of(Complex<float> z) { return make_float2(z.re, z.im); }
};

// N complex numbers for each of K things at a site.
template <class T, int N, int K>
struct Blocks {
  using E = typename Element<T>::type;
  E* data;

  MF_INLINE E* at(int place, int k) const {
    return data + (static_cast<i64>(place / block_sites) * K + k) * (N * block_sites) + place % block_sites;
  }
  static MF_INLINE Complex<T> get(const E* at, int n) {
    const E e = at[n * block_sites];
    return {e.x, e.y};
  }
  static MF_INLINE void set(E* at, int n, Complex<T> z) { at[n * block_sites] = Element<T>::of(z); }
};

// The gauge field, stored in T and computed with in As.
template <class T, class As = T>
struct Links {
  Blocks<T, 9, 4> blocks;
  const Lattice& lattice;

  MF_INLINE Links(void* data, const Lattice& l) : blocks{static_cast<typename Element<T>::type*>(data)}, lattice(l) {}
  template <class Position>
  MF_INLINE Matrix3<As> load(const Position& x, int mu) const {
    return load(x.site, mu);
  }
  MF_INLINE Matrix3<As> load(const Site& x, int mu) const {
    const auto* at = blocks.at(x.place(lattice), mu);
    Matrix3<As> m;
    MF_UNROLL
    for (int n = 0; n < 9; ++n) {
      const Complex<T> z = blocks.get(at, n);
      m.e[n / 3][n % 3] = {static_cast<As>(z.re), static_cast<As>(z.im)};
    }
    return m;
  }
  MF_INLINE void store(const Matrix3<T>& m, const Site& x, int mu) const {
    auto* at = blocks.at(x.place(lattice), mu);
    MF_UNROLL
    for (int n = 0; n < 9; ++n) blocks.set(at, n, m.e[n / 3][n % 3]);
  }
};

// Eight reals a link, two in an element.
template <class T>
struct Momenta {
  Blocks<T, 4, 4> blocks;
  const Lattice& lattice;

  MF_INLINE Momenta(void* data, const Lattice& l) : blocks{static_cast<typename Element<T>::type*>(data)}, lattice(l) {}
  MF_INLINE Algebra<T> load(const Site& x, int mu) const {
    const auto* at = blocks.at(x.place(lattice), mu);
    Algebra<T> a;
    MF_UNROLL
    for (int n = 0; n < 4; ++n) {
      const Complex<T> z = blocks.get(at, n);
      a.c[2 * n] = z.re;
      a.c[2 * n + 1] = z.im;
    }
    return a;
  }
  MF_INLINE void store(const Algebra<T>& a, const Site& x, int mu) const {
    auto* at = blocks.at(x.place(lattice), mu);
    MF_UNROLL
    for (int n = 0; n < 4; ++n) blocks.set(at, n, {a.c[2 * n], a.c[2 * n + 1]});
  }
};

// The sum over a block's threads in a fixed order; valid in thread 0.
template <int Threads>
__device__ __forceinline__ double block_sum(double x) {
  __shared__ double of_warp[Threads / 32];
  for (int distance = 16; distance > 0; distance /= 2) x += __shfl_down_sync(0xffffffffu, x, distance);
  __syncthreads();  // the sum before this one has been read
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0)
    for (int warp = 0; warp < Threads / 32; ++warp) sum += of_warp[warp];
  return sum;
}

// Where sums are made: parts of blocks, how many blocks of a chain have brought theirs, and the sums. Those are a row
// of `width` numbers a chain, from `column` on; several rows follow each other where a slot says which one is next.
struct Sums {
  double* partial;
  u32* arrived;
  double* sums;
  const u32* slot;
  int width, column;

  __device__ __forceinline__ double* row(int chain) const {
    return sums + (static_cast<i64>(slot ? *slot : 0) * gridDim.y + chain) * width + column;
  }
};
// Adds up N numbers of all threads of a chain, in a fixed order: the last block to come joins the parts of all, and its
// thread 0 calls then(sums). Once a kernel.
template <int Threads, int N, class Then>
__device__ __forceinline__ void join(const Sums& s, bool live, const double (&mine)[N], Then then) {
  __shared__ bool last;
  double* parts = s.partial + static_cast<i64>(blockIdx.y) * gridDim.x * N;
  for (int n = 0; n < N; ++n) {
    const double part = block_sum<Threads>(live ? mine[n] : 0.0);
    if (threadIdx.x == 0) parts[blockIdx.x * N + n] = part;
  }
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(s.arrived + blockIdx.y, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  double sums[N];
  for (int n = 0; n < N; ++n) {
    double x = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += Threads) x += __ldcg(parts + i * N + n);
    sums[n] = block_sum<Threads>(x);
  }
  if (threadIdx.x == 0) {
    s.arrived[blockIdx.y] = 0;
    then(sums);
  }
}
// The same, with the sums of a chain as the result.
template <int Threads, int N>
__device__ __forceinline__ void sum_up(const Sums& s, bool live, const double (&mine)[N]) {
  join<Threads>(s, live, mine, [&](const double (&sums)[N]) {
    for (int n = 0; n < N; ++n) s.row(blockIdx.y)[n] = sums[n];
  });
}

// Which site a thread has. Past the end of a parity threads do the last site's work and keep it to themselves, so that
// a warp stays together: `live` says whose it is.
struct Share {
  Site site;
  bool live;

  MF_INLINE Share(const Lattice& l, int i, int parity, int chain)
      : site{i < l.half ? i : l.half - 1, parity, chain * 2 * l.padded}, live(i < l.half) {}
};

}  // namespace mf::gpu

// A kernel for the precision that the file is compiled for. So many blocks of it at least are on a multiprocessor at
// once, which bounds the registers of a thread.
#define KERNEL(NAME, THREADS, DOUBLE_BLOCKS, SINGLE_BLOCKS, ...)                                              \
  extern "C" __global__ void __launch_bounds__(THREADS, sizeof(MF_REAL) == 8 ? DOUBLE_BLOCKS : SINGLE_BLOCKS) \
      NAME(const __grid_constant__ Work w) {                                                                  \
    using T = MF_REAL;                                                                                        \
    mf::gpu::__VA_ARGS__(w);                                                                                  \
  }
// One whose blocks, so many, are a cluster (together.cuh); one of them on a multiprocessor.
#define CLUSTER_KERNEL(NAME, BLOCKS, THREADS, ...)                                        \
  extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, 1) \
      NAME(const __grid_constant__ Work w) {                                              \
    using T = MF_REAL;                                                                    \
    mf::gpu::__VA_ARGS__(w);                                                              \
  }
