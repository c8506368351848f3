// Colour fields and the staggered operator on a GPU: which thread has which site of one parity.
#include "colours.cuh"
#include "recurrence.hpp"

namespace mf::gpu {

// What a kernel is told; each takes what it needs. staggered.py has the same record.
struct Work {
  Lattice lattice;
  int parity, count;  // of the result; how many fields
  ChainRow one;
  u64 draw;
  void *links, *hopping;  // the gauge field, and W of it
  void *out, *source, *x, *middle, *momenta, *host;
  Sums sums;
  double keep[2], factor[2], diagonal;
  void *first[max_shifts], *second[max_shifts];
  double numbers[max_shifts];
};

inline constexpr int colour_threads = 64;

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

// 2 W of links of either precision: a thread a link, as in gauge.cu.
template <class T, class From>
__device__ __forceinline__ void take_up(const Work& w) {
  const Share share(w.lattice, (blockIdx.x >> 1) * block_sites + threadIdx.x % block_sites, blockIdx.x & 1, blockIdx.y);
  if (!share.live) return;
  const int mu = threadIdx.x / block_sites;
  const u32 number = number_in_file(w.lattice, coordinates_of(w.lattice, share.site.i, share.site.parity));
  const T sign = static_cast<T>(2 * hopping_sign(number, w.lattice.extent, mu));
  Hopping<T>{static_cast<typename Word<T>::type*>(w.hopping)}.store(
      folded(hopping_link(Links<From, T>(w.links, w.lattice).load(share.site, mu), sign)), share.site.place(w.lattice),
      mu);
}

template <class T>
__device__ __forceinline__ void apply_hop(const Work& w) {
  const ColourShare share(w.lattice, w.parity);
  if (!share.live) return;
  const Field<T> psi = field_of<T>(w.source, w.lattice, blockIdx.y);
  field_of<T>(w.out, w.lattice, blockIdx.y)
      .store(hop_onto<T>(w.hopping, w.lattice, w.parity, blockIdx.y, psi, share.site.i), share.site.i);
}

// out <- (diagonal - H H) x, or source minus that, given middle = H x.
template <class T>
__device__ __forceinline__ void apply_normal(const Work& w) {
  const ColourShare share(w.lattice, w.parity);
  const int i = share.site.i, chain = blockIdx.y;
  const ColourVector<T> back =
      hop_onto<T>(w.hopping, w.lattice, w.parity, chain, field_of<T>(w.middle, w.lattice, chain), i);
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
        .store(hop_onto<T>(w.hopping, w.lattice, 1, blockIdx.y, psi, share.site.i), share.site.i);
  }
}
template <class T>
__device__ __forceinline__ void force(const Work& w) {
  const Share share(w.lattice, (blockIdx.x >> 1) * block_sites + threadIdx.x % block_sites, blockIdx.x & 1, blockIdx.y);
  if (!share.live) return;
  const int mu = threadIdx.x / block_sites, i = share.site.i, parity = share.site.parity;
  const Coordinates c = coordinates_of(w.lattice, i, parity);
  const Hops hops(w.lattice, c);
  Matrix3<T> outer = Matrix3<T>::zero();
  for (int k = 0; k < w.count; ++k) {
    const Field<T> even = field_of<T>(w.first[k], w.lattice, blockIdx.y),
                   odd = field_of<T>(w.second[k], w.lattice, blockIdx.y);
    const ColourVector<T> ahead = (parity ? even : odd).load(i + hops.forward(mu));
    const double factor = (parity == 0 ? -2.0 : 2.0) * w.numbers[k];
    outer_acc(static_cast<T>(factor), ahead, (parity ? odd : even).load(i), outer);
  }
  const Hopping<T> links{static_cast<typename Word<T>::type*>(w.hopping)};
  const Matrix3<T> link =
      hopping_link(unfolded<T>(links.load(share.site.place(w.lattice), mu), signs_at(w.lattice, c) >> mu & 1), T(0.5));
  const Momenta<T> momenta(w.momenta, w.lattice);
  Algebra<T> pi = momenta.load(share.site, mu);
  kick_by(im_trace_generators(mul(link, outer)), pi);
  momenta.store(pi, share.site, mu);
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
KERNEL(hop_all_fields, colour_threads, 8, 12, hop_fields<T>)
KERNEL(staggered_force, 4 * block_sites, 2, 3, force<T>)

}  // namespace mf::gpu
