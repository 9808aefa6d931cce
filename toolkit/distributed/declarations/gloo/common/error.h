// Nothing of it is named by LibTorch's ProcessGroupGloo.hpp.
#pragma once
