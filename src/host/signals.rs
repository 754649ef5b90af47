//! Signal dispositions of the process.

/// Makes a write beyond RLIMIT_FSIZE fail with EFBIG. By default SIGXFSZ kills the process, also one that has already printed an
/// address and only writes its log, so that the runtime would take the ADD for failed.
#[allow(unsafe_code)]
pub fn ignore_file_size_signal() {
    // SAFETY: no handler is installed, so no code can run at a signal; nothing else in the process changes the disposition of it,
    // and an unknown number would only be refused.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
