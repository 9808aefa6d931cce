// A transformer over the steps of the forces, of which each token knows where the masses start.
#pragma once
#include <ATen/core/Generator.h>
#include <dtk/models/layers.h>
#include <dtk/models/seam.h>

#include <optional>

#include "options.h"

namespace springs {

namespace models = dtk::models;

struct Block {
  models::Linear qkv, proj, in, out;
};

class Network {
 public:
  /// Weights are drawn from `generator`; absent: the device's default one.
  Network(const Table& sizes, c10::Device device, std::optional<at::Generator> generator);

  const models::NamedTensors& parameters() const { return parameters_; }
  /// "embed", "blocks.0", ..., "head".
  const std::vector<std::string>& paths() const { return paths_; }

  /// Start (N, 2, 2) and forces (N, T) -> positions (N, T, 2).
  at::Tensor forward(at::Tensor start, at::Tensor forces) const;

  models::Seam seam;

 private:
  at::Tensor run(const std::string& path, const models::ModuleFn& fn, models::Tensors&& inputs) const;
  at::Tensor embed(at::Tensor start, at::Tensor forces) const;
  at::Tensor block(const Block& layer, at::Tensor x) const;
  at::Tensor attention(const Block& layer, at::Tensor x) const;

  int64_t heads_;
  at::Tensor position_;  // (T, D)
  models::Linear start_, force_, head_;
  std::vector<Block> blocks_;
  models::NamedTensors parameters_;
  std::vector<std::string> paths_;
};

}  // namespace springs
