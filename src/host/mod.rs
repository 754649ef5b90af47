//! Reads from the kernel, and opens files of the host. [`Paths`] builds every path of the program.

mod clock;
mod files;
mod flock;
mod libc_calls;
mod links;
mod netlink;
mod netns;
mod network;
mod paths;
mod rotating_file;
mod stream_io;

pub use clock::{Timestamp, boot_id, boot_now, shift_boot_clock, sleep_until, wall_now};
pub use files::{
    BLOCK, ReadOutcome, check_room, create_new, io_reason, is_noexec, metadata_below, open,
    overwrite, read_bounded, read_bounded_with, read_no_link, read_text, read_up_to, replace,
    replace_refusal, room, write_refusal,
};
pub use flock::{LockOutcome, lock, lock_folder};
pub use libc_calls::{exit_on_termination_signals, ignore_file_size_signal, stdout_was_closed};
pub use links::{Link, links, links_named};
pub use netns::{host_namespace_id, namespace_id, netns, netns_cookie};
pub use network::{
    KernelRoute, NetnsScanner, Route, RouteKind, discarding_kind, forwarding_route, host_addresses,
    host_has, host_routes, matching_route, matching_route_from, namespace_has, outside, routes,
};
pub use paths::Paths;
pub use rotating_file::{RotatingFile, rotated_path};
pub use stream_io::{alters_terminal, read_stream, write_stream};
