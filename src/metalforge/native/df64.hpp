// df64: a real number as an unevaluated pair of floats, hi + lo with |lo| <= ulp(hi)/2. About twice the precision of
// float (48 bits) on hardware whose doubles are slow. F is float or Simd<float, L>; a df64 is "just another real
// type" for every kernel.
//
// Error-free transformations: Dekker 1971 (split, two_prod), Knuth TAOCP 2 4.2.2 (two_sum). Bounds: Joldes, Muller,
// Popescu, "Tight and rigorous error bounds for basic building blocks of double-word arithmetic", ACM TOMS 44 (2017),
// with u = 2^-24: add 3 u^2, mul 5 u^2 (algorithms 6 and 12), div 15 u^2. Every operation here keeps at least 44 bits
// as long as nothing overflows or becomes subnormal.
#pragma once

#include "simd.hpp"

namespace mf {

template <class F>
struct TwoTerm {
  F sum, error;  // sum + error is exact, sum is the rounded value
};

// a + b exactly, any order of magnitude: 6 operations.
template <class F>
MF_INLINE TwoTerm<F> two_sum(F a, F b) {
  const F s = a + b;
  const F b_seen = s - a;
  return {s, (a - (s - b_seen)) + (b - b_seen)};
}

// a + b exactly when |a| >= |b|: 3 operations.
template <class F>
MF_INLINE TwoTerm<F> quick_two_sum(F a, F b) {
  const F s = a + b;
  return {s, b - (s - a)};
}

// a * b exactly: with FMA the error is one operation; without it Dekker's product on 12-bit halves gives the same
// two floats (the split overflows for |a| > 2^115).
template <class F>
MF_INLINE TwoTerm<F> two_prod(F a, F b) {
  const F p = a * b;
  if constexpr (has_fma) {
    return {p, fma(a, b, -p)};
  } else {
    const F split(4097.0f);  // 2^12 + 1
    const F a_scaled = split * a, b_scaled = split * b;
    const F a_high = a_scaled - (a_scaled - a), b_high = b_scaled - (b_scaled - b);
    const F a_low = a - a_high, b_low = b - b_high;
    return {p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low};
  }
}

template <class F>
struct Df64 {
  F hi, lo;

  Df64() = default;
  MF_INLINE Df64(F high, F low) : hi(high), lo(low) {}
  MF_INLINE explicit Df64(F value) : hi(value), lo(F(0.0f)) {}

  friend MF_INLINE Df64 operator-(Df64 a) { return {-a.hi, -a.lo}; }

  friend MF_INLINE Df64 operator+(Df64 a, Df64 b) {
    const TwoTerm<F> high = two_sum(a.hi, b.hi);
    const TwoTerm<F> low = two_sum(a.lo, b.lo);
    const TwoTerm<F> middle = quick_two_sum(high.sum, high.error + low.sum);
    const TwoTerm<F> r = quick_two_sum(middle.sum, middle.error + low.error);
    return {r.sum, r.error};
  }
  friend MF_INLINE Df64 operator-(Df64 a, Df64 b) { return a + (-b); }

  friend MF_INLINE Df64 operator*(Df64 a, Df64 b) {
    const TwoTerm<F> p = two_prod(a.hi, b.hi);
    const F cross = a.hi * b.lo + a.lo * b.hi;
    const TwoTerm<F> r = quick_two_sum(p.sum, p.error + cross);
    return {r.sum, r.error};
  }

  // Long division: a float quotient, then two corrections from exact remainders.
  friend MF_INLINE Df64 operator/(Df64 a, Df64 b) {
    const F q1 = a.hi / b.hi;
    Df64 remainder = a - b * Df64(q1);
    const F q2 = remainder.hi / b.hi;
    remainder = remainder - b * Df64(q2);
    const F q3 = remainder.hi / b.hi;
    const TwoTerm<F> q = quick_two_sum(q1, q2);
    return Df64(q.sum, q.error) + Df64(q3);
  }

  MF_INLINE Df64& operator+=(Df64 b) { return *this = *this + b; }
  MF_INLINE Df64& operator-=(Df64 b) { return *this = *this - b; }
  MF_INLINE Df64& operator*=(Df64 b) { return *this = *this * b; }
};

// a * b + c with the product kept to three floats before the sum.
template <class F>
MF_INLINE Df64<F> fma(Df64<F> a, Df64<F> b, Df64<F> c) {
  const TwoTerm<F> p = two_prod(a.hi, b.hi);
  const TwoTerm<F> q = two_prod(a.hi, b.lo);
  const TwoTerm<F> r = two_prod(a.lo, b.hi);
  const Df64<F> cross = Df64<F>(q.sum, q.error) + Df64<F>(r.sum, r.error + a.lo * b.lo);
  // The largest two terms are added first, so that a cancellation between p and c happens exactly.
  const Df64<F> main = Df64<F>(p.sum, F(0.0f)) + c;
  return main + (Df64<F>(p.error, F(0.0f)) + cross);
}

// sqrt(a) for a >= 0: one Newton step on x = sqrt(a.hi), x + (a - x^2) / (2 x). Zero stays zero.
template <class F>
MF_INLINE Df64<F> sqrt(Df64<F> a) {
  const F x = sqrt(a.hi);
  const TwoTerm<F> square = two_prod(x, x);
  const Df64<F> remainder = a - Df64<F>(square.sum, square.error);
  const auto is_zero = x == F(0.0f);
  const F correction = select(is_zero, F(0.0f), remainder.hi / select(is_zero, F(1.0f), x + x));
  const TwoTerm<F> r = quick_two_sum(x, correction);
  return {r.sum, r.error};
}

template <class F>
MF_INLINE Df64<F> mul_add(Df64<F> a, Df64<F> b, Df64<F> c) {
  return a * b + c;
}

}  // namespace mf
