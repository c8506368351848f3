// Ordered sums: bitwise the same for any number of threads and on every build level.
//
// The input is cut into blocks of fixed length. Inside a block, four vectors of eight lanes take turns (32 running
// sums: enough to hide the latency of an addition) and are joined as a fixed tree; the block sums are joined as a
// binary tree. Nothing depends on who computed which block. The error grows like block/32 + log2(blocks) roundings
// instead of n.
#pragma once

#include "simd.hpp"

namespace mf {

inline constexpr int reduce_lanes = 8;
inline constexpr int reduce_vectors = 4;
inline constexpr i64 reduce_block = 1024;

MF_INLINE i64 reduce_blocks(i64 n) { return (n + reduce_block - 1) / reduce_block; }

// Sum over one block of term(i) for i in [begin, end). `wide(i)` gives eight consecutive terms at once and must equal
// term(i) ... term(i + 7).
template <class Wide, class Term>
MF_INLINE double block_sum(i64 begin, i64 end, Wide wide, Term term) {
  using V = Simd<double, reduce_lanes>;
  V total[reduce_vectors] = {V(0.0), V(0.0), V(0.0), V(0.0)};
  i64 i = begin;
  for (; i + reduce_vectors * reduce_lanes <= end; i += reduce_vectors * reduce_lanes)
    for (int v = 0; v < reduce_vectors; ++v) total[v] += wide(i + v * reduce_lanes);
  for (; i + reduce_lanes <= end; i += reduce_lanes) total[0] += wide(i);
  if (i < end) {
    V tail(0.0);
    for (int lane = 0; i + lane < end; ++lane) tail.set(lane, term(i + lane));
    total[0] += tail;
  }
  return horizontal_sum((total[0] + total[2]) + (total[1] + total[3]));
}

// Joins partial sums pairwise, in place: neighbours first, an odd one out is carried up unchanged.
MF_INLINE double tree_sum(double* partial, i64 n) {
  while (n > 1) {
    const i64 pairs = n / 2;
    for (i64 i = 0; i < pairs; ++i) partial[i] = partial[2 * i] + partial[2 * i + 1];
    if (n % 2 == 1) partial[pairs] = partial[n - 1];
    n = pairs + n % 2;
  }
  return n == 1 ? partial[0] : 0.0;
}

}  // namespace mf
