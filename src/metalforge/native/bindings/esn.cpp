// Drivers of echo state networks: one sample or a batch, a step or a sequence.
#include "esn.hpp"

#include <nanobind/stl/unique_ptr.h>

#include <memory>

#include "esn_storage.hpp"
#include "finite.hpp"

namespace mf::bindings {
namespace {

// Samples of a batch that one thread carries through all steps together: their states stay in the second-level cache.
constexpr i64 chunk_rows = 96;
// Rows of inputs that are multiplied at once. In a sequence these are steps: the inputs are known before the states.
constexpr i64 input_rows = 24;
// Multiply-adds below which a second thread costs more than it brings.
constexpr i64 work_a_thread = 1 << 18;

// Some samples and their steps; strides between samples and between steps, in numbers.
template <class Real>
struct Job {
  const Real* u;
  i64 u_sample, u_step;
  const Real* state;  // (samples, units)
  Real* out;
  i64 out_sample, out_step;
  i64 samples, steps;
};

// What a job writes to on its way. Grown, never shrunk: a single step must not pay for allocation.
template <class Real>
struct Scratch {
  Aligned<Real> old, next, sums;
  void reserve(i64 states, i64 n_sums) {
    const auto grow = [](Aligned<Real>& x, i64 n) {
      if (x.size() < static_cast<std::size_t>(n)) x.assign(static_cast<std::size_t>(n), Real(0));
    };
    grow(old, states);
    grow(next, states);
    grow(sums, n_sums);
  }
};

// Rows of inputs, of sums to start from, and of sums.
template <class Real>
struct Rows {
  const Real* x;
  i64 x_stride;
  const Real* start;
  i64 start_stride;
  Real* sums;
  i64 sums_stride, count;
};

template <class Real, int Count, int Together, int Vectors, bool Sparse>
void some_rows(const Panels<Real>& w, const Panel& panel, const Rows<Real>& rows, i64 first) {
  constexpr int blocks = Sparse ? panel_blocks<Real, Vectors> : 0;
  panel_product<Real, Count, Together, Vectors, blocks>(
      w.values.data() + panel.values, w.columns.data() + panel.columns, w.count, rows.x + first * rows.x_stride,
      rows.x_stride, rows.start + first * rows.start_stride + panel.first, rows.start_stride,
      rows.sums + first * rows.sums_stride + panel.first, rows.sums_stride);
}

template <class Real, int Vectors, bool Sparse>
void all_rows(const Panels<Real>& w, const Panel& panel, const Rows<Real>& rows) {
  i64 r = 0;
  for (; r + block_rows <= rows.count; r += block_rows)
    some_rows<Real, block_rows, 1, Vectors, Sparse>(w, panel, rows, r);
  if constexpr (block_rows > 3)
    for (; r + 3 <= rows.count; r += 3) some_rows<Real, 3, 1, Vectors, Sparse>(w, panel, rows, r);
  for (; r < rows.count; ++r) some_rows<Real, 1, 1, Vectors, Sparse>(w, panel, rows, r);
}

template <class Real, bool Sparse>
void one_panel(const Panels<Real>& w, const Panel& panel, const Rows<Real>& rows) {
  if (panel.vectors == 4)
    all_rows<Real, 4, Sparse>(w, panel, rows);
  else if (panel.vectors == 2)
    all_rows<Real, 2, Sparse>(w, panel, rows);
  else
    all_rows<Real, 1, Sparse>(w, panel, rows);
}

// All sums, `row_panels` panels at a time, and done(first unit, units) after each; from the last to the first if
// `backwards`.
template <class Real, bool Sparse, class Done>
void all_panels(const Panels<Real>& w, const Rows<Real>& rows, bool backwards, Done&& done) {
  const auto n = static_cast<i64>(w.list.size()), groups = (n + row_panels - 1) / row_panels;
  for (i64 i = 0; i < groups; ++i) {
    const i64 begin = (backwards ? groups - 1 - i : i) * row_panels, end = std::min(begin + row_panels, n);
    const Panel *first = w.list.data() + begin, *last = w.list.data() + end - 1;
    if (rows.count == 1 && end - begin == row_panels && last->vectors == panel_vectors)
      some_rows<Real, 1, row_panels, panel_vectors, Sparse>(w, *first, rows, 0);
    else
      for (const Panel* panel = first; panel <= last; ++panel) one_panel<Real, Sparse>(w, *panel, rows);
    done(first->first, last->first + last->vectors * native_lanes<Real> - first->first);
  }
}

// sums = b + W_in u for some rows of u.
template <class Real>
void multiply_inputs(const Network<Real>& net, const Real* u, i64 u_stride, Real* sums, i64 sums_stride, i64 count) {
  const Rows<Real> rows{u, u_stride, net.bias.data(), 0, sums, sums_stride, count};
  all_panels<Real, false>(net.w_in, rows, false, [](i64, i64) {});
}

// One step of some samples: sums += W_res old; next = (1 - a) old + a f(sums). Steps alternate in the order of units:
// what the last one read last is still in the first-level cache when the next one begins with it.
template <class Real>
void multiply_states(const Network<Real>& net, Real* sums, const Real* old, Real* next, i64 samples, bool backwards) {
  const auto finish = [&](i64 first, i64 units) {
    for (i64 s = 0; s < samples; ++s)
      net.update(sums + s * net.row + first, old + s * net.row + first, next + s * net.row + first, units, net.leak);
  };
  if (net.free_pattern) {
    const auto& p = net.rows_res;
    constexpr i64 lanes = native_lanes<Real>;
    for (i64 s = 0; s < samples; ++s)
      for (std::size_t i = 0; i + 1 < p.slice_starts.size(); ++i)
        slice_product(p.slice_values.data() + p.slice_starts[i] * lanes,
                      p.slice_columns.data() + p.slice_starts[i] * lanes, p.slice_starts[i + 1] - p.slice_starts[i],
                      old + s * net.row, sums + s * net.row + static_cast<i64>(i) * lanes);
    return finish(0, net.padded);
  }
  const Rows<Real> rows{old, net.row, sums, net.row, sums, net.row, samples};
  if (net.w_res.sparse)
    all_panels<Real, true>(net.w_res, rows, backwards, finish);
  else
    all_panels<Real, false>(net.w_res, rows, backwards, finish);
}

// Units in lanes.
template <class Real>
void run_units(const Network<Real>& net, const Job<Real>& job, Scratch<Real>& scratch) {
  const i64 together = std::min(job.steps, std::max<i64>(1, input_rows / job.samples));
  const i64 samples_row = job.samples * net.row;
  scratch.reserve(samples_row, together * samples_row);
  Real *old = scratch.old.data(), *next = scratch.next.data(), *sums = scratch.sums.data();
  for (i64 s = 0; s < job.samples; ++s) std::copy_n(job.state + s * net.units, net.units, old + s * net.row);
  for (i64 begin = 0; begin < job.steps; begin += together) {
    const i64 count = std::min(together, job.steps - begin);
    const Real* u = job.u + begin * job.u_step;
    if (count == 1)
      multiply_inputs(net, u, job.u_sample, sums, net.row, job.samples);
    else
      for (i64 s = 0; s < job.samples; ++s)
        multiply_inputs(net, u + s * job.u_sample, job.u_step, sums + s * net.row, samples_row, count);
    for (i64 t = 0; t < count; ++t) {
      multiply_states(net, sums + t * samples_row, old, next, job.samples, (begin + t) % 2 != 0);
      std::swap(old, next);
      for (i64 s = 0; s < job.samples; ++s)
        std::copy_n(old + s * net.row, net.units, job.out + s * job.out_sample + (begin + t) * job.out_step);
    }
  }
}

// Samples in lanes, for a free sparse pattern: a weight is read once for all of them, and there is nothing to pick.
template <class Real, int Vectors>
void run_samples(const Network<Real>& net, const Job<Real>& job, Scratch<Real>& scratch) {
  using R = Simd<Real, native_lanes<Real>>;
  constexpr i64 width = Vectors * R::lanes;
  const auto& p = net.rows_res;
  scratch.reserve(net.units * width, (net.units + net.inputs) * width);
  Real *old = scratch.old.data(), *next = scratch.next.data(), *sums = scratch.sums.data();
  Real* inputs = sums + net.units * width;
  const auto turn = [&](const Real* rows, i64 stride, i64 n, Real* columns) {
    for (i64 k = 0; k < n; ++k)
      for (i64 s = 0; s < width; ++s) columns[k * width + s] = s < job.samples ? rows[s * stride + k] : Real(0);
  };
  turn(job.state, net.units, net.units, old);
  for (i64 t = 0; t < job.steps; ++t) {
    turn(job.u + t * job.u_step, job.u_sample, net.inputs, inputs);
    for (i64 i = 0; i < net.units; ++i) {
      R acc[Vectors];
      for (R& sum : acc) sum = R(net.bias[static_cast<std::size_t>(i)]);
      samples_product<Real, Vectors>(p.input_rows.data() + i * net.inputs, nullptr, net.inputs, inputs, acc);
      const i64 start = p.row_starts[static_cast<std::size_t>(i)];
      samples_product<Real, Vectors>(p.values.data() + start, p.columns.data() + start,
                                     p.row_starts[static_cast<std::size_t>(i) + 1] - start, old, acc);
      for (int v = 0; v < Vectors; ++v) acc[v].store(sums + i * width + v * R::lanes);
    }
    net.update(sums, old, next, net.units * width, net.leak);
    std::swap(old, next);
    Real* out = job.out + t * job.out_step;
    for (i64 s = 0; s < job.samples; ++s)
      for (i64 i = 0; i < net.units; ++i) out[s * job.out_sample + i] = old[i * width + s];
  }
}

template <class Real>
Job<Real> part(const Job<Real>& job, const Network<Real>& net, i64 first, i64 count) {
  Job<Real> p = job;
  p.u += first * job.u_sample;
  p.state += first * net.units;
  p.out += first * job.out_sample;
  p.samples = count;
  return p;
}

template <class Real>
void run_chunk(const Network<Real>& net, const Job<Real>& job, Scratch<Real>& scratch) {
  constexpr i64 lanes = native_lanes<Real>;
  if (!net.free_pattern) return run_units(net, job, scratch);
  i64 done = 0;
  for (i64 left = job.samples; left > 0; left = job.samples - done) {
    // With less than half a vector of samples, picking states for one at a time is faster.
    const i64 count = 2 * left < lanes ? left : std::min(left, 4 * lanes);
    const Job<Real> some = part(job, net, done, count);
    if (2 * count < lanes || count == 1)
      run_units(net, some, scratch);
    else if (count > 2 * lanes)
      run_samples<Real, 4>(net, some, scratch);
    else if (count > lanes)
      run_samples<Real, 2>(net, some, scratch);
    else
      run_samples<Real, 1>(net, some, scratch);
    done += count;
  }
}

template <class Real>
void run_job(const Network<Real>& net, const Job<Real>& job) {
  const i64 stored = net.free_pattern ? static_cast<i64>(net.rows_res.values.size()) : net.units * net.w_res.count;
  const i64 work = job.samples * job.steps * (stored + net.units * net.inputs);
  const i64 threads = std::clamp<i64>(work / work_a_thread, 1, std::min<i64>(net.threads, job.samples));
  const i64 share = (job.samples + threads - 1) / threads, whole = (share + block_rows - 1) / block_rows * block_rows;
  const i64 rows = std::min(whole, chunk_rows), chunks = (job.samples + rows - 1) / rows;
  const auto chunk = [&](i64 c, Scratch<Real>& scratch) {
    run_chunk(net, part(job, net, c * rows, std::min(rows, job.samples - c * rows)), scratch);
  };
  if (threads == 1) {
    static thread_local Scratch<Real> scratch;
    for (i64 c = 0; c < chunks; ++c) chunk(c, scratch);
    return;
  }
  // Memory is asked for here: an exception must not leave a parallel region.
  std::vector<Scratch<Real>> scratch(static_cast<std::size_t>(chunks));
  const i64 numbers = std::max((net.row + net.inputs) * std::max(input_rows, rows), (net.units + net.inputs) * 4 * 16);
  for (auto& s : scratch) s.reserve(numbers, numbers);
#pragma omp parallel for schedule(static) num_threads(static_cast<int>(threads))
  for (i64 c = 0; c < chunks; ++c) chunk(c, scratch[static_cast<std::size_t>(c)]);
}

// `out` may be the state itself, which is read before anything is written; any other overlap would give nonsense.
template <class Real>
void check_apart(const Real* out, i64 n_out, const Real* x, i64 n, const char* argument, bool same_is_fine) {
  if (out < x + n && x < out + n_out && !(same_is_fine && out == x && n == n_out))
    refuse(std::string("`out` must not share memory with `") + argument + "`");
}

// A network with what Python needs of it.
template <class Real>
struct Esn {
  Network<Real> net;
  nb::object empty = nb::module_::import_("numpy").attr("empty");
  nb::object dtype = nb::module_::import_("numpy").attr("dtype")(TypeName<Real>::name);
  nb::object single_shape = nb::make_tuple(net.units);
};

template <class Real>
std::unique_ptr<Esn<Real>> make_dense(nb::handle w_in, nb::handle w_res, nb::handle bias, double leak,
                                      nb::str activation, nb::handle threads) {
  auto esn = std::unique_ptr<Esn<Real>>(new Esn<Real>{Network<Real>(w_in, bias, leak, activation.c_str(), threads)});
  esn->net.set_dense(w_res);
  return esn;
}

template <class Real>
std::unique_ptr<Esn<Real>> make_blocks(nb::handle w_in, nb::handle columns, nb::handle values, nb::handle bias,
                                       double leak, nb::str activation, nb::handle threads) {
  auto esn = std::unique_ptr<Esn<Real>>(new Esn<Real>{Network<Real>(w_in, bias, leak, activation.c_str(), threads)});
  esn->net.set_blocks(columns, values);
  return esn;
}

template <class Real>
std::unique_ptr<Esn<Real>> make_csr(nb::handle w_in, nb::handle indptr, nb::handle indices, nb::handle data,
                                    nb::handle bias, double leak, nb::str activation, nb::handle threads) {
  auto esn = std::unique_ptr<Esn<Real>>(new Esn<Real>{Network<Real>(w_in, bias, leak, activation.c_str(), threads)});
  esn->net.set_csr(w_in, indptr, indices, data);
  return esn;
}

// Returns the state after one step, in `out` or in a new array. A single step is a microsecond of work and keeps the
// GIL; a batch releases it.
template <class Real>
nb::object step(const Esn<Real>& esn, nb::handle state_object, nb::handle u_object, nb::object out_object) {
  const Network<Real>& net = esn.net;
  const auto units = static_cast<Py_ssize_t>(net.units);
  const In<Real> u(u_object, "u", {maybe, static_cast<Py_ssize_t>(net.inputs)});
  const bool batch = u.rank() == 2;
  const Py_ssize_t samples = batch ? u.extent(0) : 1;
  const Shape shape = batch ? Shape{samples, units} : Shape{units};
  const In<Real> state(state_object, "state", shape);
  check_finite(u.data(), u.size(), "u");
  check_finite(state.data(), state.size(), "state");
  if (out_object.is_none()) {
    const nb::object extents = batch ? nb::object(nb::make_tuple(samples, units)) : esn.single_shape;
    out_object = esn.empty(extents, esn.dtype);
  }
  const Out<Real> out(out_object, "out", shape);
  check_apart(out.data(), out.size(), u.data(), u.size(), "u", false);
  check_apart(out.data(), out.size(), state.data(), state.size(), "state", true);
  const Job<Real> job{u.data(), net.inputs, 0, state.data(), out.data(), units, 0, samples, 1};
  if (batch) {
    nb::gil_scoped_release release;
    run_job(net, job);
  } else {
    run_job(net, job);
  }
  check_bounded(out.data(), out.size());
  return out_object;
}

// out[t] = the state after row t of u, of one sequence or of each in a batch.
template <class Real>
void run(const Esn<Real>& esn, nb::handle u_object, nb::handle state_object, nb::handle out_object) {
  const Network<Real>& net = esn.net;
  const auto units = static_cast<Py_ssize_t>(net.units);
  const In<Real> u(u_object, "u", {maybe, any, static_cast<Py_ssize_t>(net.inputs)});
  const bool batch = u.rank() == 3;
  const Py_ssize_t samples = batch ? u.extent(0) : 1, steps = u.extent(u.rank() - 2);
  const In<Real> state(state_object, "state", batch ? Shape{samples, units} : Shape{units});
  const Out<Real> out(out_object, "out", batch ? Shape{samples, steps, units} : Shape{steps, units});
  check_finite(u.data(), u.size(), "u");
  check_finite(state.data(), state.size(), "state");
  check_apart(out.data(), out.size(), u.data(), u.size(), "u", false);
  check_apart(out.data(), out.size(), state.data(), state.size(), "state", true);
  {
    nb::gil_scoped_release release;
    run_job(net,
            {u.data(), steps * net.inputs, net.inputs, state.data(), out.data(), steps * units, units, samples, steps});
  }
  for (Py_ssize_t s = 0; s < samples; ++s) check_bounded(out.data() + ((s + 1) * steps - 1) * units, units);
}

template <class Real>
void bind(nb::module_& m, const char* name) {
  using nb::literals::operator""_a;
  nb::class_<Esn<Real>>(m, name)
      .def_static("dense", &make_dense<Real>, "w_in"_a.none(), "w_res"_a.none(), "bias"_a.none(), "leak"_a,
                  "activation"_a, "threads"_a.none())
      .def_static("blocks", &make_blocks<Real>, "w_in"_a.none(), "columns"_a.none(), "values"_a.none(), "bias"_a.none(),
                  "leak"_a, "activation"_a, "threads"_a.none())
      .def_static("csr", &make_csr<Real>, "w_in"_a.none(), "indptr"_a.none(), "indices"_a.none(), "data"_a.none(),
                  "bias"_a.none(), "leak"_a, "activation"_a, "threads"_a.none())
      .def("step", &step<Real>, "state"_a.none(), "u"_a.none(), "out"_a.none() = nb::none())
      .def("run", &run<Real>, "u"_a.none(), "state"_a.none(), "out"_a.none());
}

}  // namespace

void bind_esn(nb::module_& m) {
  bind<double>(m, "Esn_f64");
  bind<float>(m, "Esn_f32");
}

}  // namespace mf::bindings
