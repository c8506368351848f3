// Drivers of everything that changes a gauge field: starts, molecular dynamics, heat bath, overrelaxation.
#include "actions.hpp"
#include "lattice.hpp"
#include "team.hpp"
#include "update.hpp"

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
  for_each_link(layout, threads, [&](i64 v, int mu) {
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

// Calls work(mu, parity, slice) in an order that gives what all of (0, 0), then all of (0, 1), (1, 0), ... (3, 1)
// would, but goes through the time slices once, as a wave: phase 2 mu + parity is `lag` slices behind the first one.
// Where a link is updated its staple reaches, for mu < 3, links mu of the other parity and links t in the slices beside
// it, and for mu = 3 spatial links in the next slice; so phase (mu, 1) of a slice comes when (mu, 0) is done on both
// sides of it, (3, 0) when (2, 1) is done in the next one, and all else when the phase before is done in the same
// slice. The slices are a ring: `first` is where a phase begins, far enough from the seam, and the wave runs on over it
// to the end.
template <class Work>
void walk_sweep(u64 selection, i64 slices, Work work) {
  constexpr int lag[8] = {0, 1, 1, 2, 2, 3, 4, 4}, first[8] = {0, 1, 1, 2, 2, 3, 3, 3};
  for (i64 wave = 0; wave < slices + lag[7] + first[7]; ++wave)
    for (int phase = 0; phase < 8; ++phase) {
      const i64 t = wave - lag[phase] - first[phase];
      if (t >= 0 && t < slices && selection >> phase & 1) work(phase / 2, phase % 2, (t + first[phase]) % slices);
    }
}

// Updates links by direction and parity, so that none changes while its staple is in use. Bit 2 mu + parity of
// `selection` chooses which; 255 is every link. rotate(sites, mu, subgroup, part) is the update of a subgroup.
// A field that no cache holds would come from memory once a direction and parity: it is walked through by slices. Sites
// of one parity are further apart than a page, which prefetchers do not follow: links are fetched two vectors ahead.
template <class Real, class Rotate>
void sweep(const FieldLayout<Real>& layout, Real* data, u64 selection, int threads, Rotate rotate) {
  constexpr i64 cached_bytes = i64{8} << 20, fetched_ahead = 2;
  const i64 bytes = layout.sites() * 4 * 18 * static_cast<i64>(sizeof(Real));
  const i64 slices = bytes > cached_bytes ? layout.local()[3] : 1;
  with_lanes(layout, [&](auto tag) {
    using V = decltype(tag);
    const Links<V> links{data};
    run_team(threads, [&](const Team& team) {
      walk_sweep(selection, slices, [&](int mu, int parity, i64 slice) {
        const i32* list = layout.parity(parity).data();
        const i64 n = layout.vectors() / 2 / slices;
        const Team::Range range = team.share(n);
        const i64 end = slice * n + range.end;
        for (i64 i = slice * n + range.begin; i < end; ++i) {
          const i64 v = list[i];
          if (i + fetched_ahead < end) staple(FetchedLinks<V>{links}, layout.at(list[i + fetched_ahead]), mu);
          const auto rotation = [&](int subgroup, const Quaternion<V>& part) {
            return rotate(layout.sites_of(v), mu, subgroup, part);
          };
          links.store(updated_by_subgroups(links, layout.at(v), mu, rotation), v, mu);
        }
        team.barrier();
      });
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
  sweep(layout, u.data(), selection, threads,
        [&]<class V>(const u32* sites, int mu, int subgroup, const Quaternion<V>& part) {
          return heatbath_rotation(part, beta, chain, sites, mu, subgroup);
        });
}

template <class Real>
void overrelaxation_sweep(const FieldLayout<Real>& layout, nb::handle u_object, nb::handle selection_object,
                          nb::handle threads_object) {
  const Out<Real> u(u_object, "links", layout.links());
  const u64 selection = unsigned_argument(selection_object, "selection", 255);
  const int threads = useful_threads(layout, threads_object);
  nb::gil_scoped_release release;
  sweep(layout, u.data(), selection, threads,
        []<class V>(const u32*, int, int, const Quaternion<V>& part) { return overrelaxation_rotation(part); });
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
