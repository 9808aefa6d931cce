// What most benchmarks and examples include, compiled once (cmake/DtkLibrary.cmake); no file includes it by name.
#pragma once
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dtk/planner/simulate.h>
#include <dtk/policies/policy_set.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cxxopts.hpp>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>
