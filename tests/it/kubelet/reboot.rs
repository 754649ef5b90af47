//! Simulates a reboot of the node.

use std::fs;
use std::process::Command;

use super::lab::Lab;
use crate::harness::wait::{output, wait_until};
use crate::harness::{sh, sh_with};
use crate::runtimes::kill_shims;

/// The boot clock in seconds. `print` is a command that prints a file.
fn uptime(print: &mut Command) -> i64 {
    let text = String::from_utf8(output(print.arg("/proc/uptime")).stdout).unwrap();
    text.split('.').next().unwrap().parse().unwrap()
}

/// What a reboot does to /run, which contains the state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Run {
    Emptied,
    Kept,
}

impl Lab {
    /// Kills everything that a reboot ends. The control plane continues, as if it were on another machine. Then
    /// starts the node with another boot ID, and with a boot clock that starts again.
    pub fn reboot(&mut self, boot_id: &str, run: Run) {
        self.kill_kubelet();
        self.kill_containerd();
        kill_shims();
        // Mounts of pods are nested, so one pass may leave some.
        sh("for _ in 1 2 3; do \
                awk '$5 ~ \"^/run/(netns|containerd)/\" { print $5 }' /proc/self/mountinfo | sort -r | xargs -r umount -l; \
            done; rm -f /run/netns/*; ip link del azbr0");
        wait_until("the end of all links of pods", || {
            sh("ip -o link show type veth").lines().count() == 2
        });
        if run == Run::Emptied {
            sh("find /run -mindepth 1 -maxdepth 1 ! -name netns -exec rm -rf {} +");
        }
        self.write("boot_id", &format!("{boot_id}\n"));
        let file = self.path("boot_id");
        // The file cannot be removed while it is mounted, so unmount the previous one first.
        const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
        let mount = format!("umount {BOOT_ID} 2>/dev/null || true; mount --bind \"$1\" {BOOT_ID}");
        sh_with(&mount, &[&file]);
        // Start the boot clock twenty seconds after the start of the kernel.
        let offset = (20 - uptime(&mut Command::new("cat"))).to_string();
        let clock = ["unshare", "--time", "--boottime", &offset, "--fork"];
        self.clock = clock.map(str::to_owned).into();
        self.start_containerd();
        self.start_kubelet();
    }

    /// Checks that the node's boot clock started again, and that the state was written in this boot.
    #[track_caller]
    pub fn assert_booted(&self, boot_id: &str) {
        let mut cat = Command::new(&self.clock[0]);
        let seconds = uptime(cat.args(&self.clock[1..]).arg("cat"));
        assert!((20..600).contains(&seconds), "{seconds} s");
        let state = fs::read_to_string("/run/azure-vnet-ipam.json").unwrap();
        let line = format!("\"bootId\": \"{boot_id}\"");
        assert!(state.contains(&line), "{state}");
    }
}
