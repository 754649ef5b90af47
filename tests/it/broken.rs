//! The broken nodes that `tests/broken/node` makes for the pages: `check` names what is wrong, and its remedy, run as printed, repairs
//! the node. `broken_nodes.rs` breaks healthy ones in many more ways.

use std::process::Command;

use crate::harness::wait::output;
use crate::harness::{binary, package};
use crate::privileged::run_again;

/// Runs a command as an operator would, checks its exit status, and returns its stdout.
#[track_caller]
fn stdout_of(line: &str, status: i32) -> String {
    let output = output(Command::new("bash").args(["-c", line]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        output.status.code(),
        Some(status),
        "{line}: {text}{output:?}"
    );
    text
}

/// A kind of node.
struct Kind {
    name: &'static str,
    /// The exit status of `check`, and what its report begins with and says.
    status: i32,
    begins: &'static str,
    says: &'static [&'static str],
    /// What a person runs: as the report prints it after `sudo`, or what no command of a node can do.
    remedy: &'static str,
}

#[track_caller]
fn assert_repaired_by_its_remedy(test: &str, kind: Kind) {
    let mut node = Command::new(package().join("tests/broken/node"));
    let test = format!("broken::{test}");
    if !run_again(&test, node.arg(kind.name).env("BIN", binary())) {
        return;
    }
    let pods = "for pod in $(ip netns list | cut -d ' ' -f 1); do ip -n $pod -o -4 address show dev eth0 | sed 's|.*inet ||; s|/.*||'; done | sort";
    let before = stdout_of(pods, 0);
    let report = stdout_of("azure-vnet-ipam check", kind.status);
    assert!(report.starts_with(kind.begins), "{report}");
    for words in kind.says {
        assert!(report.contains(words), "{words}: {report}");
    }
    stdout_of(kind.remedy, 0);
    let new = stdout_of("add new", 0);
    assert!(
        !before.lines().any(|address| address == new.trim()),
        "{new}"
    );
    let report = stdout_of("azure-vnet-ipam check", 0);
    assert!(report.starts_with("Nothing is wrong; "), "{report}");
    stdout_of("del new", 0);
    assert_eq!(stdout_of(pods, 0), before, "who ran keeps the address");
}

macro_rules! kinds {
    ($($test:ident { $($key:ident: $value:expr),* $(,)? })*) => {
        $(
            #[test]
            #[ignore = "needs root, unshare, iproute2, perl and time namespaces"]
            fn $test() {
                assert_repaired_by_its_remedy(stringify!($test), Kind { $($key: $value),* });
            }
        )*
    };
}

kinds! {
    healthy_node_has_no_findings {
        name: "healthy",
        status: 0,
        begins: "Nothing is wrong; ",
        says: &[],
        remedy: "true",
    }
    leaked_addresses_are_reclaimed {
        name: "leaked",
        status: 1,
        begins: "2 leaks; ",
        says: &["default/web-2", "default/web-5", "sudo azure-vnet-ipam reclaim --yes"],
        remedy: "azure-vnet-ipam reclaim --yes",
    }
    corrupt_state_is_restored {
        name: "corrupt",
        status: 0,
        begins: "Nothing is wrong; ",
        says: &["was lost or damaged", "the next ADD restores it at once"],
        remedy: "true",
    }
    deleted_state_is_restored {
        name: "deleted",
        status: 0,
        begins: "Nothing is wrong; ",
        says: &["it is gone, though addresses were given", "the next ADD restores it at once"],
        remedy: "true",
    }
    dead_wire_server_is_reported_with_a_remedy {
        name: "dead-source",
        status: 1,
        begins: "1 source problem; ",
        says: &["it did not answer within 3 s", "or Azure's side"],
        remedy: "wire start",
    }
    changed_mac_address_is_reported_and_repaired {
        name: "wrong-mac",
        status: 1,
        begins: "1 interface problem; ",
        says: &["sudo ip link set dev eth0 address 7c:1e:52:f9:f3:c4"],
        remedy: "ip link set dev eth0 address 7c:1e:52:f9:f3:c4",
    }
}
