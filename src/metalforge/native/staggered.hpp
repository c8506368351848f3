// The one-link staggered operator between the sites of two parities.
//
//   (H psi)(x) = sum_mu [W_mu(x) psi(x + mu) - W_mu(x - mu)^dagger psi(x - mu)],   W_mu(x) = eta_mu(x) U_mu(x) / 2
//
// eta_x = 1, eta_y = (-1)^x, eta_z = (-1)^(x+y), eta_t = (-1)^(x+y+z); links that leave the last time slice carry the
// sign of the antiperiodic boundary as well. H is anti-Hermitian and joins opposite parities, so D = m + H has
// D^dagger D = m^2 - H H, which stays on one parity.
//
// The W are a copy of the links in an order of its own (signs and the half are exact): by parity, direction, vector. A
// sweep over one parity then reads eight plain streams, four forward and four backward, which the prefetchers of every
// CPU follow.
#pragma once

#include "draws.hpp"
#include "fields.hpp"

namespace mf {

template <class V>
struct ColourVector {
  Complex<V> c[3];

  static MF_INLINE ColourVector zero() {
    using Real = typename LaneTraits<V>::Real;
    const Complex<V> none{V(Real(0)), V(Real(0))};
    return {{none, none, none}};
  }
};

template <int Bit, class V>
MF_INLINE void exchange_lanes(ColourVector<V>& x) {
  MF_UNROLL
  for (auto& z : x.c) z = {xor_lanes<Bit>(z.re), xor_lanes<Bit>(z.im)};
}

// The real part of a^dagger b.
template <class V>
MF_INLINE V real_dot(const ColourVector<V>& a, const ColourVector<V>& b) {
  V sum = a.c[0].re * b.c[0].re;
  sum = mul_add(a.c[0].im, b.c[0].im, sum);
  MF_UNROLL
  for (int j = 1; j < 3; ++j) sum = mul_add(a.c[j].im, b.c[j].im, mul_add(a.c[j].re, b.c[j].re, sum));
  return sum;
}
// The imaginary part of a^dagger b.
template <class V>
MF_INLINE V imaginary_dot(const ColourVector<V>& a, const ColourVector<V>& b) {
  V sum = neg_mul_add(a.c[0].im, b.c[0].re, a.c[0].re * b.c[0].im);
  MF_UNROLL
  for (int j = 1; j < 3; ++j) sum = neg_mul_add(a.c[j].im, b.c[j].re, mul_add(a.c[j].re, b.c[j].im, sum));
  return sum;
}
// y + s x
template <class V>
MF_INLINE ColourVector<V> mul_add(V s, const ColourVector<V>& x, const ColourVector<V>& y) {
  ColourVector<V> r;
  MF_UNROLL
  for (int j = 0; j < 3; ++j) r.c[j] = {mul_add(s, x.c[j].re, y.c[j].re), mul_add(s, x.c[j].im, y.c[j].im)};
  return r;
}
template <class V>
MF_INLINE ColourVector<V> scale(V s, const ColourVector<V>& x) {
  return {{scale(s, x.c[0]), scale(s, x.c[1]), scale(s, x.c[2])}};
}

// keep y + factor x, of complex numbers
template <class V>
MF_INLINE ColourVector<V> blend(Complex<V> keep, const ColourVector<V>& y, Complex<V> factor,
                                const ColourVector<V>& x) {
  ColourVector<V> r;
  for (int c = 0; c < 3; ++c) r.c[c] = mul_acc(factor, x.c[c], keep * y.c[c]);
  return r;
}
// Complex normals with <|z|^2> = 1: component c of a site is draw number `draw` + c, both of its normals over sqrt 2.
template <class V>
MF_INLINE ColourVector<V> gaussian_colours(const ChainAddress& chain, const u32* sites, u64 draw) {
  const V scale_by(static_cast<typename LaneTraits<V>::Real>(0.70710678118654752440));
  ColourVector<V> x;
  for (int c = 0; c < 3; ++c) {
    const Pair<V> z = normals<V>(chain, sites, draw + static_cast<u64>(c));
    x.c[c] = {scale_by * z.first, scale_by * z.second};
  }
  return x;
}

// A field on the sites of one parity: six numbers of V a vector, in the order of its parity.
template <class V>
struct Colours {
  using Real = typename LaneTraits<V>::Real;
  static constexpr int numbers = 6 * LaneTraits<V>::lanes;
  Real* data;

  MF_INLINE ColourVector<V> load(i64 i) const {
    constexpr int lanes = LaneTraits<V>::lanes;
    const Real* p = data + i * numbers;
    ColourVector<V> x;
    MF_UNROLL
    for (int j = 0; j < 3; ++j)
      x.c[j] = {LaneTraits<V>::load(p + 2 * j * lanes), LaneTraits<V>::load(p + (2 * j + 1) * lanes)};
    return x;
  }
  MF_INLINE void store(const ColourVector<V>& x, i64 i) const {
    constexpr int lanes = LaneTraits<V>::lanes;
    Real* p = data + i * numbers;
    MF_UNROLL
    for (int j = 0; j < 3; ++j) {
      LaneTraits<V>::store(x.c[j].re, p + 2 * j * lanes);
      LaneTraits<V>::store(x.c[j].im, p + (2 * j + 1) * lanes);
    }
  }
};

// conj(a x b): the third row of an SU(3) matrix with rows a and b, in 24 operations.
template <class V>
MF_INLINE void cross_product(const Complex<V> (&a)[3], const Complex<V> (&b)[3], Complex<V> (&row)[3]) {
  MF_UNROLL
  for (int j = 0; j < 3; ++j) {
    const int k = (j + 1) % 3, l = (j + 2) % 3;
    row[j] = conj(mul_acc(Complex<V>{-a[l].re, -a[l].im}, b[k], a[k] * b[l]));
  }
}

// W_mu at the sites of one parity: all three rows of each, or two. Two are two thirds of the bytes, which is what the
// operator costs where its links come from memory; where they are in cache three are faster. The third row is
// conj(row 0 x row 1) times +-2, whose sign, that of the hop, the rows do not know: it is one of few patterns of lanes.
template <class V, int Rows>
struct HoppingLinks {
  using Real = typename LaneTraits<V>::Real;
  static constexpr int lanes = LaneTraits<V>::lanes, numbers = 6 * Rows * lanes;
  Real* data;
  i64 vectors;
  const unsigned char* pattern_of;
  const Real* patterns;

  MF_INLINE Real* address(i64 i, int mu) const { return data + (mu * vectors + i) * numbers; }
  MF_INLINE V sign(i64 i, int mu) const { return LaneTraits<V>::load(patterns + pattern_of[mu * vectors + i] * lanes); }
  static MF_INLINE Complex<V> entry(const Real* link, int row, int column) {
    const Real* p = link + (6 * row + 2 * column) * lanes;
    return {in_register(LaneTraits<V>::load(p)), in_register(LaneTraits<V>::load(p + lanes))};
  }
  MF_INLINE Matrix3<V> load(i64 i, int mu) const {
    const Real* link = address(i, mu);
    Matrix3<V> m;
    MF_UNROLL
    for (int k = 0; k < 3 * Rows; ++k) m.e[k / 3][k % 3] = entry(link, k / 3, k % 3);
    if constexpr (Rows == 2) {
      const V s = sign(i, mu);
      cross_product(m.e[0], m.e[1], m.e[2]);
      for (auto& z : m.e[2]) z = scale(s, z);
    }
    return m;
  }
  MF_INLINE void store(const Matrix3<V>& m, i64 i, int mu) const {
    Real* p = address(i, mu);
    MF_UNROLL
    for (int k = 0; k < 3 * Rows; ++k) {
      LaneTraits<V>::store(m.e[k / 3][k % 3].re, p + 2 * k * lanes);
      LaneTraits<V>::store(m.e[k / 3][k % 3].im, p + (2 * k + 1) * lanes);
    }
  }
  // sum + W x
  MF_INLINE void add_product(i64 i, int mu, const ColourVector<V>& x, ColourVector<V>& sum) const {
    const Real* link = address(i, mu);
    if constexpr (Rows == 3) {
      MF_UNROLL
      for (int column = 0; column < 3; ++column) MF_UNROLL
      for (int row = 0; row < 3; ++row) sum.c[row] = mul_acc(entry(link, row, column), x.c[column], sum.c[row]);
    } else {
      Complex<V> w[2][3];
      MF_UNROLL
      for (int row = 0; row < 2; ++row) MF_UNROLL
      for (int column = 0; column < 3; ++column) {
        w[row][column] = entry(link, row, column);
        sum.c[row] = mul_acc(w[row][column], x.c[column], sum.c[row]);
      }
      const V s = sign(i, mu);
      Complex<V> third = ColourVector<V>::zero().c[0];
      MF_UNROLL
      for (int column = 0; column < 3; ++column) third = conj_mul_acc(crossed(w, column), x.c[column], third);
      sum.c[2] = {mul_add(s, third.re, sum.c[2].re), mul_add(s, third.im, sum.c[2].im)};
    }
  }
  // sum - W^dagger x
  MF_INLINE void subtract_adjoint_product(i64 i, int mu, const ColourVector<V>& x, ColourVector<V>& sum) const {
    const Real* link = address(i, mu);
    Complex<V> w[2][3];
    MF_UNROLL
    for (int row = 0; row < Rows; ++row) MF_UNROLL
    for (int column = 0; column < 3; ++column) {
      const Complex<V> z = entry(link, row, column);
      if (row < 2) w[row][column] = z;
      sum.c[column] = conj_mul_sub(z, x.c[row], sum.c[column]);
    }
    if constexpr (Rows == 2) {
      const Complex<V> third = scale(sign(i, mu), x.c[2]);
      MF_UNROLL
      for (int column = 0; column < 3; ++column) sum.c[column] = mul_sub(crossed(w, column), third, sum.c[column]);
    }
  }
#if !MF_CUDA
  MF_INLINE void prefetch(i64 i, int mu) const {
    const char* p = reinterpret_cast<const char*>(data) + (mu * vectors + i) * numbers * static_cast<i64>(sizeof(Real));
    MF_UNROLL
    for (int line = 0; line < numbers * static_cast<int>(sizeof(Real)); line += 64) __builtin_prefetch(p + line, 0, 2);
  }
#endif

 private:
  // Entry j of row 0 x row 1.
  static MF_INLINE Complex<V> crossed(const Complex<V> (&w)[2][3], int j) {
    const int k = (j + 1) % 3, l = (j + 2) % 3;
    return mul_sub(w[0][l], w[1][k], w[0][k] * w[1][l]);
  }
};

// How many vectors ahead links are fetched where they come from far: by then the ones before them have been used.
inline constexpr int prefetch_distance = 2;

// (H psi)(x) for vector i of one parity; `here` are its links, `there` and `psi` belong to the other parity. `around`
// points at its eight neighbours there, four forward and four backward, and those of the next vectors follow.
// A backward term is multiplied where it lies and its three numbers are brought over, instead of the nine of a link.
// Links, Field and Around are the drivers': those above and a table, or what a GPU has.
template <bool Prefetch, class Links, class Field, class Around>
MF_INLINE auto hop(const Links& here, const Links& there, const Field& psi, const Around& around, i64 i) {
  using Vector = decltype(psi.load(i));
  Vector sum = Vector::zero();
  MF_ROLLED_ON_CPU
  for (int mu = 0; mu < 4; ++mu) {
    if constexpr (Prefetch) {
      here.prefetch(i + prefetch_distance, mu);
      there.prefetch(around[8 * prefetch_distance + 4 + mu].vector, mu);
    }
    {
      const Neighbour at = around[mu];
      Vector x = psi.load(at.vector);
      if (at.mask != 0) exchange(x, at.mask);
      here.add_product(i, mu, x, sum);
    }
    {
      const Neighbour at = around[4 + mu];
      const Vector x = psi.load(at.vector);
      if (at.mask == 0) {
        there.subtract_adjoint_product(at.vector, mu, x, sum);
      } else {
        Vector term = Vector::zero();
        there.subtract_adjoint_product(at.vector, mu, x, term);
        exchange(term, at.mask);
        MF_UNROLL
        for (int j = 0; j < 3; ++j) sum.c[j] = sum.c[j] + term.c[j];
      }
    }
  }
  return sum;
}

// sum + W x and sum - W^dagger x, in the order of `hop`.
template <class V>
MF_INLINE void add_product(const Matrix3<V>& w, const ColourVector<V>& x, ColourVector<V>& sum) {
  MF_UNROLL
  for (int column = 0; column < 3; ++column) MF_UNROLL
  for (int row = 0; row < 3; ++row) sum.c[row] = mul_acc(w.e[row][column], x.c[column], sum.c[row]);
}
template <class V>
MF_INLINE void subtract_adjoint_product(const Matrix3<V>& w, const ColourVector<V>& x, ColourVector<V>& sum) {
  MF_UNROLL
  for (int row = 0; row < 3; ++row) MF_UNROLL
  for (int column = 0; column < 3; ++column) sum.c[column] = conj_mul_sub(w.e[row][column], x.c[row], sum.c[column]);
}
// acc + s b a^dagger
template <class V>
MF_INLINE void outer_acc(V s, const ColourVector<V>& b, const ColourVector<V>& a, Matrix3<V>& acc) {
  const ColourVector<V> sb = scale(s, b);
  MF_UNROLL
  for (int i = 0; i < 3; ++i) MF_UNROLL
  for (int j = 0; j < 3; ++j) acc.e[i][j] = mul_conj_acc(sb.c[i], a.c[j], acc.e[i][j]);
}

// The half, eta_mu and the sign of the boundary of the link U_mu of a site, given by its number in file order.
MF_INLINE double hopping_sign(u32 site, const int (&dims)[4], int mu) {
  int sum = 0, coordinate = 0;
  MF_UNROLL
  for (int nu = 0; nu <= mu; ++nu) {
    sum += coordinate;
    coordinate = static_cast<int>(site % static_cast<u32>(dims[nu]));
    site /= static_cast<u32>(dims[nu]);
  }
  const bool negative = (sum % 2 == 1) != (mu == 3 && coordinate == dims[3] - 1);
  return negative ? -0.5 : 0.5;
}

// W_mu(x) of a link.
template <class V>
MF_INLINE Matrix3<V> hopping_link(Matrix3<V> u, V sign) {
  for (auto& row : u.e)
    for (auto& z : row) z = scale(sign, z);
  return u;
}

// pi_a <- pi_a + kick_a, with the kick Im tr T_a W M of a hop.
template <class V>
MF_INLINE void kick_by(const Algebra<V>& kick, Algebra<V>& pi) {
  for (int c = 0; c < 8; ++c) pi.c[c] = pi.c[c] + kick.c[c];
}

// (d - H H) x given H H x, and b minus that.
template <class V>
MF_INLINE ColourVector<V> normal_product(V d, const ColourVector<V>& x, const ColourVector<V>& hop_hop_x) {
  using Real = typename LaneTraits<V>::Real;
  return mul_add(d, x, scale(V(static_cast<Real>(-1)), hop_hop_x));
}
template <class V>
MF_INLINE ColourVector<V> difference(const ColourVector<V>& b, const ColourVector<V>& y) {
  using Real = typename LaneTraits<V>::Real;
  return mul_add(V(static_cast<Real>(-1)), y, b);
}

// The steps of conjugate gradients on A = d - H H, given H y of y = H p: r + alpha (H y - d p).
template <class V>
MF_INLINE ColourVector<V> cg_residual(V alpha, V d, const ColourVector<V>& p, const ColourVector<V>& hop_y,
                                      const ColourVector<V>& r) {
  return mul_add(alpha, mul_add(-d, p, hop_y), r);
}
// zeta r + beta p
template <class V>
MF_INLINE ColourVector<V> cg_direction(V beta, const ColourVector<V>& p, V zeta, const ColourVector<V>& r) {
  return mul_add(beta, p, scale(zeta, r));
}

}  // namespace mf
