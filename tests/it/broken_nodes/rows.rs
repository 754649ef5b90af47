//! The broken nodes, each with what `check` must find there. Every row is a test.

use std::process::Command;

use super::examine::examine;
use super::{Add, HEALTHY, Row, row};
use crate::harness::{binary, package};
use crate::privileged::run_again;

macro_rules! broken_nodes {
    ($($name:ident { $($key:ident: $value:expr),* $(,)? })*) => {
        $(
            #[test]
            #[ignore = "needs root, unshare, iproute2, perl, iptables and time namespaces"]
            fn $name() {
                let mut node = Command::new(package().join("tests/broken/node"));
                let test = concat!("broken_nodes::rows::", stringify!($name));
                let row = row(stringify!($name));
                if run_again(test, node.arg(row.kind).env("BIN", binary())) {
                    examine(row);
                }
            }
        )*

        /// All rows.
        pub const ROWS: &[Row] = &[$(Row { name: stringify!($name), $($key: $value,)* ..HEALTHY }),*];
    };
}

broken_nodes! {
    healthy {
        screen: true,
    }

    // ---- The disk ----
    run_is_full {
        screen: true,
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
    the_lock_folder_is_full {
        broken_by: "mount -t tmpfs -o size=64k tmpfs /run/azure-vnet; head -c 1m /dev/zero >/run/azure-vnet/filler 2>/dev/null; $OURS events 2>&1 | grep 'cannot be recorded'",
        findings: &["log"],
        by_hand: "rm /run/azure-vnet/filler",
    }
    the_lock_folder_has_no_inodes {
        broken_by: "mount -t tmpfs -o nr_inodes=5 tmpfs /run/azure-vnet; touch /run/azure-vnet/filler-{1..9} 2>/dev/null; true",
        findings: &["disk", "log"],
        add: Add::Fails,
        by_hand: "rm /run/azure-vnet/filler-*",
    }
    run_is_read_only {
        broken_by: "mount -o remount,bind,ro /run",
        findings: &["disk", "lock"],
        add: Add::Fails,
    }
    log_folder_is_full {
        screen: true,
        broken_by: "mount -o remount,size=64k /var/log; head -c 1m /dev/zero >/var/log/filler 2>/dev/null; true",
        findings: &["log"],
        by_hand: "rm /var/log/filler",
    }
    log_folder_is_read_only {
        broken_by: "mount -o remount,ro /var/log",
        findings: &["log"],
        by_hand: "mount -o remount,rw /var/log",
    }
    operations_are_damaged {
        broken_by: "cd /var/run/azure-vnet; list=azure-vnet-ipam.events; head -c -40 $list >/run/torn && cat /run/torn >$list && add web-4 >/dev/null && \
            $OURS events | grep -q web-4 && $OURS events 2>&1 | grep -q '1 of its 4 lines' && head -c 3000 /dev/urandom >$list && \
            $OURS events | grep -q 'No operation can be read' && printf '{\"format\":9}' >$list && add web-5 >/dev/null && $OURS events | grep -q web-5",
    }
    operations_cannot_be_written {
        broken_by: "cd /var/run/azure-vnet && rm azure-vnet-ipam.events && mkdir azure-vnet-ipam.events && $OURS events 2>&1 | grep -q 'is a directory'",
        findings: &["log"],
    }

    // ---- The state ----
    state_is_deleted {
        kind: "deleted",
    }
    state_is_empty {
        broken_by: "truncate -s 0 /var/run/azure-vnet-ipam.json",
    }
    state_is_full_of_zeros {
        kind: "corrupt",
    }
    state_is_corrupt_and_there_is_no_backup {
        kind: "corrupt",
        broken_by: "rm /var/run/.azure-vnet-ipam.backup",
        findings: &["state"],
        add: Add::Waits,
        heals_after: 61,
    }
    state_and_backup_are_deleted {
        screen: true,
        broken_by: "rm /var/run/azure-vnet-ipam.json /var/run/.azure-vnet-ipam.backup",
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
        broken_by: "rm /var/run/azure-vnet-ipam.json /var/run/.azure-vnet-ipam.backup; add x >/dev/null; true",
        findings: &["state"],
        add: Add::Waits,
        heals_after: 61,
    }
    state_of_another_node_is_copied_in {
        broken_by: "sed -i 's/10\\.224\\./10.99./g; s/\"bootId\": \"[^\"]*\"/\"bootId\": \"another\"/' /var/run/azure-vnet-ipam.json; rm -r /var/run/azure-vnet /var/run/.azure-vnet-ipam.backup",
    }
    old_copy_is_restored {
        broken_by: "cp /var/run/azure-vnet-ipam.json /run/old; add web-4 >/dev/null; add web-5 >/dev/null; cp /run/old /var/run/azure-vnet-ipam.json",
    }
    old_copy_is_restored_without_a_backup {
        broken_by: "cp /var/run/azure-vnet-ipam.json /run/old; add web-4 >/dev/null; cp /run/old /var/run/azure-vnet-ipam.json; rm /var/run/.azure-vnet-ipam.backup",
        findings: &["state"],
        add: Add::Waits,
        heals_after: 61,
    }
    state_was_healed {
        screen: true,
        broken_by: "echo '{' >/var/run/azure-vnet-ipam.json; add web-4 >/dev/null",
    }
    state_is_of_a_newer_format {
        broken_by: "cp /var/run/azure-vnet-ipam.json /run/old; sed -i 's/\"format\": [0-9]*/\"format\": 99/' /var/run/azure-vnet-ipam.json",
        findings: &["state"],
        add: Add::Fails,
        by_hand: "cp /run/old /var/run/azure-vnet-ipam.json",
    }
    the_original_wrote_and_this_plugin_is_installed_again {
        broken_by: "sed -i '0,/\"TimeStamp\": \"[^\"]*/s//\"TimeStamp\": \"2026-01-01 00:00:00 +0000 UTC/' /var/run/azure-vnet-ipam.json; echo 4711 >/var/run/azure-vnet/azure-vnet-ipam.lock; $OURS check --all | grep 'the original plugin wrote it after'",
    }
    backup_is_a_folder {
        broken_by: "rm /var/run/.azure-vnet-ipam.backup; mkdir /var/run/.azure-vnet-ipam.backup",
        findings: &["state"],
    }
    backup_is_immutable {
        broken_by: "chattr +i /var/run/.azure-vnet-ipam.backup",
        findings: &["state"],
    }
    backup_is_a_read_only_mount {
        broken_by: "cd /var/run; mount --bind .azure-vnet-ipam.backup .azure-vnet-ipam.backup; mount -o remount,bind,ro .azure-vnet-ipam.backup",
        findings: &["state"],
    }
    state_is_a_folder {
        broken_by: "rm /var/run/azure-vnet-ipam.json; mkdir /var/run/azure-vnet-ipam.json",
    }
    state_is_immutable {
        broken_by: "chattr +i /var/run/azure-vnet-ipam.json; netconf | CNI_COMMAND=STATUS CNI_PATH=/opt/cni/bin $OURS | grep 'operation not permitted'",
        findings: &["disk"],
        add: Add::Fails,
    }
    state_is_a_mount_point {
        broken_by: "cd /var/run; mount --bind azure-vnet-ipam.json azure-vnet-ipam.json",
        findings: &["disk"],
        add: Add::Fails,
    }
    temporary_name_is_a_folder {
        broken_by: "mkdir -p /var/run/azure-vnet-ipam.json.new/x",
        findings: &["disk"],
        add: Add::Fails,
    }
    run_is_immutable {
        broken_by: "chattr +i /run",
        findings: &["disk"],
        add: Add::Fails,
    }
    run_is_append_only {
        broken_by: "chattr +a /run",
        findings: &["disk"],
        add: Add::Fails,
    }
    results_cannot_be_written {
        broken_by: "mount -o remount,ro /var/lib/cni",
        findings: &["disk"],
        add: Add::Fails,
    }
    the_folder_of_results_is_a_link_that_leads_nowhere {
        broken_by: "rm -r /var/lib/cni/results; ln -s /run/nowhere/results /var/lib/cni/results",
        findings: &["disk"],
        add: Add::Fails,
    }
    the_folder_of_results_is_a_link_to_itself {
        broken_by: "rm -r /var/lib/cni/results; ln -s results /var/lib/cni/results",
        findings: &["disk"],
        add: Add::Fails,
    }
    a_file_is_in_the_place_of_the_folder_of_results {
        broken_by: "rm -r /var/lib/cni/results; touch /var/lib/cni/results",
        findings: &["disk"],
        add: Add::Fails,
    }
    the_folder_above_that_of_results_is_a_link_that_leads_nowhere {
        broken_by: "umount /var/lib/cni; mount -t tmpfs none /var/lib; ln -s /run/nowhere /var/lib/cni",
        findings: &["disk"],
        add: Add::Fails,
    }
    a_file_is_in_the_place_of_the_folder_above_that_of_results {
        broken_by: "umount /var/lib/cni; mount -t tmpfs none /var/lib; touch /var/lib/cni",
        findings: &["disk"],
        add: Add::Fails,
    }
    the_lock_folder_is_a_link_that_leads_nowhere {
        broken_by: "rm -r /run/azure-vnet; ln -s /run/nowhere /run/azure-vnet",
        findings: &["lock"],
        add: Add::Fails,
    }
    the_folder_of_results_has_no_inodes {
        broken_by: "mount -o remount,nr_inodes=16 /var/lib/cni; mkdir /var/lib/cni/other; touch /var/lib/cni/other/{1..20} 2>/dev/null; \
            listed=$($OURS check | sed -n 's/^ *\\(du .*\\)/\\1/p'); eval \"$listed\" | grep '/var/lib/cni/other$'",
        findings: &["disk"],
        add: Add::Fails,
        by_hand: "rm -r /var/lib/cni/other",
    }
    folder_of_results_is_full {
        broken_by: "mount -o remount,size=64k /var/lib/cni; head -c 1m /dev/zero >/var/lib/cni/filler 2>/dev/null; \
            listed=$($OURS check | sed -n 's/^ *\\(du .*\\)/\\1/p'); eval \"$listed\" | grep '/var/lib/cni/filler$'",
        findings: &["disk"],
        add: Add::Fails,
        by_hand: "rm /var/lib/cni/filler",
    }
    results_are_damaged {
        screen: true,
        broken_by: "for n in {1..40}; do echo '{}' >/var/lib/cni/results/azure-bridge-$n-eth0; touch -d '2 minutes ago' /var/lib/cni/results/azure-bridge-$n-eth0; done",
        findings: &["cache"],
    }
    other_users_can_change_what_root_relies_on {
        broken_by: "chown 1000 /run/azure-vnet; chmod 777 /run/azure-vnet /var/lib/cni; chmod 666 /run/azure-vnet-ipam.json /run/azure-vnet/azure-vnet-ipam.lock; chown 1000 /run/azure-vnet-ipam.json; chmod o+w /etc/cni/net.d/*",
        findings: &["state", "lock", "conflist", "cache"],
        by_hand: "! find /run/azure-vnet /run/azure-vnet-ipam.json /var/lib/cni /etc/cni/net.d \\( -uid +0 -o -perm /002 \\) ! -type l | grep .",
    }
    state_can_be_read_by_everybody {
        broken_by: "chmod 644 /var/run/azure-vnet-ipam.json",
    }

    // ---- The records ----
    two_addresses_are_leaked {
        screen: true,
        kind: "leaked",
        findings: &["leak"],
    }
    twenty_addresses_are_leaked {
        broken_by: "for n in {1..20}; do add job-$n >/dev/null; vanish job-$n; done",
        later: 3700,
        findings: &["leak"],
    }
    every_address_is_held {
        screen: true,
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
        screen: true,
        broken_by: "ip netns add stray; wire_up stray 10.224.0.20/16",
        findings: &["stray"],
        by_hand: "add x; true",
        heals_after: 61,
    }
    two_pods_have_one_address {
        screen: true,
        broken_by: "ip netns add other; wire_up other 10.224.0.5/16",
        findings: &["duplicate"],
        by_hand: "vanish other",
    }
    a_pod_has_an_address_that_azure_does_not_list {
        screen: true,
        broken_by: "ip netns add other; wire_up other 10.224.9.9/16",
        findings: &["foreign"],
        by_hand: "vanish other",
    }
    a_released_sandbox_still_has_its_address {
        screen: true,
        broken_by: "add other >/dev/null; CNI_COMMAND=DEL CNI_CONTAINERID=$(printf other | sha256sum | cut -c 1-64) CNI_NETNS=/var/run/netns/other CNI_IFNAME=eth0 azure-vnet-ipam <<<\"$(netconf)\"",
        later: 600,
        findings: &["withheld"],
    }
    an_address_is_released_while_its_pod_runs {
        broken_by: "add other >/dev/null; touch /run/broken-node/running-other; CNI_COMMAND=DEL CNI_CONTAINERID=$(printf other | sha256sum | cut -c 1-64) CNI_NETNS=/var/run/netns/other CNI_IFNAME=eth0 azure-vnet-ipam <<<\"$(netconf)\"",
        later: 600,
        findings: &["withheld"],
        by_hand: "ip netns list | grep -w other && vanish other",
    }
    the_runtime_keeps_the_sandboxes_of_a_pod_that_is_retried {
        screen: true,
        broken_by: "for n in 1 2 3 4; do ip netns add bad-$n; CNI_COMMAND=ADD CNI_CONTAINERID=$(printf bad-$n | sha256sum | cut -c 1-64) CNI_NETNS=/var/run/netns/bad-$n CNI_IFNAME=eth0 CNI_ARGS='K8S_POD_NAMESPACE=default;K8S_POD_NAME=bad' azure-vnet-ipam <<<\"$(netconf)\"; done",
        findings: &["replaced"],
        by_hand: "for n in 1 2 3; do ! ip netns list | grep -w bad-$n || exit; done",
    }
    retries_of_a_pod_hold_every_address {
        broken_by: "for n in {1..25}; do ip netns add bad-$n; CNI_COMMAND=ADD CNI_CONTAINERID=$(printf bad-$n | sha256sum | cut -c 1-64) CNI_NETNS=/var/run/netns/bad-$n CNI_IFNAME=eth0 CNI_ARGS='K8S_POD_NAMESPACE=default;K8S_POD_NAME=bad' azure-vnet-ipam <<<\"$(netconf)\"; ip netns del bad-$n; done",
        findings: &["pool", "leak"],
    }
    azure_took_all_addresses_but_one {
        broken_by: "perl -pi -e 's#<IPAddress Address=\"10.224.0.([6-9]|[123][0-9])\" IsPrimary=\"false\" ?/>##g' /run/broken-node/wire.xml; COLUMNS=999 $OURS check | grep 'delete pods whose addresses the source lists'",
        findings: &["add", "unlisted"],
        add: Add::Fails,
    }
    azure_took_addresses_from_pods {
        screen: true,
        broken_by: "sed -i -E 's#<IPAddress Address=\"10.224.0.[56]\" IsPrimary=\"false\" ?/>##g' /run/broken-node/wire.xml",
        findings: &["unlisted"],
    }
    the_host_got_addresses_of_pods_before_its_own {
        screen: true,
        broken_by: "ip addr flush dev eth0 scope global; for n in 8 9 4; do ip addr add 10.224.0.$n/16 dev eth0; done; ip route add default via 10.224.0.1 src 10.224.0.4",
        findings: &["on-host", "on-host"],
        by_hand: "ip addr flush dev eth0 scope global; ip addr add 10.224.0.4/16 dev eth0; ip route add default via 10.224.0.1",
    }
    the_only_address_of_the_host_is_listed_for_pods {
        broken_by: "sed -i 's/Address=\"10.224.0.4\" IsPrimary=\"true\"/Address=\"10.224.0.4\" IsPrimary=\"false\"/' /run/broken-node/wire.xml; COLUMNS=999 $OURS check | grep 'put it into ipam.exclude'",
        findings: &["on-host"],
    }
    a_prefix_is_none {
        broken_by: "sed -i 's#Prefix=\"10.224.0.0/16\"#Prefix=\"null\"#' /run/broken-node/wire.xml; $OURS check | grep 'the source lists the prefix \"null\" of interface eth0, which is not a valid prefix'",
        findings: &["source"],
    }
    source_changed_the_prefix_of_the_subnet {
        broken_by: "sed -i 's|10.224.0.0/16|10.224.0.0/24|' /run/broken-node/wire.xml; add web-4 >/dev/null; $OURS check --all | grep '10.224.0.0/16: 3 held; the source no longer lists it'; ! $OURS check --all | grep foreign",
    }
    the_subnet_of_the_conflist_is_not_listed_any_more {
        broken_by: "sed -i 's|\"type\": \"azure-vnet-ipam\"|\"subnet\": \"10.224.0.0/16\", &|' /etc/cni/net.d/10-bridge.conflist; sed -i 's|10.224.0.0/16|10.224.0.0/24|' /run/broken-node/wire.xml; COLUMNS=999 $OURS check | grep 'no longer lists 10.224.0.0/16, which ipam.subnet names; it lists 10.224.0.0/24: correct ipam.subnet in /etc/cni/net.d/10-bridge.conflist'; add x | grep 'it lists 10.224.0.0/24: correct ipam.subnet in the network configuration'",
        findings: &["add"],
        add: Add::Fails,
    }
    network_broadcast_and_gateway_are_listed_for_pods {
        broken_by: "for a in 10.224.255.255 10.224.0.1 10.224.0.0; do sed -i \"0,/<IPAddress /s//<IPAddress Address=\\\"$a\\\" IsPrimary=\\\"false\\\"\\/><IPAddress /\" /run/broken-node/wire.xml; done; COLUMNS=999 $OURS check | grep 'the source lists the address 10.224.0.0 of interface eth0, which is the network address of 10.224.0.0/16; 3 of'",
        findings: &["source"],
    }
    a_subnet_is_listed_twice {
        broken_by: "sed -i 's|</Interface>|<IPSubnet Prefix=\"10.224.0.0/16\"></IPSubnet>&|' /run/broken-node/wire.xml; COLUMNS=999 $OURS check | grep 'the source lists the subnet 10.224.0.0/16 of interface eth0 twice; the second one is ignored'",
        findings: &["source"],
    }
    the_state_has_another_address_than_is_listed {
        broken_by: "sed -i 's/\"Addr\": \"10.224.0.8\"/\"Addr\": \"10.224.0.77\"/' /var/run/azure-vnet-ipam.json; add other | grep -x 10.224.0.8",
        by_hand: "del other",
    }
    the_host_has_all_addresses {
        screen: true,
        broken_by: "for n in {8..32}; do ip addr add 10.224.0.$n/16 dev eth0; done",
        findings: &["pool", "on-host"],
        add: Add::Fails,
    }
    the_host_has_one_address {
        broken_by: "ip addr add 10.224.0.9/16 dev eth0",
        findings: &["on-host"],
    }
    the_host_has_an_address_of_a_pod {
        broken_by: "ip addr add 10.224.0.5/16 dev eth0; $OURS show 10.224.0.5 | grep 'has it too, on the host'",
        findings: &["on-host"],
    }
    two_pods_swapped_their_addresses {
        broken_by: "swap() { ip -n web-27 addr del 10.224.0.$1/16 dev eth0; ip -n web-28 addr del 10.224.0.$2/16 dev eth0; ip -n web-27 addr add 10.224.0.$2/16 dev eth0; ip -n web-28 addr add 10.224.0.$1/16 dev eth0; }; \
            add web-27; add web-28; declare -f swap >/run/swap; swap 8 9; export COLUMNS=999; $OURS check | grep 'held by pod default/web-27 (container [^)]*), but configured in /run/netns/web-28, the network namespace of pod default/web-28 ' && \
            $OURS check | grep 'not configured in /var/run/netns/web-28, its own network namespace' && $OURS check | grep 'ipam show 10.224.0.9'",
        findings: &["duplicate", "duplicate"],
        by_hand: ". /run/swap; swap 9 8",
    }
    a_pod_took_the_address_of_another {
        broken_by: "add web-27; add web-28; ip -n web-28 addr add 10.224.0.8/16 dev eth0; ip -n web-27 addr del 10.224.0.8/16 dev eth0; rm /var/lib/cni/results/*",
        findings: &["duplicate"],
        by_hand: "ip -n web-28 addr del 10.224.0.8/16 dev eth0; ip -n web-27 addr add 10.224.0.8/16 dev eth0",
    }
    a_pod_has_the_address_of_one_that_is_gone {
        broken_by: "add other; vanish other; add web-27; ip -n web-27 addr add 10.224.0.8/16 dev eth0",
        findings: &["duplicate"],
        by_hand: "ip -n web-27 addr del 10.224.0.8/16 dev eth0; later 3700 $OURS reclaim --yes",
        later: 3700,
    }
    a_namespace_without_record_took_the_address_of_a_pod {
        broken_by: "ip -n web-1 addr del 10.224.0.5/16 dev eth0; ip netns add other; wire_up other 10.224.0.5/16",
        findings: &["duplicate"],
        by_hand: "vanish other; ip -n web-1 addr add 10.224.0.5/16 dev eth0",
    }
    a_pod_made_a_namespace_for_its_address {
        broken_by: "ip -n web-1 addr del 10.224.0.5/16 dev eth0; ip netns exec web-1 unshare -n sleep 600 </dev/null >/dev/null 2>&1 & ln -s real/$! /proc/$!; \
            until [[ $(cat /proc/$!/comm) == sleep ]]; do sleep 0.05; done; nsenter -n -t $! sh -c 'ip link add eth0 type bridge; ip addr add 10.224.0.5/16 dev eth0'; echo $! >/run/inner",
        by_hand: "kill $(cat /run/inner); ip -n web-1 addr add 10.224.0.5/16 dev eth0",
    }
    a_pod_has_two_attachments {
        broken_by: "netconf | CNI_COMMAND=ADD CNI_CONTAINERID=$(printf web-1 | sha256sum | cut -c 1-64) CNI_NETNS=/var/run/netns/web-1 CNI_IFNAME=net1 CNI_PATH=/opt/cni/bin \
            CNI_ARGS='K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-1' $OURS && ip -n web-1 addr add 10.224.0.8/16 dev eth0 && $OURS show 10.224.0.8 | grep 'interface net1' && ! $OURS show 10.224.0.8 | grep conflict",
    }
    a_pod_lost_its_address {
        broken_by: "ip -n web-1 addr del 10.224.0.5/16 dev eth0; $OURS show 10.224.0.5 | grep 'not configured in'",
        by_hand: "ip -n web-1 addr add 10.224.0.5/16 dev eth0",
    }
    namespaces_are_covered_and_a_route_leads_to_a_pod {
        broken_by: "ip route add 10.224.0.5/32 dev azbr0; mount -t tmpfs none /run/netns; $OURS show | grep 'leaked an address is not known'",
        by_hand: "until [[ -e /run/netns/web-1 ]]; do umount /run/netns || exit; done",
    }
    namespaces_are_covered_and_a_route_leads_to_a_free_address {
        broken_by: "ip netns add stray; wire_up stray 10.224.0.20/16; ip route add 10.224.0.20/32 dev azbr0; mount -t tmpfs none /run/netns",
        findings: &["on-host"],
        by_hand: "until [[ -e /run/netns/web-1 ]]; do umount /run/netns || exit; done; ip route del 10.224.0.20; vanish stray",
    }
    a_route_to_a_free_address_is_left_over {
        broken_by: "ip route add 10.224.0.9/32 dev eth0",
        findings: &["on-host"],
    }
    a_route_of_another_table_leads_to_a_free_address {
        broken_by: "ip rule add lookup 1000 priority 99; ip route add 10.224.0.9/32 dev eth0 table 1000; ip route add 10.224.0.9/32 dev eth0 metric 7",
        findings: &["on-host"],
        by_hand: "ip rule del lookup 1000 priority 99; ! ip route show table all | grep -w 10.224.0.9",
    }
    a_route_of_a_table_that_is_not_used_leads_to_a_free_address {
        broken_by: "ip route add 10.224.0.8/32 dev eth0 table 1000; COLUMNS=999 $OURS check | grep 'in a table that its own packets do not use'",
        by_hand: "ip route show table 1000 | grep -w 10.224.0.8",
    }
    another_ipam_gives_our_addresses {
        screen: true,
        broken_by: r#"echo '{"cniVersion":"1.0.0","name":"old","type":"bridge","ipam":{"type":"host-local","subnet":"10.224.0.0/24"}}' >/etc/cni/net.d/99-old.conf"#,
        findings: &["conflict"],
        by_hand: "rm /etc/cni/net.d/99-old.conf",
    }

    // ---- The lock ----
    lock_is_held_by_a_stopped_process {
        screen: true,
        broken_by: "setsid perl -MFcntl=:flock -e 'open(F, \">>\", $ARGV[0]); flock(F, LOCK_EX); kill STOP => $$; sleep 600' /var/run/azure-vnet/azure-vnet-ipam.lock </dev/null >/dev/null 2>&1 & pid=$!; ln -s real/$pid /proc/$pid; until grep -q '^[0-9]* (perl) T' /proc/$pid/stat; do sleep 0.05; done",
        findings: &["lock"],
        add: Add::Fails,
    }
    lock_is_held_by_the_child_of_a_process_that_is_gone {
        broken_by: "sh -c 'exec 9>>/var/run/azure-vnet/azure-vnet-ipam.lock; flock 9; touch /run/is-locked; exec sleep 600' </dev/null >/dev/null 2>&1 & echo $! >/run/holder; for n in {1..200}; do [ -e /run/is-locked ] && break; sleep 0.05; done; [ -e /run/is-locked ]",
        findings: &["lock"],
        add: Add::Fails,
        by_hand: "kill $(cat /run/holder)",
    }
    lock_file_is_immutable {
        broken_by: "chattr +i /var/run/azure-vnet/azure-vnet-ipam.lock",
        findings: &["lock"],
        add: Add::Fails,
    }
    lock_is_held_by_another_program {
        broken_by: "setsid perl -MFcntl=:flock -e 'open(F, \">>\", $ARGV[0]); flock(F, LOCK_EX); sleep 600' /var/run/azure-vnet/azure-vnet-ipam.lock </dev/null >/dev/null 2>&1 & echo $! >/run/holder; ln -s real/$! /proc/$!; sleep 3",
        findings: &["lock"],
        add: Add::Unknown,
        by_hand: "kill $(cat /run/holder)",
    }
    lock_file_is_a_folder {
        broken_by: "rm /var/run/azure-vnet/azure-vnet-ipam.lock; mkdir /var/run/azure-vnet/azure-vnet-ipam.lock",
        findings: &["lock"],
        add: Add::Fails,
    }
    lock_folder_is_read_only {
        broken_by: "mount --bind /run/azure-vnet /run/azure-vnet; mount -o remount,bind,ro /run/azure-vnet; netconf | CNI_COMMAND=STATUS CNI_PATH=/opt/cni/bin $OURS | grep 'read-only file system'",
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
        screen: true,
        kind: "dead-source",
        findings: &["source"],
        by_hand: "wire start",
    }
    wire_server_is_dead_and_there_is_no_state {
        broken_by: "del web-1; del web-2; del web-3; rm -r /var/run/azure-vnet-ipam.json /var/run/azure-vnet; wire stop",
        findings: &["source", "state"],
        add: Add::Waits,
        by_hand: "wire start; add x; true",
        heals_after: 61,
    }
    wire_server_is_slow_and_there_are_no_pools {
        kind: "wrong-mac",
        broken_by: "ip link set dev eth0 address 7c:1e:52:f9:f3:c4; mkfifo /run/broken-node/wire.xml.http; (printf 'HTTP/1.1 200 OK\\r\\n\\r\\n'; cat $REPOSITORY/testdata/wire.xml) >/run/answer; setsid bash -c 'echo $$ >/run/slow; while :; do { sleep 5; cat /run/answer; } >/run/broken-node/wire.xml.http; sleep 1; done' </dev/null >/dev/null 2>&1 &",
        by_hand: "kill $(cat /run/slow); rm /run/broken-node/wire.xml.http",
    }
    wire_server_refuses {
        broken_by: "printf 'HTTP/1.1 403 Forbidden\\r\\nContent-Length: 0\\r\\n\\r\\n' >/run/broken-node/wire.xml.http",
        findings: &["source"],
    }
    wire_server_is_in_trouble {
        broken_by: "printf 'HTTP/1.1 503 Busy\\r\\nContent-Length: 0\\r\\n\\r\\n' >/run/broken-node/wire.xml.http",
        findings: &["source"],
    }
    a_proxy_redirects {
        broken_by: "printf 'HTTP/1.1 302 Found\\r\\nLocation: http://login.example/\\r\\nContent-Length: 0\\r\\n\\r\\n' >/run/broken-node/wire.xml.http",
        findings: &["source"],
    }
    a_login_page_answers {
        broken_by: "echo '<html><body>Please log in</body></html>' >/run/broken-node/wire.xml",
        findings: &["source"],
    }
    the_answer_is_cut_off {
        broken_by: "head -c 500 $REPOSITORY/testdata/wire.xml >/run/broken-node/wire.xml",
        findings: &["source"],
    }
    the_answer_lists_no_interface {
        broken_by: "echo '<Interfaces></Interfaces>' >/run/broken-node/wire.xml",
        findings: &["source"],
    }
    the_answer_lists_no_address {
        broken_by: "sed -i 's/<IPAddress [^>]*IsPrimary=\"false\"[^>]*>//g' /run/broken-node/wire.xml",
        findings: &["interface"],
    }
    a_blackhole_route_hides_the_wire_server {
        broken_by: "ip route replace blackhole 168.63.129.16/32",
        findings: &["source"],
        by_hand: "! ip route del blackhole 168.63.129.16/32 2>/dev/null; ip route replace 168.63.129.16 dev wire0",
    }
    a_route_of_another_table_forbids_the_wire_server {
        broken_by: "ip rule add to 168.63.129.16 lookup 99 pref 1; ip route add prohibit 168.0.0.0/8 table 99",
        findings: &["source"],
        by_hand: "! ip route show table 99 | grep .",
    }
    the_host_has_the_address_of_the_wire_server {
        broken_by: "ip addr add 168.63.129.16/32 dev lo; COLUMNS=999 $OURS check | grep 'this host itself has the address 168.63.129.16, on lo'",
        findings: &["source"],
        by_hand: "! ip -4 address show | grep -w 168.63.129.16",
    }
    a_local_route_leads_to_the_address_of_the_wire_server {
        broken_by: "ip route add local 168.63.129.16 dev lo table local",
        findings: &["source"],
        by_hand: "! ip route show table local | grep -w 168.63.129.16",
    }
    a_local_route_of_another_table_leads_to_the_address_of_the_wire_server {
        broken_by: "ip rule del pref 0; ip rule add pref 2 lookup local; ip rule add to 168.63.129.16 lookup 99 pref 1; ip route add local 168.63.129.16 dev lo table 99",
        findings: &["source"],
        by_hand: "! ip route show table 99 | grep .",
    }
    a_route_leads_to_a_wrong_device {
        broken_by: "ip route replace 168.63.129.16 dev azbr0; ip neigh replace 168.63.129.16 lladdr 12:34:56:78:9a:bc dev azbr0 nud permanent; COLUMNS=9999 $OURS check | grep 'the route `168.63.129.16/32 dev azbr0` leads to 168.63.129.16, by another link'",
        findings: &["source"],
        by_hand: "ip route replace 168.63.129.16 dev wire0",
    }
    a_firewall_drops_the_request {
        broken_by: "iptables -A OUTPUT -d 168.63.129.16/32 -j DROP",
        findings: &["source"],
        by_hand: "iptables -D OUTPUT -d 168.63.129.16/32 -j DROP",
    }
    a_firewall_drops_the_request_in_another_table {
        broken_by: "iptables -t mangle -A OUTPUT -p tcp --dport 80 -j DROP; $OURS check --json | perl -MJSON::PP -e '$_ = decode_json(join \"\", <>); print $_->{findings}[0]{commands}[1]' | bash | grep '[*]mangle.*dport 80 -j DROP'",
        findings: &["source"],
        by_hand: "iptables -t mangle -F OUTPUT",
    }
    a_rule_forbids_the_wire_server {
        broken_by: "ip rule add to 168.63.129.16 prohibit; $OURS check | grep -w 'ip rule'",
        findings: &["source"],
        by_hand: "ip rule del to 168.63.129.16 prohibit",
    }
    a_json_document_answers {
        broken_by: "echo '{\"error\": \"no\"}' >/run/broken-node/wire.xml; $OURS check | grep 'the answer is JSON'",
        findings: &["source"],
    }
    hardware_address_was_changed {
        screen: true,
        broken_by: "ip link set dev eth0 address 00:0d:3a:9f:12:34",
        findings: &["interface"],
    }
    hardware_address_was_changed_before_the_first_pod {
        kind: "wrong-mac",
        findings: &["interface"],
        add: Add::Fails,
    }
    interface_was_renamed {
        broken_by: "ip link set eth0 down; ip link set eth0 name eth9; ip link set eth9 up",
        findings: &["interface"],
        by_hand: "ip route show default | grep -w 'via 10.224.0.1 dev eth9'",
    }

    a_second_interface_has_the_same_hardware_address {
        broken_by: "ip link add name vf0 address 7c:1e:52:f9:f3:c4 up type bridge",
    }

    second_name_has_trouble_of_its_own {
        program: "azure-vnet-ipamv6",
        by_hand: "true",
        broken_by: "cp /opt/cni/bin/azure-vnet-ipam /opt/cni/bin/azure-vnet-ipamv6; sed -i 's/\"azure-vnet-ipam\"/\"azure-vnet-ipamv6\", \"environment\": \"azure\"/' /etc/cni/net.d/10-bridge.conflist; sed -i 's|</Interface>|<IPSubnet Prefix=\"fd00:1::/64\"><IPAddress Address=\"fd00:1::4\" IsPrimary=\"true\"/><IPAddress Address=\"fd00:1::5\" IsPrimary=\"false\"/><IPAddress Address=\"fd00:1::6\" IsPrimary=\"false\"/></IPSubnet></Interface>|' /run/broken-node/wire.xml; echo '{' >/var/run/azure-vnet-ipamv6.json",
        findings: &["state"],
        add: Add::Waits,
        heals_after: 61,
    }

    // ---- The links of the host ----
    the_interface_is_switched_off {
        broken_by: "ip link set dev eth0 down",
        findings: &["interface"],
    }
    the_host_lost_its_own_address {
        broken_by: "ip addr flush dev eth0 scope global; ip addr add 192.0.2.9/32 dev wire0; ip route replace 168.63.129.16 dev wire0 src 192.0.2.9",
        findings: &["interface"],
        by_hand: "ip -o -4 address show dev eth0 | grep -w 10.224.0.4/16; ip route show default | grep -w 10.224.0.1",
    }
    the_interface_is_gone {
        broken_by: "ip link del eth0; wire stop; COLUMNS=999 $OURS check | grep 'eth0, which the pools in the state are on, does not exist'",
        findings: &["source", "interface"],
        by_hand: "ip link add name eth0 address 7c:1e:52:f9:f3:c4 up type bridge; ip addr add 10.224.0.4/16 dev eth0; ip route add default via 10.224.0.1; wire start",
    }
    the_node_is_in_another_subnet_of_azure {
        screen: true,
        broken_by: "sed -i 's|10[.]224[.]|10.225.|g' /run/broken-node/wire.xml",
        findings: &["interface", "unlisted"],
    }
    the_source_lists_all_addresses_as_primary {
        screen: true,
        broken_by: "sed -i 's/IsPrimary=\"false\"/IsPrimary=\"true\"/g' /run/broken-node/wire.xml",
        findings: &["interface", "interface"],
    }
    the_source_lists_a_pods_address_as_primary {
        broken_by: "sed -i 's/\"10.224.0.4\" IsPrimary=\"true\"/\"10.224.0.4\" IsPrimary=\"false\"/; s/\"10.224.0.5\" IsPrimary=\"false\"/\"10.224.0.5\" IsPrimary=\"true\"/' /run/broken-node/wire.xml",
        findings: &["interface", "on-host", "unlisted"],
    }
    the_source_describes_another_node {
        broken_by: "sed -i 's/7C1E52F9F3C4/000D3A112233/; s/\"10[.]224[.]0[.]/\"10.224.7./g' /run/broken-node/wire.xml; COLUMNS=999 $OURS check | grep 'may describe another node'; ! $OURS check | grep 'ip link set'",
        findings: &["interface"],
    }
    kube_proxy_has_addresses_of_a_pool {
        broken_by: "ip link add kube-ipvs0 type bridge; ip addr add 10.224.0.9/32 dev kube-ipvs0; ip addr add 10.224.0.5/32 dev kube-ipvs0; ! $OURS check | grep 'address del'",
        findings: &["on-host", "on-host"],
        by_hand: "ip link del kube-ipvs0",
    }
    the_host_has_a_pods_address_in_place_of_its_own {
        broken_by: "ip addr flush dev eth0 scope global; ip addr add 10.224.0.5/16 dev eth0; ip route add default via 10.224.0.1",
        findings: &["interface", "on-host"],
        by_hand: "ip addr flush dev eth0 scope global; ip addr add 10.224.0.4/16 dev eth0; ip route add default via 10.224.0.1",
    }
    a_link_of_its_own_has_an_address_of_the_pool {
        broken_by: "ip addr add 10.224.0.20/16 dev azbr0",
        findings: &["interface"],
        by_hand: "ip addr del 10.224.0.20/16 dev azbr0 2>/dev/null; true",
    }
    the_hardware_addresses_of_two_links_are_exchanged {
        broken_by: "ip link set eth0 down; ip link set eth0 address 7c:1e:52:f9:f3:c5; ip link set eth0 up; ip link add eth1 address 7c:1e:52:f9:f3:c4 type bridge; ip link set eth1 up; ip route replace default via 10.224.0.1",
        findings: &["interface"],
        by_hand: "ip link del eth1; ip link set eth0 address 7c:1e:52:f9:f3:c4",
    }
    a_pod_removed_its_own_address {
        broken_by: "ip -n web-1 addr flush dev eth0; later 120 $OURS check | grep 'does not have it'",
        later: 120,
        by_hand: "ip -n web-1 addr add 10.224.0.5/16 dev eth0",
    }
    the_host_routes_of_pods_are_gone {
        screen: true,
        broken_by: "ln -s /run/broken-node/bridge /opt/cni/bin/ptp; sed -i 's/\"type\": \"bridge\"/\"type\": \"ptp\"/' /etc/cni/net.d/10-bridge.conflist; link() { echo v-$(printf $1 | sha256sum | cut -c 1-8); }; ip route add 10.224.0.5 dev $(link web-1); ip route add 10.224.0.6 dev eth0; ip link set $(link web-3) down",
        later: 120,
        findings: &["unconfigured"],
    }
    a_vpn_takes_a_part_of_the_subnet {
        broken_by: "ip link add tun0 up type bridge; ip addr add 10.8.0.6/24 dev tun0; ip route add 10.224.0.0/17 via 10.8.0.1 dev tun0; COLUMNS=999 $OURS check | grep '10.224.0.0/17 dev tun0. leads a part of the subnet 10.224.0.0/16'",
        findings: &["interface"],
        by_hand: "ip link del tun0",
    }
    the_rule_for_the_main_table_is_missing {
        broken_by: "ip rule del pref 32766; $OURS check | grep 'lookup main priority 32766'",
        findings: &["source"],
        by_hand: "ip rule add lookup main priority 32766",
    }
    the_source_lists_another_primary_address {
        broken_by: "sed -i 's/\"10.224.0.4\"/\"10.224.0.99\"/' /run/broken-node/wire.xml; COLUMNS=999 $OURS check | grep 'eth0 has 10.224.0.4/16, which the source does not list'",
        findings: &["interface"],
    }
    the_default_route_is_missing {
        broken_by: "ip route del default; ip -6 addr add fd00::4/64 dev eth0 nodad; ip -6 route add default via fe80::1 dev eth0",
        findings: &["interface"],
        by_hand: "ip route show default | grep -w 'via 10.224.0.1 dev eth0'",
    }
    the_default_route_is_missing_and_no_other_leads_to_the_source {
        broken_by: "ip route del default; ip route del 168.63.129.16; ip -6 addr add fd00::4/64 dev eth0 nodad; ip -6 route add default via fe80::1 dev eth0",
        findings: &["source", "interface"],
        by_hand: "ip route show default | grep -w 'via 10.224.0.1 dev eth0'; ip route add 168.63.129.16 dev wire0",
    }
    the_default_route_discards_packets {
        broken_by: "ip route replace blackhole default; ip route add unreachable default metric 99",
        findings: &["interface"],
        by_hand: "ip route show default | grep -w 'via 10.224.0.1 dev eth0'",
    }
    halves_replace_the_default_route_and_a_test_network_is_discarded {
        broken_by: "ip route add blackhole 192.0.2.0/24; $OURS check | grep 'Nothing is wrong' || exit 1; ip route del blackhole 192.0.2.0/24; ip route del default; ip route add 0.0.0.0/1 via 10.224.0.1; ip route add 128.0.0.0/1 via 10.224.0.1",
    }
    the_host_has_no_address_and_does_not_reach_the_source {
        broken_by: "ip addr flush dev eth0 scope global",
        findings: &["source", "interface"],
        by_hand: "ip addr add 10.224.0.4/16 dev eth0; ip route add default via 10.224.0.1",
    }
    the_host_has_its_own_address_on_a_bridge {
        broken_by: "ip addr flush dev eth0 scope global; ip link add name azure0 up type bridge; ip addr add 10.224.0.4/16 dev azure0; ip route add default via 10.224.0.1 dev azure0",
    }
    bridge_has_the_gateway {
        screen: true,
        broken_by: "ip addr add 10.224.0.1/16 dev azbr0",
        findings: &["interface"],
        // Pods are on it, so no command is printed.
        by_hand: "ip addr del 10.224.0.1/16 dev azbr0",
    }
    a_bridge_without_pods_has_the_gateway {
        broken_by: "ip link add old type bridge; ip link set old up; ip addr add 10.224.0.1/16 dev old",
        findings: &["interface"],
    }
    two_links_are_in_the_subnet {
        broken_by: "ip link add old type bridge; ip link set old up; ip addr add 10.224.0.250/16 dev old",
        findings: &["interface"],
    }

    a_namespace_has_lost_its_path {
        broken_by: "ip netns exec web-1 sleep 600 </dev/null >/dev/null 2>&1 & ln -s real/$! /proc/$!; until [[ $(cat /proc/$!/comm) == sleep ]]; do sleep 0.05; done; \
            ip netns del web-1; COLUMNS=999 $OURS show web-1 | grep 'its network namespace exists, but its path does not lead there'",
    }

    // ---- The configuration ----
    kubeconfig_is_missing {
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"environment\": \"ipv6NodeIpam\", &/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["source", "add"],
        add: Add::Fails,
    }
    a_key_is_misspelt {
        screen: true,
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"exlude\": [], &/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["conflist"],
    }
    every_address_is_excluded {
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"exclude\": [\"10.224.0.0\\/16\"], &/' /etc/cni/net.d/10-bridge.conflist; $OURS check | grep 'ipam.exclude'",
        findings: &["pool"],
        add: Add::Fails,
    }
    the_type_is_misspelt {
        broken_by: "sed -i 's/\"azure-vnet-ipam\"/\"azure-vnet-ipm\"/' /etc/cni/net.d/10-bridge.conflist; $OURS check | grep 'no network configuration uses this plugin'",
        findings: &["conflist"],
        add: Add::Fails,
    }
    a_list_is_in_a_conf {
        broken_by: "mv /etc/cni/net.d/10-bridge.conflist /etc/cni/net.d/10-bridge.conf",
        findings: &["conflist"],
        add: Add::Fails,
    }
    a_single_plugin_is_in_a_conflist {
        broken_by: "netconf >/run/single; cp /run/single /etc/cni/net.d/10-bridge.conflist",
        findings: &["conflist"],
        add: Add::Fails,
    }
    a_broken_conflist_comes_first {
        broken_by: "echo '{' >/etc/cni/net.d/05-x.conflist",
        findings: &["conflist"],
        add: Add::Unknown,
        by_hand: "rm /etc/cni/net.d/05-x.conflist",
    }
    a_dangling_conflist_comes_first {
        broken_by: "ln -s /nowhere/file /etc/cni/net.d/05-x.conflist; COLUMNS=999 $OURS check | grep 'it is a link that leads to no file'",
        findings: &["conflist"],
        add: Add::Unknown,
        by_hand: "rm /etc/cni/net.d/05-x.conflist",
    }
    a_broken_conflist_comes_last {
        broken_by: "echo '{' >/etc/cni/net.d/99-x.conflist",
        findings: &["conflist"],
        by_hand: "rm /etc/cni/net.d/99-x.conflist",
    }
    two_conflists_name_the_plugin {
        broken_by: "sed 's/azure-bridge/other/' /etc/cni/net.d/10-bridge.conflist >/etc/cni/net.d/20-other.conflist; COLUMNS=999 $OURS check | grep 'give pods the first network by name, of /etc/cni/net.d/10-bridge.conflist'",
    }
    the_conflist_was_renamed {
        broken_by: "mv /etc/cni/net.d/10-bridge.conflist /etc/cni/net.d/10-bridge.conflist.bak",
        findings: &["conflist"],
        add: Add::Fails,
    }
    there_is_no_conflist {
        broken_by: "rm /etc/cni/net.d/10-bridge.conflist",
        findings: &["conflist"],
        add: Add::Fails,
    }
    the_environment_is_misspelt {
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"environment\": \"azuer\", &/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["conflist"],
        add: Add::Fails,
    }
    a_comma_is_missing {
        broken_by: "sed -i 's/\"azbr0\",/\"azbr0\"/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["conflist"],
        add: Add::Fails,
    }
    a_conflist_begins_with_a_mark {
        broken_by: "sed -i '1s/^/\\xEF\\xBB\\xBF/' /etc/cni/net.d/10-bridge.conflist; $OURS check | grep -q 'byte order mark' && $OURS check --json | grep -q 'network.*azure-bridge'",
        findings: &["conflist"],
        add: Add::Fails,
    }
    a_conflist_is_in_utf_16 {
        broken_by: "iconv -t UTF-16 /etc/cni/net.d/10-bridge.conflist >/run/utf-16 && cp /run/utf-16 /etc/cni/net.d/10-bridge.conflist && $OURS check --json | grep -q 'network.*azure-bridge'",
        findings: &["conflist"],
        add: Add::Fails,
    }
    a_conflist_is_empty {
        broken_by: "truncate -s 0 /etc/cni/net.d/10-bridge.conflist; $OURS check | grep 'it is empty'",
        findings: &["conflist"],
        add: Add::Fails,
    }
    a_conflist_has_text_behind_its_end {
        broken_by: "echo '}' >>/etc/cni/net.d/10-bridge.conflist; $OURS check --json | grep -q 'network.*azure-bridge'",
        findings: &["conflist"],
        add: Add::Fails,
    }
    a_conflist_has_no_name {
        broken_by: "sed -i '/\"name\"/d' /etc/cni/net.d/10-bridge.conflist; $OURS check | grep 'it has no name'",
        findings: &["conflist"],
        add: Add::Fails,
    }
    a_key_of_a_list_is_in_upper_case {
        broken_by: "sed -i 's/\"plugins\"/\"Plugins\"/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["conflist"],
        add: Add::Fails,
    }
    ipam_is_there_twice {
        broken_by: "sed -i 's/\"ipam\": {/\"ipam\": {\"type\": \"host-local\"}, &/' /etc/cni/net.d/10-bridge.conflist; COLUMNS=999 $OURS check | grep 'has the key ipam more than once'",
        findings: &["conflist"],
    }
    another_ipam_is_the_last_one {
        broken_by: "sed -i 's/\"type\": \"bridge\",/& \"ipam\": {\"type\": \"azure-vnet-ipam\"},/; s/\"type\": \"azure-vnet-ipam\"$/\"type\": \"host-local\"/' /etc/cni/net.d/10-bridge.conflist; COLUMNS=999 $OURS check | grep 'has the key ipam more than once'",
        findings: &["conflist", "conflist"],
        add: Add::Fails,
    }
    there_is_no_folder_of_conflists {
        broken_by: "mount -t tmpfs none /etc/cni && $OURS check | grep 'net.d does not exist'",
        findings: &["conflist"],
        add: Add::Fails,
        by_hand: "umount /etc/cni",
    }
    the_folder_of_conflists_is_a_dangling_link {
        broken_by: "mount -t tmpfs none /etc/cni && ln -s /nowhere /etc/cni/net.d && $OURS check | grep 'is a link that leads to no folder'",
        findings: &["conflist"],
        add: Add::Fails,
        by_hand: "umount /etc/cni",
    }
    syslog_does_not_listen {
        broken_by: "sed -i 's/\"type\": \"bridge\"/\"logTarget\": \"syslog\", &/' /etc/cni/net.d/10-bridge.conflist; [[ ! -e /dev/log ]] || mount --bind $OURS /dev/log",
        findings: &["log"],
    }
    master_does_not_exist {
        screen: true,
        broken_by: "sed -i 's/\"type\": \"bridge\"/\"master\": \"eth7\", &/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["add"],
        add: Add::Fails,
    }
    no_pool_has_the_subnet {
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"subnet\": \"10.9.0.0\\/16\", &/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["add"],
        add: Add::Fails,
    }
    ipv6_is_wanted_and_there_is_none {
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"families\": [\"ipv4\", \"ipv6\"], &/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["add"],
        add: Add::Fails,
    }
    ipv6_is_wanted_and_switched_off {
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"families\": [\"ipv4\", \"ipv6\"], &/' /etc/cni/net.d/10-bridge.conflist; \
            sed -i 's|</Interface>|<IPSubnet Prefix=\"fd00:10::/64\"><IPAddress Address=\"fd00:10::4\" IsPrimary=\"true\"/><IPAddress Address=\"fd00:10::5\" IsPrimary=\"false\"/><IPAddress Address=\"fd00:10::6\" IsPrimary=\"false\"/><IPAddress Address=\"fd00:10::7\" IsPrimary=\"false\"/></IPSubnet>&|' \
            /run/broken-node/wire.xml; echo 1 >/proc/real/sys/net/ipv6/conf/all/disable_ipv6; ! $OURS check --all | grep 'ip address add' && \
            COLUMNS=999 $OURS check | grep 'switched off by net.ipv6.conf.default.disable_ipv6, net.ipv6.conf.eth0.disable_ipv6'",
        findings: &["interface"],
        add: Add::Unknown,
        by_hand: "true",
    }
    ipv6_is_wanted_and_switched_off_on_the_link {
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"families\": [\"ipv4\", \"ipv6\"], &/' /etc/cni/net.d/10-bridge.conflist; \
            sed -i 's|</Interface>|<IPSubnet Prefix=\"fd00:10::/64\"><IPAddress Address=\"fd00:10::4\" IsPrimary=\"true\"/><IPAddress Address=\"fd00:10::5\" IsPrimary=\"false\"/><IPAddress Address=\"fd00:10::6\" IsPrimary=\"false\"/><IPAddress Address=\"fd00:10::7\" IsPrimary=\"false\"/></IPSubnet>&|' \
            /run/broken-node/wire.xml; echo 1 >/proc/real/sys/net/ipv6/conf/eth0/disable_ipv6",
        findings: &["interface"],
        by_hand: "true",
    }
    every_pod_is_to_have_one_address {
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"ipAddress\": \"10.224.0.5\", &/' /etc/cni/net.d/10-bridge.conflist; COLUMNS=999 $OURS check | grep 'remove ipam.ipAddress from /etc/cni/net.d/10-bridge.conflist'",
        findings: &["add"],
        add: Add::Fails,
    }
    the_address_space_is_unknown {
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"addressSpace\": \"global\", &/' /etc/cni/net.d/10-bridge.conflist; COLUMNS=999 $OURS check | grep 'remove ipam.addressSpace from /etc/cni/net.d/10-bridge.conflist'",
        findings: &["add"],
        add: Add::Fails,
    }
    the_source_is_null_and_there_are_no_pools {
        kind: "wrong-mac",
        broken_by: "ip link set dev eth0 address 7c:1e:52:f9:f3:c4; sed -i 's/\"type\": \"azure-vnet-ipam\"/\"environment\": \"null\", &/' /etc/cni/net.d/10-bridge.conflist; COLUMNS=999 $OURS check | grep 'correct ipam.environment in /etc/cni/net.d/10-bridge.conflist'",
        findings: &["add"],
        add: Add::Fails,
    }
    values_of_the_conflist_are_ignored {
        broken_by: "sed -i 's/\"type\": \"bridge\"/\"logLevel\": \"verbose\", &/; s/\"type\": \"azure-vnet-ipam\"/\"queryInterval\": \"5m\", &/' /etc/cni/net.d/10-bridge.conflist; add other >/dev/null; grep 'found \"verbose\"; this is ignored' /var/log/azure-vnet-ipam.log",
        findings: &["conflist", "conflist"],
    }
    another_conflist_comes_first {
        broken_by: "echo '{\"cniVersion\": \"1.0.0\", \"name\": \"x\", \"type\": \"ptp\"}' >/etc/cni/net.d/05-x.conf; COLUMNS=999 $OURS check | grep 'another plugin took over (ptp, in /etc/cni/net.d/05-x.conf), and 3 addresses are held'",
        findings: &["conflist"],
        by_hand: "rm /etc/cni/net.d/05-x.conf",
    }
    it_is_healthy_and_checked_in_the_network_of_a_container {
        broken_by: "ln -sfn real/$PPID /proc/1; says() { grep -B 9 '^Not checked: the network of the node ' | grep 'could be checked; whether new pods get addresses cannot be seen'; }; \
            export COLUMNS=999; unshare -n $OURS check | says && ip netns exec web-1 $OURS check | says && \
            unshare -nm --propagation private sh -c 'mount -t tmpfs none /run; [ /var/run -ef /run ] || mount --bind /run /var/run; /opt/cni/bin/azure-vnet-ipam check' | says && \
            ! unshare -n $OURS check -q && vanish web-3 && later 3700 unshare -n $OURS reclaim --yes | grep 'Nothing was freed' && \
            nsenter -t 1 -m -n /opt/cni/bin/azure-vnet-ipam check | grep 'Nothing is wrong' && ln -sfn self /proc/1 && \
            later 3700 $OURS reclaim --yes | grep 'Freed 1 address' && add web-3",
    }
    a_file_is_broken_and_checked_in_the_network_of_a_container {
        broken_by: "echo '{' >/etc/cni/net.d/10-bridge.conflist; ln -sfn real/$PPID /proc/1; unshare -n $OURS check | grep '1 conflist problem; new pods get no address' && ln -sfn self /proc/1",
        findings: &["conflist"],
        add: Add::Fails,
    }
    the_main_plugin_is_a_link_that_dangles_on_the_node_and_in_a_container {
        broken_by: "ln -sfn bridge-1 /opt/cni/bin/bridge; ln -s /nowhere/bridge /opt/cni/bin/bridge-1; ln -sfn real/$PPID /proc/1; \
            unshare -m --propagation private $OURS check | grep '1 executable problem; new pods get no address' && ln -sfn self /proc/1",
        findings: &["executable"],
        add: Add::Fails,
        by_hand: "ln -sfn /run/broken-node/bridge /opt/cni/bin/bridge",
    }
    the_main_plugin_is_a_link_that_only_the_node_can_follow {
        broken_by: "mkdir /run/plugins; mount -t tmpfs none /run/plugins; ln -s ../broken-node/bridge /run/plugins/bridge; ln -sfn bridge-1 /opt/cni/bin/bridge; ln -s /run/plugins/bridge /opt/cni/bin/bridge-1; \
            ln -sfn real/$PPID /proc/1; in_container() { unshare -m --propagation private sh -c \"umount /run/plugins; $* $OURS check\"; }; in_container | grep 'Nothing is wrong; new pods get addresses' && \
            in_container setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace | grep 'whether new pods get addresses cannot be seen in this' && ln -sfn self /proc/1",
    }
    the_main_plugin_is_a_link_to_a_file_that_only_a_container_has {
        broken_by: "mkdir /run/plugins; ln -sfn /run/plugins/bridge /opt/cni/bin/bridge; ln -sfn real/$PPID /proc/1; \
            unshare -m --propagation private sh -c \"mount -t tmpfs none /run/plugins; cp /run/broken-node/bridge /run/plugins; $OURS check\" | grep '1 executable problem; new pods get no address' && ln -sfn self /proc/1",
        findings: &["executable"],
        add: Add::Fails,
        by_hand: "ln -sfn /run/broken-node/bridge /opt/cni/bin/bridge",
    }
    the_main_plugin_is_a_link_to_a_device {
        broken_by: "mknod -m 666 /run/device c 1 3; ln -sfn /run/device /opt/cni/bin/bridge; $OURS check | grep 'a link that leads to a device' && ! $OURS check | grep chmod",
        findings: &["executable"],
        add: Add::Fails,
        by_hand: "ln -sfn /run/broken-node/bridge /opt/cni/bin/bridge",
    }
    this_plugin_is_a_link_to_a_device {
        broken_by: "mknod -m 666 /run/device c 1 3; ln -sfn /run/device /opt/cni/bin/azure-vnet-ipam",
        findings: &["executable"],
        add: Add::Fails,
    }
    everybody_can_write_what_the_main_plugin_leads_to {
        broken_by: "chmod o+w /run/broken-node/bridge; $OURS check | grep 'chmod o-w /run/broken-node/bridge'",
        findings: &["executable"],
    }
    a_folder_is_in_the_place_of_the_main_plugin {
        broken_by: "rm /opt/cni/bin/bridge; mkdir /opt/cni/bin/bridge; $OURS check | grep 'is a folder'",
        findings: &["executable"],
        add: Add::Fails,
        by_hand: "ln -s /run/broken-node/bridge /opt/cni/bin/bridge",
    }
    few_files_may_be_open {
        broken_by: "(ulimit -n 6; ! $OURS check | grep -e '--force')",
    }
    the_log_is_immutable {
        broken_by: "chattr +i /var/log/azure-vnet-ipam.log",
        findings: &["log"],
    }
    main_plugin_is_missing {
        screen: true,
        broken_by: "rm /opt/cni/bin/bridge",
        findings: &["executable"],
        add: Add::Fails,
        by_hand: "ln -s /run/broken-node/bridge /opt/cni/bin/bridge",
    }
    plugin_is_missing {
        broken_by: "rm /opt/cni/bin/azure-vnet-ipam",
        findings: &["executable"],
        add: Add::Fails,
        by_hand: "cp $OURS /opt/cni/bin/azure-vnet-ipam",
    }
    plugin_is_a_dangling_link {
        broken_by: "ln -sf /nowhere/file /opt/cni/bin/azure-vnet-ipam",
        findings: &["executable"],
        add: Add::Fails,
        by_hand: "cp --remove-destination $OURS /opt/cni/bin/azure-vnet-ipam",
    }
    all_plugins_are_in_another_folder {
        broken_by: "rm /opt/cni/bin/azure-vnet-ipam /opt/cni/bin/bridge; $OURS check | grep 'cannot be seen from here'",
        findings: &["executable"],
        add: Add::Unknown,
        by_hand: "ln -s /run/broken-node/bridge /opt/cni/bin/bridge; cp $OURS /opt/cni/bin/azure-vnet-ipam",
    }
    another_program_stands_in_the_place_of_the_plugin {
        broken_by: "cp /opt/cni/bin/azure-vnet-ipam /run/saved; cp --remove-destination /bin/true /opt/cni/bin/azure-vnet-ipam",
        findings: &["executable"],
        add: Add::Fails,
        by_hand: "cp --remove-destination /run/saved /opt/cni/bin/azure-vnet-ipam",
    }
    another_plugin_stands_in_the_place_of_this_one {
        broken_by: "cp --remove-destination /run/broken-node/bridge /opt/cni/bin/azure-vnet-ipam; COLUMNS=999 $OURS check | grep 'is up to the other plugin that is installed'",
        findings: &["executable"],
        add: Add::Unknown,
    }
    plugin_is_damaged {
        broken_by: "head -c 100000 $OURS >/opt/cni/bin/azure-vnet-ipam",
        findings: &["executable"],
        add: Add::Fails,
    }
    plugin_is_being_written {
        broken_by: "setsid sleep 600 8>>/opt/cni/bin/azure-vnet-ipam </dev/null >/dev/null 2>&1 & sleep 0.2",
        findings: &["executable"],
        add: Add::Fails,
    }
    plugins_are_on_a_mount_without_exec {
        broken_by: "mkdir /run/kept; cp -a /opt/cni/bin/. /run/kept; mount -t tmpfs -o noexec none /opt/cni/bin; cp -a /run/kept/. /opt/cni/bin; ! $OURS install",
        findings: &["executable"],
        add: Add::Fails,
    }
    plugins_are_in_a_folder_that_is_named {
        broken_by: "mkdir /run/plugins; mv /opt/cni/bin/* /run/plugins; $OURS check --dir /run/plugins | grep 'new pods get addresses'; mv /run/plugins/* /opt/cni/bin",
    }
    every_user_can_replace_plugins {
        broken_by: "chmod 777 /opt/cni/bin",
        findings: &["executable"],
    }
    main_plugin_does_not_speak_the_version {
        broken_by: "sed -i 's/,\"1.1.0\"//' /run/broken-node/bridge",
        findings: &["executable"],
        add: Add::Fails,
        by_hand: "true",
    }
    no_plugin_speaks_the_version {
        broken_by: "sed -i 's/\"cniVersion\": *\"[^\"]*\"/\"cniVersion\" : \"2.0.0\"/' /etc/cni/net.d/10-bridge.conflist; COLUMNS=999 $OURS check | grep 'ask for 1.0.0'",
        findings: &["conflist"],
        add: Add::Fails,
        by_hand: "true",
    }
    the_version_is_shortened {
        broken_by: "sed -i 's/\"cniVersion\": *\"[^\"]*\"/\"cniVersion\": \"0.3\"/' /etc/cni/net.d/10-bridge.conflist; sed -i 's/,\"1.1.0\"//' /run/broken-node/bridge; COLUMNS=999 $OURS check | grep 'ask for 1.0.0'",
        findings: &["conflist"],
        add: Add::Fails,
        by_hand: "true",
    }
    the_version_is_none {
        broken_by: "sed -i 's/\"cniVersion\": *\"[^\"]*\"/\"cniVersion\": \"x|y\"/' /etc/cni/net.d/10-bridge.conflist; ! $OURS check | grep 'sed -i'",
        findings: &["conflist"],
        add: Add::Fails,
    }
    only_the_main_plugin_speaks_the_version {
        broken_by: "sed -i 's/\"cniVersion\": *\"[^\"]*\"/\"cniVersion\": \"2.0.0\"/' /etc/cni/net.d/10-bridge.conflist; sed -i 's/\"1.1.0\"/\"1.1.0\",\"2.0.0\"/' /run/broken-node/bridge",
        findings: &["conflist"],
        add: Add::Fails,
        by_hand: "true",
    }
    cni_versions_name_one_that_the_main_plugin_does_not_speak {
        broken_by: "sed -i 's/\"cniVersion\": *\"[^\"]*\"/\"cniVersion\": \"1.0.0\", \"cniVersions\": [\"1.1.0\", \"0.4.0\"]/' /etc/cni/net.d/10-bridge.conflist; $OURS check | grep 'Nothing is wrong; new pods get' || exit 1; sed -i 's/,\"1.1.0\"//' /run/broken-node/bridge; COLUMNS=999 $OURS check | grep 'asks for CNI 1.1.0 in /etc/cni/net.d/10-bridge.conflist, others for 1.0.0'",
        findings: &["executable"],
        add: Add::Unknown,
        by_hand: "cp $REPOSITORY/testdata/bridge.conflist /etc/cni/net.d/10-bridge.conflist; sed -i 's/1.1.0/1.0.0/' /etc/cni/net.d/10-bridge.conflist",
    }
    cni_versions_name_one_that_all_plugins_speak {
        broken_by: "sed -i 's/\"cniVersion\": *\"[^\"]*\"/\"cniVersion\": \"1.2.0\", \"cniVersions\": [\"1.0.0\"]/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["executable"],
        add: Add::Unknown,
    }
    cni_versions_are_spoken_by_no_plugin {
        broken_by: "sed -i 's/\"cniVersion\": *\"[^\"]*\"/\"cniVersions\": [\"1.1.0\"], &/' /etc/cni/net.d/10-bridge.conflist; sed -i 's/,\"1.1.0\"//' /run/broken-node/bridge; ! $OURS check | grep 'sed -i'",
        findings: &["executable"],
        add: Add::Fails,
        by_hand: "cp $REPOSITORY/testdata/bridge.conflist /etc/cni/net.d/10-bridge.conflist; sed -i 's/1.1.0/1.0.0/' /etc/cni/net.d/10-bridge.conflist",
    }
    the_version_is_missing {
        broken_by: "sed -i '/\"cniVersion\"/d' /etc/cni/net.d/10-bridge.conflist; COLUMNS=999 $OURS check | grep 'bridge speaks no CNI 0.1.0, which /etc/cni/net.d/10-bridge.conflist asks for without cniVersion' && COLUMNS=999 $OURS check | grep 'add \"cniVersion\": \"1.0.0\"'",
        findings: &["executable"],
        add: Add::Fails,
    }
    the_version_is_missing_and_all_plugins_speak_the_oldest {
        broken_by: "sed -i '/\"cniVersion\"/d' /etc/cni/net.d/10-bridge.conflist; sed -i 's/\"0.3.1\"/\"0.1.0\",&/' /run/broken-node/bridge; COLUMNS=999 $OURS check | grep 'without cniVersion, which means 0.1.0'",
    }
    a_plugin_in_the_folder_of_the_network_is_missing {
        screen: true,
        broken_by: "mkdir /etc/cni/net.d/azure-bridge; echo '{\"type\": \"firewall2\"}' >/etc/cni/net.d/azure-bridge/20-a.conf",
        findings: &["executable"],
        add: Add::Unknown,
        by_hand: "rm -r /etc/cni/net.d/azure-bridge",
    }
    a_plugin_in_the_folder_of_the_network_works {
        broken_by: "mkdir -p /etc/cni/net.d/azure-bridge/30-c.conf; cd /etc/cni/net.d/azure-bridge; echo '{\"type\": \"bridge\"}' >20-a.conf; echo '{\"type\": \"x\"}' >20-b.json",
    }
    a_file_in_the_folder_of_the_network_is_broken {
        broken_by: "mkdir /etc/cni/net.d/azure-bridge; echo '{' >/etc/cni/net.d/azure-bridge/20-a.conf",
        findings: &["conflist"],
        add: Add::Unknown,
        by_hand: "rm -r /etc/cni/net.d/azure-bridge",
    }
    a_broken_folder_of_the_network_is_not_read {
        broken_by: "touch /etc/cni/net.d/azure-bridge; sed -i 's/\"plugins\"/\"loadOnlyInlinedPlugins\": true, &/' /etc/cni/net.d/10-bridge.conflist",
        by_hand: "rm /etc/cni/net.d/azure-bridge",
    }
    all_plugins_are_in_the_folder_of_the_network {
        broken_by: "mkdir /etc/cni/net.d/azure-bridge; netconf >/etc/cni/net.d/azure-bridge/20-a.conf; echo '{\"cniVersion\": \"1.0.0\", \"name\": \"azure-bridge\"}' >/etc/cni/net.d/10-bridge.conflist",
        findings: &["conflist"],
        add: Add::Unknown,
        by_hand: "cp $REPOSITORY/testdata/bridge.conflist /etc/cni/net.d/10-bridge.conflist; rm -r /etc/cni/net.d/azure-bridge",
    }
    disable_check_is_no_boolean {
        broken_by: "sed -i 's/\"plugins\"/\"disableCheck\": \"yes\", &/' /etc/cni/net.d/10-bridge.conflist; $OURS check | grep 'disableCheck must be true or false'",
        findings: &["conflist"],
        add: Add::Fails,
    }
    disable_gc_is_no_boolean {
        broken_by: "sed -i 's/\"plugins\"/\"disableGC\": null, &/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["conflist"],
        add: Add::Unknown,
    }
    a_route_has_a_gateway_of_another_subnet {
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"routes\": [{\"dst\": \"0.0.0.0\\/0\", \"gw\": \"10.224.0.1\"}, {\"dst\": \"10.225.0.0\\/16\", \"gw\": \"10.230.0.1\"}], &/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["conflist"],
        add: Add::Fails,
    }
    the_first_plugin_needs_the_result_of_another {
        broken_by: "cp /run/broken-node/bridge /opt/cni/bin/portmap; sed -i 's/\"plugins\": *\\[/& {\"type\": \"portmap\"},/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["conflist"],
        add: Add::Fails,
    }
    plugin_is_not_executable {
        broken_by: "chmod 644 /opt/cni/bin/azure-vnet-ipam",
        findings: &["executable"],
        add: Add::Fails,
    }
}
