// Drivers of everything that changes a gauge field: starts, molecular dynamics, heat bath, overrelaxation.
#include "actions.hpp"
#include "sweeps.hpp"

namespace mf::bindings {
namespace {

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
  const ChainAddress chain = chain_argument(seed, stream, step);
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const Momenta<V> momenta{pi.data()};
    for_each_link(layout, threads,
                  [&](i64 v, int mu) { momenta.store(fresh_momenta<V>(chain, layout.sites_of(v), mu), v, mu); });
    return 0;
  });
}

template <class Real>
void set_hot(const FieldLayout<Real>& layout, nb::handle u_object, nb::handle seed, nb::handle stream, nb::handle step,
             nb::handle threads_object) {
  const Out<Real> u(u_object, "links", layout.links());
  const ChainAddress chain = chain_argument(seed, stream, step);
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const Links<V> links{u.data()};
    for_each_link(layout, threads,
                  [&](i64 v, int mu) { links.store(haar_link<V>(chain, layout.sites_of(v), mu), v, mu); });
    return 0;
  });
}

template <class V>
void move_links(const Layout& layout, const Links<V>& links, const Momenta<V>& momenta, double eps, int threads) {
  using Real = typename LaneTraits<V>::Real;
  const V factor(static_cast<Real>(eps));
  for_each_link(layout, threads, [&](i64 v, int mu) {
    const Matrix3<V> step = link_step(momenta.load(v, mu), factor);
    links.store(mul(step, links.load(layout.at(v), mu)), v, mu);
  });
}

// pi <- keep * pi - factor * Im tr(T_a U A), with the action's staple A
template <class V, class Action>
void kick(const Action& action, const Layout& layout, const Links<V>& links, const Momenta<V>& momenta, double keep,
          double factor, int threads) {
  using Real = typename LaneTraits<V>::Real;
  const V scale_old(static_cast<Real>(keep)), scale_new(static_cast<Real>(factor));
  const i64 fetched = is_cached(layout, sizeof(Real)) ? 0 : layout.vectors() - fetched_ahead;
  for_each_link(layout, threads, [&](i64 v, int mu) {
    if (v < fetched) staple(FetchedLinks<V>{links}, layout.at(v + fetched_ahead), mu);
    const Algebra<V> force = force_over_beta_third(action, links, layout.at(v), mu);
    Algebra<V> pi = momenta.load(v, mu);
    kick_by(force, scale_old, scale_new, pi);
    momenta.store(pi, v, mu);
  });
}

// Walks a scheme: stage i is (kind, coefficient); kind 0 moves links by coefficient, kind 1 kicks momenta.
template <class Real>
void evolve(const FieldLayout<Real>& layout, nb::handle u_object, nb::handle pi_object, double beta,
            nb::handle stages_object, nb::handle threads_object, nb::handle action_object) {
  const Out<Real> u(u_object, "links", layout.links());
  const Out<Real> pi(pi_object, "momenta", layout.momenta());
  const In<double> stages(stages_object, "stages", {any, 2});
  const int threads = useful_threads(layout, threads_object);
  require_finite(stages.data(), stages.size(), "stages");
  for (i64 s = 0; s < stages.extent(0); ++s)
    if (stages.data()[2 * s] != 0.0 && stages.data()[2 * s] != 1.0)
      throw nb::value_error("`stages` must have 0 (move links) or 1 (kick momenta) in its first column");
  require_finite(&beta, 1, "beta");
  const AnyAction any_action = action_argument(action_object);
  nb::gil_scoped_release release;
  with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const Links<V> links{u.data()};
    const Momenta<V> momenta{pi.data()};
    std::visit(
        [&](const auto& action) {
          for (i64 s = 0; s < stages.extent(0); ++s) {
            const double kind = stages.data()[2 * s], coefficient = stages.data()[2 * s + 1];
            if (kind == 0.0)
              move_links(layout, links, momenta, coefficient, threads);
            else
              kick(action, layout, links, momenta, 1.0, coefficient * beta / 3.0, threads);
          }
        },
        any_action);
    return 0;
  });
}

// pi <- keep * pi - coefficient * (dS/dw for beta = 1) * beta: the parts of flows and force measurements.
template <class Real>
void kick_momenta(const FieldLayout<Real>& layout, nb::handle u_object, nb::handle pi_object, double keep,
                  double coefficient, nb::handle threads_object, nb::handle action_object) {
  const Out<Real> u(u_object, "links", layout.links());
  const Out<Real> pi(pi_object, "momenta", layout.momenta());
  require_finite(&keep, 1, "keep");
  require_finite(&coefficient, 1, "coefficient");
  const AnyAction any_action = action_argument(action_object);
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    std::visit(
        [&](const auto& action) {
          kick(action, layout, Links<V>{u.data()}, Momenta<V>{pi.data()}, keep, coefficient / 3.0, threads);
        },
        any_action);
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
      Matrix3<V> m = links.load(layout.at(v), mu);
      reunitarise(m);
      links.store(m, v, mu);
    });
    return 0;
  });
}

template <class Real>
void heatbath_sweep(const FieldLayout<Real>& layout, nb::handle u_object, double beta, nb::handle seed,
                    nb::handle stream, nb::handle step, nb::handle selection_object, nb::handle threads_object) {
  const Out<Real> u(u_object, "links", layout.links());
  const ChainAddress chain = chain_argument(seed, stream, step);
  const u64 selection = unsigned_argument(selection_object, "selection", 255);
  const int threads = useful_threads(layout, threads_object);
  require_finite(&beta, 1, "beta");
  if (beta < 0) throw nb::value_error("`beta` must be >= 0");
  nb::gil_scoped_release release;
  sweep(layout, u.data(), selection, threads, [&](int mu) { return HeatbathUpdate(beta, chain, mu); });
}

template <class Real>
void overrelaxation_sweep(const FieldLayout<Real>& layout, nb::handle u_object, nb::handle selection_object,
                          nb::handle threads_object) {
  const Out<Real> u(u_object, "links", layout.links());
  const u64 selection = unsigned_argument(selection_object, "selection", 255);
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  sweep(layout, u.data(), selection, threads, [](int) { return OverrelaxationUpdate{}; });
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
        "stages"_a.none(), "threads"_a.none(), "action"_a.none() = nb::none());
  m.def(name("kick_momenta").c_str(), &kick_momenta<Real>, "layout"_a, "links"_a.none(), "momenta"_a.none(), "keep"_a,
        "coefficient"_a, "threads"_a.none(), "action"_a.none() = nb::none());
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
