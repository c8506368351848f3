// What the lattice bindings share: the layout as a Python object, and the choice of lane type for it.
#pragma once

#include "arguments.hpp"
#include "draws.hpp"
#include "layout.hpp"
#include "reduce.hpp"

namespace mf::bindings {

// A layout for fields of `Real`; made once a lattice, used by every call.
template <class Real>
struct FieldLayout : Layout {
  explicit FieldLayout(std::array<int, 4> dims) : Layout(dims, native_lanes<Real>) {}
  Shape links() const { return {vectors(), 4, 18, lanes()}; }
  Shape momenta() const { return {vectors(), 4, 8, lanes()}; }
  Shape host_links() const {
    const auto& n = dims();
    return {n[3], n[2], n[1], n[0], 4, 3, 3, 2};
  }
};

// Calls work(V{}) with the lane type of the layout: the native vector, or half of it where a lattice has not so many
// lanes, which happens to the sixteen floats of AVX-512 alone.
template <class Real, class Work>
auto with_lanes([[maybe_unused]] const FieldLayout<Real>& layout, Work work) {
  constexpr int native = native_lanes<Real>;
  static_assert(native <= 2 * Layout::certain_lanes);
  if constexpr (native > Layout::certain_lanes)
    if (layout.lanes() < native) return work(Simd<Real, Layout::certain_lanes>{});
  return work(Simd<Real, native>{});
}

inline ChainAddress chain_argument(nb::handle seed, nb::handle stream, nb::handle step) {
  return {PhiloxKeys(unsigned_argument(seed, "seed", ~0ull)), unsigned_argument(stream, "stream", 0xffffffffull),
          unsigned_argument(step, "step", 0xffffffffull)};
}

// The threads asked for, but no more than have a fair share of vectors each: below that a barrier costs more than it
// saves. Results do not depend on it.
template <class Real>
int useful_threads(const FieldLayout<Real>& layout, nb::handle threads_object, i64 share = 32) {
  const i64 useful = layout.vectors() / share;
  const int asked = thread_argument(threads_object);
  return useful < 1 ? 1 : useful < asked ? static_cast<int>(useful) : asked;
}

// An ordered sum over vectors of sites: blocks of fixed length, whatever the number of threads.
template <class Term>
double sum_over_vectors(i64 vectors, int threads, std::vector<double>& partial, Term term) {
  constexpr i64 block = 8;
  const i64 blocks = (vectors + block - 1) / block;
  partial.resize(static_cast<std::size_t>(blocks));
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (i64 b = 0; b < blocks; ++b) {
    double sum = 0;
    const i64 end = (b + 1) * block < vectors ? (b + 1) * block : vectors;
    for (i64 v = b * block; v < end; ++v) sum += term(v);
    partial[static_cast<std::size_t>(b)] = sum;
  }
  return tree_sum(partial.data(), blocks);
}

}  // namespace mf::bindings
