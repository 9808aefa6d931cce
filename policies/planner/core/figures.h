// Numbers and paragraphs of a report for a terminal.
#pragma once
#include <dtk/policies/memory_accounts.h>

#include <cstdint>
#include <string>

namespace dtk::planner {

/// "17,209,941,680"
std::string digits(int64_t number);
/// "17,209,941,680 bytes"
std::string bytes_text(int64_t number);
/// "83 %", "<1 %"
std::string percent_text(int64_t part, int64_t whole);

/// Whether what is booked so lives from step to step.
bool is_state(policies::Category category);

/// Breaks `text` between words where it would reach 80 columns; all lines begin at `column`, the first with
/// `start`. "83 %" is one word.
std::string paragraph(std::string start, const std::string& text, size_t column);

}  // namespace dtk::planner
