// Where the numbers of a lattice lie on a GPU, and which thread has which site.
//
// Sites of one parity are numbered as in a file (x fastest), halved; they lie in blocks of 32, the even ones of a
// chain, then its odd ones, then the next chain. The last block of a parity may be part empty. In a block, numbers of
// the same kind of all 32 sites follow each other, so that a warp reads whole lines. A site's number is a sum of one
// term a direction: a step adds a difference, and no tables are needed.
#pragma once

#include "df64.hpp"
#include "su3.hpp"
#include "together.cuh"

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
  // Unsigned: division by what the compiler does not know is half as long.
  const u32 row_length = static_cast<u32>(l.extent[0]) / 2, n_y = l.extent[1], n_z = l.extent[2];
  const u32 row = i / row_length, plane = row / n_y, time = plane / n_z;
  const int column = i - row * row_length, y = row - plane * n_y, z = plane - time * n_z, t = time;
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

// A position that goes anywhere, with its coordinates.
struct Far {
  const Lattice* lattice;
  Site site;
  Coordinates at;

  MF_INLINE Far(const Lattice& l, const Site& s) : lattice(&l), site(s), at(coordinates_of(l, s.i, s.parity)) {}
  MF_INLINE Far forward(int mu) const { return stepped(mu, true); }
  MF_INLINE Far backward(int mu) const { return stepped(mu, false); }

 private:
  MF_INLINE Far stepped(int mu, bool up) const {
    Far to = *this;
    to.site.parity ^= 1;
    int stride = 1;
    MF_UNROLL
    for (int nu = 0; nu < 4; ++nu) {
      const int n = lattice->extent[nu], c = at.x[nu];
      if (nu == mu) {
        const int next = up ? (c == n - 1 ? 0 : c + 1) : (c == 0 ? n - 1 : c - 1);
        to.at.x[nu] = next;
        to.site.i += nu == 0 ? (next >> 1) - (c >> 1) : (next - c) * stride;
      }
      stride *= nu == 0 ? n / 2 : n;
    }
    return to;
  }
};

// A complex number in memory.
template <class T>
struct Element;
template <>
struct Element<double> {
  using type = double2;
  static MF_INLINE double2 of(Complex<double> z) { return make_double2(z.re, z.im); }
  static MF_INLINE Complex<double> from(double2 e) { return {e.x, e.y}; }
};
template <>
struct Element<float> {
  using type = float2;
  static MF_INLINE float2 of(Complex<float> z) { return make_float2(z.re, z.im); }
  static MF_INLINE Complex<float> from(float2 e) { return {e.x, e.y}; }
};
template <>
struct Element<Df64<float>> {
  using type = float4;
  static MF_INLINE float4 of(Complex<Df64<float>> z) { return make_float4(z.re.hi, z.re.lo, z.im.hi, z.im.lo); }
  static MF_INLINE Complex<Df64<float>> from(float4 e) { return {{e.x, e.y}, {e.z, e.w}}; }
};

// N complex numbers for each of K things at a site.
template <class T, int N, int K>
struct Blocks {
  using E = typename Element<T>::type;
  E* data;

  MF_INLINE E* at(int place, int k) const {
    return data + (static_cast<i64>(place / block_sites) * K + k) * (N * block_sites) + place % block_sites;
  }
  static MF_INLINE Complex<T> get(const E* at, int n) { return Element<T>::from(at[n * block_sites]); }
  static MF_INLINE void set(E* at, int n, Complex<T> z) { at[n * block_sites] = Element<T>::of(z); }
};

// N complex numbers a link, stored in T and computed with in As.
template <class T, class As, int N>
struct LinkNumbers {
  Blocks<T, N, 4> blocks;
  const Lattice& lattice;

  MF_INLINE LinkNumbers(void* data, const Lattice& l)
      : blocks{static_cast<typename Element<T>::type*>(data)}, lattice(l) {}

  // take(n, z) gets each of them, give(n) says it.
  template <class Take>
  MF_INLINE void each(const Site& x, int mu, Take take) const {
    const auto* at = blocks.at(x.place(lattice), mu);
    MF_UNROLL
    for (int n = 0; n < N; ++n) {
      const Complex<T> z = blocks.get(at, n);
      take(n, Complex<As>{static_cast<As>(z.re), static_cast<As>(z.im)});
    }
  }
  template <class Give>
  MF_INLINE void set(const Site& x, int mu, Give give) const {
    auto* at = blocks.at(x.place(lattice), mu);
    MF_UNROLL
    for (int n = 0; n < N; ++n) {
      const Complex<As> z = give(n);
      blocks.set(at, n, {static_cast<T>(z.re), static_cast<T>(z.im)});
    }
  }
};

// The gauge field.
template <class T, class As = T>
struct Links : LinkNumbers<T, As, 9> {
  using LinkNumbers<T, As, 9>::LinkNumbers;
  template <class Position>
  MF_INLINE Matrix3<As> load(const Position& x, int mu) const {
    return load(x.site, mu);
  }
  MF_INLINE Matrix3<As> load(const Site& x, int mu) const {
    Matrix3<As> m;
    this->each(x, mu, [&](int n, Complex<As> z) { m.e[n / 3][n % 3] = z; });
    return m;
  }
  MF_INLINE void store(const Matrix3<As>& m, const Site& x, int mu) const {
    this->set(x, mu, [&](int n) { return m.e[n / 3][n % 3]; });
  }
};

// Eight reals a link, two in an element.
template <class T, class As = T>
struct Momenta : LinkNumbers<T, As, 4> {
  using LinkNumbers<T, As, 4>::LinkNumbers;
  MF_INLINE Algebra<As> load(const Site& x, int mu) const {
    Algebra<As> a;
    this->each(x, mu, [&](int n, Complex<As> z) {
      a.c[2 * n] = z.re;
      a.c[2 * n + 1] = z.im;
    });
    return a;
  }
  MF_INLINE void store(const Algebra<As>& a, const Site& x, int mu) const {
    this->set(x, mu, [&](int n) { return Complex<As>{a.c[2 * n], a.c[2 * n + 1]}; });
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
// Whether this block is the last of its chain to come, which then sees what all of them brought. Its threads are told
// in shared memory.
template <class Flag>
__device__ __forceinline__ bool last_to_come(const Sums& s, Flag& told) {
  if (threadIdx.x == 0) {
    gpu_fence();
    const bool last = atomicAdd(s.arrived + blockIdx.y, 1u) == gridDim.x - 1;
    told = last;
    if (last) s.arrived[blockIdx.y] = 0;
    gpu_fence();
  }
  __syncthreads();
  return told != 0;
}
// Adds up N numbers of all threads of a chain, in a fixed order: the last block to come joins the parts of all, and its
// thread 0 calls then(sums). Once a kernel.
template <int Threads, int N, class Then>
__device__ __forceinline__ void join(const Sums& s, bool live, const double (&mine)[N], Then then) {
  double* parts = s.partial + static_cast<i64>(blockIdx.y) * gridDim.x * N;
  for (int n = 0; n < N; ++n) {
    const double part = block_sum<Threads>(live ? mine[n] : 0.0);
    if (threadIdx.x == 0) parts[blockIdx.x * N + n] = part;
  }
  __shared__ bool last;
  if (!last_to_come(s, last)) return;
  double sums[N];
  for (int n = 0; n < N; ++n) {
    double x = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += Threads) x += __ldcg(parts + i * N + n);
    sums[n] = block_sum<Threads>(x);
  }
  if (threadIdx.x == 0) then(sums);
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
