// Philox4x32-10: a counter-based random number generator (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
// easy as 1, 2, 3", SC'11). A draw is a pure function of its address, so any trajectory can be recomputed, by any
// number of threads, on any substrate:
//
//   key     = (seed low, seed high)
//   counter = (draw, site, step, stream)          -> 4 words of 32 bits = 2 uniforms or 2 normals
//
// W is the lane type: u64 (one block; the CUDA thread) or Simd<u64, L> (L blocks at once). Each lane holds a 32-bit
// word, so that the 32x32 -> 64 bit product is one instruction.
#pragma once

#include "elementary.hpp"
#include "simd.hpp"

namespace mf {

template <class W>
struct PhiloxBlock {
  W word[4];
};

template <class W>
struct PhiloxAddress {
  W draw, site, step, stream;
};

// The round keys of a seed: made once, used by every block.
struct PhiloxKeys {
  static constexpr int rounds = 10;
  u64 key0[rounds], key1[rounds];

  MF_INLINE explicit PhiloxKeys(u64 seed) : PhiloxKeys(static_cast<u32>(seed), static_cast<u32>(seed >> 32)) {}
  MF_INLINE PhiloxKeys(u32 low, u32 high) {
    for (int round = 0; round < rounds; ++round) {
      key0[round] = low;
      key1[round] = high;
      low += 0x9E3779B9u;  // Weyl increments: the golden ratio and sqrt(3) - 1
      high += 0xBB67AE85u;
    }
  }
};

// One round; multipliers: SC'11 paper, section 4. The products read the low 32 bits of a lane only, so what gathers
// above them can stay until the end.
template <class W>
MF_INLINE void philox_round(PhiloxBlock<W>& c, const PhiloxKeys& keys, int round) {
  const W p0 = mul_wide_u32(c.word[0], W(0xD2511F53ull));
  const W p1 = mul_wide_u32(c.word[2], W(0xCD9E8D57ull));
  c.word[0] = (p1 >> 32) ^ c.word[1] ^ W(keys.key0[round]);
  c.word[1] = p1;
  c.word[2] = (p0 >> 32) ^ c.word[3] ^ W(keys.key1[round]);
  c.word[3] = p0;
}

template <class W>
MF_INLINE PhiloxBlock<W> philox4x32(PhiloxBlock<W> c, const PhiloxKeys& keys) {
  MF_UNROLL
  for (int round = 0; round < PhiloxKeys::rounds; ++round) philox_round(c, keys, round);
  for (W& word : c.word) word = word & W(0xffffffffull);
  return c;
}

template <class R>
struct Pair {
  R first, second;
};

// A uniform in the open interval (0, 1) from 64 random bits: (k + 1/2) / 2^52 with k the top 52. Open at both ends
// and symmetric about 1/2, so log(u) and log(1 - u) are always finite. 1 + k/2^52 is assembled by bits, then
// 1 - 2^-53 is taken off, which is exact.
template <class W>
MF_INLINE auto uniform_from(W low_word, W high_word) {
  const W mantissa = ((high_word << 32) | low_word) >> 12;
  const auto one_to_two = from_bits(mantissa | W(0x3ff0000000000000ull));
  return one_to_two - decltype(one_to_two)(1.0 - 0x1p-53);
}

template <class W>
MF_INLINE auto philox_uniform2(const PhiloxKeys& keys, const PhiloxAddress<W>& a) {
  const PhiloxBlock<W> b = philox4x32(PhiloxBlock<W>{{a.draw, a.site, a.step, a.stream}}, keys);
  using R = decltype(uniform_from(b.word[0], b.word[1]));
  return Pair<R>{uniform_from(b.word[0], b.word[1]), uniform_from(b.word[2], b.word[3])};
}

// Two independent standard normals (Box and Muller 1958): sqrt(-2 log u1) (cos 2 pi u2, sin 2 pi u2).
template <class W>
MF_INLINE auto philox_normal2(const PhiloxKeys& keys, const PhiloxAddress<W>& address) {
  const auto u = philox_uniform2(keys, address);
  using R = decltype(u.first);
  const R radius = sqrt(R(-2.0) * log_positive(u.first));
  const SinCos<R> angle = sincos_2pi(u.second);
  return Pair<R>{radius * angle.cos, radius * angle.sin};
}

}  // namespace mf
