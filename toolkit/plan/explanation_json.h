// The planner's explanation of a job (dtk/planner/explain.h) as JSON, all figures in bytes:
//   {"backward", "state": {category: most}, "saved", "outside", "entering", "most_gain",
//    "segments": [{"path", "saves", "inputs", "gain", "reason"}],
//    "peak": {"bytes", "phase", "path", "in_backward", "operation", "saved",
//             "largest": {"operation", "category", "bytes"}},
//    "largest_parameter": {"name", "bytes", "temporaries", "phase", "operators"},
//    "recomputed": {"segments", "saved", "made_again", "made_again_in", "fetched", "fetched_in", "peak"}
//                   or null,
//    "bounds": [{"category", "bytes"}], "alternatives": [{"name", "peak_bytes", "phase", "problem"}]}
#pragma once
#include <dtk/planner/explain.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dtk {

nlohmann::ordered_json explanation_json(const planner::Explanation& why);

}  // namespace dtk
