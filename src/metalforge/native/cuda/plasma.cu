// Particles in periodic boxes on a GPU: replicas of one box in one launch, each with its own bath and random numbers.
//
// A group of lanes has a particle: its lanes take the neighbours of its list in turn, and their sums meet by a tree.
// The same group kicks the particle and moves it to where the next step reads, so a step is one pass over particles.
// Lists are full (each pair is in two of them): nothing is added to by two threads, and every sum has a fixed order.
// A replica's bits follow from its own numbers, whatever shares the launch and whichever way it is launched:
//   - `walk` has all steps of few particles in one launch, whose blocks meet after each;
//   - `prepare`, `relist` and `step` are three launches a step of many.
//
// New lists: particles are counted into cubic cells, some to the radius of the list; cells have their particles in
// order of number. Each particle then looks at the columns of cells around it, images by the column they come from.
#include "cells.hpp"
#include "draws.hpp"
#include "together.cuh"
#include "yukawa.hpp"

namespace mf::gpu {

inline constexpr int pair_columns = 8, particle_columns = 18, columns = pair_columns + particle_columns;
inline constexpr int strips = 4;                      // parts that a sum over blocks is made of
inline constexpr int images = 27, no_image = images;  // the last is nowhere
inline constexpr int place_bits = 27;                 // of an entry of a list; the rest is the image
inline constexpr u32 all_lanes = 0xffffffffu;

template <class T>
struct alignas(16) Four {
  T x, y, z, unused;
};

// What a replica is: its steps, its bath, the address of its random numbers.
struct Replica {
  u64 seed;
  u32 stream, step;
  double dt, half_kick, keep, noise;
};

// What is asked of one call; it lies in memory, so that recorded launches serve every call.
struct Plan {
  double *samples, *frame_positions, *frame_velocities, *forces;
  i32 steps, sample_every, frame_every, measure;

  MF_INLINE bool samples_at(int step) const {
    return measure || (step > 0 && sample_every > 0 && step % sample_every == 0);
  }
  MF_INLINE int row(int step) const { return measure ? 0 : step / sample_every - 1; }
  MF_INLINE int rows() const { return measure ? 1 : steps / sample_every; }
};

// What a kernel is told; particles.py has the same record.
struct Work {
  i32 n, replicas, blocks, lanes;        // of a box; of a launch; of a replica; of a particle
  i32 cells, reach, round, capacity;     // cells a direction; how many a list reaches; lists are whole rounds
  double length, width, radius, moved2;  // of the box; of a cell; of lists; how far^2 one may go until new lists
  double kappa, cutoff;
  const Replica* replica;
  const Plan* plan;
  double *host_positions, *host_velocities;  // [replica][particle][3], as the host has them
  i32* host_boxes;
  Four<double>*x, *v, *listed;  // [replica][place]; where particles were when they were listed
  void* places[2];              // as forces read them, of even and odd steps
  i32* boxes;
  u32 *id, *cell, *members, *begin, *fill, *list, *count;
  i32* clock;                          // [replica], steps that were prepared
  u32 *stale, *lost, *crowded, *made;  // [replica]: the step that needs new lists; that a particle was lost at; ...
  double* partial;                     // [even, odd][replica][block][column]
  u32* arrived;
};

#if defined(MF_CUDA_ON_HOST)
inline double root_estimate(double x) { return 1 / std::sqrt(static_cast<float>(x)); }
inline float root_estimate(float x) { return 1 / std::sqrt(x); }
#else
__device__ __forceinline__ double root_estimate(double x) {
  double y;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  return y;
}
__device__ __forceinline__ float root_estimate(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif
// 1 / sqrt(x) to an ulp or so: the estimate y is good to 20 bits, and with e = 1 - x y^2 the root is y / sqrt(1 - e).
MF_INLINE double inverse_root(double x) {
  const double y = root_estimate(x);
  const double e = neg_mul_add(x * y, y, 1.0);
  return mul_add(mul_add(0.375, e, 0.5), e * y, y);
}
MF_INLINE float inverse_root(float x) {
  const float y = root_estimate(x);
  return mul_add(0.5f * y, neg_mul_add(x * y, y, 1.0f), y);
}

// The sum over the lanes of a particle, which all of them have.
__device__ __forceinline__ double group_sum(double x, int lanes) {
  for (int distance = 1; distance < lanes; distance *= 2) x += __shfl_xor_sync(all_lanes, x, distance);
  return x;
}

// The particle of a thread. Past the last one threads do its work and keep it to themselves.
struct Mine {
  int i, lane, in_block;
  i64 at;  // among those of all replicas
  bool live;

  __device__ __forceinline__ Mine(const Work& w, int replica, int block)
      : i(block * (static_cast<int>(blockDim.x) / w.lanes) + static_cast<int>(threadIdx.x) / w.lanes),
        lane(static_cast<int>(threadIdx.x) % w.lanes),
        in_block(static_cast<int>(threadIdx.x) / w.lanes),
        live(i < w.n) {
    if (!live) i = w.n - 1;
    at = static_cast<i64>(replica) * w.n + i;
  }
};

MF_INLINE bool is_lost(const Work& w, int replica, int step) {
  const u32 at = w.lost[replica];
  return at != 0 && at <= static_cast<u32>(step);
}
MF_INLINE bool needs_lists(const Work& w, int replica, int step) {
  return w.stale[replica] == static_cast<u32>(step) && step <= w.plan->steps && !is_lost(w, replica, step);
}

// ---- cells ----

MF_INLINE int cell_of(const Work& w, double x, double y, double z) {
  const auto along = [&](double u) {
    const int c = static_cast<int>(u / w.width);
    return c < w.cells ? c : w.cells - 1;
  };
  return (along(x) * w.cells + along(y)) * w.cells + along(z);
}
MF_INLINE i64 cells_of_box(const Work& w) { return static_cast<i64>(w.cells) * w.cells * w.cells; }

// Who does a part of the work on a replica's cells.
struct Share {
  int first, stride;
};

// Wraps particles, notes where they are, and counts those of each cell.
template <class T>
__device__ __forceinline__ void count_cells(const Work& w, int replica, int step, Share share) {
  const i64 base = static_cast<i64>(replica) * w.n;
  auto* places = static_cast<Four<T>*>(w.places[step & 1]);
  for (int i = share.first; i < w.n; i += share.stride) {
    Four<double> x = w.x[base + i];
    const Wrapped a = wrapped(x.x, w.length), b = wrapped(x.y, w.length), c = wrapped(x.z, w.length);
    i32* boxes = w.boxes + 3 * (base + i);
    boxes[0] += a.boxes;
    boxes[1] += b.boxes;
    boxes[2] += c.boxes;
    x = {a.inside, b.inside, c.inside, 0};
    w.x[base + i] = w.listed[base + i] = x;
    places[base + i] = {static_cast<T>(x.x), static_cast<T>(x.y), static_cast<T>(x.z), T(0)};
    const int cell = cell_of(w, x.x, x.y, x.z);
    w.cell[base + i] = static_cast<u32>(cell);
    atomicAdd(w.fill + replica * cells_of_box(w) + cell, 1u);
  }
}
// Where each cell begins; by one block, with a number a thread in shared memory.
__device__ __forceinline__ void begin_cells(const Work& w, int replica, u32* shared) {
  const i64 cells = cells_of_box(w);
  const int threads = static_cast<int>(blockDim.x), me = static_cast<int>(threadIdx.x);
  const i64 each = (cells + threads - 1) / threads, low = me * each, high = low + each < cells ? low + each : cells;
  u32 *fill = w.fill + replica * cells, *begin = w.begin + replica * (cells + 1);
  u32 sum = 0;
  for (i64 c = low; c < high; ++c) sum += fill[c];
  __syncthreads();
  shared[me] = sum;
  __syncthreads();
  for (int distance = 1; distance < threads; distance *= 2) {
    const u32 before = me >= distance ? shared[me - distance] : 0;
    __syncthreads();
    shared[me] += before;
    __syncthreads();
  }
  u32 next = shared[me] - sum;
  for (i64 c = low; c < high; ++c) {
    const u32 here = fill[c];
    begin[c] = fill[c] = next;
    next += here;
  }
  if (me == threads - 1) begin[cells] = static_cast<u32>(w.n);
  if (me == 0) w.made[replica] += 1;
  __syncthreads();
}
__device__ __forceinline__ void fill_cells(const Work& w, int replica, Share share) {
  const i64 base = static_cast<i64>(replica) * w.n;
  for (int i = share.first; i < w.n; i += share.stride)
    w.members[base + atomicAdd(w.fill + replica * cells_of_box(w) + w.cell[base + i], 1u)] = static_cast<u32>(i);
}
// Particles came into cells in any order: now the order is that of their numbers.
__device__ __forceinline__ void order_cells(const Work& w, int replica, Share share) {
  const i64 cells = cells_of_box(w);
  u32* members = w.members + static_cast<i64>(replica) * w.n;
  const u32* begin = w.begin + replica * (cells + 1);
  for (i64 c = share.first; c < cells; c += share.stride) {
    const u32 low = begin[c], high = begin[c + 1];
    for (u32 k = low + 1; k < high; ++k) {
      const u32 who = members[k];
      u32 to = k;
      for (; to > low && members[to - 1] > who; --to) members[to] = members[to - 1];
      members[to] = who;
    }
    w.fill[replica * cells + c] = 0;
  }
}

// ---- lists ----

// A run of cells of a column in one image of the box, as a part of the members of all cells.
struct Run {
  int begin = 0, length = 0;
};
MF_INLINE Run run_of(const u32* begin, int column, int cells, int low, int high) {
  low = low < 0 ? 0 : low;
  high = high < cells ? high : cells - 1;
  if (low > high) return {};
  const int first = static_cast<int>(begin[column + low]);
  return {first, static_cast<int>(begin[column + high + 1]) - first};
}
// How far a coordinate is from a cell that may be outside the box.
MF_INLINE double gap_to(double u, int cell, double width) {
  const double above = cell * width - u, below = u - (cell + 1) * width;
  const double gap = above > below ? above : below;
  return gap > 0 ? gap : 0;
}
MF_INLINE int image_of(int cell, int cells) { return cell < 0 ? -1 : cell >= cells ? 1 : 0; }

template <class T>
__device__ __forceinline__ void list_block(const Work& w, int replica, int step, int block) {
  const Mine mine(w, replica, block);
  const int lanes = w.lanes, cells = w.cells, around = 2 * w.reach + 1;
  const u32* begin = w.begin + replica * (cells_of_box(w) + 1);
  const u32* members = w.members + static_cast<i64>(replica) * w.n;
  const auto* places = static_cast<const Four<T>*>(w.places[step & 1]) + static_cast<i64>(replica) * w.n;
  const Four<T> here = places[mine.i];
  const int cell = static_cast<int>(w.cell[mine.at]);
  const int cx = cell / (cells * cells), cy = cell / cells % cells, cz = cell % cells;
  const T radius2 = static_cast<T>(w.radius * w.radius), length = static_cast<T>(w.length);
  u32* list = w.list + mine.at * w.capacity;
  const int shift = static_cast<int>(threadIdx.x) % 32 / lanes * lanes;
  const u32 group = lanes == 32 ? all_lanes : (1u << lanes) - 1;
  int total = 0;
  for (int column = 0; column < around * around; ++column) {
    const int ux = cx - w.reach + column / around, uy = cy - w.reach + column % around;
    const double gx = gap_to(here.x, ux, w.width), gy = gap_to(here.y, uy, w.width);
    // A little more than there is, for what rounding makes of borders.
    const double height2 = w.radius * w.radius * 1.0001 - gx * gx - gy * gy;
    const int sx = image_of(ux, cells), sy = image_of(uy, cells);
    Run run[3];
    if (mine.live && height2 > 0) {
      const int first = ((ux - sx * cells) * cells + (uy - sy * cells)) * cells;
      const double height = sqrt(static_cast<float>(height2)) * 1.0001f;
      int low = static_cast<int>(floor((here.z - height) / w.width));
      int high = static_cast<int>(floor((here.z + height) / w.width));
      low = low > cz - w.reach ? low : cz - w.reach;
      high = high < cz + w.reach ? high : cz + w.reach;
      run[0] = run_of(begin, first, cells, low + cells, (high < 0 ? high : -1) + cells);
      run[1] = run_of(begin, first, cells, low, high);
      run[2] = run_of(begin, first, cells, (low > cells ? low : cells) - cells, high - cells);
    }
    const int all = run[0].length + run[1].length + run[2].length;
    int rounds = (all + lanes - 1) / lanes;
    for (int distance = lanes; distance < 32; distance *= 2) {
      const int other = static_cast<int>(__shfl_xor_sync(all_lanes, rounds, distance));
      rounds = other > rounds ? other : rounds;
    }
    const T x = here.x - static_cast<T>(sx) * length, y = here.y - static_cast<T>(sy) * length;
    for (int k = mine.lane; k < rounds * lanes; k += lanes) {
      bool near = k < all;
      u32 who = 0;
      int sz = 0;
      if (near) {
        int at = k - run[0].length;
        sz = at < 0 ? -1 : at < run[1].length ? 0 : 1;
        at = sz < 0 ? run[0].begin + k : sz == 0 ? run[1].begin + at : run[2].begin + at - run[1].length;
        who = members[at];
        const Four<T> there = places[who];
        const T z = here.z - static_cast<T>(sz) * length;
        near = squared(x - there.x, y - there.y, z - there.z) < radius2 && who != static_cast<u32>(mine.i);
      }
      const u32 found = __ballot_sync(all_lanes, near) >> shift & group;
      const int slot = total + __popc(found & ((1u << mine.lane) - 1));
      if (near && slot < w.capacity) list[slot] = static_cast<u32>(Image{sx, sy, sz}.index()) << place_bits | who;
      total += __popc(found);
    }
  }
  if (total > w.capacity) {
    w.crowded[replica] = 1;
    total = w.capacity;
  }
  const int whole = (total + w.round - 1) / w.round * w.round;
  if (!mine.live) return;
  for (int k = total + mine.lane; k < whole; k += lanes)
    list[k] = static_cast<u32>(no_image) << place_bits | static_cast<u32>(mine.i);
  if (mine.lane == 0) w.count[mine.at] = static_cast<u32>(whole);
}

// ---- a step ----

// Shared memory of a step: how far each image is, and the sums of the block's particles.
template <class T>
struct Scratch {
  Four<T>* image;
  double* sums;  // [particle][column]

  __device__ __forceinline__ explicit Scratch(const Work& w)
      : image(reinterpret_cast<Four<T>*>(dynamic_shared())),
        sums(reinterpret_cast<double*>(dynamic_shared() + (images + 1) * sizeof(Four<double>))) {
    const T length = static_cast<T>(w.length), far = static_cast<T>(nowhere);
    for (int s = static_cast<int>(threadIdx.x); s <= images; s += static_cast<int>(blockDim.x))
      image[s] = s == no_image ? Four<T>{far, far, far, T(0)}
                               : Four<T>{static_cast<T>(s % 3 - 1) * length, static_cast<T>(s / 3 % 3 - 1) * length,
                                         static_cast<T>(s / 9 - 1) * length, T(0)};
    __syncthreads();
  }
};

// What the neighbours of a particle do to it; each pair twice, so half of the sums are its own.
template <int Unroll, bool Sums, class T>
__device__ __forceinline__ void meet_neighbours(const Work& w, const Mine& mine, const Four<T>* places,
                                                const Four<T>* image, double (&force)[3],
                                                double (&sums)[pair_columns]) {
  const Yukawa<T> pair = Yukawa<T>::of(w.kappa, w.cutoff, 0);
  const Four<T> here = places[mine.i];
  const u32* list = w.list + mine.at * w.capacity;
  const int count = static_cast<int>(w.count[mine.at]), lanes = w.lanes;
  T fx = 0, fy = 0, fz = 0, phi = 0, inside = 0;
  Symmetric<T> virial{};
  for (int k = mine.lane; k < count; k += Unroll * lanes) {
    u32 entry[Unroll];
    Four<T> there[Unroll];
    MF_UNROLL
    for (int u = 0; u < Unroll; ++u) entry[u] = list[k + u * lanes];
    MF_UNROLL
    for (int u = 0; u < Unroll; ++u) there[u] = places[entry[u] & ((1u << place_bits) - 1)];
    MF_UNROLL
    for (int u = 0; u < Unroll; ++u) {
      const Four<T> s = image[entry[u] >> place_bits];
      const T dx = (here.x - s.x) - there[u].x, dy = (here.y - s.y) - there[u].y, dz = (here.z - s.z) - there[u].z;
      const T r2 = squared(dx, dy, dz);
      const PairTerm<T> term = pair.at(r2, inverse_root(r2));
      fx = mul_add(term.force, dx, fx);
      fy = mul_add(term.force, dy, fy);
      fz = mul_add(term.force, dz, fz);
      if constexpr (Sums) {
        phi += term.energy;
        inside += select(r2 < pair.cutoff2, T(1), T(0));
        virial.add(term.force, dx, dy, dz, dx, dy, dz);
      }
    }
  }
  force[0] = group_sum(fx, lanes);
  force[1] = group_sum(fy, lanes);
  force[2] = group_sum(fz, lanes);
  if constexpr (Sums) {
    sums[0] = group_sum(phi, lanes);
    sums[1] = group_sum(inside, lanes);
    MF_UNROLL
    for (int k = 0; k < 6; ++k) sums[2 + k] = group_sum(virial.of[k], lanes);
  }
}

// The sums of a block's particles, into its row of parts.
template <class T>
__device__ __forceinline__ void sum_block(const Work& w, const Mine& mine, const Scratch<T>& scratch, int replica,
                                          int step, int block, const double (&pairs)[pair_columns],
                                          const double (&x)[3], const double (&v)[3]) {
  double* row = scratch.sums + mine.in_block * columns;
  const double whole = mine.live ? 1 : 0;
  if (mine.lane == 0) {
    MF_UNROLL
    for (int k = 0; k < pair_columns; ++k) row[k] = 0.5 * whole * pairs[k];
  }
  // A direction a lane: velocities, and currents across it.
  for (int k = mine.lane; k < 3; k += w.lanes) {
    const double at = k == 0 ? x[0] : k == 1 ? x[1] : x[2];
    const double along = k == 0   ? v[0]
                         : k == 1 ? v[1]
                                  : v[2],
                 next = k == 0   ? v[1]
                        : k == 1 ? v[2]
                                 : v[0],
                 last = k == 0   ? v[2]
                        : k == 1 ? v[0]
                                 : v[1];
    const double u = at / w.length;
    const SinCos<double> wave = sincos_2pi(u - floor(u));
    double* velocities = row + pair_columns;
    velocities[k] = whole * (along * along);
    velocities[3 + k] = whole * (along * next);
    double* current = velocities + 6 + 4 * k;
    current[0] = whole * (wave.cos * next);
    current[1] = whole * (wave.sin * next);
    current[2] = whole * (wave.cos * last);
    current[3] = whole * (wave.sin * last);
  }
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  if (column < columns) {
    double sum = 0;
    for (int p = 0; p < static_cast<int>(blockDim.x) / w.lanes; ++p) sum += scratch.sums[p * columns + column];
    w.partial[((static_cast<i64>(step & 1) * w.replicas + replica) * w.blocks + block) * columns + column] = sum;
  }
  __syncthreads();
}
// The sums of all blocks of a replica, into a sample; by one block of at least 32 * strips threads.
__device__ __forceinline__ void join_blocks(const Work& w, int replica, int step) {
  const Plan& plan = *w.plan;
  double* shared = reinterpret_cast<double*>(dynamic_shared());
  const int column = static_cast<int>(threadIdx.x) % 32, strip = static_cast<int>(threadIdx.x) / 32;
  const double* parts = w.partial + (static_cast<i64>(step & 1) * w.replicas + replica) * w.blocks * columns;
  __syncthreads();
  if (column < columns && strip < strips) {
    double sum = 0;
    for (int block = strip; block < w.blocks; block += strips) sum += __ldcg(parts + block * columns + column);
    shared[strip * 32 + column] = sum;
  }
  __syncthreads();
  if (column < columns && strip == 0)
    plan.samples[(static_cast<i64>(replica) * plan.rows() + plan.row(step)) * columns + column] =
        (shared[column] + shared[32 + column]) + (shared[64 + column] + shared[96 + column]);
  __syncthreads();
}

// The forces at a step, the kick that ends it, what is looked at there, and the kick and move that begin the next one.
template <class T, int Unroll>
__device__ __forceinline__ void step_block(const Work& w, const Scratch<T>& scratch, int replica, int step, int block) {
  const Plan& plan = *w.plan;
  if (is_lost(w, replica, step)) return;
  const Mine mine(w, replica, block);
  const Replica& of = w.replica[replica];
  const bool sampled = plan.samples_at(step);
  const auto* places = static_cast<const Four<T>*>(w.places[step & 1]) + static_cast<i64>(replica) * w.n;
  const Four<double> x4 = w.x[mine.at], v4 = w.v[mine.at];
  double x[3] = {x4.x, x4.y, x4.z}, v[3] = {v4.x, v4.y, v4.z}, force[3], pairs[pair_columns];
  if (sampled)
    meet_neighbours<Unroll, true>(w, mine, places, scratch.image, force, pairs);
  else
    meet_neighbours<Unroll, false>(w, mine, places, scratch.image, force, pairs);
  const auto kick = [&] {
    MF_UNROLL
    for (int k = 0; k < 3; ++k) v[k] = mul_add(of.half_kick, force[k], v[k]);
  };
  const auto drift = [&](double dt) {
    MF_UNROLL
    for (int k = 0; k < 3; ++k) x[k] = mul_add(dt, v[k], x[k]);
  };
  if (step > 0) kick();
  if (sampled) sum_block(w, mine, scratch, replica, step, block, pairs, x, v);
  const bool writes = mine.live && mine.lane == 0;
  const u32 id = w.id[mine.at];
  if (plan.measure) {
    if (writes)
      for (int k = 0; k < 3; ++k) plan.forces[3 * (static_cast<i64>(replica) * w.n + id) + k] = force[k];
    return;
  }
  if (writes && plan.frame_every > 0 && step > 0 && step % plan.frame_every == 0) {
    const i64 frame = static_cast<i64>(replica) * (plan.steps / plan.frame_every) + step / plan.frame_every - 1;
    for (int k = 0; k < 3; ++k) {
      plan.frame_positions[3 * (frame * w.n + id) + k] = x[k] + w.length * w.boxes[3 * mine.at + k];
      plan.frame_velocities[3 * (frame * w.n + id) + k] = v[k];
    }
  }
  if (step == plan.steps) {
    if (writes) w.v[mine.at] = {v[0], v[1], v[2], 0};
    return;
  }
  kick();
  if (of.keep == 1 && of.noise == 0) {
    drift(of.dt);
  } else {
    drift(of.dt / 2);
    // Two normals a draw: even lanes have the first draw, odd ones the second.
    const ChainAddress chain{PhiloxKeys(of.seed), of.stream, static_cast<u64>(of.step) + static_cast<u64>(step) + 1};
    const Pair<double> drawn = normals<double>(chain, &id, langevin_draws + static_cast<u64>(mine.lane & 1));
    const int first = static_cast<int>(threadIdx.x) % 32 - mine.lane;
    const double xi[3] = {__shfl_sync(all_lanes, drawn.first, first), __shfl_sync(all_lanes, drawn.second, first),
                          __shfl_sync(all_lanes, drawn.first, first + 1)};
    MF_UNROLL
    for (int k = 0; k < 3; ++k) v[k] = thermal_kick(v[k], of.keep, of.noise, xi[k]);
    drift(of.dt / 2);
  }
  if (!writes) return;
  w.x[mine.at] = {x[0], x[1], x[2], 0};
  w.v[mine.at] = {v[0], v[1], v[2], 0};
  static_cast<Four<T>*>(w.places[(step + 1) & 1])[mine.at] = {static_cast<T>(x[0]), static_cast<T>(x[1]),
                                                              static_cast<T>(x[2]), T(0)};
  const Four<double> then = w.listed[mine.at];
  const double gone2 = squared(x[0] - then.x, x[1] - then.y, x[2] - then.z);
  if (!(gone2 < w.length * w.length))
    w.lost[replica] = static_cast<u32>(step) + 1;
  else if (gone2 >= w.moved2)
    w.stale[replica] = static_cast<u32>(step) + 1;
}

// ---- three launches a step ----

// Joins the samples of the step before and, where a replica needs new lists, fills its cells. A block a replica.
template <class T>
__device__ __forceinline__ void prepare(const Work& w) {
  const int replica = static_cast<int>(blockIdx.y), step = w.clock[replica] + 1;
  const Share all{static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)};
  __syncthreads();
  if (threadIdx.x == 0) w.clock[replica] = step;
  if (step > 0 && step <= w.plan->steps + 1 && w.plan->samples_at(step - 1)) join_blocks(w, replica, step - 1);
  if (!needs_lists(w, replica, step)) return;
  count_cells<T>(w, replica, step, all);
  __syncthreads();
  begin_cells(w, replica, reinterpret_cast<u32*>(dynamic_shared()));
  fill_cells(w, replica, all);
  __syncthreads();
  order_cells(w, replica, all);
}
template <class T>
__device__ __forceinline__ void relist(const Work& w) {
  const int replica = static_cast<int>(blockIdx.y), step = w.clock[replica];
  if (needs_lists(w, replica, step)) list_block<T>(w, replica, step, static_cast<int>(blockIdx.x));
}
template <class T, int Unroll>
__device__ __forceinline__ void step_all(const Work& w) {
  const int replica = static_cast<int>(blockIdx.y), step = w.clock[replica];
  if (step > w.plan->steps) return;
  const Scratch<T> scratch(w);
  step_block<T, Unroll>(w, scratch, replica, step, static_cast<int>(blockIdx.x));
}

// ---- all steps in one launch ----

// All blocks of a launch meet: what any wrote before, all see after.
struct Meeting {
  u32* arrived;
  u32 target = 0;

  __device__ __forceinline__ void operator()() {
    __syncthreads();
    target += gridDim.x;
    if (threadIdx.x == 0) {
      gpu_fence();
      atomicAdd(arrived, 1u);
      while (static_cast<i32>(look_at(arrived) - target) < 0) {
      }
      gpu_fence();
    }
    __syncthreads();
  }
};

// The replicas that need new lists.
template <class Visit>
__device__ __forceinline__ void each_stale(const Work& w, int step, Visit visit) {
  for (int r = 0; r < w.replicas; ++r)
    if (needs_lists(w, r, step)) visit(r);
}

template <class T, int Unroll>
__device__ __forceinline__ void walk(const Work& w) {
  Meeting meet{w.arrived};
  const int blocks = static_cast<int>(gridDim.x), me = static_cast<int>(blockIdx.x), steps = w.plan->steps;
  const Share all{me * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x),
                  blocks * static_cast<int>(blockDim.x)};
  const auto joins = [&](int step) {
    if (!w.plan->samples_at(step)) return;
    for (int r = 0; r < w.replicas; ++r)
      if (me == blocks - 1 - r % blocks) join_blocks(w, r, step);
  };
  for (int step = 0; step <= steps; ++step) {
    if (step > 0) joins(step - 1);
    bool any = false;
    each_stale(w, step, [&](int) { any = true; });
    if (any) {
      each_stale(w, step, [&](int r) { count_cells<T>(w, r, step, all); });
      meet();
      each_stale(w, step, [&](int r) {
        if (me == r % blocks) begin_cells(w, r, reinterpret_cast<u32*>(dynamic_shared()));
      });
      meet();
      each_stale(w, step, [&](int r) { fill_cells(w, r, all); });
      meet();
      each_stale(w, step, [&](int r) { order_cells(w, r, all); });
      meet();
      for (int work = me; work < w.replicas * w.blocks; work += blocks)
        if (needs_lists(w, work / w.blocks, step)) list_block<T>(w, work / w.blocks, step, work % w.blocks);
      meet();
    }
    const Scratch<T> scratch(w);
    for (int work = me; work < w.replicas * w.blocks; work += blocks)
      step_block<T, Unroll>(w, scratch, work / w.blocks, step, work % w.blocks);
    meet();
  }
  joins(steps);
}

// ---- from and to the host ----

// Sorts the particles of a replica by cells, so that those which are near to each other are so in memory, too.
__device__ __forceinline__ void sort_host(const Work& w) {
  const int replica = static_cast<int>(blockIdx.y);
  const i64 base = static_cast<i64>(replica) * w.n;
  const Share all{static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)};
  for (int i = all.first; i < w.n; i += all.stride) {
    const double* from = w.host_positions + 3 * (base + i);
    const int cell = cell_of(w, wrapped(from[0], w.length).inside, wrapped(from[1], w.length).inside,
                             wrapped(from[2], w.length).inside);
    w.cell[base + i] = static_cast<u32>(cell);
    atomicAdd(w.fill + replica * cells_of_box(w) + cell, 1u);
  }
  __syncthreads();
  begin_cells(w, replica, reinterpret_cast<u32*>(dynamic_shared()));
  fill_cells(w, replica, all);
  __syncthreads();
  order_cells(w, replica, all);
  if (threadIdx.x == 0) {
    w.clock[replica] = -1;
    w.stale[replica] = w.lost[replica] = w.crowded[replica] = w.made[replica] = 0;
    if (replica == 0) *w.arrived = 0;
  }
}
__device__ __forceinline__ void take_host(const Work& w) {
  const int replica = static_cast<int>(blockIdx.y);
  const i64 base = static_cast<i64>(replica) * w.n;
  for (int k = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); k < w.n;
       k += static_cast<int>(gridDim.x * blockDim.x)) {
    const u32 who = w.members[base + k];
    const double *x = w.host_positions + 3 * (base + who), *v = w.host_velocities + 3 * (base + who);
    w.id[base + k] = who;
    w.x[base + k] = {x[0], x[1], x[2], 0};
    w.v[base + k] = {v[0], v[1], v[2], 0};
    for (int c = 0; c < 3; ++c) w.boxes[3 * (base + k) + c] = w.host_boxes[3 * (base + who) + c];
  }
}
__device__ __forceinline__ void give_host(const Work& w) {
  const int replica = static_cast<int>(blockIdx.y);
  const i64 base = static_cast<i64>(replica) * w.n;
  for (int k = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); k < w.n;
       k += static_cast<int>(gridDim.x * blockDim.x)) {
    const i64 who = base + w.id[base + k];
    const Four<double> x = w.x[base + k], v = w.v[base + k];
    const double at[3] = {x.x, x.y, x.z}, speed[3] = {v.x, v.y, v.z};
    for (int c = 0; c < 3; ++c) {
      w.host_positions[3 * who + c] = at[c];
      w.host_velocities[3 * who + c] = speed[c];
      w.host_boxes[3 * who + c] = w.boxes[3 * (base + k) + c];
    }
  }
}

}  // namespace mf::gpu

#define PLASMA_KERNEL(NAME, THREADS, BLOCKS, ...)                                                               \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) NAME(const __grid_constant__ mf::gpu::Work w) { \
    using T = MF_REAL;                                                                                          \
    mf::gpu::__VA_ARGS__(w);                                                                                    \
  }
PLASMA_KERNEL(prepare, 512, 1, prepare<T>)
PLASMA_KERNEL(relist, 256, 2, relist<T>)
PLASMA_KERNEL(step_1, 256, 2, step_all<T, 1>)
PLASMA_KERNEL(step_2, 256, 2, step_all<T, 2>)
PLASMA_KERNEL(step_4, 256, 2, step_all<T, 4>)
PLASMA_KERNEL(walk_1, 256, 2, walk<T, 1>)
PLASMA_KERNEL(walk_2, 256, 2, walk<T, 2>)
PLASMA_KERNEL(walk_4, 256, 2, walk<T, 4>)
PLASMA_KERNEL(sort_host, 512, 1, sort_host)
PLASMA_KERNEL(take_host, 256, 1, take_host)
PLASMA_KERNEL(give_host, 256, 1, give_host)
