"""rooms.py, and the arrows between rooms, find each offence that they are there for."""

import shutil
import unittest

import include_arrows
import rooms
from self_test import TreeTest


class Rooms(TreeTest):
    def test_an_upward_include(self):
        self.write("toolkit/core/errors.h", "")
        self.write("toolkit/run/run.h", "")
        self.write("toolkit/run/run.cpp", '#include "toolkit/core/errors.h"\n#include <dtk/policies/ema.h>\n')
        for text in ('#include "toolkit/run/run.h"', "#include <dtk/planner/simulate.h>"):
            path = "toolkit/core/bad.cpp" if "run.h" in text else "policies/ema/bad.cpp"
            self.assert_finds(include_arrows, path, f"{text}\n", "may not include")
        self.write("policies/seam/policy.cpp", "")
        self.assert_finds(
            include_arrows, "policies/seam/bad.cpp", "#include <dtk/policies/ema.h>\n", "policies/seam/ may not include"
        )

    def test_private_headers_of_another_library(self):
        self.assert_finds(include_arrows, "toolkit/core/bad.cpp", '#include "policies/ema/own.h"\n', "may not include")

    def test_one_family_does_not_know_another(self):
        self.write("toolkit/families/a/a.h", "")
        self.write("toolkit/families/b/b.cpp", '#include "toolkit/core/errors.h"\n')
        self.assert_finds(
            include_arrows, "toolkit/families/b/bad.cpp", '#include "toolkit/families/a/a.h"\n', "may not include"
        )

    def crowded(self) -> list[str]:
        return [line for line in rooms.check(self.root) if " modules; " in line]

    def test_a_crowded_folder(self):
        self.list_rooms()
        most = rooms.LARGEST
        for folder in ("toolkit/io", "policies/include/dtk/policies", "tests/integration", "benchmarks/plans", "examples/own"):
            for suffix in (".cpp", ".py", ".h"):
                shutil.rmtree(self.root / folder, ignore_errors=True)
                for number in range(most):
                    self.write(f"{folder}/file_{number}{suffix}", "")
                self.write(f"{folder}/README.md", "")
                self.write(f"{folder}/file_0{'.cpp' if suffix == '.h' else suffix}", "")  # beside its header one module
                self.assertEqual(self.crowded(), [])
                self.write(f"{folder}/file_0{'.cpp' if suffix == '.py' else '.py'}", "")
                self.assertEqual(self.crowded(), [f"{folder}/: {most + 1} modules; a folder holds at most {most}"])
            shutil.rmtree(self.root / folder)

    def list_rooms(self, paths=("policies/ema", "models/dit", "toolkit/train", "toolkit/programs")):
        (self.root / "CONTRIBUTING.md").write_text(f"<!-- rooms -->\n{rooms.table()}\n<!-- /rooms -->\n")
        for path in paths:
            sources = " ".join(source.name for source in (self.root / path).glob("*.cpp"))
            self.write(f"{path}/CMakeLists.txt", rooms.purpose(rooms.ROOMS[path]) + f"\ndtk_room({sources})\n")

    def test_a_room_that_nothing_builds(self):
        self.list_rooms()
        self.assertEqual(rooms.check(self.root), [])
        self.write("toolkit/io/npy.cpp", "")
        self.assertEqual(rooms.check(self.root), ["toolkit/io/CMakeLists.txt: missing"])
        shutil.rmtree(self.root / "toolkit/io")
        self.assert_finds(rooms, "policies/attic/old.cpp", "", "in no room")
        self.list_rooms(rooms.ROOMS)
        self.assert_finds(rooms, "toolkit/distributed/declarations/more.h", "", "in no room")
        self.assert_finds(rooms, "policies/include/dtk/policies/zzz.h", "", "in no room")
        self.assert_finds(rooms, "tests/toolkit/misc/a_test.cpp", "", "tests no room")
        self.assert_finds(rooms, "toolkit/core/more.hpp", "", "of a kind that no check reads")
        self.assert_finds(rooms, "policies/ema/more.cpp", "", "more.cpp: not among the sources of policies/ema/CMakeLists.txt")
        self.assert_finds(rooms, "toolkit/train/CMakeLists.txt", rooms.purpose(rooms.ROOMS["toolkit/train"]) + "\nadd_library(a trainer.cpp)\n", "no target toolkit_train")

    def test_a_family_says_what_it_is(self):
        self.list_rooms()
        self.write("toolkit/families/a/CMakeLists.txt", "# The family A.\ndtk_room(a.cpp)\n")
        self.assert_finds(rooms, "toolkit/families/b/CMakeLists.txt", "dtk_room(b.cpp)\n", "what the family is")

    def test_the_printed_table(self):
        (self.root / "CONTRIBUTING.md").write_text("a\n<!-- rooms -->\n<!-- /rooms -->\n")
        self.assertEqual(len(rooms.check_printed(self.root)), 1)
        self.write("toolkit/io/CMakeLists.txt", "dtk_room(\n  npy.cpp)\n")
        self.assertEqual(len(rooms.check_purposes(self.root)), 1)
        self.list_rooms()
        rooms.write(self.root)
        self.assertEqual(rooms.check(self.root), [])
        self.assertTrue((self.root / "toolkit/io/CMakeLists.txt").read_text().endswith(".\ndtk_room(\n  npy.cpp)\n"))


if __name__ == "__main__":
    unittest.main()
