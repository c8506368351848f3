// What an update does to one link: molecular dynamics, heat bath, overrelaxation, starts. Drivers say which link is
// whose, and when; V is a plain real (one site) or a Simd (one site a lane).
#pragma once

#include "gauge.hpp"
#include "heatbath.hpp"

namespace mf {

MF_INLINE u64 draw_of(u64 purpose, int mu, int number) {
  return purpose | static_cast<u64>(mu) << 26 | static_cast<u64>(number);
}

// Momenta of a link: eight standard normals.
template <class V>
MF_INLINE Algebra<V> fresh_momenta(const ChainAddress& chain, const u32* sites, int mu) {
  Algebra<V> a;
  for (int pair = 0; pair < 4; ++pair) {
    const Pair<V> z = normals<V>(chain, sites, draw_of(momentum_draws, mu, pair));
    a.c[2 * pair] = z.first;
    a.c[2 * pair + 1] = z.second;
  }
  return a;
}

// A link of the Haar measure: two orthonormal complex vectors from Gaussian ones, the third row from them.
template <class V>
MF_INLINE Matrix3<V> haar_link(const ChainAddress& chain, const u32* sites, int mu) {
  Matrix3<V> m = Matrix3<V>::zero();
  for (int entry = 0; entry < 6; ++entry) {
    const Pair<V> z = normals<V>(chain, sites, draw_of(hot_draws, mu, entry));
    m.e[entry / 3][entry % 3] = {z.first, z.second};
  }
  reunitarise(m);
  return m;
}

// exp(i eps H) of the momentum H, the factor by which a link moves.
template <class V>
MF_INLINE Matrix3<V> link_step(const Algebra<V>& momentum, V eps) {
  return exp_i(hermitian(momentum, eps));
}

// The force of an action over beta / 3 at U = U_mu(x): Im tr(T_a U A), with its staple A.
template <class Action, class Links, class Position>
MF_INLINE auto force_over_beta_third(const Action& action, const Links& links, const Position& x, int mu) {
  const auto a = action.staple(links, x, mu);  // before its link is loaded: registers are short
  return im_trace_generators(mul(links.load(x, mu), a));
}

// pi <- keep pi - factor force. In place, and with momenta that are loaded when the force is there: registers are
// short.
template <class V>
MF_INLINE void kick_by(const Algebra<V>& force, V keep, V factor, Algebra<V>& pi) {
  for (int c = 0; c < 8; ++c) pi.c[c] = neg_mul_add(factor, force.c[c], keep * pi.c[c]);
}

// The two rows of a subgroup: (0, 1), (0, 2), (1, 2).
MF_INLINE int upper_row(int subgroup) { return subgroup < 2 ? 0 : 1; }
MF_INLINE int lower_row(int subgroup) { return subgroup < 1 ? 1 : 2; }

// U_mu(x) after an update of each of its SU(2) subgroups in turn; rotate(subgroup, w) gives the g of U <- g U, where w
// is the subgroup's part of U A (heatbath.hpp: su2_part).
template <class Links, class Position, class Rotate>
MF_INLINE auto updated_by_subgroups(const Links& links, const Position& x, int mu, Rotate rotate) {
  const auto a = staple(links, x, mu);
  auto u = links.load(x, mu);
  auto w = mul(u, a);
  for (int s = 0; s < 3; ++s) {
    const int i = upper_row(s), j = lower_row(s);
    const auto g = rotate(s, su2_part(w, i, j));
    rotate_rows(g, i, j, u);
    if (s < 2) rotate_rows(g, i, j, w);
  }
  return u;
}

// The same for the first n of N links at once, none of which is in the staple of another: roots and quotients, each of
// which waits for the one before, overlap. rotate(k, subgroup, w) is for the k-th.
template <int N, class V, class Links, class Position, class Rotate>
MF_INLINE void update_by_subgroups(const Links& links, const Position (&x)[N], int n, int mu, Rotate rotate,
                                   Matrix3<V> (&u)[N]) {
  Matrix3<V> w[N];
  Quaternion<V> g[N];
  MF_ROLLED_ON_CPU
  for (int k = 0; k < n; ++k) {
    u[k] = links.load(x[k], mu);
    w[k] = mul(u[k], staple(links, x[k], mu));
  }
  MF_ROLLED_ON_CPU
  for (int s = 0; s < 3; ++s) {
    const int i = upper_row(s), j = lower_row(s);
    MF_ROLLED_ON_CPU
    for (int k = 0; k < n; ++k) g[k] = rotate(k, s, su2_part(w[k], i, j));
    MF_ROLLED_ON_CPU
    for (int k = 0; k < n; ++k) {
      rotate_rows(g[k], i, j, u[k]);
      if (s < 2) rotate_rows(g[k], i, j, w[k]);
    }
  }
}

}  // namespace mf
