// Integer products of unsigned 8-bit activations and 4-bit weights, the arithmetic of a fully connected NPU layer.
//
// Weights lie in tiles of 16 units by 4 inputs, so that one 32-bit word of inputs meets 16 units at once: the form of
// the dot-product instructions (VNNI: 64 products and their sums in one), and of their SSSE3, AVX2 and AVX-512BW
// forerunners, where u8 x s8 pairs are added in 16 bits. Weights are at most 7 in size, so a pair is at most 2 * 255 *
// 7 = 3570 and nothing saturates: every path gives the same integers.
#pragma once

#include "simd.hpp"

namespace mf {

inline constexpr int tile_units = 16;
inline constexpr int tile_inputs = 4;

// acc[16] += sum over the tile's 4 inputs; `word` holds four activations, `tile` 16 x 4 weights.
struct PortableTile {
  i32 lane[tile_units];
  MF_INLINE void clear() {
    for (i32& x : lane) x = 0;
  }
  MF_INLINE void add(u32 word, const signed char* tile) {
    for (int unit = 0; unit < tile_units; ++unit)
      for (int input = 0; input < tile_inputs; ++input)
        lane[unit] += static_cast<i32>((word >> (8 * input)) & 255u) * tile[unit * tile_inputs + input];
  }
  MF_INLINE void store(i32* out) const {
    for (int unit = 0; unit < tile_units; ++unit) out[unit] = lane[unit];
  }
};

#if MF_X86 && defined(__AVX512BW__)
struct PairTile {  // vpmaddubsw + vpmaddwd
  __m512i acc;
  MF_INLINE void clear() { acc = _mm512_setzero_si512(); }
  MF_INLINE void add(u32 word, const signed char* tile) {
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_set1_epi32(static_cast<int>(word)), _mm512_loadu_si512(tile));
    acc = _mm512_add_epi32(acc, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  }
  MF_INLINE void store(i32* out) const { _mm512_storeu_si512(out, acc); }
};
#elif MF_X86 && defined(__AVX2__)
struct PairTile {
  __m256i low, high;
  MF_INLINE void clear() { low = high = _mm256_setzero_si256(); }
  MF_INLINE void add(u32 word, const signed char* tile) {
    const __m256i x = _mm256_set1_epi32(static_cast<int>(word)), ones = _mm256_set1_epi16(1);
    const auto* w = reinterpret_cast<const __m256i*>(tile);
    low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_maddubs_epi16(x, _mm256_loadu_si256(w)), ones));
    high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_maddubs_epi16(x, _mm256_loadu_si256(w + 1)), ones));
  }
  MF_INLINE void store(i32* out) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out) + 1, high);
  }
};
#elif MF_X86 && defined(__SSSE3__)
struct PairTile {
  __m128i part[4];
  MF_INLINE void clear() {
    for (auto& p : part) p = _mm_setzero_si128();
  }
  MF_INLINE void add(u32 word, const signed char* tile) {
    const __m128i x = _mm_set1_epi32(static_cast<int>(word)), ones = _mm_set1_epi16(1);
    const auto* w = reinterpret_cast<const __m128i*>(tile);
    MF_UNROLL
    for (int i = 0; i < 4; ++i)
      part[i] = _mm_add_epi32(part[i], _mm_madd_epi16(_mm_maddubs_epi16(x, _mm_loadu_si128(w + i)), ones));
  }
  MF_INLINE void store(i32* out) const {
    for (int i = 0; i < 4; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(out) + i, part[i]);
  }
};
#else
using PairTile = PortableTile;
#endif

// Four activations, the first in the low byte.
MF_INLINE u32 load_word(const unsigned char* x) {
#if MF_CUDA
  return u32{x[0]} | u32{x[1]} << 8 | u32{x[2]} << 16 | u32{x[3]} << 24;
#else
  u32 word;
  __builtin_memcpy(&word, x, sizeof(word));
  return word;
#endif
}

// out[16 * tiles] = x W for one row of inputs; x is padded to a multiple of four. `Group` tiles of units run together,
// so that their sums stay in registers while the inputs stream by.
template <class Tile, int Group>
MF_INLINE void product_group(const unsigned char* x, int words, const signed char* weights, i64 tile_stride, i32* out) {
  Tile acc[Group];
  MF_UNROLL
  for (int g = 0; g < Group; ++g) acc[g].clear();
  for (int w = 0; w < words; ++w) {
    const u32 word = load_word(x + tile_inputs * w);
    MF_UNROLL
    for (int g = 0; g < Group; ++g) acc[g].add(word, weights + g * tile_stride + w * tile_units * tile_inputs);
  }
  MF_UNROLL
  for (int g = 0; g < Group; ++g) acc[g].store(out + g * tile_units);
}

template <class Tile>
MF_INLINE void product_row(const unsigned char* x, int words, int tiles, const signed char* weights, i32* out) {
  const i64 stride = static_cast<i64>(words) * tile_units * tile_inputs;
  int t = 0;
  for (; t + 8 <= tiles; t += 8) product_group<Tile, 8>(x, words, weights + t * stride, stride, out + t * tile_units);
  for (; t + 2 <= tiles; t += 2) product_group<Tile, 2>(x, words, weights + t * stride, stride, out + t * tile_units);
  for (; t < tiles; ++t) product_group<Tile, 1>(x, words, weights + t * stride, stride, out + t * tile_units);
}

}  // namespace mf
