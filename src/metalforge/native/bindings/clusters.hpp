// The particles of a periodic box in clusters of four, and the neighbours of each particle as a list of clusters.
//
// Reals of a cluster lie as [xyz][4]. Clusters are numbered: those of the box, their images, and one at the end that is
// nowhere and fills lists up to whole vectors. Everything here is a function of the positions, so a run that begins
// with new lists at the borders of its blocks has the same bits wherever it was interrupted.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "cells.hpp"
#include "team.hpp"

namespace mf::bindings {

inline constexpr int cluster_reals = 3 * cluster_size;

// Particles are shared out into parts, which add up forces of their own, as many as `n` asks for whatever the number of
// threads. Each touches what is around it too, so that many parts of a small box would mean more adding up than forces.
inline constexpr i64 most_slabs = 16, particles_of_a_slab = 256;

template <class Real>
struct Slab {
  i64 begin = 0, end = 0;            // its clusters
  std::vector<u32> neighbour;        // where the reals of neighbouring clusters begin
  std::vector<u32> list;             // where the list of each of its places begins; one more at the end
  std::vector<u32> wide, wide_list;  // the same within the larger radius, from which the lists are taken
  std::vector<u32> touched;          // the clusters that its forces are on
  AlignedArray<Real> force;          // of all clusters
  i64 room = 0;                      // clusters that `force` is for
};

template <class Real>
class Clusters {
 public:
  static constexpr int group = sizeof(Real) == 8 ? 2 : 4;  // clusters that are worked on at once
  static constexpr u32 nobody = 0xffffffffu;

  // Particles are looked for within `radius`; lists are of those within `near` of a particle.
  Clusters(i64 n, double length, double radius, double near) : n_(n), length_(length), radius_(radius), near_(near) {
    const double side = std::cbrt(cluster_size * length * length * length / static_cast<double>(n));
    columns_ = std::max<i64>(1, static_cast<i64>(length / side + 0.5));
    width_ = length / static_cast<double>(columns_);
    const i64 most = n / cluster_size + columns_ * columns_ + 1;
    for (auto* field : {&x, &v, &f, &ref_, &near_ref_}) *field = AlignedArray<double>(most * cluster_reals);
    id.resize(static_cast<std::size_t>(most * cluster_size));
    boxes_.resize(static_cast<std::size_t>(most * cluster_reals));
    column_of_.resize(static_cast<std::size_t>(n));
    order_.resize(static_cast<std::size_t>(n));
    slabs_.resize(static_cast<std::size_t>(std::clamp<i64>(n / particles_of_a_slab, 1, most_slabs)));
  }

  i64 n() const { return n_; }
  i64 count() const { return count_; }  // of the box
  double length() const { return length_; }
  u32 spare() const { return static_cast<u32>(count_ + images()); }  // the cluster that is nowhere
  const Real* positions() const { return positions_.data(); }

  AlignedArray<double> x, v, f;
  std::vector<u32> id;  // the particle of each place
  int slabs() const { return static_cast<int>(slabs_.size()); }
  const Slab<Real>& slab(i64 number) const { return slabs_[static_cast<std::size_t>(number)]; }

  // Takes particles up from arrays [n][3], wraps them and sorts them into clusters.
  void take(double* position, i32* boxes, const double* velocity) {
    sort(position, boxes);
    i64 next = 0;
    column_begin_.assign(static_cast<std::size_t>(columns_ * columns_ + 1), 0);
    for (i64 column = 0, cluster = 0; column < columns_ * columns_; ++column) {
      column_begin_[static_cast<std::size_t>(column)] = static_cast<u32>(cluster);
      i64 last = next;
      while (last < n_ && column_of_[order_[static_cast<std::size_t>(last)]] == static_cast<u32>(column)) ++last;
      for (; next < last; ++cluster)
        for (int lane = 0; lane < cluster_size; ++lane) {
          const bool there = next < last;
          const u32 who = there ? order_[static_cast<std::size_t>(next++)] : nobody;
          id[static_cast<std::size_t>(cluster * cluster_size + lane)] = who;
          for (int k = 0; k < 3; ++k) {
            const i64 at = cluster * cluster_reals + k * cluster_size + lane;
            x.data()[at] = there ? position[3 * i64{who} + k] : nowhere;
            v.data()[at] = there ? velocity[3 * i64{who} + k] : 0;
            f.data()[at] = 0;
            boxes_[static_cast<std::size_t>(at)] = there ? boxes[3 * i64{who} + k] : 0;
          }
        }
      count_ = cluster;
    }
    column_begin_.back() = static_cast<u32>(count_);
    std::copy(x.data(), x.data() + count_ * cluster_reals, ref_.data());
    note_places({0, count_});
    find_bounds();
    find_images();
    positions_ = AlignedArray<Real>(i64{spare() + 1} * cluster_reals);
    std::fill(positions_.data() + i64{spare()} * cluster_reals, positions_.data() + i64{spare() + 1} * cluster_reals,
              static_cast<Real>(nowhere));
    publish({0, count_});
    for (i64 s = 0; s < slabs(); ++s) {
      Slab<Real>& part = slabs_[static_cast<std::size_t>(s)];
      part.begin = count_ * s / slabs();
      part.end = count_ * (s + 1) / slabs();
    }
  }

  // Gives the particles of some clusters back, as arrays [n][3].
  void give(Team::Range range, double* position, i32* boxes, double* velocity) const {
    each(range, [&](i64 who, int k, i64 at) {
      position[3 * who + k] = x.data()[at];
      boxes[3 * who + k] = boxes_[static_cast<std::size_t>(at)];
      velocity[3 * who + k] = v.data()[at];
    });
  }
  // The same without the box: positions as if it had no borders.
  void give_unwrapped(Team::Range range, double* position, double* velocity) const {
    each(range, [&](i64 who, int k, i64 at) {
      position[3 * who + k] = x.data()[at] + length_ * boxes_[static_cast<std::size_t>(at)];
      velocity[3 * who + k] = v.data()[at];
    });
  }
  void give_forces(double* force) const {
    each({0, count_}, [&](i64 who, int k, i64 at) { force[3 * who + k] = f.data()[at]; });
  }

  // The positions of some clusters and of their images, as the forces want them.
  void publish(Team::Range range) {
    for (i64 c = range.begin; c < range.end; ++c) {
      const double* from = x.data() + c * cluster_reals;
      Real* to = positions_.data() + c * cluster_reals;
      for (int i = 0; i < cluster_reals; ++i) to[i] = static_cast<Real>(from[i]);
      for (u32 g = image_begin_[static_cast<std::size_t>(c)]; g < image_begin_[static_cast<std::size_t>(c + 1)]; ++g) {
        Real* shifted = positions_.data() + (count_ + g) * cluster_reals;
        for (int k = 0; k < 3; ++k)
          for (int lane = 0; lane < cluster_size; ++lane) {
            const int i = k * cluster_size + lane;
            shifted[i] = static_cast<Real>(from[i] + image_shift_[3 * g + static_cast<u32>(k)]);
          }
      }
    }
  }

  // What is around the places of one slab, and the lists of that.
  void list(int number) {
    Slab<Real>& s = slabs_[static_cast<std::size_t>(number)];
    s.wide.clear();
    s.wide_list.clear();
    for (i64 c = s.begin; c < s.end; ++c) {
      find_candidates(c, s.touched);
      for (int lane = 0; lane < cluster_size; ++lane) {
        s.wide_list.push_back(static_cast<u32>(s.wide.size()));
        keep_near(c, lane, s.touched.data(), s.touched.data() + s.touched.size(), radius_, s.wide);
      }
    }
    s.wide_list.push_back(static_cast<u32>(s.wide.size()));
    prune(number);
    if (s.room <= spare()) {
      s.room = i64{spare()} + 1 + spare() / 8;
      s.force = AlignedArray<Real>(s.room * cluster_reals);
    }
  }

  // The lists of one slab, of what is around its places; filled up to whole groups.
  void prune(int number) {
    Slab<Real>& s = slabs_[static_cast<std::size_t>(number)];
    s.neighbour.clear();
    s.list.clear();
    const u32* from = s.wide_list.data();
    for (i64 c = s.begin; c < s.end; ++c)
      for (int lane = 0; lane < cluster_size; ++lane, ++from) {
        s.list.push_back(static_cast<u32>(s.neighbour.size()));
        keep_near(c, lane, s.wide.data() + from[0], s.wide.data() + from[1], near_, s.neighbour);
        while (s.neighbour.size() % group != 0) s.neighbour.push_back(spare() * cluster_reals);
      }
    s.list.push_back(static_cast<u32>(s.neighbour.size()));
  }

  // Where particles are when lists are taken: how far they go is counted from here.
  void note_places(Team::Range range) {
    std::copy(x.data() + range.begin * cluster_reals, x.data() + range.end * cluster_reals,
              near_ref_.data() + range.begin * cluster_reals);
  }

  // Which clusters the forces of each slab are on, after all have been listed.
  void note_touched() {
    touching_.assign(spare() + 1, 0);
    for (int number = 0; number < slabs(); ++number) {
      Slab<Real>& s = slabs_[static_cast<std::size_t>(number)];
      const u32 bit = u32{1} << number;
      for (u32 at : s.wide) touching_[at / cluster_reals] |= bit;
      for (i64 c = s.begin; c < s.end; ++c) touching_[static_cast<std::size_t>(c)] |= bit;
      touching_[spare()] |= bit;
      s.touched.clear();
      for (u32 c = 0; c <= spare(); ++c)
        if (touching_[c] & bit) s.touched.push_back(c);
    }
  }

  // The forces on the particles of some clusters: those of all slabs, on them and on their images, in a fixed order.
  void add_up(Team::Range range) {
    for (i64 c = range.begin; c < range.end; ++c) {
      double sum[cluster_reals] = {};
      add_slabs(c, sum);
      for (u32 g = image_begin_[static_cast<std::size_t>(c)]; g < image_begin_[static_cast<std::size_t>(c + 1)]; ++g)
        add_slabs(count_ + g, sum);
      std::copy(sum, sum + cluster_reals, f.data() + c * cluster_reals);
    }
  }

  // The largest distance^2 that a particle of some clusters has gone since lists were taken, and since it was looked
  // what is around; infinite where one is no number.
  double farthest2(Team::Range range) const { return farthest2(range, near_ref_.data()); }
  double farthest2_of_all(Team::Range range) const { return farthest2(range, ref_.data()); }

 private:
  double farthest2(Team::Range range, const double* since) const {
    using V = Simd<double, cluster_size>;
    V most(0.0);
    bool sound = true;
    for (i64 c = range.begin; c < range.end; ++c) {
      const double *now = x.data() + c * cluster_reals, *then = since + c * cluster_reals;
      const auto moved = [&](int k) { return V::load(now + k * cluster_size) - V::load(then + k * cluster_size); };
      const V d2 = squared(moved(0), moved(1), moved(2));
      sound = sound && sign_bits(d2 < V(length_ * length_)) == (1 << cluster_size) - 1;
      most = select(most < d2, d2, most);
    }
    double largest = sound ? 0 : INFINITY;
    for (int lane = 0; lane < cluster_size; ++lane) largest = std::max(largest, most[lane]);
    return largest;
  }

  i64 images() const { return image_begin_.empty() ? 0 : image_begin_.back(); }

  template <class Visit>
  void each(Team::Range range, Visit visit) const {
    for (i64 place = range.begin * cluster_size; place < range.end * cluster_size; ++place) {
      const u32 who = id[static_cast<std::size_t>(place)];
      if (who == nobody) continue;
      const i64 at = place / cluster_size * cluster_reals + place % cluster_size;
      for (int k = 0; k < 3; ++k) visit(i64{who}, k, at + k * cluster_size);
    }
  }

  void sort(double* position, i32* boxes) {
    for (i64 i = 0; i < n_; ++i) {
      for (int k = 0; k < 3; ++k) {
        const Wrapped w = wrapped(position[3 * i + k], length_);
        position[3 * i + k] = w.inside;
        boxes[3 * i + k] += w.boxes;
      }
      const auto column = [&](int k) { return std::min(columns_ - 1, static_cast<i64>(position[3 * i + k] / width_)); };
      column_of_[static_cast<std::size_t>(i)] = static_cast<u32>(column(0) * columns_ + column(1));
      order_[static_cast<std::size_t>(i)] = static_cast<u32>(i);
    }
    std::sort(order_.begin(), order_.end(), [&](u32 a, u32 b) {
      if (column_of_[a] != column_of_[b]) return column_of_[a] < column_of_[b];
      const double za = position[3 * i64{a} + 2], zb = position[3 * i64{b} + 2];
      return za != zb ? za < zb : a < b;
    });
  }

  void find_bounds() {
    bounds_.assign(static_cast<std::size_t>(count_), Bounds::empty());
    for (i64 place = 0; place < count_ * cluster_size; ++place) {
      if (id[static_cast<std::size_t>(place)] == nobody) continue;
      const double* at = x.data() + place / cluster_size * cluster_reals + place % cluster_size;
      bounds_[static_cast<std::size_t>(place / cluster_size)].take({at[0], at[cluster_size], at[2 * cluster_size]});
    }
  }

  // The images of clusters that a particle of the box can be near to.
  void find_images() {
    image_begin_.assign(1, 0);
    image_shift_.clear();
    image_of_.assign(static_cast<std::size_t>(count_) * 27, 0);
    const double reach = radius_ * (1 + 1e-9);
    for (i64 c = 0; c < count_; ++c) {
      const Bounds& b = bounds_[static_cast<std::size_t>(c)];
      for (int s = 14; s < 27; ++s) {  // the positive ones
        const double shift[3] = {(s % 3 - 1) * length_, (s / 3 % 3 - 1) * length_, (s / 9 - 1) * length_};
        bool near = true;
        for (int k = 0; k < 3; ++k)
          near = near && b.low[k] + shift[k] <= length_ + reach && b.high[k] + shift[k] >= -reach;
        if (!near) continue;
        image_of_[static_cast<std::size_t>(c * 27 + s)] =
            static_cast<u32>(count_) + static_cast<u32>(image_shift_.size() / 3);
        image_shift_.insert(image_shift_.end(), shift, shift + 3);
      }
      image_begin_.push_back(static_cast<u32>(image_shift_.size() / 3));
    }
  }

  // The clusters, and images of clusters, that some particle of a cluster can be near to: those that come after it.
  void find_candidates(i64 cluster, std::vector<u32>& found) const {
    const Bounds& here = bounds_[static_cast<std::size_t>(cluster)];
    const auto first = [&](int k) { return static_cast<i64>(std::floor((here.low[k] - radius_) / width_)); };
    const auto last = [&](int k) { return static_cast<i64>(std::floor((here.high[k] + radius_) / width_)); };
    const auto box_of = [&](i64 column) { return column < 0 ? -1 : column >= columns_ ? 1 : 0; };
    found.clear();
    for (i64 cx = std::max(first(0), -columns_); cx <= std::min(last(0), 2 * columns_ - 1); ++cx)
      for (i64 cy = std::max(first(1), -columns_); cy <= std::min(last(1), 2 * columns_ - 1); ++cy)
        for (int z = -1; z <= 1; ++z) {
          const Image image{box_of(cx), box_of(cy), z};
          if (!image.itself() && !image.positive()) continue;
          const double shift[3] = {image.x * length_, image.y * length_, image.z * length_};
          const i64 column = (cx - image.x * columns_) * columns_ + cy - image.y * columns_;
          for (u32 c = column_begin_[static_cast<std::size_t>(column)];
               c < column_begin_[static_cast<std::size_t>(column + 1)]; ++c) {
            const Bounds& there = bounds_[c];
            if (there.low[2] + shift[2] > here.high[2] + radius_) break;
            if (image.itself() && i64{c} <= cluster) continue;
            if (here.distance2(there, shift) < radius_ * radius_)
              found.push_back(cluster_reals *
                              (image.itself() ? c : image_of_[std::size_t{c} * 27 + static_cast<u32>(image.index())]));
          }
        }
  }

  // Adds those of some clusters to `found` that have a particle within `radius` of a place; none for one that is
  // nobody's.
  void keep_near(i64 cluster, int lane, const u32* at, const u32* end, double radius, std::vector<u32>& found) const {
    if (id[static_cast<std::size_t>(cluster * cluster_size + lane)] == nobody) return;
    using V = Simd<Real, cluster_size>;
    const Real* here = positions_.data() + cluster * cluster_reals + lane;
    const V px(here[0]), py(here[cluster_size]), pz(here[2 * cluster_size]);
    const V radius2(static_cast<Real>(radius * radius));
    const std::size_t begin = found.size();
    found.resize(begin + static_cast<std::size_t>(end - at));
    u32* next = found.data() + begin;
    for (; at != end; ++at) {
      const Real* there = positions_.data() + *at;
      const V d2 =
          squared(px - V::load(there), py - V::load(there + cluster_size), pz - V::load(there + 2 * cluster_size));
      *next = *at;
      next += sign_bits(d2 < radius2) != 0;
    }
    found.resize(static_cast<std::size_t>(next - found.data()));
  }

  void add_slabs(i64 cluster, double (&sum)[cluster_reals]) const {
    for (u32 bits = touching_[static_cast<std::size_t>(cluster)]; bits; bits &= bits - 1) {
      const Real* force = slab(std::countr_zero(bits)).force.data() + cluster * cluster_reals;
      for (int i = 0; i < cluster_reals; ++i) sum[i] += static_cast<double>(force[i]);
    }
  }

  std::vector<Slab<Real>> slabs_;
  i64 n_, columns_, count_ = 0;
  double length_, radius_, near_, width_;
  AlignedArray<double> ref_, near_ref_;  // positions when it was looked what is around, and when lists were taken
  AlignedArray<Real> positions_;         // of all clusters
  std::vector<i32> boxes_;               // how many boxes each coordinate is away
  std::vector<Bounds> bounds_;
  std::vector<u32> column_of_, order_, column_begin_;
  std::vector<u32> image_begin_, image_of_, touching_;
  std::vector<double> image_shift_;
};

}  // namespace mf::bindings
