// fmt::format(): texts with numbers in them.
//
// LibTorch brings headers of another fmt, whose functions none of its libraries exports, and they are found
// first: CMake names the file of the fmt that is linked.
#pragma once
#include DTK_FMT_HEADER
