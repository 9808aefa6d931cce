#include "toolkit/data/latents.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/temporary_folder.h"
#include "toolkit/core/errors.h"
#include "toolkit/io/npy.h"
#include "toolkit/io/safetensors.h"

using dtk::DataError;
using dtk::LatentFiles;
using dtk::open_latents;
using dtk::test::error_text;
using dtk::test::TemporaryFolder;

namespace {

std::filesystem::path save_npy(const TemporaryFolder& folder, const std::string& name,
                               const at::Tensor& values) {
  const auto file = dtk::posix_file_system().create(folder / name);
  dtk::write_npy(*file, values);
  file->close();
  return folder / name;
}

std::filesystem::path save_safetensors(const TemporaryFolder& folder, const std::string& name,
                                       const std::vector<dtk::NamedTensor>& tensors) {
  const auto file = dtk::posix_file_system().create(folder / name);
  dtk::write_safetensors(*file, tensors);
  file->close();
  return folder / name;
}

/// (3, 2, 2, 2): 0.5, 1, 1.5, ...
at::Tensor numbers() {
  return (at::arange(24, at::kFloat) * 0.5).add_(0.5).view({3, 2, 2, 2});
}

at::Tensor three_labels() {
  return at::tensor({1, 0, 2}, at::kLong);
}

std::string refusal(const LatentFiles& files) {
  return error_text<DataError>([&] { open_latents(files); });
}

}  // namespace

TEST_CASE("latents: float32, float16 and bfloat16 come as float32, shifted and scaled") {
  const TemporaryFolder folder;
  const auto label_file = save_npy(folder, "labels.npy", three_labels());
  std::vector<std::pair<LatentFiles, std::string>> all;
  all.push_back({{save_npy(folder, "f4.npy", numbers()), label_file, 2.0, 0.25}, "float32, f4.npy"});
  all.push_back(
      {{save_npy(folder, "f2.npy", numbers().to(at::kHalf)), label_file, 2.0, 0.25}, "float16, f2.npy"});
  for (const auto& [type, name] : {std::pair(at::kFloat, "float32"), std::pair(at::kHalf, "float16"),
                                   std::pair(at::kBFloat16, "bfloat16")}) {
    const std::string file = std::string(name) + ".safetensors";
    const auto path =
        save_safetensors(folder, file, {{"latents", numbers().to(type)}, {"labels", three_labels()}});
    all.push_back({{path, "", 2.0, 0.25}, std::string(name) + ", " + file});
  }
  for (const auto& [files, kind] : all) {
    INFO(files.latents);
    const auto source = open_latents(files);
    CHECK(source->size() == 3);
    CHECK(source->channels() == 2);
    CHECK(source->height() == 2);
    CHECK(source->width() == 2);
    CHECK(source->classes() == 3);
    CHECK(source->description() == "3 latents 2x2x2, 3 classes (" + kind + ")");
    at::Tensor values = at::empty({3, 2, 2, 2});
    std::vector<int64_t> seen;
    for (int64_t i = 0; i < 3; ++i) seen.push_back(source->read_image(i, values.data_ptr<float>() + 8 * i));
    CHECK(at::equal(values, (numbers() - 0.25) * 2));
    CHECK(seen == std::vector<int64_t>{1, 0, 2});
  }
}

TEST_CASE("latents: known by their files and the labels") {
  const TemporaryFolder folder;
  const auto labels = save_npy(folder, "labels.npy", three_labels());
  const dtk::DataIdentity found = open_latents({save_npy(folder, "f4.npy", numbers()), labels})->identity();
  REQUIRE(found.files.size() == 2);
  CHECK(found.files[0].name == "f4.npy");
  CHECK(found.files[0].bytes == static_cast<int64_t>(std::filesystem::file_size(folder / "f4.npy")));
  CHECK(found.files[1].name == "labels.npy");
  CHECK(found.classes == dtk::numbered_classes({1, 0, 2}));
}

TEST_CASE("latents: labels of a safetensors file may lie in a file of their own") {
  const TemporaryFolder folder;
  const auto path = save_safetensors(folder, "a.safetensors", {{"latents", numbers()}});
  const auto label_file = save_npy(folder, "labels.npy", three_labels());
  CHECK(open_latents({path, label_file})->classes() == 3);
  CHECK(refusal({path, ""}) ==
        path.string() + ": has no tensor \"labels\"; add it, or give data.labels, a .npy file of int64");
  const auto both =
      save_safetensors(folder, "b.safetensors", {{"latents", numbers()}, {"labels", three_labels()}});
  CHECK(refusal({both, label_file}) ==
        both.string() + ": holds labels, and data.labels names others; remove one of them");
  const auto npy = save_npy(folder, "a.npy", numbers());
  CHECK(refusal({npy, ""}) == npy.string() +
                                  ": a .npy file holds no labels; give data.labels, a .npy file of int64 "
                                  "(--init takes labels.npy beside it)");
}

TEST_CASE("latents: a value that is not finite is never given out") {
  const TemporaryFolder folder;
  const auto label_file = save_npy(folder, "labels.npy", three_labels());
  // Of the three samples that are labelled 1, 0, 2, the second is bad.
  const auto check = [](const LatentFiles& files) {
    const auto source = open_latents(files);
    std::vector<float> out(8);
    CHECK(source->read_image(0, out.data()) == 1);
    CHECK(error_text<DataError>([&] { source->read_image(1, out.data()); }) ==
          files.latents.string() +
              ": sample 1 holds a value that is not finite (NaN or infinite); make its latents "
              "again, or take the sample out");
    CHECK(source->read_image(2, out.data()) == 2);
  };
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    at::Tensor values = numbers();
    values[1][1][1][1] = bad;
    for (const auto type : {at::kFloat, at::kHalf})
      check({save_npy(folder, "bad.npy", values.to(type)), label_file});
    for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      check({save_safetensors(folder, "bad.safetensors",
                              {{"latents", values.to(type)}, {"labels", three_labels()}}),
             ""});
    }
  }
  // Also one that only the scale makes infinite.
  const auto path = save_npy(folder, "large.npy", at::full({1, 1, 1, 1}, 3e38));
  const auto one = save_npy(folder, "one.npy", at::zeros({1}, at::kLong));
  std::vector<float> out(1);
  CHECK_THROWS_AS(open_latents({path, one, 10.0})->read_image(0, out.data()), DataError);
}

TEST_CASE("latents: a file larger than the machine's memory is never read as a whole") {
  const TemporaryFolder folder;
  constexpr int64_t samples = 16'384, values = 4 * 1024 * 1024;  // 256 GiB, all of it a hole
  const auto label_file = save_npy(folder, "labels.npy", at::arange(samples, at::kLong).remainder(10));
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (16384, 4, 1024, 1024), }";
  header.resize(117, ' ');
  header = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n";
  const auto path = folder.write("hole.npy", header);
  std::filesystem::resize_file(path, header.size() + samples * values * sizeof(float));

  const auto source = open_latents({path, label_file});
  CHECK(source->size() == samples);
  std::vector<float> last(values, 1.0F);
  CHECK(source->read_image(samples - 1, last.data()) == (samples - 1) % 10);
  CHECK(std::count(last.begin(), last.end(), 0.0F) == values);
}

TEST_CASE("latents: other dtypes and shapes are refused") {
  const TemporaryFolder folder;
  const auto label_file = save_npy(folder, "labels.npy", three_labels());
  const auto of = [&](const at::Tensor& values) {
    const auto path = save_npy(folder, "a.npy", values);
    const std::string text = refusal({path, label_file});
    REQUIRE(text.starts_with(path.string() + ": "));
    return text.substr(path.string().size() + 2);
  };
  CHECK(of(numbers().to(at::kDouble)) ==
        "latents are float64; allowed: float32, float16 or bfloat16; save them as one of these");
  CHECK(of(numbers().to(at::kByte)) ==
        "latents are uint8; allowed: float32, float16 or bfloat16; save them as one of these");
  CHECK(of(numbers().view({3, 8})) ==
        "latents have the shape (3, 8); allowed: (samples, channels, height, width), none of them 0; save "
        "them so");
  CHECK(of(at::zeros({3, 0, 2, 2})) ==
        "latents have the shape (3, 0, 2, 2); allowed: (samples, channels, height, width), none of them 0; "
        "save them so");
  CHECK(of(at::zeros({0, 2, 2, 2})) ==
        "holds no latents: their shape is (0, 2, 2, 2); allowed: at least one sample; make the file again, "
        "or name another");
}

TEST_CASE("latents: labels that do not belong to them are refused") {
  const TemporaryFolder folder;
  const auto path = save_npy(folder, "a.npy", numbers());
  const auto of = [&](const at::Tensor& values) {
    const auto label_file = save_npy(folder, "labels.npy", values);
    const std::string text = refusal({path, label_file});
    REQUIRE(text.starts_with(label_file.string() + ": "));
    return text.substr(label_file.string().size() + 2);
  };
  CHECK(of(three_labels().to(at::kInt)) == "labels are int32; allowed: int64; save them as int64");
  CHECK(of(at::zeros({4}, at::kLong)) ==
        "labels have the shape (4); allowed: (3), one for each sample of the latents; give the labels of "
        "these latents");
  CHECK(of(at::zeros({3, 1}, at::kLong)) ==
        "labels have the shape (3, 1); allowed: (3), one for each sample of the latents; give the labels of "
        "these latents");
  CHECK(of(at::tensor({0, -1, 2}, at::kLong)) ==
        "label 1 is -1; allowed: classes from 0 to 999999999; number the classes from 0");
  CHECK(of(at::tensor(std::vector<int64_t>{0, 1, std::numeric_limits<int64_t>::max()}, at::kLong)) ==
        "label 2 is 9223372036854775807; allowed: classes from 0 to 999999999; number the classes from 0");
}

TEST_CASE("latents: damaged and missing files are named") {
  const TemporaryFolder folder;
  const auto label_file = save_npy(folder, "labels.npy", three_labels());
  const auto gone = folder / "gone.npy";
  CHECK(refusal({gone, label_file}) ==
        "cannot read " + gone.string() + ": No such file or directory; check the path");
  CHECK(refusal({folder.path() / "x.npy", label_file})
            .starts_with("cannot read " + (folder / "x.npy").string()));
  std::filesystem::create_directory(folder / "d.npy");
  CHECK(refusal({folder / "d.npy", label_file}) ==
        "cannot read " + (folder / "d.npy").string() +
            ": it is a folder; give a regular file; check the path");
  CHECK(refusal({folder / "a.pt", label_file}) ==
        (folder / "a.pt").string() +
            ": unknown kind of file; allowed: a name that ends in .npy or .safetensors; save the latents as "
            "one of these");
  const auto empty = folder.write("empty.npy", "");
  CHECK(refusal({empty, label_file}) ==
        empty.string() +
            ": is not a .npy file, which begins with \\x93NUMPY; save the array with numpy.save");
  const auto no_tensors = folder.write("empty.safetensors", "1234");
  CHECK(refusal({no_tensors, label_file}) ==
        no_tensors.string() +
            ": 4 bytes are too few for a safetensors file, which begins with 8 bytes of header length; get "
            "the file again, or write it again");
  const auto other =
      save_safetensors(folder, "other.safetensors", {{"samples", numbers()}, {"y", three_labels()}});
  CHECK(refusal({other, label_file}) ==
        other.string() +
            ": has no tensor \"latents\"; it holds y, samples; store the latents under that name");

  const auto whole =
      save_safetensors(folder, "cut.safetensors", {{"latents", numbers()}, {"labels", three_labels()}});
  std::filesystem::resize_file(whole, std::filesystem::file_size(whole) - 1);
  CHECK(refusal({whole, ""}) ==
        whole.string() +
            ": tensor \"latents\": data_offsets [24,120] reach beyond the 119 bytes of data in the file, "
            "which is truncated or damaged; get the file again, or write it again");
}
