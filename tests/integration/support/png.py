"""Reads greyscale PNG files of 8 bits, strictly, and writes such and colour ones."""

import struct
import zlib
from pathlib import Path


def read_chunks(content: bytes) -> list[tuple[bytes, bytes]]:
    assert content.startswith(b"\x89PNG\r\n\x1a\n"), "not a PNG file"
    chunks, at = [], 8
    while at < len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        kind, data = content[at + 4 : at + 8], content[at + 8 : at + 8 + length]
        (crc,) = struct.unpack(">I", content[at + 8 + length : at + 12 + length])
        assert crc == zlib.crc32(kind + data), f"chunk {kind!r} is damaged"
        chunks.append((kind, data))
        at += 12 + length
    assert chunks[0][0] == b"IHDR" and chunks[-1] == (b"IEND", b""), "not a whole PNG file"
    return chunks


def read_png(path: Path) -> tuple[int, int, bytes]:
    """Width, height and the filtered rows."""
    chunks = read_chunks(path.read_bytes())
    width, height, depth, colour, *_ = struct.unpack(">IIBBBBB", chunks[0][1])
    assert (depth, colour) == (8, 0), "not greyscale of 8 bits"
    rows = zlib.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT"))
    assert len(rows) == height * (1 + width), "pixels are missing"
    return width, height, rows


def write_png(path: Path, width: int, height: int, pixels: bytes, channels: int = 1) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = width * channels
    rows = b"".join(b"\0" + pixels[y * row : (y + 1) * row] for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)
