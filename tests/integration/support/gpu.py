"""Whether this machine has a CUDA device that answers."""

import ctypes

SKIPPED = 77  # the exit code that ctest takes for it


def driver_problem() -> str:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver is installed (libcuda.so.1 was not found)"
    code = library.cuInit(0)
    return "" if code == 0 else f"the CUDA driver answers with error {code}"
