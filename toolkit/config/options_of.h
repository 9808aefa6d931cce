// How a family names its own options: inline constexpr OptionsOf<Options> options_of;
#pragma once

namespace dtk {

/// Of a RunConfig. Throws std::logic_error if the family is not there.
template <class Options>
struct OptionsOf {
  template <class Config>
  Options& operator()(Config& config) const {
    return config.families.template of<Options>();
  }
  template <class Config>
  const Options& operator()(const Config& config) const {
    return config.families.template of<Options>();
  }
};

}  // namespace dtk
