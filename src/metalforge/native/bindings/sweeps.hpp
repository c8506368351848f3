// Sweeps of heat bath and overrelaxation on a CPU: the order of links, and several of them at once.
#pragma once

#include <algorithm>

#include "lattice.hpp"
#include "pack.hpp"
#include "team.hpp"
#include "update.hpp"

namespace mf::bindings {

// The numbers of N links mu, each with three subgroups (and in single precision two rounds), drawn before their staples
// are there. Between one subgroup and the next each would wait for the one before; here each step is done for all of
// them, some at a time, which keeps the pipes busy.
template <class V, int N>
struct HeatbathNumbers {
  using R = typename Draws<V>::R;
  static constexpr int rounds = Draws<V>::rounds, count = 3 * rounds * N;
  R log_first[count], exponent[count], uniform[count], height[count], sine[count], cosine[count];

  static MF_INLINE int place(int k, int round, int subgroup) { return (k * rounds + round) * 3 + subgroup; }
  MF_INLINE HeatbathAttempt<R> attempt(int i) const { return {log_first[i], exponent[i], uniform[i]}; }
  MF_INLINE HeatbathDirection<R> direction(int i) const { return {height[i], {sine[i], cosine[i]}}; }
};

// The heat bath of links mu, many at once.
struct HeatbathUpdate {
  double beta;
  const ChainAddress& chain;
  int mu;
  PhiloxDraw draws[3][3];  // two for the first attempt, one for the direction; of each subgroup

  HeatbathUpdate(double beta_, const ChainAddress& chain_, int mu_) : beta(beta_), chain(chain_), mu(mu_) {
    for (int s = 0; s < 3; ++s) {
      const u64 numbers[3] = {heatbath_draw(mu, s, 0), heatbath_draw(mu, s, 0) + 1,
                              heatbath_draw(mu, s, heatbath_attempts)};
      for (int n = 0; n < 3; ++n) draws[n][s] = PhiloxDraw(chain.keys, numbers[n], chain.step, chain.stream);
    }
  }

  template <class V, int N>
  using Numbers = HeatbathNumbers<V, N>;

  template <class V, int N>
  MF_INLINE void draw(const u32* const (&sites)[N], Numbers<V, N>& to) const {
    using R = typename Draws<V>::R;
    using W = typename Draws<V>::W;
    MF_ROLLED_ON_CPU
    for (int i = 0; i < to.count; i += 3) {
      const int lot = i / 3;
      const u32* lanes = sites[lot / to.rounds] + lot % to.rounds * native_lanes<double>;
      const PhiloxSites<W> at(chain.keys, chain.template at<W>(lanes).site, chain.step);
      Pair<R> u[3], v[3], d[3];
      philox_uniform2(chain.keys, draws[0], at, u);
      philox_uniform2(chain.keys, draws[1], at, v);
      philox_uniform2(chain.keys, draws[2], at, d);
      for (int s = 0; s < 3; ++s) {
        to.log_first[i + s] = u[s].first;
        to.cosine[i + s] = u[s].second;
        to.exponent[i + s] = v[s].first;
        to.uniform[i + s] = v[s].second;
        to.height[i + s] = height_from(d[s].first);
        to.sine[i + s] = d[s].second;
      }
    }
    using Six = Pack<R, 6>;
    using Three = Pack<R, 3>;
    MF_ROLLED_ON_CPU
    for (int i = 0; i < to.count; i += 6) log_positive(Six::load(to.log_first + i)).store(to.log_first + i);
    MF_ROLLED_ON_CPU
    for (int i = 0; i < to.count; i += 6) log_positive(Six::load(to.exponent + i)).store(to.exponent + i);
    MF_ROLLED_ON_CPU
    for (int i = 0; i < to.count; i += 6)
      exponent_from(Six::load(to.log_first + i), cos_2pi(Six::load(to.cosine + i)), Six::load(to.exponent + i))
          .store(to.exponent + i);
    MF_ROLLED_ON_CPU
    for (int i = 0; i < to.count; i += 3) {
      const SinCos<Three> angles = sincos_2pi(Three::load(to.sine + i));
      angles.sin.store(to.sine + i);
      angles.cos.store(to.cosine + i);
    }
  }
  template <class V, int N>
  MF_INLINE Quaternion<V> rotation(const Numbers<V, N>& numbers, const u32* sites, int k, int subgroup,
                                   const Quaternion<V>& part) const {
    using R = typename Draws<V>::R;
    return heatbath_rotation(part, beta, [&](R alpha, int round) {
      const int i = numbers.place(k, round, subgroup);
      const auto attempt = [&](int n) {
        return n == 0 ? numbers.attempt(i) : another<R>(sites + round * native_lanes<double>, subgroup, n);
      };
      return su2_heatbath(alpha, attempt, [&] { return numbers.direction(i); });
    });
  }

 private:
  // Rare: out of the way.
  template <class R>
  __attribute__((noinline)) HeatbathAttempt<R> another(const u32* sites, int subgroup, int n) const {
    using W = Simd<u64, R::lanes>;
    return heatbath_attempt(chain.keys, chain.template at<W>(sites), mu, subgroup, n);
  }
};

// Overrelaxation of links, many at once: nothing is drawn.
struct OverrelaxationUpdate {
  template <class V, int N>
  struct Numbers {};
  template <class V, int N>
  MF_INLINE void draw(const u32* const (&)[N], Numbers<V, N>&) const {}
  template <class V, int N>
  MF_INLINE Quaternion<V> rotation(const Numbers<V, N>&, const u32*, int, int, const Quaternion<V>& part) const {
    return overrelaxation_rotation(part);
  }
};

// Links that no cache holds are fetched some vectors before they are needed: the next sites of one parity are further
// away than a page, which prefetchers do not follow.
inline constexpr i64 fetched_ahead = 2;
inline bool is_cached(const Layout& layout, std::size_t real_bytes) {
  return layout.sites() * 4 * 18 * static_cast<i64>(real_bytes) <= i64{8} << 20;
}

// Calls work(mu, parity, slice) in an order that gives what all of (0, 0), then all of (0, 1), (1, 0), ... (3, 1)
// would, but goes through the time slices once, as a wave: phase 2 mu + parity is `lag` slices behind the first one.
// Where a link is updated its staple reaches, for mu < 3, links mu of the other parity and links t in the slices beside
// it, and for mu = 3 spatial links in the next slice; so phase (mu, 1) of a slice comes when (mu, 0) is done on both
// sides of it, (3, 0) when (2, 1) is done in the next one, and all else when the phase before is done in the same
// slice. The slices are a ring: `first` is where a phase begins, far enough from the seam, and the wave runs on over it
// to the end.
template <class Work>
void walk_sweep(u64 selection, i64 slices, Work work) {
  constexpr int lag[8] = {0, 1, 1, 2, 2, 3, 4, 4}, first[8] = {0, 1, 1, 2, 2, 3, 3, 3};
  for (i64 wave = 0; wave < slices + lag[7] + first[7]; ++wave)
    for (int phase = 0; phase < 8; ++phase) {
      const i64 t = wave - lag[phase] - first[phase];
      if (t >= 0 && t < slices && selection >> phase & 1) work(phase / 2, phase % 2, (t + first[phase]) % slices);
    }
}

// Updates links by direction and parity, so that none changes while its staple is in use. Bit 2 mu + parity of
// `selection` chooses which; 255 is every link. update_of(mu) is what happens to links mu (heatbath.hpp).
// A field that no cache holds would come from memory once a direction and parity: it is walked through by slices.
template <class Real, class UpdateOf>
void sweep(const FieldLayout<Real>& layout, Real* data, u64 selection, int threads, UpdateOf update_of) {
  constexpr int together = 4;
  const i64 slices = is_cached(layout, sizeof(Real)) ? 1 : layout.local()[3];
  with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const Links<V> links{data};
    run_team(threads, [&](const Team& team) {
      walk_sweep(selection, slices, [&](int mu, int parity, i64 slice) {
        const auto update = update_of(mu);
        const i64 n = layout.vectors() / 2 / slices;
        const Team::Range range = team.share(n);
        const i32* list = layout.parity(parity).data() + slice * n;
        for (i64 i = range.begin; i < range.end; i += together) {
          const int count = static_cast<int>(std::min<i64>(together, range.end - i));
          typename decltype(update)::template Numbers<V, together> numbers;
          const u32* sites[together];
          Position at[together];
          Matrix3<V> u[together];
          for (int k = 0; k < together; ++k) {
            at[k] = layout.at(list[i + std::min(k, count - 1)]);
            sites[k] = layout.sites_of(at[k].vector);
            if (slices > 1 && i + k + fetched_ahead < range.end)
              staple(FetchedLinks<V>{links}, layout.at(list[i + k + fetched_ahead]), mu);
          }
          update.draw(sites, numbers);
          const auto rotate = [&](int k, int subgroup, const Quaternion<V>& part) {
            return update.rotation(numbers, sites[k], k, subgroup, part);
          };
          update_by_subgroups(links, at, count, mu, rotate, u);
          for (int k = 0; k < count; ++k) links.store(u[k], at[k].vector, mu);
        }
        team.barrier();
      });
    });
    return 0;
  });
}

}  // namespace mf::bindings
