// Random numbers of the sites of a vector: one address a lane, so that a draw does not depend on the layout.
#pragma once

#include "lattice.hpp"
#include "philox.hpp"

namespace mf::bindings {

struct ChainAddress {
  PhiloxKeys keys;
  u64 stream, step;

  ChainAddress(nb::handle seed, nb::handle stream_object, nb::handle step_object)
      : keys(unsigned_argument(seed, "seed", ~0ull)),
        stream(unsigned_argument(stream_object, "stream", 0xffffffffull)),
        step(unsigned_argument(step_object, "step", 0xffffffffull)) {}

  // The address of the sites in a vector, draw still to be set.
  template <class W>
  MF_INLINE PhiloxAddress<W> at(const u32* sites) const {
    if constexpr (sizeof(W) == sizeof(u64)) {
      return {W(0), W(u64{sites[0]}), W(step), W(stream)};
    } else {
      W site;
      for (int lane = 0; lane < W::lanes; ++lane) site.set(lane, u64{sites[lane]});
      return {W(u64{0}), site, W(step), W(stream)};
    }
  }
};

// The lane type of double draws for V: float vectors have twice as many lanes and take two rounds.
template <class V>
struct Draws {
  static constexpr int rounds = 1;
  using W = u64;
};
template <class T, int L>
struct Draws<Simd<T, L>> {
  static constexpr int lanes = native_lanes<double>;
  static constexpr int rounds = L / lanes;
  using W = Simd<u64, lanes>;
};

// draw(W address base) -> R for each round, joined to one V.
template <class V, class Draw>
MF_INLINE V joined(Draw draw) {
  using Real = typename LaneTraits<V>::Real;
  if constexpr (LaneTraits<V>::lanes == 1) {
    return static_cast<Real>(draw(0));
  } else if constexpr (Draws<V>::rounds == 1) {
    return convert<Real>(draw(0));
  } else {
    return join(convert<Real>(draw(0)), convert<Real>(draw(1)));
  }
}

// Two standard normals for every site of a vector: draw number `draw` of each.
template <class V, class Real>
MF_INLINE Pair<V> normals(const FieldLayout<Real>& layout, const ChainAddress& chain, i64 vector, u64 draw) {
  using W = typename Draws<V>::W;
  const u32* sites = layout.sites_of(vector);
  decltype(philox_normal2(chain.keys, chain.template at<W>(sites))) draws[2];
  for (int round = 0; round < Draws<V>::rounds; ++round) {
    PhiloxAddress<W> at = chain.template at<W>(sites + round * native_lanes<double>);
    at.draw = W(draw);
    draws[round] = philox_normal2(chain.keys, at);
  }
  return {joined<V>([&](int round) { return draws[round].first; }),
          joined<V>([&](int round) { return draws[round].second; })};
}

}  // namespace mf::bindings
