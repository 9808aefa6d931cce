// What most test programs include, compiled once (cmake/DtkLibrary.cmake); no file includes it by name.
#pragma once
// Before Catch2: both define the macro CHECK, and the tests' is Catch2's.
#include <c10/util/Logging.h>
//
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"
