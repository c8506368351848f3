// Gauge fields on a GPU: which thread updates or measures which link. What happens to a link is in the headers that the
// CPU compiles, too; with no contraction (-fmad=false) it happens to the same bits.
#include "measure.hpp"
#include "motion.cuh"

namespace mf::gpu {

// A thread a site of both parities.
inline constexpr int site_threads = 128;
struct SiteShare : Share {
  __device__ __forceinline__ explicit SiteShare(const Lattice& l)
      : Share(l, (blockIdx.x >> 1) * site_threads + threadIdx.x, blockIdx.x & 1, blockIdx.y) {}
};

template <class T>
__device__ __forceinline__ void set_unit(const Work& w) {
  const LinkShare share(w.lattice);
  Matrix3<T> m = Matrix3<T>::zero();
  for (int k = 0; k < 3; ++k) m.e[k][k].re = T(1);
  if (share.live) Links<T>(w.links, w.lattice).store(m, share.site, share.mu);
}

MF_INLINE u32 number_in_file(const Lattice& l, const Site& site) {
  return number_in_file(l, coordinates_of(l, site.i, site.parity));
}

// N complex numbers a link, or pairs of reals, between file order (Nt, Nz, Ny, Nx, 4, ...) in double and the blocks.
template <class T, int N, bool In>
__device__ __forceinline__ void copy_numbers(const Work& w, void* field) {
  const LinkShare share(w.lattice);
  if (!share.live) return;
  const LinkNumbers<T, double, N> numbers(field, w.lattice);
  double2* host = static_cast<double2*>(w.host);
  host += (static_cast<i64>(number_in_file(w.lattice, share.site)) * 4 + share.mu) * N;
  if constexpr (In)
    numbers.set(share.site, share.mu, [&](int n) { return Complex<double>{host[n].x, host[n].y}; });
  else
    numbers.each(share.site, share.mu, [&](int n, Complex<double> z) { host[n] = make_double2(z.re, z.im); });
}
template <class T, bool In>
__device__ __forceinline__ void copy_links(const Work& w) {
  copy_numbers<T, 9, In>(w, w.links);
}
template <class T, bool In>
__device__ __forceinline__ void copy_momenta(const Work& w) {
  copy_numbers<T, 4, In>(w, w.momenta);
}

// What is drawn for a link: draw(chain's address, site's number, mu).
template <class Field, class Draw>
__device__ __forceinline__ void set_drawn(const Work& w, const Field& field, Draw draw) {
  const LinkShare share(w.lattice);
  if (!share.live) return;
  const u32 number = number_in_file(w.lattice, share.site);
  field.store(draw(w.address(blockIdx.y), &number, share.mu), share.site, share.mu);
}
template <class T>
__device__ __forceinline__ void set_hot(const Work& w) {
  set_drawn(w, Links<T>(w.links, w.lattice),
            [](const ChainAddress& at, const u32* number, int mu) { return haar_link<T>(at, number, mu); });
}
template <class T>
__device__ __forceinline__ void refresh_momenta(const Work& w) {
  set_drawn(w, Momenta<T>(w.momenta, w.lattice),
            [](const ChainAddress& at, const u32* number, int mu) { return fresh_momenta<T>(at, number, mu); });
}

template <class T>
__device__ __forceinline__ void reunitarise_links(const Work& w) {
  const LinkShare share(w.lattice);
  if (!share.live) return;
  const Links<T> links(w.links, w.lattice);
  Matrix3<T> m = links.load(share.site, share.mu);
  reunitarise(m);
  links.store(m, share.site, share.mu);
}

// The start of a trajectory.
template <class T>
__device__ __forceinline__ void begin(const Work& w) {
  reunitarise_links<T>(w);
  refresh_momenta<T>(w);
}

// Sweeps: a thread a site of w.parity, whose link w.mu it updates.
inline constexpr int sweep_threads = 64;
template <class T, class Rotation>
__device__ __forceinline__ void sweep(const Work& w, Rotation rotation) {
  const Share share(w.lattice, blockIdx.x * sweep_threads + threadIdx.x, w.parity, blockIdx.y);
  const Coordinates c = coordinates_of(w.lattice, share.site.i, share.site.parity);
  const Hops hops(w.lattice, c);
  const Links<T> links(w.links, w.lattice);
  const u32 number = number_in_file(w.lattice, c);
  const Matrix3<T> u =
      updated_by_subgroups(links, Near{&hops, share.site}, w.mu,
                           [&](int subgroup, const Quaternion<T>& part) { return rotation(number, subgroup, part); });
  if (share.live) links.store(u, share.site, w.mu);
}

// A call: three copies of the draw in line are more code than the instruction cache holds.
template <class T>
__device__ __noinline__ Quaternion<T> drawn_rotation(Quaternion<T> part, ChainRow row, u32 number, int mu,
                                                     int subgroup) {
  const ChainAddress address{PhiloxKeys(row.seed), row.stream, row.step};
  return heatbath_rotation(part, row.beta, address, &number, mu, subgroup);
}
template <class T>
__device__ __forceinline__ void heatbath(const Work& w) {
  ChainRow row = w.chain(blockIdx.y);
  row.step = row.step * w.times + w.ahead;
  sweep<T>(w, [&](u32 number, int subgroup, const Quaternion<T>& part) {
    return drawn_rotation(part, row, number, w.mu, subgroup);
  });
}
template <class T>
__device__ __forceinline__ void overrelax(const Work& w) {
  sweep<T>(w, [](u32, int, const Quaternion<T>& part) { return overrelaxation_rotation(part); });
}

// Sums of plaquettes, one thread per site. One kernel serves any number of chains: a second one for few sites would
// add in another order, and the row of a chain would depend on how many chains run beside it.
// Calls use(Re tr U_p, whether the plane contains time) for each of the six planes.
template <class T, class Use>
__device__ __forceinline__ void each_plaquette(const Work& w, const SiteShare& share, Use use) {
  const Hops hops(w.lattice, coordinates_of(w.lattice, share.site.i, share.site.parity));
  const Links<T, double> links(w.links, w.lattice);
  for (int plane = 0; plane < 6; ++plane) {
    const int mu = plane < 3 ? 0 : plane < 5 ? 1 : 2, nu = plane < 3 ? plane + 1 : plane < 5 ? plane - 1 : 3;
    use(plaquette(links, Near{&hops, share.site}, mu, nu), nu == 3);
  }
}
// Energy of the momenta of a site, if there are any.
template <class T>
__device__ __forceinline__ double kinetic_of(const Work& w, const SiteShare& share) {
  double sum = 0;
  for (int mu = 0; w.momenta && mu < 4; ++mu) {
    const Algebra<double> pi = Momenta<T, double>(w.momenta, w.lattice).load(share.site, mu);
    double squares = 0;
    for (int c = 0; c < 8; ++c) squares += pi.c[c] * pi.c[c];
    sum += 0.5 * squares;
  }
  return sum;
}
template <class T>
__device__ __forceinline__ void sum_plaquettes(const Work& w) {
  const SiteShare share(w.lattice);
  double space = 0, time = 0;
  each_plaquette<T>(w, share, [&](double trace, bool temporal) { (temporal ? time : space) += trace; });
  sum_up<site_threads>(w.sums, share.live, {space / 3.0, time / 3.0});
}
// S / beta and, where there are momenta, their energy.
template <class T>
__device__ __forceinline__ void sum_wilson(const Work& w) {
  const SiteShare share(w.lattice);
  double action = 0;
  each_plaquette<T>(w, share, [&](double trace, bool) { action += one_minus_third(trace); });
  sum_up<site_threads>(w.sums, share.live, {action, kinetic_of<T>(w, share)});
}
template <class T>
__device__ __forceinline__ void sum_rectangle(const Work& w) {
  const SiteShare share(w.lattice);
  const double action = RectangleAction{w.c1}.energy(Links<T, double>(w.links, w.lattice), Far(w.lattice, share.site));
  sum_up<site_threads>(w.sums, share.live, {action, kinetic_of<T>(w, share)});
}
template <class T>
__device__ __forceinline__ void sum_clover(const Work& w) {
  const SiteShare share(w.lattice);
  const Hops hops(w.lattice, coordinates_of(w.lattice, share.site.i, share.site.parity));
  const CloverSums sums = clover_at(Links<T>(w.links, w.lattice), Near{&hops, share.site});
  sum_up<site_threads>(w.sums, share.live, {sums.energy, sums.charge});
}
// Lines along time start at the sites of the first slice, which has the first numbers of either parity.
template <class T>
__device__ __forceinline__ void sum_polyakov(const Work& w) {
  const int lines = w.lattice.half / w.lattice.extent[3];
  Share share(w.lattice, (blockIdx.x >> 1) * site_threads + threadIdx.x, blockIdx.x & 1, blockIdx.y);
  share.live = share.live && share.site.i < lines;
  if (!share.live) share.site.i = 0;
  const Complex<T> loop = polyakov_at(Links<T>(w.links, w.lattice), Far(w.lattice, share.site), w.lattice.extent[3]);
  sum_up<site_threads>(w.sums, share.live, {static_cast<double>(loop.re) / 3.0, static_cast<double>(loop.im) / 3.0});
}
template <class T>
__device__ __forceinline__ void sum_kinetic(const Work& w) {
  const SiteShare share(w.lattice);
  sum_up<site_threads>(w.sums, share.live, {kinetic_of<T>(w, share)});
}

// Chains that are moved without the host: the end of a trajectory, as in lattice/hmc.py. Every thread makes the
// Metropolis test of its chain; where it is passed, links <- `to`. The row gets dH and whether it was accepted.
template <class T>
__device__ __forceinline__ void settle(const Work& w) {
  const int chain = blockIdx.y;
  const double* e = w.energies + 4 * chain;
  const double beta = w.chain(chain).beta, before = beta * e[0] + e[1], after = beta * e[2] + e[3];
  const double delta_h = after - before;
  const ChainAddress at = w.address(chain);
  const double u = philox_uniform2(at.keys, PhiloxAddress<u64>{accept_draws, 0, at.step, at.stream}).first;
  // A trajectory that went astray is a rejection: comparisons with what is not a number are false.
  const bool accepted = log_positive(u) < -delta_h || (w.always && delta_h - delta_h == 0.0);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    w.sums.row(chain)[0] = delta_h;
    w.sums.row(chain)[1] = accepted ? 1.0 : 0.0;
  }
  const LinkShare share(w.lattice);
  if (accepted && share.live)
    Links<T>(w.links, w.lattice).store(Links<T>(w.to, w.lattice).load(share.site, share.mu), share.site, share.mu);
}
// The end of an update.
__device__ __forceinline__ void advance(const Work& w) {
  w.rows[blockIdx.y].step += 1;
  if (blockIdx.y == 0) *w.slot = (*w.slot + 1) % w.slots;
}

KERNEL(set_unit, link_threads, 1, 1, set_unit<T>)
KERNEL(pack_links, link_threads, 1, 1, copy_links<T, true>)
KERNEL(unpack_links, link_threads, 1, 1, copy_links<T, false>)
KERNEL(pack_momenta, link_threads, 1, 1, copy_momenta<T, true>)
KERNEL(unpack_momenta, link_threads, 1, 1, copy_momenta<T, false>)
KERNEL(set_hot, link_threads, 1, 1, set_hot<T>)
KERNEL(refresh_momenta, link_threads, 1, 1, refresh_momenta<T>)
KERNEL(reunitarise, link_threads, 1, 1, reunitarise_links<T>)
KERNEL(begin_trajectory, link_threads, 1, 1, begin<T>)
KERNEL(heatbath, sweep_threads, 4, 8, heatbath<T>)
KERNEL(overrelax, sweep_threads, 4, 8, overrelax<T>)
KERNEL(kick_wilson, link_threads, 3, 4, kick_wilson<Alone<T>, false>)
KERNEL(kick_move, link_threads, 3, 4, kick_wilson<Alone<T>, true>)
KERNEL(kick_wilson_few, link_threads, 2, 2, kick_wilson<Alone<T>, false>)
KERNEL(kick_move_few, link_threads, 2, 2, kick_wilson<Alone<T>, true>)
KERNEL(kick_rectangle, link_threads, 2, 3, kick_rectangle<Alone<T>>)
KERNEL(move_links, link_threads, 1, 1, move_links<Alone<T>>)
KERNEL(sum_plaquettes, site_threads, 3, 3, sum_plaquettes<T>)
KERNEL(sum_wilson, site_threads, 3, 3, sum_wilson<T>)
KERNEL(sum_rectangle, site_threads, 2, 2, sum_rectangle<T>)
KERNEL(sum_clover, site_threads, 2, 3, sum_clover<T>)
KERNEL(sum_polyakov, site_threads, 1, 1, sum_polyakov<T>)
KERNEL(sum_kinetic, site_threads, 1, 1, sum_kinetic<T>)
KERNEL(settle_links, link_threads, 1, 1, settle<T>)
KERNEL(advance_all, 1, 1, 1, advance)

}  // namespace mf::gpu
