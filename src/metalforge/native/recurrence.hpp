// Conjugate gradients on (A + shift) x = b for one or several shifts: the numbers between the passes over the lattice.
// Shifts beyond the first (the smallest) have residuals r_k = zeta_k r (Jegerlehner, hep-lat/9612014). With the ratio
// c_k = zeta_k(n+1) / zeta_k(n),
//   c_k(n+1) = 1 / (1 + delta_k alpha_n + (alpha_n beta_(n-1) / alpha_(n-1)) (1 - c_k(n))),
//   alpha_k = alpha c_k, beta_k = beta c_k^2,
// where delta_k is the shift's distance from the smallest. A shift whose residual is small enough is left alone.
#pragma once

#include "platform.hpp"

namespace mf {

inline constexpr int max_shifts = 64;

enum SolveState { running = 0, converged = 1, broken = 2 };

MF_INLINE bool is_finite(double x) { return x - x == 0.0; }

// What a shift does in an iteration: x <- x + x_step p, p <- r_factor r + p_factor p.
struct ShiftStep {
  double x_step, r_factor, p_factor;
};

// alpha for |r|^2, |p|^2 and |H p|^2 = middle2, so that p^dagger A p = diagonal |p|^2 + middle2; not a number where
// that is not positive.
MF_INLINE double step_length(double residual2, double direction2, double diagonal, double middle2) {
  const double curvature = diagonal * direction2 + middle2;
  const double found = residual2 / curvature;
  return curvature > 0 ? found : bit_cast<double>(u64{0x7ff8000000000000});
}
// Takes c_k and zeta_k of a shift an iteration further.
MF_INLINE ShiftStep next_shift_step(double& ratio, double& zeta, double delta, double new_alpha, double new_beta,
                                    double alpha, double beta) {
  const double c = 1 / (1 + delta * new_alpha + new_alpha * beta / alpha * (1 - ratio));
  ratio = c;
  zeta *= c;
  return {new_alpha * c, zeta, new_beta * c * c};
}
MF_INLINE bool still_active(double zeta, double residual2, double target2) { return zeta * zeta * residual2 > target2; }
MF_INLINE SolveState state_of(double residual2, double target2) {
  return !is_finite(residual2) ? broken : residual2 <= target2 ? converged : running;
}

struct Recurrence {
  double residual2, direction2;  // |r|^2, |p|^2 of the smallest shift
  double alpha, beta;            // of the iteration before
  double ratio[max_shifts], zeta[max_shifts];
  bool active[max_shifts];

  MF_INLINE void begin(double start_residual2, double start_direction2) {
    residual2 = start_residual2;
    direction2 = start_direction2;
    alpha = 1;
    beta = 0;
    for (int k = 0; k < max_shifts; ++k) {
      ratio[k] = zeta[k] = 1;
      active[k] = true;
    }
  }
  MF_INLINE double step(double diagonal, double middle2) const {
    return step_length(residual2, direction2, diagonal, middle2);
  }
  MF_INLINE ShiftStep shift_step(int k, double delta, double new_alpha, double new_beta) {
    return next_shift_step(ratio[k], zeta[k], delta, new_alpha, new_beta, alpha, beta);
  }
  // The end of an iteration.
  MF_INLINE SolveState finish(double new_alpha, double new_beta, double new_residual2, double new_direction2,
                              double target2, int shifts) {
    residual2 = new_residual2;
    direction2 = new_direction2;
    alpha = new_alpha;
    beta = new_beta;
    for (int k = 1; k < shifts; ++k) active[k] = active[k] && still_active(zeta[k], residual2, target2);
    return state_of(residual2, target2);
  }
};

}  // namespace mf
