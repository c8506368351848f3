// The fields of a lattice as kernels see them: positions that step to their neighbours, links and momenta in vectors of
// sites. Who makes the tables and the memory (bindings/layout.hpp on a CPU) is the driver's business.
#pragma once

#include "su3.hpp"

namespace mf {

// Where a step leads: to which vector, and which lanes are exchanged on the way.
struct Neighbour {
  i32 vector;
  i32 mask;
};

// A position on the lattice: a vector of sites whose lanes are exchanged by `mask`. The table has eight neighbours a
// vector, four forward and four backward.
struct Position {
  const Neighbour* table;
  i64 vector;
  int mask;

  MF_INLINE Position forward(int mu) const { return stepped(table[8 * vector + mu]); }
  MF_INLINE Position backward(int mu) const { return stepped(table[8 * vector + 4 + mu]); }

 private:
  MF_INLINE Position stepped(Neighbour to) const { return {table, to.vector, mask ^ to.mask}; }
};

template <int Bit, class V>
MF_INLINE void exchange_lanes(Matrix3<V>& m) {
  MF_UNROLL
  for (int i = 0; i < 9; ++i) {
    auto& z = m.e[i / 3][i % 3];
    z = {xor_lanes<Bit>(z.re), xor_lanes<Bit>(z.im)};
  }
}

// Exchanges the lanes of x for every bit of `mask`. Without lambdas: NVRTC of CUDA 12 and 13.0 takes generic ones for
// the host's, even where they are discarded.
template <template <class> class X, class V>
MF_INLINE void exchange(X<V>& x, int mask) {
  constexpr int lanes = LaneTraits<V>::lanes;
  if constexpr (lanes > 1)
    if (mask & 1) exchange_lanes<1>(x);
  if constexpr (lanes > 2)
    if (mask & 2) exchange_lanes<2>(x);
  if constexpr (lanes > 4)
    if (mask & 4) exchange_lanes<4>(x);
  if constexpr (lanes > 8)
    if (mask & 8) exchange_lanes<8>(x);
}

// The gauge field: link mu of vector v is 18 numbers of V, re and im of the rows in turn.
template <class V>
struct Links {
  using Real = typename LaneTraits<V>::Real;
  static constexpr int lanes = LaneTraits<V>::lanes;
  Real* data;

  MF_INLINE Real* address(i64 vector, int mu) const { return data + (vector * 4 + mu) * 18 * lanes; }

  MF_INLINE Matrix3<V> load(const Position& x, int mu) const {
    const Real* p = address(x.vector, mu);
    Matrix3<V> m;
    MF_UNROLL
    for (int i = 0; i < 9; ++i)
      m.e[i / 3][i % 3] = {LaneTraits<V>::load(p + 2 * i * lanes), LaneTraits<V>::load(p + (2 * i + 1) * lanes)};
    if (x.mask != 0) exchange(m, x.mask);
    return m;
  }
  MF_INLINE void store(const Matrix3<V>& m, i64 vector, int mu) const {
    Real* p = address(vector, mu);
    MF_UNROLL
    for (int i = 0; i < 9; ++i) {
      LaneTraits<V>::store(m.e[i / 3][i % 3].re, p + 2 * i * lanes);
      LaneTraits<V>::store(m.e[i / 3][i % 3].im, p + (2 * i + 1) * lanes);
    }
  }
};

#if !MF_CUDA
// A link as a factor of products: its numbers stay where they are, unless lanes are exchanged. Sixteen registers hold
// no matrix and its product, and a copy of each link was a third of the instructions of a staple.
template <class V>
class LinkFactor {
 public:
  MF_INLINE LinkFactor(const Links<V>& links, const Position& x, int mu) : at_(links.address(x.vector, mu)) {
    if (x.mask == 0) return;
    exchanged_ = links.load(x, mu);
    at_ = reinterpret_cast<const Real*>(&exchanged_);
  }
  LinkFactor(const LinkFactor&) = delete;
  LinkFactor& operator=(const LinkFactor&) = delete;

  friend MF_INLINE Complex<V> entry(const LinkFactor& link, int row, int column) {
    const Real* p = link.at_ + (6 * row + 2 * column) * LaneTraits<V>::lanes;
    return {LaneTraits<V>::load(p), LaneTraits<V>::load(p + LaneTraits<V>::lanes)};
  }

 private:
  using Real = typename LaneTraits<V>::Real;
  const Real* at_;
  Matrix3<V> exchanged_;
};
template <class V>
MF_INLINE LinkFactor<V> factor(const Links<V>& links, const Position& x, int mu) {
  return LinkFactor<V>(links, x, mu);
}

// Links that are not read but fetched: what a function loads comes to a core's own cache. Its result means nothing, and
// without a use of it nothing is computed.
template <class V>
struct FetchedLinks {
  Links<V> links;

  MF_INLINE Matrix3<V> load(const Position& x, int mu) const {
    const char* p = reinterpret_cast<const char*>(links.address(x.vector, mu));
    MF_UNROLL
    for (int line = 0; line < 18 * static_cast<int>(sizeof(V)); line += 64) __builtin_prefetch(p + line, 0, 2);
    return Matrix3<V>::zero();
  }
};
#endif

// Momenta: eight numbers of V a link.
template <class V>
struct Momenta {
  using Real = typename LaneTraits<V>::Real;
  static constexpr int lanes = LaneTraits<V>::lanes;
  Real* data;

  MF_INLINE Real* address(i64 vector, int mu) const { return data + (vector * 4 + mu) * 8 * lanes; }
  MF_INLINE Algebra<V> load(i64 vector, int mu) const {
    const Real* p = address(vector, mu);
    Algebra<V> a;
    for (int c = 0; c < 8; ++c) a.c[c] = LaneTraits<V>::load(p + c * lanes);
    return a;
  }
  MF_INLINE void store(const Algebra<V>& a, i64 vector, int mu) const {
    Real* p = address(vector, mu);
    for (int c = 0; c < 8; ++c) LaneTraits<V>::store(a.c[c], p + c * lanes);
  }
};

}  // namespace mf
