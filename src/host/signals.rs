//! What signals do to the process.

/// Lets a write over the limit on the size of files (RLIMIT_FSIZE) fail like any other (EFBIG). By default it kills the process, also
/// one that has only the log left to write, so that the runtime takes an address that it was told of for none.
#[allow(unsafe_code)]
pub fn ignore_file_size_signal() {
    // SAFETY: no handler is installed, so no code can run at a signal; nothing else in the process changes the disposition of it,
    // and an unknown number would only be refused.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
