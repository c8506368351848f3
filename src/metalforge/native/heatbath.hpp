// Local updates of one link by its SU(2) subgroups (Cabibbo and Marinari, PLB 119 (1982) 387), vectorised over sites:
// the heat bath of Kennedy and Pendleton (PLB 156 (1985) 393) and microcanonical overrelaxation (Creutz, PRD 36 (1987)
// 515; Brown and Woch, PRL 58 (1987) 2394).
#pragma once

#include "draws.hpp"
#include "su3.hpp"

namespace mf {

// A quaternion a0 + i (a1, a2, a3) . sigma.
template <class T>
struct Quaternion {
  T a0, a1, a2, a3;
};

template <class T>
MF_INLINE Quaternion<T> adjoint(Quaternion<T> q) {
  return {q.a0, -q.a1, -q.a2, -q.a3};
}

// Product of quaternions; (i sigma_1)(i sigma_2) = -i sigma_3.
template <class T>
MF_INLINE Quaternion<T> operator*(Quaternion<T> p, Quaternion<T> q) {
  return {p.a0 * q.a0 - p.a1 * q.a1 - p.a2 * q.a2 - p.a3 * q.a3, p.a0 * q.a1 + p.a1 * q.a0 - p.a2 * q.a3 + p.a3 * q.a2,
          p.a0 * q.a2 + p.a2 * q.a0 - p.a3 * q.a1 + p.a1 * q.a3, p.a0 * q.a3 + p.a3 * q.a0 - p.a1 * q.a2 + p.a2 * q.a1};
}

// The quaternion part w of the (i, j) block of W. For g in that SU(2), Re tr(g W) = 2 (g w)_0 + terms without g; with
// w = k V, V in SU(2), the weight exp(beta/3 Re tr(g W)) is exp(alpha x0) for X = g V, alpha = 2 beta k / 3.
template <class T>
MF_INLINE Quaternion<T> su2_part(const Matrix3<T>& w, int i, int j) {
  const T half(0.5);
  return {half * (w.e[i][i].re + w.e[j][j].re), half * (w.e[i][j].im + w.e[j][i].im),
          half * (w.e[i][j].re - w.e[j][i].re), half * (w.e[i][i].im - w.e[j][j].im)};
}

// Rows i and j of M <- g M, with g = [[a0 + i a3, a2 + i a1], [-a2 + i a1, a0 - i a3]].
template <class T>
MF_INLINE void rotate_rows(const Quaternion<T>& g, int i, int j, Matrix3<T>& m) {
  const Complex<T> alpha{g.a0, g.a3}, beta{g.a2, g.a1};
  MF_UNROLL
  for (int k = 0; k < 3; ++k) {
    const Complex<T> upper = m.e[i][k], lower = m.e[j][k];
    m.e[i][k] = mul_acc(alpha, upper, beta * lower);
    m.e[j][k] = conj_mul_acc(alpha, lower, scale(T(-1), conj(beta) * upper));
  }
}

// Which uniforms a draw is: attempt n of subgroup s of direction mu uses blocks base + 3 n ... base + 3 n + 2.
inline constexpr int heatbath_attempts = 1000;
MF_INLINE u64 heatbath_draw(int mu, int subgroup, int attempt) {
  return heatbath_draws | static_cast<u64>(mu) << 26 | static_cast<u64>(subgroup) << 24 | static_cast<u64>(3 * attempt);
}

MF_INLINE bool all_set(bool mask) { return mask; }
MF_INLINE bool any_set(bool mask) { return mask; }
MF_INLINE bool either(bool a, bool b) { return a || b; }
#if !MF_CUDA
template <class T, int L>
MF_INLINE bool all_set(Simd<T, L> mask) {
  return sign_bits(mask) == (1 << L) - 1;
}
template <class T, int L>
MF_INLINE bool any_set(Simd<T, L> mask) {
  return sign_bits(mask) != 0;
}
template <class T, int L>
MF_INLINE Simd<T, L> either(Simd<T, L> a, Simd<T, L> b) {
  return a | b;
}
#endif

// What an attempt to draw x0 needs of four uniforms (r, an angle), (s, t): log r, log r + cos^2 log s, and t.
template <class R>
struct HeatbathAttempt {
  R log_first, exponent, uniform;
};
template <class R>
MF_INLINE R exponent_from(R log_first, R cosine, R log_second) {
  return log_first + cosine * cosine * log_second;
}
template <class R>
MF_INLINE HeatbathAttempt<R> attempt_from(const Pair<R>& u, const Pair<R>& v) {
  const R log_first = log_positive(u.first);
  return {log_first, exponent_from(log_first, cos_2pi(u.second), log_positive(v.first)), v.second};
}
// A direction in space by two uniforms: its height and its angle.
template <class R>
struct HeatbathDirection {
  R height;
  SinCos<R> angle;
};
template <class R>
MF_INLINE R height_from(R uniform) {
  return R(2.0) * uniform - R(1.0);
}
template <class R>
MF_INLINE HeatbathDirection<R> direction_from(const Pair<R>& d) {
  return {height_from(d.first), sincos_2pi(d.second)};
}

template <class W>
MF_INLINE auto heatbath_attempt(const PhiloxKeys& keys, PhiloxAddress<W> address, int mu, int subgroup, int attempt) {
  address.draw = W(heatbath_draw(mu, subgroup, attempt));
  const auto u = philox_uniform2(keys, address);
  address.draw = address.draw + W(u64{1});
  return attempt_from(u, philox_uniform2(keys, address));
}
template <class W>
MF_INLINE auto heatbath_direction(const PhiloxKeys& keys, PhiloxAddress<W> address, int mu, int subgroup) {
  address.draw = W(heatbath_draw(mu, subgroup, heatbath_attempts));
  return direction_from(philox_uniform2(keys, address));
}

// X in SU(2) with density sqrt(1 - x0^2) exp(alpha x0) dx0 and uniform direction, alpha > 0. R is double or a Simd of
// doubles. Rejected lanes draw again until all have accepted: attempt(n) is the n-th, direction() comes at the end.
// Kennedy-Pendleton for alpha >= 3/2; below, x0 uniform, accepted with sqrt(1 - x0^2) exp(alpha (x0 - 1)).
template <class R, class Attempt, class Direction>
MF_INLINE Quaternion<R> su2_heatbath(R alpha, Attempt attempt, Direction direction) {
  R x0(1.0);
  auto done = alpha < R(0.0);
  const auto weak = alpha < R(1.5);
  const R inverse = R(1.0) / alpha;
  for (int n = 0; n < heatbath_attempts; ++n) {
    const HeatbathAttempt<R>& a = attempt(n);
    const R delta = -a.exponent * inverse;
    R proposal = R(1.0) - delta;
    auto accepted = a.uniform * a.uniform < R(1.0) - R(0.5) * delta;
    if (any_set(weak)) {
      // log r < log(1 - x0^2) / 2 + alpha (x0 - 1), written without the logarithm of zero.
      const R flat = R(2.0) * a.uniform - R(1.0);
      const auto accept_weak =
          R(2.0) * a.log_first < log_positive(R(1.0) - flat * flat) + R(2.0) * alpha * (flat - R(1.0));
      proposal = select(weak, flat, proposal);
      accepted = select(weak, accept_weak, accepted);
    }
    x0 = select(done, x0, proposal);
    done = either(accepted, done);
    if (all_set(done)) break;
  }
  const HeatbathDirection<R>& d = direction();
  const R radius2 = R(1.0) - x0 * x0;
  const R radius = sqrt(select(radius2 < R(0.0), R(0.0), radius2));
  const R x3 = radius * d.height;
  const R rest2 = radius * radius - x3 * x3;
  const R rest = sqrt(select(rest2 < R(0.0), R(0.0), rest2));
  return {x0, rest * d.angle.cos, rest * d.angle.sin, x3};
}

template <class V>
MF_INLINE V length(const Quaternion<V>& q) {
  return sqrt(mul_add(q.a0, q.a0, mul_add(q.a1, q.a1, mul_add(q.a2, q.a2, q.a3 * q.a3))));
}

// part / |part|, or 1 where the staple is so small that its direction is rounding noise: the heat bath then draws from
// the whole group (alpha = 0), overrelaxation leaves the link alone.
template <class V>
MF_INLINE Quaternion<V> direction_of(const Quaternion<V>& part, V k) {
  using Real = typename LaneTraits<V>::Real;
  const V one(static_cast<Real>(1)), zero(static_cast<Real>(0));
  const auto degenerate = k < V(static_cast<Real>(1e-12));
  const V inverse = one / select(degenerate, one, k);
  return {select(degenerate, one, inverse * part.a0), select(degenerate, zero, inverse * part.a1),
          select(degenerate, zero, inverse * part.a2), select(degenerate, zero, inverse * part.a3)};
}

// The g of a heat bath at `beta`: X V^dagger, where `part` is k V; draw(alpha, round) gives the X of a round of lanes.
template <class V, class Draw>
MF_INLINE Quaternion<V> heatbath_rotation(const Quaternion<V>& part, double beta, Draw draw) {
  using R = typename Draws<V>::R;
  const V k = length(part);
  Quaternion<R> drawn[2];
  for (int round = 0; round < Draws<V>::rounds; ++round)
    drawn[round] = draw(R(2.0 / 3.0 * beta) * lanes_of_round(k, round), round);
  const Quaternion<V> x{joined<V>([&](int r) { return drawn[r].a0; }), joined<V>([&](int r) { return drawn[r].a1; }),
                        joined<V>([&](int r) { return drawn[r].a2; }), joined<V>([&](int r) { return drawn[r].a3; })};
  return x * adjoint(direction_of(part, k));
}
// With numbers that are drawn when they are wanted.
template <class V>
MF_INLINE Quaternion<V> heatbath_rotation(const Quaternion<V>& part, double beta, const ChainAddress& chain,
                                          const u32* sites, int mu, int subgroup) {
  using R = typename Draws<V>::R;
  return heatbath_rotation(part, beta, [&](R alpha, int round) {
    const auto address = chain.template at<typename Draws<V>::W>(sites + round * native_lanes<double>);
    return su2_heatbath(
        alpha, [&](int n) { return heatbath_attempt(chain.keys, address, mu, subgroup, n); },
        [&] { return heatbath_direction(chain.keys, address, mu, subgroup); });
  });
}

// The g of overrelaxation: V^dagger V^dagger keeps Re tr(g V) = Re tr V.
template <class V>
MF_INLINE Quaternion<V> overrelaxation_rotation(const Quaternion<V>& part) {
  const Quaternion<V> v = adjoint(direction_of(part, length(part)));
  return v * v;
}

}  // namespace mf
