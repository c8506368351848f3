// Conjugate gradients on a GPU, as bindings/staggered_solver.cpp has them, for one or several shifts: a run of
// iterations is one launch. Three ways, by how much room there is; numbers have the same bits in all of them:
//   - a cluster of blocks has everything in its shared memory (8^3x4);
//   - resident blocks have the links of their sites in shared memory and pass vectors through L2 (16^3x8);
//   - as many blocks as there is room for go over memory, three times an iteration: 258 reals an even site.
// Sites are summed by tiles of 32, a warp's, as a binary tree; 32 tiles are a group, again a tree. Up to 256 groups
// are a tree as well, those beyond are added to them in turn. So it does not matter which block has which tile.
#include "colours.cuh"
#include "recurrence.hpp"
#include "together.cuh"

namespace mf::gpu {

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
  double *slots, *report;  // where blocks meet; what the host reads
  i64 report_width;
  Recurrence* solve;  // one a chain
  double diagonal, target2;
  void* first[max_shifts];     // solutions
  double numbers[max_shifts];  // distances of shifts from the first
};

inline constexpr int stream_threads = 256, stream_warps = stream_threads / 32;
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

template <class T>
MF_INLINE Field<T> direction(const Work& w, int chain, int k) {
  return field_of<T>(static_cast<typename Element<T>::type*>(w.directions) + k * w.stride, w.lattice, chain);
}
template <class T>
MF_INLINE double square(const ColourVector<T>& v) {
  return static_cast<double>(real_dot(v, v));
}

// The numbers of a run of iterations. Every warp has them all, a lane the shifts of its number and of 32 more.
template <bool Several>
struct Run {
  const Work& w;
  double residual2, alpha, beta;
  double ratio[2], zeta[2];
  bool active[2];
  ShiftStep mine[2];  // of this iteration, and which lanes have one
  u32 moving[2];
  int done = 0, updates = 0, until_check;
  double* checked;
  SolveState state;

  __device__ __forceinline__ explicit Run(const Work& w)
      : w(w), until_check(w.every - w.since), checked(w.report + blockIdx.y * w.report_width + 4) {
    const Recurrence& s = w.solve[blockIdx.y];
    residual2 = s.residual2;
    alpha = s.alpha;
    beta = s.beta;
    if constexpr (Several) {
      MF_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int k = half * 32 + threadIdx.x % 32;
        ratio[half] = s.ratio[k];
        zeta[half] = s.zeta[k];
        active[half] = k > 0 && k < w.count && s.active[k];
      }
    }
    state = residual2 <= w.target2 ? converged : running;
  }
  __device__ __forceinline__ bool open() const { return done < w.most && state == running; }
  static __device__ __forceinline__ bool reports() { return blockIdx.x == 0 && threadIdx.x == 0; }

  // The length of a step, given |H p|^2 and |p|^2. False: there is none.
  __device__ __forceinline__ bool can_step(double middle2, double direction2, double& length) {
    length = step_length(residual2, direction2, w.diagonal, middle2);
    if (!is_finite(length)) state = broken;
    return is_finite(length);
  }
  // The end of an iteration, as far as numbers go.
  __device__ __forceinline__ void turn(double length, double new_residual2) {
    const double new_beta = new_residual2 / residual2;
    residual2 = new_residual2;
    updates += 1;
    if constexpr (Several) {
      MF_UNROLL
      for (int half = 0; half < 2; ++half) {
        if (active[half])
          mine[half] = next_shift_step(ratio[half], zeta[half], w.numbers[half * 32 + threadIdx.x % 32], length,
                                       new_beta, alpha, beta);
        moving[half] = __ballot_sync(0xffffffffu, active[half]);
        updates += __popc(moving[half]);
        active[half] = active[half] && still_active(zeta[half], residual2, w.target2);
      }
    }
    alpha = length;
    beta = new_beta;
    state = state_of(residual2, w.target2);
    done += 1;
    if (--until_check > 0) return;
    until_check = w.every;
    if (reports()) *checked = residual2;
    ++checked;
  }
  // Tells the host, and whoever goes on.
  __device__ __forceinline__ void save(double direction2) const {
    Recurrence& s = w.solve[blockIdx.y];
    if (Several && blockIdx.x == 0 && threadIdx.x < 32) {
      MF_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int k = half * 32 + threadIdx.x;
        if (k == 0 || k >= w.count) continue;
        s.ratio[k] = ratio[half];
        s.zeta[k] = zeta[half];
        s.active[k] = active[half];
      }
    }
    if (!reports()) return;
    s.residual2 = residual2;
    s.direction2 = direction2;
    s.alpha = alpha;
    s.beta = beta;
    double* report = w.report + blockIdx.y * w.report_width;
    report[0] = done;
    report[1] = residual2;
    report[2] = state;
    report[3] = updates;
  }
};

// x <- x + step p, p <- r_factor r + p_factor p at a site, for shifts beyond the first. So many at a time are on their
// way together.
template <int Ahead, class T>
__device__ __forceinline__ void move_shifts(const Run<true>& run, const ColourVector<T>& r, int i, bool live) {
  const Work& w = run.w;
  const int chain = blockIdx.y;
  MF_UNROLL
  for (int half = 0; half < 2; ++half) {
    const u32 bits = run.moving[half];
    for (int first = 0; first < 32 && bits >> first; first += Ahead) {
      ColourVector<T> x[Ahead], p[Ahead];
      MF_UNROLL
      for (int n = 0; n < Ahead; ++n)
        if (bits >> (first + n) & 1) {
          x[n] = field_of<T>(w.first[half * 32 + first + n], w.lattice, chain).load(i);
          p[n] = direction<T>(w, chain, half * 32 + first + n).load(i);
        }
      MF_UNROLL
      for (int n = 0; n < Ahead; ++n) {
        const ShiftStep& mine = run.mine[half];
        const ShiftStep step{__shfl_sync(0xffffffffu, mine.x_step, first + n),
                             __shfl_sync(0xffffffffu, mine.r_factor, first + n),
                             __shfl_sync(0xffffffffu, mine.p_factor, first + n)};
        if ((bits >> (first + n) & 1) == 0 || !live) continue;
        const int k = half * 32 + first + n;
        field_of<T>(w.first[k], w.lattice, chain).store(mul_add(static_cast<T>(step.x_step), p[n], x[n]), i);
        direction<T>(w, chain, k)
            .store(cg_direction(static_cast<T>(step.p_factor), p[n], static_cast<T>(step.r_factor), r), i);
      }
    }
  }
}

// ---- Lattices that fit into shared memory. A thread has a site of both parities, a warp a tile of each; its
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

// Vectors of a block in its shared memory, after its links: [warp][vector][component][lane].
template <class T>
struct OwnVectors {
  using E = typename Element<T>::type;
  static constexpr int of_warp = 4 * 3 * 32, bytes_of_warp = of_warp * static_cast<int>(sizeof(E));
  E* data;

  __device__ __forceinline__ explicit OwnVectors(int warps)
      : data(reinterpret_cast<E*>(dynamic_shared() + warps * OwnLinks<T>::bytes_of_warp)) {}
  __device__ __forceinline__ E* at(int warp, int lane) const { return data + warp * of_warp + lane; }
  __device__ __forceinline__ void keep(int vector, const ColourVector<T>& v) const {
    E* to = at(threadIdx.x / 32, threadIdx.x % 32) + 3 * vector * 32;
    MF_UNROLL
    for (int c = 0; c < 3; ++c) to[c * 32] = Element<T>::of(v.c[c]);
  }
};

// Blocks of a cluster: neighbours' vectors are read where they lie, and sums of tiles are sent to every block.
#if defined(MF_CUDA_ON_HOST) || __CUDA_ARCH__ >= 900
template <class T>
struct Cluster {
  using E = typename Element<T>::type;
  using Place = FarPlace;
  static constexpr int most_tiles = cluster_blocks * whole_threads / 32;
  int warps;
  OwnVectors<T> own;
  double* parts;  // [turn][value][tile]
  u64* mail;      // [turn]
  int turn = 0;
  u32 phase = 0;

  __device__ __forceinline__ explicit Cluster(const Work&)
      : warps(blockDim.x / 32),
        own(warps),
        parts(reinterpret_cast<double*>(own.at(warps, 0))),
        mail(reinterpret_cast<u64*>(parts + 4 * most_tiles)) {
    for (int n = threadIdx.x; n < 4 * most_tiles; n += blockDim.x) parts[n] = 0;
    if (threadIdx.x < 2) open_mailbox(mail + threadIdx.x);
  }
  __device__ __forceinline__ Place place(int i) const {
    const int tile = i / 32, rank = tile / warps;
    const E* at = own.at(tile % warps, i % 32);
    return rank == static_cast<int>(blockIdx.x) ? near_place(at) : far_place(at, rank);
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
  __device__ __forceinline__ void keep(int vector, const ColourVector<T>& v, int) const { own.keep(vector, v); }
  __device__ __forceinline__ void ready() const { cluster_meet(); }
  // Everyone waits for the sums of all tiles: that is a meeting, too.
  template <bool Both>
  __device__ __forceinline__ Two sum(double a, double b) {
    constexpr int values = Both ? 2 : 1;
    const int lane = threadIdx.x % 32, tile = blockIdx.x * warps + threadIdx.x / 32;
    double* of_turn = parts + turn * 2 * most_tiles;
    if (threadIdx.x == 0) expect_bytes(mail + turn, cluster_blocks * warps * values * static_cast<int>(sizeof(double)));
    a = tree32(a);
    if constexpr (Both) b = tree32(b);
    block_fence();  // the warp's vectors are there
    __syncwarp();
    if (lane < values * cluster_blocks) {
      const int value = lane / cluster_blocks;
      far_send(of_turn + value * most_tiles + tile, mail + turn, lane % cluster_blocks, value ? b : a);
    }
    wait_for_mail(mail + turn, phase);
    Two total{0, 0};
    MF_UNROLL
    for (int group = 0; group < most_tiles / 32; ++group) {
      if (group > 0 && group * 32 >= cluster_blocks * warps) break;
      total.a += tree32(of_turn[group * 32 + lane]);
      if constexpr (Both) total.b += tree32(of_turn[most_tiles + group * 32 + lane]);
    }
    phase ^= static_cast<u32>(turn);
    turn ^= 1;
    return total;
  }
};
#endif

// Resident blocks: vectors lie in memory, and for sites of the same block in shared memory too. A block's sums are in
// slots that the others watch, each in one of several copies, so that not all look at the same line. A slot is empty
// until its block comes to the meeting; it is emptied at the next one, when all have read it, for the one after that.
inline constexpr u64 empty_slot = 0xfff8'5eed'0000'0001;  // a NaN that no sum gives
inline constexpr int slot_copies = 16;

template <class T>
struct Resident {
  using E = typename Element<T>::type;
  using Place = int;  // in memory, or ~ the place in shared memory
  E *residual, *directions, *spare, *middle;
  int warps;
  OwnVectors<T> own;
  double *of_warp, *of_chunk, *slots;  // [value][warp], [value][chunk], [turn 3][value 2][copy][block]
  int turn = 0, first;

  __device__ __forceinline__ explicit Resident(const Work& w)
      : residual(static_cast<E*>(w.residual)),
        directions(static_cast<E*>(w.directions)),
        spare(static_cast<E*>(w.spare)),
        middle(static_cast<E*>(w.middle)),
        warps(blockDim.x / 32),
        own(warps),
        of_warp(reinterpret_cast<double*>(own.at(warps, 0))),
        of_chunk(of_warp + 2 * whole_threads / 32),
        first(blockIdx.y * w.lattice.padded) {
    const int all = 3 * 2 * slot_copies * gridDim.x;
    double* of_chain = w.slots + static_cast<i64>(blockIdx.y) * 2 * all;
    slots = of_chain + (1 - w.round) * all;  // of the launch before
    if (threadIdx.x < 32)
      for (int n = 0; n < 3; ++n)
        *slot(n, threadIdx.x / slot_copies, threadIdx.x % slot_copies, blockIdx.x) = nothing();
    slots = of_chain + w.round * all;
    if (threadIdx.x < 2 * most_chunks) of_chunk[threadIdx.x] = 0;
  }
  static __device__ __forceinline__ double nothing() { return bit_cast<double>(empty_slot); }
  __device__ __forceinline__ double* slot(int of_turn, int value, int copy, int block) const {
    return slots + ((of_turn * 2 + value) * slot_copies + copy) * static_cast<int>(gridDim.x) + block;
  }
  __device__ __forceinline__ E* base(int vector) const {
    return vector == residual_vector ? residual : vector == 1 ? directions : vector == 2 ? spare : middle;
  }
  __device__ __forceinline__ Place in_memory(int i) const {
    const int at = first + i;
    return at / block_sites * (3 * block_sites) + at % block_sites;
  }
  __device__ __forceinline__ Place place(int i) const {
    const int tile = i / 32;
    if (tile / warps != static_cast<int>(blockIdx.x)) return in_memory(i);
    return ~((tile % warps) * OwnVectors<T>::of_warp + i % 32);
  }
  __device__ __forceinline__ ColourVector<T> load(int vector, Place at) const {
    const E* from = at < 0 ? own.data + 3 * vector * 32 + ~at : base(vector) + at;
    ColourVector<T> v;
    MF_UNROLL
    for (int c = 0; c < 3; ++c) {
      const E e = strong_load(from + c * 32);
      v.c[c] = {e.x, e.y};
    }
    return v;
  }
  __device__ __forceinline__ void keep(int vector, const ColourVector<T>& v, int i) const {
    own.keep(vector, v);
    E* to = base(vector) + in_memory(i);
    MF_UNROLL
    for (int c = 0; c < 3; ++c) to[c * block_sites] = Element<T>::of(v.c[c]);
  }
  __device__ __forceinline__ void ready() const { __syncthreads(); }
  template <bool Both>
  __device__ __forceinline__ Two sum(double a, double b) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, blocks = gridDim.x;
    const int value = lane / slot_copies, copy = lane % slot_copies, watched = blockIdx.x % slot_copies;
    a = tree32(a);
    if constexpr (Both) b = tree32(b);
    if (lane == 0) {
      of_warp[warp] = a;
      if constexpr (Both) of_warp[whole_threads / 32 + warp] = b;
    }
    __syncthreads();
    if (warp == 0) {
      const double* parts = of_warp + value * (whole_threads / 32);
      double mine = 0;
      if (warps == 1) mine = parts[0];
      if (warps == 2) mine = parts[0] + parts[1];
      if (warps >= 4) mine = (parts[0] + parts[1]) + (parts[2] + parts[3]);
      if (warps == 8) mine += (parts[4] + parts[5]) + (parts[6] + parts[7]);
      gpu_fence();
      if (Both || value == 0) *static_cast<volatile double*>(slot(turn, value, copy, blockIdx.x)) = mine;
    }
    for (int chunk = warp; chunk * 32 < blocks; chunk += warps) {
      const int block = chunk * 32 + lane;
      double x = 0, y = 0;
      if (block < blocks) do {
          x = look_at(slot(turn, 0, watched, block));
          if constexpr (Both) y = look_at(slot(turn, 1, watched, block));
        } while (bit_cast<u64>(x) == empty_slot || bit_cast<u64>(y) == empty_slot);
      const double of_a = tree32(x), of_b = Both ? tree32(y) : 0.0;
      if (lane == 0) {
        of_chunk[chunk] = of_a;
        if constexpr (Both) of_chunk[most_chunks + chunk] = of_b;
      }
    }
    gpu_fence();
    __syncthreads();
    if (warp == 0) *slot(turn == 0 ? 2 : turn - 1, value, copy, blockIdx.x) = nothing();
    turn = turn == 2 ? 0 : turn + 1;
    return {tree8(of_chunk), Both ? tree8(of_chunk + most_chunks) : 0.0};
  }
};

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
  const int chain = blockIdx.y;
  const int wanted = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * 32 + threadIdx.x % 32;
  const bool live = wanted < l.half;
  const int i = live ? wanted : l.half - 1;

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
  Run<Several> run(w);
  team.ready();

  // p is r_factor r + p_factor p of what is kept.
  T r_factor(0), p_factor(1);
  const T diagonal = static_cast<T>(w.diagonal);
  while (run.open()) {
    const ColourVector<T> y = hop_own<T>(signs[0], around[0], own, 0, [&](typename Team::Place at) {
      return cg_direction(p_factor, team.load(old, at), r_factor, team.load(residual_vector, at));
    });
    p = cg_direction(p_factor, p, r_factor, r);
    old = 3 - old;
    if (live) {
      team.keep(old, p, i);
      team.keep(middle_vector, y, i);
    }
    const Two sums = team.template sum<true>(live ? square(y) : 0.0, live ? square(p) : 0.0);
    r_factor = T(0);
    p_factor = T(1);
    double alpha;
    if (!run.can_step(sums.a, sums.b, alpha)) break;
    const ColourVector<T> back =
        hop_own<T>(signs[1], around[1], own, 8, [&](typename Team::Place at) { return team.load(middle_vector, at); });
    r = mf::cg_residual(static_cast<T>(alpha), diagonal, p, back, r);
    if (live) team.keep(residual_vector, r, i);
    x = mul_add(static_cast<T>(alpha), p, x);
    run.turn(alpha, team.template sum<false>(live ? square(r) : 0.0, 0.0).a);
    if constexpr (Several) move_shifts<4>(run, r, i, live);
    r_factor = T(1);
    p_factor = static_cast<T>(run.beta);
  }
  p = cg_direction(p_factor, p, r_factor, r);
  const double direction2 = team.template sum<false>(live ? square(p) : 0.0, 0.0).a;
  if (live) {
    x_field.store(x, i);
    p_field.store(p, i);
    r_field.store(r, i);
  }
  run.save(direction2);
}

// ---- Lattices that lie in memory. Units of eight tiles, one a warp, are shared out among blocks.
inline constexpr int most_units = 64;  // of a block, whose sums it keeps

template <int N>
struct Crowd {
  const Work& w;
  double *of_tile, *of_thread;  // [n][unit][warp], [n][thread]
  double* told;                 // what all of the block are to know
  int units, turn = 0;

  __device__ __forceinline__ explicit Crowd(const Work& w)
      : w(w),
        of_tile(reinterpret_cast<double*>(dynamic_shared())),
        of_thread(of_tile + N * most_units * stream_warps),
        told(of_thread + N * stream_threads),
        units((w.lattice.padded / 32 + stream_warps - 1) / stream_warps) {}
  // Calls body(i, live, numbers) for the block's sites and puts sums of units where all see them; past the end of a
  // parity a lane does the last site's work.
  template <class Body>
  __device__ __forceinline__ void collect(Body body) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int first = blockIdx.x, kept = 0;
    for (int unit = first; unit < units; unit += gridDim.x) {
      double mine[N] = {};
      const int wanted = (unit * stream_warps + warp) * 32 + lane;
      const bool live = wanted < w.lattice.half;
      if (unit * stream_warps + warp < w.lattice.padded / 32) body(live ? wanted : w.lattice.half - 1, live, mine);
      MF_UNROLL
      for (int n = 0; n < N; ++n) {
        const double sum = tree32(live ? mine[n] : 0.0);
        if (lane == 0) of_tile[(n * most_units + kept) * stream_warps + warp] = sum;
      }
      if (++kept < most_units) continue;
      put(first, kept);
      first = unit + gridDim.x;
      kept = 0;
    }
    put(first, kept);
  }
  __device__ __forceinline__ void put(int first, int kept) const {
    __syncthreads();
    for (int j = threadIdx.x; j < N * kept; j += stream_threads) {
      const int n = j / kept, unit = j % kept;
      w.sums.partial[(static_cast<i64>(blockIdx.y) * N + n) * units + first + unit * gridDim.x] =
          tree8(of_tile + (n * most_units + unit) * stream_warps);
    }
    __syncthreads();
  }
  // True in the last block to come; its thread 0 then has the sums.
  __device__ __forceinline__ bool is_last(double (&sums)[N]) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, chunks = (units + 31) / 32;
    if (!last_to_come(w.sums, *told)) return false;
    // Four units are a group; a thread has the groups of its number modulo 256.
    for (int n = 0; n < N; ++n) {
      const double* parts = w.sums.partial + (static_cast<i64>(blockIdx.y) * N + n) * units;
      MF_UNROLL
      for (int quarter = 0; quarter < 4; ++quarter) {
        double mine = 0;
        for (int chunk = quarter * stream_warps + warp; chunk < chunks; chunk += 32) {
          const int unit = chunk * 32 + lane;
          double x = unit < units ? __ldcg(parts + unit) : 0.0;
          x += __shfl_xor_sync(0xffffffffu, x, 1);
          x += __shfl_xor_sync(0xffffffffu, x, 2);
          mine += x;
        }
        if (lane % 4 == 0) of_thread[n * stream_threads + (quarter * stream_warps + warp) * 8 + lane / 4] = mine;
      }
    }
    __syncthreads();
    for (int n = 0; n < N; ++n) sums[n] = tree32(tree8(of_thread + n * stream_threads + lane * 8));
    return true;
  }
  // The sum of what body returns, for all blocks.
  template <class Body>
  __device__ __forceinline__ double sum(Body body) {
    collect([&](int i, bool live, double (&mine)[1]) { mine[0] = body(i, live); });
    double* slots = w.slots + blockIdx.y * 6 + w.round * 3;
    double sums[1];
    const bool last = is_last(sums);
    if (threadIdx.x == 0) {
      if (last) {
        slots[turn == 2 ? 0 : turn + 1] = bit_cast<double>(empty_slot);
        gpu_fence();
        *static_cast<volatile double*>(slots + turn) = sums[0];
      } else {
        do sums[0] = look_at(slots + turn);
        while (bit_cast<u64>(sums[0]) == empty_slot);
        gpu_fence();
      }
      told[1] = sums[0];
    }
    __syncthreads();
    turn = turn == 2 ? 0 : turn + 1;
    return told[1];
  }
};

// r = p_k = residual, or with keep p <- p + (residual - r).
template <class T, bool Keep>
__device__ __forceinline__ void cg_begin(const Work& w) {
  const int chain = blockIdx.y;
  const Field<T> r = field_of<T>(w.residual, w.lattice, chain), from = field_of<T>(w.source, w.lattice, chain);
  Crowd<2> crowd(w);
  crowd.collect([&](int i, bool live, double (&mine)[2]) {
    const ColourVector<T> z = from.load(i);
    ColourVector<T> p = z;
    if constexpr (Keep) p = mul_add(T(1), direction<T>(w, chain, 0).load(i), difference(z, r.load(i)));
    mine[0] = square(z);
    mine[1] = square(p);
    if (!live) return;
    r.store(z, i);
    for (int k = 0; k < w.count; ++k) direction<T>(w, chain, k).store(p, i);
  });
  double sums[2];
  if (crowd.is_last(sums) && threadIdx.x == 0) w.solve[chain].begin(sums[0], sums[1]);
}

template <class T, bool Several>
__device__ __forceinline__ void cg_stream(const Work& w) {
  const int chain = blockIdx.y;
  const Field<T> r = field_of<T>(w.residual, w.lattice, chain), y = field_of<T>(w.middle, w.lattice, chain),
                 p = direction<T>(w, chain, 0), x = field_of<T>(w.first[0], w.lattice, chain);
  const T diagonal = static_cast<T>(w.diagonal);
  Run<Several> run(w);
  Crowd<1> crowd(w);
  if (blockIdx.x == 0 && threadIdx.x < 3)  // of the launch before
    w.slots[chain * 6 + (1 - w.round) * 3 + threadIdx.x] = bit_cast<double>(empty_slot);
  double direction2 = w.solve[chain].direction2;
  while (run.open()) {
    const double middle2 = crowd.sum([&](int i, bool live) {
      const ColourVector<T> z = hop_onto<T>(w.hopping, w.lattice, 1 - w.parity, chain, p, i);
      if (live) y.store(z, i);
      return square(z);
    });
    double length;
    if (!run.can_step(middle2, direction2, length)) break;
    const T alpha = static_cast<T>(length);
    run.turn(length, crowd.sum([&](int i, bool live) {
      const ColourVector<T> back = hop_onto<T>(w.hopping, w.lattice, w.parity, chain, y, i);
      const ColourVector<T> z = mf::cg_residual(alpha, diagonal, p.load(i), back, r.load(i));
      if (live) r.store(z, i);
      return square(z);
    }));
    const T beta = static_cast<T>(run.beta);
    direction2 = crowd.sum([&](int i, bool live) {
      const ColourVector<T> mine = r.load(i), old = p.load(i), sum = mul_add(alpha, old, x.load(i)),
                            z = cg_direction(beta, old, T(1), mine);
      if (live) {
        x.store(sum, i);
        p.store(z, i);
      }
      if constexpr (Several) move_shifts<1>(run, mine, i, live);
      return square(z);
    });
  }
  run.save(direction2);
}

KERNEL(cg_begin_new, stream_threads, 2, 2, cg_begin<T, false>)
KERNEL(cg_begin_kept, stream_threads, 2, 2, cg_begin<T, true>)
KERNEL(cg_streamed, stream_threads, 2, 2, cg_stream<T, false>)
KERNEL(cg_streamed_shifts, stream_threads, 2, 2, cg_stream<T, true>)
KERNEL(cg_resident, whole_threads, 1, 1, cg_whole<T, Resident<T>, false>)
KERNEL(cg_resident_shifts, whole_threads, 1, 1, cg_whole<T, Resident<T>, true>)
#if defined(MF_CUDA_ON_HOST) || __CUDA_ARCH__ >= 900
CLUSTER_KERNEL(cg_cluster, cluster_blocks, whole_threads, cg_whole<T, Cluster<T>, false>)
CLUSTER_KERNEL(cg_cluster_shifts, cluster_blocks, whole_threads, cg_whole<T, Cluster<T>, true>)
#endif

}  // namespace mf::gpu
