// Scenes to train on. A folder of folders, each a scene of S frames:
//   frames/*.png, *.jpg   in natural order, all of vggt.data.height x vggt.data.width
//   depth.npy             (S, H, W), fp32: along the optical axis, above 0 where it is known, else 0
//   cameras.json          {"frames": [{"rotation": [[3], [3], [3]], "translation": [3], "focal": [x, y]},
//   ...]}:
//                         camera from world, pixels (geometry.h)
// A sample's world is that of its first frame's camera, scaled so that this frame's mean depth is 1.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "toolkit/config/config_io.h"
#include "toolkit/data/held_out.h"
#include "toolkit/families/vggt/geometry.h"
#include "toolkit/families/vggt/options.h"

namespace dtk::vggt {

/// Batches are pictures (B, S, 3, H, W) in [0, 1], poses (B, S, 9) and depths (B, S, H, W).
enum BatchTensor : size_t { kPictures, kPoses, kDepths };
/// Not filled.
Batch allocate_batch(const SceneOptions& data, int64_t scenes, at::TensorOptions options);

/// Those of a cameras.json. Throws DataError that begins with `name` for any other text, a rotation that is
/// none, numbers that are not finite or, of focal lengths, not above 0, and a frame's "file" that is another
/// than in `files`, where that has one for it.
std::vector<Camera> parse_cameras(std::string_view text, const std::string& name,
                                  const std::vector<std::string>& files = {});
/// As parse_cameras() reads it, with `files`, a name for each, and `note`, where it is not "".
std::string cameras_json(const std::vector<Camera>& cameras, const std::vector<std::string>& files,
                         const std::string& note);

/// All scenes of vggt.data.scenes, looked at; frames are read when they are asked for, depths stay in memory.
/// `before`: as ModelFamily::open_data() takes it. Throws DataError naming the file.
RunData open_scenes(const LoadedConfig& loaded, const DataIdentity* before = nullptr);
/// What stands for them in a plan.
RunData planned_scenes(const RunConfig& config, int64_t samples);

}  // namespace dtk::vggt
