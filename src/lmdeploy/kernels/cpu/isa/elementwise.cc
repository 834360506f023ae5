// The ops that work element by element: activations, sums, factors, limits.
#include "lmdeploy/kernels/cpu/isa/functions.h"
#include "lmdeploy/kernels/cpu/isa/simd.h"

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

/// x / (1 + e^-y): relative errors of the parts stay relative in the result.
LMD_INLINE VecF times_sigmoid(VecF x, VecF y) { return x / (1.0f + exp(-y)); }

/// The normal distribution's upper tail, 1 - Phi(x) = erfc(x / sqrt(2)) / 2, for x >= 0: e^(-x^2 / 2) t p(t)
/// with t = 1 / (1 + 0.3 x). The polynomial interpolates e^(x^2 / 2) (1 - Phi(x)) / t at the Chebyshev nodes
/// of t on [0, 14.5] in x, past which the tail is 0 in f32; with its coefficients rounded to f32 it is within
/// 2^-25.5 of that. Rounding x^2 / 2 adds x^2 / 2 units in the last place.
LMD_INLINE VecF normal_tail(VecF x) {
  const VecF t = 1.0f / fma(x, splat(0.3f), splat(1.0f));
  VecF p = splat(-0x1.5757fp-6f);
  p = fma(p, t, splat(0x1.d3ffap-4f));
  p = fma(p, t, splat(-0x1.dc35c2p-3f));
  p = fma(p, t, splat(0x1.949566p-3f));
  p = fma(p, t, splat(-0x1.58f03cp-4f));
  p = fma(p, t, splat(0x1.945262p-4f));
  p = fma(p, t, splat(0x1.3d836ap-4f));
  p = fma(p, t, splat(0x1.c44618p-4f));
  p = fma(p, t, splat(0x1.e9adb6p-4f));
  p = fma(p, t, splat(0x1.ea3db4p-4f));
  return exp(x * x * -0.5f) * (p * t);
}

template <Activation kActivation>
LMD_INLINE VecF activated(VecF x) {
  if constexpr (kActivation == Activation::kSilu) return times_sigmoid(x, x);
  if constexpr (kActivation == Activation::kQuickGelu) return times_sigmoid(x, x * 1.702f);
  if constexpr (kActivation == Activation::kRelu) return larger(splat(0), x);  // a NaN passes
  if constexpr (kActivation == Activation::kGelu) {
    const VecF tail = normal_tail(absolute(x));
    return x * (x > 0.0f ? 1.0f - tail : tail);
  }
  if constexpr (kActivation == Activation::kGeluTanh)  // (1 + tanh u) / 2 = sigmoid(2 u)
    return times_sigmoid(x, fma(x * x * 0.044715f, x, x) * 0x1.988454p0f);
  return x;
}

/// out[i] = value(i, n - i) for each vector.
template <class Value>
LMD_INLINE void for_vectors(float* out, int64_t n, const Value& value) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, value(i, kLanes));
  if (i < n) store(out + i, value(i, n - i), n - i);
}

/// body.template run<activation>() for the activation's constant.
template <class Body>
LMD_INLINE void for_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::kSilu:
      return body.template run<Activation::kSilu>();
    case Activation::kGelu:
      return body.template run<Activation::kGelu>();
    case Activation::kGeluTanh:
      return body.template run<Activation::kGeluTanh>();
    case Activation::kQuickGelu:
      return body.template run<Activation::kQuickGelu>();
    case Activation::kRelu:
      return body.template run<Activation::kRelu>();
  }
}

struct ActivateRow {
  float* out;
  const float* x;
  int64_t n;
  template <Activation kActivation>
  LMD_INLINE void run() const {
    for_vectors(out, n,
                [this](int64_t i, int64_t rest) { return activated<kActivation>(load(x + i, rest)); });
  }
};

struct GluRow {
  float* out;
  const float* gate;
  const float* up;
  int64_t n;
  template <Activation kActivation>
  LMD_INLINE void run() const {
    for_vectors(out, n, [this](int64_t i, int64_t rest) {
      return activated<kActivation>(load(gate + i, rest)) * load(up + i, rest);
    });
  }
};

/// x cut to [-limit, limit]; a NaN passes.
LMD_INLINE VecF limited(VecF x, float limit) { return smaller(splat(limit), larger(splat(-limit), x)); }

}  // namespace

void activate(Activation activation, float* out, const float* x, int64_t n) {
  for_activation(activation, ActivateRow{out, x, n});
}

void glu(Activation activation, float* out, const float* gate, const float* up, int64_t n) {
  for_activation(activation, GluRow{out, gate, up, n});
}

void clamped_glu(float* out, const float* gate, const float* up, int64_t n, float limit) {
  for_vectors(out, n, [=](int64_t i, int64_t rest) {
    const VecF g = smaller(splat(limit), load(gate + i, rest));
    return (limited(load(up + i, rest), limit) + 1.0f) * times_sigmoid(g, g * 1.702f);
  });
}

void add(float* out, const float* a, const float* b, int64_t n) {
  for_vectors(out, n, [=](int64_t i, int64_t rest) { return load(a + i, rest) + load(b + i, rest); });
}

void scale(float* x, int64_t n, float factor) {
  for_vectors(x, n, [=](int64_t i, int64_t rest) { return load(x + i, rest) * factor; });
}

void clamp(float* x, int64_t n, float limit) {
  for_vectors(x, n, [=](int64_t i, int64_t rest) { return limited(load(x + i, rest), limit); });
}

void soft_cap(float* x, int64_t n, float cap) {
  for_vectors(x, n, [=](int64_t i, int64_t rest) { return tanh(load(x + i, rest) / cap) * cap; });
}

void weighted_sum(float* out, int64_t n, const float* x, int64_t stride, const int32_t* rows,
                  const float* weights, int64_t count) {
  for_vectors(out, n, [=](int64_t i, int64_t rest) {
    VecF sum{};
    for (int64_t j = 0; j < count; ++j)
      sum = fma(load(x + rows[j] * stride + i, rest), splat(weights[j]), sum);
    return sum;
  });
}

}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
