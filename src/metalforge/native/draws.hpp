// Random numbers of the sites of a vector: one address a site, so that a draw depends neither on the layout nor on the
// silicon. V is a plain real (one site) or a Simd (one site a lane); draws are always made in double.
#pragma once

#include "philox.hpp"

namespace mf {

// Which draws of a site belong to what. Fermions have 5 << 28 and 6 << 28; starts of particles 8 << 28.
inline constexpr u64 momentum_draws = u64{1} << 28, hot_draws = u64{2} << 28, heatbath_draws = u64{3} << 28,
                     accept_draws = u64{4} << 28, langevin_draws = u64{7} << 28;

// The address of a chain's random numbers at one of its steps.
struct ChainAddress {
  PhiloxKeys keys;
  u64 stream, step;

  // The address of the sites in a vector, draw still to be set.
  template <class W>
  MF_INLINE PhiloxAddress<W> at(const u32* sites) const {
    if constexpr (sizeof(W) == sizeof(u64)) {
      return {W(0), W(u64{sites[0]}), W(step), W(stream)};
    } else {
      return {W(u64{0}), convert<u64>(Simd<u32, W::lanes>::load(sites)), W(step), W(stream)};
    }
  }
};

// The lane type of double draws for V: float vectors have twice as many lanes and take two rounds.
template <class V>
struct Draws {
  static constexpr int rounds = 1;
  using R = double;
  using W = u64;
};
template <class T, int L>
struct Draws<Simd<T, L>> {
  static constexpr int rounds = L / native_lanes<double>;
  using R = Simd<double, native_lanes<double>>;
  using W = Simd<u64, native_lanes<double>>;
};

// draw(round) of every round, joined to one V.
template <class V, class Draw>
MF_INLINE V joined(Draw draw) {
  using Real = typename LaneTraits<V>::Real;
  if constexpr (Draws<V>::rounds == 1)
    return convert<Real>(draw(0));
  else
    return join(convert<Real>(draw(0)), convert<Real>(draw(1)));
}

// The lanes of x that a round is for, in double.
template <class V>
MF_INLINE typename Draws<V>::R lanes_of_round(V x, int round) {
  if constexpr (Draws<V>::rounds == 1)
    return convert<double>(x);
  else
    return convert<double>(round == 0 ? half_of<0>(x) : half_of<1>(x));
}

// Two standard normals for every site of a vector: draw number `draw` of each.
template <class V>
MF_INLINE Pair<V> normals(const ChainAddress& chain, const u32* sites, u64 draw) {
  using W = typename Draws<V>::W;
  Pair<typename Draws<V>::R> draws[2];
  for (int round = 0; round < Draws<V>::rounds; ++round) {
    PhiloxAddress<W> at = chain.template at<W>(sites + round * native_lanes<double>);
    at.draw = W(draw);
    draws[round] = philox_normal2(chain.keys, at);
  }
  return {joined<V>([&](int round) { return draws[round].first; }),
          joined<V>([&](int round) { return draws[round].second; })};
}

}  // namespace mf
