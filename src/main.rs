//! The executable; everything else is in the library of the same package.

use std::env;
use std::process::ExitCode;

use dlmalloc::GlobalDlmalloc;

#[global_allocator]
static ALLOCATOR: GlobalDlmalloc = GlobalDlmalloc;

fn main() -> ExitCode {
    let args: Vec<_> = env::args_os().collect();
    ExitCode::from(azure_vnet_ipam::main(&args))
}
