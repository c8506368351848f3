// Molecular dynamics in double-floats, for cards whose doubles are slow: force, exponential and links as pairs of
// floats (hybrid), or some blocks so and the others in double (concurrent). What is summed and decided is in gauge.cu,
// in double.
#include "motion.cuh"

namespace mf::gpu {

using Pair64 = Df64<float>;

// The fields as a block of either kind sees them: links twice, so that nobody converts what others read.
template <class T, bool InPairs>
struct Both {
  using Real = T;
  const Work& w;

  MF_INLINE Links<T> links() const { return {InPairs ? w.pairs : w.links, w.lattice}; }
  MF_INLINE Momenta<double, T> momenta() const { return {w.momenta, w.lattice}; }
  MF_INLINE void put(const Matrix3<T>& u, const LinkShare& share) const {
    if (!share.live) return;
    Links<double, T>(w.to, w.lattice).store(u, share.site, share.mu);
    Links<Pair64, T>(w.pairs_to, w.lattice).store(u, share.site, share.mu);
  }
};
using Pairs = Alone<Pair64>;
using OfPairs = Both<Pair64, true>;
using OfDoubles = Both<double, false>;

// Which kind a block is. Of the kind that has fewer, blocks are among the first, one in three (or in two) as both are
// to be at work at once: what is left at the end would hold up the others, and a block of the slower kind takes long.
inline constexpr u32 shares = 64;
__device__ __forceinline__ bool in_pairs(const Work& w) {
  const u32 block = blockIdx.x >> 1, blocks = gridDim.x >> 1;
  const bool pairs_are_few = w.pair_share <= shares / 2;
  const u32 share = pairs_are_few ? w.pair_share : shares - w.pair_share;
  const u32 few = (share * blocks + shares - 1) / shares, every = 3 * few <= blocks ? 3 : 2;
  const bool is_of_few = block % every == 0 && block / every < few;
  return is_of_few == pairs_are_few;
}

template <bool Move>
__device__ __forceinline__ void shared_kick_wilson(const Work& w) {
  in_pairs(w) ? kick_wilson<OfPairs, Move>(w) : kick_wilson<OfDoubles, Move>(w);
}
__device__ __forceinline__ void shared_kick_rectangle(const Work& w) {
  in_pairs(w) ? kick_rectangle<OfPairs>(w) : kick_rectangle<OfDoubles>(w);
}
__device__ __forceinline__ void shared_move_links(const Work& w) {
  in_pairs(w) ? move_links<OfPairs>(w) : move_links<OfDoubles>(w);
}

// Doubles to pairs (To = Pair64) or back; momenta, too, where there are pairs of them.
template <class From, class To>
__device__ __forceinline__ void convert(const Work& w, void* links, void* to, void* momenta, void* momenta_to) {
  const LinkShare share(w.lattice);
  if (!share.live) return;
  const Links<From, To> from(links, w.lattice);
  Links<To>(to, w.lattice).store(from.load(share.site, share.mu), share.site, share.mu);
  if (!w.pair_momenta) return;
  const Momenta<From, To> pi(momenta, w.lattice);
  Momenta<To>(momenta_to, w.lattice).store(pi.load(share.site, share.mu), share.site, share.mu);
}
__device__ __forceinline__ void split(const Work& w) {
  convert<double, Pair64>(w, w.links, w.pairs, w.momenta, w.pair_momenta);
}
__device__ __forceinline__ void join_pairs(const Work& w) {
  convert<Pair64, double>(w, w.pairs, w.links, w.pair_momenta, w.momenta);
}

KERNEL(split_fields, link_threads, 1, 1, split)
KERNEL(join_fields, link_threads, 1, 1, join_pairs)
KERNEL(kick_wilson_pairs, link_threads, 3, 3, kick_wilson<Pairs, false>)
KERNEL(kick_move_pairs, link_threads, 3, 3, kick_wilson<Pairs, true>)
KERNEL(kick_rectangle_pairs, link_threads, 2, 2, kick_rectangle<Pairs>)
KERNEL(move_links_pairs, link_threads, 1, 1, move_links<Pairs>)
KERNEL(kick_wilson_shared, link_threads, 3, 3, shared_kick_wilson<false>)
KERNEL(kick_move_shared, link_threads, 3, 3, shared_kick_wilson<true>)
KERNEL(kick_rectangle_shared, link_threads, 2, 2, shared_kick_rectangle)
KERNEL(move_links_shared, link_threads, 1, 1, shared_move_links)

}  // namespace mf::gpu
