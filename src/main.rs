//! See the library of the same package.

use std::hint::black_box;
use std::process::ExitCode;

use dlmalloc::GlobalDlmalloc;

// musl's own allocator asks the kernel for every larger block, and gives it back at once.
#[global_allocator]
static ALLOCATOR: GlobalDlmalloc = GlobalDlmalloc;

/// What a call on a node with a few hundred addresses allocates, all in all. Only the pages that are used count.
const HEAP: usize = 256 << 10;

fn main() -> ExitCode {
    // Freed at once, it is what all that follows is taken from, instead of piece by piece from the kernel.
    drop(black_box(Vec::<u8>::with_capacity(HEAP)));
    azure_vnet_ipam::main()
}
