"""Proof that the shared headers compile under NVRTC and give the CPU's numbers on a GPU.

Run on a machine with a CUDA device, cupy and numpy; the package itself need not be installed:

    python benchmarks/gpu/headers_on_cuda.py [--json]

Checks: Philox known answers; uniforms bit for bit against the integer definition; normals bit for bit against the
compiled CPU kernels where those are installed, else against libm to rounding; ordered sums bit for bit against their
NumPy definition; df64 products to 44 bits. Then, as figures: normals a second against the bandwidth of storing them.
"""

import json
import sys
from pathlib import Path

import cupy as cp
import numpy as np

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "src" / "metalforge" / "native"
sys.path.insert(0, str(ROOT / "tests"))
from reference import philox, reduce  # noqa: E402

SOURCE = r"""
#include "philox.hpp"
#include "df64.hpp"
#include "reduce.hpp"
#include "su3.hpp"
namespace mf {

extern "C" __global__ void blocks(const u32* counter, const u32* key, u32* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const u32* c = counter + 4 * i;
  const auto b = philox4x32(PhiloxBlock<u64>{{c[0], c[1], c[2], c[3]}}, PhiloxKeys(key[2 * i], key[2 * i + 1]));
  for (int w = 0; w < 4; ++w) out[4 * i + w] = static_cast<u32>(b.word[w]);
}

template <bool Normal>
__device__ void fill(double2* out, u64 seed, u64 stream, u64 step, i64 sites, i64 blocks_per_site) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= sites * blocks_per_site) return;
  const u64 draw = i % blocks_per_site, site = i / blocks_per_site;
  const PhiloxAddress<u64> at{draw, site, step, stream};
  const PhiloxKeys keys(seed);
  const Pair<double> p = Normal ? philox_normal2(keys, at) : philox_uniform2(keys, at);
  out[i] = make_double2(p.first, p.second);
}
extern "C" __global__ void uniform(double2* o, u64 a, u64 b, u64 c, i64 n, i64 m) { fill<false>(o, a, b, c, n, m); }
extern "C" __global__ void normal(double2* o, u64 a, u64 b, u64 c, i64 n, i64 m) { fill<true>(o, a, b, c, n, m); }

extern "C" __global__ void block_sums(const double* x, double* partial, i64 n) {
  const i64 b = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (b >= reduce_blocks(n)) return;
  const i64 begin = b * reduce_block, end = begin + reduce_block < n ? begin + reduce_block : n;
  partial[b] = block_sum(begin, end, [x](i64 i) { return Simd<double, reduce_lanes>::load(x + i); },
                         [x](i64 i) { return x[i]; });
}
extern "C" __global__ void join(double* partial, i64 n) { partial[0] = tree_sum(partial, n); }

// U <- exp(i H) U from U = 1, for momenta of one link per thread: out holds 18 numbers per link.
extern "C" __global__ void exponentials(const double* momenta, double* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  Algebra<double> a;
  for (int c = 0; c < 8; ++c) a.c[c] = momenta[8 * i + c];
  const Matrix3<double> u = exp_i(hermitian(a, 1.0));
  for (int k = 0; k < 9; ++k) {
    out[18 * i + 2 * k] = u.e[k / 3][k % 3].re;
    out[18 * i + 2 * k + 1] = u.e[k / 3][k % 3].im;
  }
}

extern "C" __global__ void df64_ops(const float* a, const float* b, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const Df64<float> x(a[i], a[n + i]), y(b[i], b[n + i]);
  const Df64<float> r[4] = {x + y, x * y, x / y, sqrt(x)};
  for (int k = 0; k < 4; ++k) {
    out[(2 * k) * n + i] = r[k].hi;
    out[(2 * k + 1) * n + i] = r[k].lo;
  }
}

}  // namespace mf
"""


def launch(kernel, n, *arguments):
    threads = 128
    kernel(((n + threads - 1) // threads,), (threads,), arguments)


def device_draws(module, kind, seed, stream, step, sites, draws):
    out = cp.full((sites, draws), cp.nan)
    address = (np.uint64(seed), np.uint64(stream), np.uint64(step), np.int64(sites), np.int64(draws // 2))
    launch(module.get_function(kind), sites * draws // 2, out, *address)
    return out


def check_known_answer(module):
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0]
    rows = np.array([[0] * 6, [0xFFFFFFFF] * 6, pi])
    rows = np.concatenate([rows, np.random.default_rng(1).integers(0, 2**32, (500, 6))]).astype(np.uint32)
    counter, key = cp.asarray(rows[:, :4]), cp.asarray(rows[:, 4:])
    out = cp.zeros((len(rows), 4), cp.uint32)
    launch(module.get_function("blocks"), len(rows), counter.copy(), key.copy(), out, np.int32(len(rows)))
    expected = np.array([philox.block(r[:4], r[4:]) for r in rows], np.uint32)
    first = [int(w) for w in out[1].get()]
    return np.array_equal(out.get(), expected) and first == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def check_uniform(module):
    out = device_draws(module, "uniform", 2**40 + 7, 3, 9, 200, 10).get()
    return np.array_equal(out, philox.uniform(2**40 + 7, 3, 9, 200, 10))


def check_normal(module):
    out = device_draws(module, "normal", 2026, 1, 5, 5000, 10).get()
    try:
        from metalforge.native import Stream
    except ImportError:
        expected = philox.normal(2026, 1, 5, 200, 10)
        return bool(np.allclose(out[:200], expected, rtol=1e-14, atol=1e-14)), "libm, to rounding"
    return bool(np.array_equal(out, Stream(2026, 1).normal(step=5, sites=5000, draws=10))), "CPU kernels, bit for bit"


def check_sum(module):
    x = device_draws(module, "normal", 8, 0, 0, 50_001, 2).ravel()[:-1]
    partial = cp.zeros((len(x) + 1023) // 1024)
    launch(module.get_function("block_sums"), len(partial), x, partial, np.int64(len(x)))
    launch(module.get_function("join"), 1, partial, np.int64(len(partial)))
    return float(partial[0]) == reduce.ordered_sum(x.get())


def check_exponential(module):
    """exp(i H) against the eigenvalues of H; returns the largest difference."""
    momenta = np.random.default_rng(3).normal(size=(512, 8)) * np.linspace(0.01, 5, 512)[:, None]
    out = cp.zeros((512, 18))
    launch(module.get_function("exponentials"), 512, cp.asarray(momenta), out, np.int32(512))
    got = out.get().view(np.complex128).reshape(512, 3, 3)
    lam = np.zeros((8, 3, 3), complex)
    for a, (i, j) in enumerate(((0, 1), (0, 2), (1, 2))):
        real, imaginary = (0, 3, 5)[a], (1, 4, 6)[a]
        lam[real, i, j] = lam[real, j, i] = 1
        lam[imaginary, i, j], lam[imaginary, j, i] = -1j, 1j
    lam[2] = np.diag([1, -1, 0])
    lam[7] = np.diag([1, 1, -2]) / np.sqrt(3)
    h = np.einsum("na,aij->nij", momenta, lam / 2)
    values, vectors = np.linalg.eigh(h)
    true = np.einsum("nij,nj,nkj->nik", vectors, np.exp(1j * values), vectors.conj())
    return float(np.max(np.abs(got - true)))


def check_df64(module):
    x = np.random.default_rng(2).uniform(0.5, 2.0, (2, 4096))
    pairs = [np.stack([v.astype(np.float32), (v - v.astype(np.float32)).astype(np.float32)]) for v in x]
    out = cp.zeros((8, 4096), cp.float32)
    launch(module.get_function("df64_ops"), 4096, cp.asarray(pairs[0]), cp.asarray(pairs[1]), out, np.int32(4096))
    a, b = (p.astype(np.longdouble).sum(axis=0) for p in pairs)
    got = out.get().astype(np.longdouble).reshape(4, 2, 4096).sum(axis=1)
    true = np.stack([a + b, a * b, a / b, np.sqrt(a)])
    return -float(np.log2(np.max(np.abs(got - true) / np.abs(true))))


def seconds(work, repeats=20):
    work()
    start, stop = cp.cuda.Event(), cp.cuda.Event()
    times = []
    for _ in range(repeats):
        start.record()
        work()
        stop.record()
        stop.synchronize()
        times.append(cp.cuda.get_elapsed_time(start, stop) * 1e-3)
    return float(np.median(times))


def main():
    # -fmad=false: no contraction, as on the CPU, so that the draws are the same bits.
    options = ("--std=c++20", "-fmad=false", f"-I{NATIVE}")
    module = cp.RawModule(code=SOURCE, options=options, backend="nvrtc")
    normals, against = check_normal(module)
    bits = check_df64(module)
    distance = check_exponential(module)
    checks = {
        "philox known answers": check_known_answer(module),
        "uniforms, bit for bit": check_uniform(module),
        f"normals against {against}": normals,
        "ordered sum, bit for bit": check_sum(module),
        f"SU(3) exponential, off by {distance:.1e}": distance < 1e-13,
        f"df64 right to {bits:.1f} bits (44 promised)": bits >= 44,
    }
    n = 1 << 27
    out, other = cp.empty(n), cp.empty(n)
    address = (np.uint64(1), np.uint64(0), np.uint64(0), np.int64(n // 8), np.int64(4))
    draw = seconds(lambda: launch(module.get_function("normal"), n // 2, out, *address))
    store = seconds(lambda: other.fill(1.0))
    record = {
        "device": cp.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "checks": {name: bool(passed) for name, passed in checks.items()},
        "normal_GBps": 8 * n / draw / 1e9,
        "store_GBps": 8 * n / store / 1e9,
    }
    if "--json" in sys.argv:
        print(json.dumps(record, indent=2))
    else:
        for name, passed in record["checks"].items():
            print("passed" if passed else "FAILED", name)
        rates = f"normals {record['normal_GBps']:.0f} GB/s, plain stores {record['store_GBps']:.0f} GB/s"
        print(f"{record['device']}: {rates}")
    sys.exit(0 if all(record["checks"].values()) else 1)


if __name__ == "__main__":
    main()
