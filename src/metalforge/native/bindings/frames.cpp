// What frames of particles say: how far they have gone since earlier ones, and the modes of their density. The same
// bits on every build level, since cards leave this to whatever host they have.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "arguments.hpp"
#include "elementary.hpp"
#include "reduce.hpp"

namespace mf::bindings {
namespace {

using Wide = Simd<double, reduce_lanes>;

// Sums over n coordinates of (a - b)^2, and of a b.
double square_apart(const double* a, const double* b, i64 n) {
  const auto term = [a, b](i64 i) { return (a[i] - b[i]) * (a[i] - b[i]); };
  const auto wide = [a, b](i64 i) {
    const Wide apart = Wide::load(a + i) - Wide::load(b + i);
    return apart * apart;
  };
  return block_sum(0, n, wide, term);
}

double product(const double* a, const double* b, i64 n) {
  return block_sum(
      0, n, [a, b](i64 i) { return Wide::load(a + i) * Wide::load(b + i); }, [a, b](i64 i) { return a[i] * b[i]; });
}

// Holds frames against origins, earlier ones of which one in `spacing` is kept; the oldest makes room.
void correlate(nb::handle origins_object, nb::handle sums_object, nb::handle counts_object, nb::handle positions_object,
               nb::handle velocities_object, nb::handle first_object, nb::handle spacing_object) {
  const In<double> positions(positions_object, "positions", {any, any, 3});
  const i64 frames = positions.extent(0), n = positions.extent(1), coordinates = 3 * n;
  const In<double> velocities(velocities_object, "velocities", {frames, n, 3});
  const Out<double> origins(origins_object, "origins", {2, any, coordinates});
  const Out<double> counts(counts_object, "counts", {any});
  const i64 kept = origins.extent(1), lags = counts.extent(0);
  const Out<double> sums(sums_object, "sums", {2, lags});
  constexpr u64 most = u64{1} << 53;
  const i64 first = static_cast<i64>(unsigned_argument(first_object, "first", most));
  const i64 spacing = std::max<i64>(1, static_cast<i64>(unsigned_argument(spacing_object, "spacing", most)));
  nb::gil_scoped_release release;
  double *then = origins.data(), *before = origins.data() + kept * coordinates;
  for (i64 f = 0; f < frames; ++f) {
    const double *now = positions.data() + f * coordinates, *speed = velocities.data() + f * coordinates;
    const i64 frame = first + f, latest = frame / spacing;
    if (frame % spacing == 0) {
      std::memcpy(then + latest % kept * coordinates, now, static_cast<std::size_t>(coordinates) * sizeof(double));
      std::memcpy(before + latest % kept * coordinates, speed, static_cast<std::size_t>(coordinates) * sizeof(double));
    }
    for (i64 origin = std::max<i64>(0, latest - kept + 1); origin <= latest; ++origin) {
      const i64 lag = frame - origin * spacing, at = origin % kept * coordinates;
      if (lag >= lags) continue;
      sums.data()[lag] += square_apart(then + at, now, coordinates);
      sums.data()[lags + lag] += product(before + at, speed, coordinates);
      counts.data()[lag] += static_cast<double>(n);
    }
  }
}

// exp(2 pi i m x / L) of every particle along each axis, m = 0 .. side, real parts and imaginary parts in rows that
// end with zeros: whoever sums over whole vectors adds nothing there.
class Phases {
 public:
  Phases(i64 n, i64 side) : n_(n), row_((n + reduce_lanes - 1) / reduce_lanes * reduce_lanes), rows_(side + 1) {
    values_.resize(static_cast<std::size_t>(3 * rows_ * 2 * row_));
  }

  void fill(const double* positions, double length) {
    for (i64 axis = 0; axis < 3; ++axis) {
      for (i64 i = 0; i < n_; ++i) {
        const double u = positions[3 * i + axis] / length, turn = u - std::floor(u);
        const auto one = sincos_2pi(turn < 1 ? turn : 0.0);  // a hair below a border is rounded onto it
        real(axis, 0)[i] = 1;
        imaginary(axis, 0)[i] = 0;
        if (rows_ > 1) {
          real(axis, 1)[i] = std::isfinite(turn) ? one.cos : turn;  // a particle that is nowhere is seen in all modes
          imaginary(axis, 1)[i] = one.sin;
        }
      }
      for (i64 m = 2; m < rows_; ++m)
        for (i64 i = 0; i < row_; i += reduce_lanes) {
          const Wide a = Wide::load(real(axis, m - 1) + i), b = Wide::load(imaginary(axis, m - 1) + i);
          const Wide c = Wide::load(real(axis, 1) + i), s = Wide::load(imaginary(axis, 1) + i);
          (a * c - b * s).store(real(axis, m) + i);
          (a * s + b * c).store(imaginary(axis, m) + i);
        }
    }
  }

  // |sum over particles of exp(2 pi i k r / L)|^2 for integers k.
  double power(const i32* k) {
    const double *x = real(0, std::abs(k[0])), *y = real(1, std::abs(k[1])), *z = real(2, std::abs(k[2]));
    const Wide sx(k[0] < 0 ? -1.0 : 1.0), sy(k[1] < 0 ? -1.0 : 1.0), sz(k[2] < 0 ? -1.0 : 1.0);
    Wide re(0.0), im(0.0);
    for (i64 i = 0; i < row_; i += reduce_lanes) {
      const Wide a = Wide::load(x + i), b = sx * Wide::load(x + row_ + i);
      const Wide c = Wide::load(y + i), d = sy * Wide::load(y + row_ + i);
      const Wide e = Wide::load(z + i), f = sz * Wide::load(z + row_ + i);
      const Wide p = a * c - b * d, q = a * d + b * c;
      re += p * e - q * f;
      im += p * f + q * e;
    }
    const double r = horizontal_sum(re), i = horizontal_sum(im);
    return r * r + i * i;
  }

 private:
  double* real(i64 axis, i64 m) { return values_.data() + (axis * rows_ + m) * 2 * row_; }
  double* imaginary(i64 axis, i64 m) { return real(axis, m) + row_; }

  i64 n_, row_, rows_;
  std::vector<double> values_;
};

void density_powers(nb::handle positions_object, double length, nb::handle waves_object, nb::handle powers_object) {
  const In<double> positions(positions_object, "positions", {any, any, 3});
  const i64 frames = positions.extent(0), n = positions.extent(1);
  const In<i32> waves(waves_object, "waves", {any, 3});
  const Out<double> powers(powers_object, "powers", {frames, waves.extent(0)});
  if (!(length > 0 && std::isfinite(length))) throw nb::value_error("`length` must be a number > 0");
  nb::gil_scoped_release release;
  i32 side = 0;
  for (i64 i = 0; i < waves.size(); ++i) side = std::max(side, std::abs(waves.data()[i]));
  Phases phases(n, side);
  for (i64 f = 0; f < frames; ++f) {
    phases.fill(positions.data() + 3 * n * f, length);
    for (i64 w = 0; w < waves.extent(0); ++w)
      powers.data()[f * waves.extent(0) + w] = phases.power(waves.data() + 3 * w) / static_cast<double>(n);
  }
}

}  // namespace

void bind_frames(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("correlate", &correlate, "origins"_a.none(), "sums"_a.none(), "counts"_a.none(), "positions"_a.none(),
        "velocities"_a.none(), "first"_a.none(), "spacing"_a.none());
  m.def("density_powers", &density_powers, "positions"_a.none(), "length"_a, "waves"_a.none(), "powers"_a.none());
}

}  // namespace mf::bindings
