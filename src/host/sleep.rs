//! Sleeps on the boot clock.

use super::clock::{block_at_most, boot_now};
use crate::ipam::Moment;

/// Sleeps until the boot clock shows this time.
pub fn sleep_until(time: Moment) {
    loop {
        let left = time.since(boot_now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(block_at_most(left));
    }
}
