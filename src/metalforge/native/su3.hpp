// SU(3) matrices over a real type T: double or float (one site), or a Simd of them (one site a lane).
//
// Algebra: T_a = lambda_a / 2 with tr T_a T_b = delta_ab / 2; a momentum is eight reals pi_a, standing for
// H = sum_a pi_a T_a (Hermitian, traceless), and moves a link by U <- exp(i eps H) U.
#pragma once

#include "elementary.hpp"

namespace mf {

template <class T>
struct Complex {
  T re, im;
};

template <class T>
MF_INLINE Complex<T> operator+(Complex<T> a, Complex<T> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class T>
MF_INLINE Complex<T> operator-(Complex<T> a, Complex<T> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class T>
MF_INLINE Complex<T> conj(Complex<T> a) {
  return {a.re, -a.im};
}
template <class T>
MF_INLINE Complex<T> scale(T s, Complex<T> a) {
  return {s * a.re, s * a.im};
}
template <class T>
MF_INLINE T norm2(Complex<T> a) {
  return mul_add(a.re, a.re, a.im * a.im);
}

// acc + a b, acc + conj(a) b, acc + a conj(b): four multiply-adds each.
template <class T>
MF_INLINE Complex<T> mul_acc(Complex<T> a, Complex<T> b, Complex<T> acc) {
  return {neg_mul_add(a.im, b.im, mul_add(a.re, b.re, acc.re)), mul_add(a.im, b.re, mul_add(a.re, b.im, acc.im))};
}
template <class T>
MF_INLINE Complex<T> conj_mul_acc(Complex<T> a, Complex<T> b, Complex<T> acc) {
  return {mul_add(a.im, b.im, mul_add(a.re, b.re, acc.re)), neg_mul_add(a.im, b.re, mul_add(a.re, b.im, acc.im))};
}
template <class T>
MF_INLINE Complex<T> mul_conj_acc(Complex<T> a, Complex<T> b, Complex<T> acc) {
  return {mul_add(a.im, b.im, mul_add(a.re, b.re, acc.re)), mul_add(a.im, b.re, neg_mul_add(a.re, b.im, acc.im))};
}
// acc - conj(a) b
template <class T>
MF_INLINE Complex<T> conj_mul_sub(Complex<T> a, Complex<T> b, Complex<T> acc) {
  return {neg_mul_add(a.im, b.im, neg_mul_add(a.re, b.re, acc.re)),
          mul_add(a.im, b.re, neg_mul_add(a.re, b.im, acc.im))};
}
// acc - a b
template <class T>
MF_INLINE Complex<T> mul_sub(Complex<T> a, Complex<T> b, Complex<T> acc) {
  return {mul_add(a.im, b.im, neg_mul_add(a.re, b.re, acc.re)),
          neg_mul_add(a.im, b.re, neg_mul_add(a.re, b.im, acc.im))};
}
template <class T>
MF_INLINE Complex<T> operator*(Complex<T> a, Complex<T> b) {
  return {neg_mul_add(a.im, b.im, a.re * b.re), mul_add(a.im, b.re, a.re * b.im)};
}

template <class T>
struct Matrix3 {
  Complex<T> e[3][3];

  static MF_INLINE Matrix3 zero() {
    Matrix3 m;
    MF_UNROLL
    for (int i = 0; i < 3; ++i) MF_UNROLL
    for (int j = 0; j < 3; ++j) m.e[i][j] = {T(0), T(0)};
    return m;
  }
};

// Factors of products need not be in one place: all they have is entry(row, column).
template <class T>
MF_INLINE Complex<T> entry(const Matrix3<T>& m, int row, int column) {
  return m.e[row][column];
}

// acc + A B
template <class A, class B, class T>
MF_INLINE void mul_acc(const A& a, const B& b, Matrix3<T>& acc) {
  MF_UNROLL
  for (int i = 0; i < 3; ++i) MF_UNROLL
  for (int k = 0; k < 3; ++k) MF_UNROLL
  for (int j = 0; j < 3; ++j) acc.e[i][j] = mul_acc(entry(a, i, k), entry(b, k, j), acc.e[i][j]);
}
// acc + A B^dagger
template <class A, class B, class T>
MF_INLINE void mul_adj_acc(const A& a, const B& b, Matrix3<T>& acc) {
  MF_UNROLL
  for (int i = 0; i < 3; ++i) MF_UNROLL
  for (int j = 0; j < 3; ++j) MF_UNROLL
  for (int k = 0; k < 3; ++k) acc.e[i][j] = mul_conj_acc(entry(a, i, k), entry(b, j, k), acc.e[i][j]);
}
// acc + A^dagger B
template <class A, class B, class T>
MF_INLINE void adj_mul_acc(const A& a, const B& b, Matrix3<T>& acc) {
  MF_UNROLL
  for (int i = 0; i < 3; ++i) MF_UNROLL
  for (int k = 0; k < 3; ++k) MF_UNROLL
  for (int j = 0; j < 3; ++j) acc.e[i][j] = conj_mul_acc(entry(a, k, i), entry(b, k, j), acc.e[i][j]);
}
template <class A, class B>
MF_INLINE auto mul(const A& a, const B& b) {
  using T = decltype(entry(a, 0, 0).re + entry(b, 0, 0).re);
  Matrix3<T> m = Matrix3<T>::zero();
  mul_acc(a, b, m);
  return m;
}
template <class T>
MF_INLINE Matrix3<T> mul_adj(const Matrix3<T>& a, const Matrix3<T>& b) {
  Matrix3<T> m = Matrix3<T>::zero();
  mul_adj_acc(a, b, m);
  return m;
}
template <class T>
MF_INLINE Matrix3<T> adj_mul(const Matrix3<T>& a, const Matrix3<T>& b) {
  Matrix3<T> m = Matrix3<T>::zero();
  adj_mul_acc(a, b, m);
  return m;
}
// Re tr(A B^dagger)
template <class T>
MF_INLINE T re_trace_mul_adj(const Matrix3<T>& a, const Matrix3<T>& b) {
  T sum(0);
  MF_UNROLL
  for (int i = 0; i < 3; ++i) MF_UNROLL
  for (int j = 0; j < 3; ++j) sum = mul_add(a.e[i][j].im, b.e[i][j].im, mul_add(a.e[i][j].re, b.e[i][j].re, sum));
  return sum;
}
template <class T>
MF_INLINE Complex<T> trace(const Matrix3<T>& a) {
  return a.e[0][0] + a.e[1][1] + a.e[2][2];
}

template <class T>
struct Algebra {
  T c[8];
};

// Im tr(T_a M) for a = 1 ... 8: the derivative of -Re tr(M) under U -> exp(i w_a T_a) U, where M = U A.
template <class T>
MF_INLINE Algebra<T> im_trace_generators(const Matrix3<T>& m) {
  const T half(0.5), inv_2_sqrt3(0.28867513459481288225);
  return {{half * (m.e[0][1].im + m.e[1][0].im), half * (m.e[0][1].re - m.e[1][0].re),
           half * (m.e[0][0].im - m.e[1][1].im), half * (m.e[0][2].im + m.e[2][0].im),
           half * (m.e[0][2].re - m.e[2][0].re), half * (m.e[1][2].im + m.e[2][1].im),
           half * (m.e[1][2].re - m.e[2][1].re),
           inv_2_sqrt3 * (m.e[0][0].im + m.e[1][1].im - (m.e[2][2].im + m.e[2][2].im))}};
}

// A Hermitian traceless 3x3 matrix by its six independent entries.
template <class T>
struct Hermitian3 {
  T d0, d1, d2;
  Complex<T> o01, o02, o12;
};

template <class T>
MF_INLINE Hermitian3<T> hermitian(const Algebra<T>& a, T factor) {
  const T half = factor * T(0.5), diagonal = factor * T(0.28867513459481288225) * a.c[7];
  const T third = half * a.c[2];
  return {third + diagonal,
          diagonal - third,
          -(diagonal + diagonal),
          {half * a.c[0], -(half * a.c[1])},
          {half * a.c[3], -(half * a.c[4])},
          {half * a.c[5], -(half * a.c[6])}};
}

MF_INLINE bool any_above(double x, double bound) { return x > bound; }
template <class T, int L>
MF_INLINE bool any_above(Simd<T, L> x, double bound) {
  bool any = false;
  for (int i = 0; i < L; ++i) any = any || static_cast<double>(x[i]) > bound;
  return any;
}

// exp(i Q) for Hermitian traceless Q. Cayley-Hamilton, Q^3 = c1 Q + c0 with c1 = tr Q^2 / 2 and c0 = det Q, keeps every
// power of Q in the span of 1, Q, Q^2 (Morningstar and Peardon, hep-lat/0311018), so the Taylor series to order 18 runs
// on three complex numbers by Horner's rule. Its remainder is below 1e-17 for |Q| <= 1, which c1 <= 3/4 guarantees;
// beyond that exp(iQ) = exp(iQ/2)^2.
template <class T>
MF_INLINE Matrix3<T> exp_i(Hermitian3<T> q) {
  T c1 =
      T(0.5) * (mul_add(q.d0, q.d0, mul_add(q.d1, q.d1, q.d2 * q.d2))) + (norm2(q.o01) + norm2(q.o02) + norm2(q.o12));
  int squarings = 0;
  T factor(1);
  while (squarings < 40 && any_above(c1, 0.75)) {
    const auto large = T(0.75) < c1;
    c1 = select(large, T(0.25) * c1, c1);
    factor = select(large, T(0.5) * factor, factor);
    ++squarings;
  }
  if (squarings > 0)
    q = {factor * q.d0, factor * q.d1, factor * q.d2, scale(factor, q.o01), scale(factor, q.o02), scale(factor, q.o12)};
  const Complex<T> o01_o12 = q.o01 * q.o12;
  const T c0 = q.d0 * q.d1 * q.d2 + T(2) * mul_add(o01_o12.re, q.o02.re, o01_o12.im * q.o02.im) - q.d0 * norm2(q.o12) -
               q.d1 * norm2(q.o02) - q.d2 * norm2(q.o01);
  // Horner over i^n / n!, n = 18 ... 0: (a0 + a1 Q + a2 Q^2) Q + i^n / n!.
  Complex<T> a0{T(-inverse_factorial(18)), T(0)}, a1{T(0), T(0)}, a2{T(0), T(0)};
  MF_UNROLL
  for (int n = 17; n >= 0; --n) {
    const double coefficient = (n & 2) ? -inverse_factorial(n) : inverse_factorial(n);  // i^n up to a factor i
    const T real(n & 1 ? 0.0 : coefficient), imaginary(n & 1 ? coefficient : 0.0);
    const Complex<T> next0{mul_add(a2.re, c0, real), mul_add(a2.im, c0, imaginary)};
    const Complex<T> next1{mul_add(a2.re, c1, a0.re), mul_add(a2.im, c1, a0.im)};
    a2 = a1;
    a1 = next1;
    a0 = next0;
  }
  // Q^2, Hermitian; tracelessness turns q00 + q11 into -q22 and so on.
  const T n01 = norm2(q.o01), n02 = norm2(q.o02), n12 = norm2(q.o12);
  const T s0 = mul_add(q.d0, q.d0, n01 + n02), s1 = mul_add(q.d1, q.d1, n01 + n12), s2 = mul_add(q.d2, q.d2, n02 + n12);
  const Complex<T> s01 = mul_conj_acc(q.o02, q.o12, scale(-q.d2, q.o01));
  const Complex<T> s02 = mul_acc(q.o01, q.o12, scale(-q.d1, q.o02));
  const Complex<T> s12 = conj_mul_acc(q.o01, q.o02, scale(-q.d0, q.o12));
  const auto diagonal = [&](T d, T s) {
    return Complex<T>{mul_add(a1.re, d, mul_add(a2.re, s, a0.re)), mul_add(a1.im, d, mul_add(a2.im, s, a0.im))};
  };
  const auto upper = [&](Complex<T> o, Complex<T> s) { return mul_acc(a1, o, a2 * s); };
  const auto lower = [&](Complex<T> o, Complex<T> s) { return mul_conj_acc(a1, o, a2 * conj(s)); };
  Matrix3<T> m{{{diagonal(q.d0, s0), upper(q.o01, s01), upper(q.o02, s02)},
                {lower(q.o01, s01), diagonal(q.d1, s1), upper(q.o12, s12)},
                {lower(q.o02, s02), lower(q.o12, s12), diagonal(q.d2, s2)}}};
  // A lane is squared as often as it was halved, whatever its neighbours need: its bits are those of the site alone.
  for (; squarings > 0; --squarings) {
    const auto halved = factor < T(1);
    const Matrix3<T> square = mul(m, m);
    for (int i = 0; i < 9; ++i) {
      Complex<T>& z = m.e[i / 3][i % 3];
      const Complex<T> s = square.e[i / 3][i % 3];
      z = {select(halved, s.re, z.re), select(halved, s.im, z.im)};
    }
    factor = T(2) * factor;
  }
  return m;
}

// The third row of an SU(3) matrix: conj(row 0 x row 1).
template <class T>
MF_INLINE void complete_third_row(Matrix3<T>& u) {
  MF_UNROLL
  for (int j = 0; j < 3; ++j) {
    const int k = (j + 1) % 3, l = (j + 2) % 3;
    u.e[2][j] = conj(u.e[0][k] * u.e[1][l] - u.e[0][l] * u.e[1][k]);
  }
}

// Gram-Schmidt on the first two rows, the third from them: the nearest thing to U for rounding-sized errors.
template <class T>
MF_INLINE void reunitarise(Matrix3<T>& u) {
  const auto normalise = [&](int row) {
    const T length2 = norm2(u.e[row][0]) + norm2(u.e[row][1]) + norm2(u.e[row][2]);
    const T inverse = T(1) / sqrt(length2);
    for (auto& z : u.e[row]) z = scale(inverse, z);
  };
  normalise(0);
  Complex<T> overlap{T(0), T(0)};
  for (int j = 0; j < 3; ++j) overlap = conj_mul_acc(u.e[0][j], u.e[1][j], overlap);
  for (int j = 0; j < 3; ++j) u.e[1][j] = u.e[1][j] - overlap * u.e[0][j];
  normalise(1);
  complete_third_row(u);
}

}  // namespace mf
