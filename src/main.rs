//! See the library of the same package.

use std::process::ExitCode;

fn main() -> ExitCode {
    azure_vnet_ipam::main()
}
