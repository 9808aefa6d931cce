"""Each house check passes a clean tree and finds each offence that it is there for.

self_test.py COMPILER: the compiler is used to link a program to a library named libtorch_cuda.so.
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import data_symbols
import file_sizes
import hardened
import include_arrows
import layout
import linked_libraries
import named_headers
import process_state
import quiet_libraries
import readme
import repeated_blocks
import torch_use
import unnamed_names
import words

COMPILER = "c++"

CLEAN = {
    "policies/include/dtk/policies/ema.h": "#include <ATen/core/Tensor.h>\n#include <vector>\n",
    "policies/ema/ema.cpp": '#include <dtk/policies/ema.h>\n#include "ema/own.h"\n// std::cout << "a comment";\n',
    "policies/ema/own.h": "// #include <toolkit/core/errors.h>\nconstexpr int a = 1'000;\n",
    "policies/CMakeLists.txt": "dtk_library(policies DEPENDS dtk::torch)  # never dtk::models\n",
    "models/dit/dit.cpp": '#include <dtk/models/dit.h>\nconst auto s = "puts(1); exit(1)";\nvoid f() { a.abort(); }\n',
    "toolkit/train/trainer.cpp": "#include <dtk/policies/ema.h>\nconst int n = std::snprintf(b, 1, f);\n",
    "toolkit/programs/dit_train.cpp": "#include <iostream>\nint main() { std::cout << 1; std::exit(1); }\n",
    "tests/toolkit/train/trainer_test.cpp": "#include <dtk/toolkit/trainer.h>\n",
    "tests/run": "#!/bin/sh\n",
    "examples/quickstart": "#!/bin/sh\n",
    "configs/base.toml": "",
    "cmake/DtkTorch.cmake": "# find_package(Torch) would need libtorch_cuda\nset(libs torch_cpu c10)\n",
    "build/x.cpp": "#include <torch/torch.h>\n",
    ".gitignore": "/build/\n",
    ".ci/run": '#!/bin/sh\n# all tests\nexec "$(dirname "$0")/../tests/run"\n',
    "CMakeLists.txt": "",
    "CMakePresets.json": "{}",
    "README.md": "# dit-train\nexamples/quickstart\ntests/run\nquickstart_samples.png\npolicies.svg\n",
    "LICENSE": "",
    "CHANGELOG.md": "",
    "CONTRIBUTING.md": "",
}
EXECUTABLE = ("tests/run", "examples/quickstart", ".ci/run")


class TreeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        for path, text in CLEAN.items():
            self.write(path, text)
        for path in EXECUTABLE:
            (self.root / path).chmod(0o755)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def assert_finds(self, module, path: str, text: str, words: str) -> None:
        """Clean before the file is written; exactly one offence, naming the file, afterwards."""
        self.assertEqual(module.check(self.root), [])
        self.write(path, text)
        found = module.check(self.root)
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(path), found)
        self.assertIn(words, found[0])
        (self.root / path).unlink()
        if path in CLEAN:
            self.write(path, CLEAN[path])


class IncludeArrows(TreeTest):
    def test_library_includes(self):
        for text in (
            "#include <dtk/models/dit.h>",
            "#include <toml++/toml.h>",
            '# include "../../models/dit/dit.cpp"',
            '#include "toolkit/core/errors.h"',
            "#include <unistd.h>",
            "/* a */ #include <dtk/models/dit.h>",
        ):
            self.assert_finds(
                include_arrows, "policies/ema/bad.cpp", f"int a;\n{text}\n", "bad.cpp:2: includes"
            )
        self.assert_finds(include_arrows, "toolkit/run/bad.cpp", "#include <fmt/core.h>\n", "core/format.h")
        for odd in ('#include RUN', '#include \\\n  "toolkit/run/run.h"', '#import "toolkit/run/run.h"', '%:include "a.h"',
                    '#include_next <vector>'):  # fmt: skip
            self.assert_finds(include_arrows, "toolkit/core/bad.cpp", f"{odd}\n", "no check can follow")
        self.assert_finds(
            include_arrows,
            "models/include/dtk/models/bad.h",
            "#include <dtk/policies/ema.h>\n",
            "models/ may not include",
        )

    def test_above_the_libraries(self):
        for folder in ("tests/support", "tests/planner", "benchmarks/support", "examples/support", "policies/ema"):
            self.write(f"{folder}/given.h", "")
        for path, include in (
            ("examples/own/bad.cpp", "tests/support/given.h"),
            ("examples/own/bad.cpp", "benchmarks/support/given.h"),
            ("examples/own/bad.cpp", "ema/given.h"),
            ("benchmarks/own/bad.cpp", "planner/given.h"),
            ("benchmarks/own/bad.cpp", "ema/given.h"),
        ):
            self.assert_finds(include_arrows, path, f'#include "{include}"\n', "may not include")
        self.write("benchmarks/own/good.cpp", '#include "tests/support/given.h"\n#include "examples/support/given.h"\n')
        self.assertEqual(include_arrows.check(self.root), [])

    def test_library_links(self):
        self.assert_finds(
            include_arrows,
            "models/CMakeLists.txt",
            "dtk_library(models\n  DEPENDS dtk::policies)\n",
            "models/ must not link dtk::policies",
        )
        self.assert_finds(
            include_arrows,
            "policies/more.cmake",
            "target_link_libraries(x dtk_toolkit)\n",
            "policies/ must not link dtk_toolkit",
        )

    def test_policies_do_not_know_the_planner(self):
        self.write("policies/planner/CMakeLists.txt", "dtk_library(planner DEPENDS dtk::policies)\n")
        self.write("policies/planner/simulate/simulate.cpp", "#include <dtk/planner/simulate.h>\n")
        self.assert_finds(
            include_arrows,
            "policies/CMakeLists.txt",
            "dtk_library(policies DEPENDS dtk::torch dtk::planner)\n",
            "policies/ must not link dtk::planner",
        )
        self.assert_finds(
            include_arrows, "policies/ema/bad.cpp", "#include <dtk/planner/simulate.h>\n", "bad.cpp:1: includes"
        )

    def test_toolkit_from_elsewhere(self):
        self.assert_finds(
            include_arrows, "cmake/probe.cpp", '#include "toolkit/core/errors.h"\n', "toolkit/ headers"
        )

    def test_support_includes_no_benchmark(self):
        self.write("benchmarks/support/a.h", "")
        self.assert_finds(include_arrows, "tests/support/b.h", '#include "support/a.h"\n', "tests/support/ may not include benchmarks/support/a.h")


class Words(TreeTest):
    def test_each_word(self):
        for text in ("KeptPhase a;", "if (config.drives()) {}", "int most_bytes;", "kLeastWidth", "JobWatch w;", "using PlannerBatch = int;", "int least = 1;"):
            self.assert_finds(words, "toolkit/core/bad.cpp", f"{text}\n", "today's word")
        self.assert_finds(words, "toolkit/run/bad.cpp", "if (policies::simulating()) return;\n", "keeps_content")
        for text in ("// a sub-tree", "// it computes the rest again", "// the driving planner", "int subtrees;", "bool a = x.drives (1);", 'auto a = "Rehearsal";', "// a CopyEngine", "int fake_memory;", '"chunk ring: 0"'):
            self.assert_finds(words, "policies/ema/bad.cpp", f"{text}\n", "today's word")
        self.assert_finds(words, "policies/ema/bad.cpp", "Books books;\n", "LedgerSnapshot")
        self.assert_finds(words, "toolkit/families/a/bad.cpp", "auto& planner = of(config);\n", "today's word: model")
        self.write("toolkit/families/a/good.cpp", "namespace planner {}\nplanner::Scope scope;\n")
        self.assert_finds(words, "tests/bad.py", "if config.drives(): pass\n", "family_of")
        for text in ('if (a.schedule.kind == "cosine") {}', 'b(options->device != "cpu")', 'c("v" == x.objective);', 'd(a.preset == "1b");', 'e(report.policy != "ema");'):
            self.assert_finds(words, "toolkit/run/bad.cpp", f"{text}\n", "enum")
        for text in ('if (kind == "latents") {}', 'is_one_of(config.train.model, {"springs"})', 'config.train.model.starts_with("springs")', 'if ("same" == device_kind) {}'):
            self.assert_finds(words, "toolkit/run/bad.cpp", f"{text}\n", "enum")
        for text in ('f(x.style == "plain");', 'g(ema.device() == "same");', 'i(options_.name != "custom");', 'h(config.train.model == "springs");'):
            self.assert_finds(words, "toolkit/run/bad.cpp", f"{text}\n", "today's word")
        self.write("toolkit/run/good.cpp", 'bool c = array.key == "lanes";\nbool a = config.data.kind == "idx", b = name == "mean";\n')
        for text in ('contains(parts, "lora")', 'std::find(a.begin(), a.end(), "offload")', "int least_time;", "options.most_gain", "if (report.policy != Precision::kName) return;"):
            self.assert_finds(words, "toolkit/run/bad.cpp", f"{text}\n", "today's word")
        self.assert_finds(words, "policies/README.md", "label `fake-cuda`\n", "simulated-cuda")
        for text in ("a segment that runs again", "what was computed again", "scores made again in backward", "what is made again is freed", "which operators run again"):
            self.assert_finds(words, "policies/README.md", f"{text}\n", "recompute")
        self.assert_finds(words, "configs/planner_h.toml", "", "planner is memory planning")
        self.assert_finds(words, "tests/planner_gone_test.py", "", "planner is memory planning")
        self.write("policies/planner/core/good.cpp", "int planner_name;\nauto key = \"least_time\";\n// Books\n")
        self.write("toolkit/train/dropout_masks.cpp", "bool drawn = !policies::simulating();\n")
        self.write("configs/diffusion_planner_h.toml", "")
        self.assertEqual(words.check(self.root), [])


class ProcessState(TreeTest):
    def test_table_and_sources_agree(self):
        self.write("policies/ema/state.cpp", "thread_local std::map<int, int> known;  // thread_local int not_code;\n")
        rows = "| what | where |\n|---|---|\n| `known` | `ema/state.cpp` |\n"
        table = "<!-- process-wide state -->\n{}<!-- /process-wide state -->\n"
        self.write(process_state.README, table.format(rows))
        for text in (
            "thread_local int bad = 0;",
            "static thread_local Type* bad;",
            "thread_local std::optional<int> bad{};",
            "static auto* bad = new Type;",
            "static const auto* const bad =\n    new Type{1};",
            'auto* const bad = new torch::Library(kind, "_", key, __FILE__, __LINE__);',
            "std::atomic<int> bad{0};",
            "int bad = 0;",
            "std::vector<int> bad;",
            "static Type bad;",
            "static std::atomic<int> bad{0};",
            "const char* bad = nullptr;",
            "constinit std::atomic<int> bad{0};",
            "static constinit int bad = 0;",
            "static inline int bad = 0;",
            "static Type bad[3];",
            "std::atomic<int> bad(0);",
            "static std::vector<int> bad(3);",
            "static std::function<void(int)> bad;",
            "static const Type& bad = *new Type;",
            "static const std::shared_ptr<Type> bad(new Type);",
            "static auto bad = std::make_unique<Type>();",
            "static auto bad = Type();",
            "int bad[3];",
            "static const auto bad = std::make_shared<Type>();",
            "auto bad = std::make_unique<torch::Library>(kind, space, key, __FILE__, __LINE__);",
        ):
            self.assert_finds(process_state, "policies/ema/bad.cpp", f"{text}\n", "bad.cpp:1: bad is")
        gone = rows + "| `known`, `gone` | `ema/state.cpp` |\n"
        self.assert_finds(process_state, process_state.README, table.format(gone), "no gone in ema/state.cpp")

    def test_no_table(self):
        self.assertEqual(process_state.check(self.root), [])
        self.write("policies/ema/state.cpp", "thread_local int known;\n")
        self.assertEqual(process_state.check(self.root), ["policies/README.md: no table of process-wide state"])


class NamedHeaders(TreeTest):
    def test_comments(self):
        self.write("toolkit/io/npy.h", "")
        self.write("toolkit/io/good.cpp", '#include <unistd.h>\n// npy.h, "gone.h"; io/npy.h\nint a = f("gone.h");\n')
        for text in ("// See gone.h.", "int f();  // (io/gone.h)", "/// `gone.h` says it"):
            self.assert_finds(named_headers, "toolkit/io/bad.cpp", f"int f();\n{text}\n", "bad.cpp:2: the comment names gone.h")


class UnnamedNames(TreeTest):
    def in_namespace(self, text: str, around: str = "dtk") -> str:
        return f"namespace {around} {{\nnamespace {{\n\n{text}\n\n}}  // namespace\n}}  // namespace {around}\n"

    def test_names_that_clash(self):
        first = """struct Unit {};
constexpr int kMax = 1;
using Json = nlohmann::json;
[[noreturn]] void fail(const std::string& what,
                       int number) {
  throw 1;
}
"""
        self.write("toolkit/io/one.cpp", self.in_namespace(first))
        for text, name in (
            ("class Unit;\nenum class Unit { a };", "Unit"),
            ("std::atomic<int> kMax{0};", "kMax"),
            ("using Json = nlohmann::ordered_json;", "Json"),
            ("int fail(const std::string& what, int number) {\n  return 1;\n}", "fail"),
            ("int Unit = 3;", "Unit"),
        ):
            self.assert_finds(unnamed_names, "toolkit/run/bad.cpp", self.in_namespace(text), f"{name} stands at")

    def test_names_that_do_not(self):
        first = "using Json = nlohmann::json;\nint f(int a) {\n  return a;\n}\nstruct A;\nint A::g() {\n  return 1;\n}"
        self.write("toolkit/io/one.cpp", self.in_namespace(first) + "\nint f(int a) { return 1; }\n")
        other = "using Json = nlohmann::json;\nint f(double a) {\n  return 2;\n}\nstruct A;\nint A::g() {\n  return 1;\n}"
        self.write("toolkit/run/two.cpp", self.in_namespace(other))
        self.write("toolkit/run/three.cpp", self.in_namespace("int f(int a) {\n  return 3;\n}", "dtk::dit"))
        self.write("models/dit/four.cpp", self.in_namespace(first))
        self.assertEqual(unnamed_names.check(self.root), [])


class Layout(TreeTest):
    def test_stray_entries(self):
        self.assert_finds(layout, "notes.txt", "x", "not an agreed top-level entry")
        self.write("src/a.cpp", "")
        self.assertEqual([line.split(":")[0] for line in layout.check(self.root)], ["src"])

    def test_a_folder_without_code(self):
        self.write("models/attic/CMakeLists.txt", "")
        self.assertEqual(layout.check(self.root), ["models/attic: a folder without code"])

    def test_missing_entry(self):
        (self.root / "LICENSE").unlink()
        self.assertEqual(layout.check(self.root), ["LICENSE: missing at the top level"])

    def test_ci_runs_the_tests_and_nothing_else(self):
        more = 'apt-get update\nexec "$(dirname "$0")/../tests/run"\n'
        for text in (more, "true\n", "", 'exec "$(dirname "$0")/../tests/run" || true\n'):
            self.write(".ci/run", text)
            self.assertIn("must be one command", "".join(layout.check(self.root)))

    def test_commands_are_executable(self):
        (self.root / "tests/run").chmod(0o644)
        self.assertEqual(layout.check(self.root), ["tests/run: missing or not executable"])


class RepeatedBlocks(TreeTest):
    def test_ten_lines_that_stand_twice(self):
        block = "".join(f"int number_{n} = {n};\n" for n in range(10))
        self.write("toolkit/core/first.cpp", "// text\n" + block)
        self.write("toolkit/core/shorter.cpp", block.replace("int number_0 = 0;\n", "\n}\n"))
        self.assert_finds(repeated_blocks, "toolkit/core/second.cpp", "#include <a>\n" + block.replace("int number_5", "// why\nint number_5"), "stand in toolkit/core/first.cpp:2")


class QuietLibraries(TreeTest):
    def test_each_way_to_print_or_end(self):
        for text in (
            "std::cout << 1;",
            "std::cerr << 1;",
            'printf("a");',
            'std::fprintf(stderr, "a");',
            'puts("a");',
            "#include <iostream>",
            "write(2, a, 1);",
            "::write(STDERR_FILENO, a, 1);",
            "std::exit(1);",
            "exit(1);",
            "::_exit(1);",
            "std::abort();",
            "std::terminate();",
            "std::quick_exit(0);",
        ):
            for path in (
                "policies/ema/bad.cpp",
                "models/dit/bad.cpp",
                "toolkit/core/bad.cpp",
                "toolkit/io/bad.h",
            ):
                self.assert_finds(quiet_libraries, path, f"\n{text}\n", "bad.")

    def test_code_after_a_literal_is_seen(self):
        self.assert_finds(
            quiet_libraries, "models/dit/bad.cpp", "char c = '\"'; abort(); // \"\n", "ends the process"
        )


class FileSizes(TreeTest):
    def test_limits(self):
        self.assert_finds(file_sizes, "toolkit/core/long.cpp", "int a;\n" * 601, "601 lines")
        self.assert_finds(file_sizes, "tests/long_script", "#\n" * 700, "700 lines")
        self.write("toolkit/core/medium.cpp", "int a;\n" * 401)
        self.write("tests/fixtures/numbers.txt", "1\n" * 5000)
        self.assertEqual(file_sizes.above_soft(self.root), ["toolkit/core/medium.cpp: 401 lines, aim for 400"])
        self.write("toolkit/core/medium.cpp", "int a;\n" * 600)
        self.assertEqual(file_sizes.lengths(self.root)["toolkit/core/medium.cpp"], 600)
        self.assertEqual(file_sizes.check(self.root), [])


class TorchUse(TreeTest):
    def test_code(self):
        for text in (
            "#include <torch/torch.h>",
            '#include "torch/torch.h"',
            "torch::nn::MultiheadAttention a;",
            "at::_native_multi_head_attention(q);",
            "F::multi_head_attention_forward(q);",
        ):
            self.assert_finds(torch_use, "tests/models/dit/bad_test.cpp", f"{text}\n", "bad_test.cpp:1: ")

    def test_the_one_file_that_shows_why(self):
        self.write(torch_use.MAY_NAME, "torch::nn::MultiheadAttention a;\n")
        self.assertEqual(torch_use.check(self.root), [])
        self.assert_finds(torch_use, torch_use.MAY_NAME, "#include <torch/torch.h>\n", "torch/torch.h")

    def test_borrowed_slots(self):
        self.write(
            torch_use.BORROWED, "constexpr auto kA = c10::DispatchKey::Own;\nauto kB = c10::DebugInfoKind::INFO;\n"
        )
        self.write("tests/policies/ema/good.cpp", "auto a = c10::DispatchKey::OwnAndMore;  // DispatchKey::Own\n")
        self.write("policies/ema/good.cpp", "TORCH_LIBRARY_IMPL(dtk, CPU, m) { f(c10::DispatchKey::Autograd); }\n")
        for text in (
            "auto a = c10::DispatchKey::Own;",
            "c10::DebugInfoGuard guard(c10::DebugInfoKind::INFO, info);",
            "TORCH_LIBRARY_IMPL(aten, Own, m) {}",
        ):
            self.assert_finds(torch_use, "tests/policies/ema/bad_test.cpp", f"{text}\n", "bad_test.cpp:1: ")
        for text in ("TORCH_LIBRARY_IMPL(aten, PythonTLSSnapshot, m) {}", "auto a = c10::DispatchKey::AutogradXPU;", "auto a = DebugInfoKind::PROFILER_STATE;"):
            self.assert_finds(torch_use, "toolkit/run/bad.cpp", f"{text}\n", "bad.cpp:1: ")

    def test_cmake(self):
        for text in (
            "target_link_libraries(a torch_cuda)",
            "target_link_libraries(a c10_cuda)",
            "find_package(Torch)",
            "target_link_libraries(a ${TORCH_LIBRARIES})",
            "target_link_libraries(a -ltorch)",
        ):
            self.assert_finds(torch_use, "toolkit/CMakeLists.txt", f"{text}\n", "CMakeLists.txt:1: ")


class Readme(TreeTest):
    def test_commands_on_the_first_screen(self):
        self.assert_finds(
            readme,
            "README.md",
            "examples/quickstart\nquickstart_samples.png\npolicies.svg\n" + "\n" * 60 + "tests/run\n",
            "tests/run is not",
        )
        self.assert_finds(readme, "README.md", CLEAN["README.md"].replace("policies.svg\n", ""), "policies.svg is not")
        self.assert_finds(readme, "README.md", CLEAN["README.md"] + "\n" * 196, "201 lines; at most 200")
        self.assert_finds(readme, "CHANGELOG.md", "a\n" * 61, "61 lines; at most 60")
        (self.root / "README.md").unlink()
        self.assertEqual(readme.check(self.root), ["README.md: missing"])


class LinkedLibraries(TreeTest):
    def compile(self, *arguments: str) -> None:
        subprocess.run([COMPILER, *arguments], cwd=self.root, check=True)

    def test_finds_a_program_that_needs_the_cuda_library(self):
        self.write("a.cpp", "int main() {}\n")
        self.write("b.cpp", "int cuda() { return 1; }\n")
        (self.root / "out/tests").mkdir(parents=True)
        self.compile("a.cpp", "-o", "out/dit-train")
        self.assertEqual(linked_libraries.check(self.root / "out", ("dit-train",)), [])
        self.compile("-shared", "-fPIC", "b.cpp", "-o", "libtorch_cuda.so")
        self.compile("a.cpp", "-o", "out/tests/a_test", "-Wl,--no-as-needed", "-L.", "-ltorch_cuda")
        found = linked_libraries.check(self.root / "out", ("dit-train",))
        self.assertEqual(len(found), 1, found)
        self.assertIn("a_test: needs libtorch_cuda.so", found[0])

    def test_what_a_library_can_write_to(self):
        self.write("toolkit/core/other.cpp", "namespace dtk { const int bad = 1; }  // another's name hides nothing\n")
        self.write(process_state.README, "<!-- process-wide state -->\n| what | where |\n|---|---|\n| `known` | `toolkit/core/a.cpp` |\n<!-- /process-wide state -->\n")
        source = (
            "struct Made {{ Made(int); int value; }};\nnamespace dtk {{\nint known = 1;\nextern const Made kConst;\n"
            "const Made kFirst(1), kConst = 2;\n[[gnu::section(\".preinit_array\"), gnu::used]] void (*const kStart)() = nullptr;\n{}\nint* get() {{ return &known; }}\n}}\n"
        )
        for text, found in (
            ("", []),
            ("std::atomic<int> bad(0);", ["bad"]),
            ("int bad[3] = {1, 2, 3}; int worse; static const char* const kText = \"\";", ["bad", "worse"]),
            ("namespace { struct Bad { int n = 1; } bad; } int* bad_one() { static int inner = 2; return &inner + bad.n; }", ["bad", "inner"]),
        ):
            self.write("toolkit/core/a.cpp", "#include <atomic>\n" + source.format(text))
            for library in data_symbols.LIBRARIES:
                self.compile("-c", "toolkit/core/a.cpp", "-o", "a.cpp.o")
                (self.root / "out" / library).parent.mkdir(parents=True, exist_ok=True)
                subprocess.run(["ar", "rcs", str(self.root / "out" / library), "a.cpp.o"], cwd=self.root, check=True)
            each = [f"::{name} can be written" for name in found] * len(data_symbols.LIBRARIES)
            offences = data_symbols.check(self.root, self.root / "out")
            self.assertEqual(len(offences), len(each), offences)
            for offence, end in zip(offences, each):
                self.assertIn(end, offence)
        self.assertEqual(len(data_symbols.check(self.root, self.root / "none")), len(data_symbols.LIBRARIES))
        self.write("none/toolkit/run/libdtk_more.a", "")
        self.assertIn("toolkit/run/libdtk_more.a: not among", data_symbols.check(self.root, self.root / "none")[0])
        self.assertTrue({"toolkit/programs/libdtk_program.a", "toolkit/launch/libdtk_launch.a"} < set(data_symbols.LIBRARIES))

    def test_a_program_without_what_hardens_it(self):
        text = (
            '#include <cstdio>\n#include <cstring>\nint main(int argc, char** argv) {'
            ' char b[16]; std::strcpy(b, argv[argc - 1]); return std::printf("%s", b); }\n'
        )
        self.write("a.cpp", text)
        (self.root / "out").mkdir()
        hard = "-O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong -fPIE -pie -Wl,-z,relro -Wl,-z,now"
        self.compile("a.cpp", "-o", "out/hard", *hard.split())
        flags = "-D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection"
        commands = self.root / "out/compile_commands.json"
        commands.write_text(json.dumps([{"command": f"c++ {flags} -o toolkit/CMakeFiles/dtk_a.dir/a.o -c a.cpp"}]))
        self.assertEqual(hardened.check(self.root / "out", ["hard"]), [])
        soft = "-U_FORTIFY_SOURCE -fno-stack-protector -no-pie -Wl,-z,norelro -Wl,-z,lazy -Wl,-z,execstack"
        self.compile("a.cpp", "-o", "out/soft", *soft.split())
        self.assertEqual(len(hardened.check(self.root / "out", ["soft"])), 6)
        self.assertEqual(len(hardened.check(self.root / "out", ["none"])), 1)
        commands.write_text(json.dumps([{"command": "c++ -D_FORTIFY_SOURCE=2 -o toolkit/CMakeFiles/dtk_a.dir/a.o -c a.cpp"}]))
        self.assertEqual(len(hardened.check(self.root / "out", ["hard"])), 3)
        commands.write_text("[]")
        self.assertEqual(len(hardened.check(self.root / "out", ["hard"])), 1)

    def test_a_program_that_is_not_there(self):
        found = linked_libraries.check(self.root / "out", ("dit-train",))
        self.assertEqual(found, [f"{self.root}/out/dit-train: not built; build all targets first"])


if __name__ == "__main__":
    COMPILER = sys.argv.pop(1)
    unittest.main()
