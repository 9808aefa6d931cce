// The part of a comparison of step times that makes steps when a process asks for them: a line of input names
// what it wants, a line of output answers.
#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <map>
#include <string>

namespace dtk::bench {

/// Names as requests, with what they answer by.
using Numbers = std::map<std::string, std::function<double()>>;

/// Until the input ends: "step" makes one and answers "ms" and how long it took, with the device's work;
/// "operators" makes one and answers how often it called each operator, "end 0" behind; a name of `numbers`
/// answers that name and its number. First of all says "ready" and the number of threads. Throws
/// std::invalid_argument for any other request.
void serve(const std::function<void()>& step, c10::Device device, const Numbers& numbers);

}  // namespace dtk::bench
