// Memory of the process's large CPU tensors.
#pragma once

namespace dtk::policies {

/// From here on CPU tensors of 64 KiB and more lie in a range of addresses of their own, whose free parts
/// join and are used again: the process's memory stays within 9/8 of the bytes that were alive at once, plus
/// 64 MiB, where the C library's allocator may take several times as much. Tensors that exist stay where they
/// are. What the machine refuses is c10::OutOfMemoryError. The CountingAllocatorGuard does the same without
/// this. Once, at the beginning of a program.
void use_host_heap();

}  // namespace dtk::policies
