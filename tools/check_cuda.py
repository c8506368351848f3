"""Compile every kernel header and every kernel as CUDA, for the oldest architecture and newer ones. No GPU is needed.

The kernels of `native/cuda` are compiled as an engine compiles them, in both precisions. Each header of `native/` has a
probe below: a kernel that calls what the header offers, so that its templates are instantiated and translated down to
machine code. A header without a probe is an error, and so is one that asks for a standard header: drivers of any GPU
hand these files to NVRTC as they are.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from metalforge.core.errors import KernelError
from metalforge.native.cuda.nvrtc import KERNEL_FILES, REALS, Nvrtc

__all__ = ["PROBES", "headers", "main"]

NATIVE = Path(__file__).resolve().parent.parent / "src/metalforge/native"
COMPILERS = {"nvidia-cuda-nvrtc": ("sm_90", "sm_80", "sm_75"), "nvidia-cuda-nvrtc-cu12": ("sm_70", "sm_90")}
"""Wheels, in the oldest versions that the extras allow, and what kernels are compiled for: the oldest cards that CUDA
and this package can use, Ampere, Hopper. Headers alone are compiled for the first that is named of each: for the newest
cards by the newer compiler, for the oldest by the older."""


PROBES = {
    "platform.hpp": "out[i] = T(mf::bit_cast<float>(mf::u32(i)));",
    "simd.hpp": """
        out[i] = mf::neg_mul_add(u[0], u[1], mf::mul_add(mf::sqrt(u[2]), u[3], mf::from_bits(mf::as_bits(u[4]))));
        const auto v = mf::Simd<T, 4>::load(u);
        (v * v + v / (v - mf::Simd<T, 4>(u[9]))).store(out + 4);
        out[i] += mf::horizontal_sum(v);
        using R = mf::Native<T>;
        mf::LaneTraits<R>::store(mf::LaneTraits<R>::load(u), out + 9);""",
    "elementary.hpp": """
        const auto angle = mf::sincos_2pi(double(u[0]));
        out[i] = T(mf::log_positive(double(u[1])) + angle.sin * angle.cos) + mf::tanh_of(u[2]);""",
    "philox.hpp": """
        const mf::PhiloxAddress<mf::u64> at{mf::u64(i), 1, 2, 3};
        const auto z = mf::philox_normal2(mf::PhiloxKeys(7ull), at);
        out[i] = T(z.first + z.second);""",
    "draws.hpp": """
        const mf::ChainAddress chain{mf::PhiloxKeys(7ull), 1, 2};
        const mf::u32 site = i;
        out[i] = mf::normals<T>(chain, &site, mf::hot_draws).second;""",
    "df64.hpp": """
        const mf::Df64<float> a{static_cast<float>(u[0]), static_cast<float>(u[1])}, b{static_cast<float>(u[2])};
        const auto c = mf::sqrt(mf::neg_mul_add(a, b, a / b)) - mf::mul_add(a, b, mf::Df64<float>(0.1));
        out[i] = T(double(mf::select(a < b, c, mf::Df64<float>(1))));""",
    "yukawa.hpp": """
        const auto pair = mf::Yukawa<T>::of(2.0, 5.6, 1e-6);
        const auto term = i ? pair.at(pair.distance(u[0])) : pair.at(u[0], u[8]);
        mf::Symmetric<T> virial{};
        virial.add(term.force, u[1], u[2], u[3], u[1], u[2], u[3]);
        out[i] = virial.of[4] + term.energy + mf::thermal_kick(u[4], u[5], u[6], u[7]);""",
    "cells.hpp": """
        mf::Bounds here = mf::Bounds::empty(), there = here;
        const double point[3] = {double(u[0]), double(u[1]), mf::wrapped(double(u[2]), 9.0).inside};
        here.take(point);
        const double shift[3] = {0, 0, mf::Image{0, 0, 1}.positive() ? 9.0 : 0.0};
        out[i] = T(here.distance2(there, shift)) + mf::squared(u[3], u[4], u[5]);""",
    "reduce.hpp": """
        const auto term = [=](mf::i64 k) { return double(u[k]); };
        const auto wide = [=](mf::i64 k) {
          mf::Simd<double, mf::reduce_lanes> v;
          for (int lane = 0; lane < mf::reduce_lanes; ++lane) v.set(lane, term(k + lane));
          return v;
        };
        double partial[2] = {mf::block_sum(0, 1000, wide, term), mf::block_sum(1000, 1999, wide, term)};
        out[i] = T(mf::tree_sum(partial, 2));""",
    "activations.hpp": """
        using mf::Activation;
        out[i] = mf::activate<Activation::tanh>(u[0]) + mf::activate<Activation::relu>(u[1]) +
                 mf::activate<Activation::bounded_relu>(u[2]) + mf::activate<Activation::identity>(u[3]) +
                 mf::activate<Activation::sigmoid>(u[4]) + mf::activate<Activation::gelu>(u[5]) +
                 mf::activate<Activation::piecewise_tanh>(u[6]);""",
    "esn.hpp": """
        const int* columns = reinterpret_cast<const int*>(table);
        mf::panel_product<T, 2, 1, 4, 0>(u, nullptr, 10, u + 64, 16, u + 128, 16, out, 16);
        mf::panel_product<T, 1, 1, 4, 1>(u, columns, 10, u + 64, 16, u + 128, 16, out + 64, 16);
        mf::slice_product(u, columns, 10, u + 64, out + 128);
        T sums[2] = {u[0], u[1]};
        mf::samples_product<T, 2>(u, columns, 10, u + 64, sums);
        mf::leaky_update<T, mf::Activation::tanh>(sums, u, out + 256, 2, u[9]);""",
    "npu.hpp": """
        mf::i32 products[mf::tile_units * 8];
        mf::product_row<mf::PairTile>(bytes, 16, 8, reinterpret_cast<const signed char*>(bytes), products);
        out[i] = T(products[i % mf::tile_units]);""",
    "su3.hpp": """
        mf::Matrix3<T> m = mf::Matrix3<T>::zero();
        mf::Algebra<T> a = mf::im_trace_generators(m);
        for (int c = 0; c < 8; ++c) a.c[c] += u[c];
        mf::mul_adj_acc(mf::exp_i(mf::hermitian(a, u[9])), mf::adj_mul(m, m), m);
        mf::reunitarise(m);
        out[i] = mf::trace(m).re + mf::re_trace_mul_adj(m, m);""",
    "fields.hpp": """
        const mf::Position x{table, i, 0};
        const mf::Links<T> links{u};
        links.store(mf::mul(links.load(x.forward(1), 0), links.load(x.backward(2), 3)), i, 0);
        const mf::Momenta<T> momenta{out};
        momenta.store(momenta.load(i, 1), i, 2);""",
    "gauge.hpp": """
        const mf::Position x{table, i, 0};
        const mf::Links<T> links{u};
        const mf::WilsonAction action;
        out[i] = mf::trace(action.staple(links, x, 1)).re + mf::clover(links, x, 1, 2).c[3] +
                 mf::plaquette(links, x, 0, 3) + T(action.energy(links, x));""",
    "rectangle.hpp": """
        const mf::Position x{table, i, 0};
        const mf::Links<T> links{u};
        const mf::RectangleAction action{-1.0 / 12.0};
        out[i] = mf::trace(action.staple(links, x, 1)).re + T(action.energy(links, x));""",
    "heatbath.hpp": """
        const mf::ChainAddress chain{mf::PhiloxKeys(7ull), 1, 2};
        const mf::u32 site = i;
        const mf::Quaternion<T> part{u[0], u[1], u[2], u[3]};
        out[i] = mf::heatbath_rotation(part, 5.7, chain, &site, 1, 2).a0 + mf::overrelaxation_rotation(part).a3;""",
    "update.hpp": """
        const mf::Position x{table, i, 0};
        const mf::Links<T> links{u};
        const mf::Momenta<T> momenta{out};
        const mf::ChainAddress chain{mf::PhiloxKeys(7ull), 1, 2};
        const mf::u32 site = i;
        const auto force = mf::force_over_beta_third(mf::WilsonAction{}, links, x, 1);
        auto pi = mf::fresh_momenta<T>(chain, &site, 1);
        mf::kick_by(force, u[0], u[1], pi);
        momenta.store(pi, i, 1);
        links.store(mf::mul(mf::link_step(pi, u[2]), mf::haar_link<T>(chain, &site, 1)), i, 1);
        const auto relax = [&](int, const mf::Quaternion<T>& part) { return mf::overrelaxation_rotation(part); };
        const auto heat = [&](int s, const mf::Quaternion<T>& part) {
          return mf::heatbath_rotation(part, 5.7, chain, &site, 2, s);
        };
        links.store(mf::updated_by_subgroups(links, x, 2, relax), i, 2);
        links.store(mf::updated_by_subgroups(links, x, 2, heat), i, 2);""",
    "measure.hpp": """
        const mf::Position x{table, i, 0};
        const mf::DoubleLinks<T> links{{u}};
        const auto planes = mf::plaquettes_at(links, x);
        const auto densities = mf::clover_at(mf::Links<T>{u}, x);
        out[i] = T(planes.spatial + planes.temporal + densities.energy + densities.charge) +
                 mf::polyakov_at(mf::Links<T>{u}, x, 8).re;""",
    "recurrence.hpp": """
        mf::Recurrence s;
        s.begin(u[0], u[1]);
        const double alpha = s.step(u[2], u[3]);
        const auto step = s.shift_step(1, u[4], alpha, u[5]);
        out[i] = T(step.x_step) + T(s.finish(alpha, u[5], u[6], u[7], u[8], 2));""",
    "staggered.hpp": """
        const mf::HoppingLinks<T, 2> here{u, 100, bytes, u}, there{u + 4800, 100, bytes, u};
        const mf::Colours<T> psi{out};
        const int dims[4] = {4, 4, 4, 4};
        const auto sign = T(mf::hopping_sign(mf::u32(i), dims, 3));
        here.store(mf::hopping_link(mf::Links<T>{u}.load(mf::Position{table, i, 0}, 3), sign), i, 3);
        const auto y = mf::hop<false>(here, there, psi, table + 8 * i, i);
        const auto r = mf::cg_residual(u[0], u[1], psi.load(i), y, psi.load(i + 1));
        psi.store(mf::cg_direction(u[2], y, u[3], r), i);
        auto outer = mf::Matrix3<T>::zero();
        mf::outer_acc(sign, y, r, outer);
        const mf::Momenta<T> momenta{out};
        auto pi = momenta.load(i, 0);
        mf::kick_by(mf::im_trace_generators(mf::mul(here.load(i, 0), outer)), pi);
        momenta.store(pi, i, 0);
        out[0] = mf::real_dot(y, r) + mf::imaginary_dot(y, r);""",
}
"""What each header is called with, inside a kernel of T = double and of T = float: reals `u` and `out`, `bytes`, and a
`table` of neighbours."""

KERNEL = """
#include "fields.hpp"
#include "{header}"
template <class T>
__device__ void probe(T* u, T* out, const mf::Neighbour* table, const unsigned char* bytes) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  {body}
}}
extern "C" __global__ void probe_f64(double* u, double* out, const mf::Neighbour* table, const unsigned char* bytes) {{
  probe(u, out, table, bytes);
}}
extern "C" __global__ void probe_f32(float* u, float* out, const mf::Neighbour* table, const unsigned char* bytes) {{
  probe(u, out, table, bytes);
}}
"""


def headers() -> list[str]:
    """Return the names of all kernel headers."""
    return sorted(path.name for path in NATIVE.glob("*.hpp"))


def main() -> int:
    """Compile headers and kernels; return how many did not compile."""
    if missing := set(headers()) ^ set(PROBES):
        print(f"tools/check_cuda.py needs a probe for each header of {NATIVE.name}/. Unmatched: {sorted(missing)}")
        return 1
    failures = 0
    with ThreadPoolExecutor(2) as pool:
        for wheel, architectures in COMPILERS.items():
            try:
                nvrtc = Nvrtc([wheel])
            except KernelError as error:
                raise SystemExit(f"{error}; `make check-cuda` installs its wheel") from None
            print(f"NVRTC of CUDA {nvrtc.version()}, bytes of machine code:")
            jobs = {
                (name, architecture): pool.submit(nvrtc.compile, text, architecture, *options)
                for name, text, options in _sources()
                for architecture in (architectures if options else architectures[:1])
            }
            for (name, architecture), job in jobs.items():
                code, log = job.result()
                print(f"  {name:18}{architecture:>6}{len(code) or 'FAILED':>10}", flush=True)
                if not code:
                    failures += 1
                    print(log)
    print(f"{failures} do not compile")
    return failures


def _sources() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Name, text and options of what is compiled."""
    for header in headers():
        yield header, KERNEL.format(header=header, body=PROBES[header]), ()
    for file, precisions in KERNEL_FILES.items():
        for precision in precisions:
            yield f"{file} {precision}", (NATIVE / "cuda" / file).read_text(), (f"-DMF_REAL={REALS[precision]}",)


if __name__ == "__main__":
    sys.exit(main())
