// What is measured at a site: the terms that drivers add up.
#pragma once

#include "fields.hpp"
#include "gauge.hpp"

namespace mf {

// A view of links that computes in double, whatever their precision: energies are always sums of doubles.
template <class V>
struct DoubleLinks {
  Links<V> links;
  MF_INLINE auto load(const Position& x, int mu) const {
    if constexpr (sizeof(typename LaneTraits<V>::Real) == sizeof(double)) {
      return links.load(x, mu);
    } else {
      const Matrix3<V> m = links.load(x, mu);
      using D = decltype(convert<double>(m.e[0][0].re));
      Matrix3<D> d;
      for (int i = 0; i < 9; ++i) {
        const auto& z = m.e[i / 3][i % 3];
        d.e[i / 3][i % 3] = {convert<double>(z.re), convert<double>(z.im)};
      }
      return d;
    }
  }
};

// Re tr U_p / 3 of a vector of sites, summed over its spatial and over its temporal planes.
struct PlaneSums {
  double spatial, temporal;
};
template <class Links, class Position>
MF_INLINE PlaneSums plaquettes_at(const Links& links, const Position& x) {
  double space = 0, time = 0;
  for (int mu = 0; mu < 3; ++mu) {
    time += horizontal_sum(plaquette(links, x, mu, 3));
    for (int nu = mu + 1; nu < 3; ++nu) space += horizontal_sum(plaquette(links, x, mu, nu));
  }
  return {space / 3.0, time / 3.0};
}

// tr of the product of U_t along the `extent` links of a line that starts at x.
template <class Links, class Position>
MF_INLINE auto polyakov_at(const Links& links, Position x, int extent) {
  auto line = links.load(x, 3);
  for (int t = 1; t < extent; ++t) {
    x = x.forward(3);
    line = mul(line, links.load(x, 3));
  }
  return trace(line);
}

// The clover energy density E = F^a F^a / 4 (all mu, nu) and the topological charge density
// q = (F_01 . F_23 - F_02 . F_13 + F_03 . F_12) / (8 pi^2), summed over a vector of sites.
struct CloverSums {
  double energy, charge;
};
template <class Links, class Position>
MF_INLINE CloverSums clover_at(const Links& links, const Position& x) {
  using V = decltype(links.load(x, 0).e[0][0].re + links.load(x, 0).e[0][0].re);
  using Real = typename LaneTraits<V>::Real;
  constexpr int planes[3][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 3, 1, 2}};
  V energies(Real(0)), charges(Real(0));
  for (int p = 0; p < 3; ++p) {
    const auto f = clover(links, x, planes[p][0], planes[p][1]), g = clover(links, x, planes[p][2], planes[p][3]);
    V dot(Real(0));
    for (int c = 0; c < 8; ++c) {
      energies = mul_add(f.c[c], f.c[c], mul_add(g.c[c], g.c[c], energies));
      dot = mul_add(f.c[c], g.c[c], dot);
    }
    charges = p == 1 ? charges - dot : charges + dot;
  }
  constexpr double inverse_8_pi2 = 0.012665147955292221430;
  return {0.5 * static_cast<double>(horizontal_sum(energies)),
          inverse_8_pi2 * static_cast<double>(horizontal_sum(charges))};
}

}  // namespace mf
