// Gauge fields on a GPU: which thread updates or measures which link. What happens to a link is in the headers that the
// CPU compiles, too; with no contraction (-fmad=false) it happens to the same bits.
#include "measure.hpp"
#include "rectangle.hpp"
#include "sites.cuh"
#include "update.hpp"

namespace mf::gpu {

// What a kernel is told; each takes what it needs. native/cuda/grid.py has the same record.
struct Work {
  Lattice lattice;
  int parity, mu;                       // of a sweep
  ChainRow* rows;                       // one a chain, or none:
  ChainRow one;                         // then this is the only chain
  u32 times, ahead;                     // random numbers are those of step * times + ahead
  void *links, *to, *momenta, *backup;  // fields; `to` is where links go that others still read
  void* host;                           // numbers in file order
  Sums sums;
  double keep, coefficient, eps, c1;
  const double* energies;  // before and after a trajectory: S / beta and the kinetic energy, twice
  double* accepted;        // one a chain
  u32 *slot, slots;        // the row of results that is next, and how many there are
  u32 always;              // accept whatever is finite

  MF_INLINE const ChainRow& chain(int number) const { return rows ? rows[number] : one; }
  MF_INLINE ChainAddress address(int number) const {
    const ChainRow& row = chain(number);
    return {PhiloxKeys(row.seed), row.stream, row.step * times + ahead};
  }
};

// A thread a link: a block has 32 sites by 4 directions; even and odd blocks take turns, which share links.
inline constexpr int link_threads = 4 * block_sites;
struct LinkShare : Share {
  int mu;
  __device__ __forceinline__ explicit LinkShare(const Lattice& l)
      : Share(l, (blockIdx.x >> 1) * block_sites + threadIdx.x % block_sites, blockIdx.x & 1, blockIdx.y),
        mu(threadIdx.x / block_sites) {}
};

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

// Between file order (Nt, Nz, Ny, Nx, 4, 3, 3) in double and the blocks.
template <class T, bool In>
__device__ __forceinline__ void copy_links(const Work& w) {
  const LinkShare share(w.lattice);
  if (!share.live) return;
  const Links<T> links(w.links, w.lattice);
  const Coordinates c = coordinates_of(w.lattice, share.site.i, share.site.parity);
  double2* host = static_cast<double2*>(w.host) + (static_cast<i64>(number_in_file(w.lattice, c)) * 4 + share.mu) * 9;
  if constexpr (In) {
    Matrix3<T> m;
    for (int n = 0; n < 9; ++n) m.e[n / 3][n % 3] = {static_cast<T>(host[n].x), static_cast<T>(host[n].y)};
    links.store(m, share.site, share.mu);
  } else {
    const Matrix3<T> m = links.load(share.site, share.mu);
    for (int n = 0; n < 9; ++n) host[n] = make_double2(m.e[n / 3][n % 3].re, m.e[n / 3][n % 3].im);
  }
}

template <class T, bool In>
__device__ __forceinline__ void copy_momenta(const Work& w) {
  const LinkShare share(w.lattice);
  if (!share.live) return;
  const Momenta<T> momenta(w.momenta, w.lattice);
  const Coordinates c = coordinates_of(w.lattice, share.site.i, share.site.parity);
  double* host = static_cast<double*>(w.host) + (static_cast<i64>(number_in_file(w.lattice, c)) * 4 + share.mu) * 8;
  if constexpr (In) {
    Algebra<T> a;
    for (int n = 0; n < 8; ++n) a.c[n] = static_cast<T>(host[n]);
    momenta.store(a, share.site, share.mu);
  } else {
    const Algebra<T> a = momenta.load(share.site, share.mu);
    for (int n = 0; n < 8; ++n) host[n] = a.c[n];
  }
}

template <class T>
__device__ __forceinline__ void set_hot(const Work& w) {
  const LinkShare share(w.lattice);
  if (!share.live) return;
  const u32 number = number_in_file(w.lattice, coordinates_of(w.lattice, share.site.i, share.site.parity));
  const Matrix3<T> m = haar_link<T>(w.address(blockIdx.y), &number, share.mu);
  Links<T>(w.links, w.lattice).store(m, share.site, share.mu);
}

template <class T>
__device__ __forceinline__ void refresh_momenta(const Work& w) {
  const LinkShare share(w.lattice);
  if (!share.live) return;
  const u32 number = number_in_file(w.lattice, coordinates_of(w.lattice, share.site.i, share.site.parity));
  const Algebra<T> pi = fresh_momenta<T>(w.address(blockIdx.y), &number, share.mu);
  Momenta<T>(w.momenta, w.lattice).store(pi, share.site, share.mu);
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

// pi <- keep pi - coefficient beta / 3 Im tr(T_a U A); with Move also U' = exp(i eps pi) U, into another buffer, since
// others still need U.
template <class T, bool Move, class Action, class Position>
__device__ __forceinline__ void kick(const Work& w, const Action& action, const LinkShare& share, const Position& x) {
  const Links<T> links(w.links, w.lattice);
  const Momenta<T> momenta(w.momenta, w.lattice);
  const Algebra<T> force = force_over_beta_third(action, links, x, share.mu);
  Algebra<T> pi = momenta.load(share.site, share.mu);
  kick_by(force, static_cast<T>(w.keep), static_cast<T>(w.coefficient * w.chain(blockIdx.y).beta / 3.0), pi);
  if (share.live) momenta.store(pi, share.site, share.mu);
  if constexpr (Move) {
    const Matrix3<T> step = link_step(pi, static_cast<T>(w.eps));
    const Matrix3<T> moved = mul(step, links.load(x, share.mu));
    if (share.live) Links<T>(w.to, w.lattice).store(moved, share.site, share.mu);
  }
}
template <class T, bool Move>
__device__ __forceinline__ void kick_wilson(const Work& w) {
  const LinkShare share(w.lattice);
  const Hops hops(w.lattice, coordinates_of(w.lattice, share.site.i, share.site.parity));
  kick<T, Move>(w, WilsonAction{}, share, Near{&hops, share.site});
}
template <class T>
__device__ __forceinline__ void kick_rectangle(const Work& w) {
  const LinkShare share(w.lattice);
  kick<T, false>(w, RectangleAction{w.c1}, share, Far{&w.lattice, share.site});
}

template <class T>
__device__ __forceinline__ void move_links(const Work& w) {
  const LinkShare share(w.lattice);
  if (!share.live) return;
  const Links<T> links(w.links, w.lattice);
  const Matrix3<T> step = link_step(Momenta<T>(w.momenta, w.lattice).load(share.site, share.mu), static_cast<T>(w.eps));
  links.store(mul(step, links.load(share.site, share.mu)), share.site, share.mu);
}

// Sums: a thread a site.
template <class T>
__device__ __forceinline__ void sum_plaquettes(const Work& w) {
  const SiteShare share(w.lattice);
  const Hops hops(w.lattice, coordinates_of(w.lattice, share.site.i, share.site.parity));
  const PlaneSums sums = plaquettes_at(Links<T, double>(w.links, w.lattice), Near{&hops, share.site});
  sum_up<site_threads>(w.sums, share.live, {sums.spatial, sums.temporal});
}
template <class T>
__device__ __forceinline__ void sum_wilson(const Work& w) {
  const SiteShare share(w.lattice);
  const Hops hops(w.lattice, coordinates_of(w.lattice, share.site.i, share.site.parity));
  const Links<T, double> links(w.links, w.lattice);
  sum_up<site_threads>(w.sums, share.live, {WilsonAction{}.energy(links, Near{&hops, share.site})});
}
template <class T>
__device__ __forceinline__ void sum_rectangle(const Work& w) {
  const SiteShare share(w.lattice);
  const Links<T, double> links(w.links, w.lattice);
  sum_up<site_threads>(w.sums, share.live, {RectangleAction{w.c1}.energy(links, Far{&w.lattice, share.site})});
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
  const Complex<T> loop = polyakov_at(Links<T>(w.links, w.lattice), Far{&w.lattice, share.site}, w.lattice.extent[3]);
  sum_up<site_threads>(w.sums, share.live, {static_cast<double>(loop.re) / 3.0, static_cast<double>(loop.im) / 3.0});
}
template <class T>
__device__ __forceinline__ void sum_kinetic(const Work& w) {
  const LinkShare share(w.lattice);
  const Algebra<T> pi = Momenta<T>(w.momenta, w.lattice).load(share.site, share.mu);
  double sum = 0;
  for (int c = 0; c < 8; ++c) sum += static_cast<double>(pi.c[c]) * static_cast<double>(pi.c[c]);
  sum_up<link_threads>(w.sums, share.live, {0.5 * sum});
}

// Chains that are moved without the host. The end of a trajectory, a thread a chain: the Metropolis test of
// lattice/hmc.py; the row gets dH and whether it was accepted.
__device__ __forceinline__ void decide(const Work& w) {
  const int chain = blockIdx.y;
  const double* e = w.energies + 4 * chain;
  const double beta = w.chain(chain).beta, before = beta * e[0] + e[1], after = beta * e[2] + e[3];
  const double delta_h = after - before;
  const ChainAddress at = w.address(chain);
  const double u = philox_uniform2(at.keys, PhiloxAddress<u64>{accept_draws, 0, at.step, at.stream}).first;
  // A trajectory that went astray is a rejection: comparisons with what is not a number are false.
  const bool accepted = log_positive(u) < -delta_h || (w.always && delta_h - delta_h == 0.0);
  w.accepted[chain] = accepted ? 1.0 : 0.0;
  w.sums.row(chain)[0] = delta_h;
  w.sums.row(chain)[1] = w.accepted[chain];
}
// links <- `to` where that was accepted, else the backup.
template <class T>
__device__ __forceinline__ void settle(const Work& w) {
  const LinkShare share(w.lattice);
  if (!share.live) return;
  void* from = w.accepted[blockIdx.y] != 0.0 ? w.to : w.backup;
  if (from != w.links)
    Links<T>(w.links, w.lattice).store(Links<T>(from, w.lattice).load(share.site, share.mu), share.site, share.mu);
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
KERNEL(heatbath, sweep_threads, 4, 8, heatbath<T>)
KERNEL(overrelax, sweep_threads, 6, 8, overrelax<T>)
KERNEL(kick_wilson, link_threads, 3, 4, kick_wilson<T, false>)
KERNEL(kick_move, link_threads, 3, 4, kick_wilson<T, true>)
KERNEL(kick_rectangle, link_threads, 2, 3, kick_rectangle<T>)
KERNEL(move_links, link_threads, 1, 1, move_links<T>)
KERNEL(sum_plaquettes, site_threads, 3, 3, sum_plaquettes<T>)
KERNEL(sum_wilson, site_threads, 3, 3, sum_wilson<T>)
KERNEL(sum_rectangle, site_threads, 2, 2, sum_rectangle<T>)
KERNEL(sum_clover, site_threads, 2, 3, sum_clover<T>)
KERNEL(sum_polyakov, site_threads, 1, 1, sum_polyakov<T>)
KERNEL(sum_kinetic, link_threads, 1, 1, sum_kinetic<T>)
KERNEL(decide_all, 1, 1, 1, decide)
KERNEL(settle_links, link_threads, 1, 1, settle<T>)
KERNEL(advance_all, 1, 1, 1, advance)

}  // namespace mf::gpu
