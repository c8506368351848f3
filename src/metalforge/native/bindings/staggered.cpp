// Drivers of colour fields and of the staggered operator on them.
#include <nanobind/stl/array.h>
#include <nanobind/stl/complex.h>
#include <nanobind/stl/unique_ptr.h>

#include <complex>

#include "staggered_operator.hpp"

namespace mf::bindings {
namespace {

template <class Real>
Shape colours(const FieldLayout<Real>& layout) {
  return {layout.vectors() / 2, 6, layout.lanes()};
}

template <class Real>
Shape host_colours(const FieldLayout<Real>& layout) {
  const auto& n = layout.dims();
  return {n[3], n[2], n[1], n[0], 3, 2};
}

// Calls work(vector, i) for the i-th vector of one parity.
template <class Real, class Work>
void for_each_of_parity(const FieldLayout<Real>& layout, int parity, int threads, Work work) {
  const i64 n = layout.vectors() / 2;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (i64 i = 0; i < n; ++i) work(layout.parity(parity)[static_cast<std::size_t>(i)], i);
}

// Between file order (Nt, Nz, Ny, Nx, 3, re|im) in double and the layout; the other parity is left alone.
template <class Real, class Visit>
void visit_colours(const FieldLayout<Real>& layout, int parity, int threads, Visit visit) {
  const int lanes = layout.lanes();
  for_each_of_parity(layout, parity, threads, [&](i64 v, i64 i) {
    for (int lane = 0; lane < lanes; ++lane)
      for (int k = 0; k < 6; ++k) visit(i64{layout.sites_of(v)[lane]} * 6 + k, (i * 6 + k) * lanes + lane);
  });
}

template <class Real>
void pack_colours(const FieldLayout<Real>& layout, nb::handle host_object, nb::handle field_object,
                  nb::handle parity_object, nb::handle threads_object) {
  const In<double> host(host_object, "host", host_colours(layout));
  const Out<Real> field(field_object, "field", colours(layout));
  const int parity = parity_argument(parity_object), threads = useful_threads(layout, threads_object, share_of_pass);
  nb::gil_scoped_release release;
  visit_colours(layout, parity, threads,
                [&](i64 outside, i64 inside) { field.data()[inside] = static_cast<Real>(host.data()[outside]); });
}

template <class Real>
void unpack_colours(const FieldLayout<Real>& layout, nb::handle field_object, nb::handle host_object,
                    nb::handle parity_object, nb::handle threads_object) {
  const In<Real> field(field_object, "field", colours(layout));
  const Out<double> host(host_object, "host", host_colours(layout));
  const int parity = parity_argument(parity_object), threads = useful_threads(layout, threads_object, share_of_pass);
  nb::gil_scoped_release release;
  visit_colours(layout, parity, threads,
                [&](i64 outside, i64 inside) { host.data()[outside] = static_cast<double>(field.data()[inside]); });
}

template <class Real>
void set_gaussian(const FieldLayout<Real>& layout, nb::handle field_object, nb::handle parity_object, nb::handle seed,
                  nb::handle stream, nb::handle step, nb::handle draw_object, nb::handle threads_object) {
  const Out<Real> field(field_object, "field", colours(layout));
  const int parity = parity_argument(parity_object), threads = useful_threads(layout, threads_object);
  const ChainAddress chain = chain_argument(seed, stream, step);
  const u64 draw = unsigned_argument(draw_object, "draw", 0xfffffffcull);
  nb::gil_scoped_release release;
  with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const Colours<V> to{field.data()};
    for_each_of_parity(layout, parity, threads,
                       [&](i64 v, i64 i) { to.store(gaussian_colours<V>(chain, layout.sites_of(v), draw), i); });
    return 0;
  });
}

// Sum over a field of term(i) -> V, in double.
template <class V, class Term>
double sum_over_colours(i64 vectors, int threads, Term term) {
  std::vector<double> partial(static_cast<std::size_t>(blocks_of(vectors)));
  run_team(threads, [&](const Team& team) {
    sum_blocks(team, vectors, partial.data(), [&](i64 begin, i64 end) {
      LaneSum<V> sum;
      for (i64 i = begin; i < end; ++i) sum.add(term(i));
      return sum.value();
    });
  });
  return join_blocks(partial.data(), blocks_of(vectors));
}

// a^dagger b
template <class Real>
std::complex<double> dot(const FieldLayout<Real>& layout, nb::handle a_object, nb::handle b_object,
                         nb::handle threads_object) {
  const In<Real> a(a_object, "a", colours(layout));
  const In<Real> b(b_object, "b", colours(layout));
  const int threads = useful_threads(layout, threads_object, share_of_pass);
  const i64 n = layout.vectors() / 2;
  nb::gil_scoped_release release;
  return with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const Colours<V> x{const_cast<Real*>(a.data())}, y{const_cast<Real*>(b.data())};
    return std::complex<double>(
        sum_over_colours<V>(n, threads, [&](i64 i) { return real_dot(x.load(i), y.load(i)); }),
        sum_over_colours<V>(n, threads, [&](i64 i) { return imaginary_dot(x.load(i), y.load(i)); }));
  });
}

template <class Real>
double norm2_of(const FieldLayout<Real>& layout, nb::handle field_object, nb::handle threads_object) {
  const In<Real> field(field_object, "field", colours(layout));
  const int threads = useful_threads(layout, threads_object, share_of_pass);
  nb::gil_scoped_release release;
  return with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const Colours<V> x{const_cast<Real*>(field.data())};
    return sum_over_colours<V>(layout.vectors() / 2, threads, [&](i64 i) {
      const ColourVector<V> z = x.load(i);
      return real_dot(z, z);
    });
  });
}

// out <- keep * out + factor * field, for complex numbers.
template <class Real>
void combine(const FieldLayout<Real>& layout, nb::handle out_object, nb::handle field_object, std::complex<double> keep,
             std::complex<double> factor, nb::handle threads_object) {
  const Out<Real> out(out_object, "out", colours(layout));
  const In<Real> field(field_object, "field", colours(layout));
  const double numbers[2][2] = {{keep.real(), keep.imag()}, {factor.real(), factor.imag()}};
  require_finite(numbers[0], 2, "keep");
  require_finite(numbers[1], 2, "factor");
  const int threads = useful_threads(layout, threads_object, share_of_pass);
  nb::gil_scoped_release release;
  with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const auto complex = [](std::complex<double> z) {
      return Complex<V>{V(static_cast<Real>(z.real())), V(static_cast<Real>(z.imag()))};
    };
    const Complex<V> a = complex(keep), b = complex(factor);
    const Colours<V> to{out.data()}, from{const_cast<Real*>(field.data())};
    for_each_of_parity(layout, 0, threads, [&](i64, i64 i) { to.store(blend(a, to.load(i), b, from.load(i)), i); });
    return 0;
  });
}

template <class Real>
void hopping_signs(const FieldLayout<Real>& layout, i64 v, Real* sign) {
  const int lanes = layout.lanes();
  for (int lane = 0; lane < lanes; ++lane)
    for (int mu = 0; mu < 4; ++mu) sign[mu * lanes + lane] = hopping_sign_of(layout, v, mu, lane);
}

// Takes up the links of the gauge field.
template <class Real>
void refresh(StaggeredOperator<Real>& op, nb::handle u_object, nb::handle threads_object) {
  const FieldLayout<Real>& layout = op.layout;
  const In<Real> u(u_object, "links", layout.links());
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  with_hopping(op, threads, [&]<class V, class Reach>(V, Reach) {
    const Links<V> from{const_cast<Real*>(u.data())};
    for (int parity = 0; parity < 2; ++parity)
      for_each_of_parity(layout, parity, threads, [&](i64 v, i64 i) {
        Real sign[4 * LaneTraits<V>::lanes];
        hopping_signs(layout, v, sign);
        for (int mu = 0; mu < 4; ++mu) {
          const V s = LaneTraits<V>::load(sign + mu * LaneTraits<V>::lanes);
          op.template links_of<V, Reach::rows>(parity).store(hopping_link(from.load(layout.at(v), mu), s), i, mu);
        }
      });
  });
}

template <class Real>
void apply_hop(const StaggeredOperator<Real>& op, nb::handle out_object, nb::handle source_object,
               nb::handle parity_object, nb::handle threads_object) {
  const Out<Real> out(out_object, "out", op.colours());
  const In<Real> source(source_object, "source", op.colours());
  const int parity = parity_argument(parity_object), threads = useful_threads(op.layout, threads_object, share_of_pass);
  nb::gil_scoped_release release;
  with_hopping(op, threads, [&]<class V, class Reach>(V, Reach) {
    const Hopping<Reach, V> onto(op, parity);
    const Colours<V> psi{const_cast<Real*>(source.data())}, result{out.data()};
    run_team(threads, [&](const Team& team) {
      const auto range = team.share(op.vectors);
      for (i64 i = range.begin; i < range.end; ++i) result.store(onto(psi, i), i);
    });
  });
}

// out <- source - (diagonal - H H) x, or (diagonal - H H) x where there is no source; returns |out|^2. `scratch`
// becomes H x.
template <class Real>
double apply_normal(const StaggeredOperator<Real>& op, nb::handle out_object, nb::handle source_object,
                    nb::handle x_object, nb::handle scratch_object, double diagonal, nb::handle parity_object,
                    nb::handle threads_object) {
  const Out<Real> out(out_object, "out", op.colours());
  std::unique_ptr<In<Real>> source;
  if (!source_object.is_none()) source = std::make_unique<In<Real>>(source_object, "source", op.colours());
  const In<Real> x(x_object, "x", op.colours());
  const Out<Real> scratch(scratch_object, "scratch", op.colours());
  require_finite(&diagonal, 1, "diagonal");
  const int parity = parity_argument(parity_object), threads = useful_threads(op.layout, threads_object, share_of_pass);
  nb::gil_scoped_release release;
  std::vector<double> partial(static_cast<std::size_t>(blocks_of(op.vectors)));
  with_hopping(op, threads, [&]<class V, class Reach>(V, Reach) {
    const Hopping<Reach, V> away(op, 1 - parity), back(op, parity);
    const Colours<V> psi{const_cast<Real*>(x.data())}, middle{scratch.data()}, result{out.data()};
    const Colours<V> given{source ? const_cast<Real*>(source->data()) : nullptr};
    const V d(static_cast<Real>(diagonal));
    run_team(threads, [&](const Team& team) {
      const auto range = team.share(op.vectors);
      for (i64 i = range.begin; i < range.end; ++i) middle.store(away(psi, i), i);
      team.barrier();
      sum_blocks(team, op.vectors, partial.data(), [&](i64 begin, i64 end) {
        LaneSum<V> sum;
        for (i64 i = begin; i < end; ++i) {
          ColourVector<V> y = normal_product(d, psi.load(i), back(middle, i));
          if (given.data) y = difference(given.load(i), y);
          result.store(y, i);
          sum.add(real_dot(y, y));
        }
        return sum.value();
      });
    });
  });
  return join_blocks(partial.data(), blocks_of(op.vectors));
}

// pi_a <- pi_a - sum_k c_k dS_k/dw_a for S_k = X_k^dagger (D^dagger D) X_k, X_k on even sites held fixed. With Y = H X
// on odd sites S = m^2 |X|^2 + |Y|^2, so dS = 2 Re Y^dagger dH X, and under U -> exp(i w_a T_a) U
//   dS/dw_a = +2 Im tr T_a W_mu(x) Y(x+mu) X(x)^dagger   for x even,
//   dS/dw_a = -2 Im tr T_a W_mu(x) X(x+mu) Y(x)^dagger   for x odd.
template <class Real>
void apply_force(const StaggeredOperator<Real>& op, nb::handle pi_object, nb::handle fields_object,
                 nb::handle scratch_object, nb::handle coefficients_object, nb::handle threads_object) {
  constexpr std::size_t most = 256;
  const FieldLayout<Real>& layout = op.layout;
  const Out<Real> pi(pi_object, "momenta", layout.momenta());
  const Buffers<In<Real>> fields(fields_object, "fields", op.colours(), most);
  const Buffers<Out<Real>> scratch(scratch_object, "scratch", op.colours(), most);
  const In<double> coefficients(coefficients_object, "coefficients", {static_cast<Py_ssize_t>(fields.size())});
  require_finite(coefficients.data(), coefficients.size(), "coefficients");
  if (scratch.size() < fields.size()) throw nb::value_error("`scratch` must hold as many arrays as `fields`");
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  with_hopping(op, threads, [&]<class V, class Reach>(V, Reach) {
    const Hopping<Reach, V> onto_odd(op, 1);
    const Momenta<V> momenta{pi.data()};
    const auto field = [&](int parity, std::size_t k) {
      return Colours<V>{parity == 0 ? const_cast<Real*>(fields[k]) : scratch[k]};
    };
    run_team(threads, [&](const Team& team) {
      const auto range = team.share(op.vectors);
      // Fields inside, so that the links of a vector are fetched once for all of them.
      for (i64 i = range.begin; i < range.end; ++i)
        for (std::size_t k = 0; k < fields.size(); ++k) field(1, k).store(onto_odd(field(0, k), i), i);
      team.barrier();
      for (int parity = 0; parity < 2; ++parity)
        for (i64 i = range.begin; i < range.end; ++i) {
          const i64 v = layout.parity(parity)[static_cast<std::size_t>(i)];
          const Neighbour* around = op.around_of(parity, i);
          for (int mu = 0; mu < 4; ++mu) {
            Matrix3<V> outer = Matrix3<V>::zero();
            for (std::size_t k = 0; k < fields.size(); ++k) {
              ColourVector<V> ahead = field(1 - parity, k).load(around[mu].vector);
              exchange(ahead, around[mu].mask);
              const double c = (parity == 0 ? -2.0 : 2.0) * coefficients.data()[k];
              outer_acc(V(static_cast<Real>(c)), ahead, field(parity, k).load(i), outer);
            }
            const Algebra<V> kick =
                im_trace_generators(mul(op.template links_of<V, Reach::rows>(parity).load(i, mu), outer));
            Algebra<V> pi = momenta.load(v, mu);
            kick_by(kick, pi);
            momenta.store(pi, v, mu);
          }
        }
    });
  });
}

// Where the sites of a single-precision layout are in the double-precision one of the same lattice.
struct PrecisionMap {
  FieldLayout<double> wide;
  FieldLayout<float> narrow;
  std::vector<i32> vector_of, lane_of;  // of (vector, lane) of the narrow one

  explicit PrecisionMap(const std::array<int, 4>& dims) : wide(dims), narrow(dims) {
    const std::size_t sites = static_cast<std::size_t>(wide.sites());
    std::vector<i32> vector_of_site(sites), lane_of_site(sites);
    for (i64 v = 0; v < wide.vectors(); ++v)
      for (int lane = 0; lane < wide.lanes(); ++lane) {
        const u32 site = wide.sites_of(v)[lane];
        vector_of_site[site] = static_cast<i32>(v);
        lane_of_site[site] = lane;
      }
    vector_of.resize(sites);
    lane_of.resize(sites);
    for (std::size_t place = 0; place < sites; ++place) {
      const u32 site = narrow.sites_of(0)[place];
      vector_of[place] = vector_of_site[site];
      lane_of[place] = lane_of_site[site];
    }
  }

  // Calls visit(place in the narrow field, place in the wide one) for every number of a colour field.
  template <class Visit>
  void visit_colours(int parity, int threads, Visit visit) const {
    for_each_of_parity(narrow, parity, threads, [&](i64 v, i64 i) {
      for (int lane = 0; lane < narrow.lanes(); ++lane) {
        const std::size_t place = static_cast<std::size_t>(v * narrow.lanes() + lane);
        const i64 block = 6 * (vector_of[place] / 2);
        for (int k = 0; k < 6; ++k)
          visit((6 * i + k) * narrow.lanes() + lane, (block + k) * wide.lanes() + lane_of[place]);
      }
    });
  }
};

// narrow <- factor * wide
void narrow_colours(const PrecisionMap& map, nb::handle narrow_object, nb::handle wide_object, double factor,
                    nb::handle parity_object, nb::handle threads_object) {
  const Out<float> narrow(narrow_object, "narrow", colours(map.narrow));
  const In<double> wide(wide_object, "wide", colours(map.wide));
  require_finite(&factor, 1, "factor");
  const int parity = parity_argument(parity_object),
            threads = useful_threads(map.narrow, threads_object, share_of_pass);
  nb::gil_scoped_release release;
  map.visit_colours(parity, threads,
                    [&](i64 n, i64 w) { narrow.data()[n] = static_cast<float>(factor * wide.data()[w]); });
}

// wide <- keep * wide + factor * narrow
void widen_colours(const PrecisionMap& map, nb::handle wide_object, nb::handle narrow_object, double keep,
                   double factor, nb::handle parity_object, nb::handle threads_object) {
  const Out<double> wide(wide_object, "wide", colours(map.wide));
  const In<float> narrow(narrow_object, "narrow", colours(map.narrow));
  require_finite(&keep, 1, "keep");
  require_finite(&factor, 1, "factor");
  const int parity = parity_argument(parity_object),
            threads = useful_threads(map.narrow, threads_object, share_of_pass);
  nb::gil_scoped_release release;
  map.visit_colours(parity, threads, [&](i64 n, i64 w) {
    wide.data()[w] = mul_add(factor, static_cast<double>(narrow.data()[n]), keep * wide.data()[w]);
  });
}

// Takes up the links of a gauge field of the other precision.
template <class Real, class From>
void refresh_across(StaggeredOperator<Real>& op, const PrecisionMap& map, nb::handle u_object,
                    nb::handle threads_object) {
  constexpr bool narrowing = sizeof(Real) < sizeof(From);
  if (map.wide.dims() != op.layout.dims()) throw nb::value_error("`map` must be made for the lattice of `operator`");
  const In<From> u(u_object, "links", narrowing ? map.wide.links() : map.narrow.links());
  const int threads = useful_threads(map.narrow, threads_object);
  const int lanes = map.narrow.lanes(), lanes_to = op.layout.lanes(), lanes_from = narrowing ? map.wide.lanes() : lanes;
  nb::gil_scoped_release release;
  for (int parity = 0; parity < 2; ++parity)
    for_each_of_parity(map.narrow, parity, threads, [&](i64 v, i64) {
      float sign[4 * native_lanes<float>];
      hopping_signs(map.narrow, v, sign);
      for (int lane = 0; lane < lanes; ++lane) {
        const std::size_t place = static_cast<std::size_t>(v * lanes + lane);
        const i64 wide = map.vector_of[place], from = narrowing ? wide : v, to = narrowing ? v : wide;
        const int lane_to = narrowing ? lane : map.lane_of[place], lane_from = narrowing ? map.lane_of[place] : lane;
        for (int mu = 0; mu < 4; ++mu) {
          const Real s = static_cast<Real>(sign[mu * lanes + lane]);
          const From* source = u.data() + (from * 4 + mu) * 18 * lanes_from + lane_from;
          Real* target = op.links[parity].data() + (mu * op.vectors + to / 2) * 6 * op.rows * lanes_to + lane_to;
          for (int k = 0; k < 6 * op.rows; ++k) target[k * lanes_to] = s * static_cast<Real>(source[k * lanes_from]);
        }
      }
    });
}

template <class Real>
void bind(nb::module_& m, const char* suffix) {
  using nb::literals::operator""_a;
  using Op = StaggeredOperator<Real>;
  const auto name = [suffix](const char* base) { return std::string(base) + suffix; };
  m.def(name("colour_pack").c_str(), &pack_colours<Real>, "layout"_a, "host"_a.none(), "field"_a.none(),
        "parity"_a.none(), "threads"_a.none());
  m.def(name("colour_unpack").c_str(), &unpack_colours<Real>, "layout"_a, "field"_a.none(), "host"_a.none(),
        "parity"_a.none(), "threads"_a.none());
  m.def(name("colour_gaussian").c_str(), &set_gaussian<Real>, "layout"_a, "field"_a.none(), "parity"_a.none(),
        "seed"_a.none(), "stream"_a.none(), "step"_a.none(), "draw"_a.none(), "threads"_a.none());
  m.def(name("colour_dot").c_str(), &dot<Real>, "layout"_a, "a"_a.none(), "b"_a.none(), "threads"_a.none());
  m.def(name("colour_norm2").c_str(), &norm2_of<Real>, "layout"_a, "field"_a.none(), "threads"_a.none());
  m.def(name("colour_combine").c_str(), &combine<Real>, "layout"_a, "out"_a.none(), "field"_a.none(), "keep"_a,
        "factor"_a, "threads"_a.none());
  nb::class_<Op>(m, name("Staggered").c_str()).def_prop_ro("dims", [](const Op& op) { return op.layout.dims(); });
  m.def(
      name("staggered").c_str(), [](const FieldLayout<Real>& layout) { return std::make_unique<Op>(layout.dims()); },
      "layout"_a);
  m.def(name("staggered_refresh").c_str(), &refresh<Real>, "operator"_a, "links"_a.none(), "threads"_a.none());
  m.def(name("staggered_hop").c_str(), &apply_hop<Real>, "operator"_a, "out"_a.none(), "source"_a.none(),
        "parity"_a.none(), "threads"_a.none());
  m.def(name("staggered_normal").c_str(), &apply_normal<Real>, "operator"_a, "out"_a.none(), "source"_a.none(),
        "x"_a.none(), "scratch"_a.none(), "diagonal"_a, "parity"_a.none(), "threads"_a.none());
  m.def(name("staggered_force").c_str(), &apply_force<Real>, "operator"_a, "momenta"_a.none(), "fields"_a.none(),
        "scratch"_a.none(), "coefficients"_a.none(), "threads"_a.none());
}

}  // namespace

void bind_staggered(nb::module_& m) {
  using nb::literals::operator""_a;
  bind<double>(m, "_f64");
  bind<float>(m, "_f32");
  nb::class_<PrecisionMap>(m, "PrecisionMap");
  m.def(
      "precision_map", [](const FieldLayout<double>& layout) { return std::make_unique<PrecisionMap>(layout.dims()); },
      "layout"_a);
  m.def("narrow_colours", &narrow_colours, "map"_a, "narrow"_a.none(), "wide"_a.none(), "factor"_a, "parity"_a.none(),
        "threads"_a.none());
  m.def("widen_colours", &widen_colours, "map"_a, "wide"_a.none(), "narrow"_a.none(), "keep"_a, "factor"_a,
        "parity"_a.none(), "threads"_a.none());
  m.def("staggered_narrow", &refresh_across<float, double>, "operator"_a, "map"_a, "links"_a.none(),
        "threads"_a.none());
  m.def("staggered_widen", &refresh_across<double, float>, "operator"_a, "map"_a, "links"_a.none(), "threads"_a.none());
}

}  // namespace mf::bindings
