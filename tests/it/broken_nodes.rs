//! A table of broken nodes. On each, `check` reports the problems and predicts an ADD; a real ADD verifies the prediction; the commands that `check` printed are run as they stand; and then `check` finds nothing, with every pod as it was.
//!
//! `tests/broken/node healthy` makes a node with three pods in namespaces of its own. A row breaks it with shell commands. The
//! screens stand in `tests/fixtures/broken`; `ACCEPT=1` takes new ones.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

use crate::harness::wait::output;
use crate::harness::{binary, package};
use crate::privileged::run_again;

/// One broken node.
struct Row {
    /// Its name: that of the test and of the fixture.
    name: &'static str,
    /// What breaks it.
    broken_by: &'static str,
    /// The kinds of findings that are errors or warnings, as `check` orders them; a group counts once.
    findings: &'static [&'static str],
    /// Whether an ADD succeeds.
    add: Add,
    /// What a person does whom no command can replace: the administrator of Azure, or of the network.
    by_hand: &'static str,
    /// The name of the plugin that is looked at.
    program: &'static str,
    /// How much later everything happens, in seconds, so that what is dead counts as such.
    later: u32,
    /// How many seconds after that it is healed.
    heals_after: u32,
}

/// What an ADD comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Add {
    /// It gets an address.
    Succeeds,
    /// It fails.
    Fails,
    /// It fails, and succeeds when the runtime tries again half a minute later.
    Waits,
}

/// A healthy node, as the base of all rows.
const HEALTHY: Row = Row {
    name: "",
    broken_by: "true",
    program: "azure-vnet-ipam",
    findings: &[],
    add: Add::Succeeds,
    by_hand: "true",
    later: 0,
    heals_after: 0,
};

macro_rules! broken_nodes {
    ($($name:ident { $($key:ident: $value:expr),* $(,)? })*) => {
        $(
            #[test]
            #[ignore = "needs root, unshare, iproute2, perl, iptables and time namespaces"]
            fn $name() {
                let row = Row { name: stringify!($name), $($key: $value,)* ..HEALTHY };
                let mut node = Command::new(package().join("tests/broken/node"));
                let test = concat!("broken_nodes::", stringify!($name));
                if run_again(test, node.arg("healthy").env("BIN", binary())) {
                    examine(&row);
                }
            }
        )*

        /// The names of all rows.
        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

broken_nodes! {
    healthy {}

    // ---- The disk ----
    run_is_full {
        broken_by: "used=$(df -k --output=used /run | tail -n 1); mount -o remount,size=$((used + 64))k /run; head -c 10m /dev/zero >/run/filler 2>/dev/null; true",
        findings: &["disk"],
        add: Add::Fails,
        by_hand: "rm /run/filler",
    }
    run_has_no_inodes {
        broken_by: "used=$(df --output=iused /run | tail -n 1); mount -o remount,nr_inodes=$((used + 8)) /run; n=0; while touch /run/filler-$((n++)) 2>/dev/null; do :; done",
        findings: &["disk"],
        add: Add::Fails,
        by_hand: "rm /run/filler-*",
    }
    run_is_read_only {
        broken_by: "mount -o remount,bind,ro /run",
        findings: &["disk", "lock"],
        add: Add::Fails,
    }
    log_folder_is_full {
        broken_by: "mount -o remount,size=64k /var/log; head -c 1m /dev/zero >/var/log/filler 2>/dev/null; true",
        findings: &["log"],
        by_hand: "rm /var/log/filler",
    }
    log_folder_is_read_only {
        broken_by: "mount -o remount,ro /var/log",
        findings: &["log"],
        by_hand: "mount -o remount,rw /var/log",
    }

    // ---- The state ----
    state_is_deleted {
        broken_by: "rm /var/run/azure-vnet-ipam.json",
        findings: &["state"],
    }
    state_is_empty {
        broken_by: "truncate -s 0 /var/run/azure-vnet-ipam.json",
        findings: &["state"],
    }
    state_is_full_of_zeros {
        broken_by: "truncate -s 0 /var/run/azure-vnet-ipam.json; truncate -s 4096 /var/run/azure-vnet-ipam.json",
        findings: &["state"],
    }
    state_and_journal_are_deleted {
        broken_by: "rm /var/run/azure-vnet-ipam.json /var/run/azure-vnet/azure-vnet-ipam.journal",
        findings: &["state"],
        add: Add::Waits,
        heals_after: 61,
    }
    state_and_lock_folder_are_wiped {
        broken_by: "rm -r /var/run/azure-vnet-ipam.json /var/run/azure-vnet",
        findings: &["state"],
        add: Add::Waits,
        heals_after: 61,
    }
    lock_folder_is_wiped {
        broken_by: "rm -r /var/run/azure-vnet",
    }
    quarantine_is_running {
        broken_by: "rm /var/run/azure-vnet-ipam.json /var/run/azure-vnet/azure-vnet-ipam.journal; add x >/dev/null; true",
        findings: &["state"],
        add: Add::Waits,
        heals_after: 61,
    }
    state_of_another_node_is_copied_in {
        broken_by: "sed -i 's/10\\.224\\./10.99./g; s/\"bootId\": \"[^\"]*\"/\"bootId\": \"another\"/' /var/run/azure-vnet-ipam.json; rm -r /var/run/azure-vnet",
    }
    old_copy_is_restored {
        broken_by: "cp /var/run/azure-vnet-ipam.json /run/old; add web-4 >/dev/null; add web-5 >/dev/null; cp /run/old /var/run/azure-vnet-ipam.json",
    }
    old_copy_is_restored_without_a_journal {
        broken_by: "cp /var/run/azure-vnet-ipam.json /run/old; add web-4 >/dev/null; cp /run/old /var/run/azure-vnet-ipam.json; rm /var/run/azure-vnet/azure-vnet-ipam.journal",
        findings: &["state"],
        add: Add::Waits,
        heals_after: 61,
    }
    state_was_healed {
        broken_by: "echo '{' >/var/run/azure-vnet-ipam.json; add web-4 >/dev/null",
    }
    state_is_of_a_newer_format {
        broken_by: "cp /var/run/azure-vnet-ipam.json /run/old; sed -i 's/\"format\": [0-9]*/\"format\": 99/' /var/run/azure-vnet-ipam.json",
        findings: &["state"],
        add: Add::Fails,
        by_hand: "cp /run/old /var/run/azure-vnet-ipam.json",
    }
    state_is_a_folder {
        broken_by: "rm /var/run/azure-vnet-ipam.json; mkdir /var/run/azure-vnet-ipam.json",
        findings: &["state"],
    }
    state_can_be_read_by_everybody {
        broken_by: "chmod 644 /var/run/azure-vnet-ipam.json",
    }

    // ---- The records ----
    two_addresses_are_leaked {
        broken_by: "vanish web-1; vanish web-2",
        later: 3700,
        findings: &["leak"],
    }
    twenty_addresses_are_leaked {
        broken_by: "for n in {1..20}; do add job-$n >/dev/null; vanish job-$n; done",
        later: 3700,
        findings: &["leak"],
    }
    every_address_is_held {
        broken_by: "for n in {4..28}; do add web-$n >/dev/null; done",
        findings: &["pool"],
        add: Add::Fails,
        by_hand: "del web-27; del web-28",
    }
    every_address_is_leaked {
        broken_by: "for n in {4..28}; do add job-$n >/dev/null; vanish job-$n; done",
        later: 3700,
        findings: &["pool", "leak"],
    }
    a_pod_has_a_free_address {
        broken_by: "ip netns add stray; ip link add s0 type veth peer name eth0 netns stray; ip -n stray addr add 10.224.0.20/16 dev eth0; ip -n stray link set eth0 up",
        findings: &["stray"],
    }
    two_pods_have_one_address {
        broken_by: "ip netns add other; ip link add s0 type veth peer name eth0 netns other; ip -n other addr add 10.224.0.5/16 dev eth0; ip -n other link set eth0 up",
        findings: &["duplicate"],
        by_hand: "ip netns del other; sleep 1",
    }
    a_pod_has_an_address_that_azure_does_not_list {
        broken_by: "ip netns add other; ip link add s0 type veth peer name eth0 netns other; ip -n other addr add 10.224.9.9/16 dev eth0; ip -n other link set eth0 up",
        findings: &["foreign"],
        by_hand: "ip netns del other; sleep 1",
    }
    the_host_has_all_addresses {
        broken_by: "for n in {8..32}; do ip addr add 10.224.0.$n/16 dev eth0; done",
        findings: &["pool", "wired"],
        add: Add::Fails,
    }
    the_host_has_one_address {
        broken_by: "ip addr add 10.224.0.9/16 dev eth0",
        findings: &["wired"],
    }
    a_route_to_a_free_address_is_left_over {
        broken_by: "ip route add 10.224.0.9/32 dev eth0",
        findings: &["wired"],
    }
    another_ipam_gives_our_addresses {
        broken_by: "mkdir -p /var/lib/cni/networks/kubenet; touch /var/lib/cni/networks/kubenet/10.224.0.30",
        findings: &["owner"],
        by_hand: "rm -r /var/lib/cni/networks",
    }

    // ---- The lock ----
    lock_is_held_by_a_stopped_process {
        broken_by: "setsid perl -MFcntl=:flock -e 'open(F, \">>\", $ARGV[0]); flock(F, LOCK_EX); kill STOP => $$; sleep 600' /var/run/azure-vnet/azure-vnet-ipam.lock </dev/null >/dev/null 2>&1 & pid=$!; ln -s real/$pid /proc/$pid; until grep -q '^[0-9]* (perl) T' /proc/$pid/stat; do sleep 0.05; done",
        findings: &["lock"],
        add: Add::Fails,
    }
    lock_file_is_a_folder {
        broken_by: "rm /var/run/azure-vnet/azure-vnet-ipam.lock; mkdir /var/run/azure-vnet/azure-vnet-ipam.lock",
        findings: &["lock"],
        add: Add::Fails,
    }
    lock_folder_is_a_file {
        broken_by: "rm -r /var/run/azure-vnet; touch /var/run/azure-vnet",
        findings: &["lock"],
        add: Add::Fails,
    }

    // ---- The source ----
    wire_server_is_dead {
        broken_by: "wire stop",
        findings: &["source"],
        by_hand: "wire start",
    }
    wire_server_is_dead_and_there_is_no_state {
        broken_by: "del web-1; del web-2; del web-3; rm -r /var/run/azure-vnet-ipam.json /var/run/azure-vnet; wire stop",
        findings: &["source", "state"],
        add: Add::Fails,
        by_hand: "wire start; add x; true",
        heals_after: 61,
    }
    wire_server_refuses {
        broken_by: "printf 'HTTP/1.1 403 Forbidden\\r\\nContent-Length: 0\\r\\n\\r\\n' >/run/broken-node/wire.xml.http",
        findings: &["source"],
        by_hand: "rm /run/broken-node/wire.xml.http",
    }
    wire_server_is_in_trouble {
        broken_by: "printf 'HTTP/1.1 503 Busy\\r\\nContent-Length: 0\\r\\n\\r\\n' >/run/broken-node/wire.xml.http",
        findings: &["source"],
        by_hand: "rm /run/broken-node/wire.xml.http",
    }
    a_proxy_redirects {
        broken_by: "printf 'HTTP/1.1 302 Found\\r\\nLocation: http://login.example/\\r\\nContent-Length: 0\\r\\n\\r\\n' >/run/broken-node/wire.xml.http",
        findings: &["source"],
        by_hand: "rm /run/broken-node/wire.xml.http",
    }
    a_login_page_answers {
        broken_by: "echo '<html><body>Please log in</body></html>' >/run/broken-node/wire.xml",
        findings: &["source"],
        by_hand: "cp $REPOSITORY/testdata/wire.xml /run/broken-node/wire.xml",
    }
    the_answer_is_cut_off {
        broken_by: "head -c 500 $REPOSITORY/testdata/wire.xml >/run/broken-node/wire.xml",
        findings: &["source"],
        by_hand: "cp $REPOSITORY/testdata/wire.xml /run/broken-node/wire.xml",
    }
    the_answer_lists_no_interface {
        broken_by: "echo '<Interfaces></Interfaces>' >/run/broken-node/wire.xml",
        findings: &["source"],
        by_hand: "cp $REPOSITORY/testdata/wire.xml /run/broken-node/wire.xml",
    }
    the_answer_lists_no_address {
        broken_by: "sed -i 's/<IPAddress [^>]*IsPrimary=\"false\"[^>]*>//g' /run/broken-node/wire.xml",
        findings: &["interface"],
        by_hand: "cp $REPOSITORY/testdata/wire.xml /run/broken-node/wire.xml",
    }
    a_blackhole_route_hides_the_wire_server {
        broken_by: "ip route replace blackhole 168.63.129.16/32",
        findings: &["source"],
        by_hand: "ip route del blackhole 168.63.129.16/32; ip route replace 168.63.129.16 dev wire0",
    }
    a_route_leads_to_a_wrong_device {
        broken_by: "ip route replace 168.63.129.16 dev azbr0; ip neigh replace 168.63.129.16 lladdr 12:34:56:78:9a:bc dev azbr0 nud permanent",
        findings: &["source"],
        by_hand: "ip route replace 168.63.129.16 dev wire0",
    }
    a_firewall_drops_the_request {
        broken_by: "iptables -A OUTPUT -d 168.63.129.16/32 -j DROP",
        findings: &["source"],
        by_hand: "iptables -D OUTPUT -d 168.63.129.16/32 -j DROP",
    }
    hardware_address_was_changed {
        broken_by: "ip link set dev eth0 address 00:0d:3a:9f:12:34",
        findings: &["interface"],
    }
    interface_was_renamed {
        broken_by: "ip link set eth0 down; ip link set eth0 name eth9; ip link set eth9 up",
    }

    a_second_interface_has_the_same_hardware_address {
        broken_by: "ip link add name vf0 address 7c:1e:52:f9:f3:c4 up type bridge",
    }

    second_name_has_trouble_of_its_own {
        program: "azure-vnet-ipamv6",
        broken_by: "cp /opt/cni/bin/azure-vnet-ipam /opt/cni/bin/azure-vnet-ipamv6; sed -i 's/\"azure-vnet-ipam\"/\"azure-vnet-ipamv6\", \"environment\": \"azure\"/' /etc/cni/net.d/10-bridge.conflist; sed -i 's|</Interface>|<IPSubnet Prefix=\"fd00:1::/64\"><IPAddress Address=\"fd00:1::4\" IsPrimary=\"true\"/><IPAddress Address=\"fd00:1::5\" IsPrimary=\"false\"/><IPAddress Address=\"fd00:1::6\" IsPrimary=\"false\"/></IPSubnet></Interface>|' /run/broken-node/wire.xml; echo '{' >/var/run/azure-vnet-ipamv6.json",
        findings: &["state"],
        add: Add::Waits,
        heals_after: 61,
    }

    // ---- The configuration ----
    kubeconfig_is_missing {
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"environment\": \"ipv6NodeIpam\", &/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["source", "add"],
        add: Add::Fails,
        by_hand: "cp $REPOSITORY/conflist-examples/bridge.conflist /etc/cni/net.d/10-bridge.conflist",
    }
    a_key_is_misspelt {
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"exlude\": [], &/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["conflist"],
        by_hand: "cp $REPOSITORY/conflist-examples/bridge.conflist /etc/cni/net.d/10-bridge.conflist",
    }
    the_environment_is_misspelt {
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"environment\": \"azuer\", &/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["conflist"],
        add: Add::Fails,
        by_hand: "cp $REPOSITORY/conflist-examples/bridge.conflist /etc/cni/net.d/10-bridge.conflist",
    }
    a_comma_is_missing {
        broken_by: "sed -i 's/\"azbr0\",/\"azbr0\"/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["conflist"],
        add: Add::Fails,
        by_hand: "cp $REPOSITORY/conflist-examples/bridge.conflist /etc/cni/net.d/10-bridge.conflist",
    }
    master_does_not_exist {
        broken_by: "sed -i 's/\"type\": \"bridge\"/\"master\": \"eth7\", &/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["add"],
        add: Add::Fails,
        by_hand: "cp $REPOSITORY/conflist-examples/bridge.conflist /etc/cni/net.d/10-bridge.conflist",
    }
    no_pool_has_the_subnet {
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"subnet\": \"10.9.0.0\\/16\", &/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["add"],
        add: Add::Fails,
        by_hand: "cp $REPOSITORY/conflist-examples/bridge.conflist /etc/cni/net.d/10-bridge.conflist",
    }
    ipv6_is_wanted_and_there_is_none {
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"families\": [\"ipv4\", \"ipv6\"], &/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["add"],
        add: Add::Fails,
        by_hand: "cp $REPOSITORY/conflist-examples/bridge.conflist /etc/cni/net.d/10-bridge.conflist",
    }
    another_conflist_comes_first {
        broken_by: "echo '{\"cniVersion\": \"1.0.0\", \"name\": \"x\", \"type\": \"ptp\"}' >/etc/cni/net.d/05-x.conf",
        findings: &["conflist"],
        by_hand: "rm /etc/cni/net.d/05-x.conf",
    }
    main_plugin_is_missing {
        broken_by: "rm /opt/cni/bin/bridge",
        findings: &["executable"],
        add: Add::Fails,
        by_hand: "ln -s /bin/true /opt/cni/bin/bridge",
    }
    another_program_stands_in_the_place_of_the_plugin {
        broken_by: "cp /opt/cni/bin/azure-vnet-ipam /run/saved; cp --remove-destination /bin/true /opt/cni/bin/azure-vnet-ipam",
        findings: &["executable"],
        add: Add::Fails,
        by_hand: "cp --remove-destination /run/saved /opt/cni/bin/azure-vnet-ipam",
    }
    plugin_is_not_executable {
        broken_by: "chmod 644 /opt/cni/bin/azure-vnet-ipam",
        findings: &["executable"],
        add: Add::Fails,
    }
}

/// The name of the plugin that this process looks at: it examines one row.
static PROGRAM: OnceLock<&str> = OnceLock::new();

/// Runs a command as an operator would. `azure-vnet-ipam` is always ours, whatever stands in the folder of plugins.
fn run_command(line: &str) -> Output {
    let ours = "azure-vnet-ipam() { $OURS \"$@\"; }; export -f azure-vnet-ipam; ";
    let mut bash = Command::new("bash");
    let program = PROGRAM.get().copied().unwrap_or("azure-vnet-ipam");
    bash.env("OURS", format!("/run/broken-node/bin/{program}"));
    bash.env("PLUGIN", program);
    bash.env("REPOSITORY", package());
    output(bash.args(["-c", &format!("{ours}{line}")]))
}

/// Runs a command whose exit status does not matter, and returns its stdout.
fn stdout_of(line: &str) -> String {
    String::from_utf8_lossy(&run_command(line).stdout).into_owned()
}

/// Pod to address, as the kernel has them.
fn running_pods() -> BTreeMap<String, String> {
    let line = "for pod in $(ip netns list | cut -d ' ' -f 1); do ip -n $pod -o -4 address show dev eth0 | sed \"s|.*inet \\([^/]*\\)/.*|$pod \\1|\"; done";
    let text = stdout_of(line);
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(p, a)| (p.to_owned(), a.to_owned())).collect()
}

/// Runs `check` this much later. Returns its report for programs.
fn check(later: u32) -> (Value, Option<i32>) {
    let output = run_command(&format!("later {later} $OURS check --json"));
    let stdout = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    (
        report.unwrap_or_else(|e| panic!("{e}: {stdout}{errors}")),
        output.status.code(),
    )
}

fn examine(row: &Row) {
    PROGRAM.set(row.program).unwrap();
    // A copy that no row takes away.
    stdout_of("cp /opt/cni/bin/azure-vnet-ipam $OURS");
    let broken = run_command(row.broken_by);
    let errors = String::from_utf8_lossy(&broken.stderr);
    assert!(broken.status.success(), "{}: {errors}", row.broken_by);
    let before = running_pods();
    let (report, status) = check(row.later);
    assert_findings(row, &report);
    assert_eq!(
        status,
        Some(i32::from(!row.findings.is_empty())),
        "{report:#}"
    );
    assert_screen(row);
    assert_doctor_agrees(row, &report, status);
    assert_prediction(row, &report);
    run_printed_commands(row, &report);
    let by_hand = run_command(row.by_hand);
    let errors = String::from_utf8_lossy(&by_hand.stderr);
    assert!(by_hand.status.success(), "{}: {errors}", row.by_hand);
    // What the next ADD heals by itself.
    let wait = row.later + row.heals_after;
    let healed = run_command(&format!("later {wait} add last"));
    let text = String::from_utf8_lossy(&healed.stdout);
    assert!(healed.status.success(), "{text}");
    let (report, status) = check(wait);
    assert_eq!(status, Some(0), "{report:#}");
    let after = running_pods();
    let is_gone = |pod: &str| matches!(pod, "other" | "web-27" | "web-28");
    for (pod, address) in before.iter().filter(|(pod, _)| !is_gone(pod)) {
        assert_eq!(after.get(pod), Some(address), "pod {pod} was harmed");
    }
    let mut addresses: Vec<_> = after.values().collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), after.len(), "one address twice: {after:?}");
}

/// Checks that the findings that are errors or warnings are those of the row.
fn assert_findings(row: &Row, report: &Value) {
    let mut kinds: Vec<&str> = Vec::new();
    let mut last = ("", "");
    for finding in report["findings"].as_array().unwrap() {
        let text = |key: &str| finding[key].as_str().unwrap();
        let group = (text("kind"), text("cause"));
        if text("severity") != "note" && (group != last || group.1.is_empty()) {
            kinds.push(group.0);
            last = group;
        }
        assert_commands(finding);
    }
    assert_eq!(kinds, row.findings, "{report:#}");
}

/// Checks that the commands of a finding can be pasted: no placeholder, no pod is deleted or restarted.
fn assert_commands(finding: &Value) {
    for command in finding["commands"].as_array().unwrap() {
        let command = command.as_str().unwrap();
        let mut words = command.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let is_placeholder = |word: &str| {
            [
                "INTERFACE",
                "ADDRESS",
                "HOST",
                "PORT",
                "FILE",
                "NAME",
                "ID",
                "IF",
            ]
            .contains(&word)
        };
        assert!(!words.any(is_placeholder), "{command}");
        for harm in [
            "kubectl delete",
            "crictl rm",
            "crictl stop",
            "reboot",
            "systemctl restart",
        ] {
            assert!(!command.contains(harm), "{command}");
        }
    }
}

/// Checks that the screen fits, and compares it with its fixture.
fn assert_screen(row: &Row) {
    let screen = stdout_of(&format!(
        "export COLUMNS=80; later {} $OURS check",
        row.later
    ));
    assert!(screen.is_ascii(), "{screen}");
    assert!(screen.lines().count() <= 60, "{screen}");
    // A URL is not broken.
    let is_wide = |line: &&str| line.len() > 80 && !line.contains("://");
    let wide: Vec<_> = screen.lines().filter(is_wide).collect();
    assert_eq!(wide, [""; 0], "{screen}");
    let screen = without_volatile_parts(&screen);
    let path = package().join(format!("tests/fixtures/broken/{}.txt", row.name));
    if std::env::var_os("ACCEPT").is_some() {
        fs::write(path, screen).unwrap();
        return;
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(known, screen, "where that is meant: ACCEPT=1");
}

/// The screen with placeholders for process IDs, ages and sizes.
fn without_volatile_parts(screen: &str) -> String {
    let is_number = |word: &str| word.chars().all(|c| c.is_ascii_digit()) && !word.is_empty();
    let mut lines = Vec::new();
    for line in screen.lines() {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for n in 1..words.len() {
            let before = words[n - 1].clone();
            let after = words.get(n + 1).cloned().unwrap_or_default();
            let is_volatile = ["process", "-KILL", "-fp"].contains(&&*before)
                || ["KiB", "s", "inodes", "bytes"].contains(&&*after);
            // The bridge of the pods has another address on each node.
            if before == "azbr0" {
                words[n] = "MAC".to_owned();
            }
            if is_volatile && is_number(&words[n]) {
                words[n] = "N".to_owned();
            }
            let is_age = words[n].len() > 1
                && words[n].starts_with(|c: char| c.is_ascii_digit())
                && words[n].trim_end_matches([',', '.']).ends_with(['s', 'm'])
                && words[n]
                    .chars()
                    .all(|c| c.is_ascii_digit() || "smhd,.".contains(c));
            if is_age {
                words[n] = "AGE".to_owned();
            }
        }
        lines.push(words.join(" "));
    }
    // The time is part of the name of a state that was set aside.
    let mut text = lines.join("\n") + "\n";
    while let Some(at) = text.find(".json.corrupt-2") {
        let start = at + ".json.corrupt-".len();
        let end = text[start..]
            .find([' ', '\n'])
            .map_or(text.len(), |end| start + end);
        text.replace_range(start..end, "TIME");
    }
    text
}

/// Checks that `doctor` says the same.
fn assert_doctor_agrees(row: &Row, report: &Value, status: Option<i32>) {
    let output = run_command(&format!("later {} $OURS doctor --json", row.later));
    assert_eq!(output.status.code(), status);
    let doctor: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(doctor["summary"], report["summary"]);
    let kinds = |list: &Value, kind: &str, status: &str| -> Vec<String> {
        let problems = list.as_array().unwrap().iter();
        let problems = problems.filter(|f| !["ok", "note"].contains(&f[status].as_str().unwrap()));
        problems.map(|f| f[kind].to_string()).collect()
    };
    assert_eq!(
        kinds(&doctor["lines"], "subject", "status"),
        kinds(&report["findings"], "kind", "severity")
    );
}

/// Makes an ADD at the same moment, and compares it with what `check` predicted.
fn assert_prediction(row: &Row, report: &Value) {
    let adds = report["adds"].as_array().unwrap();
    let [add] = &adds[..] else {
        panic!("{report:#}");
    };
    assert_eq!(add["succeeds"], row.add == Add::Succeeds, "{report:#}");
    assert_eq!(add["waits"], row.add == Add::Waits, "{report:#}");
    let made = run_command(&format!("later {} add new", row.later));
    let text = String::from_utf8_lossy(&made.stdout);
    assert_eq!(
        made.status.success(),
        row.add == Add::Succeeds,
        "{text} {add:#}"
    );
    if row.add == Add::Succeeds {
        stdout_of(&format!("later {} del new", row.later));
    } else if let Some(code) = add["code"].as_u64().filter(|_| text.contains("\"code\"")) {
        assert!(
            text.contains(&format!("\"code\": {code},")),
            "{text} {add:#}"
        );
    }
}

/// Runs every command that `check` printed, as it stands, twice where a first look leads to a second.
fn run_printed_commands(row: &Row, report: &Value) {
    for finding in report["findings"].as_array().unwrap() {
        for command in finding["commands"].as_array().unwrap() {
            // The test is root already, and small machines have no sudo.
            let command = command.as_str().unwrap().replace("sudo ", "");
            let command = command.replace("azure-vnet-ipam reclaim", "$OURS reclaim");
            let command = match row.later {
                0 => command,
                later => format!("later {later} {command}"),
            };
            run_command(&command);
        }
    }
}

/// A pod whose network namespace only an open descriptor of another process keeps, and no link of the host leads to.
const POD_BEHIND_A_DESCRIPTOR: &str = r#"
    address=$(add former)
    ip netns del former
    rm /var/lib/cni/results/*
    ip netns add hidden
    ip -n hidden link add b0 type bridge
    ip -n hidden addr add "$address/16" dev b0
    setsid sh -c 'exec 9</run/netns/hidden; exec sleep 600' </dev/null >/dev/null 2>&1 &
    ln -s real/$! /proc/$!
    until [[ $(readlink /proc/$!/fd/9) == */hidden ]]; do sleep 0.05; done
    ip netns del hidden
"#;

#[test]
#[ignore = "needs root, unshare, iproute2, perl, setpriv and time namespaces"]
fn process_that_may_not_be_inspected_makes_the_look_incomplete() {
    let test = "broken_nodes::process_that_may_not_be_inspected_makes_the_look_incomplete";
    let mut node = Command::new(package().join("tests/broken/node"));
    if !run_again(test, node.arg("healthy").env("BIN", binary())) {
        return;
    }
    stdout_of("cp /opt/cni/bin/azure-vnet-ipam $OURS");
    let made = run_command(POD_BEHIND_A_DESCRIPTOR);
    assert!(made.status.success(), "{made:?}");
    let (report, _) = check(3700);
    assert_eq!(report["notSeen"], serde_json::json!([]), "{report:#}");
    let is_leak = |finding: &Value| finding["kind"] == "leak";
    let leaks = |report: &Value| {
        report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|f| is_leak(f))
            .count()
    };
    assert_eq!(leaks(&report), 0, "{report:#}");
    // Root without this capability may not read the descriptors of other processes.
    let blind =
        "later 3700 setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace $OURS check --json";
    let report: Value = serde_json::from_str(&stdout_of(blind)).unwrap();
    let not_seen = report["notSeen"][0].as_str().unwrap();
    assert!(not_seen.contains("may not be inspected"), "{report:#}");
    assert_eq!(leaks(&report), 0, "{report:#}");
}

#[test]
fn every_fixture_belongs_to_a_row() {
    let folder = package().join("tests/fixtures/broken");
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    let mut names = NAMES.to_vec();
    found.sort();
    names.sort_unstable();
    assert_eq!(found, names);
    assert!(names.len() >= 30);
}
