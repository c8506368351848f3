// Drivers of everything that reads a gauge field: copies in file order, energies, loops, the clover field strength.
#include <nanobind/stl/array.h>
#include <nanobind/stl/complex.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/unique_ptr.h>

#include <cmath>
#include <complex>
#include <memory>

#include "actions.hpp"
#include "lattice.hpp"
#include "measure.hpp"

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
      const PlaneSums sums = plaquettes_at(links, layout.at(v));
      temporal_of[static_cast<std::size_t>(v)] = sums.temporal;
      return sums.spatial;
    });
    const double temporal =
        sum_over_vectors(layout.vectors(), 1, partial, [&](i64 v) { return temporal_of[static_cast<std::size_t>(v)]; });
    return std::pair<double, double>(spatial, temporal);
  });
}

// S / beta of an action, in double.
template <class Real>
double action_energy(const FieldLayout<Real>& layout, nb::handle u_object, nb::handle action_object,
                     nb::handle threads_object) {
  const In<Real> u(u_object, "links", layout.links());
  const AnyAction any_action = action_argument(action_object);
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  return with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const DoubleLinks<V> links{{const_cast<Real*>(u.data())}};
    std::vector<double> partial;
    return std::visit(
        [&](const auto& action) {
          return sum_over_vectors(layout.vectors(), threads, partial,
                                  [&](i64 v) { return action.energy(links, layout.at(v)); });
        },
        any_action);
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
      // Where time is cut in two, lanes of both halves hold the same loop: each is then counted twice.
      const double weight = layout.bit(3) ? 1.0 / 6.0 : 1.0 / 3.0;
      const Complex<V> loop = polyakov_at(links, layout.at(v), layout.dims()[3]);
      imaginary_of[static_cast<std::size_t>(v)] = weight * static_cast<double>(horizontal_sum(loop.im));
      return weight * static_cast<double>(horizontal_sum(loop.re));
    });
    const double im =
        sum_over_vectors(spatial, 1, partial, [&](i64 v) { return imaginary_of[static_cast<std::size_t>(v)]; });
    return std::complex<double>(re, im);
  });
}

// Sums over sites of the clover energy density and of the topological charge density.
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
      const CloverSums sums = clover_at(links, layout.at(v));
      charge_of[static_cast<std::size_t>(v)] = sums.charge;
      return sums.energy;
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
  m.def(name("action_energy").c_str(), &action_energy<Real>, "layout"_a, "links"_a.none(), "action"_a.none(),
        "threads"_a.none());
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
