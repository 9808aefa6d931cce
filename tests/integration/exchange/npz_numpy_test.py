"""npz_numpy_test.py LOADER: NumPy reads the frames that the project writes, and the project NumPy's.

LOADER is the benchmark diffusion-planner-loader, which makes frames up and reads them or others.
"""

import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import numpy

SHAPES = {  # of preset M
    "version": ("uint32", (1,)),
    "ego_agent_past": ("float32", (31, 3)),
    "ego_current_state": ("float32", (10,)),
    "ego_agent_future": ("float32", (80, 3)),
    "neighbor_agents_past": ("float32", (32, 31, 11)),
    "neighbor_agents_future": ("float32", (32, 80, 3)),
    "static_objects": ("float32", (5, 10)),
    "lanes": ("float32", (140, 20, 33)),
    "lanes_speed_limit": ("float32", (140, 1)),
    "lanes_has_speed_limit": ("bool", (140, 1)),
    "route_lanes": ("float32", (25, 20, 33)),
    "route_lanes_speed_limit": ("float32", (25, 1)),
    "route_lanes_has_speed_limit": ("bool", (25, 1)),
    "polygons": ("float32", (10, 40, 3)),
    "line_strings": ("float32", (60, 20, 4)),
    "goal_pose": ("float32", (3,)),
    "turn_indicators": ("int32", (31,)),
    "ego_shape": ("float32", (3,)),
}


def run(*arguments: object, code: int = 0) -> subprocess.CompletedProcess:
    command = [str(PROGRAM), "--seconds", "0.01", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == code, result.stdout + result.stderr
    return result


class Frames(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_numpy_reads_what_is_written(self):
        run("--preset", "M", "--count", "2", "--keep", self.folder)
        for name, method in (("deflated", zipfile.ZIP_DEFLATED), ("stored", zipfile.ZIP_STORED)):
            for path in sorted((self.folder / name).iterdir()):
                with zipfile.ZipFile(path) as archive:
                    self.assertIsNone(archive.testzip())
                    self.assertEqual({entry.compress_type for entry in archive.infolist()}, {method})
                with numpy.load(path, allow_pickle=False) as arrays:
                    self.assertEqual({key: (str(arrays[key].dtype), arrays[key].shape) for key in arrays}, SHAPES)
                    self.assertEqual(arrays["version"].tolist(), [2])
                    self.assertGreater(numpy.count_nonzero(arrays["lanes"]), 1000)
        for first, second in zip(*(sorted((self.folder / name).iterdir()) for name in ("deflated", "stored"))):
            with numpy.load(first) as a, numpy.load(second) as b:
                for key in SHAPES:
                    numpy.testing.assert_array_equal(a[key], b[key])

    def test_what_numpy_writes_is_read(self):
        arrays = {key: numpy.zeros(shape, dtype) for key, (dtype, shape) in SHAPES.items()}
        arrays["version"][:] = 2
        generator = numpy.random.default_rng(1)
        for array in arrays.values():
            if array.dtype == numpy.float32:
                array[:] = generator.normal(size=array.shape)
        numpy.savez_compressed(self.folder / "deflated.npz", **arrays)
        numpy.savez(self.folder / "stored.npz", map_name="town", **arrays)
        output = run("--preset", "M", "--frames", self.folder).stdout
        self.assertIn("2 frames", output)

    def test_arrays_of_another_kind_are_refused(self):
        arrays = {key: numpy.zeros(shape, dtype) for key, (dtype, shape) in SHAPES.items()}
        arrays["version"][:] = 2

        def refusal(key: str, array: numpy.ndarray) -> str:
            path = self.folder / "frame.npz"
            numpy.savez_compressed(path, **{**arrays, key: array})
            error = run("--preset", "M", "--frames", self.folder, code=1).stderr
            prefix = f"diffusion-planner-loader: {path}: "
            self.assertTrue(error.startswith(prefix), error)
            return error.removeprefix(prefix).strip()

        self.assertEqual(
            refusal("lanes", numpy.asfortranarray(arrays["lanes"])),
            'array "lanes": is in Fortran order; save it in C order, with numpy.ascontiguousarray()',
        )
        self.assertEqual(
            refusal("goal_pose", numpy.array([None, 1, "x"], dtype=object)),
            'array "goal_pose": has the dtype "|O": Python objects, which are not read, as reading them could run '
            "code; save plain numbers",
        )
        self.assertEqual(
            refusal("ego_shape", arrays["ego_shape"].astype("float64")),
            'array "ego_shape" is float64; allowed: float32; save it as float32',
        )
        self.assertEqual(
            refusal("ego_shape", arrays["ego_shape"].astype(">f4")),
            'array "ego_shape": has the dtype ">f4", which is big-endian; save the array with its little-endian dtype',
        )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    PROGRAM = Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1])
