#include <png.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "toolkit/data/image_decoders.h"

namespace dtk {
namespace {

// Texts, profiles and times: what may be compressed in them is not inflated.
constexpr unsigned char kPassedOver[] =
    "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0sPLT\0sRGB\0sTER\0tEXt\0tIME\0zT"
    "Xt";
constexpr int kPassedOverNames = sizeof kPassedOver / 5;

/// libpng gives up by a jump over the frames between: nothing in what run() calls has a destructor.
class PngFile {
 public:
  explicit PngFile(std::string_view encoded)
      : rest_(encoded),
        png_(png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error,
                                    [](png_structp, png_const_charp) {})),
        info_(png_ == nullptr ? nullptr : png_create_info_struct(png_)) {
    if (info_ == nullptr) fail("out of memory");
    run([&] {
      png_set_read_fn(png_, this, read);
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, kPassedOver, kPassedOverNames);
      png_read_info(png_, info_);
      header_.components = png_get_channels(png_, info_);
      header_.is_16_bit = png_get_bit_depth(png_, info_) == 16;
      png_set_scale_16(png_);
      png_set_expand(png_);  // a palette's colours, 8 bits for fewer, transparency as a channel
      png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
      header_.size = {.channels = png_get_channels(png_, info_),
                      .height = png_get_image_height(png_, info_),
                      .width = png_get_image_width(png_, info_)};
    });
  }
  PngFile(const PngFile&) = delete;
  PngFile& operator=(const PngFile&) = delete;
  ~PngFile() { png_destroy_read_struct(&png_, &info_, nullptr); }

  const ImageHeader& header() const { return header_; }

  void decode(uint8_t* pixels) {
    std::vector<png_bytep> rows;
    const auto row_bytes = static_cast<size_t>(header_.size.width * header_.size.channels);
    for (int64_t y = 0; y < header_.size.height; ++y)
      rows.push_back(pixels + static_cast<size_t>(y) * row_bytes);
    png_bytepp const first = rows.data();
    run([&] {
      png_set_benign_errors(png_, 0);  // more compressed data than the picture has is an error
      png_read_image(png_, first);
    });
  }

 private:
  static PngFile& file_of(png_voidp pointer) { return *static_cast<PngFile*>(pointer); }

  [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
    char* const reason = file_of(png_get_error_ptr(png)).reason_;
    std::strncpy(reason, text, sizeof reason_ - 1);
    png_longjmp(png, 1);
  }

  static void read(png_structp png, png_bytep into, size_t bytes) {
    std::string_view& rest = file_of(png_get_io_ptr(png)).rest_;
    if (bytes > rest.size()) png_error(png, "it ends too early");
    std::copy_n(rest.data(), bytes, reinterpret_cast<char*>(into));
    rest.remove_prefix(bytes);
  }

  [[noreturn]] void fail(const std::string& reason) {
    png_destroy_read_struct(&png_, &info_, nullptr);  // also in the constructor, which no destructor follows
    throw Undecodable{reason};
  }

  template <class Steps>
  void run(const Steps& steps) {
    if (setjmp(png_jmpbuf(png_)) != 0) fail(reason_);
    steps();
  }

  std::string_view rest_;
  char reason_[200] = {};
  png_structp png_;
  png_infop info_;
  ImageHeader header_;
};

}  // namespace

const ImageDecoder png_decoder = {
    [](std::string_view encoded) { return PngFile(encoded).header(); },
    [](std::string_view encoded, const ImageSize&, uint8_t* pixels) { PngFile(encoded).decode(pixels); }};

}  // namespace dtk
