//! See the library of the same package.

use std::process::ExitCode;

use dlmalloc::GlobalDlmalloc;

#[global_allocator]
static ALLOCATOR: GlobalDlmalloc = GlobalDlmalloc;

fn main() -> ExitCode {
    azure_vnet_ipam::main()
}
