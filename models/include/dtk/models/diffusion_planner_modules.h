// Modules of the driving model by what they are: those that policies begin with, and the parts that its
// bytes are summed up by. Free of LibTorch.
//
// Lists are globs over DiffusionPlanner::paths(), "*" for one component, as policies take them. All throw
// std::invalid_argument with the first of problems(options).
#pragma once
#include <dtk/models/diffusion_planner_options.h>

#include <string>
#include <string_view>
#include <vector>

namespace dtk::models {

/// Blocks of all encoders of sequences. They keep most of what backward needs, and are cheaper to
/// recompute, for each byte, than any transformer block.
std::vector<std::string> mixer_blocks(const DiffusionPlannerOptions& options);

/// Blocks of attention: those over all objects of a scene, and the DiT's.
std::vector<std::string> transformer_blocks(const DiffusionPlannerOptions& options);

/// For policies.checkpoint.targets where nobody says: all of the above.
std::vector<std::string> checkpoint_targets(const DiffusionPlannerOptions& options);

/// For policies.precision.fp32 where nobody says: the layers in which poses and times enter the DiT, and the
/// one that trajectories leave it by. bf16 has 8 significant bits: from 90 m ahead on it rounds a position to
/// multiples of 0.63 m.
std::vector<std::string> fp32_ends(const DiffusionPlannerOptions& options);

/// The part of the model that a module belongs to: "scene encoders", "fusion", "DiT blocks", "DiT
/// projections", "route encoder" (of UP), "turn indicator"; "objective" for what is in none, as ledgers call
/// the rest of a step.
std::string_view part_of(std::string_view path);

}  // namespace dtk::models
