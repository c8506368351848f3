// Drivers of everything that changes a gauge field: starts, molecular dynamics, heat bath, overrelaxation.
#include "gauge.hpp"
#include "heatbath.hpp"
#include "lattice_draws.hpp"

namespace mf::bindings {
namespace {

// Which draws of a site belong to what; heatbath.hpp has 3.
constexpr u64 momentum_draws = u64{1} << 28;
constexpr u64 hot_draws = u64{2} << 28;

MF_INLINE u64 draw_of(u64 purpose, int mu, int number) {
  return purpose | static_cast<u64>(mu) << 26 | static_cast<u64>(number);
}

// Calls work(vector, mu) for every link.
template <class Work>
void for_each_link(const Layout& layout, int threads, Work work) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (i64 v = 0; v < layout.vectors(); ++v)
    for (int mu = 0; mu < 4; ++mu) work(v, mu);
}

template <class Real>
void refresh_momenta(const FieldLayout<Real>& layout, nb::handle pi_object, nb::handle seed, nb::handle stream,
                     nb::handle step, nb::handle threads_object) {
  const Out<Real> pi(pi_object, "momenta", layout.momenta());
  const ChainAddress chain(seed, stream, step);
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const Momenta<V> momenta{pi.data()};
    for_each_link(layout, threads, [&](i64 v, int mu) {
      Algebra<V> a;
      for (int pair = 0; pair < 4; ++pair) {
        const Pair<V> z = normals<V>(layout, chain, v, draw_of(momentum_draws, mu, pair));
        a.c[2 * pair] = z.first;
        a.c[2 * pair + 1] = z.second;
      }
      momenta.store(a, v, mu);
    });
    return 0;
  });
}

// Haar measure: two orthonormal complex vectors from Gaussian ones, the third row from them.
template <class Real>
void set_hot(const FieldLayout<Real>& layout, nb::handle u_object, nb::handle seed, nb::handle stream, nb::handle step,
             nb::handle threads_object) {
  const Out<Real> u(u_object, "links", layout.links());
  const ChainAddress chain(seed, stream, step);
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const Links<V> links{u.data()};
    for_each_link(layout, threads, [&](i64 v, int mu) {
      Matrix3<V> m = Matrix3<V>::zero();
      for (int entry = 0; entry < 6; ++entry) {
        const Pair<V> z = normals<V>(layout, chain, v, draw_of(hot_draws, mu, entry));
        m.e[entry / 3][entry % 3] = {z.first, z.second};
      }
      reunitarise(m);
      links.store(m, v, mu);
    });
    return 0;
  });
}

template <class V>
void move_links(const Layout& layout, const Links<V>& links, const Momenta<V>& momenta, double eps, int threads) {
  using Real = typename LaneTraits<V>::Real;
  const V factor(static_cast<Real>(eps));
  for_each_link(layout, threads, [&](i64 v, int mu) {
    const Matrix3<V> step = exp_i(hermitian(momenta.load(v, mu), factor));
    links.store(mul(step, links.load(Position{&layout, v, 0}, mu)), v, mu);
  });
}

// pi <- keep * pi - factor * Im tr(T_a U A)
template <class V>
void kick(const Layout& layout, const Links<V>& links, const Momenta<V>& momenta, double keep, double factor,
          int threads) {
  using Real = typename LaneTraits<V>::Real;
  const V scale_old(static_cast<Real>(keep)), scale_new(static_cast<Real>(factor));
  for_each_link(layout, threads, [&](i64 v, int mu) {
    const Algebra<V> force = force_over_beta_third(links, Position{&layout, v, 0}, mu);
    Algebra<V> pi = momenta.load(v, mu);
    for (int c = 0; c < 8; ++c) pi.c[c] = neg_mul_add(scale_new, force.c[c], scale_old * pi.c[c]);
    momenta.store(pi, v, mu);
  });
}

// Walks a scheme: stage i is (kind, coefficient); kind 0 moves links by coefficient, kind 1 kicks momenta.
template <class Real>
void evolve(const FieldLayout<Real>& layout, nb::handle u_object, nb::handle pi_object, double beta,
            nb::handle stages_object, nb::handle threads_object) {
  const Out<Real> u(u_object, "links", layout.links());
  const Out<Real> pi(pi_object, "momenta", layout.momenta());
  const In<double> stages(stages_object, "stages", {any, 2});
  const int threads = useful_threads(layout, threads_object);
  require_finite(stages.data(), stages.size(), "stages");
  for (i64 s = 0; s < stages.extent(0); ++s)
    if (stages.data()[2 * s] != 0.0 && stages.data()[2 * s] != 1.0)
      throw nb::value_error("`stages` must have 0 (move links) or 1 (kick momenta) in its first column");
  require_finite(&beta, 1, "beta");
  nb::gil_scoped_release release;
  with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const Links<V> links{u.data()};
    const Momenta<V> momenta{pi.data()};
    for (i64 s = 0; s < stages.extent(0); ++s) {
      const double kind = stages.data()[2 * s], coefficient = stages.data()[2 * s + 1];
      if (kind == 0.0)
        move_links(layout, links, momenta, coefficient, threads);
      else
        kick(layout, links, momenta, 1.0, coefficient * beta / 3.0, threads);
    }
    return 0;
  });
}

// pi <- keep * pi - coefficient * (dS/dw for beta = 1) * beta: the parts of flows and force measurements.
template <class Real>
void kick_momenta(const FieldLayout<Real>& layout, nb::handle u_object, nb::handle pi_object, double keep,
                  double coefficient, nb::handle threads_object) {
  const Out<Real> u(u_object, "links", layout.links());
  const Out<Real> pi(pi_object, "momenta", layout.momenta());
  require_finite(&keep, 1, "keep");
  require_finite(&coefficient, 1, "coefficient");
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    kick(layout, Links<V>{u.data()}, Momenta<V>{pi.data()}, keep, coefficient / 3.0, threads);
    return 0;
  });
}

template <class Real>
void move(const FieldLayout<Real>& layout, nb::handle u_object, nb::handle pi_object, double eps,
          nb::handle threads_object) {
  const Out<Real> u(u_object, "links", layout.links());
  const Out<Real> pi(pi_object, "momenta", layout.momenta());
  require_finite(&eps, 1, "eps");
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    move_links(layout, Links<V>{u.data()}, Momenta<V>{pi.data()}, eps, threads);
    return 0;
  });
}

template <class Real>
void reunitarise_links(const FieldLayout<Real>& layout, nb::handle u_object, nb::handle threads_object) {
  const Out<Real> u(u_object, "links", layout.links());
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const Links<V> links{u.data()};
    for_each_link(layout, threads, [&](i64 v, int mu) {
      Matrix3<V> m = links.load(Position{&layout, v, 0}, mu);
      reunitarise(m);
      links.store(m, v, mu);
    });
    return 0;
  });
}

constexpr int subgroups[3][2] = {{0, 1}, {0, 2}, {1, 2}};

// Updates links by direction and parity, so that none changes while its staple is in use. Bit 2 mu + parity of
// `selection` chooses which; 255 is every link.
template <class Real, class Update>
void sweep(const FieldLayout<Real>& layout, Real* data, u64 selection, int threads, Update update) {
  with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const Links<V> links{data};
    for (int mu = 0; mu < 4; ++mu)
      for (int parity = 0; parity < 2; ++parity) {
        if (!(selection >> (2 * mu + parity) & 1)) continue;
        const std::vector<i32>& list = layout.parity(parity);
        const i64 n = static_cast<i64>(list.size());
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
        for (i64 i = 0; i < n; ++i) {
          const Position x{&layout, list[static_cast<std::size_t>(i)], 0};
          Matrix3<V> u = links.load(x, mu);
          Matrix3<V> w = mul(u, staple(links, x, mu));
          for (int s = 0; s < 3; ++s) {
            const int a = subgroups[s][0], b = subgroups[s][1];
            const Quaternion<V> part = su2_part(w, a, b);
            const Quaternion<V> g = update(x.vector, mu, s, part);
            rotate_rows(g, a, b, u);
            if (s < 2) rotate_rows(g, a, b, w);
          }
          links.store(u, x.vector, mu);
        }
      }
    return 0;
  });
}

template <class V>
MF_INLINE V length(const Quaternion<V>& q) {
  return sqrt(mul_add(q.a0, q.a0, mul_add(q.a1, q.a1, mul_add(q.a2, q.a2, q.a3 * q.a3))));
}

// part / |part|, or 1 where the staple is so small that its direction is rounding noise: the heat bath then draws from
// the whole group (alpha = 0), overrelaxation leaves the link alone.
template <class V>
MF_INLINE Quaternion<V> direction_of(const Quaternion<V>& part, V k) {
  using Real = typename LaneTraits<V>::Real;
  const V one(static_cast<Real>(1)), zero(static_cast<Real>(0));
  const auto degenerate = k < V(static_cast<Real>(1e-12));
  const V inverse = one / select(degenerate, one, k);
  return {select(degenerate, one, inverse * part.a0), select(degenerate, zero, inverse * part.a1),
          select(degenerate, zero, inverse * part.a2), select(degenerate, zero, inverse * part.a3)};
}

template <class Real>
void heatbath_sweep(const FieldLayout<Real>& layout, nb::handle u_object, double beta, nb::handle seed,
                    nb::handle stream, nb::handle step, nb::handle selection_object, nb::handle threads_object) {
  const Out<Real> u(u_object, "links", layout.links());
  const ChainAddress chain(seed, stream, step);
  const u64 selection = unsigned_argument(selection_object, "selection", 255);
  const int threads = useful_threads(layout, threads_object);
  require_finite(&beta, 1, "beta");
  if (beta < 0) throw nb::value_error("`beta` must be >= 0");
  nb::gil_scoped_release release;
  sweep(layout, u.data(), selection, threads,
        [&]<class V>(i64 vector, int mu, int subgroup, const Quaternion<V>& part) {
          using W = typename Draws<V>::W;
          const V k = length(part);
          const auto draw = [&](int round) {
            const u32* sites = layout.sites_of(vector) + round * native_lanes<double>;
            const auto alpha = [&] {
              if constexpr (LaneTraits<V>::lanes == 1)
                return 2.0 / 3.0 * beta * static_cast<double>(k);
              else {
                using R = Simd<double, native_lanes<double>>;
                if constexpr (Draws<V>::rounds == 1)
                  return R(2.0 / 3.0 * beta) * convert<double>(k);
                else
                  return R(2.0 / 3.0 * beta) * convert<double>(round == 0 ? half_of<0>(k) : half_of<1>(k));
              }
            }();
            return su2_heatbath(alpha, chain.keys, chain.template at<W>(sites), mu, subgroup);
          };
          decltype(draw(0)) drawn[2];
          for (int round = 0; round < Draws<V>::rounds; ++round) drawn[round] = draw(round);
          const Quaternion<V> x{
              joined<V>([&](int r) { return drawn[r].a0; }), joined<V>([&](int r) { return drawn[r].a1; }),
              joined<V>([&](int r) { return drawn[r].a2; }), joined<V>([&](int r) { return drawn[r].a3; })};
          return x * adjoint(direction_of(part, k));
        });
}

template <class Real>
void overrelaxation_sweep(const FieldLayout<Real>& layout, nb::handle u_object, nb::handle selection_object,
                          nb::handle threads_object) {
  const Out<Real> u(u_object, "links", layout.links());
  const u64 selection = unsigned_argument(selection_object, "selection", 255);
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  sweep(layout, u.data(), selection, threads, []<class V>(i64, int, int, const Quaternion<V>& part) {
    // g = V^dagger V^dagger keeps Re tr(g V) = Re tr V.
    const Quaternion<V> v = adjoint(direction_of(part, length(part)));
    return v * v;
  });
}

template <class Real>
void bind(nb::module_& m, const char* suffix) {
  using nb::literals::operator""_a;
  const auto name = [suffix](const char* base) { return std::string(base) + suffix; };
  m.def(name("refresh_momenta").c_str(), &refresh_momenta<Real>, "layout"_a, "momenta"_a.none(), "seed"_a.none(),
        "stream"_a.none(), "step"_a.none(), "threads"_a.none());
  m.def(name("set_hot").c_str(), &set_hot<Real>, "layout"_a, "links"_a.none(), "seed"_a.none(), "stream"_a.none(),
        "step"_a.none(), "threads"_a.none());
  m.def(name("evolve").c_str(), &evolve<Real>, "layout"_a, "links"_a.none(), "momenta"_a.none(), "beta"_a,
        "stages"_a.none(), "threads"_a.none());
  m.def(name("kick_momenta").c_str(), &kick_momenta<Real>, "layout"_a, "links"_a.none(), "momenta"_a.none(), "keep"_a,
        "coefficient"_a, "threads"_a.none());
  m.def(name("move_links").c_str(), &move<Real>, "layout"_a, "links"_a.none(), "momenta"_a.none(), "eps"_a,
        "threads"_a.none());
  m.def(name("reunitarise").c_str(), &reunitarise_links<Real>, "layout"_a, "links"_a.none(), "threads"_a.none());
  m.def(name("heatbath").c_str(), &heatbath_sweep<Real>, "layout"_a, "links"_a.none(), "beta"_a, "seed"_a.none(),
        "stream"_a.none(), "step"_a.none(), "selection"_a.none(), "threads"_a.none());
  m.def(name("overrelax").c_str(), &overrelaxation_sweep<Real>, "layout"_a, "links"_a.none(), "selection"_a.none(),
        "threads"_a.none());
}

}  // namespace

void bind_lattice_update(nb::module_& m) {
  bind<double>(m, "_f64");
  bind<float>(m, "_f32");
}

}  // namespace mf::bindings
