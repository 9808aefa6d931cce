#include "column_sums.h"
#include "kernel.cuh"
#include "rms_norm.h"

extern __shared__ float4 dynamic_shared[];

namespace dtk::models::cuda {
namespace {

constexpr int kMaxWarps = 16;     // of a block
constexpr int kLongWarps = 8;     // of a block whose rows are longer than registers hold
constexpr int kForwardTurns = 4;  // rows that a team takes, where no sums over rows are made

// A block takes `rows` rows at a time; each has a team of `warps` warps, which hold it in registers.
struct Teams {
  int warps, rows;
  __device__ int lanes() const { return warps * kWarp; }
  __device__ int mine() const { return static_cast<int>(threadIdx.x) / lanes(); }
  __device__ int lane() const { return static_cast<int>(threadIdx.x) % lanes(); }
};

// The sum over a team, in each of its threads; all of the block call it. `turn` counts the calls: two in a
// row write to different places, so that one barrier is enough.
__device__ __forceinline__ float team_sum(float value, int warps, int turn) {
  __shared__ float sums[2][kMaxWarps];
  value = warp_sum(value);
  if (warps == 1) return value;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (threadIdx.x % kWarp == 0) sums[turn % 2][warp] = value;
  __syncthreads();
  float total = 0.0F;
  for (int i = warp - warp % warps, end = i + warps; i < end; ++i) total += sums[turn % 2][i];
  return total;
}

template <int kSlots, class X, class Y>
__global__ void __launch_bounds__(kMaxWarps* kWarp, 1)
    rms_forward_kernel(const X* __restrict__ x, const void* weight, Type weight_type, float epsilon,
                       Y* __restrict__ y, float* __restrict__ rstd, Teams teams, int64_t part, int64_t R,
                       int D) {
  const int lane = teams.lane(), lanes = teams.lanes();
  const int64_t first = blockIdx.x * part, last = min(R, first + part);
  float factor[kSlots][4];
  each_slot<kSlots>(lane, lanes, D,
                    [&](int slot, int column) { load(weight_type, weight, column, factor[slot]); });
  int turn = 0;
  for (int64_t begin = first; begin < last; begin += teams.rows, ++turn) {
    const int64_t row = begin + teams.mine();
    const int columns = row < last ? D : 0;  // a team without a row goes along to the barrier
    float values[kSlots][4], squares = 0.0F;
    each_slot<kSlots>(lane, lanes, columns, [&](int slot, int column) {
      load(x + row * D + column, values[slot]);
#pragma unroll
      for (int i = 0; i < 4; ++i) squares += values[slot][i] * values[slot][i];
    });
    const float row_rstd = rsqrtf(team_sum(squares, teams.warps, turn) / static_cast<float>(D) + epsilon);
    each_slot<kSlots>(lane, lanes, columns, [&](int slot, int column) {
#pragma unroll
      for (int i = 0; i < 4; ++i) values[slot][i] *= row_rstd * factor[slot][i];
      store(y + row * D + column, values[slot]);
    });
    if (lane == 0 && row < last) rstd[row] = row_rstd;
  }
}

template <int kSlots, class X, class Y>
__global__ void __launch_bounds__(kMaxWarps* kWarp, 1)
    rms_backward_kernel(const Y* __restrict__ dy, const X* __restrict__ x, const float* __restrict__ rstd,
                        const void* weight, Type weight_type, float* __restrict__ partial, X* __restrict__ dx,
                        Teams teams, int64_t part, int64_t R, int D) {
  const int lane = teams.lane(), lanes = teams.lanes();
  const int64_t first = blockIdx.x * part, last = min(R, first + part);
  float factor[kSlots][4], sum[kSlots][4] = {};
  each_slot<kSlots>(lane, lanes, D,
                    [&](int slot, int column) { load(weight_type, weight, column, factor[slot]); });
  int turn = 0;
  for (int64_t begin = first; begin < last; begin += teams.rows, ++turn) {
    const int64_t row = begin + teams.mine();
    const int columns = row < last ? D : 0;
    const float row_rstd = row < last ? rstd[row] : 0.0F;
    float normal[kSlots][4], gradient[kSlots][4];  // x * rstd, and what the loss has by it
    float product = 0.0F;
    each_slot<kSlots>(lane, lanes, columns, [&](int slot, int column) {
      load(x + row * D + column, normal[slot]);
      load(dy + row * D + column, gradient[slot]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        normal[slot][i] *= row_rstd;
        sum[slot][i] += gradient[slot][i] * normal[slot][i];
        gradient[slot][i] *= factor[slot][i];
        product += gradient[slot][i] * normal[slot][i];
      }
    });
    product = team_sum(product, teams.warps, turn) / static_cast<float>(D);
    each_slot<kSlots>(lane, lanes, columns, [&](int slot, int column) {
      float out[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) out[i] = row_rstd * (gradient[slot][i] - normal[slot][i] * product);
      store(dx + row * D + column, out);
    });
  }
  if (partial == nullptr) return;

  // The teams add their sums in turn: the order of the additions is fixed.
  float* const sums = reinterpret_cast<float*>(dynamic_shared);  // (D)
  float* const to = partial + static_cast<int64_t>(blockIdx.x) * D;
  for (int team = 0; team < teams.rows; ++team) {
    if (team == teams.mine()) {
      each_slot<kSlots>(lane, lanes, D, [&](int slot, int column) {
        float total[4] = {};
        if (team > 0) load(sums + column, total);
#pragma unroll
        for (int i = 0; i < 4; ++i) total[i] += sum[slot][i];
        store(team + 1 < teams.rows ? sums + column : to + column, total);
      });
    }
    __syncthreads();
  }
}

// Rows of any length: a block reads its rows one after the other, each twice.
template <int kWidth, class X, class Y>
__global__ void __launch_bounds__(kLongWarps* kWarp, 2)
    rms_forward_long_kernel(const X* __restrict__ x, const void* weight, Type weight_type, float epsilon,
                            Y* __restrict__ y, float* __restrict__ rstd, int64_t part, int64_t R, int D) {
  constexpr int kStep = kLongWarps * kWarp * kWidth;
  const int begin = static_cast<int>(threadIdx.x) * kWidth;
  const int64_t first = blockIdx.x * part, last = min(R, first + part);
  int turn = 0;
  for (int64_t row = first; row < last; ++row, ++turn) {
    float values[kWidth], factor[kWidth], squares = 0.0F;
    for (int d = begin; d < D; d += kStep) {
      load(x + row * D + d, values);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) squares += values[i] * values[i];
    }
    const float row_rstd = rsqrtf(team_sum(squares, kLongWarps, turn) / static_cast<float>(D) + epsilon);
    for (int d = begin; d < D; d += kStep) {
      load(weight_type, weight, d, factor);
      load(x + row * D + d, values);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) values[i] *= row_rstd * factor[i];
      store(y + row * D + d, values);
    }
    if (threadIdx.x == 0) rstd[row] = row_rstd;
  }
}

// A thread has the same columns in every row, so that it alone adds to their partial sums.
template <int kWidth, class X, class Y>
__global__ void __launch_bounds__(kLongWarps* kWarp, 2)
    rms_backward_long_kernel(const Y* __restrict__ dy, const X* __restrict__ x,
                             const float* __restrict__ rstd, const void* weight, Type weight_type,
                             float* __restrict__ partial, X* __restrict__ dx, int64_t part, int64_t R,
                             int D) {
  constexpr int kStep = kLongWarps * kWarp * kWidth;
  const int begin = static_cast<int>(threadIdx.x) * kWidth;
  const int64_t first = blockIdx.x * part, last = min(R, first + part);
  float* const sums = partial == nullptr ? nullptr : partial + static_cast<int64_t>(blockIdx.x) * D;
  int turn = 0;
  for (int64_t row = first; row < last; ++row, ++turn) {
    const float row_rstd = rstd[row];
    float normal[kWidth], gradient[kWidth], factor[kWidth], product = 0.0F;
    const auto read = [&](int d) {
      load(weight_type, weight, d, factor);
      load(x + row * D + d, normal);
      load(dy + row * D + d, gradient);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) normal[i] *= row_rstd;
    };
    for (int d = begin; d < D; d += kStep) {
      read(d);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) product += gradient[i] * factor[i] * normal[i];
    }
    product = team_sum(product, kLongWarps, turn) / static_cast<float>(D);
    for (int d = begin; d < D; d += kStep) {
      read(d);
      if (sums != nullptr) {
        float sum[kWidth] = {};
        if (row > first) load(sums + d, sum);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sum[i] += gradient[i] * normal[i];
        store(sums + d, sum);
      }
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        gradient[i] = row_rstd * (gradient[i] * factor[i] - normal[i] * product);
      store(dx + row * D + d, gradient);
    }
  }
}

bool is_empty(const RmsNorm& shape) {
  return shape.R == 0 || shape.D == 0;
}

bool is_supported(const RmsNorm& shape) {
  return (shape.x == Type::fp32 || shape.y == shape.x) &&
         (shape.weight == Type::fp32 || shape.weight == shape.y) && shape.D <= kMaxColumns;
}

// The columns that a warp holds in one slot, and the slots of long and of short rows.
constexpr int kSlotColumns = kWarp * 4, kManySlots = 4, kFewSlots = 1;

// Teams of as many warps as a row needs, and as many of them as come to no more than so many warps.
Teams teams_of(int64_t D, int slots, int warps) {
  const int team = static_cast<int>((D + slots * kSlotColumns - 1) / (slots * kSlotColumns));
  return {team, warps > team ? warps / team : 1};
}

// Calls in_registers with the slots for D columns, as a type, or long_row with a width.
template <class InRegisters, class LongRow>
cudaError_t with_row(int64_t D, bool fours, InRegisters in_registers, LongRow long_row) {
  if (!fours || D > kMaxWarps * kManySlots * kSlotColumns) return with_width(fours, long_row);
  if (D <= kFewSlots * kSlotColumns) return in_registers(std::integral_constant<int, kFewSlots>{});
  return in_registers(std::integral_constant<int, kManySlots>{});
}

int64_t parts(int64_t R, int64_t part) {
  return (R + part - 1) / part;
}

}  // namespace

int rms_norm_forward(const RmsNorm& shape, const void* x, const void* weight, float epsilon, void* y,
                     float* rstd, Stream stream) {
  if (!is_supported(shape)) return cudaErrorInvalidValue;
  if (is_empty(shape)) return cudaSuccess;
  const bool fours =
      by_fours({{x, shape.x, shape.D}, {y, shape.y, shape.D}, {weight, shape.weight, shape.D}});
  return with_types(shape.x, shape.y, [&](auto main, auto other) {
    using X = decltype(main);
    using Y = decltype(other);
    const auto start = [&](auto kernel, int warps, int64_t part, auto... teams) {
      return launch(parts(shape.R, part), warps * kWarp, 0, stream, kernel, static_cast<const X*>(x), weight,
                    shape.weight, epsilon, static_cast<Y*>(y), rstd, teams..., part, shape.R, shape.D);
    };
    return with_row(
        shape.D, fours,
        [&](auto slots) {
          const Teams teams = teams_of(shape.D, slots.value, kMaxWarps / 2);
          return start(rms_forward_kernel<slots.value, X, Y>, teams.warps * teams.rows,
                       int64_t{kForwardTurns} * teams.rows, teams);
        },
        [&](auto width) {
          return start(rms_forward_long_kernel<width.value, X, Y>, kLongWarps, kForwardTurns);
        });
  });
}

int rms_norm_backward(const RmsNorm& shape, const void* dy, const void* x, const float* rstd,
                      const void* weight, float* partial, void* dx, void* dweight, Stream stream) {
  if (!is_supported(shape)) return cudaErrorInvalidValue;
  if (is_empty(shape)) return cudaSuccess;
  const bool fours = by_fours({{dy, shape.y, shape.D},
                               {x, shape.x, shape.D},
                               {weight, shape.weight, shape.D},
                               {partial, Type::fp32, shape.D},
                               {dx, shape.x, shape.D}});
  const bool summed = partial != nullptr;
  const cudaError_t error = with_types(shape.x, shape.y, [&](auto main, auto other) {
    using X = decltype(main);
    using Y = decltype(other);
    const auto start = [&](auto kernel, int warps, int64_t part, int64_t shared_bytes, auto... teams) {
      return launch(parts(shape.R, part), warps * kWarp, static_cast<size_t>(shared_bytes), stream, kernel,
                    static_cast<const Y*>(dy), static_cast<const X*>(x), rstd, weight, shape.weight, partial,
                    static_cast<X*>(dx), teams..., part, shape.R, shape.D);
    };
    return with_row(
        shape.D, fours,
        [&](auto slots) {
          // Where there are sums, blocks are few: a chunk of rows each.
          const Teams teams = teams_of(shape.D, slots.value, summed ? kMaxWarps : kMaxWarps / 2);
          return start(rms_backward_kernel<slots.value, X, Y>, teams.warps * teams.rows,
                       summed ? kChunkRows : int64_t{kForwardTurns} * teams.rows,
                       summed && teams.rows > 1 ? shape.D * int64_t{sizeof(float)} : 0, teams);
        },
        [&](auto width) {
          return start(rms_backward_long_kernel<width.value, X, Y>, kLongWarps,
                       summed ? kChunkRows : int64_t{kForwardTurns}, 0);
        });
  });
  if (error != cudaSuccess || !summed) return error;
  return column_sums({1, chunks(shape.R), shape.D, shape.weight}, partial, dweight, nullptr, stream);
}

}  // namespace dtk::models::cuda
