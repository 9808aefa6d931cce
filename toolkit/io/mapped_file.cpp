#include "toolkit/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "toolkit/io/advice.h"

namespace dtk {
namespace {

std::string reason() {
  return std::error_code(errno, std::generic_category()).message();
}

struct OpenFile {
  const int number;
  ~OpenFile() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const OpenFile file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.number < 0 && errno == ENOENT) refuse_data(path, "no such file; check the path");
  if (file.number < 0) refuse_data(path, "cannot be opened: " + reason());
  struct stat status = {};
  if (::fstat(file.number, &status) != 0) refuse_data(path, "cannot be read: " + reason());
  if (!S_ISREG(status.st_mode)) refuse_data(path, "not a regular file; give the path of a data file");
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;  // nothing can be mapped, and there is nothing to read
  void* const start = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.number, 0);
  if (start == MAP_FAILED) refuse_data(path, "cannot be mapped: " + reason());
  start_ = start;
}

MappedFile::~MappedFile() {
  if (start_ != nullptr) ::munmap(start_, size_);
}

}  // namespace dtk
