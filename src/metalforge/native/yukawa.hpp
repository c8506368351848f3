// Particles that repel each other by phi(r) = exp(-kappa r) / r, in units of the one-component plasma: length
// a = (3 / (4 pi n))^(1/3), time 1 / omega_p, energy Q^2 / (4 pi eps0 a). Then the mass is 3 and kT = 1 / Gamma.
//
//   force / r = exp(-kappa r) (1 / r + kappa) / r^2,      virial of a pair  r F = phi (1 + kappa r)
//
// R is a plain real (a CUDA thread, one pair) or a Simd (one pair a lane).
#pragma once

#include "elementary.hpp"

namespace mf {

template <class R>
struct PairTerm {
  R force;   // divided by r: times the difference of positions it is the force
  R energy;  // phi(r), not shifted
};

template <class R>
struct Distance {
  R r2, r, inverse2;
};

template <class Real>
struct Yukawa {
  Real kappa;
  Real cutoff2;
  Real shift;      // phi at the cut-off, which is taken off the energy of each pair within
  Real per_power;  // kappa log2(e): exp(-kappa r) = 2^(-per_power r)

  MF_INLINE static Yukawa of(double kappa, double cutoff, double phi_at_cutoff) {
    return {static_cast<Real>(kappa), static_cast<Real>(cutoff * cutoff), static_cast<Real>(phi_at_cutoff),
            static_cast<Real>(kappa * 1.4426950408889634074)};
  }

  // What is slow to have of a distance^2, apart from the rest so that a loop can begin it for the next pairs. The
  // square root and the division do not wait for each other, and are correctly rounded everywhere: a pair has the same
  // bits on every CPU with fused multiply-adds. Estimates of 1/sqrt are as fast and differ from maker to maker.
  template <class R>
  MF_INLINE static Distance<R> distance(R r2) {
    return {r2, sqrt(r2), R(Real(1)) / r2};
  }
  // A pair at a distance; nothing where that is not within the cut-off, whatever r2 is there.
  template <class R>
  MF_INLINE PairTerm<R> at(const Distance<R>& d) const {
    return terms(d.r2, d.r, d.r * d.inverse2, d.inverse2);
  }
  // The same where 1 / r is known, as on GPUs, which have a fast estimate of it and slow square roots and divisions.
  template <class R>
  MF_INLINE PairTerm<R> at(R r2, R inverse) const {
    return terms(r2, r2 * inverse, inverse, inverse * inverse);
  }

 private:
  template <class R>
  MF_INLINE PairTerm<R> terms(R r2, R r, R inverse, R inverse2) const {
    const auto within = r2 < R(cutoff2);
    const R decay = exp2_of(r * R(-per_power));
    const R none = R(Real(0));
    return {select(within, (decay * inverse2) * (inverse + R(kappa)), none), select(within, decay * inverse, none)};
  }
};

// Six numbers of a symmetric tensor: xx, yy, zz, xy, yz, zx.
template <class R>
struct Symmetric {
  R of[6];

  // Adds factor a b^T, which is symmetric where b is along a.
  MF_INLINE void add(R factor, R ax, R ay, R az, R bx, R by, R bz) {
    const R x = factor * ax, y = factor * ay, z = factor * az;
    of[0] = mul_add(x, bx, of[0]);
    of[1] = mul_add(y, by, of[1]);
    of[2] = mul_add(z, bz, of[2]);
    of[3] = mul_add(x, by, of[3]);
    of[4] = mul_add(y, bz, of[4]);
    of[5] = mul_add(z, bx, of[5]);
  }
};

// The part of a Langevin step between its two half moves (BAOAB, Leimkuhler and Matthews 2013): velocities decay and
// are kicked, v = keep v + noise xi.
template <class R>
MF_INLINE R thermal_kick(R velocity, R keep, R noise, R xi) {
  return mul_add(keep, velocity, noise * xi);
}

}  // namespace mf
