// A file that keeps nothing of what is written into it.
#pragma once
#include <cstddef>

#include "toolkit/io/file_system.h"

namespace dtk {

class ForgottenFile final : public WritableFile {
  void write(const void*, size_t) override {}
  void sync() override {}
  void close() override {}
};

}  // namespace dtk
