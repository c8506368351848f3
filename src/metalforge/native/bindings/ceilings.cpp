// The machine's own limits, measured with this build level's instructions: what benchmarks divide by.
#include <algorithm>

#include "arguments.hpp"
#include "philox.hpp"

namespace mf::bindings {
namespace {

// Twelve independent chains of multiply-adds: enough to hide the latency of four cycles on two pipes, and with their
// constants no more than sixteen registers.
constexpr int chains = 12;

template <class T>
double multiply_add_chains(i64 rounds, int threads) {
  using V = Simd<T, native_lanes<T>>;
  double total = 0;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(+ : total) if (threads > 1)
  for (int t = 0; t < threads; ++t) {
    V x[chains];
    for (int c = 0; c < chains; ++c) x[c] = V(static_cast<T>(1 + c));
    const V factor(static_cast<T>(0.999999)), offset(static_cast<T>(1e-6));
    for (i64 r = 0; r < rounds; ++r)
      for (int c = 0; c < chains; ++c) x[c] = mul_add(x[c], factor, offset);
    for (int c = 0; c < chains; ++c) total += static_cast<double>(horizontal_sum(x[c]));
  }
  return total;
}

// Returns the floating-point operations done; the caller holds the clock.
template <class T>
double fma_ceiling(nb::handle rounds_object, nb::handle threads_object) {
  const i64 rounds = static_cast<i64>(unsigned_argument(rounds_object, "rounds", 1ull << 40));
  const int threads = thread_argument(threads_object);
  double total;
  {
    nb::gil_scoped_release release;
    total = multiply_add_chains<T>(rounds, threads);
  }
  const double flops = 2.0 * chains * native_lanes<T> * static_cast<double>(rounds) * threads;
  return total == total ? flops : 0.0;  // uses `total`, so that the loop cannot be dropped
}

// Philox rounds on four independent blocks at once: their arithmetic with every latency hidden. Returns the number of
// vector rounds done.
double philox_ceiling(nb::handle rounds_object) {
  const i64 rounds = static_cast<i64>(unsigned_argument(rounds_object, "rounds", 1ull << 40));
  using W = Simd<u64, native_lanes<u64>>;
  constexpr int blocks = 4;
  PhiloxBlock<W> state[blocks];
  for (int b = 0; b < blocks; ++b) state[b] = {{W::iota(), W(1), W(2), W(static_cast<u64>(b))}};
  {
    nb::gil_scoped_release release;
    const PhiloxKeys keys(rounds);
    for (i64 r = 0; r < rounds; r += PhiloxKeys::rounds)
      for (int round = 0; round < PhiloxKeys::rounds; ++round) MF_UNROLL
    for (int b = 0; b < blocks; ++b) philox_round(state[b], keys, round);
  }
  W total(0);
  for (const auto& block : state)
    for (const W& word : block.word) total ^= word;
  const double done = static_cast<double>(rounds) * blocks;
  return total[0] == 0 ? 0.5 * done : done;  // uses the state, so that the loop cannot be dropped
}

// target = source, by vectors; moves 2 * size * 8 bytes.
void copy_ceiling(nb::handle source_object, nb::handle target_object, nb::handle threads_object) {
  const In<double> source(source_object, "source", {any});
  const Out<double> target(target_object, "target", {source.extent(0)});
  const int threads = thread_argument(threads_object);
  using V = Simd<double, native_lanes<double>>;
  const i64 n = source.size(), chunk = 4096;
  const double* from = source.data();
  double* to = target.data();
  nb::gil_scoped_release release;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (i64 begin = 0; begin < n; begin += chunk) {
    const i64 end = std::min(begin + chunk, n);
    i64 i = begin;
    for (; i + V::lanes <= end; i += V::lanes) V::load(from + i).store(to + i);
    for (; i < end; ++i) to[i] = from[i];
  }
}

// Reads all of `source` again and again: how fast weights of that size can come from the cache they fit in. Returns the
// bytes read.
double read_ceiling(nb::handle source_object, nb::handle rounds_object) {
  const In<double> source(source_object, "source", {any});
  const i64 rounds = static_cast<i64>(unsigned_argument(rounds_object, "rounds", 1ull << 40));
  using V = Simd<double, native_lanes<double>>;
  constexpr int streams = 8, step = streams * V::lanes;
  const i64 n = source.size() / step * step;
  const double* from = source.data();
  V sum[streams];
  for (V& s : sum) s = V(0.0);
  {
    nb::gil_scoped_release release;
    for (i64 r = 0; r < rounds; ++r)
      for (i64 i = 0; i < n; i += step) {
        MF_UNROLL
        for (int s = 0; s < streams; ++s) sum[s] += V::load(from + i + s * V::lanes);
      }
  }
  double total = 0;
  for (const V& s : sum) total += horizontal_sum(s);
  const double bytes = static_cast<double>(sizeof(double)) * static_cast<double>(n) * static_cast<double>(rounds);
  return total == total ? bytes : 0.0;  // uses `total`, so that the loop cannot be dropped
}

}  // namespace

void bind_ceilings(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("fma_f64", &fma_ceiling<double>, "rounds"_a.none(), "threads"_a.none());
  m.def("fma_f32", &fma_ceiling<float>, "rounds"_a.none(), "threads"_a.none());
  m.def("philox_rounds", &philox_ceiling, "rounds"_a.none());
  m.def("read", &read_ceiling, "source"_a.none(), "rounds"_a.none());
  m.def("copy", &copy_ceiling, "source"_a.none(), "target"_a.none(), "threads"_a.none());
}

}  // namespace mf::bindings
