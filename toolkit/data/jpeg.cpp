#include <csetjmp>
#include <cstddef>
#include <cstdio>

#include "toolkit/data/image_decoders.h"
// It needs the two above, and includes neither.
#include <jerror.h>
#include <jpeglib.h>

namespace dtk {
namespace {

// Each scan of a progressive file goes over the whole picture; cameras and programs write 10 or so.
constexpr int kMaxScans = 100;

/// What passes for damage at libjpeg only, and leaves every pixel as it was stored.
bool is_harmless(int warning) {
  return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_ADOBE_XFORM || warning == JWRN_JFIF_MAJOR;
}

/// libjpeg gives up by a jump over the frames between: nothing in what run() calls has a destructor.
class JpegFile {
 public:
  explicit JpegFile(std::string_view encoded) {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = [](j_common_ptr info) {
      info->err->format_message(info, errors_of(info).reason);
      std::longjmp(errors_of(info).leave, 1);
    };
    errors_.base.emit_message = [](j_common_ptr info, int level) {
      if (level < 0 && !is_harmless(info->err->msg_code)) info->err->error_exit(info);
    };
    progress_.progress_monitor = [](j_common_ptr info) {
      if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
      std::snprintf(errors_of(info).reason, sizeof errors_of(info).reason, "more than %d scans", kMaxScans);
      std::longjmp(errors_of(info).leave, 1);
    };
    run([&] {
      jpeg_create_decompress(&info_);
      info_.progress = &progress_;
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(encoded.data()), encoded.size());
      jpeg_read_header(&info_, TRUE);
    });
  }
  JpegFile(const JpegFile&) = delete;
  JpegFile& operator=(const JpegFile&) = delete;
  ~JpegFile() { jpeg_destroy_decompress(&info_); }

  ImageHeader header() const {
    return {
        .size = {.channels = info_.num_components, .height = info_.image_height, .width = info_.image_width},
        .components = info_.num_components,
        .is_cmyk = info_.num_components == 4};
  }

  void decode(uint8_t* pixels) {
    run([&] {
      info_.out_color_space = info_.num_components == 1   ? JCS_GRAYSCALE
                              : info_.num_components == 4 ? JCS_CMYK
                                                          : JCS_RGB;
      jpeg_start_decompress(&info_);
      const size_t row_bytes = size_t{info_.output_width} * static_cast<size_t>(info_.output_components);
      while (info_.output_scanline < info_.output_height) {
        JSAMPROW row = pixels + info_.output_scanline * row_bytes;
        jpeg_read_scanlines(&info_, &row, 1);
      }
      jpeg_finish_decompress(&info_);
    });
  }

 private:
  struct Errors {
    jpeg_error_mgr base;
    std::jmp_buf leave;
    char reason[JMSG_LENGTH_MAX];
  };
  static Errors& errors_of(j_common_ptr info) { return *reinterpret_cast<Errors*>(info->err); }

  template <class Steps>
  void run(const Steps& steps) {
    if (setjmp(errors_.leave) != 0) {
      const std::string reason = errors_.reason;
      if (!is_made_) jpeg_destroy_decompress(&info_);  // in the constructor: no destructor follows
      throw Undecodable{reason};
    }
    steps();
    is_made_ = true;
  }

  jpeg_decompress_struct info_ = {};
  jpeg_progress_mgr progress_ = {};
  Errors errors_ = {};
  bool is_made_ = false;
};

}  // namespace

const ImageDecoder jpeg_decoder = {
    [](std::string_view encoded) { return JpegFile(encoded).header(); },
    [](std::string_view encoded, const ImageSize&, uint8_t* pixels) { JpegFile(encoded).decode(pixels); }};

}  // namespace dtk
