//! The executable; everything else is in the library of the same package.

#![no_main]

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use dlmalloc::GlobalDlmalloc;

// The allocator of musl requests every larger block from the kernel and returns it at once.
#[global_allocator]
static ALLOCATOR: GlobalDlmalloc = GlobalDlmalloc;

/// Called by the C library. Before Rust's own `main`, twelve system calls would prepare a message for a stack overflow, which takes a
/// twelfth of VERSION's time and a fortieth of an ADD's. What else is prepared there, [`azure_vnet_ipam::main`] does.
#[expect(unsafe_code, reason = "the C library calls it, by its name")]
#[unsafe(no_mangle)]
extern "C" fn main(count: c_int, args: *const *const c_char) -> c_int {
    let args = (0..usize::try_from(count).unwrap_or(0)).map(|n| {
        // SAFETY: `args` has `count` pointers to strings that end with a zero and that nobody changes (ISO C, 5.1.2.2.1).
        let arg = unsafe { CStr::from_ptr(*args.add(n)) };
        OsStr::from_bytes(arg.to_bytes()).to_owned()
    });
    c_int::from(azure_vnet_ipam::main(&args.collect::<Vec<_>>()))
}
