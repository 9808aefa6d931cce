// What dit-plan prints of a job that only infers: texts, and JSON of the same.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "toolkit/plan/inference.h"
#include "toolkit/plan/inference_counts.h"

namespace dtk {

/// With a budget also whether each row fits.
std::string inference_table_text(const std::string& name, const std::vector<InferenceRow>& rows,
                                 std::optional<int64_t> budget);
nlohmann::ordered_json inference_table_json(const std::vector<InferenceRow>& rows);

std::string count_table_text(const std::string& name, const CountTable& table);
nlohmann::ordered_json count_table_json(const CountTable& table);

/// What is said of policies in such passes, each beside plans of the job with and without, and of their
/// bytes.
std::string inference_claims_text(const std::string& name, const LoadedConfig& loaded, c10::Device device,
                                  const planner::SimulationOptions& options = {});

/// Lines of what was set for a job: "set  policies.inference.head_chunk = 4, with which <why>".
std::string set_text(const LoadedConfig& asked, const LoadedConfig& taken, const std::string& why);
/// `notes`: of policies_without_use().
std::string notes_text(const std::vector<std::string>& notes);
/// A JSON object with "notes", with "set" what was set for the job, by key, and "rows", where there are such.
nlohmann::ordered_json inference_json(nlohmann::ordered_json object, const LoadedConfig& asked,
                                      const LoadedConfig& taken, const std::vector<std::string>& notes,
                                      const std::vector<InferenceRow>& rows = {});
/// `asked`: the job before what was set for it.
std::string largest_count_text(const std::string& name, const LoadedConfig& asked, const LargestCount& found,
                               int64_t bytes);

}  // namespace dtk
