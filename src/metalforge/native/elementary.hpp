// log and sincos from +, -, *, / and bit operations only, without fused operations, so that they give the same bits
// on every build level and on the GPU (libm does not promise that). Series, not minimax fits: every coefficient is
// 1/(2k+1) or 1/n!, and there is nothing to look up. R is double or Simd<double, L>.
#pragma once

#include "simd.hpp"

namespace mf {

// log x for finite normal x > 0. With x = 2^e (1 + f), 1/sqrt(2) <= 1 + f < sqrt(2), and s = f / (2 + f):
//   log x = e log 2 + 2 atanh s,   atanh s = s (1 + s^2/3 + s^4/5 + ...),   s^2 < 0.02944
// so the first term left out, s^22 / 23, is below 2^-60.
template <class R>
MF_INLINE R log_positive(R x) {
  using B = decltype(as_bits(x));
  constexpr double ln2_high = 0x1.62e42fefa0000p-1;  // 36 bits: e * ln2_high is exact for |e| < 2^11
  constexpr double ln2_low = 0x1.cf79abc9e3b3ap-40;  // log 2 - ln2_high
  constexpr u64 sqrt_half_bits = 0x3fe6a09e667f3bcdull;
  // Shift the exponent field so that it changes at 1/sqrt(2) instead of at 1.
  const B offset = as_bits(x) + B(0x3ff0000000000000ull - sqrt_half_bits);
  const B biased_exponent = offset >> 52;
  // biased_exponent is in [1, 2047): assemble it as a double without an integer conversion, which v2 and v3 lack.
  const R exponent = from_bits(biased_exponent | B(0x4330000000000000ull)) - R(0x1p52 + 1023.0);
  const R m = from_bits((offset & B(0x000fffffffffffffull)) + B(sqrt_half_bits));
  const R f = m - R(1.0);
  const R s = f / (R(2.0) + f);
  const R z = s * s;
  R series(1.0 / 21);
  MF_UNROLL
  for (int k = 19; k >= 3; k -= 2) series = series * z + R(1.0 / k);
  const R atanh_tail = s * z * series;  // atanh s - s
  return exponent * R(ln2_high) + (R(2.0) * s + (R(2.0) * atanh_tail + exponent * R(ln2_low)));
}

// 1/n! for n <= 18, correctly rounded: the factorial is exact in a double. A table, since GPU compilers leave a loop
// over its factors, and the division after it, to every thread.
MF_INLINE constexpr double inverse_factorial(int n) {
  // clang-format off
  constexpr double factorial[] = {1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800, 39916800, 479001600, 6227020800,
                                  87178291200, 1307674368000, 20922789888000, 355687428096000, 6402373705728000};
  // clang-format on
  return 1 / factorial[n];
}

// What differs between the two real types: log 2 in two parts (n * high is exact), the number that rounds to an integer
// when it is added, the exponent's place and bias, the terms of the exponential series, and where tanh is 1 to the last
// bit.
template <class Real>
struct ExpTraits;
template <>
struct ExpTraits<double> {
  static constexpr double ln2_high = 0x1.62e42fefa0000p-1, ln2_low = 0x1.cf79abc9e3b3ap-40, round = 0x1.8p52;
  static constexpr int mantissa = 52, bias = 1023, terms = 14;
  static constexpr u64 sign = 0x8000000000000000ull;
  static constexpr double tanh_is_one = 20.0;
};
template <>
struct ExpTraits<float> {
  static constexpr float ln2_high = 0x1.62ep-1f, ln2_low = 0x1.0bfbe8p-15f, round = 0x1.8p23f;
  static constexpr int mantissa = 23, bias = 127, terms = 7;
  static constexpr u32 sign = 0x80000000u;
  static constexpr float tanh_is_one = 10.0f;
};

template <class R>
struct RealOf {
  using type = R;
};
template <class T, int L>
struct RealOf<Simd<T, L>> {
  using type = T;
};

// exp(x) - 1 for 0 <= x <= 80. x = n log 2 + r with |r| <= log(2)/2; e^x - 1 = 2^n (e^r - 1) + (2^n - 1) loses nothing
// where n = 0. The series of e^r - 1 leaves out less than 2^-62 (14 terms) or 2^-27 (7). Uses fused operations where
// there are any: unlike the functions of the random numbers, its last bit may depend on the build level.
template <class R>
MF_INLINE R expm1_positive(R x) {
  using Real = typename RealOf<R>::type;
  using Traits = ExpTraits<Real>;
  using B = decltype(as_bits(x));
  const R round(Traits::round);
  const R shifted = mul_add(x, R(static_cast<Real>(1.4426950408889634074)), round);
  const R n = shifted - round;
  const R r = neg_mul_add(n, R(Traits::ln2_low), neg_mul_add(n, R(Traits::ln2_high), x));
  R series(static_cast<Real>(inverse_factorial(Traits::terms)));
  MF_UNROLL
  for (int k = Traits::terms - 1; k >= 1; --k) series = mul_add(series, r, R(static_cast<Real>(inverse_factorial(k))));
  const R small = series * r;
  const R power = from_bits((as_bits(shifted) + B(Traits::bias)) << Traits::mantissa);  // 2^n: n is in the low bits
  return mul_add(power, small, power - R(Real(1)));
}

// The polynomials of degree 10 and 6 nearest to 2^f for |f| <= 1/2, by Remez' exchange: off by 2.2e-16 and 1.9e-9 of
// it.
template <class Real>
struct PowerOfTwo {
  static constexpr int degree = 10;
  static constexpr double c[] = {0x1p+0,
                                 0x1.62e42fefa3a17p-1,
                                 0x1.ebfbdff82c3b9p-3,
                                 0x1.c6b08d703d48ap-5,
                                 0x1.3b2ab6fbde107p-7,
                                 0x1.5d87fe9cc5f29p-10,
                                 0x1.43091260553fdp-13,
                                 0x1.ffcb55e7cdacep-17,
                                 0x1.62c157eebb6d9p-20,
                                 0x1.b674102682fbfp-24,
                                 0x1.e399206549458p-28};
};
template <>
struct PowerOfTwo<float> {
  static constexpr int degree = 6;
  static constexpr double c[] = {0x1.000000026160fp+0, 0x1.62e430c7e81b8p-1, 0x1.ebfbdadc81904p-3,
                                 0x1.c6aed4b954a3ap-5, 0x1.3b2dbbda66504p-7, 0x1.5f456ab6f4e93p-10,
                                 0x1.41d3258b383b3p-13};
};

// 2^z for |z| < 1000 (120 in float). z = n + f with |f| <= 1/2, exactly. A thread of a GPU has others to do while it
// waits and takes the fewest operations (Horner); a core that has one loop waits for five multiply-adds instead of ten
// where they stand in Estrin's order. The last bit may depend on the build level, as above.
template <class R>
MF_INLINE R exp2_of(R z) {
  using Real = typename RealOf<R>::type;
  using Traits = ExpTraits<Real>;
  using Power = PowerOfTwo<Real>;
  const R round(Traits::round);
  const R shifted = z + round;
  const R f = z - (shifted - round);
  const auto c = [](int k) { return R(static_cast<Real>(Power::c[k])); };
  R series = c(Power::degree);
  if constexpr (sizeof(R) == sizeof(Real)) {
    MF_UNROLL
    for (int k = Power::degree - 1; k >= 0; --k) series = mul_add(series, f, c(k));
  } else {
    const R f2 = f * f, f4 = f2 * f2;
    const auto line = [&](int k) { return mul_add(c(k + 1), f, c(k)); };
    series = mul_add(series, f2, line(Power::degree - 2));
    MF_UNROLL
    for (int k = Power::degree - 6; k >= 0; k -= 4) series = mul_add(series, f4, mul_add(line(k + 2), f2, line(k)));
  }
  return from_bits(as_bits(series) + (as_bits(shifted) << Traits::mantissa));  // n is in the low bits
}

// tanh x = t / (t + 2) with t = e^(2|x|) - 1, and the sign of x.
template <class R>
MF_INLINE R tanh_of(R x) {
  using Real = typename RealOf<R>::type;
  using Traits = ExpTraits<Real>;
  using B = decltype(as_bits(x));
  const B sign = as_bits(x) & B(Traits::sign);
  const R size = from_bits(as_bits(x) ^ sign);
  const R bound(Traits::tanh_is_one);
  const R bounded = select(size < bound, size, bound);
  const R t = expm1_positive(bounded + bounded);
  return from_bits(as_bits(t / (t + R(Real(2)))) | sign);
}

template <class R>
struct SinCos {
  R sin, cos;
};

// sin and cos of 2 pi u for u in [0, 1). u = q/4 + r with |r| <= 1/8 exactly; then the series in theta = 2 pi r,
// |theta| <= pi/4, to theta^17 and theta^16 (next terms below 2^-60), and the quadrant by exchange and sign.
template <class R>
MF_INLINE SinCos<R> sincos_2pi(R u) {
  using B = decltype(as_bits(u));
  const R magic(0x1.8p52);  // adding it rounds to an integer and leaves it in the low bits
  const R shifted = u * R(4.0) + magic;
  const B quadrant = as_bits(shifted);
  const R r = u - (shifted - magic) * R(0.25);
  const R theta = r * R(6.283185307179586476925);
  const R z = theta * theta;
  R s(1.0), c(1.0);
  MF_UNROLL
  for (int n = 16; n >= 2; n -= 2) {
    s = R(1.0) - s * z * R(1.0 / (n * (n + 1)));
    c = R(1.0) - c * z * R(1.0 / (n * (n - 1)));
  }
  s = s * theta;
  const auto odd = (quadrant & B(1)) == B(1);
  const R swapped_sin = select(odd, c, s), swapped_cos = select(odd, s, c);
  // Quadrants 2, 3 negate the sine; 1, 2 negate the cosine. Moving bit 1 to bit 63 flips the sign.
  const B sign_sin = (quadrant & B(2)) << 62;
  const B sign_cos = ((quadrant + B(1)) & B(2)) << 62;
  return {from_bits(as_bits(swapped_sin) ^ sign_sin), from_bits(as_bits(swapped_cos) ^ sign_cos)};
}

// The cosine of 2 pi u alone, the same bits: one series, of the sine or of the cosine as the quadrant wants.
template <class R>
MF_INLINE R cos_2pi(R u) {
  using B = decltype(as_bits(u));
  const R magic(0x1.8p52);
  const R shifted = u * R(4.0) + magic;
  const B quadrant = as_bits(shifted);
  const R r = u - (shifted - magic) * R(0.25);
  const R theta = r * R(6.283185307179586476925);
  const R z = theta * theta;
  const auto odd = (quadrant & B(1)) == B(1);
  // 1 / (n (n + 1)) and 1 / (n (n - 1)) as tables: GPU compilers would choose a divisor first, and then divide.
  constexpr double of_sine[] = {1.0 / 6, 1.0 / 20, 1.0 / 42, 1.0 / 72, 1.0 / 110, 1.0 / 156, 1.0 / 210, 1.0 / 272};
  constexpr double of_cosine[] = {1.0 / 2, 1.0 / 12, 1.0 / 30, 1.0 / 56, 1.0 / 90, 1.0 / 132, 1.0 / 182, 1.0 / 240};
  R series(1.0);
  MF_UNROLL
  for (int k = 7; k >= 0; --k) series = R(1.0) - series * z * select(odd, R(of_sine[k]), R(of_cosine[k]));
  const R size = series * select(odd, theta, R(1.0));
  const B sign = ((quadrant + B(1)) & B(2)) << 62;
  return from_bits(as_bits(size) ^ sign);
}

}  // namespace mf
