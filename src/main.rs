//! The executable; everything else is in the library of the same package.

use std::process::ExitCode;

use dlmalloc::GlobalDlmalloc;

// The allocator of musl requests every larger block from the kernel and returns it at once.
#[global_allocator]
static ALLOCATOR: GlobalDlmalloc = GlobalDlmalloc;

fn main() -> ExitCode {
    azure_vnet_ipam::main()
}
