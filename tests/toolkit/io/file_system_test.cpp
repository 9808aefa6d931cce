#include "toolkit/io/file_system.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "support/catch.h"
#include "support/files/faulty_file_system.h"
#include "support/files/memory_file_system.h"
#include "support/files/temporary_folder.h"
#include "toolkit/core/errors.h"

namespace dtk {
namespace {

using Path = std::filesystem::path;

void write_file(FileSystem& files, const Path& path, const std::string& content) {
  const std::unique_ptr<WritableFile> file = files.create(path);
  file->write(content.data(), content.size());
  file->sync();
  file->close();
}

}  // namespace

TEST_CASE("files are created, truncated, appended to and read", "[file_system]") {
  FileSystem& files = posix_file_system();
  const test::TemporaryFolder folder;
  const Path path = folder / "a";
  write_file(files, path, "first content");
  CHECK(files.read(path) == "first content");
  write_file(files, path, "second");
  CHECK(files.read(path) == "second");
  const std::unique_ptr<WritableFile> file = files.append(path);
  file->write(" third", 6);
  file->close();
  CHECK(files.read(path) == "second third");
  CHECK(files.size(path) == 12);

  char middle[3] = {};
  files.read_into(path, 7, middle, sizeof middle);
  CHECK(std::string(middle, 3) == "thi");
}

TEST_CASE("files of any size are read whole", "[file_system]") {
  FileSystem& files = posix_file_system();
  const test::TemporaryFolder folder;
  for (const size_t bytes : {0, 1, 65535, 65536, 65537, 1'000'000}) {
    std::string content(bytes, 'x');
    if (bytes > 0) content.back() = 'y';
    write_file(files, folder / "a", content);
    CHECK(files.read(folder / "a") == content);
  }
  CHECK_FALSE(files.read("/proc/self/status").empty());
}

TEST_CASE("folders are listed in order, renamed and removed", "[file_system]") {
  FileSystem& files = posix_file_system();
  const test::TemporaryFolder folder;
  CHECK(files.list(folder / "absent").empty());
  files.create_directories(folder / "x/y");
  files.create_directories(folder / "x/y");
  write_file(files, folder / "x/b", "");
  write_file(files, folder / "x/a", "");
  CHECK(files.list(folder / "x") == std::vector<std::string>{"a", "b", "y"});

  files.rename(folder / "x", folder / "z");
  files.sync_directory(folder.path());
  CHECK_FALSE(files.exists(folder / "x"));
  CHECK(files.exists(folder / "z/y"));
  CHECK_FALSE(files.exists(folder / "z/a/below_a_file"));

  files.remove_all(folder / "z");
  CHECK_FALSE(files.exists(folder / "z"));
  files.remove_all(folder / "z");
}

TEST_CASE("errors name the operation, the path and the system's reason", "[file_system]") {
  FileSystem& files = posix_file_system();
  const test::TemporaryFolder folder;
  const std::string base = folder.path().string();
  const Path absent = folder / "absent";
  const std::string missing = ": No such file or directory";
  write_file(files, folder / "file", "12345");

  CHECK_THROWS_WITH(files.create(absent / "a"), "cannot create " + base + "/absent/a" + missing);
  CHECK_THROWS_WITH(files.append(absent / "a"), "cannot open " + base + "/absent/a" + missing);
  CHECK_THROWS_WITH(files.read(absent), "cannot read " + base + "/absent" + missing);
  CHECK_THROWS_WITH(files.read(folder.path()),
                    "cannot read " + base + ": it is a folder; give a regular file");
  CHECK_THROWS_WITH(files.size(absent), "cannot get the size of " + base + "/absent" + missing);
  CHECK_THROWS_WITH(files.list(folder / "file"), "cannot list " + base + "/file: Not a directory");
  CHECK_THROWS_WITH(files.rename(absent, folder / "b"),
                    "cannot rename " + base + "/absent to " + base + "/b" + missing);
  CHECK_THROWS_WITH(files.sync_directory(absent), "cannot sync the folder " + base + "/absent" + missing);
  CHECK_THROWS_WITH(files.create_directories(folder / "file/x"),
                    "cannot create the folder " + base + "/file/x: Not a directory");
  char data[4];
  CHECK_THROWS_WITH(
      files.read_into(folder / "file", 3, data, 4),
      "cannot read " + base + "/file: bytes 3 to 7 were wanted, the file ends 2 bytes too early");
  CHECK_THROWS_AS(files.read(absent), FileError);
}

TEST_CASE("a lock excludes every other until it is gone", "[file_system]") {
  const test::TemporaryFolder folder;
  test::MemoryFileSystem memory;
  memory.create_directories(folder.path());
  const auto check = [&](FileSystem& files) {
    std::unique_ptr<FileLock> held = files.try_lock(folder / "lock");
    REQUIRE(held);
    CHECK(files.exists(folder / "lock"));
    CHECK_FALSE(files.try_lock(folder / "lock"));
    CHECK(files.try_lock(folder / "other"));
    held.reset();
    CHECK(files.try_lock(folder / "lock"));
  };
  check(posix_file_system());
  check(memory);
  CHECK_THROWS_WITH(posix_file_system().try_lock(folder / "absent/lock"),
                    "cannot open " + (folder / "absent/lock").string() + ": No such file or directory");
}

TEST_CASE("the lock of a process that is killed is gone", "[file_system]") {
  const test::TemporaryFolder folder;
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::unique_ptr<FileLock> held = posix_file_system().try_lock(folder / "lock");
    const char taken = held ? 'y' : 'n';
    if (write(ready[1], &taken, 1) != 1) _exit(1);
    for (;;) pause();
  }
  char taken = 0;
  REQUIRE(read(ready[0], &taken, 1) == 1);
  CHECK(taken == 'y');
  CHECK_FALSE(posix_file_system().try_lock(folder / "lock"));
  REQUIRE(kill(child, SIGKILL) == 0);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  CHECK(posix_file_system().try_lock(folder / "lock"));
  close(ready[0]);
  close(ready[1]);
}

TEST_CASE("only regular files are read, and no more of them than was said", "[file_system]") {
  FileSystem& files = posix_file_system();
  const test::TemporaryFolder folder;
  const std::string pipe = (folder / "pipe").string(), file = (folder / "file").string();
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  write_file(files, file, "0123456789");
  const std::string regular = "; give a regular file";
  char byte = 0;
  CHECK_THROWS_WITH(files.read(pipe), "cannot read " + pipe + ": it is a pipe" + regular);
  CHECK_THROWS_WITH(files.read_into(pipe, 0, &byte, 1), "cannot read " + pipe + ": it is a pipe" + regular);
  CHECK_THROWS_WITH(open_for_reading(pipe), "cannot read " + pipe + ": it is a pipe" + regular);
  CHECK_THROWS_WITH(open_data(pipe), "cannot read " + pipe + ": it is a pipe" + regular + "; check the path");
  CHECK_THROWS_WITH(files.read("/dev/zero"), "cannot read /dev/zero: it is a device" + regular);
  CHECK_THROWS_WITH(files.read(folder.path()), Catch::Contains(": it is a folder" + regular));
  const std::string most = ": it has more than 9 bytes, the most that is read of such a file";
  CHECK(files.read(file, 10) == "0123456789");
  CHECK_THROWS_WITH(files.read(file, 9), "cannot read " + file + most);
  CHECK_THROWS_WITH(files.read_given("/dev/zero", 9), "cannot read /dev/zero" + most);
}

TEST_CASE("a pipe that a user named is read to its end", "[file_system]") {
  const test::TemporaryFolder folder;
  const std::string pipe = (folder / "pipe").string(), content(200'000, 'x');
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  std::thread writer([&] { std::ofstream(pipe) << content; });
  CHECK(posix_file_system().read_given(pipe, 200'000) == content);
  writer.join();
}

TEST_CASE("a file of data that becomes shorter is an error", "[file_system]") {
  const test::TemporaryFolder folder;
  const std::string path = (folder / "data").string();
  write_file(posix_file_system(), path, "0123456789");
  const auto file = open_data(path);
  std::filesystem::resize_file(path, 4);
  char bytes[6] = {};
  CHECK_THROWS_WITH(file->read_into(2, bytes, 6),
                    "cannot read " + path +
                        ": bytes 2 to 8 were wanted, the file ends 4 bytes too early; it must "
                        "not be changed while it is used");
}

TEST_CASE("nothing is written through a link", "[file_system]") {
  FileSystem& files = posix_file_system();
  const test::TemporaryFolder folder;
  write_file(files, folder / "other", "mine");
  std::filesystem::create_symlink(folder / "other", folder / "a.tmp");
  CHECK_THROWS_WITH(write_file_atomically(files, folder / "a", "new"),
                    "cannot create " + (folder / "a.tmp").string() + ": Too many levels of symbolic links");
  CHECK(files.read(folder / "other") == "mine");
}

TEST_CASE("nothing but regular files and folders is replaced", "[file_system]") {
  FileSystem& files = posix_file_system();
  const test::TemporaryFolder folder;
  const std::string pipe = (folder / "pipe").string(), link = (folder / "link").string();
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  write_file(files, folder / "other", "mine");
  std::filesystem::create_symlink("other", link);
  CHECK_THROWS_WITH(write_file_atomically(files, pipe, "new"),
                    "cannot replace " + pipe + ": it is a pipe; name a regular file or a new one");
  CHECK_THROWS_WITH(write_file_atomically(files, link, "new"),
                    "cannot replace " + link + ": it is a symbolic link; name a regular file or a new one");
  CHECK(files.list(folder.path()) == std::vector<std::string>{"link", "other", "pipe"});
  CHECK_THROWS_WITH(files.append(link), Catch::Contains("Too many levels of symbolic links"));
  CHECK_THROWS_WITH(files.try_lock(link), Catch::Contains("Too many levels of symbolic links"));
  CHECK_THROWS_WITH(files.size(pipe), "cannot read " + pipe + ": it is a pipe; give a regular file");
  CHECK(files.read(folder / "other") == "mine");
}

TEST_CASE("a folder is locked whatever becomes of the files in it", "[file_system]") {
  FileSystem& files = posix_file_system();
  const test::TemporaryFolder folder;
  {
    const auto held = files.try_lock_folder(folder.path());
    CHECK(held);
    CHECK_FALSE(files.try_lock_folder(folder.path()));
    CHECK(files.try_lock(folder / "lock"));
  }
  CHECK(files.try_lock_folder(folder.path()));
}

TEST_CASE("a full disk is reported by the write", "[file_system]") {
  const std::unique_ptr<WritableFile> file = posix_file_system().create("/dev/full");
  CHECK_THROWS_WITH(file->write("1", 1), "cannot write /dev/full: No space left on device");
}

TEST_CASE("a closed file takes no more", "[file_system]") {
  const test::TemporaryFolder folder;
  const std::unique_ptr<WritableFile> file = posix_file_system().create(folder / "a");
  file->close();
  const std::string path = (folder / "a").string();
  CHECK_THROWS_WITH(file->write("1", 1), "cannot write " + path + ": Bad file descriptor");
  CHECK_THROWS_WITH(file->close(), "cannot close " + path + ": Bad file descriptor");
}

TEST_CASE("an atomic write replaces the content and leaves no temporary file", "[file_system]") {
  FileSystem& files = posix_file_system();
  const test::TemporaryFolder folder;
  write_file_atomically(files, folder / "a", "old");
  write_file_atomically(files, folder / "a", "new");
  CHECK(files.read(folder / "a") == "new");
  CHECK(files.list(folder.path()) == std::vector<std::string>{"a"});
  CHECK_THROWS_WITH(write_file_atomically(files, folder / "a",
                                          [](WritableFile& file) {
                                            file.write("half", 4);
                                            throw FileError("stopped");
                                          }),
                    "stopped");
  CHECK(files.read(folder / "a") == "new");
  CHECK(files.list(folder.path()) == std::vector<std::string>{"a"});
}

TEST_CASE("an atomic write that fails or loses power anywhere leaves old or new content", "[file_system]") {
  const bool loses_power = GENERATE(false, true);
  bool done = false;
  int64_t failures = 0;
  for (int64_t at = 1; !done; ++at) {
    test::MemoryFileSystem memory;
    memory.create_directories("/run");
    memory.sync_directory("/");
    write_file_atomically(memory, "/run/a", "the old content");
    test::FaultyFileSystem faulty(memory, {at, true, true});
    try {
      write_file_atomically(faulty, "/run/a", "new");
      done = true;
    } catch (const FileError&) {
      ++failures;
    }
    if (loses_power) memory.lose_power();
    const std::string content = memory.read("/run/a");
    INFO("change " << at << " fails");
    if (done) CHECK(content == "new");
    CHECK((content == "new" || content == "the old content"));
  }
  CHECK(failures == 6);  // create, write, sync, close, rename, sync_directory
}

TEST_CASE("the memory file system loses what was not synced", "[support]") {
  test::MemoryFileSystem memory;
  memory.create_directories("/run");
  memory.sync_directory("/");
  write_file(memory, "/run/kept", "1");
  memory.sync_directory("/run");
  write_file(memory, "/run/no_name", "2");
  memory.append("/run/kept")->write("3", 1);
  CHECK(memory.read("/run/kept") == "13");
  memory.lose_power();
  CHECK(memory.read("/run/kept") == "1");
  CHECK_FALSE(memory.exists("/run/no_name"));
}

TEST_CASE("the faulty file system fails the change it is told to", "[support]") {
  test::MemoryFileSystem memory;
  test::FaultyFileSystem once(memory, {2, false, true});
  const std::unique_ptr<WritableFile> file = once.create("/a");
  CHECK_THROWS_WITH(file->write("1234", 4), "cannot write /a: No space left on device");
  CHECK(memory.read("/a") == "12");
  file->write("5", 1);
  CHECK(once.changes() == 3);

  test::FaultyFileSystem crashed(memory, {1, true, false});
  CHECK_THROWS_AS(crashed.remove_all("/a"), FileError);
  CHECK_THROWS_AS(crashed.remove_all("/a"), FileError);
  CHECK(memory.exists("/a"));
}

}  // namespace dtk
