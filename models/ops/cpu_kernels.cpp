// Compiled for each instruction set, with CPU_CAPABILITY as its name: CMakeLists.txt.
#include "ops/cpu_kernels.h"

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>

#include "ops/lanes.h"
#include "ops/types.h"

namespace dtk::ops {
inline namespace CPU_CAPABILITY {
namespace {

// A loop with all that it calls in it, which the compiler would call for each 32 channels, and be slower than
// memory by that.
#ifdef CPU_CAPABILITY_DEFAULT
#define DTK_WHOLE
#else
#define DTK_WHOLE __attribute__((flatten))
#endif

constexpr int64_t kGrain = 32768;  // elements that are worth a thread

// fn(row) for all rows of `width`, beside each other.
template <class Fn>
void over_rows(int64_t rows, int64_t width, const Fn& fn) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width));
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) fn(row);
  });
}

// fn(sample, part, first token, last): the parts that partial sums are made of.
template <class Fn>
void over_parts(const Shape& shape, const Fn& fn) {
  const int64_t parts = partials_of(shape.tokens);
  over_rows(shape.samples * parts, kRowsPerPartial * shape.width, [&](int64_t i) {
    const int64_t begin = i % parts * kRowsPerPartial;
    fn(i / parts, i, begin, std::min(shape.tokens, begin + kRowsPerPartial));
  });
}

// into (N, D) = sums over parts of row `which` of `count` in partial (N, parts, count, D).
template <class A, class T>
void add_parts(const Shape& shape, const A* partial, int64_t which, int64_t count, void* into) {
  const int64_t parts = partials_of(shape.tokens);
  T* const out = static_cast<T*>(into);
  for (int64_t n = 0; n < shape.samples; ++n) {
    over_row<A>(shape.width, [&](int64_t d, auto lanes) {
      Lanes<A> sum;
      for (int64_t part = 0; part < parts; ++part)
        sum = sum + load<A>(partial + ((n * parts + part) * count + which) * shape.width + d, lanes);
      store(sum, out + n * shape.width + d, lanes);
    });
  }
}

void norm_modulate(const Shape& shape, const Types& types, const void* x_, Rows shift_, Rows scale_,
                   double eps, void* y_, void* mean_, void* rstd_) {
  with_types<RowsOfSamples>(types, [&]<class X, class C, class Y>(X, C, Y) {
    using A = Accumulated<X>;
    const int64_t width = shape.width;
    over_rows(shape.samples * shape.tokens, width, [&](int64_t row) {
      const X* const x = static_cast<const X*>(x_) + row * width;
      const int64_t sample = row / shape.tokens;
      const C* const shift = static_cast<const C*>(shift_.data) + sample * shift_.stride;
      const C* const scale = static_cast<const C*>(scale_.data) + sample * scale_.stride;
      Y* const y = static_cast<Y*>(y_) + row * width;
      Lanes<A> sum, squares;
      over_row<A>(width, [&](int64_t d, auto lanes) { sum = sum + load<A>(x + d, lanes); });
      const A mean = sum.sum() / static_cast<A>(width);
      over_row<A>(width, [&](int64_t d, auto lanes) {
        const Lanes<A> centred = (load<A>(x + d, lanes) - mean).first(lanes);
        squares = multiply_add(centred, centred, squares);
      });
      const A variance = squares.sum() / static_cast<A>(width);
      const A rstd = A(1) / std::sqrt(variance + static_cast<A>(eps));
      over_row<A>(width, [&](int64_t d, auto lanes) {
        const Lanes<A> normal = (load<A>(x + d, lanes) - mean) * rstd;
        store(multiply_add(normal, load<A>(scale + d, lanes) + A(1), load<A>(shift + d, lanes)), y + d,
              lanes);
      });
      static_cast<A*>(mean_)[row] = mean;
      static_cast<A*>(rstd_)[row] = rstd;
    });
  });
}

// dx = rstd·(g - mean(g) - x̂·mean(g·x̂)) with g = dy·(1 + scale), means over D; dshift = Σ dy and
// dscale = Σ dy·x̂ over T.
void norm_modulate_backward(const Shape& shape, const Types& types, const void* dy_, const void* x_,
                            const void* mean_, const void* rstd_, Rows scale_, void* partial_, void* dx_,
                            void* dshift, void* dscale) {
  with_types<RowsOfSamples>(types, [&]<class X, class C, class Y>(X, C, Y) {
    using A = Accumulated<X>;
    const int64_t width = shape.width;
    A* const partial = static_cast<A*>(partial_);
    over_parts(shape, [&](int64_t sample, int64_t part, int64_t begin, int64_t end) {
      const C* const scale = static_cast<const C*>(scale_.data) + sample * scale_.stride;
      A *const shifts = partial + part * 2 * width, *const scales = shifts + width;
      std::fill(shifts, scales + width, A(0));
      for (int64_t t = begin; t < end; ++t) {
        const int64_t row = sample * shape.tokens + t;
        const Y* const dy = static_cast<const Y*>(dy_) + row * width;
        const X* const x = static_cast<const X*>(x_) + row * width;
        X* const dx = static_cast<X*>(dx_) + row * width;
        const A mean = static_cast<const A*>(mean_)[row], rstd = static_cast<const A*>(rstd_)[row];
        Lanes<A> sum, product;
        over_row<A>(width, [&](int64_t d, auto lanes) {
          const Lanes<A> out = load<A>(dy + d, lanes), normal = (load<A>(x + d, lanes) - mean) * rstd;
          store(load<A>(shifts + d, lanes) + out, shifts + d, lanes);
          store(multiply_add(out, normal, load<A>(scales + d, lanes)), scales + d, lanes);
          const Lanes<A> gradient = out * (load<A>(scale + d, lanes) + A(1));
          sum = sum + gradient;
          product = multiply_add(gradient, normal, product);
        });
        const A mean_gradient = sum.sum() / static_cast<A>(width);
        const A mean_product = product.sum() / static_cast<A>(width);
        over_row<A>(width, [&](int64_t d, auto lanes) {
          const Lanes<A> normal = (load<A>(x + d, lanes) - mean) * rstd;
          const Lanes<A> gradient = load<A>(dy + d, lanes) * (load<A>(scale + d, lanes) + A(1));
          store((gradient - mean_gradient - normal * mean_product) * rstd, dx + d, lanes);
        });
      }
    });
    add_parts<A, C>(shape, partial, 0, 2, dshift);
    add_parts<A, C>(shape, partial, 1, 2, dscale);
  });
}

void gated_add(const Shape& shape, const Types& types, const void* x_, Rows gate_, const void* branch_,
               void* y_) {
  with_types<RowsOfSamples>(types, [&]<class X, class C, class B>(X, C, B) {
    using A = Accumulated<X>;
    over_rows(shape.samples * shape.tokens, shape.width, [&](int64_t row) {
      const X* const x = static_cast<const X*>(x_) + row * shape.width;
      const B* const branch = static_cast<const B*>(branch_) + row * shape.width;
      const C* const gate = static_cast<const C*>(gate_.data) + row / shape.tokens * gate_.stride;
      X* const y = static_cast<X*>(y_) + row * shape.width;
      over_row<A>(shape.width, [&](int64_t d, auto lanes) {
        store(multiply_add(load<A>(gate + d, lanes), load<A>(branch + d, lanes), load<A>(x + d, lanes)),
              y + d, lanes);
      });
    });
  });
}

void gated_add_backward(const Shape& shape, const Types& types, const void* dy_, Rows gate_,
                        const void* branch_, void* partial_, void* dgate, void* dbranch_) {
  with_types<RowsOfSamples>(types, [&]<class X, class C, class B>(X, C, B) {
    using A = Accumulated<X>;
    const int64_t width = shape.width;
    A* const partial = static_cast<A*>(partial_);
    over_parts(shape, [&](int64_t sample, int64_t part, int64_t begin, int64_t end) {
      const C* const gate = static_cast<const C*>(gate_.data) + sample * gate_.stride;
      A* const gates = partial + part * width;
      std::fill(gates, gates + width, A(0));
      for (int64_t t = begin; t < end; ++t) {
        const int64_t row = sample * shape.tokens + t;
        const X* const dy = static_cast<const X*>(dy_) + row * width;
        const B* const branch = static_cast<const B*>(branch_) + row * width;
        B* const dbranch = static_cast<B*>(dbranch_) + row * width;
        over_row<A>(width, [&](int64_t d, auto lanes) {
          const Lanes<A> out = load<A>(dy + d, lanes);
          store(multiply_add(out, load<A>(branch + d, lanes), load<A>(gates + d, lanes)), gates + d, lanes);
          store(out * load<A>(gate + d, lanes), dbranch + d, lanes);
        });
      }
    });
    add_parts<A, C>(shape, partial, 0, 1, dgate);
  });
}

// e^-z has no subnormal reciprocal within.
template <class A>
constexpr A kExponentLimit = std::is_same_v<A, float> ? A(87) : A(708);

// σ(z), which keeps its relative precision where z is far below 0.
template <class A>
Lanes<A> sigmoid_of(const Lanes<A>& z) {
  const auto inverse = [](const auto& v) {
    using Vector = typename Lanes<A>::Vector;
    constexpr A kLimit = kExponentLimit<A>;
    return exponential(at::vec::clamp(v.neg(), Vector(-kLimit), Vector(kLimit)));
  };
  return Lanes<A>(A(1)) / (Lanes<A>(inverse(z.low), inverse(z.high)) + A(1));
}

// u·σ(z) and its derivative σ(z)·(1 + u·(1 - σ(z))·z') with z = 2·√(2/π)·(u + 0.044715·u³).
template <class A>
struct Gelu {
  static constexpr A kSlope = A(1.5957691216057308), kCubic = A(0.044715);  // 2·√(2/π)
  Lanes<A> u, square, sigmoid;

  explicit Gelu(const Lanes<A>& value) : u(value), square(value * value) {
    sigmoid = sigmoid_of(u * multiply_add(square, A(kSlope * kCubic), A(kSlope)));
  }
  Lanes<A> value() const { return u * sigmoid; }
  Lanes<A> derivative() const {
    const Lanes<A> slope = multiply_add(square, A(3 * kSlope * kCubic), A(kSlope));
    return sigmoid * multiply_add(u * (Lanes<A>(A(1)) - sigmoid), slope, A(1));
  }
};

void bias_gelu(const Shape& shape, const Types& types, const void* x_, const void* bias_, void* y_) {
  with_types<ResultAsTokens>(types, [&]<class X, class C, class Y>(X, C, Y) {
    using A = Accumulated<X>;
    const C* const bias = static_cast<const C*>(bias_);
    over_rows(shape.tokens, shape.width, [&](int64_t row) DTK_WHOLE {
      const X* const x = static_cast<const X*>(x_) + row * shape.width;
      Y* const y = static_cast<Y*>(y_) + row * shape.width;
      over_row<A>(shape.width, [&](int64_t d, auto lanes) {
        store(Gelu<A>(load<A>(x + d, lanes) + load<A>(bias + d, lanes)).value(), y + d, lanes);
      });
    });
  });
}

void bias_gelu_backward(const Shape& shape, const Types& types, const void* dy_, const void* x_,
                        const void* bias_, void* partial_, void* dx_, void* dbias) {
  with_types<ResultAsTokens>(types, [&]<class X, class C, class Y>(X, C, Y) {
    using A = Accumulated<X>;
    const int64_t width = shape.width;
    const C* const bias = static_cast<const C*>(bias_);
    A* const partial = static_cast<A*>(partial_);
    over_parts(shape, [&](int64_t, int64_t part, int64_t begin, int64_t end) DTK_WHOLE {
      A* const sums = partial + part * width;
      std::fill(sums, sums + width, A(0));
      for (int64_t row = begin; row < end; ++row) {
        const Y* const dy = static_cast<const Y*>(dy_) + row * width;
        const X* const x = static_cast<const X*>(x_) + row * width;
        X* const dx = static_cast<X*>(dx_) + row * width;
        over_row<A>(width, [&](int64_t d, auto lanes) {
          const Gelu<A> gelu(load<A>(x + d, lanes) + load<A>(bias + d, lanes));
          const Lanes<A> gradient = load<A>(dy + d, lanes) * gelu.derivative();
          store(load<A>(sums + d, lanes) + gradient, sums + d, lanes);
          store(gradient, dx + d, lanes);
        });
      }
    });
    add_parts<A, C>(shape, partial, 0, 1, dbias);
  });
}

void rms_norm(const Shape& shape, const Types& types, const void* x_, const void* weight_, double eps,
              void* y_, void* rstd_) {
  with_types<AnyTypes>(types, [&]<class X, class W, class Y>(X, W, Y) {
    using A = Accumulated<X>;
    const int64_t width = shape.width;
    const W* const weight = static_cast<const W*>(weight_);
    over_rows(shape.tokens, width, [&](int64_t row) {
      const X* const x = static_cast<const X*>(x_) + row * width;
      Y* const y = static_cast<Y*>(y_) + row * width;
      Lanes<A> squares;
      over_row<A>(width, [&](int64_t d, auto lanes) {
        const Lanes<A> value = load<A>(x + d, lanes);
        squares = multiply_add(value, value, squares);
      });
      const A rstd = A(1) / std::sqrt(squares.sum() / static_cast<A>(width) + static_cast<A>(eps));
      over_row<A>(width, [&](int64_t d, auto lanes) {
        store(load<A>(x + d, lanes) * rstd * load<A>(weight + d, lanes), y + d, lanes);
      });
      static_cast<A*>(rstd_)[row] = rstd;
    });
  });
}

// dx = rstd·(g - x̂·mean(g·x̂)) with g = dy·weight, the mean over D; dweight = Σ dy·x̂ over rows.
void rms_norm_backward(const Shape& shape, const Types& types, const void* dy_, const void* x_,
                       const void* rstd_, const void* weight_, void* partial_, void* dx_, void* dweight) {
  with_types<AnyTypes>(types, [&]<class X, class W, class Y>(X, W, Y) {
    using A = Accumulated<X>;
    const int64_t width = shape.width;
    const W* const weight = static_cast<const W*>(weight_);
    A* const partial = static_cast<A*>(partial_);
    over_parts(shape, [&](int64_t, int64_t part, int64_t begin, int64_t end) {
      A* const sums = partial + part * width;
      if (partial != nullptr) std::fill(sums, sums + width, A(0));
      for (int64_t row = begin; row < end; ++row) {
        const Y* const dy = static_cast<const Y*>(dy_) + row * width;
        const X* const x = static_cast<const X*>(x_) + row * width;
        X* const dx = static_cast<X*>(dx_) + row * width;
        const A rstd = static_cast<const A*>(rstd_)[row];
        Lanes<A> product;
        over_row<A>(width, [&](int64_t d, auto lanes) {
          const Lanes<A> of_weight = load<A>(dy + d, lanes) * (load<A>(x + d, lanes) * rstd);
          if (partial != nullptr) store(load<A>(sums + d, lanes) + of_weight, sums + d, lanes);
          product = multiply_add(of_weight, load<A>(weight + d, lanes), product);
        });
        const A mean_product = product.sum() / static_cast<A>(width);
        over_row<A>(width, [&](int64_t d, auto lanes) {
          const Lanes<A> normal = load<A>(x + d, lanes) * rstd;
          const Lanes<A> gradient = load<A>(dy + d, lanes) * load<A>(weight + d, lanes);
          store((gradient - normal * mean_product) * rstd, dx + d, lanes);
        });
      }
    });
    if (partial != nullptr) add_parts<A, W>(shape, partial, 0, 1, dweight);
  });
}

void silu_mul(const Shape& shape, const Types& types, const void* gate_, const void* up_, void* y_) {
  with_types<OneType>(types, [&]<class X, class C, class Y>(X, C, Y) {
    using A = Accumulated<X>;
    over_rows(shape.tokens, shape.width, [&](int64_t row) DTK_WHOLE {
      const int64_t first = row * shape.width;
      over_row<A>(shape.width, [&](int64_t d, auto lanes) {
        const Lanes<A> gate = load<A>(static_cast<const X*>(gate_) + first + d, lanes);
        const Lanes<A> up = load<A>(static_cast<const X*>(up_) + first + d, lanes);
        store(gate * sigmoid_of(gate) * up, static_cast<X*>(y_) + first + d, lanes);
      });
    });
  });
}

void silu_mul_backward(const Shape& shape, const Types& types, const void* dy_, const void* gate_,
                       const void* up_, void* dgate_, void* dup_) {
  with_types<OneType>(types, [&]<class X, class C, class Y>(X, C, Y) {
    using A = Accumulated<X>;
    over_rows(shape.tokens, shape.width, [&](int64_t row) DTK_WHOLE {
      const int64_t first = row * shape.width;
      over_row<A>(shape.width, [&](int64_t d, auto lanes) {
        const Lanes<A> out = load<A>(static_cast<const X*>(dy_) + first + d, lanes);
        const Lanes<A> gate = load<A>(static_cast<const X*>(gate_) + first + d, lanes);
        const Lanes<A> up = load<A>(static_cast<const X*>(up_) + first + d, lanes);
        const Lanes<A> sigmoid = sigmoid_of(gate);
        const Lanes<A> slope = multiply_add(gate, Lanes<A>(A(1)) - sigmoid, A(1));
        store(out * up * sigmoid * slope, static_cast<X*>(dgate_) + first + d, lanes);
        store(out * gate * sigmoid, static_cast<X*>(dup_) + first + d, lanes);
      });
    });
  });
}

void rotate(const Heads& shape, const Types& types, const void* x_, const void* cosine_, const void* sine_,
            bool back, void* y_) {
  with_types<ResultAsTokens>(types, [&]<class X, class C, class Y>(X, C, Y) {
    using A = Accumulated<X>;
    const int64_t half = shape.width / shape.parts / 2;
    over_rows(shape.samples * shape.tokens, shape.heads * shape.width, [&](int64_t row) {
      const int64_t sample = row / shape.tokens, token = row % shape.tokens;
      const C* const cosine = static_cast<const C*>(cosine_) + token * shape.width;
      const C* const sine = static_cast<const C*>(sine_) + token * shape.width;
      for (int64_t head = 0; head < shape.heads; ++head) {
        const X* const x = static_cast<const X*>(x_) + sample * shape.of_sample + token * shape.of_token +
                           head * shape.of_head;
        X* const y = static_cast<X*>(y_) + (row * shape.heads + head) * shape.width;
        for (int64_t first = 0; first < shape.width; first += 2 * half) {
          over_row<A>(half, [&](int64_t d, auto lanes) {
            const int64_t i = first + d, j = i + half;
            const Lanes<A> a = load<A>(x + i, lanes), b = load<A>(x + j, lanes);
            const Lanes<A> sine_a = load<A>(sine + i, lanes), sine_b = load<A>(sine + j, lanes);
            const Lanes<A> along_a = a * load<A>(cosine + i, lanes), along_b = b * load<A>(cosine + j, lanes);
            store(back ? multiply_add(b, sine_b, along_a) : along_a - b * sine_a, y + i, lanes);
            store(back ? along_b - a * sine_a : multiply_add(a, sine_b, along_b), y + j, lanes);
          });
        }
      }
    });
  });
}

}  // namespace

extern const CpuKernels kernels;
const CpuKernels kernels{&norm_modulate, &norm_modulate_backward, &gated_add, &gated_add_backward,
                         &bias_gelu,     &bias_gelu_backward,     &rms_norm,  &rms_norm_backward,
                         &silu_mul,      &silu_mul_backward,      &rotate};

}  // namespace CPU_CAPABILITY
}  // namespace dtk::ops
