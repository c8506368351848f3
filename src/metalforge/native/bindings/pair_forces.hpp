// The forces of one slab: each of its particles against the clusters of its list, so many lanes at once.
#pragma once

#include "clusters.hpp"
#include "yukawa.hpp"

namespace mf::bindings {

// What a group of clusters is in registers: `lanes` reals, in as many vectors as they take. The same order of additions
// for every width of vectors.
template <class Real>
struct Lanes {
  static constexpr int lanes = Clusters<Real>::group * cluster_size;
  static constexpr int width = native_lanes<Real> < lanes ? native_lanes<Real> : lanes;
  static constexpr int parts = lanes / width;
  using V = Simd<Real, width>;

  // Part p of what lies at `offset[0]`, `offset[1]`, ...
  template <class W = V>
  static MF_INLINE W load(const Real* base, const u32* offset, int p) {
    if constexpr (W::lanes <= cluster_size) {
      const int lane = p * W::lanes;
      return W::load(base + offset[lane / cluster_size] + lane % cluster_size);
    } else {
      using Half = Simd<Real, W::lanes / 2>;
      return join(load<Half>(base, offset, 2 * p), load<Half>(base, offset, 2 * p + 1));
    }
  }
  template <class W>
  static MF_INLINE void store(W x, Real* base, const u32* offset, int p) {
    if constexpr (W::lanes <= cluster_size) {
      const int lane = p * W::lanes;
      x.store(base + offset[lane / cluster_size] + lane % cluster_size);
    } else {
      store(half_of<0>(x), base, offset, 2 * p);
      store(half_of<1>(x), base, offset, 2 * p + 1);
    }
  }
  // The sum of all lanes: pairs that are half of them apart, then half of that.
  static MF_INLINE Real sum(const V (&part)[parts]) {
    V folded[parts];
    for (int p = 0; p < parts; ++p) folded[p] = part[p];
    for (int half = parts / 2; half > 0; half /= 2)
      for (int p = 0; p < half; ++p) folded[p] = folded[p] + folded[p + half];
    return horizontal_sum(folded[0]);
  }
};

// A group of clusters as one particle sees it: where it is, the differences of positions, and the distances. It is had
// one turn before the forces are: a core looks a hundred instructions ahead, which is one turn, and a pair's chain of
// dependent ones (root, power, force) takes as long as two.
template <class Real>
struct Seen {
  using L = Lanes<Real>;
  u32 at[Clusters<Real>::group];
  typename L::V x[L::parts], y[L::parts], z[L::parts];
  Distance<typename L::V> distance[L::parts];
};

// Sums over the pairs of a slab: phi, how many there are within the cut-off, and sum r_a F_b.
inline constexpr int pair_sums = 8;

template <bool Sums, class Real>
void slab_forces(Yukawa<Real> pair, const Clusters<Real>& all, const Slab<Real>& slab, double* sums) {
  using L = Lanes<Real>;
  using V = typename L::V;
  constexpr int parts = L::parts, y_of = cluster_size, z_of = 2 * cluster_size;
  const Real* position = all.positions();
  Real* force = slab.force.data();
  for (u32 c : slab.touched) std::fill_n(force + i64{c} * cluster_reals, cluster_reals, Real(0));
  // Added to distances^2 of a cluster to itself: a particle meets those that stand after it.
  Real apart[cluster_size][L::lanes] = {};
  for (int i = 0; i < cluster_size; ++i)
    for (int j = 0; j <= i; ++j) apart[i][j] = Real(1e30);
  double total[pair_sums] = {};
  const u32* list = slab.list.data();
  for (i64 c = slab.begin; c < slab.end; ++c)
    for (int lane = 0; lane < cluster_size; ++lane, ++list) {
      if (all.id[static_cast<std::size_t>(c * cluster_size + lane)] == Clusters<Real>::nobody) continue;
      const i64 here = c * cluster_reals + lane;
      const V x(position[here]), y(position[here + y_of]), z(position[here + z_of]);
      V fx[parts], fy[parts], fz[parts], phi[parts], inside[parts];
      Symmetric<V> virial[parts];
      for (int p = 0; p < parts; ++p) {
        fx[p] = fy[p] = fz[p] = phi[p] = inside[p] = V(Real(0));
        for (auto& w : virial[p].of) w = V(Real(0));
      }
      const auto look_at = [&](const u32* at, const Real* farther) __attribute__((always_inline)) {
        Seen<Real> seen;
        for (int g = 0; g < Clusters<Real>::group; ++g) seen.at[g] = at[g];
        MF_UNROLL
        for (int p = 0; p < parts; ++p) {
          seen.x[p] = x - L::template load<V>(position, seen.at, p);
          seen.y[p] = y - L::template load<V>(position + y_of, seen.at, p);
          seen.z[p] = z - L::template load<V>(position + z_of, seen.at, p);
          V r2 = squared(seen.x[p], seen.y[p], seen.z[p]);
          if (farther) r2 += V::load(farther + p * V::lanes);
          seen.distance[p] = pair.distance(r2);
        }
        return seen;
      };
      const auto meet = [&](const Seen<Real>& seen) __attribute__((always_inline)) {
        MF_UNROLL
        for (int p = 0; p < parts; ++p) {
          const V dx = seen.x[p], dy = seen.y[p], dz = seen.z[p];
          const PairTerm<V> term = pair.at(seen.distance[p]);
          fx[p] = mul_add(term.force, dx, fx[p]);
          fy[p] = mul_add(term.force, dy, fy[p]);
          fz[p] = mul_add(term.force, dz, fz[p]);
          const auto push = [&](V d, int k) __attribute__((always_inline)) {
            const V before = L::template load<V>(force + k * cluster_size, seen.at, p);
            L::store(neg_mul_add(term.force, d, before), force + k * cluster_size, seen.at, p);
          };
          push(dx, 0);
          push(dy, 1);
          push(dz, 2);
          if constexpr (Sums) {
            phi[p] += term.energy;
            inside[p] += select(seen.distance[p].r2 < V(pair.cutoff2), V(Real(1)), V(Real(0)));
            virial[p].add(term.force, dx, dy, dz, dx, dy, dz);
          }
        }
      };
      u32 own[Clusters<Real>::group];
      for (u32& offset : own) offset = all.spare() * cluster_reals;
      own[0] = static_cast<u32>(c) * cluster_reals;
      Seen<Real> seen = look_at(own, apart[lane]);
      const u32 *neighbour = slab.neighbour.data() + list[0], *end = slab.neighbour.data() + list[1];
      for (; neighbour != end; neighbour += Clusters<Real>::group) {
        const Seen<Real> next = look_at(neighbour, nullptr);
        meet(seen);
        seen = next;
      }
      meet(seen);
      force[here] += L::sum(fx);
      force[here + y_of] += L::sum(fy);
      force[here + z_of] += L::sum(fz);
      if constexpr (Sums) {
        total[0] += static_cast<double>(L::sum(phi));
        total[1] += static_cast<double>(L::sum(inside));
        for (int k = 0; k < 6; ++k) {
          V w[parts];
          for (int p = 0; p < parts; ++p) w[p] = virial[p].of[k];
          total[2 + k] += static_cast<double>(L::sum(w));
        }
      }
    }
  if constexpr (Sums)
    for (int k = 0; k < pair_sums; ++k) sums[k] = total[k];
}

}  // namespace mf::bindings
