// Gauge actions of plaquettes and 1 x 2 rectangles (Luscher and Weisz, CMP 97 (1985) 59):
//   S = beta sum [c0 (1 - Re tr U_p / 3) + c1 (1 - Re tr U_r / 3)],   c0 = 1 - 8 c1,
// over all plaquettes p and both orientations of all rectangles r. c1 = -1/12 is the tree-level Symanzik action,
// -0.331 Iwasaki's, 0 Wilson's. Links of one parity share rectangles, so even-odd sweeps do not apply to it.
#pragma once

#include "gauge.hpp"

namespace mf {

// Re tr U_r of the rectangle at x with its long side along mu.
template <class Links, class Position>
MF_INLINE auto rectangle(const Links& links, const Position& x, int mu, int nu) {
  const Position x_mu = x.forward(mu), x_nu = x.forward(nu), x_mu_nu = x_mu.forward(nu);
  const auto below = mul(mul(links.load(x, mu), links.load(x_mu, mu)), links.load(x_mu.forward(mu), nu));
  const auto above = mul(mul(links.load(x, nu), links.load(x_nu, mu)), links.load(x_mu_nu, mu));
  return re_trace_mul_adj(below, above);
}

template <class T>
MF_INLINE Matrix3<T> scaled(T a, const Matrix3<T>& x) {
  Matrix3<T> m;
  MF_UNROLL
  for (int i = 0; i < 9; ++i) m.e[i / 3][i % 3] = scale(a, x.e[i / 3][i % 3]);
  return m;
}
// a X + b Y
template <class T>
MF_INLINE Matrix3<T> blend(T a, const Matrix3<T>& x, T b, const Matrix3<T>& y) {
  Matrix3<T> m;
  MF_UNROLL
  for (int i = 0; i < 9; ++i) {
    const Complex<T> p = x.e[i / 3][i % 3], q = y.e[i / 3][i % 3];
    m.e[i / 3][i % 3] = {mul_add(b, q.re, a * p.re), mul_add(b, q.im, a * p.im)};
  }
  return m;
}

struct RectangleAction {
  double c1;

  MF_INLINE double c0() const { return 1.0 - 8.0 * c1; }

  // The sum A of the staples of U_mu(x), weighted. On either side of the link, in the plane of nu, paths lead back from
  // x + mu to x: N, across^dagger, L^dagger above, and N^dagger, across^dagger, L below. A rectangle replaces one of
  // the three by the way around the next plaquette: N by `right`, the link across by `far`, L by `left`. So a side is
  //   above: (c0 N + c1 right) [L across]^dagger + c1 N [left across + L far]^dagger,
  //   below: [across (c0 N + c1 right)]^dagger L + c1 N^dagger (across^dagger left + far^dagger L).
  template <class Links, class Position>
  MF_INLINE auto staple(const Links& links, const Position& x, int mu) const {
    using M = decltype(links.load(x, mu));
    using V = decltype(links.load(x, mu).e[0][0].re + links.load(x, mu).e[0][0].re);
    using Real = typename LaneTraits<V>::Real;
    const V plain(static_cast<Real>(c0())), bent(static_cast<Real>(c1));
    const Position ahead = x.forward(mu), behind = x.backward(mu);
    M sum = M::zero();
    // Links are loaded where they are used, some of them twice: five matrices at once are what registers hold.
    MF_ROLLED_ON_GPU
    for (int other = 0; other < 3; ++other) {
      const int nu = other < mu ? other : other + 1;
      {
        const Position up = x.forward(nu), up_ahead = up.forward(mu);
        {
          const M right =
              mul_adj(mul(links.load(ahead, mu), links.load(ahead.forward(mu), nu)), links.load(up_ahead, mu));
          const M n = blend(plain, links.load(ahead, nu), bent, right);
          mul_adj_acc(n, mul(links.load(x, nu), links.load(up, mu)), sum);
        }
        const M left = mul(adj_mul(links.load(behind, mu), links.load(behind, nu)), links.load(up.backward(mu), mu));
        M way = mul(left, links.load(up, mu));
        const M far = mul_adj(mul(links.load(up, nu), links.load(up.forward(nu), mu)), links.load(up_ahead, nu));
        mul_acc(links.load(x, nu), far, way);
        mul_adj_acc(scaled(bent, links.load(ahead, nu)), way, sum);
      }
      {
        const Position down = x.backward(nu), down_ahead = down.forward(mu);
        {
          const M right =
              mul_adj(mul(links.load(down_ahead, mu), links.load(down_ahead.forward(mu), nu)), links.load(ahead, mu));
          const M n = blend(plain, links.load(down_ahead, nu), bent, right);
          adj_mul_acc(mul(links.load(down, mu), n), links.load(down, nu), sum);
        }
        const Position down_behind = down.backward(mu), down2 = down.backward(nu);
        const M left = mul(adj_mul(links.load(down_behind, mu), links.load(down_behind, nu)), links.load(behind, mu));
        M way = adj_mul(links.load(down, mu), left);
        const M far = mul(adj_mul(links.load(down2, nu), links.load(down2, mu)), links.load(down2.forward(mu), nu));
        adj_mul_acc(far, links.load(down, nu), way);
        adj_mul_acc(scaled(bent, links.load(down_ahead, nu)), way, sum);
      }
    }
    return sum;
  }

  // S / beta of the loops at x, summed over a vector of sites.
  template <class Links, class Position>
  MF_INLINE double energy(const Links& links, const Position& x) const {
    double rectangles = 0;
    for (int mu = 0; mu < 4; ++mu)
      for (int nu = 0; nu < 4; ++nu)
        if (nu != mu) rectangles += one_minus_third(rectangle(links, x, mu, nu));
    return c0() * WilsonAction{}.energy(links, x) + c1 * rectangles;
  }
};

}  // namespace mf
