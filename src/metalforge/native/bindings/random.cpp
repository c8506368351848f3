// Philox streams as arrays. The drivers hold no arithmetic: they lay addresses out over lanes and threads.
#include <algorithm>

#include "arguments.hpp"
#include "philox.hpp"

namespace mf::bindings {
namespace {

using W = Simd<u64, native_lanes<u64>>;
constexpr int L = W::lanes;

struct StreamAddress {
  u64 seed, stream, step, first_site, first_draw;
};

// out[site][2 * block + {0, 1}] = pair(address). Blocks are numbered site-major; the lanes of a vector take L
// consecutive ones, which may belong to several sites.
template <class PairFn>
void fill_pairs(double* out, i64 sites, i64 blocks_per_site, const StreamAddress& at, int threads, PairFn pair) {
  const i64 blocks = sites * blocks_per_site;
  const PhiloxKeys keys(at.seed);
  const i64 chunk = 4096;  // blocks a thread takes at a time: 64 KiB of output
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (i64 begin = 0; begin < blocks; begin += chunk) {
    const i64 end = std::min(begin + chunk, blocks);
    const W stream(at.stream), step(at.step), per_site(static_cast<u64>(blocks_per_site));
    const W site_stride(static_cast<u64>(L / blocks_per_site)), block_stride(static_cast<u64>(L % blocks_per_site));
    W site, block;
    for (int lane = 0; lane < L; ++lane) {
      site.set(lane, static_cast<u64>((begin + lane) / blocks_per_site));
      block.set(lane, static_cast<u64>((begin + lane) % blocks_per_site));
    }
    for (i64 b = begin; b < end; b += L) {
      const int count = static_cast<int>(std::min<i64>(L, end - b));
      const auto draws = pair(keys, PhiloxAddress<W>{block + W(at.first_draw), site + W(at.first_site), step, stream});
      double* target = out + 2 * b;
      if (count == L) {
        interleave_store(draws.first, draws.second, target);
      } else {
        for (int lane = 0; lane < count; ++lane) {
          target[2 * lane] = draws.first[lane];
          target[2 * lane + 1] = draws.second[lane];
        }
      }
      block += block_stride;
      const W next_site = (block >= per_site).as_unsigned();  // all ones where the blocks of a site are used up
      block -= next_site & per_site;
      site += site_stride - next_site;
    }
  }
}

template <class PairFn>
void fill(nb::handle out_object, nb::handle seed, nb::handle stream, nb::handle step, nb::handle first_site,
          nb::handle first_draw, nb::handle threads_object, PairFn pair) {
  const Out<double> out(out_object, "out", {any, any});
  if (out.extent(1) % 2 != 0)
    throw nb::value_error("`out` must have an even number of columns: one counter gives two draws");
  constexpr u64 word = 0xffffffffull;
  const StreamAddress at{unsigned_argument(seed, "seed", ~0ull), unsigned_argument(stream, "stream", word),
                         unsigned_argument(step, "step", word), unsigned_argument(first_site, "first_site", word),
                         unsigned_argument(first_draw, "first_draw", word)};
  const int threads = thread_argument(threads_object);
  const i64 sites = out.extent(0), blocks = out.extent(1) / 2;
  if (at.first_site + static_cast<u64>(sites) - 1 > word)
    throw nb::value_error("`first_site` plus the rows of `out` pass 2^32 sites: the stream would repeat");
  if (at.first_draw + static_cast<u64>(blocks) - 1 > word)
    throw nb::value_error("`first_draw` plus half the columns of `out` pass 2^32 draws: the stream would repeat");
  nb::gil_scoped_release release;
  fill_pairs(out.data(), sites, blocks, at, threads, pair);
}

void uniform(nb::handle out, nb::handle seed, nb::handle stream, nb::handle step, nb::handle first_site,
             nb::handle first_draw, nb::handle threads) {
  fill(out, seed, stream, step, first_site, first_draw, threads,
       [](const PhiloxKeys& keys, const PhiloxAddress<W>& a) { return philox_uniform2(keys, a); });
}

void normal(nb::handle out, nb::handle seed, nb::handle stream, nb::handle step, nb::handle first_site,
            nb::handle first_draw, nb::handle threads) {
  fill(out, seed, stream, step, first_site, first_draw, threads,
       [](const PhiloxKeys& keys, const PhiloxAddress<W>& a) { return philox_normal2(keys, a); });
}

// The bare generator, for known-answer tests: row i of out = philox4x32(counter[i], key[i]), scalar lanes.
void blocks(nb::handle counter_object, nb::handle key_object, nb::handle out_object) {
  const In<u32> counter(counter_object, "counter", {any, 4});
  const In<u32> key(key_object, "key", {counter.extent(0), 2});
  const Out<u32> out(out_object, "out", {counter.extent(0), 4});
  const i64 n = counter.extent(0);
  nb::gil_scoped_release release;
  for (i64 i = 0; i < n; ++i) {
    const u32* c = counter.data() + 4 * i;
    const auto b =
        philox4x32(PhiloxBlock<u64>{{c[0], c[1], c[2], c[3]}}, PhiloxKeys(key.data()[2 * i], key.data()[2 * i + 1]));
    for (int w = 0; w < 4; ++w) out.data()[4 * i + w] = static_cast<u32>(b.word[w]);
  }
}

}  // namespace

void bind_random(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("uniform", &uniform, "out"_a.none(), "seed"_a.none(), "stream"_a.none(), "step"_a.none(), "first_site"_a.none(),
        "first_draw"_a.none(), "threads"_a.none());
  m.def("normal", &normal, "out"_a.none(), "seed"_a.none(), "stream"_a.none(), "step"_a.none(), "first_site"_a.none(),
        "first_draw"_a.none(), "threads"_a.none());
  m.def("philox_blocks", &blocks, "counter"_a.none(), "key"_a.none(), "out"_a.none());
}

}  // namespace mf::bindings
