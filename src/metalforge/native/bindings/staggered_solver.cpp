// Conjugate gradients on (D^dagger D + shift) x = b for one or several shifts at once.
//
// One iteration is three passes over the lattice, with the vector operations inside them:
//   1. y = H p, sum |y|^2                      so that p^dagger A p = d |p|^2 + |y|^2, d = m^2 + smallest shift
//   2. r <- r - alpha (d p - H y), sum |r|^2
//   3. x <- x + alpha p, p <- r + beta p, sum |p|^2, for every shift
// The threads stay together over all iterations of a call and every one computes the scalars for itself from the same
// ordered sums: bits do not depend on their number, nor on how many iterations a call makes.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>

#include <tuple>

#include "recurrence.hpp"
#include "staggered_operator.hpp"

namespace mf::bindings {
namespace {

// What one solve needs besides its solutions.
template <class Real>
struct ConjugateGradient {
  i64 vectors, numbers;
  int shifts;
  AlignedArray<Real> residual, middle, directions;
  std::vector<double> residual_sums, direction_sums, middle_sums;
  Recurrence state{};

  ConjugateGradient(const StaggeredOperator<Real>& op, int shifts_wanted)
      : vectors(op.vectors),
        numbers(op.colour_numbers()),
        shifts(shifts_wanted),
        residual(numbers),
        middle(numbers),
        directions(numbers * shifts_wanted),
        residual_sums(static_cast<std::size_t>(blocks_of(vectors))),
        direction_sums(residual_sums.size()),
        middle_sums(residual_sums.size()) {}

  void require_fits(const StaggeredOperator<Real>& op) const {
    if (vectors != op.vectors || numbers != op.colour_numbers())
      throw nb::value_error("`solver` must be made for the lattice of `operator`");
  }
};

template <class Real>
std::unique_ptr<ConjugateGradient<Real>> make_solver(const StaggeredOperator<Real>& op, nb::handle shifts_object) {
  const u64 shifts = unsigned_argument(shifts_object, "shifts", max_shifts);
  if (shifts == 0) throw nb::value_error("`shifts` must be at least 1. Got 0");
  return std::make_unique<ConjugateGradient<Real>>(op, static_cast<int>(shifts));
}

// Starts from a residual: r = p_k = residual. With `keep` the search goes on: p <- p + (residual - r), which puts the
// true residual in the place of the one that the recurrence drifted to. Returns |r|^2.
template <class Real>
double begin(const StaggeredOperator<Real>& op, ConjugateGradient<Real>& cg, nb::handle residual_object, bool keep,
             nb::handle threads_object) {
  cg.require_fits(op);
  const In<Real> residual(residual_object, "residual", op.colours());
  const int threads = useful_threads(op.layout, threads_object, share_of_pass);
  if (keep && cg.shifts != 1) throw nb::value_error("`keep` must be False for a solver of several shifts");
  nb::gil_scoped_release release;
  with_lanes(op.layout, [&](auto tag) {
    using V = decltype(tag);
    const Colours<V> from{const_cast<Real*>(residual.data())}, r{cg.residual.data()};
    const V minus(static_cast<Real>(-1)), one(static_cast<Real>(1));
    run_team(threads, [&](const Team& team) {
      sum_blocks(team, cg.vectors, cg.residual_sums.data(), [&](i64 first, i64 last) {
        LaneSum<V> residual2, direction2;
        for (i64 i = first; i < last; ++i) {
          const ColourVector<V> z = from.load(i);
          ColourVector<V> p = z;
          if (keep) p = mul_add(one, Colours<V>{cg.directions.data()}.load(i), mul_add(minus, r.load(i), z));
          r.store(z, i);
          for (int k = 0; k < cg.shifts; ++k) Colours<V>{cg.directions.data() + k * cg.numbers}.store(p, i);
          residual2.add(real_dot(z, z));
          direction2.add(real_dot(p, p));
        }
        cg.direction_sums[static_cast<std::size_t>(first / block_vectors)] = direction2.value();
        return residual2.value();
      });
    });
    return 0;
  });
  const i64 blocks = blocks_of(cg.vectors);
  cg.state.begin(join_blocks(cg.residual_sums.data(), blocks), join_blocks(cg.direction_sums.data(), blocks));
  return cg.state.residual2;
}

// Up to `iterations` iterations, fewer when |r|^2 <= target2. Returns (iterations done, |r|^2, status, updates of
// solutions); the status is `broken` when a sum is not finite or p^dagger A p not positive.
template <class Real>
std::tuple<i64, double, int, i64> iterate(const StaggeredOperator<Real>& op, ConjugateGradient<Real>& cg,
                                          nb::handle solutions_object, nb::handle shifts_object, double diagonal,
                                          double target2, nb::handle iterations_object, nb::handle parity_object,
                                          nb::handle threads_object) {
  cg.require_fits(op);
  const Buffers<Out<Real>> solutions(solutions_object, "solutions", op.colours(), max_shifts);
  const In<double> shifts(shifts_object, "shifts", {cg.shifts});
  require_finite(shifts.data(), shifts.size(), "shifts");
  require_finite(&diagonal, 1, "diagonal");
  require_finite(&target2, 1, "target2");
  if (solutions.size() != static_cast<std::size_t>(cg.shifts))
    throw nb::value_error("`solutions` must hold one array a shift of `solver`");
  if (shifts.data()[0] != 0) throw nb::value_error("`shifts` must begin with 0: they count from the first");
  const i64 iterations = static_cast<i64>(unsigned_argument(iterations_object, "iterations", 1ull << 31));
  const int parity = parity_argument(parity_object), threads = useful_threads(op.layout, threads_object, share_of_team);

  i64 done = 0, updates = 0;
  SolveState status = running;
  Recurrence last = cg.state;
  nb::gil_scoped_release release;
  with_hopping(op, threads, [&]<class V, class Reach>(V, Reach) {
    const auto real = [](double x) { return V(static_cast<Real>(x)); };
    const Hopping<Reach, V> away(op, 1 - parity), back(op, parity);
    const Colours<V> r{cg.residual.data()}, y{cg.middle.data()}, p{cg.directions.data()};
    const i64 blocks = blocks_of(op.vectors);
    run_team(threads, [&](const Team& team) {
      Recurrence s = cg.state;
      i64 n = 0, updated = 0;
      SolveState now = s.residual2 <= target2 ? converged : running;
      while (n < iterations && now == running) {
        sum_blocks(team, op.vectors, cg.middle_sums.data(), [&](i64 begin, i64 end) {
          LaneSum<V> sum;
          for (i64 i = begin; i < end; ++i) {
            const ColourVector<V> z = away(p, i);
            y.store(z, i);
            sum.add(real_dot(z, z));
          }
          return sum.value();
        });
        team.barrier();
        const double alpha = s.step(diagonal, join_blocks(cg.middle_sums.data(), blocks));
        if (!is_finite(alpha)) {
          now = broken;
          break;
        }
        const V d = real(diagonal), step = real(alpha);
        sum_blocks(team, op.vectors, cg.residual_sums.data(), [&](i64 begin, i64 end) {
          LaneSum<V> sum;
          for (i64 i = begin; i < end; ++i) {
            const ColourVector<V> hop_y = back(y, i);  // before p and r take registers
            const ColourVector<V> z = cg_residual(step, d, p.load(i), hop_y, r.load(i));
            r.store(z, i);
            sum.add(real_dot(z, z));
          }
          return sum.value();
        });
        team.barrier();
        const double residual2 = join_blocks(cg.residual_sums.data(), blocks);
        const double beta = residual2 / s.residual2;
        V x_step[max_shifts], r_factor[max_shifts], p_factor[max_shifts];
        for (int k = 0; k < cg.shifts; ++k) {
          if (!s.active[k]) continue;
          ++updated;
          const ShiftStep step_k = s.shift_step(k, shifts.data()[k], alpha, beta);
          x_step[k] = real(step_k.x_step);
          r_factor[k] = real(step_k.r_factor);
          p_factor[k] = real(step_k.p_factor);
        }
        sum_blocks(team, op.vectors, cg.direction_sums.data(), [&](i64 begin, i64 end) {
          LaneSum<V> sum;
          for (int k = 0; k < cg.shifts; ++k) {
            if (!s.active[k]) continue;
            const Colours<V> x{solutions[static_cast<std::size_t>(k)]}, q{cg.directions.data() + k * cg.numbers};
            for (i64 i = begin; i < end; ++i) {
              const ColourVector<V> old = q.load(i);
              x.store(mul_add(x_step[k], old, x.load(i)), i);
              const ColourVector<V> z = cg_direction(p_factor[k], old, r_factor[k], r.load(i));
              q.store(z, i);
              if (k == 0) sum.add(real_dot(z, z));
            }
          }
          return sum.value();
        });
        team.barrier();
        const double direction2 = join_blocks(cg.direction_sums.data(), blocks);
        now = s.finish(alpha, beta, residual2, direction2, target2, cg.shifts);
        ++n;
      }
      if (team.index == 0) {
        last = s;
        done = n;
        updates = updated;
        status = now;
      }
    });
  });
  cg.state = last;
  return {done, last.residual2, status, updates};
}

template <class Real>
void bind(nb::module_& m, const char* suffix) {
  using nb::literals::operator""_a;
  using Cg = ConjugateGradient<Real>;
  const auto name = [suffix](const char* base) { return std::string(base) + suffix; };
  nb::class_<Cg>(m, name("ConjugateGradient").c_str()).def_prop_ro("shifts", [](const Cg& cg) { return cg.shifts; });
  m.def(name("cg").c_str(), &make_solver<Real>, "operator"_a, "shifts"_a.none());
  m.def(name("cg_begin").c_str(), &begin<Real>, "operator"_a, "solver"_a, "residual"_a.none(), "keep"_a,
        "threads"_a.none());
  m.def(name("cg_iterate").c_str(), &iterate<Real>, "operator"_a, "solver"_a, "solutions"_a.none(), "shifts"_a.none(),
        "diagonal"_a, "target2"_a, "iterations"_a.none(), "parity"_a.none(), "threads"_a.none());
}

}  // namespace

void bind_staggered_solver(nb::module_& m) {
  bind<double>(m, "_f64");
  bind<float>(m, "_f32");
}

}  // namespace mf::bindings
