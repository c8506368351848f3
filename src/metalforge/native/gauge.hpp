// Closed paths of links around a site. `Links` gives the gauge field: links.at(x) is a position, x.forward(nu) and
// x.backward(nu) its neighbours, links.load(x, mu) the matrix U_mu(x). What a position is (a vector of sites on a CPU,
// one site of a CUDA thread) is the driver's business.
#pragma once

#include "su3.hpp"

namespace mf {

// U_mu(x) as a factor of products: the matrix, or where to find it (fields.hpp).
template <class Links, class Position>
MF_INLINE auto factor(const Links& links, const Position& x, int mu) {
  return links.load(x, mu);
}

// The sum A of the six staples of U_mu(x): the part of sum_p Re tr U_p that holds U_mu(x) is Re tr(U_mu(x) A).
//   upper: U_nu(x+mu) [U_nu(x) U_mu(x+nu)]^dagger      lower: [U_mu(x-nu) U_nu(x-nu+mu)]^dagger U_nu(x-nu)
template <class Links, class Position>
MF_INLINE auto staple(const Links& links, const Position& x, int mu) {
  using M = decltype(mul(factor(links, x, mu), factor(links, x, mu)));
  M sum = M::zero();
  const Position x_mu = x.forward(mu);
  for (int nu = 0; nu < 4; ++nu) {
    if (nu == mu) continue;
    {
      const M side = mul(factor(links, x, nu), factor(links, x.forward(nu), mu));
      mul_adj_acc(factor(links, x_mu, nu), side, sum);
    }
    {
      const Position below = x.backward(nu);
      const M side = mul(factor(links, below, mu), factor(links, x_mu.backward(nu), nu));
      adj_mul_acc(side, factor(links, below, nu), sum);
    }
  }
  return sum;
}

// Re tr U_p of the plaquette at x in the (mu, nu) plane.
template <class Links, class Position>
MF_INLINE auto plaquette(const Links& links, const Position& x, int mu, int nu) {
  return re_trace_mul_adj(mul(links.load(x, mu), links.load(x.forward(mu), nu)),
                          mul(links.load(x, nu), links.load(x.forward(nu), mu)));
}

// The sum over lanes of 1 - t / 3.
template <class V>
MF_INLINE double one_minus_third(V t) {
  using Real = typename LaneTraits<V>::Real;
  return static_cast<double>(horizontal_sum(V(Real(1)) - V(Real(1)) / V(Real(3)) * t));
}

// What an action is to the kernels: its staples A, so that dS/dw_a of U_mu(x) is beta/3 Im tr(T_a U A), and S / beta of
// the loops that start at x, summed over a vector of sites. This one is Wilson's, S = beta sum_p (1 - Re tr U_p / 3).
struct WilsonAction {
  template <class Links, class Position>
  MF_INLINE auto staple(const Links& links, const Position& x, int mu) const {
    return mf::staple(links, x, mu);
  }
  template <class Links, class Position>
  MF_INLINE double energy(const Links& links, const Position& x) const {
    double sum = 0;
    for (int mu = 0; mu < 4; ++mu)
      for (int nu = mu + 1; nu < 4; ++nu) sum += one_minus_third(plaquette(links, x, mu, nu));
    return sum;
  }
};

// The field strength F_mu,nu(x) = sum_a F_a T_a from the clover of four plaquettes Q: F_a = Im tr(T_a Q) * 2 / 4, which
// is the traceless Hermitian part of Q / (4 i) (Luscher, arXiv:1006.4518, eq. 3.x; Sheikholeslami and Wohlert 1985).
template <class Links, class Position>
MF_INLINE auto clover(const Links& links, const Position& x, int mu, int nu) {
  using M = decltype(links.load(x, mu));
  const Position e = x.forward(mu), n = x.forward(nu), w = x.backward(mu), s = x.backward(nu);
  const Position nw = n.backward(mu), se = e.backward(nu), sw = w.backward(nu);
  M sum = M::zero();
  // Counter-clockwise, each starting and ending at x.
  mul_adj_acc(mul(links.load(x, mu), links.load(e, nu)), mul(links.load(x, nu), links.load(n, mu)), sum);
  mul_acc(mul_adj(links.load(x, nu), links.load(nw, mu)), adj_mul(links.load(w, nu), links.load(w, mu)), sum);
  adj_mul_acc(mul(links.load(sw, nu), links.load(w, mu)), mul(links.load(sw, mu), links.load(s, nu)), sum);
  mul_adj_acc(adj_mul(links.load(s, nu), links.load(s, mu)), mul_adj(links.load(x, mu), links.load(se, nu)), sum);
  auto f = im_trace_generators(sum);
  for (auto& c : f.c) c = decltype(c + c)(0.5) * c;
  return f;
}

}  // namespace mf
