// Colour fields and the operator's links on a GPU: where they lie, and H of a field at a site of one parity.
#pragma once

#include "sites.cuh"
#include "staggered.hpp"

namespace mf::gpu {

// Two rows of a link are stored: two thirds of the bytes, which are what the operator costs. The third row is made from
// them. A thread loads sixteen bytes at once: a complex number of doubles, or two of floats.
template <class T>
struct Word;
template <>
struct Word<double> {
  using type = double2;
  static constexpr int of_link = 6;
  static MF_INLINE double2 make(Complex<double> z) { return make_double2(z.re, z.im); }
};
template <>
struct Word<float> {
  using type = float4;
  static constexpr int of_link = 3;
  static MF_INLINE float4 make(Complex<float> a, Complex<float> b) { return make_float4(a.re, a.im, b.re, b.im); }
};

template <class T>
struct LinkWords {
  typename Word<T>::type word[Word<T>::of_link];
};

MF_INLINE double flipped(double x, bool negative) {
  return bit_cast<double>(bit_cast<u64>(x) ^ (static_cast<u64>(negative) << 63));
}
MF_INLINE float flipped(float x, bool negative) {
  return bit_cast<float>(bit_cast<u32>(x) ^ (static_cast<u32>(negative) << 31));
}

// The words of 2 W = +-U, and 2 W of words. The cross product of two rows knows no sign, so that is given.
MF_INLINE LinkWords<double> folded(const Matrix3<double>& m) {
  LinkWords<double> words;
  MF_UNROLL
  for (int n = 0; n < 6; ++n) words.word[n] = Word<double>::make(m.e[n / 3][n % 3]);
  return words;
}
MF_INLINE LinkWords<float> folded(const Matrix3<float>& m) {
  LinkWords<float> words;
  MF_UNROLL
  for (int n = 0; n < 3; ++n)
    words.word[n] = Word<float>::make(m.e[2 * n / 3][2 * n % 3], m.e[(2 * n + 1) / 3][(2 * n + 1) % 3]);
  return words;
}
template <class T>
MF_INLINE Matrix3<T> unfolded(const LinkWords<T>& words, bool negative) {
  Matrix3<T> m;
  MF_UNROLL
  for (int n = 0; n < Word<T>::of_link; ++n) {
    const auto w = words.word[n];
    if constexpr (Word<T>::of_link == 6) {
      m.e[n / 3][n % 3] = {w.x, w.y};
    } else {
      m.e[2 * n / 3][2 * n % 3] = {w.x, w.y};
      m.e[(2 * n + 1) / 3][(2 * n + 1) % 3] = {w.z, w.w};
    }
  }
  Complex<T> row[3];
  MF_UNROLL
  for (int j = 0; j < 3; ++j) row[j] = {flipped(m.e[0][j].re, negative), flipped(m.e[0][j].im, negative)};
  cross_product(row, m.e[1], m.e[2]);
  return m;
}

// Bit mu: the sign of the link that leaves a site in direction mu; bit 4 + mu: of the one that comes in.
MF_INLINE u32 signs_at(const Lattice& l, const Coordinates& c) {
  const u32 x = static_cast<u32>(c.x[0]), y = static_cast<u32>(c.x[1]), z = static_cast<u32>(c.x[2]);
  const u32 eta = (x & 1) << 1 | ((x + y) & 1) << 2 | ((x + y + z) & 1) << 3;
  return (eta ^ static_cast<u32>(c.x[3] == l.extent[3] - 1) << 3) | (eta ^ static_cast<u32>(c.x[3] == 0) << 3) << 4;
}

// The operator's links of all chains, in blocks as those of the gauge field.
template <class T>
struct Hopping {
  using W = typename Word<T>::type;
  W* data;

  MF_INLINE W* at(int place, int mu) const {
    constexpr int words = Word<T>::of_link * block_sites;
    return data + (static_cast<i64>(place / block_sites) * 4 + mu) * words + place % block_sites;
  }
  // Each link is used once a pass: it need not stay in the cache, where vectors are used eight times.
  __device__ __forceinline__ LinkWords<T> load(int place, int mu) const {
    const W* from = at(place, mu);
    LinkWords<T> words;
    MF_UNROLL
    for (int n = 0; n < Word<T>::of_link; ++n) words.word[n] = __ldcs(from + n * block_sites);
    return words;
  }
  MF_INLINE void store(const LinkWords<T>& words, int place, int mu) const {
    W* to = at(place, mu);
    MF_UNROLL
    for (int n = 0; n < Word<T>::of_link; ++n) to[n * block_sites] = words.word[n];
  }
};

// A field on one parity of one chain, `first` its place.
template <class T>
struct Field {
  Blocks<T, 3, 1> blocks;
  int first;

  MF_INLINE ColourVector<T> load(int i) const {
    const auto* at = blocks.at(first + i, 0);
    return {{blocks.get(at, 0), blocks.get(at, 1), blocks.get(at, 2)}};
  }
  MF_INLINE void store(const ColourVector<T>& v, int i) const {
    auto* at = blocks.at(first + i, 0);
    MF_UNROLL
    for (int c = 0; c < 3; ++c) blocks.set(at, c, v.c[c]);
  }
};
template <class T>
MF_INLINE Field<T> field_of(void* data, const Lattice& l, int chain) {
  return {{static_cast<typename Element<T>::type*>(data)}, chain * l.padded};
}

// H psi at a site, from its neighbours' psi(k) and the words of links(k), k < 4 forward and k >= 4 backward.
template <class T, class Psi, class Links>
__device__ __forceinline__ ColourVector<T> hopped(u32 signs, Psi psi, Links links) {
  ColourVector<T> sum = ColourVector<T>::zero();
  MF_UNROLL
  for (int mu = 0; mu < 4; ++mu) {
    add_product(unfolded<T>(links(mu), signs >> mu & 1), psi(mu), sum);
    subtract_adjoint_product(unfolded<T>(links(4 + mu), signs >> (4 + mu) & 1), psi(4 + mu), sum);
  }
  return scale(T(0.5), sum);
}
// The same at site i of a parity, with links from memory and psi from what loads as a field does.
template <class T, class Psi>
__device__ __forceinline__ ColourVector<T> hop_onto(void* hopping, const Lattice& l, int parity, int chain,
                                                    const Psi& psi, int i) {
  const Coordinates c = coordinates_of(l, i, parity);
  const Hops hops(l, c);
  const Hopping<T> links{static_cast<typename Word<T>::type*>(hopping)};
  const int here = (2 * chain + parity) * l.padded + i, there = (2 * chain + 1 - parity) * l.padded + i;
  return hopped<T>(
      signs_at(l, c), [&](int k) { return psi.load(i + (k < 4 ? hops.up[k] : hops.down[k - 4])); },
      [&](int k) { return k < 4 ? links.load(here, k) : links.load(there + hops.down[k - 4], k - 4); });
}

}  // namespace mf::gpu
