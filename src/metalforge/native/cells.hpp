// A periodic box of particles as clusters of four: where the particles of a cluster are, what is near, and which of two
// images of a pair is the one that counts.
//
// The box is cut into square columns along z; the particles of a column, sorted by z, are clusters of four (the last
// one is filled up with places that nobody has). A particle's neighbours are clusters: those that have a particle
// within the radius of the list. Images are clusters of their own, whose positions are shifted once a step, so that no
// distance is ever rounded to the nearest image.
//
// A pair of particles with an image vector s (in boxes) is also a pair with -s. It counts where s is positive; without
// an image, where the second particle stands later than the first.
#pragma once

#include "simd.hpp"

namespace mf {

inline constexpr int cluster_size = 4;

// Where places are that nobody has: far from every particle, and its square is finite in float.
inline constexpr double nowhere = 1e8;

// The coordinate within [0, length), and how many boxes it was away; x is finite and at most 2^30 boxes away.
struct Wrapped {
  double inside;
  i32 boxes;
};
MF_INLINE Wrapped wrapped(double x, double length) {
  i32 boxes = static_cast<i32>(x / length);
  if (x < boxes * length) --boxes;
  double inside = x - boxes * length;
  if (inside < 0) inside = 0;  // rounding, at a border
  if (inside >= length) {
    inside -= length;
    ++boxes;
  }
  return {inside, boxes};
}

// An image of the box, of the 27 around it and itself.
struct Image {
  int x, y, z;
  MF_INLINE int index() const { return (z + 1) * 9 + (y + 1) * 3 + x + 1; }
  // The first of those that count: the index of the box itself is 13, and that of -s is 26 - index(s).
  MF_INLINE bool positive() const { return index() > 13; }
  MF_INLINE bool itself() const { return index() == 13; }
};

// The smallest box around the particles of a cluster.
struct Bounds {
  double low[3], high[3];

  static MF_INLINE Bounds empty() { return {{1e300, 1e300, 1e300}, {-1e300, -1e300, -1e300}}; }
  MF_INLINE void take(const double (&point)[3]) {
    for (int k = 0; k < 3; ++k) {
      low[k] = point[k] < low[k] ? point[k] : low[k];
      high[k] = point[k] > high[k] ? point[k] : high[k];
    }
  }
  // The distance^2 to another one that is moved by `shift`.
  MF_INLINE double distance2(const Bounds& other, const double (&shift)[3]) const {
    double sum = 0;
    for (int k = 0; k < 3; ++k) {
      const double above = other.low[k] + shift[k] - high[k], below = low[k] - other.high[k] - shift[k];
      const double gap = above > below ? above : below;
      if (gap > 0) sum += gap * gap;
    }
    return sum;
  }
};

// The distance^2 of two points, one a lane.
template <class R>
MF_INLINE R squared(R dx, R dy, R dz) {
  return mul_add(dz, dz, mul_add(dy, dy, dx * dx));
}

}  // namespace mf
