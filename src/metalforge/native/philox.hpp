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

// The multipliers of the SC'11 paper, section 4.
inline constexpr u64 philox_multiplier0 = 0xD2511F53ull, philox_multiplier1 = 0xCD9E8D57ull;

// One round. The products read the low 32 bits of a lane only, so what gathers
// above them can stay until the end.
template <class W>
MF_INLINE void philox_round(PhiloxBlock<W>& c, const PhiloxKeys& keys, int round) {
  const W p0 = mul_wide_u32(c.word[0], W(philox_multiplier0));
  const W p1 = mul_wide_u32(c.word[2], W(philox_multiplier1));
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

// A uniform in the open interval (0, 1) from 64 random bits, where the high word may have more above its 32: (k + 1/2)
// / 2^52 with k the top 52. Open at both ends and symmetric about 1/2, so log(u) and log(1 - u) are always finite. 1 +
// k/2^52 is assembled by bits, then 1 - 2^-53 is taken off, which is exact.
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

// Many draws of a site share their first three rounds: half of each is the same for all draws of the site, the other
// half for all sites of the draw. Here is the latter: what a draw brings to its third round.
struct PhiloxDraw {
  u64 before[2], after[2];

  PhiloxDraw() = default;
  MF_INLINE PhiloxDraw(const PhiloxKeys& keys, u64 draw, u64 step, u64 stream) {
    PhiloxBlock<u64> c{{draw, 0, step, stream}};
    philox_round(c, keys, 0);
    before[0] = static_cast<u32>(c.word[3]) ^ keys.key1[1];
    philox_round(c, keys, 1);
    before[1] = static_cast<u32>(c.word[1]) ^ keys.key0[2];
    const u64 product = mul_wide_u32(c.word[0], philox_multiplier0);
    after[0] = product >> 32 ^ keys.key1[2];
    after[1] = product;
  }
};
// And what the sites of a vector bring.
template <class W>
struct PhiloxSites {
  W product, high;

  MF_INLINE PhiloxSites(const PhiloxKeys& keys, W site, u64 step) {
    PhiloxBlock<u64> c{{0, 0, step, 0}};
    philox_round(c, keys, 0);
    product = mul_wide_u32(site ^ W(c.word[0]), W(philox_multiplier0));
    high = product >> 32;
  }
};
// philox_uniform2 of N draws at once: enough independent rounds to fill the pipes.
template <int N, class W, class R>
MF_INLINE void philox_uniform2(const PhiloxKeys& keys, const PhiloxDraw (&draws)[N], const PhiloxSites<W>& sites,
                               Pair<R> (&uniforms)[N]) {
  PhiloxBlock<W> c[N];
  MF_UNROLL
  for (int n = 0; n < N; ++n) {
    const W p1 = mul_wide_u32(sites.high ^ W(draws[n].before[0]), W(philox_multiplier1));
    c[n] = {{(p1 >> 32) ^ W(draws[n].before[1]), p1, sites.product ^ W(draws[n].after[0]), W(draws[n].after[1])}};
  }
  MF_UNROLL
  for (int round = 3; round < PhiloxKeys::rounds; ++round) MF_UNROLL
  for (int n = 0; n < N; ++n) philox_round(c[n], keys, round);
  const W low(0xffffffffull);
  MF_UNROLL
  for (int n = 0; n < N; ++n)
    uniforms[n] = {uniform_from(c[n].word[0] & low, c[n].word[1]), uniform_from(c[n].word[2] & low, c[n].word[3])};
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
