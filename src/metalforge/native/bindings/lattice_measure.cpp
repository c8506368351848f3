// Drivers of everything that reads a gauge field: copies in file order, energies, loops, the clover field strength.
#include <nanobind/stl/array.h>
#include <nanobind/stl/complex.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/unique_ptr.h>

#include <cmath>
#include <complex>
#include <memory>

#include "gauge.hpp"
#include "lattice.hpp"

namespace mf::bindings {
namespace {

template <class Real>
std::unique_ptr<FieldLayout<Real>> make_layout(nb::handle dims_object) {
  std::array<int, 4> dims;
  const nb::object sequence = nb::steal(PySequence_Fast(dims_object.ptr(), "`dims` must be four even integers"));
  if (!sequence.is_valid()) throw nb::python_error();
  if (PySequence_Fast_GET_SIZE(sequence.ptr()) != 4) throw nb::value_error("`dims` must be four even integers");
  double volume = 1;
  for (int mu = 0; mu < 4; ++mu) {
    dims[mu] = static_cast<int>(unsigned_argument(PySequence_Fast_GET_ITEM(sequence.ptr(), mu), "dims", 1ull << 16));
    if (dims[mu] < 2 || dims[mu] % 2 != 0) throw nb::value_error("`dims` must be four even integers >= 2");
    volume *= dims[mu];
  }
  if (volume > 1e9) throw nb::value_error("`dims` describe more than 10^9 sites: addresses would not fit");
  return std::make_unique<FieldLayout<Real>>(dims);
}

// Between file order (Nt, Nz, Ny, Nx, 4, 3, 3, re|im) in double and the layout.
template <class Real, class Visit>
void visit_links(const FieldLayout<Real>& layout, int threads, Visit visit) {
  const int lanes = layout.lanes();
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (i64 v = 0; v < layout.vectors(); ++v)
    for (int lane = 0; lane < lanes; ++lane) {
      const i64 site = layout.sites_of(v)[lane];
      for (int mu = 0; mu < 4; ++mu)
        for (int i = 0; i < 18; ++i) visit((site * 4 + mu) * 18 + i, ((v * 4 + mu) * 18 + i) * lanes + lane);
    }
}

template <class Real>
void pack(const FieldLayout<Real>& layout, nb::handle host_object, nb::handle u_object, nb::handle threads_object) {
  const In<double> host(host_object, "host_links", layout.host_links());
  const Out<Real> u(u_object, "links", layout.links());
  const int threads = useful_threads(layout, threads_object);
  require_finite(host.data(), host.size(), "host_links");
  for (i64 i = 0; i < host.size(); ++i)
    if (std::abs(host.data()[i]) > 1e6)
      throw nb::value_error("`host_links` must hold SU(3) matrices; an entry is above 1e6");
  nb::gil_scoped_release release;
  visit_links(layout, threads,
              [&](i64 outside, i64 inside) { u.data()[inside] = static_cast<Real>(host.data()[outside]); });
}

template <class Real>
void unpack(const FieldLayout<Real>& layout, nb::handle u_object, nb::handle host_object, nb::handle threads_object) {
  const In<Real> u(u_object, "links", layout.links());
  const Out<double> host(host_object, "host_links", layout.host_links());
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  visit_links(layout, threads,
              [&](i64 outside, i64 inside) { host.data()[outside] = static_cast<double>(u.data()[inside]); });
}

// A view of float links that computes in double: energies are always sums of doubles.
template <class V>
struct DoubleLinks {
  Links<V> links;
  MF_INLINE auto load(const Position& x, int mu) const {
    if constexpr (sizeof(typename LaneTraits<V>::Real) == sizeof(double)) {
      return links.load(x, mu);
    } else {
      const Matrix3<V> m = links.load(x, mu);
      using D = decltype(convert<double>(m.e[0][0].re));
      Matrix3<D> d;
      for (int i = 0; i < 9; ++i) {
        const auto& z = m.e[i / 3][i % 3];
        d.e[i / 3][i % 3] = {convert<double>(z.re), convert<double>(z.im)};
      }
      return d;
    }
  }
};

// Sums of Re tr U_p / 3 over the spatial and the temporal planes.
template <class Real>
std::pair<double, double> plaquette_sums(const FieldLayout<Real>& layout, nb::handle u_object,
                                         nb::handle threads_object) {
  const In<Real> u(u_object, "links", layout.links());
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  return with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const DoubleLinks<V> links{{const_cast<Real*>(u.data())}};
    std::vector<double> temporal_of(static_cast<std::size_t>(layout.vectors())), partial;
    const double spatial = sum_over_vectors(layout.vectors(), threads, partial, [&](i64 v) {
      const Position x{&layout, v, 0};
      double space = 0, time = 0;
      for (int mu = 0; mu < 3; ++mu) {
        time += horizontal_sum(plaquette(links, x, mu, 3));
        for (int nu = mu + 1; nu < 3; ++nu) space += horizontal_sum(plaquette(links, x, mu, nu));
      }
      temporal_of[static_cast<std::size_t>(v)] = time / 3.0;
      return space / 3.0;
    });
    const double temporal =
        sum_over_vectors(layout.vectors(), 1, partial, [&](i64 v) { return temporal_of[static_cast<std::size_t>(v)]; });
    return std::pair<double, double>(spatial, temporal);
  });
}

// Sum of pi_a^2 / 2.
template <class Real>
double kinetic(const FieldLayout<Real>& layout, nb::handle pi_object, nb::handle threads_object) {
  const In<Real> pi(pi_object, "momenta", layout.momenta());
  const int threads = useful_threads(layout, threads_object);
  const int numbers = 32 * layout.lanes();
  nb::gil_scoped_release release;
  std::vector<double> partial;
  return sum_over_vectors(layout.vectors(), threads, partial, [&](i64 v) {
    const Real* p = pi.data() + v * numbers;
    double lane_sum[8] = {};
    for (int i = 0; i < numbers; i += 8)
      for (int k = 0; k < 8; ++k) lane_sum[k] += static_cast<double>(p[i + k]) * static_cast<double>(p[i + k]);
    return 0.5 * (((lane_sum[0] + lane_sum[4]) + (lane_sum[2] + lane_sum[6])) +
                  ((lane_sum[1] + lane_sum[5]) + (lane_sum[3] + lane_sum[7])));
  });
}

// Sum over space of tr(product of U_t along t) / 3.
template <class Real>
std::complex<double> polyakov(const FieldLayout<Real>& layout, nb::handle u_object, nb::handle threads_object) {
  const In<Real> u(u_object, "links", layout.links());
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  return with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const Links<V> links{const_cast<Real*>(u.data())};
    const i64 spatial = layout.vectors() / layout.local()[3];
    std::vector<double> imaginary_of(static_cast<std::size_t>(spatial)), partial;
    const double re = sum_over_vectors(spatial, threads, partial, [&](i64 v) {
      Position x{&layout, v, 0};
      Matrix3<V> line = links.load(x, 3);
      // Where time is cut in two, lanes of both halves hold the same loop: each is then counted twice.
      for (int t = 1; t < layout.dims()[3]; ++t) {
        x = x.forward(3);
        line = mul(line, links.load(x, 3));
      }
      const double weight = layout.bit(3) ? 1.0 / 6.0 : 1.0 / 3.0;
      const Complex<V> loop = trace(line);
      imaginary_of[static_cast<std::size_t>(v)] = weight * static_cast<double>(horizontal_sum(loop.im));
      return weight * static_cast<double>(horizontal_sum(loop.re));
    });
    const double im =
        sum_over_vectors(spatial, 1, partial, [&](i64 v) { return imaginary_of[static_cast<std::size_t>(v)]; });
    return std::complex<double>(re, im);
  });
}

// Sums over sites of the clover energy density E = F^a F^a / 4 (all mu, nu) and of the topological charge density
// q = (F_01 . F_23 - F_02 . F_13 + F_03 . F_12) / (8 pi^2).
template <class Real>
std::pair<double, double> clover_sums(const FieldLayout<Real>& layout, nb::handle u_object, nb::handle threads_object) {
  const In<Real> u(u_object, "links", layout.links());
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  return with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const Links<V> links{const_cast<Real*>(u.data())};
    std::vector<double> charge_of(static_cast<std::size_t>(layout.vectors())), partial;
    const double energy = sum_over_vectors(layout.vectors(), threads, partial, [&](i64 v) {
      const Position x{&layout, v, 0};
      constexpr int planes[3][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 3, 1, 2}};
      V energies(typename LaneTraits<V>::Real(0)), charges(typename LaneTraits<V>::Real(0));
      for (int p = 0; p < 3; ++p) {
        const auto f = clover(links, x, planes[p][0], planes[p][1]), g = clover(links, x, planes[p][2], planes[p][3]);
        V dot(typename LaneTraits<V>::Real(0));
        for (int c = 0; c < 8; ++c) {
          energies = mul_add(f.c[c], f.c[c], mul_add(g.c[c], g.c[c], energies));
          dot = mul_add(f.c[c], g.c[c], dot);
        }
        charges = p == 1 ? charges - dot : charges + dot;
      }
      constexpr double inverse_8_pi2 = 0.012665147955292221430;
      charge_of[static_cast<std::size_t>(v)] = inverse_8_pi2 * static_cast<double>(horizontal_sum(charges));
      return 0.5 * static_cast<double>(horizontal_sum(energies));
    });
    const double charge =
        sum_over_vectors(layout.vectors(), 1, partial, [&](i64 v) { return charge_of[static_cast<std::size_t>(v)]; });
    return std::pair<double, double>(energy, charge);
  });
}

template <class Real>
void bind(nb::module_& m, const char* suffix) {
  using nb::literals::operator""_a;
  using F = FieldLayout<Real>;
  const auto name = [suffix](const char* base) { return std::string(base) + suffix; };
  nb::class_<F>(m, name("Layout").c_str())
      .def_prop_ro("dims", [](const F& f) { return f.dims(); })
      .def_prop_ro("lanes", [](const F& f) { return f.lanes(); })
      .def_prop_ro("vectors", [](const F& f) { return f.vectors(); });
  m.def(name("layout").c_str(), &make_layout<Real>, "dims"_a.none());
  m.def(name("pack").c_str(), &pack<Real>, "layout"_a, "host_links"_a.none(), "links"_a.none(), "threads"_a.none());
  m.def(name("unpack").c_str(), &unpack<Real>, "layout"_a, "links"_a.none(), "host_links"_a.none(), "threads"_a.none());
  m.def(name("plaquette_sums").c_str(), &plaquette_sums<Real>, "layout"_a, "links"_a.none(), "threads"_a.none());
  m.def(name("kinetic").c_str(), &kinetic<Real>, "layout"_a, "momenta"_a.none(), "threads"_a.none());
  m.def(name("polyakov").c_str(), &polyakov<Real>, "layout"_a, "links"_a.none(), "threads"_a.none());
  m.def(name("clover_sums").c_str(), &clover_sums<Real>, "layout"_a, "links"_a.none(), "threads"_a.none());
}

}  // namespace

void bind_lattice_measure(nb::module_& m) {
  bind<double>(m, "_f64");
  bind<float>(m, "_f32");
}

}  // namespace mf::bindings
