//! The executable; everything else is in the library of the same package.

use std::process::ExitCode;

use dlmalloc::GlobalDlmalloc;

// musl's own allocator asks the kernel for every larger block, and gives it back at once.
#[global_allocator]
static ALLOCATOR: GlobalDlmalloc = GlobalDlmalloc;

fn main() -> ExitCode {
    azure_vnet_ipam::main()
}
