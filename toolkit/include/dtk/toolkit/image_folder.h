// A folder of images, one sub-folder per class.
#pragma once
#include <dtk/toolkit/data_source.h>
#include <dtk/toolkit/image.h>

#include <filesystem>
#include <memory>

namespace dtk {

/// Name of the file that marks an image folder as drawn by a program; description() then says "synthetic".
inline constexpr const char* synthetic_marker = "SYNTHETIC.txt";

/// Opens `folder`/<class>/<image>.png|jpg|jpeg|bmp. Class folders sorted by name (byte order: "10" comes
/// before "2") are classes 0, 1, ...; samples are sorted by class, then by file name. Every image must have
/// exactly `size`; nothing is resized, cropped or converted. Values are scaled to [-1, 1]. Images are decoded
/// here, once, and stay in memory as bytes. Plain files beside the class folders and names that start with a
/// dot are passed over; any other file among the images is an error.
///
/// Throws DataError naming the folder or file.
std::unique_ptr<DataSource> open_image_folder(const std::filesystem::path& folder, const ImageSize& size);

}  // namespace dtk
