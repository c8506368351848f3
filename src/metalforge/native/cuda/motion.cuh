// Molecular dynamics on a GPU: what kernels are told, which thread has which link, and what a kick and a move do to it.
#pragma once

#include "rectangle.hpp"
#include "sites.cuh"
#include "update.hpp"

namespace mf::gpu {

// What a kernel is told; each takes what it needs. native/cuda/grid.py has the same record.
struct Work {
  Lattice lattice;
  int parity, mu;                         // of a sweep
  ChainRow* rows;                         // one a chain, or none:
  ChainRow one;                           // then this is the only chain
  u32 times, ahead;                       // random numbers are those of step * times + ahead
  void *links, *to, *momenta;             // fields; `to` is where links go that others still read
  void *pairs, *pairs_to, *pair_momenta;  // the same as double-floats, where a strategy has them
  void* host;                             // numbers in file order
  Sums sums;
  double keep, coefficient, eps, c1;
  double* energies;  // before and after a trajectory: S / beta and the kinetic energy, twice
  u32 *slot, slots;  // the row of results that is next, and how many there are
  u32 always;        // accept whatever is finite
  u32 pair_share;    // how many of `shares` blocks work with double-floats

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

// The fields of a trajectory as a block sees them: in T, one copy of each.
template <class T>
struct Alone {
  using Real = T;
  const Work& w;

  MF_INLINE Links<T> links() const { return {w.links, w.lattice}; }
  MF_INLINE Momenta<T> momenta() const { return {w.momenta, w.lattice}; }
  MF_INLINE void put(const Matrix3<T>& u, const LinkShare& share) const {
    if (share.live) Links<T>(w.to, w.lattice).store(u, share.site, share.mu);
  }
};

// Links that the compiler may not load before their turn, nor keep: a matrix is 36 registers.
template <class L>
struct InTurn {
  L links;
  template <class Position>
  __device__ __forceinline__ auto load(const Position& x, int mu) const {
    __syncwarp();
    return links.load(x, mu);
  }
};

// The double that x / 3 rounds to, without a division: the remainder of x * (1 / 3) is exact (Markstein, IBM J. Res.
// Dev. 34 (1990) 111).
MF_INLINE double third_of(double x) {
  const double third = 1.0 / 3.0, q = x * third;
  return fma(fma(-3.0, q, x), third, q);
}

// pi <- keep pi - coefficient beta / 3 Im tr(T_a U A); with Move also U' = exp(i eps pi) U, into another buffer, since
// others still need U.
template <bool Move, class Fields, class Links, class Action, class Position>
__device__ __forceinline__ void kick(const Fields& fields, const Links& links, const Action& action,
                                     const LinkShare& share, const Position& x) {
  using T = typename Fields::Real;
  const Work& w = fields.w;
  const auto momenta = fields.momenta();
  const Algebra<T> force = force_over_beta_third(action, links, x, share.mu);
  Algebra<T> pi = momenta.load(share.site, share.mu);
  kick_by(force, static_cast<T>(w.keep), static_cast<T>(third_of(w.coefficient * w.chain(blockIdx.y).beta)), pi);
  if (share.live) momenta.store(pi, share.site, share.mu);
  if constexpr (Move) {
    const Matrix3<T> step = link_step(pi, static_cast<T>(w.eps));
    fields.put(mul(step, links.load(x, share.mu)), share);
  }
}
template <class Fields, bool Move>
__device__ __forceinline__ void kick_wilson(const Work& w) {
  const Fields fields{w};
  const LinkShare share(w.lattice);
  const Hops hops(w.lattice, coordinates_of(w.lattice, share.site.i, share.site.parity));
  kick<Move>(fields, fields.links(), WilsonAction{}, share, Near{&hops, share.site});
}
template <class Fields>
__device__ __forceinline__ void kick_rectangle(const Work& w) {
  const Fields fields{w};
  const LinkShare share(w.lattice);
  const InTurn<decltype(fields.links())> links{fields.links()};
  kick<false>(fields, links, RectangleAction{w.c1}, share, Far(w.lattice, share.site));
}
template <class Fields>
__device__ __forceinline__ void move_links(const Work& w) {
  using T = typename Fields::Real;
  const Fields fields{w};
  const LinkShare share(w.lattice);
  const Matrix3<T> step = link_step(fields.momenta().load(share.site, share.mu), static_cast<T>(w.eps));
  fields.put(mul(step, fields.links().load(share.site, share.mu)), share);
}

}  // namespace mf::gpu
