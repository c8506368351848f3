// Activations of reservoirs, f(x) elementwise: the functions that metalforge/reservoir/activations.py defines. R is a
// plain real or a Simd of them. Like tanh, their last bits may depend on the build level.
#pragma once

#include "elementary.hpp"

namespace mf {

enum class Activation { tanh, relu, bounded_relu, identity, sigmoid, gelu, piecewise_tanh };

// erf z = 2/sqrt(pi) z e^-x (1 + 2x/3 (1 + 2x/5 (1 + ...))), x = z^2, below z = 2: all terms are positive, none cancel.
// From there on 1 - erfc z with Laplace's continued fraction, contracted,
//   erfc z = z e^-x / sqrt(pi) / (x + 1/2 - a_1 / (x + 5/2 - a_2 / (x + 9/2 - ...))),   a_k = k (2k - 1) / 2
// whose terms are carried as a numerator and a denominator, for one division in all. What is left out is below 2^-26
// (float) or 2^-56 (double). (DLMF 7.6.2 and 7.9.2.)
template <class Real>
struct ErfTraits;
template <>
struct ErfTraits<float> {
  static constexpr int series = 19, fraction = 4;
  static constexpr float erf_is_one = 4.0f;
};
template <>
struct ErfTraits<double> {
  static constexpr int series = 30, fraction = 23;
  static constexpr double erf_is_one = 6.0;
};

template <class R>
MF_INLINE R erf_of(R argument) {
  using Real = typename RealOf<R>::type;
  using Traits = ErfTraits<Real>;
  using B = decltype(as_bits(argument));
  constexpr Real inverse_sqrt_pi = static_cast<Real>(0.56418958354775628695);
  const B sign = as_bits(argument) & B(ExpTraits<Real>::sign);
  const R size = from_bits(as_bits(argument) ^ sign);
  const R one(Real(1)), bound(Traits::erf_is_one);
  const R z = select(size < bound, size, bound);
  const R x = z * z;
  const R scaled = R(inverse_sqrt_pi) * z / (one + expm1_positive(x));  // z e^-x / sqrt(pi)
  R series = one;
  for (int k = Traits::series; k >= 1; --k) series = mul_add(x * R(Real(2) / Real(2 * k + 1)), series, one);
  R above = x + R(Real(0.5) * Real(4 * Traits::fraction + 1)), below = one;
  for (int k = Traits::fraction; k >= 1; --k) {
    const R next =
        neg_mul_add(R(Real(0.5) * Real(k * (2 * k - 1))), below, (x + R(Real(0.5) * Real(4 * k - 3))) * above);
    below = above;
    above = next;
  }
  const R value = select(z < R(Real(2)), (scaled + scaled) * series, one - scaled * below / above);
  return from_bits(as_bits(value) | sign);
}

// 1 / (1 + e^-x); flat below -80, where it is 2e-35.
template <class R>
MF_INLINE R sigmoid_of(R x) {
  using Real = typename RealOf<R>::type;
  using B = decltype(as_bits(x));
  const R size = from_bits(as_bits(x) & B(~ExpTraits<Real>::sign));
  const R zero(Real(0)), one(Real(1)), bound(Real(80));
  const R t = expm1_positive(select(size < bound, size, bound));  // e^|x| - 1
  return select(x < zero, one, t + one) / (t + R(Real(2)));
}

// x/2 (1 + erf(x / sqrt(2))).
template <class R>
MF_INLINE R gelu_of(R x) {
  using Real = typename RealOf<R>::type;
  return R(Real(0.5)) * x * (R(Real(1)) + erf_of(x * R(static_cast<Real>(0.70710678118654752440))));
}

// The odd piecewise line of the origin's hardware: slope k holds from knot k to the next one; from 3 on it is flat.
template <class R>
MF_INLINE R piecewise_tanh_of(R x) {
  using Real = typename RealOf<R>::type;
  using B = decltype(as_bits(x));
  constexpr int pieces = 6;
  constexpr double knots[pieces] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0};
  constexpr double slopes[pieces] = {0.92424, 0.59894, 0.28712, 0.11776, 0.03102, 0.0};
  const B sign = as_bits(x) & B(ExpTraits<Real>::sign);
  const R whole = from_bits(as_bits(x) ^ sign), last(static_cast<Real>(knots[pieces - 1]));
  const R size = select(whole < last, whole, last);
  R value = R(static_cast<Real>(slopes[0])) * size;
  double start = 0;
  MF_UNROLL
  for (int k = 1; k < pieces; ++k) {
    start += slopes[k - 1] * (knots[k] - knots[k - 1]);
    const R knot(static_cast<Real>(knots[k]));
    const R piece = R(static_cast<Real>(start)) + R(static_cast<Real>(slopes[k])) * (size - knot);
    value = select(size < knot, value, piece);
  }
  return from_bits(as_bits(value) | sign);
}

template <Activation A, class R>
MF_INLINE R activate(R x) {
  using Real = typename RealOf<R>::type;
  const R zero(Real(0)), one(Real(1));
  if constexpr (A == Activation::tanh) return tanh_of(x);
  if constexpr (A == Activation::relu) return select(x < zero, zero, x);
  if constexpr (A == Activation::bounded_relu) return select(x < zero, zero, select(one < x, one, x));
  if constexpr (A == Activation::sigmoid) return sigmoid_of(x);
  if constexpr (A == Activation::gelu) return gelu_of(x);
  if constexpr (A == Activation::piecewise_tanh) return piecewise_tanh_of(x);
  return x;
}

}  // namespace mf
