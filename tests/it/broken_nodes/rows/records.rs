//! Holders, leaks, and addresses that the node shows otherwise than the state.

use super::broken_nodes;
use crate::broken_nodes::Add;

broken_nodes! {
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
    the_node_was_restarted {
        broken_by: "vanish web-3; sed 's/^......../12345678/' /proc/sys/kernel/random/boot_id >/run/boot; mount --bind /run/boot /proc/sys/kernel/random/boot_id; \
            $OURS reclaim | grep '10.224.0.7  held before the node was restarted'; export COLUMNS=999; $OURS show 10.224.0.7 >/run/shown; \
            grep 'since  *before the last start of the node' /run/shown; grep 'why  *it was held before the node was restarted' /run/shown; \
            grep 'the next ADD frees it' /run/shown; ! grep -e young -e ago /run/shown; $OURS show 10.224.0.5 | grep 'verdict  *alive'",
    }
    every_address_is_held {
        screen: true,
        broken_by: "for n in {4..28}; do add web-$n >/dev/null; done",
        findings: &["pool"],
        add: Add::Fails,
        by_hand: "del web-27; del web-28",
    }
    every_address_is_held_and_one_may_have_leaked {
        screen: true,
        broken_by: "for n in {4..28}; do add web-$n >/dev/null; done; vanish web-28",
        later: 1000,
        findings: &["pool", "leak"],
        add: Add::Waits,
        by_hand: "later 1065 $OURS reclaim --yes; del web-27",
    }
    another_namespace_has_the_path_of_a_leaked_one {
        screen: true,
        broken_by: "add job >/dev/null; ip netns del job; ip netns add between; ip netns add job; later 3700 $OURS show job | grep 'its own network namespace is gone, so the entry is left over'",
        later: 3700,
        findings: &["leak"],
    }
    a_pod_has_a_free_address_and_another_one_has_two_pods {
        broken_by: "ip netns add other; wire_up other 10.224.0.20/16; ip netns add web-27; wire_up web-27 10.224.0.5/16; $OURS check | grep 'end the duplicates first' && ! $OURS check | grep truncate",
        findings: &["duplicate", "stray"],
        by_hand: "ip netns del web-27; until [ ! -e /sys/class/net/v-$(printf web-27 | sha256sum | cut -c 1-8) ]; do sleep 0.1; done; ip netns del other; until [ ! -e /sys/class/net/v-$(printf other | sha256sum | cut -c 1-8) ]; do sleep 0.1; done",
    }
    the_subnet_was_enlarged {
        broken_by: "sed -i 's|10.224.0.0/16|10.224.0.0/15|' /run/broken-node/wire.xml; add web-4; $OURS show 10.224.0.5 | grep 'lists it in another subnet now'",
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
    the_entry_of_a_released_sandbox_is_left_over_in_the_cache {
        broken_by: "add other >/dev/null; ip -n other link del eth0; CNI_COMMAND=DEL CNI_CONTAINERID=$(printf other | sha256sum | cut -c 1-64) CNI_NETNS=/var/run/netns/other CNI_IFNAME=eth0 azure-vnet-ipam <<<\"$(netconf)\"; \
            later 600 $OURS check | grep '^note     cache      10.224.0.8$'; later 600 $OURS check | grep /var/lib/cni/results/azure-bridge-",
        later: 600,
    }
    the_cache_names_the_address_of_a_pod_for_another_sandbox_too {
        broken_by: "results=/var/lib/cni/results/azure-bridge; id_of() { printf $1 | sha256sum | cut -c 1-64; }; ip netns add other; \
            sed \"s/$(id_of web-1)/$(id_of other)/; s/web-1/other/g\" $results-$(id_of web-1)-eth0 >$results-$(id_of other)-eth0; $OURS check | grep '^note     cache      10.224.0.5$'",
    }
    a_pod_has_an_address_of_the_state_of_the_second_name {
        broken_by: "ln -s azure-vnet-ipam /opt/cni/bin/azure-vnet-ipamv6; cd /etc/cni/net.d; sed 's/azure-vnet-ipam\"/azure-vnet-ipamv6\"/; s/azure-bridge/azure-six/' 10-bridge.conflist >20-six.conflist; \
            sed -i 's|</Interface>|<IPSubnet Prefix=\"fd00:1::/64\"><IPAddress Address=\"fd00:1::5\" IsPrimary=\"false\"/><IPAddress Address=\"fd00:1::6\" IsPrimary=\"false\"/></IPSubnet>&|' /run/broken-node/wire.xml; \
            ip addr add fd00:1::4/64 dev eth0 nodad; add web-4; PLUGIN=azure-vnet-ipamv6 add other | grep -x fd00:1::5; [[ $(azure-vnet-ipamv6 check) != *stray* ]]; \
            $OURS show fd00:1::5 | grep 'held in the state of azure-vnet-ipamv6'",
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
    an_address_is_withheld_and_the_host_has_a_route_to_it {
        broken_by: "add other >/dev/null; ip route add 10.224.0.8 dev v-$(printf other | sha256sum | cut -c 1-8); CNI_COMMAND=DEL CNI_CONTAINERID=$(printf other | sha256sum | cut -c 1-64) CNI_NETNS=/var/run/netns/other CNI_IFNAME=eth0 azure-vnet-ipam <<<\"$(netconf)\"; later 600 azure-vnet-ipam show | grep ', 1 withheld,'",
        later: 600,
        findings: &["withheld"],
    }
    the_runtime_keeps_a_sandbox_of_a_pod_that_runs_again {
        broken_by: "retry() { ip netns add bad-$1; CNI_COMMAND=ADD CNI_CONTAINERID=$(printf bad-$1 | sha256sum | cut -c 1-64) CNI_NETNS=/var/run/netns/bad-$1 CNI_IFNAME=eth0 CNI_ARGS='K8S_POD_NAMESPACE=default;K8S_POD_NAME=bad' azure-vnet-ipam <<<\"$(netconf)\"; }; retry 1; retry 2; wire_up bad-2 10.224.0.9/16; later 800 $OURS check | grep 'Nothing is wrong'",
        later: 1000,
        findings: &["replaced"],
        by_hand: "ip netns list | grep -w bad-2 && ! ip netns list | grep -w bad-1",
    }
    retries_of_a_pod_hold_every_address {
        broken_by: "for n in {1..25}; do ip netns add bad-$n; CNI_COMMAND=ADD CNI_CONTAINERID=$(printf bad-$n | sha256sum | cut -c 1-64) CNI_NETNS=/var/run/netns/bad-$n CNI_IFNAME=eth0 CNI_ARGS='K8S_POD_NAMESPACE=default;K8S_POD_NAME=bad' azure-vnet-ipam <<<\"$(netconf)\"; ip netns del bad-$n; done",
        findings: &["pool", "leak"],
    }
    azure_assigned_the_first_addresses {
        broken_by: "for n in 1 2 3; do del web-$n; done; cp /run/broken-node/wire.xml /run/wire.xml; sed -i 's#<IPAddress Address=\"[0-9.]*\" IsPrimary=\"false\" */>##g' /run/broken-node/wire.xml; \
            add x || true; later 70 add y || true; del x; cp /run/wire.xml /run/broken-node/wire.xml",
        later: 140,
    }
    azure_took_all_addresses_but_one {
        broken_by: "perl -pi -e 's#<IPAddress Address=\"10.224.0.([6-9]|[123][0-9])\" IsPrimary=\"false\" ?/>##g' /run/broken-node/wire.xml; COLUMNS=999 $OURS check | grep 'delete pods whose addresses the source lists'",
        findings: &["pool", "unlisted"],
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
    the_host_got_addresses_of_pods_and_the_kernel_keeps_its_own {
        broken_by: "echo 1 >/proc/sys/net/ipv4/conf/eth0/promote_secondaries; ip addr flush dev eth0 scope global; for n in 5 8 4; do ip addr add 10.224.0.$n/16 dev eth0; done; ip route add default via 10.224.0.1 src 10.224.0.4",
        findings: &["on-host", "on-host"],
    }
    the_host_has_excluded_addresses {
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"exclude\": [\"10.224.0.8\\/31\", \"10.224.0.10\"], &/' /etc/cni/net.d/10-bridge.conflist; ip addr add 10.224.0.8/16 dev eth0; ip addr add 10.224.0.9/32 dev lo; ip route add 10.224.0.10/32 dev eth0",
        by_hand: "true",
    }
    a_point_to_point_link_has_an_address_of_a_pool {
        broken_by: "ip link add ppp0 up type bridge; ip addr add 10.224.0.9 peer 10.99.0.1/32 dev ppp0; ip addr add 10.99.0.7/24 dev ppp0",
        findings: &["on-host"],
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
        broken_by: "sed -i 's|10.224.0.0/16|10.224.0.0/24|' /run/broken-node/wire.xml; add web-4 >/dev/null; $OURS check --all | grep '10.224.0.0/16: 3 held; the source lists them in 10.224.0.0/24' && ! $OURS check --all | grep foreign",
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
        broken_by: "ip route add 10.224.0.9/32 dev eth0; $OURS show 10.224.0.9 | grep 'it is skipped: the host has it, or a route to it'",
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
}
