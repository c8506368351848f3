// Conjugate gradients on a GPU, as bindings/staggered_solver.cpp has them, for one or several shifts.
//
// Three ways, by how much room there is; numbers have the same bits in all of them:
//   - a cluster of blocks has everything in its shared memory (8^3x4: two meetings an iteration);
//   - blocks that are all resident have the links of their sites in shared memory and pass vectors through L2;
//   - three passes an iteration over what lies in memory. With two rows a link they move 258 reals an even site.
// Sites are summed by tiles of 32, a warp's, as a binary tree; 32 tiles are a group, again a tree. Up to 256 groups
// are a tree as well, those beyond are added to them in turn. So it does not matter which block has which tile.
#include "colours.cuh"
#include "recurrence.hpp"
#include "together.cuh"

namespace mf::gpu {

// A solve of one chain: the recurrence, and what passes tell each other. The last block of a pass makes the numbers
// that the next one reads; where a solve is not `open`, passes do nothing.
struct Solve {
  Recurrence recurrence;
  ShiftStep steps[max_shifts];
  double alpha, beta, residual2, diagonal, target2;
  double numbers[max_shifts];
  void* first[max_shifts];
  int most, every, since, done, updates;
  SolveState state;

  MF_INLINE bool open() const { return state == running && done < most; }
};

// What a kernel is told; solver.py has the same record.
struct Work {
  Lattice lattice;
  int parity, count;       // of solutions; how many shifts
  int most, every, since;  // iterations; a residual is reported when `since` and those done are so many
  int round;               // alternates from launch to launch
  void* hopping;
  void *residual, *middle, *directions, *spare, *source;
  i64 stride;  // from one direction to the next, in elements
  Sums sums;
  double *slots, *report;  // where resident blocks meet; what the host reads
  i64 report_width;
  Solve* solve;
  double diagonal, target2;
  void* first[max_shifts];     // solutions
  double numbers[max_shifts];  // distances of shifts from the first
};

inline constexpr int pass_threads = 256, pass_warps = pass_threads / 32;
inline constexpr int whole_threads = sizeof(MF_REAL) == 8 ? 128 : 256;
inline constexpr int most_chunks = 8;  // 32 blocks of a launch each

// The sum of a warp's numbers, neighbours first; every lane has it.
__device__ __forceinline__ double tree32(double x) {
  MF_UNROLL
  for (int distance = 1; distance < 32; distance *= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}
__device__ __forceinline__ double tree8(const double* x) {
  return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

// Calls body(tile, i, live) for the tiles of a warp; past the end of a parity a lane does the last site's work.
template <class Body>
__device__ __forceinline__ void over_tiles(const Lattice& l, Body body) {
  const int lane = threadIdx.x % 32, step = gridDim.x * pass_warps;
  for (int tile = blockIdx.x * pass_warps + threadIdx.x / 32; tile < l.padded / 32; tile += step) {
    const int i = tile * 32 + lane;
    body(tile, i < l.half ? i : l.half - 1, i < l.half);
  }
}
template <int N>
__device__ __forceinline__ void put_tile(const Sums& s, const Lattice& l, int tile, bool live,
                                         const double (&mine)[N]) {
  const int tiles = l.padded / 32;
  MF_UNROLL
  for (int n = 0; n < N; ++n) {
    const double sum = tree32(live ? mine[n] : 0.0);
    if (threadIdx.x % 32 == 0) s.partial[(static_cast<i64>(blockIdx.y) * N + n) * tiles + tile] = sum;
  }
}
// When all blocks of a chain have put their tiles, the last one adds them up and its thread 0 calls then(sums).
template <int N, class Then>
__device__ __forceinline__ void join_tiles(const Sums& s, const Lattice& l, Then then) {
  __shared__ bool last;
  __shared__ double of_thread[N][pass_threads];
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(s.arrived + blockIdx.y, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tiles = l.padded / 32, groups = (tiles + 31) / 32;
  for (int n = 0; n < N; ++n) {
    const double* parts = s.partial + (static_cast<i64>(blockIdx.y) * N + n) * tiles;
    double mine = 0;
#pragma unroll 4
    for (int group = warp; group < groups; group += pass_warps) {
      const int tile = group * 32 + lane;
      const double sum = tree32(tile < tiles ? __ldcg(parts + tile) : 0.0);
      if (group / pass_warps % 32 == lane) mine += sum;
    }
    of_thread[n][lane * pass_warps + warp] = mine;
  }
  __syncthreads();
  if (warp != 0) return;
  double sums[N];
  for (int n = 0; n < N; ++n) sums[n] = tree32(tree8(of_thread[n] + lane * pass_warps));
  if (lane == 0) {
    s.arrived[blockIdx.y] = 0;
    then(sums);
  }
}

template <class T>
MF_INLINE Field<T> direction(const Work& w, int chain, int k) {
  return field_of<T>(static_cast<typename Element<T>::type*>(w.directions) + k * w.stride, w.lattice, chain);
}
template <class T>
MF_INLINE double square(const ColourVector<T>& v) {
  return static_cast<double>(real_dot(v, v));
}

// r = p_k = residual, or with keep p <- p + (residual - r).
template <class T, bool Keep>
__device__ __forceinline__ void cg_begin(const Work& w) {
  const int chain = blockIdx.y;
  const Field<T> r = field_of<T>(w.residual, w.lattice, chain), from = field_of<T>(w.source, w.lattice, chain);
  over_tiles(w.lattice, [&](int tile, int i, bool live) {
    const ColourVector<T> z = from.load(i);
    ColourVector<T> p = z;
    if constexpr (Keep) p = mul_add(T(1), direction<T>(w, chain, 0).load(i), difference(z, r.load(i)));
    if (live) {
      r.store(z, i);
      for (int k = 0; k < w.count; ++k) direction<T>(w, chain, k).store(p, i);
    }
    put_tile<2>(w.sums, w.lattice, tile, live, {square(z), square(p)});
  });
  join_tiles<2>(w.sums, w.lattice, [&](const double (&sums)[2]) { w.solve[chain].recurrence.begin(sums[0], sums[1]); });
}

// ---- Three passes.

// Starts a run of iterations.
__device__ __forceinline__ void cg_open(const Work& w) {
  Solve& s = w.solve[blockIdx.y];
  s.most = w.most;
  s.every = w.every;
  s.since = w.since;
  s.done = s.updates = 0;
  s.diagonal = w.diagonal;
  s.target2 = w.target2;
  for (int k = 0; k < w.count; ++k) {
    s.first[k] = w.first[k];
    s.numbers[k] = w.numbers[k];
  }
  s.state = s.recurrence.residual2 <= w.target2 ? converged : running;
}
// Tells the host. Residuals that it wants to see on the way follow.
__device__ __forceinline__ void report_on(const Work& w, int done, double residual2, SolveState state, int updates) {
  double* report = w.report + blockIdx.y * w.report_width;
  report[0] = done;
  report[1] = residual2;
  report[2] = state;
  report[3] = updates;
}
template <class T>
__device__ __forceinline__ void cg_middle(const Work& w) {
  const int chain = blockIdx.y;
  Solve& s = w.solve[chain];
  if (!s.open()) return;
  const Field<T> p = direction<T>(w, chain, 0), y = field_of<T>(w.middle, w.lattice, chain);
  over_tiles(w.lattice, [&](int tile, int i, bool live) {
    const ColourVector<T> z = hop_onto<T>(w.hopping, w.lattice, 1 - w.parity, chain, p, i);
    if (live) y.store(z, i);
    put_tile<1>(w.sums, w.lattice, tile, live, {square(z)});
  });
  join_tiles<1>(w.sums, w.lattice, [&](const double (&sum)[1]) {
    s.alpha = s.recurrence.step(s.diagonal, sum[0]);
    if (!is_finite(s.alpha)) s.state = broken;
  });
}
template <class T>
__device__ __forceinline__ void cg_residual(const Work& w) {
  const int chain = blockIdx.y;
  Solve& s = w.solve[chain];
  if (!s.open()) return;
  const Field<T> r = field_of<T>(w.residual, w.lattice, chain), y = field_of<T>(w.middle, w.lattice, chain);
  const T alpha = static_cast<T>(s.alpha), diagonal = static_cast<T>(s.diagonal);
  over_tiles(w.lattice, [&](int tile, int i, bool live) {
    const ColourVector<T> back = hop_onto<T>(w.hopping, w.lattice, w.parity, chain, y, i);
    const ColourVector<T> z = mf::cg_residual(alpha, diagonal, direction<T>(w, chain, 0).load(i), back, r.load(i));
    if (live) r.store(z, i);
    put_tile<1>(w.sums, w.lattice, tile, live, {square(z)});
  });
  join_tiles<1>(w.sums, w.lattice, [&](const double (&sum)[1]) {
    s.residual2 = sum[0];
    s.beta = sum[0] / s.recurrence.residual2;
    for (int k = 0; k < w.count; ++k)
      if (s.recurrence.active[k]) {
        s.steps[k] = s.recurrence.shift_step(k, s.numbers[k], s.alpha, s.beta);
        s.updates += 1;
      }
  });
}
template <class T>
__device__ __forceinline__ void cg_directions(const Work& w) {
  const int chain = blockIdx.y;
  Solve& s = w.solve[chain];
  if (!s.open()) return;
  over_tiles(w.lattice, [&](int tile, int i, bool live) {
    const ColourVector<T> r = field_of<T>(w.residual, w.lattice, chain).load(i);
    double direction2 = 0;
    for (int k = 0; k < w.count; ++k) {
      if (!s.recurrence.active[k]) continue;
      const ShiftStep step = s.steps[k];
      const Field<T> x = field_of<T>(s.first[k], w.lattice, chain), p = direction<T>(w, chain, k);
      const ColourVector<T> old = p.load(i);
      const ColourVector<T> z = cg_direction(static_cast<T>(step.p_factor), old, static_cast<T>(step.r_factor), r);
      if (live) {
        x.store(mul_add(static_cast<T>(step.x_step), old, x.load(i)), i);
        p.store(z, i);
      }
      if (k == 0) direction2 = square(z);
    }
    put_tile<1>(w.sums, w.lattice, tile, live, {direction2});
  });
  join_tiles<1>(w.sums, w.lattice, [&](const double (&sum)[1]) {
    s.state = s.recurrence.finish(s.alpha, s.beta, s.residual2, sum[0], s.target2, w.count);
    s.done += 1;
    if ((s.since + s.done) % s.every == 0)
      w.report[chain * w.report_width + 3 + (s.since + s.done) / s.every] = s.residual2;
  });
}
__device__ __forceinline__ void cg_report(const Work& w) {
  const Solve& s = w.solve[blockIdx.y];
  report_on(w, s.done, s.recurrence.residual2, s.state, s.updates);
}

// ---- A whole run of iterations in one launch. A thread has a site of both parities, a warp a tile of each; its
// sixteen links lie in shared memory, in the order it reads them. r, p and y are vectors that others read; p is double,
// since whoever needs the new p = r + beta p of a neighbour makes it from r and the old one: that spares a meeting.
enum Vector { residual_vector = 0, middle_vector = 3 };  // 1 and 2: the directions

struct Two {
  double a, b;
};

template <class T>
struct OwnLinks {
  using W = typename Word<T>::type;
  static constexpr int bytes_of_warp = 16 * Word<T>::of_link * 32 * static_cast<int>(sizeof(W));
  W* mine;

  __device__ __forceinline__ OwnLinks()
      : mine(reinterpret_cast<W*>(dynamic_shared() + (threadIdx.x / 32) * bytes_of_warp) + threadIdx.x % 32) {}
  __device__ __forceinline__ LinkWords<T> load(int n) const {
    LinkWords<T> words;
    MF_UNROLL
    for (int k = 0; k < Word<T>::of_link; ++k) words.word[k] = mine[(n * Word<T>::of_link + k) * 32];
    return words;
  }
  __device__ __forceinline__ void store(const LinkWords<T>& words, int n) const {
    MF_UNROLL
    for (int k = 0; k < Word<T>::of_link; ++k) mine[(n * Word<T>::of_link + k) * 32] = words.word[k];
  }
};

// Blocks of a cluster: vectors lie in shared memory as well, and sums of tiles are written to every block.
#if defined(MF_CUDA_ON_HOST) || __CUDA_ARCH__ >= 900
template <class T>
struct Cluster {
  using E = typename Element<T>::type;
  using Place = FarPlace;
  static constexpr int bytes_of_warp = 4 * 3 * 32 * static_cast<int>(sizeof(E));
  static constexpr int most_tiles = cluster_blocks * whole_threads / 32;
  unsigned char* vectors;
  double* parts;  // [turn][value][tile]
  int warps, turn = 0;

  __device__ __forceinline__ explicit Cluster(const Work&) : warps(blockDim.x / 32) {
    vectors = dynamic_shared() + warps * OwnLinks<T>::bytes_of_warp;
    parts = reinterpret_cast<double*>(vectors + warps * bytes_of_warp);
    for (int n = threadIdx.x; n < 4 * most_tiles; n += blockDim.x) parts[n] = 0;
  }
  __device__ __forceinline__ E* here(int warp, int lane) const {
    return reinterpret_cast<E*>(vectors + warp * bytes_of_warp) + lane;
  }
  __device__ __forceinline__ Place place(int i) const {
    const int tile = i / 32;
    return far_place(here(tile % warps, i % 32), tile / warps);
  }
  __device__ __forceinline__ ColourVector<T> load(int vector, Place at) const {
    ColourVector<T> v;
    MF_UNROLL
    for (int c = 0; c < 3; ++c) {
      E e;
      far_load(at + static_cast<Place>((3 * vector + c) * 32 * sizeof(E)), e);
      v.c[c] = {e.x, e.y};
    }
    return v;
  }
  __device__ __forceinline__ void keep(int vector, const ColourVector<T>& v, int) const {
    E* to = here(threadIdx.x / 32, threadIdx.x % 32);
    MF_UNROLL
    for (int c = 0; c < 3; ++c) to[(3 * vector + c) * 32] = Element<T>::of(v.c[c]);
  }
  __device__ __forceinline__ void ready() const { cluster_meet(); }
  template <bool Both>
  __device__ __forceinline__ Two sum(double a, double b) {
    const int lane = threadIdx.x % 32, tile = blockIdx.x * warps + threadIdx.x / 32;
    double* of_turn = parts + turn * 2 * most_tiles;
    a = tree32(a);
    if constexpr (Both) b = tree32(b);
    if (lane < (Both ? 2 : 1) * cluster_blocks) {
      const int value = lane / cluster_blocks;
      far_store(far_place(of_turn + value * most_tiles + tile, lane % cluster_blocks), value ? b : a);
    }
    cluster_meet();
    Two total{0, 0};
    for (int group = 0; group * 32 < cluster_blocks * warps; ++group) {
      total.a += tree32(of_turn[group * 32 + lane]);
      if constexpr (Both) total.b += tree32(of_turn[most_tiles + group * 32 + lane]);
    }
    turn ^= 1;
    return total;
  }
};
#endif

// Resident blocks: vectors lie in memory, and a block's sums in slots that the others watch. A slot is empty until its
// block comes to the meeting; it is emptied at the next one, when all have read it, for the one after that.
template <class T>
struct Resident {
  using E = typename Element<T>::type;
  using Place = int;
  static constexpr u64 empty = 0xfff8'5eed'0000'0001;  // a NaN that no sum gives
  E *residual, *directions, *spare, *middle;
  double *slots, *of_warp, *of_chunk;  // slots: [turn 3][value 2][block]
  int warps, turn = 0, first;

  __device__ __forceinline__ explicit Resident(const Work& w)
      : residual(static_cast<E*>(w.residual)),
        directions(static_cast<E*>(w.directions)),
        spare(static_cast<E*>(w.spare)),
        middle(static_cast<E*>(w.middle)),
        warps(blockDim.x / 32),
        first(blockIdx.y * w.lattice.padded) {
    of_warp = reinterpret_cast<double*>(dynamic_shared() + warps * OwnLinks<T>::bytes_of_warp);  // [value][warp]
    of_chunk = of_warp + 2 * whole_threads / 32;                                                 // [value][chunk]
    const int all = 6 * gridDim.x;
    double* of_chain = w.slots + static_cast<i64>(blockIdx.y) * 2 * all;
    slots = of_chain + w.round * all;
    if (threadIdx.x < 6)  // of the launch before
      of_chain[(1 - w.round) * all + threadIdx.x * gridDim.x + blockIdx.x] = bit_cast<double>(empty);
    if (threadIdx.x < 2 * most_chunks) of_chunk[threadIdx.x] = 0;
  }
  __device__ __forceinline__ E* base(int vector) const {
    return vector == residual_vector ? residual : vector == 1 ? directions : vector == 2 ? spare : middle;
  }
  __device__ __forceinline__ Place place(int i) const {
    const int at = first + i;
    return at / block_sites * (3 * block_sites) + at % block_sites;
  }
  __device__ __forceinline__ ColourVector<T> load(int vector, Place at) const {
    const E* from = base(vector) + at;
    ColourVector<T> v;
    MF_UNROLL
    for (int c = 0; c < 3; ++c) {
      const E e = __ldcg(from + c * block_sites);
      v.c[c] = {e.x, e.y};
    }
    return v;
  }
  __device__ __forceinline__ void keep(int vector, const ColourVector<T>& v, int i) const {
    E* to = base(vector) + place(i);
    MF_UNROLL
    for (int c = 0; c < 3; ++c) to[c * block_sites] = Element<T>::of(v.c[c]);
  }
  __device__ __forceinline__ void ready() const { __syncthreads(); }
  __device__ __forceinline__ double wait_for(const double* slot) const {
    double x;
    do x = look_at(slot);
    while (bit_cast<u64>(x) == empty);
    return x;
  }
  template <bool Both>
  __device__ __forceinline__ Two sum(double a, double b) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, blocks = gridDim.x;
    constexpr int values = Both ? 2 : 1;
    double* of_turn = slots + turn * 2 * blocks;
    a = tree32(a);
    if constexpr (Both) b = tree32(b);
    if (lane == 0) {
      of_warp[warp] = a;
      if constexpr (Both) of_warp[whole_threads / 32 + warp] = b;
    }
    __syncthreads();
    if (threadIdx.x < values) {
      const double* parts = of_warp + threadIdx.x * (whole_threads / 32);
      double mine = 0;
      if (warps == 1) mine = parts[0];
      if (warps == 2) mine = parts[0] + parts[1];
      if (warps >= 4) mine = (parts[0] + parts[1]) + (parts[2] + parts[3]);
      if (warps == 8) mine += (parts[4] + parts[5]) + (parts[6] + parts[7]);
      gpu_fence();
      reinterpret_cast<volatile double*>(of_turn)[threadIdx.x * blocks + blockIdx.x] = mine;
    }
    for (int chunk = warp; chunk * 32 < blocks; chunk += warps) {
      const int block = chunk * 32 + lane;
      const bool there = block < blocks;
      const double of_a = tree32(there ? wait_for(of_turn + block) : 0.0);
      if (lane == 0) of_chunk[chunk] = of_a;
      if constexpr (Both) {
        const double of_b = tree32(there ? wait_for(of_turn + blocks + block) : 0.0);
        if (lane == 0) of_chunk[most_chunks + chunk] = of_b;
      }
    }
    gpu_fence();
    __syncthreads();
    const int before = turn == 0 ? 2 : turn - 1;
    if (threadIdx.x < 2) slots[(before * 2 + threadIdx.x) * blocks + blockIdx.x] = bit_cast<double>(empty);
    turn = turn == 2 ? 0 : turn + 1;
    return {tree8(of_chunk), Both ? tree8(of_chunk + most_chunks) : 0.0};
  }
};

// The shifts `base` + `first` and three more, those whose bit is set; lane k of a warp has the step of shift `base` +
// k.
template <class T>
__device__ __forceinline__ void advance_four(const Work& w, int chain, int base, int first, u32 bits,
                                             const ShiftStep& mine, const ColourVector<T>& r, int i, bool live) {
  ColourVector<T> x[4], p[4];
  MF_UNROLL
  for (int n = 0; n < 4; ++n)
    if (bits >> (first + n) & 1) {
      x[n] = field_of<T>(w.first[base + first + n], w.lattice, chain).load(i);
      p[n] = direction<T>(w, chain, base + first + n).load(i);
    }
  MF_UNROLL
  for (int n = 0; n < 4; ++n) {
    const ShiftStep step{__shfl_sync(0xffffffffu, mine.x_step, first + n),
                         __shfl_sync(0xffffffffu, mine.r_factor, first + n),
                         __shfl_sync(0xffffffffu, mine.p_factor, first + n)};
    if ((bits >> (first + n) & 1) == 0 || !live) continue;
    const int k = base + first + n;
    field_of<T>(w.first[k], w.lattice, chain).store(mul_add(static_cast<T>(step.x_step), p[n], x[n]), i);
    direction<T>(w, chain, k)
        .store(cg_direction(static_cast<T>(step.p_factor), p[n], static_cast<T>(step.r_factor), r), i);
  }
}

// H at a thread's site: neighbours are all asked for before the first is needed.
template <class T, class Place, class Neighbour>
__device__ __forceinline__ ColourVector<T> hop_own(u32 signs, const Place (&around)[8], const OwnLinks<T>& own,
                                                   int first, Neighbour neighbour) {
  ColourVector<T> psi[8];
  MF_UNROLL
  for (int k = 0; k < 8; ++k) psi[k] = neighbour(around[k]);
  return hopped<T>(signs, [&](int k) { return psi[k]; }, [&](int k) { return own.load(first + k); });
}

template <class T, class Team, bool Several>
__device__ __forceinline__ void cg_whole(const Work& w) {
  const Lattice& l = w.lattice;
  const int chain = blockIdx.y, lane = threadIdx.x % 32;
  const int wanted = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * 32 + lane;
  const bool live = wanted < l.half, reports = blockIdx.x == 0 && threadIdx.x == 0;
  const int i = live ? wanted : l.half - 1;
  Solve& s = w.solve[chain];
  double residual2 = s.recurrence.residual2, alpha_before = s.recurrence.alpha, beta_before = s.recurrence.beta;

  // Where neighbours are, and links, of both passes: onto the other parity, and back.
  Team team(w);
  const OwnLinks<T> own;
  typename Team::Place around[2][8];
  u32 signs[2];
  MF_UNROLL
  for (int pass = 0; pass < 2; ++pass) {
    const int parity = pass == 0 ? 1 - w.parity : w.parity;
    const Coordinates c = coordinates_of(l, i, parity);
    const Hops hops(l, c);
    const Hopping<T> links{static_cast<typename Word<T>::type*>(w.hopping)};
    const int here = (2 * chain + parity) * l.padded + i, there = (2 * chain + 1 - parity) * l.padded + i;
    signs[pass] = signs_at(l, c);
    MF_UNROLL
    for (int mu = 0; mu < 4; ++mu) {
      around[pass][mu] = team.place(i + hops.up[mu]);
      around[pass][4 + mu] = team.place(i + hops.down[mu]);
      own.store(links.load(here, mu), 8 * pass + mu);
      own.store(links.load(there + hops.down[mu], mu), 8 * pass + 4 + mu);
    }
  }
  const Field<T> x_field = field_of<T>(w.first[0], l, chain), p_field = direction<T>(w, chain, 0),
                 r_field = field_of<T>(w.residual, l, chain);
  ColourVector<T> x = x_field.load(i), p = p_field.load(i), r = r_field.load(i);
  int old = 1;
  if (live) {
    team.keep(residual_vector, r, i);
    team.keep(old, p, i);
  }
  // A lane has the shifts of its number and of 32 more.
  double ratio[2], zeta[2];
  bool active[2];
  if constexpr (Several) {
    MF_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int k = half * 32 + lane;
      ratio[half] = s.recurrence.ratio[k];
      zeta[half] = s.recurrence.zeta[k];
      active[half] = k > 0 && k < w.count && s.recurrence.active[k];
    }
  }
  team.ready();

  // p is r_factor r + p_factor p of what is kept.
  double r_factor = 0, p_factor = 1;
  int done = 0, updates = 0, until_check = w.every - w.since;
  double* checked = w.report + chain * w.report_width + 4;
  SolveState state = residual2 <= w.target2 ? converged : running;
  const T diagonal = static_cast<T>(w.diagonal);
  while (done < w.most && state == running) {
    const T of_r = static_cast<T>(r_factor), of_p = static_cast<T>(p_factor);
    const ColourVector<T> y = hop_own<T>(signs[0], around[0], own, 0, [&](typename Team::Place at) {
      return cg_direction(of_p, team.load(old, at), of_r, team.load(residual_vector, at));
    });
    p = cg_direction(of_p, p, of_r, r);
    old = 3 - old;
    if (live) {
      team.keep(old, p, i);
      team.keep(middle_vector, y, i);
    }
    const Two sums = team.template sum<true>(live ? square(y) : 0.0, live ? square(p) : 0.0);
    r_factor = 0;
    p_factor = 1;
    const double alpha = step_length(residual2, sums.b, w.diagonal, sums.a);
    if (!is_finite(alpha)) {
      state = broken;
      break;
    }
    const ColourVector<T> back =
        hop_own<T>(signs[1], around[1], own, 8, [&](typename Team::Place at) { return team.load(middle_vector, at); });
    r = mf::cg_residual(static_cast<T>(alpha), diagonal, p, back, r);
    if (live) team.keep(residual_vector, r, i);
    x = mul_add(static_cast<T>(alpha), p, x);
    const double new_residual2 = team.template sum<false>(live ? square(r) : 0.0, 0.0).a;
    const double beta = new_residual2 / residual2;
    residual2 = new_residual2;
    updates += 1;
    if constexpr (Several) {
      MF_UNROLL
      for (int half = 0; half < 2; ++half) {
        ShiftStep mine{0, 0, 0};
        if (active[half])
          mine = next_shift_step(ratio[half], zeta[half], w.numbers[half * 32 + lane], alpha, beta, alpha_before,
                                 beta_before);
        u32 left = __ballot_sync(0xffffffffu, active[half]);
        updates += __popc(left);
        active[half] = active[half] && still_active(zeta[half], residual2, w.target2);
        // Four at a time, so that their numbers are on the way together.
        for (int first = 0; first < 32 && left >> first; first += 4)
          advance_four(w, chain, half * 32, first, left, mine, r, i, live);
      }
    }
    alpha_before = alpha;
    beta_before = beta;
    r_factor = 1;
    p_factor = beta;
    state = state_of(residual2, w.target2);
    done += 1;
    if (--until_check == 0) {
      until_check = w.every;
      if (reports) *checked = residual2;
      ++checked;
    }
  }
  p = cg_direction(static_cast<T>(p_factor), p, static_cast<T>(r_factor), r);
  const double direction2 = team.template sum<false>(live ? square(p) : 0.0, 0.0).a;
  if (live) {
    x_field.store(x, i);
    p_field.store(p, i);
    r_field.store(r, i);
  }
  if (Several && blockIdx.x == 0 && threadIdx.x < 32) {
    MF_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int k = half * 32 + lane;
      if (k == 0 || k >= w.count) continue;
      s.recurrence.ratio[k] = ratio[half];
      s.recurrence.zeta[k] = zeta[half];
      s.recurrence.active[k] = active[half];
    }
  }
  if (!reports) return;
  s.recurrence.residual2 = residual2;
  s.recurrence.direction2 = direction2;
  s.recurrence.alpha = alpha_before;
  s.recurrence.beta = beta_before;
  report_on(w, done, residual2, state, updates);
}

KERNEL(cg_begin_new, pass_threads, 1, 1, cg_begin<T, false>)
KERNEL(cg_begin_kept, pass_threads, 1, 1, cg_begin<T, true>)
KERNEL(cg_start, 1, 1, 1, cg_open)
KERNEL(cg_pass_1, pass_threads, 2, 4, cg_middle<T>)
KERNEL(cg_pass_2, pass_threads, 2, 4, cg_residual<T>)
KERNEL(cg_pass_3, pass_threads, 2, 4, cg_directions<T>)
KERNEL(cg_result, 1, 1, 1, cg_report)
KERNEL(cg_resident, whole_threads, 1, 1, cg_whole<T, Resident<T>, false>)
KERNEL(cg_resident_shifts, whole_threads, 1, 1, cg_whole<T, Resident<T>, true>)
#if defined(MF_CUDA_ON_HOST) || __CUDA_ARCH__ >= 900
CLUSTER_KERNEL(cg_cluster, cluster_blocks, whole_threads, cg_whole<T, Cluster<T>, false>)
CLUSTER_KERNEL(cg_cluster_shifts, cluster_blocks, whole_threads, cg_whole<T, Cluster<T>, true>)
#endif

}  // namespace mf::gpu
