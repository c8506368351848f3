// df64: a real number as an unevaluated pair of floats, hi + lo with |lo| <= ulp(hi)/2: 48 bits on hardware whose
// doubles are slow. F is float or Simd<float, L>; a df64 is "just another real type" for every kernel.
//
// Few operations rather than the tightest bounds: a multiply-add takes 15, a product 7, a sum 11. Error-free
// transformations: Knuth TAOCP 2 4.2.2 (two_sum), the product by a fused multiply-add. Bounds: Joldes, Muller, Popescu,
// "Tight and rigorous error bounds for basic building blocks of double-word arithmetic", ACM TOMS 44 (2017), with
// u = 2^-24: a product is off by less than 5 u^2 (algorithm 11), typically by u^2 / 4; a sum by less than 3 u^2 of its
// terms' magnitudes (algorithm 5), which says little where they cancel. So 45 bits always and 48 as a rule, as long as
// nothing overflows or becomes subnormal.
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

template <class F>
struct Df64 {
  F hi, lo;

  Df64() = default;
  MF_INLINE Df64(F high, F low) : hi(high), lo(low) {}
  MF_INLINE explicit Df64(TwoTerm<F> t) : hi(t.sum), lo(t.error) {}
  MF_INLINE explicit Df64(F value) : hi(value), lo(F(0.0f)) {}
  MF_INLINE explicit Df64(int value) : hi(F(static_cast<float>(value))), lo(F(0.0f)) {}
  // Both halves: through float alone a constant would keep 24 bits.
  MF_INLINE explicit Df64(double value)
      : hi(F(static_cast<float>(value))),
        lo(F(static_cast<float>(value - static_cast<double>(static_cast<float>(value))))) {}
  MF_INLINE explicit operator double() const { return static_cast<double>(hi) + static_cast<double>(lo); }

  friend MF_INLINE Df64 operator-(Df64 a) { return {-a.hi, -a.lo}; }
  friend MF_INLINE Df64 operator+(Df64 a, Df64 b) {
    const TwoTerm<F> high = two_sum(a.hi, b.hi);
    return Df64(quick_two_sum(high.sum, high.error + (a.lo + b.lo)));
  }
  friend MF_INLINE Df64 operator-(Df64 a, Df64 b) { return a + (-b); }
  friend MF_INLINE Df64 operator*(Df64 a, Df64 b) {
    const TwoTerm<F> p = product(a, b);
    return Df64(quick_two_sum(p.sum, p.error));
  }
  // A float quotient, then a correction from its remainder.
  friend MF_INLINE Df64 operator/(Df64 a, Df64 b) {
    const F quotient = a.hi / b.hi;
    const Df64 remainder = neg_mul_add(Df64(quotient), b, a);
    return Df64(quick_two_sum(quotient, remainder.hi / b.hi));
  }
  friend MF_INLINE auto operator<(Df64 a, Df64 b) { return (a - b).hi < F(0.0f); }

  // a b as a float and what it lacks.
  static MF_INLINE TwoTerm<F> product(Df64 a, Df64 b) {
    const F p = a.hi * b.hi;
    return {p, fma(a.hi, b.lo, fma(a.lo, b.hi, fma(a.hi, b.hi, -p)))};
  }
};

template <class F>
MF_INLINE Df64<F> mul_add(Df64<F> a, Df64<F> b, Df64<F> c) {
  const TwoTerm<F> p = Df64<F>::product(a, b), s = two_sum(p.sum, c.hi);
  return Df64<F>(quick_two_sum(s.sum, s.error + (p.error + c.lo)));
}
template <class F>
MF_INLINE Df64<F> neg_mul_add(Df64<F> a, Df64<F> b, Df64<F> c) {
  return mul_add(-a, b, c);
}

// sqrt(a) for a >= 0: one Newton step on x = sqrt(a.hi), x + (a - x^2) / (2 x). Zero stays zero.
template <class F>
MF_INLINE Df64<F> sqrt(Df64<F> a) {
  const F x = sqrt(a.hi);
  const Df64<F> remainder = neg_mul_add(Df64<F>(x), Df64<F>(x), a);
  const auto is_zero = x == F(0.0f);
  const F correction = select(is_zero, F(0.0f), remainder.hi / select(is_zero, F(1.0f), x + x));
  return Df64<F>(quick_two_sum(x, correction));
}

template <class Condition, class F>
MF_INLINE Df64<F> select(Condition condition, Df64<F> a, Df64<F> b) {
  return {select(condition, a.hi, b.hi), select(condition, a.lo, b.lo)};
}
MF_INLINE bool any_above(Df64<float> x, double bound) { return static_cast<double>(x.hi) > bound; }

}  // namespace mf
