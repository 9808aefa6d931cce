"""bombs_test.py REPLAY: small files that claim or unpack to far more, each within its memory and time.

They are made here, as some are megabytes; the corpora hold what is small.
"""

import io
import json
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile
import zlib
from pathlib import Path

REPLAY = ""


def pickle_of_names(text: int, times: int) -> bytes:
    """A text that is stored once, and names of classes that are made of it again and again."""
    body = b"\x80\x02X" + struct.pack("<I", text) + b"a" * text + b"q\x00"
    return body + b"(" + b"h\x00h\x00\x93" * times + b"l."


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, megabytes: int) -> bytes:
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(megabytes)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def npz(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def safetensors(header: object, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def npy(shape: str, descr: str = "<f4") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


BOMBS = {
    "torch_file/names": pickle_of_names(100_000, 50_000),
    "torch_file/short_names": pickle_of_names(400, 100_000),
    "torch_file/values": b"\x80\x02(" + b"K\x01" * 999_000 + b"l.",
    "torch_file/too_many_values": b"\x80\x02(" + b"N" * 2_000_000 + b"l.",
    "images/png_data": png(28, 28, 2000),
    "images/png_sides": png(60_000, 60_000, 1),
    "configuration/dotted_key": b"a" + b".a" * 150_000 + b" = 1\n",
    "configuration/dotted_header": b"[a" + b".a" * 200_000 + b"]\n",
    "configuration/dotted_inline": b"x = {a" + b".a" * 150_000 + b" = 1}\n",
    "configuration/nested_arrays": b"a = " + b"[" * 100_000 + b"]" * 100_000 + b"\n",
    "configuration/nested_tables": b"a = " + b"{a=" * 100_000 + b"1" + b"}" * 100_000 + b"\n",
    "configuration/long_key": b"[data]\n" + b"b" * 3_000_000 + b" = 1\n",
    "configuration/long_quoted_key": b"[data]\n'" + b"b" * 3_000_000 + b"' = 1\n",
    "configuration/many_keys": b"[data]\n" + b"".join(b"k%d = 1\n" % i for i in range(10_000)),
    "configuration/many_tables": b"".join(b"[t%d]\n" % i for i in range(10_000)),
    "configuration/many_values": b"[policies.checkpoint]\nkeep = ["
    + b",".join(b'"blocks.%d: all"' % i for i in range(10_000))
    + b"]\n",
    "npz/zeros": npz("a.npy", npy("(1000000000,)") + bytes(64 << 20)),
    "npz/claims": npy("(1000000000, 1000000000)"),
    "latents/claims": b"\0" + npy("(1000000000, 4, 32, 32)"),
    "idx/claims": b"\0\x08" + struct.pack(">IIII", 0x803, 1_000_000_000, 28, 28) + struct.pack(">II", 0x801, 1),
    "safetensors/claims": safetensors({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}),
    "safetensors/length": struct.pack("<Q", 1 << 60) + b"{}",
    "safetensors/deep": struct.pack("<Q", 200_000) + b'{"a":' + b"[" * 199_995,
    "calibration/deep": b'{"dit_plan_calibration": ' + b"[" * 1_000_000,
    "scales/deep": b'{"ego": ' + b"[" * 1_000_000,
    "history/long_line": b'{"event": "step", "step": 1, "x": "' + b"x" * 1_000_000 + b'"}\n',
    "recording/claims": b"SPRINGS1" + struct.pack("<II", 1_000_000_000, 4),
    "checkpoint/state": b"\0" + json.dumps({"version": 1, "step": 1, "policies": {}, "x": list(range(100_000))}).encode(),
    "checkpoint/config": b"\3a" + b".a" * 150_000 + b" = 1\n",
}


class Bombs(unittest.TestCase):
    def test_each_is_read_or_refused_within_its_memory_and_time(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in BOMBS.items():
                path = Path(folder, name)
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(content)
            targets = sorted({name.split("/")[0] for name in BOMBS})
            result = subprocess.run([REPLAY, folder, *targets], capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stdout, f"{len(BOMBS)} files, 0 wrong\n")


if __name__ == "__main__":
    REPLAY = sys.argv.pop(1)
    unittest.main()
