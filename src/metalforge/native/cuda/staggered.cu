// Colour fields and the staggered operator on a GPU: which thread has which site of one parity.
#include "recurrence.hpp"
#include "sites.cuh"
#include "staggered.hpp"

namespace mf::gpu {

// A solve on the card: the recurrence and what passes tell each other. The last block of a pass makes the numbers that
// the next one reads, from sums in a fixed order; when the state is not `running`, passes do nothing.
struct Solve {
  Recurrence recurrence;
  ShiftStep steps[max_shifts];
  double alpha, beta, residual2;
  double done, updates;
  SolveState state;
};

// What a kernel is told; each takes what it needs. native/cuda_staggered.py has the same record.
struct Work {
  Lattice lattice;
  int parity, count;  // of the result; how many fields or shifts
  ChainRow one;
  u64 draw;
  void *links, *hopping;  // the gauge field, and W of it
  void *out, *source, *x, *middle, *momenta, *host;
  Sums sums;
  Solve* solve;
  i64 stride;  // of the directions of shifts, in elements
  double keep[2], factor[2], diagonal, target2;
  void *first[max_shifts], *second[max_shifts];
  double numbers[max_shifts];
};

inline constexpr int colour_threads = 64;

// W and colours as the header's `hop` wants them; sites of one parity of one chain.
template <class T>
struct Hopping {
  Blocks<T, 9, 4> blocks;
  int first;

  MF_INLINE auto* address(i64 i, int mu) const { return blocks.at(first + static_cast<int>(i), mu); }
  template <class E>
  MF_INLINE Complex<T> entry(const E* link, int row, int column) const {
    return blocks.get(link, 3 * row + column);
  }
};
template <class T>
struct Field {
  Blocks<T, 3, 1> blocks;
  int first;

  MF_INLINE ColourVector<T> load(i64 i) const {
    const auto* at = blocks.at(first + static_cast<int>(i), 0);
    return {{blocks.get(at, 0), blocks.get(at, 1), blocks.get(at, 2)}};
  }
  MF_INLINE void store(const ColourVector<T>& v, i64 i) const {
    auto* at = blocks.at(first + static_cast<int>(i), 0);
    MF_UNROLL
    for (int c = 0; c < 3; ++c) blocks.set(at, c, v.c[c]);
  }
};
struct Around {
  Hops hops;
  int i;

  MF_INLINE Neighbour operator[](int k) const { return {i + (k < 4 ? hops.up[k & 3] : hops.down[k & 3]), 0}; }
};

template <class T>
MF_INLINE Field<T> field_of(void* data, const Lattice& l, int chain) {
  return {{static_cast<typename Element<T>::type*>(data)}, chain * l.padded};
}
template <class T>
MF_INLINE Hopping<T> hopping_of(const Work& w, int parity, int chain) {
  return {{static_cast<typename Element<T>::type*>(w.hopping)}, (2 * chain + parity) * w.lattice.padded};
}
// H psi at site i of a parity.
template <class T>
MF_INLINE ColourVector<T> hop_onto(const Work& w, int parity, int chain, const Field<T>& psi, int i) {
  const Around around{Hops(w.lattice, coordinates_of(w.lattice, i, parity)), i};
  return hop<false>(hopping_of<T>(w, parity, chain), hopping_of<T>(w, 1 - parity, chain), psi, around, i);
}

struct ColourShare : Share {
  __device__ __forceinline__ ColourShare(const Lattice& l, int parity)
      : Share(l, blockIdx.x * colour_threads + threadIdx.x, parity, blockIdx.y) {}
};

template <class T, bool In>
__device__ __forceinline__ void copy_colours(const Work& w) {
  const ColourShare share(w.lattice, w.parity);
  if (!share.live) return;
  const Coordinates c = coordinates_of(w.lattice, share.site.i, w.parity);
  double2* host = static_cast<double2*>(w.host) + static_cast<i64>(number_in_file(w.lattice, c)) * 3;
  const Field<T> field = field_of<T>(w.out, w.lattice, blockIdx.y);
  ColourVector<T> v;
  if constexpr (In) {
    for (int k = 0; k < 3; ++k) v.c[k] = {static_cast<T>(host[k].x), static_cast<T>(host[k].y)};
    field.store(v, share.site.i);
  } else {
    v = field.load(share.site.i);
    for (int k = 0; k < 3; ++k) host[k] = make_double2(v.c[k].re, v.c[k].im);
  }
}

template <class T>
__device__ __forceinline__ void set_gaussian(const Work& w) {
  const ColourShare share(w.lattice, w.parity);
  if (!share.live) return;
  const u32 number = number_in_file(w.lattice, coordinates_of(w.lattice, share.site.i, w.parity));
  const ChainAddress chain{PhiloxKeys(w.one.seed), w.one.stream, w.one.step};
  field_of<T>(w.out, w.lattice, blockIdx.y).store(gaussian_colours<T>(chain, &number, w.draw), share.site.i);
}

template <class T>
__device__ __forceinline__ void combine(const Work& w) {
  const ColourShare share(w.lattice, 0);
  if (!share.live) return;
  const Complex<T> keep{static_cast<T>(w.keep[0]), static_cast<T>(w.keep[1])},
      factor{static_cast<T>(w.factor[0]), static_cast<T>(w.factor[1])};
  const Field<T> to = field_of<T>(w.out, w.lattice, blockIdx.y), from = field_of<T>(w.source, w.lattice, blockIdx.y);
  to.store(blend(keep, to.load(share.site.i), factor, from.load(share.site.i)), share.site.i);
}

// Between the precisions, which have one layout: narrow <- factor wide, wide <- keep wide + factor narrow.
template <bool Narrow>
__device__ __forceinline__ void convert_colours(const Work& w) {
  const ColourShare share(w.lattice, 0);
  if (!share.live) return;
  const Field<double> wide = field_of<double>(Narrow ? w.source : w.out, w.lattice, blockIdx.y);
  const Field<float> narrow = field_of<float>(Narrow ? w.out : w.source, w.lattice, blockIdx.y);
  const double keep = w.keep[0], factor = w.factor[0];
  ColourVector<double> a = wide.load(share.site.i);
  ColourVector<float> b = narrow.load(share.site.i);
  for (int c = 0; c < 3; ++c) {
    if constexpr (Narrow)
      b.c[c] = {static_cast<float>(factor * a.c[c].re), static_cast<float>(factor * a.c[c].im)};
    else
      a.c[c] = {mul_add(factor, static_cast<double>(b.c[c].re), keep * a.c[c].re),
                mul_add(factor, static_cast<double>(b.c[c].im), keep * a.c[c].im)};
  }
  if constexpr (Narrow)
    narrow.store(b, share.site.i);
  else
    wide.store(a, share.site.i);
}

template <class T>
__device__ __forceinline__ void sum_dot(const Work& w) {
  const ColourShare share(w.lattice, 0);
  const ColourVector<T> a = field_of<T>(w.source, w.lattice, blockIdx.y).load(share.site.i),
                        b = field_of<T>(w.x, w.lattice, blockIdx.y).load(share.site.i);
  const double re = static_cast<double>(real_dot(a, b)), im = static_cast<double>(imaginary_dot(a, b));
  sum_up<colour_threads>(w.sums, share.live, {re, im});
}

// W of links of either precision: a thread a link, as in gauge.cu.
template <class T, class From>
__device__ __forceinline__ void take_up(const Work& w) {
  const Share share(w.lattice, (blockIdx.x >> 1) * block_sites + threadIdx.x % block_sites, blockIdx.x & 1, blockIdx.y);
  if (!share.live) return;
  const int mu = threadIdx.x / block_sites;
  const u32 number = number_in_file(w.lattice, coordinates_of(w.lattice, share.site.i, share.site.parity));
  const T sign = static_cast<T>(hopping_sign(number, w.lattice.extent, mu));
  Links<T>(w.hopping, w.lattice)
      .store(hopping_link(Links<From, T>(w.links, w.lattice).load(share.site, mu), sign), share.site, mu);
}

template <class T>
__device__ __forceinline__ void apply_hop(const Work& w) {
  const ColourShare share(w.lattice, w.parity);
  if (!share.live) return;
  const Field<T> psi = field_of<T>(w.source, w.lattice, blockIdx.y);
  field_of<T>(w.out, w.lattice, blockIdx.y)
      .store(hop_onto<T>(w, w.parity, blockIdx.y, psi, share.site.i), share.site.i);
}

// out <- (diagonal - H H) x, or source minus that, given middle = H x.
template <class T>
__device__ __forceinline__ void apply_normal(const Work& w) {
  const ColourShare share(w.lattice, w.parity);
  const int i = share.site.i, chain = blockIdx.y;
  const ColourVector<T> back = hop_onto<T>(w, w.parity, chain, field_of<T>(w.middle, w.lattice, chain), i);
  ColourVector<T> y = normal_product(static_cast<T>(w.diagonal), field_of<T>(w.x, w.lattice, chain).load(i), back);
  if (w.source) y = difference(field_of<T>(w.source, w.lattice, chain).load(i), y);
  if (share.live) field_of<T>(w.out, w.lattice, chain).store(y, i);
  sum_up<colour_threads>(w.sums, share.live, {static_cast<double>(real_dot(y, y))});
}

// Fields `first` on even sites, `second` = H first on odd ones: pi <- pi + Im tr T_a W M, see bindings/staggered.cpp.
template <class T>
__device__ __forceinline__ void hop_fields(const Work& w) {
  const ColourShare share(w.lattice, 1);
  if (!share.live) return;
  for (int k = 0; k < w.count; ++k) {
    const Field<T> psi = field_of<T>(w.first[k], w.lattice, blockIdx.y);
    field_of<T>(w.second[k], w.lattice, blockIdx.y)
        .store(hop_onto<T>(w, 1, blockIdx.y, psi, share.site.i), share.site.i);
  }
}
template <class T>
__device__ __forceinline__ void force(const Work& w) {
  const Share share(w.lattice, (blockIdx.x >> 1) * block_sites + threadIdx.x % block_sites, blockIdx.x & 1, blockIdx.y);
  if (!share.live) return;
  const int mu = threadIdx.x / block_sites, i = share.site.i, parity = share.site.parity;
  const Hops hops(w.lattice, coordinates_of(w.lattice, i, parity));
  Matrix3<T> outer = Matrix3<T>::zero();
  for (int k = 0; k < w.count; ++k) {
    const Field<T> even = field_of<T>(w.first[k], w.lattice, blockIdx.y),
                   odd = field_of<T>(w.second[k], w.lattice, blockIdx.y);
    const ColourVector<T> ahead = (parity ? even : odd).load(i + hops.forward(mu));
    const double c = (parity == 0 ? -2.0 : 2.0) * w.numbers[k];
    outer_acc(static_cast<T>(c), ahead, (parity ? odd : even).load(i), outer);
  }
  const Matrix3<T> link = Links<T>(w.hopping, w.lattice).load(share.site, mu);
  const Momenta<T> momenta(w.momenta, w.lattice);
  Algebra<T> pi = momenta.load(share.site, mu);
  kick_by(im_trace_generators(mul(link, outer)), pi);
  momenta.store(pi, share.site, mu);
}

// Conjugate gradients, as bindings/staggered_solver.cpp has them. `x` is r, `middle` y, `out` the directions p_k.
template <class T>
MF_INLINE Field<T> direction(const Work& w, int k) {
  return field_of<T>(static_cast<typename Element<T>::type*>(w.out) + k * w.stride, w.lattice, 0);
}
// r = p_k = residual, or with keep p <- p + (residual - r).
template <class T, bool Keep>
__device__ __forceinline__ void cg_begin(const Work& w) {
  const ColourShare share(w.lattice, 0);
  const int i = share.site.i;
  const Field<T> r = field_of<T>(w.x, w.lattice, 0);
  const ColourVector<T> z = field_of<T>(w.source, w.lattice, 0).load(i);
  ColourVector<T> p = z;
  if constexpr (Keep) p = mul_add(T(1), direction<T>(w, 0).load(i), difference(z, r.load(i)));
  if (share.live) {
    r.store(z, i);
    for (int k = 0; k < w.count; ++k) direction<T>(w, k).store(p, i);
  }
  const double mine[2] = {static_cast<double>(real_dot(z, z)), static_cast<double>(real_dot(p, p))};
  join<colour_threads>(w.sums, share.live, mine,
                       [&](const double (&sums)[2]) { w.solve->recurrence.begin(sums[0], sums[1]); });
}
// Starts a run of iterations.
__device__ __forceinline__ void cg_open(const Work& w) {
  Solve& s = *w.solve;
  s.done = s.updates = 0;
  s.state = s.recurrence.residual2 <= w.target2 ? converged : running;
}
template <class T>
__device__ __forceinline__ void cg_middle(const Work& w) {
  Solve& s = *w.solve;
  if (s.state != running) return;
  const ColourShare share(w.lattice, 1 - w.parity);
  const ColourVector<T> z = hop_onto<T>(w, 1 - w.parity, 0, direction<T>(w, 0), share.site.i);
  if (share.live) field_of<T>(w.middle, w.lattice, 0).store(z, share.site.i);
  join<colour_threads>(w.sums, share.live, {static_cast<double>(real_dot(z, z))}, [&](const double (&sum)[1]) {
    s.alpha = s.recurrence.step(w.diagonal, sum[0]);
    if (!is_finite(s.alpha)) s.state = broken;
  });
}
template <class T>
__device__ __forceinline__ void cg_residual(const Work& w) {
  Solve& s = *w.solve;
  if (s.state != running) return;
  const ColourShare share(w.lattice, w.parity);
  const int i = share.site.i;
  const Field<T> r = field_of<T>(w.x, w.lattice, 0);
  const ColourVector<T> back = hop_onto<T>(w, w.parity, 0, field_of<T>(w.middle, w.lattice, 0), i);
  const ColourVector<T> z =
      mf::cg_residual(static_cast<T>(s.alpha), static_cast<T>(w.diagonal), direction<T>(w, 0).load(i), back, r.load(i));
  if (share.live) r.store(z, i);
  join<colour_threads>(w.sums, share.live, {static_cast<double>(real_dot(z, z))}, [&](const double (&sum)[1]) {
    s.residual2 = sum[0];
    s.beta = sum[0] / s.recurrence.residual2;
    for (int k = 0; k < w.count; ++k)
      if (s.recurrence.active[k]) {
        s.steps[k] = s.recurrence.shift_step(k, w.numbers[k], s.alpha, s.beta);
        s.updates += 1;
      }
  });
}
template <class T>
__device__ __forceinline__ void cg_directions(const Work& w) {
  Solve& s = *w.solve;
  if (s.state != running) return;
  const ColourShare share(w.lattice, w.parity);
  const int i = share.site.i;
  const ColourVector<T> r = field_of<T>(w.x, w.lattice, 0).load(i);
  double direction2 = 0;
  for (int k = 0; k < w.count; ++k) {
    if (!s.recurrence.active[k]) continue;
    const ShiftStep step = s.steps[k];
    const Field<T> x = field_of<T>(w.first[k], w.lattice, 0), p = direction<T>(w, k);
    const ColourVector<T> old = p.load(i);
    const ColourVector<T> z = cg_direction(static_cast<T>(step.p_factor), old, static_cast<T>(step.r_factor), r);
    if (share.live) {
      x.store(mul_add(static_cast<T>(step.x_step), old, x.load(i)), i);
      p.store(z, i);
    }
    if (k == 0) direction2 = static_cast<double>(real_dot(z, z));
  }
  join<colour_threads>(w.sums, share.live, {direction2}, [&](const double (&sum)[1]) {
    s.state = s.recurrence.finish(s.alpha, s.beta, s.residual2, sum[0], w.target2, w.count);
    s.done += 1;
  });
}
__device__ __forceinline__ void cg_report(const Work& w) {
  const Solve& s = *w.solve;
  const double report[4] = {s.done, s.recurrence.residual2, static_cast<double>(s.state), s.updates};
  for (int n = 0; n < 4; ++n) w.sums.row(0)[n] = report[n];
}

KERNEL(pack_colours, colour_threads, 1, 1, copy_colours<T, true>)
KERNEL(unpack_colours, colour_threads, 1, 1, copy_colours<T, false>)
KERNEL(gaussian, colour_threads, 1, 1, set_gaussian<T>)
KERNEL(blend_colours, colour_threads, 1, 1, combine<T>)
KERNEL(narrow_colours, colour_threads, 1, 1, convert_colours<true>)
KERNEL(widen_colours, colour_threads, 1, 1, convert_colours<false>)
KERNEL(sum_dots, colour_threads, 1, 1, sum_dot<T>)
KERNEL(take_up_f64, 4 * block_sites, 1, 1, take_up<T, double>)
KERNEL(take_up_f32, 4 * block_sites, 1, 1, take_up<T, float>)
KERNEL(hop_field, colour_threads, 8, 16, apply_hop<T>)
KERNEL(normal_field, colour_threads, 8, 16, apply_normal<T>)
KERNEL(hop_all_fields, colour_threads, 8, 16, hop_fields<T>)
KERNEL(staggered_force, 4 * block_sites, 2, 3, force<T>)
KERNEL(cg_begin_new, colour_threads, 1, 1, cg_begin<T, false>)
KERNEL(cg_begin_kept, colour_threads, 1, 1, cg_begin<T, true>)
KERNEL(cg_start, 1, 1, 1, cg_open)
KERNEL(cg_pass_1, colour_threads, 8, 16, cg_middle<T>)
KERNEL(cg_pass_2, colour_threads, 8, 16, cg_residual<T>)
KERNEL(cg_pass_3, colour_threads, 8, 16, cg_directions<T>)
KERNEL(cg_result, 1, 1, 1, cg_report)

}  // namespace mf::gpu
