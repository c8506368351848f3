// The products and the update of an echo state network,
//
//   p = b + W_in u + W_res s,     s' = (1 - a) s + a f(p)
//
// Every kernel adds the terms of a unit in one order: b, then the inputs, then the states, each by its number, with a
// multiply-add a term. A weight that is not stored is a term that is left out, which is exact; so dense, CSR and block
// storage, a step and a sequence, one sample and a batch, and any number of threads give the same bits.
//
// Units lie in lanes: one broadcast input meets the weights of a panel of units, which are stored side by side. Where
// a free sparse pattern meets a batch, samples lie in lanes instead.
#pragma once

#include "activations.hpp"

namespace mf {

// A panel is four vectors of units, and fewer at the end. A block of samples by a panel fills the registers (32 with
// AVX-512, 16 before) with sums, so that a weight is loaded once a block and an input once a panel.
inline constexpr int panel_vectors = 4;
inline constexpr int block_rows = vector_bytes == 64 ? 6 : 3;
// A single sample has four sums a panel. That hides the latency of one 512-bit multiply-add a cycle, which is all the
// second-level cache feeds; two of 256 bits need two panels at once.
inline constexpr int row_panels = vector_bytes == 64 ? 1 : 2;
// Units that share the columns they listen to, in block-sparse storage.
inline constexpr int sparse_block = 16;

// How many blocks of sixteen units a panel of so many vectors touches.
template <class Real, int Vectors>
inline constexpr int panel_blocks =
    Vectors * native_lanes<Real> < sparse_block ? 1 : Vectors * native_lanes<Real> / sparse_block;

// sums[r][unit] = start[r][unit] + sum_k w[k][unit] x[r][column_k], for `Rows` samples and `Panels` panels that follow
// each other in `w`. With Blocks = 0 column_k is k; otherwise it is columns[k][block of the unit].
template <class Real, int Rows, int Panels, int Vectors, int Blocks>
MF_FUNCTION void panel_product(const Real* w, const i32* columns, i64 count, const Real* x, i64 x_stride,
                               const Real* start, i64 start_stride, Real* sums, i64 sums_stride) {
  using R = Native<Real>;
  constexpr int L = LaneTraits<R>::lanes, width = Vectors * L;
  constexpr int groups = Blocks == 0 ? 1 : Blocks, vectors_a_group = Vectors / groups;
  const i64 panel = count * width;
  R acc[Rows][Panels * Vectors];
  MF_UNROLL
  for (int r = 0; r < Rows; ++r) {
    MF_UNROLL
    for (int v = 0; v < Panels * Vectors; ++v) acc[r][v] = LaneTraits<R>::load(start + r * start_stride + v * L);
  }
  for (i64 k = 0; k < count; ++k) {
    MF_UNROLL
    for (int group = 0; group < Panels * groups; ++group) {
      const int p = group / groups, g = group % groups;
      const i64 column = Blocks == 0 ? k : columns[(p * count + k) * groups + g];
      MF_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const R input(x[r * x_stride + column]);
        MF_UNROLL
        for (int i = 0; i < vectors_a_group; ++i) {
          const int v = g * vectors_a_group + i;
          R& sum = acc[r][p * Vectors + v];
          sum = mul_add(LaneTraits<R>::load(w + p * panel + k * width + v * L), input, sum);
        }
      }
    }
  }
  MF_UNROLL
  for (int r = 0; r < Rows; ++r) {
    MF_UNROLL
    for (int v = 0; v < Panels * Vectors; ++v) LaneTraits<R>::store(acc[r][v], sums + r * sums_stride + v * L);
  }
}

// x[at[0]], x[at[1]], ... by plain loads: gather instructions are slower on current processors. Loads are what limits
// it, so two columns are read at once.
#if MF_CUDA
template <class Real, int Lanes>
MF_INLINE Real pick(const Real* x, const i32* at) {
  static_assert(Lanes == 1);
  return x[at[0]];
}
#else
template <class Real, int Lanes>
MF_INLINE Simd<Real, Lanes> pick(const Real* x, const i32* at) {
  if constexpr (Lanes == 2) {
    u64 pair;
    __builtin_memcpy(&pair, at, sizeof(pair));
    constexpr int low = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : 32;
    return typename Simd<Real, 2>::Storage{x[static_cast<u32>(pair >> low)], x[static_cast<u32>(pair >> (32 - low))]};
  } else {
    return join(pick<Real, Lanes / 2>(x, at), pick<Real, Lanes / 2>(x, at + Lanes / 2));
  }
}
#endif

// One vector of units with a column a lane: sums += sum_k w[k] x[columns[k]], for rows padded to one length.
template <class Real>
MF_INLINE void slice_product(const Real* w, const i32* columns, i64 length, const Real* x, Real* sums) {
  using R = Native<Real>;
  R acc = LaneTraits<R>::load(sums);
  for (i64 k = 0; k < length; ++k)
    acc = mul_add(LaneTraits<R>::load(w + k * LaneTraits<R>::lanes),
                  pick<Real, LaneTraits<R>::lanes>(x, columns + k * LaneTraits<R>::lanes), acc);
  LaneTraits<R>::store(acc, sums);
}

// One unit for a block of samples in lanes: sums[sample] += sum_k w[k] x[columns[k]][sample]; without columns they are
// 0, 1, 2, ...
template <class Real, int Vectors>
MF_INLINE void samples_product(const Real* w, const i32* columns, i64 count, const Real* x,
                               Native<Real> (&sums)[Vectors]) {
  using R = Native<Real>;
  for (i64 k = 0; k < count; ++k) {
    const Real* inputs = x + (columns ? columns[k] : k) * (Vectors * LaneTraits<R>::lanes);
    const R weight(w[k]);
    MF_UNROLL
    for (int v = 0; v < Vectors; ++v)
      sums[v] = mul_add(weight, LaneTraits<R>::load(inputs + v * LaneTraits<R>::lanes), sums[v]);
  }
}

// next = (1 - a) old + a f(sums), for whole vectors.
template <class Real, Activation A>
MF_FUNCTION void leaky_update(const Real* sums, const Real* old, Real* next, i64 n, Real leak) {
  using R = Native<Real>;
  const R a(leak), kept(Real(1) - leak);
  for (i64 i = 0; i < n; i += LaneTraits<R>::lanes)
    LaneTraits<R>::store(mul_add(a, activate<A>(LaneTraits<R>::load(sums + i)), kept * LaneTraits<R>::load(old + i)),
                         next + i);
}

}  // namespace mf
