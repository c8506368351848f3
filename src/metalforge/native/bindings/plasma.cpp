// The driver of particles in a periodic box: blocks of steps on a team of threads, from and to arrays [n][3].
#include <nanobind/stl/unique_ptr.h>

#include <cmath>
#include <memory>

#include "arguments.hpp"
#include "draws.hpp"
#include "pair_forces.hpp"

namespace mf::bindings {
namespace {

constexpr int particle_sums = 6 + 12;  // sum v_a v_b, and transverse currents of the three smallest wave vectors
constexpr int columns = pair_sums + particle_sums;

// Adds up what one part of the clusters brings to a sample: velocities, and sum v_b exp(i k x_a) with k = 2 pi / L for
// a = x, y, z, and b the two other directions (a + 1, a + 2): real, imaginary, real, imaginary.
template <class Real>
void add_particles(const Clusters<Real>& all, Team::Range range, double* sums) {
  using V = Simd<double, cluster_size>;
  V total[particle_sums];
  for (V& t : total) t = V(0.0);
  const V per_box(1 / all.length());
  for (i64 c = range.begin; c < range.end; ++c) {
    const double *x = all.x.data() + c * cluster_reals, *v = all.v.data() + c * cluster_reals;
    V velocity[3];
    for (int k = 0; k < 3; ++k) velocity[k] = V::load(v + k * cluster_size);
    for (int k = 0; k < 3; ++k) {
      total[k] = mul_add(velocity[k], velocity[k], total[k]);
      total[3 + k] = mul_add(velocity[k], velocity[(k + 1) % 3], total[3 + k]);
      V u = V::load(x + k * cluster_size) * per_box;
      for (int lane = 0; lane < cluster_size; ++lane) u.set(lane, u[lane] - std::floor(u[lane]));
      const SinCos<V> wave = sincos_2pi(u);
      for (int b = 0; b < 2; ++b) {
        V* current = total + 6 + 4 * k + 2 * b;
        current[0] = mul_add(wave.cos, velocity[(k + 1 + b) % 3], current[0]);
        current[1] = mul_add(wave.sin, velocity[(k + 1 + b) % 3], current[1]);
      }
    }
  }
  for (int i = 0; i < particle_sums; ++i) sums[i] = horizontal_sum(total[i]);
}

// Lists have the particles within a part of the skin, so that few are looked at in vain. They are taken, every few
// steps, from those within all of it, which last several times as long.
constexpr double near_part = 0.2;

struct Plan {
  i64 steps, sample_every, frame_every;
  double dt, half_kick;  // half of dt / m
  double keep, noise;    // of the Langevin part; 1 and 0 without
  ChainAddress chain;
};

struct Output {
  double *samples, *frame_position, *frame_velocity;
};

template <class Real>
class Plasma {
 public:
  Plasma(i64 n, double length, double kappa, double cutoff, double skin)
      : all_(n, length, cutoff + skin, cutoff + near_part * skin),
        pair_(Yukawa<Real>::of(kappa, cutoff, std::exp(-kappa * cutoff) / cutoff)),
        skin_(skin),
        position_(static_cast<std::size_t>(3 * n)),
        velocity_(static_cast<std::size_t>(3 * n)),
        boxes_(static_cast<std::size_t>(3 * n)),
        partial_(static_cast<std::size_t>(all_.slabs() * columns)) {}

  i64 n() const { return all_.n(); }
  i64 listed() const {  // places of neighbours in all lists
    i64 sum = 0;
    for (int s = 0; s < all_.slabs(); ++s) sum += static_cast<i64>(all_.slab(s).neighbour.size()) * cluster_size;
    return sum;
  }

  // Moves the particles by a plan and returns how often lists were made, or -1 when a particle is nowhere any more.
  i64 advance(double* position, i32* boxes, double* velocity, const Plan& plan, const Output& out, int threads) {
    const i64 most = n() / 64;
    threads = static_cast<int>(std::max<i64>(1, std::min<i64>({i64{threads}, i64{all_.slabs()}, most})));
    begin(position, boxes, velocity);
    i64 lists = 0;
    bool lost = false;
    std::vector<double> farthest(static_cast<std::size_t>(threads));
    run_team(threads, [&](const Team& team) {
      relist(team);
      forces<false>(team);
      all_.add_up(team.share(all_.count()));
      i64 made = 1;
      for (i64 step = 1; step <= plan.steps; ++step) {
        farthest[static_cast<std::size_t>(team.index)] = move(team.share(all_.count()), plan, step);
        team.barrier();
        double most2 = 0;
        for (int member = 0; member < team.size; ++member)
          most2 = std::max(most2, farthest[static_cast<std::size_t>(member)]);
        if (!(most2 < INFINITY)) {
          if (team.index == 0) lost = true;
          break;
        }
        if (4 * most2 >= near_part * skin_ * near_part * skin_) {
          team.barrier();  // all have read
          farthest[static_cast<std::size_t>(team.index)] = all_.farthest2_of_all(team.share(all_.count()));
          team.barrier();
          double gone2 = 0;
          for (int member = 0; member < team.size; ++member)
            gone2 = std::max(gone2, farthest[static_cast<std::size_t>(member)]);
          if (2 * std::sqrt(gone2) + near_part * skin_ >= skin_) {
            all_.give(team.share(all_.count()), position_.data(), boxes_.data(), velocity_.data());
            team.barrier();
            if (team.index == 0) all_.take(position_.data(), boxes_.data(), velocity_.data());
            team.barrier();
            relist(team);
            ++made;
          } else {
            all_.publish(team.share(all_.count()));
            all_.note_places(team.share(all_.count()));
            team.barrier();
            for (int s = team.index; s < all_.slabs(); s += team.size) all_.prune(s);
          }
        } else {
          all_.publish(team.share(all_.count()));
          team.barrier();
        }
        const bool sampled = plan.sample_every && step % plan.sample_every == 0;
        sampled ? forces<true>(team) : forces<false>(team);
        const Team::Range mine = team.share(all_.count());
        all_.add_up(mine);
        kick(mine, plan.half_kick);
        if (sampled) sample(team, out.samples + (step / plan.sample_every - 1) * columns);
        if (plan.frame_every && step % plan.frame_every == 0) {
          const i64 at = (step / plan.frame_every - 1) * 3 * n();
          all_.give_unwrapped(mine, out.frame_position + at, out.frame_velocity + at);
        }
      }
      if (team.index == 0) lists = made;
    });
    if (lost) return -1;
    all_.give({0, all_.count()}, position, boxes, velocity);
    return lists;
  }

  // The forces on particles at rest where they are, and one row of sums.
  void measure(const double* position, const i32* boxes, const double* velocity, double* force, double* sums,
               int threads) {
    begin(position, boxes, velocity);
    threads = std::min(threads, all_.slabs());
    run_team(threads, [&](const Team& team) {
      relist(team);
      forces<true>(team);
      all_.add_up(team.share(all_.count()));
      sample(team, sums);
    });
    all_.give_forces(force);
  }

 private:
  void begin(const double* position, const i32* boxes, const double* velocity) {
    std::copy_n(position, 3 * n(), position_.data());
    std::copy_n(boxes, 3 * n(), boxes_.data());
    std::copy_n(velocity, 3 * n(), velocity_.data());
    all_.take(position_.data(), boxes_.data(), velocity_.data());
  }

  // New lists for particles that were taken.
  void relist(const Team& team) {
    for (int s = team.index; s < all_.slabs(); s += team.size) all_.list(s);
    team.barrier();
    if (team.index == 0) all_.note_touched();
    team.barrier();
  }

  template <bool Sums>
  void forces(const Team& team) {
    for (int s = team.index; s < all_.slabs(); s += team.size)
      slab_forces<Sums>(pair_, all_, all_.slab(s), partial_.data() + s * columns);
    team.barrier();
  }

  // The first kick and the move of a step; returns how far^2 a particle has gone.
  double move(Team::Range range, const Plan& plan, i64 step) {
    kick(range, plan.half_kick);
    if (plan.noise == 0 && plan.keep == 1) {
      drift(range, plan.dt);
    } else {
      drift(range, plan.dt / 2);
      thermalise(range, plan, step);
      drift(range, plan.dt / 2);
    }
    return all_.farthest2(range);
  }
  void kick(Team::Range range, double factor) {
    double* v = all_.v.data();
    const double* f = all_.f.data();
    for (i64 i = range.begin * cluster_reals; i < range.end * cluster_reals; ++i) v[i] = mul_add(factor, f[i], v[i]);
  }
  void drift(Team::Range range, double dt) {
    double* x = all_.x.data();
    const double* v = all_.v.data();
    for (i64 i = range.begin * cluster_reals; i < range.end * cluster_reals; ++i) x[i] = mul_add(dt, v[i], x[i]);
  }
  void thermalise(Team::Range range, const Plan& plan, i64 step) {
    ChainAddress chain = plan.chain;
    chain.step += static_cast<u64>(step);
    for (i64 place = range.begin * cluster_size; place < range.end * cluster_size; ++place) {
      const u32 who = all_.id[static_cast<std::size_t>(place)];
      if (who == Clusters<Real>::nobody) continue;
      const Pair<double> first = normals<double>(chain, &who, langevin_draws);
      const Pair<double> second = normals<double>(chain, &who, langevin_draws + 1);
      double* v = all_.v.data() + place / cluster_size * cluster_reals + place % cluster_size;
      const double xi[3] = {first.first, first.second, second.first};
      for (int k = 0; k < 3; ++k) v[k * cluster_size] = thermal_kick(v[k * cluster_size], plan.keep, plan.noise, xi[k]);
    }
  }

  // A row of sums over pairs and particles, after forces<true>.
  void sample(const Team& team, double* row) {
    team.barrier();  // velocities of all
    for (int s = team.index; s < all_.slabs(); s += team.size)
      add_particles(all_, {all_.slab(s).begin, all_.slab(s).end}, partial_.data() + s * columns + pair_sums);
    team.barrier();
    if (team.index == 0)
      for (int k = 0; k < columns; ++k) {
        row[k] = 0;
        for (int s = 0; s < all_.slabs(); ++s) row[k] += partial_[static_cast<std::size_t>(s * columns + k)];
      }
    team.barrier();
  }

  Clusters<Real> all_;
  Yukawa<Real> pair_;
  double skin_;
  std::vector<double> position_, velocity_;  // for new lists
  std::vector<i32> boxes_;
  std::vector<double> partial_;  // rows of sums, one a slab
};

double number(double value, const char* argument, double most) {
  if (!(value > 0 && value <= most))
    throw nb::value_error((std::string("`") + argument + "` must be a number > 0 and <= " + std::to_string(most) +
                           ". Got " + std::to_string(value))
                              .c_str());
  return value;
}

template <class Real>
std::unique_ptr<Plasma<Real>> make(nb::handle n_object, double length, double kappa, double cutoff, double skin) {
  const i64 n = static_cast<i64>(unsigned_argument(n_object, "n", 1ull << 26));
  if (n < 1) throw nb::value_error("`n` must be at least 1. Got 0");
  number(length, "length", 1e5);
  number(kappa, "kappa", 100);
  number(cutoff, "cutoff", length / 2);
  number(skin, "skin", length / 4);
  return std::make_unique<Plasma<Real>>(n, length, kappa, cutoff, skin);
}

// Positions that can be wrapped: finite, and not so far that the number of boxes would not be one.
void require_near(const Out<double>& position, double length) {
  require_finite(position.data(), position.size(), "positions");
  for (i64 i = 0; i < position.size(); ++i)
    if (std::abs(position.data()[i]) > 1e6 * length)
      throw nb::value_error("`positions` must lie within a million boxes of the box");
}

template <class Real>
void bind(nb::module_& m, const char* suffix) {
  using nb::literals::operator""_a;
  using P = Plasma<Real>;
  const auto name = [suffix](const char* base) { return std::string(base) + suffix; };
  nb::class_<P>(m, name("Plasma").c_str()).def_prop_ro("n", &P::n).def_prop_ro("listed", &P::listed);
  m.def(name("plasma").c_str(), &make<Real>, "n"_a.none(), "length"_a, "kappa"_a, "cutoff"_a, "skin"_a);
  m.def(
      name("plasma_advance").c_str(),
      [](P& plasma, double length, nb::handle positions, nb::handle boxes, nb::handle velocities, nb::handle steps,
         double dt, double mass, double keep, double noise, nb::handle seed, nb::handle stream, nb::handle step,
         nb::handle samples, nb::handle frames, nb::handle frame_velocities, nb::handle threads_object) {
        constexpr u64 word = 0xffffffffull;
        const Out<double> x(positions, "positions", {plasma.n(), 3});
        const Out<i32> b(boxes, "boxes", {plasma.n(), 3});
        const Out<double> v(velocities, "velocities", {plasma.n(), 3});
        require_near(x, length);
        require_finite(v.data(), v.size(), "velocities");
        const i64 count = static_cast<i64>(unsigned_argument(steps, "steps", word));
        number(dt, "dt", 10);
        number(mass, "mass", 1e6);
        if (!(keep >= 0 && keep <= 1 && noise >= 0 && noise < 1e6))
          throw nb::value_error("`keep` must be in [0, 1] and `noise` >= 0");
        Plan plan{count,
                  0,
                  0,
                  dt,
                  dt / mass / 2,
                  keep,
                  noise,
                  {PhiloxKeys(unsigned_argument(seed, "seed", ~0ull)), unsigned_argument(stream, "stream", word),
                   unsigned_argument(step, "step", word)}};
        std::unique_ptr<Out<double>> rows, where, moving;
        const auto spacing = [&](i64 n, const char* what) {
          if (count % n != 0)
            throw nb::value_error((std::string("`steps` must be a multiple of the rows of `") + what + "`").c_str());
          return count / n;
        };
        if (!samples.is_none()) {
          rows = std::make_unique<Out<double>>(samples, "samples", Shape{any, columns});
          plan.sample_every = spacing(rows->extent(0), "samples");
        }
        if (!frames.is_none()) {
          where = std::make_unique<Out<double>>(frames, "frames", Shape{any, plasma.n(), 3});
          moving = std::make_unique<Out<double>>(frame_velocities, "frame_velocities",
                                                 Shape{where->extent(0), plasma.n(), 3});
          plan.frame_every = spacing(where->extent(0), "frames");
        }
        const Output out{rows ? rows->data() : nullptr, where ? where->data() : nullptr,
                         moving ? moving->data() : nullptr};
        const int threads = thread_argument(threads_object);
        nb::gil_scoped_release release;
        return plasma.advance(x.data(), b.data(), v.data(), plan, out, threads);
      },
      "plasma"_a, "length"_a, "positions"_a.none(), "boxes"_a.none(), "velocities"_a.none(), "steps"_a.none(), "dt"_a,
      "mass"_a, "keep"_a, "noise"_a, "seed"_a.none(), "stream"_a.none(), "step"_a.none(), "samples"_a.none(),
      "frames"_a.none(), "frame_velocities"_a.none(), "threads"_a.none());
  m.def(
      name("plasma_measure").c_str(),
      [](P& plasma, double length, nb::handle positions, nb::handle velocities, nb::handle forces, nb::handle sums,
         nb::handle threads_object) {
        const Out<double> x(positions, "positions", {plasma.n(), 3});
        const In<double> v(velocities, "velocities", {plasma.n(), 3});
        const Out<double> f(forces, "forces", {plasma.n(), 3});
        const Out<double> row(sums, "sums", {columns});
        require_near(x, length);
        require_finite(v.data(), v.size(), "velocities");
        const int threads = thread_argument(threads_object);
        const std::vector<i32> boxes(static_cast<std::size_t>(3 * plasma.n()));
        nb::gil_scoped_release release;
        plasma.measure(x.data(), boxes.data(), v.data(), f.data(), row.data(), threads);
      },
      "plasma"_a, "length"_a, "positions"_a.none(), "velocities"_a.none(), "forces"_a.none(), "sums"_a.none(),
      "threads"_a.none());
}

}  // namespace

void bind_plasma(nb::module_& m) {
  bind<double>(m, "_f64");
  bind<float>(m, "_f32");
}

}  // namespace mf::bindings
