//! The executable; everything else is in the library of the same package.

#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering};

#[global_allocator]
static HEAP: Heap = Heap {
    given: AtomicUsize::new(0),
    first: UnsafeCell::new(First([0; FIRST])),
};

/// In bytes. With a quarter of it, an ADD on a node with 250 pods used it up and took a quarter longer.
const FIRST: usize = 1 << 20;

/// Gives the first memory of a process out piece by piece, and takes only the last piece back; with dlmalloc instead, a DEL took 2 %
/// longer. The rest is musl's, which requests every larger block from the kernel and returns it at once.
struct Heap {
    /// How many bytes of the first memory.
    given: AtomicUsize,
    first: UnsafeCell<First>,
}

/// Each piece begins where any usual value may.
#[repr(align(16))]
#[expect(dead_code, reason = "only its address is used")]
struct First([u8; FIRST]);

fn rounded(layout: Layout) -> usize {
    layout.size().next_multiple_of(align_of::<First>())
}

// SAFETY: no two owners have the same piece of the memory.
#[expect(unsafe_code, reason = "all threads share it")]
unsafe impl Sync for Heap {}

// SAFETY: a piece of the first memory is nobody else's, and who gets it next sees it as it was left; all other memory is the system's.
#[expect(unsafe_code, reason = "the trait demands it")]
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = rounded(layout);
        if size <= FIRST && layout.align() <= align_of::<First>() {
            let place = self.given.fetch_add(size, Ordering::AcqRel);
            if place <= FIRST - size {
                return self.first.get().cast::<u8>().wrapping_add(place);
            }
        }
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        let place = piece.addr().wrapping_sub(self.first.get().addr());
        if place >= FIRST {
            return unsafe { System.dealloc(piece, layout) };
        }
        let end = place + rounded(layout);
        let (before, after) = (Ordering::AcqRel, Ordering::Relaxed);
        // Another piece may be behind it.
        let _ = self.given.compare_exchange(end, place, before, after);
    }
}

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
