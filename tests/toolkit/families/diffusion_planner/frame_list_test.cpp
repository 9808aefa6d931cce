// Which frames of the driving model a folder or a JSON list names, and what is refused.
#include "toolkit/families/diffusion_planner/frame_list.h"

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/temporary_folder.h"
#include "toolkit/core/errors.h"

namespace dtk {

using test::error_text;
using test::TemporaryFolder;

TEST_CASE("diffusion_planner frame list: a list keeps its order, and a folder is sorted") {
  const TemporaryFolder folder;
  for (const std::string name : {"b.npz", "a.npz", "10.npz", "2.npz", ".hidden.npz", "notes.txt"})
    folder.write(name, "");
  CHECK(diffusion_planner::read_frame_list(folder.path()).frames ==
        std::vector<std::string>{folder / "10.npz", folder / "2.npz", folder / "a.npz", folder / "b.npz"});
  const auto list = folder.write("lists/l.json", R"(["../b.npz", "/x/a.npz", "../b.npz"])");
  CHECK(diffusion_planner::read_frame_list(list).frames ==
        std::vector<std::string>{folder / "lists/../b.npz", "/x/a.npz", folder / "lists/../b.npz"});
}

TEST_CASE("diffusion_planner frame list: paths that lead out of its folder are counted") {
  const TemporaryFolder folder;
  const auto outside = [&](const std::string& content) {
    const auto found = diffusion_planner::read_frame_list(folder.write("in/list.json", content));
    return std::to_string(found.outside) + " " + found.first_outside;
  };
  folder.write("b.npz", "");
  folder.write("in/sub/a.npz", "");
  std::filesystem::create_symlink("../b.npz", folder / "in/link.npz");
  std::filesystem::create_symlink("sub/a.npz", folder / "in/near.npz");
  std::filesystem::create_directory_symlink("..", folder / "in/up");
  CHECK(outside(R"(["sub/a.npz", "near.npz", "sub/../sub/a.npz", "not_there.npz"])") == "0 ");
  CHECK(outside(R"(["sub/a.npz", "../b.npz", "/etc/a.npz"])") == "2 ../b.npz");
  CHECK(outside(R"(["link.npz"])") == "1 link.npz");
  CHECK(outside(R"(["up/b.npz", "up/in/sub/a.npz"])") == "1 up/b.npz");
}

TEST_CASE("diffusion_planner frame list: what is no list is refused") {
  const TemporaryFolder folder;
  const std::string wanted = "; wanted: a JSON list of paths of .npz files, as [\"a.npz\", \"b.npz\"]";
  const auto refused = [&](const std::string& content) {
    const auto list = folder.write("list.json", content);
    const std::string text = error_text<DataError>([&] { diffusion_planner::read_frame_list(list); });
    REQUIRE(text.starts_with(list.string()));
    return text.substr(list.string().size());
  };
  CHECK(refused("[]") == ": the list is empty; give at least one frame");
  CHECK(refused(R"({"frames": ["a.npz"]})") == ": holds no list but one JSON object" + wanted);
  CHECK(refused("\"a.npz\"") == ": holds no list but one JSON string" + wanted);
  CHECK(refused("null") == ": holds no list but one JSON null" + wanted);
  CHECK(refused(R"(["a.npz", 7])") == ": entry 1: no text but one JSON number" + wanted);
  CHECK(refused(R"(["a.npz", ["b.npz"]])") == ": entry 1: no text but one JSON array" + wanted);
  CHECK(refused(R"(["a.npz", ""])") == ": entry 1: \"\" is no path" + wanted);
  CHECK(refused(R"(["a.npz\u0000.txt"])") == ": entry 0: \"a.npz\\u0000.txt\" is no path" + wanted);
  CHECK(refused("") == " is not JSON (at byte 1)" + wanted);
  CHECK(refused("a.npz") == " is not JSON (at byte 1)" + wanted);
  CHECK(refused("[\"a.npz\",") == " is not JSON (at byte 10)" + wanted);
  CHECK(refused(std::string(100'000, '[')) == " nests deeper than 8 levels" + wanted);

  const std::string gone = (folder / "gone").string();
  CHECK(error_text<DataError>([&] { diffusion_planner::read_frame_list(gone); }) ==
        gone + ": no such file or folder; give the folder of the frames, or a JSON list of them");
  const TemporaryFolder empty;
  CHECK(error_text<DataError>([&] { diffusion_planner::read_frame_list(empty.path()); }) ==
        empty.path().string() +
            ": holds no .npz file; give the folder of the frames, or a JSON list of them");
}

}  // namespace dtk
