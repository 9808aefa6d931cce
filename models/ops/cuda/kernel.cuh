// What the kernels share: values of three types in groups, sums over a warp, rows in registers, threads that
// go down columns, launches.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "types.h"

namespace dtk::models::cuda {

constexpr int kWarp = 32;

__device__ inline float to_float(float value) {
  return value;
}
__device__ inline float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ inline float to_float(__half value) {
  return __half2float(value);
}

__device__ inline void from_float(float value, float& to) {
  to = value;
}
__device__ inline void from_float(float value, __nv_bfloat16& to) {
  to = __float2bfloat16_rn(value);
}
__device__ inline void from_float(float value, __half& to) {
  to = __float2half_rn(value);
}

// Neighbours in a row that are read or written at once.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Group {
  T values[kWidth];
};

template <class T, int kWidth>
__device__ void load(const T* from, float (&to)[kWidth]) {
  const auto group = *reinterpret_cast<const Group<T, kWidth>*>(from);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) to[i] = to_float(group.values[i]);
}

template <class T, int kWidth>
__device__ void store(T* to, const float (&from)[kWidth]) {
  Group<T, kWidth> group;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) from_float(from[i], group.values[i]);
  *reinterpret_cast<Group<T, kWidth>*>(to) = group;
}

// A type that is known at run time only: for what is read or written once for many rows.
template <int kWidth>
__device__ void load(Type type, const void* table, int64_t at, float (&to)[kWidth]) {
  if (type == Type::fp32)
    load(static_cast<const float*>(table) + at, to);
  else if (type == Type::bf16)
    load(static_cast<const __nv_bfloat16*>(table) + at, to);
  else
    load(static_cast<const __half*>(table) + at, to);
}

template <int kWidth>
__device__ void store(Type type, void* table, int64_t at, const float (&from)[kWidth]) {
  if (type == Type::fp32)
    store(static_cast<float*>(table) + at, from);
  else if (type == Type::bf16)
    store(static_cast<__nv_bfloat16*>(table) + at, from);
  else
    store(static_cast<__half*>(table) + at, from);
}

__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffU, value, distance);
  return value;
}

// A row in the registers of `lanes` threads, kSlots groups of four columns each. Calls act(slot, column) for
// those that there are.
template <int kSlots, class Act>
__device__ __forceinline__ void each_slot(int lane, int lanes, int D, Act act) {
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) {
    const int column = (slot * lanes + lane) * 4;
    if (column < D) act(slot, column);
  }
}

constexpr int kColumnThreads = 128;  // of a block whose threads go down columns

// Where a thread stands that takes kWidth columns of up to kRows rows of one sample (N, T, D).
template <int kRows, int kWidth>
struct Column {
  int64_t part, sample;  // part: which kRows rows, counted over all samples
  int64_t begin, end;    // its rows, counted over all samples
  int first, D;          // first: of its columns

  __device__ Column(int64_t T, int its_D) : D(its_D) {
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x;
    const int groups = D / kWidth;
    const int64_t parts = (T + kRows - 1) / kRows;
    part = thread / groups;
    sample = part / parts;
    first = static_cast<int>(thread % groups) * kWidth;
    const int64_t t = part % parts * kRows;
    begin = sample * T + t;
    end = sample * T + min(T, t + kRows);
  }

  // Calls act with the offset of its columns in each of its rows.
  template <class Act>
  __device__ __forceinline__ void each_row(Act act) const {
#pragma unroll 4
    for (int64_t row = begin; row < end; ++row) act(row * D + first);
  }
};

// A table that a kernel reads or writes.
struct Table {
  const void* data;
  Type type;
  int64_t stride;
};

// Whether rows may be taken four columns at a time: all of them begin where four may be read at once.
inline bool by_fours(std::initializer_list<Table> tables) {
  bool good = true;
  for (const Table& table : tables) {
    const uintptr_t bytes = table.type == Type::fp32 ? 16 : 8;
    good = good && table.stride % 4 == 0 && reinterpret_cast<uintptr_t>(table.data) % bytes == 0;
  }
  return good;
}

// Of a main tensor, another one and what conditions them.
inline bool supported(Type main, Type other, Type condition) {
  if (main != Type::fp32) return other == main && condition == main;
  return other == Type::fp32 || condition == Type::fp32 || other == condition;
}

constexpr int64_t kMaxColumns = 1 << 24;

// Calls launch with a value of the C++ type.
template <class Launch>
cudaError_t with_type(Type type, Launch launch) {
  if (type == Type::bf16) return launch(__nv_bfloat16{});
  if (type == Type::fp16) return launch(__half{});
  return launch(float{});
}

// Calls launch with values of the C++ types of a main tensor and another one.
template <class Launch>
cudaError_t with_types(Type main, Type other, Launch launch) {
  if (main == Type::bf16) return launch(__nv_bfloat16{}, __nv_bfloat16{});
  if (main == Type::fp16) return launch(__half{}, __half{});
  if (other == Type::bf16) return launch(float{}, __nv_bfloat16{});
  if (other == Type::fp16) return launch(float{}, __half{});
  return launch(float{}, float{});
}

// Calls launch with the number of columns that a thread takes at once, as a type.
template <class Launch>
cudaError_t with_width(bool fours, Launch launch) {
  if (fours) return launch(std::integral_constant<int, 4>{});
  return launch(std::integral_constant<int, 1>{});
}

template <class... Parameters, class... Arguments>
cudaError_t launch(int64_t blocks, int threads, size_t shared_bytes, Stream stream,
                   void (*kernel)(Parameters...), Arguments... arguments) {
  if (blocks > std::numeric_limits<int>::max()) return cudaErrorInvalidConfiguration;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

// Launches a kernel, which is given N, T and D last, with a thread for each column of kRows rows.
template <int kRows, int kWidth, class Kernel, class... Arguments>
cudaError_t launch_columns(int64_t N, int64_t T, int64_t D, Stream stream, Kernel kernel,
                           Arguments... arguments) {
  const int64_t threads = N * ((T + kRows - 1) / kRows) * (D / kWidth);
  return launch((threads + kColumnThreads - 1) / kColumnThreads, kColumnThreads, 0, stream, kernel,
                arguments..., N, T, D);
}

}  // namespace dtk::models::cuda
