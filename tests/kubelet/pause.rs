//! The one program of the image that all pods of the lab run, as sandbox and as container: it sleeps until a signal ends it.
//!
//! The first process of a PID namespace gets no signal that it has no handler for, so that every pod would last for its whole grace
//! period without one.

unsafe extern "C" {
    fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
    fn pause() -> i32;
    fn _exit(status: i32) -> !;
}

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

extern "C" fn stop(_: i32) {
    unsafe { _exit(0) }
}

fn main() {
    unsafe {
        signal(SIGINT, stop);
        signal(SIGTERM, stop);
        loop {
            pause();
        }
    }
}
