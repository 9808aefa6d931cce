// report.html: one page about a run, in one file that refers to nothing outside of it and needs no script.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "toolkit/config/config_io.h"
#include "toolkit/report/history.h"
#include "toolkit/report/memory_report.h"

namespace dtk {

struct ReportImage {
  int64_t step = 0;
  std::string png;    // the file's bytes
  int64_t width = 0;  // pixels
};

struct RunReport {
  std::string folder;               // train.out
  std::string state;                // "finished", "stopped", "at the checkpoint of step 500"
  std::string model, data, device;  // one line each
  std::string sample_name = "images";
  std::string data_note;  // what is amiss with the data; "" if nothing is
  std::vector<ConfigRow> config;
  RunHistory history;
  std::optional<MemoryReport> memory;   // of this process; absent with memory.ledger = false
  std::optional<MemoryReport> planned;  // before it began
  std::string not_planned;              // what that counts as 0 bytes: "scratch of 6 operators"; or ""
  std::vector<ReportImage> samples;     // in the order of their steps
  std::string samples_note;             // what they show, and what is not shown
  std::optional<double> peak_flops;     // of the device, what MFU is a part of
  double clip = 0;                      // of the gradient norm; 0: none
};

/// The page: HTML that is well-formed XML too. Whatever comes from the user is escaped.
std::string report_html(const RunReport& report);

/// The mean of each value with up to `half` values on either side, the same number on both: so a curve that
/// falls is not shifted, and its ends stay.
std::vector<double> smoothed(const std::vector<double>& values, size_t half);

}  // namespace dtk
