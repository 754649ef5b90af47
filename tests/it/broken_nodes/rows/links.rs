//! The links, addresses and routes of the host.

use super::{broken_nodes, dual_stack};
use crate::broken_nodes::Add;

/// Replaces the main plugin by ptp. The pods stay those of a bridge.
macro_rules! under_ptp {
    () => {
        "ln -s /run/broken-node/bridge /opt/cni/bin/ptp; sed -i 's/\"type\": \"bridge\"/\"type\": \"ptp\"/' /etc/cni/net.d/10-bridge.conflist"
    };
}

/// Replaces the main plugin by ptp, and connects the pods as it does.
macro_rules! pods_of_ptp {
    () => {
        concat!(
            under_ptp!(),
            "; echo 1 >/proc/sys/net/ipv4/ip_forward; link() { echo v-$(printf $1 | sha256sum | cut -c 1-8); }; \
             n=5; for pod in web-1 web-2 web-3; do ip link set $(link $pod) nomaster; ip addr add 10.224.0.1/32 dev $(link $pod); ip route add 10.224.0.$n dev $(link $pod); n=$((n+1)); done"
        )
    };
}

/// Replaces eth0 by a link whose other end is in a network namespace of this machine.
macro_rules! virtual_eth0 {
    () => {
        "ip link del eth0; ip netns add azure; ip link add eth0 address 7c:1e:52:f9:f3:c4 up type veth peer name node netns azure"
    };
}

/// Has the wire server list this subnet of eth1.
macro_rules! list_eth1 {
    ($subnet:literal) => {
        concat!(
            "sed -i 's|</Interfaces>|<Interface MacAddress=\"7C1E52F9F3C5\" IsPrimary=\"false\">",
            $subnet,
            "</Interface></Interfaces>|' /run/broken-node/wire.xml"
        )
    };
}

/// Attaches eth1, and has the wire server list this subnet of it.
macro_rules! attach_eth1 {
    ($subnet:literal) => {
        concat!(
            "ip link add eth1 address 7c:1e:52:f9:f3:c5 up type bridge; ",
            list_eth1!($subnet)
        )
    };
}

/// Attaches eth1 with three addresses for pods.
macro_rules! attach_eth1_for_pods {
    () => {
        concat!(
            attach_eth1!(
                r#"<IPSubnet Prefix="10.230.0.0/24"><IPAddress Address="10.230.0.4" IsPrimary="true"/><IPAddress Address="10.230.0.5" IsPrimary="false"/><IPAddress Address="10.230.0.6" IsPrimary="false"/><IPAddress Address="10.230.0.7" IsPrimary="false"/></IPSubnet>"#
            ),
            "; ip addr add 10.230.0.4/24 dev eth1"
        )
    };
}

broken_nodes! {
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
        broken_by: "sed -i 's/7C1E52F9F3C4/000D3A112233/; s/\"10[.]224[.]0[.]/\"10.224.7./g' /run/broken-node/wire.xml; COLUMNS=999 $OURS check | grep 'may describe another node' && ! $OURS check | grep 'ip link set'",
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
        broken_by: concat!(pods_of_ptp!(), "; ip route del 10.224.0.6; ip route del 10.224.0.7"),
        later: 120,
        findings: &["unrouted"],
        by_hand: "ip route get 10.224.0.6 | grep -w dev.v-612f7a0e; ip route get 10.224.0.7 | grep -w dev.v-9f11eb4e",
    }
    routes_of_pods_lead_elsewhere {
        screen: true,
        broken_by: concat!(pods_of_ptp!(), "; ip route replace 10.224.0.5 dev eth0; ip route replace 10.224.0.6 dev $(link web-1)"),
        later: 120,
        findings: &["unrouted"],
        by_hand: "ip route get 10.224.0.5 | grep -w dev.v-c4719afa; ip route get 10.224.0.6 | grep -w dev.v-612f7a0e",
    }
    a_route_leads_to_another_pod_of_the_bridge {
        broken_by: "ip route add 10.224.0.6 dev v-$(printf web-1 | sha256sum | cut -c 1-8)",
        later: 120,
        findings: &["unrouted"],
    }
    a_rule_leads_packets_for_pods_to_a_vpn {
        screen: true,
        broken_by: "ip link add wg0 up type bridge; ip route add 10.224.0.0/16 dev wg0 table 51820; ip rule add to 10.224.0.0/16 lookup 51820",
        later: 120,
        findings: &["unrouted"],
        by_hand: "ip rule del to 10.224.0.0/16 lookup 51820",
    }
    rules_discard_and_divert_packets_of_pods {
        screen: true,
        broken_by: concat!(pods_of_ptp!(), "; ip rule add from 10.224.0.5 unreachable; ip rule add to 10.224.0.6 prohibit; ip link add wg0 up type bridge; ip route add default dev wg0 table 51820; ip rule add from 10.224.0.7 lookup 51820"),
        later: 120,
        findings: &["unrouted", "unrouted", "unrouted"],
        by_hand: "ip rule del from 10.224.0.5 unreachable; ip rule del to 10.224.0.6 prohibit; ip rule del from 10.224.0.7 lookup 51820",
    }
    rules_of_type_blackhole_discard_packets_of_pods {
        broken_by: concat!(pods_of_ptp!(), "; ip rule add from 10.224.0.5 blackhole; ip rule add to 10.224.0.6 iif eth0 blackhole; ip rule add from 10.224.0.4 to 10.224.0.7 lookup 100; ip route add default via 10.224.0.1 dev eth0 table 100; \
            COLUMNS=999 later 120 $OURS check | grep 'leads packets elsewhere that the host sends to the pod from its own address'"),
        later: 120,
        findings: &["unrouted", "unrouted", "unrouted"],
        by_hand: "ip rule del from 10.224.0.5 blackhole; ip rule del to 10.224.0.6 iif eth0 blackhole; ip rule del from 10.224.0.4 to 10.224.0.7 lookup 100",
    }
    the_link_to_a_pod_became_a_port_of_a_bridge {
        broken_by: concat!(pods_of_ptp!(), "; ip link add docker0 up type bridge; ip link set $(link web-1) master docker0"),
        later: 120,
        findings: &["unrouted"],
    }
    the_host_changed_its_ends_of_the_links_to_pods {
        screen: true,
        broken_by: concat!(pods_of_ptp!(), "; ip addr del 10.224.0.1/32 dev $(link web-1); ip link set $(link web-2) down"),
        later: 120,
        findings: &["unrouted", "unrouted"],
        by_hand: "ip route get 10.224.0.6 | grep -w dev.v-612f7a0e; ip addr show dev v-c4719afa | grep -w 10.224.0.1/32",
    }
    the_link_to_a_pod_of_a_bridge_is_switched_off {
        broken_by: "ip link set v-$(printf web-1 | sha256sum | cut -c 1-8) down",
        later: 120,
        findings: &["unrouted"],
    }
    rules_divert_packets_that_the_host_forwards_to_pods {
        screen: true,
        broken_by: concat!(pods_of_ptp!(), "; ip rule add iif eth0 to 10.224.0.5 unreachable; ip route add 10.224.0.0/16 dev eth0 table 30400; ip rule add from 10.224.0.6 lookup 30400"),
        later: 120,
        findings: &["unrouted", "unrouted"],
        by_hand: "ip rule del iif eth0 to 10.224.0.5 unreachable; ip rule del from 10.224.0.6 lookup 30400",
    }
    the_interface_of_the_pool_does_not_forward {
        broken_by: concat!(pods_of_ptp!(), "; echo 0 >/proc/sys/net/ipv4/conf/eth0/forwarding"),
        later: 120,
        findings: &["unrouted"],
    }
    a_vpn_takes_the_whole_subnet_by_its_metric {
        broken_by: "ip route add 10.224.0.0/16 dev eth0 src 10.224.0.4 metric 100; ip route del 10.224.0.0/16 dev eth0 metric 0; ip link add tun0 up type bridge; ip route add 10.224.0.0/16 dev tun0 metric 50",
        findings: &["interface"],
        by_hand: "ip link del tun0",
    }
    a_vpn_takes_the_packets_of_ipv6 {
        broken_by: concat!(under_ptp!(), "; ", dual_stack!(), "; ip -6 addr add fd00:10::4/64 dev eth0 nodad; ip -6 route add default via fe80::1 dev eth0 metric 100; add web-4; \
            ip link add tun0 up type bridge; ip -6 route add default dev tun0 metric 50; COLUMNS=999 $OURS check | grep 'IPv6 packets of pods to other networks leave the node by'"),
        findings: &["interface"],
        by_hand: "ip link del tun0",
    }
    ipv6_is_wanted_and_switched_off_under_ptp {
        broken_by: concat!(under_ptp!(), "; ", dual_stack!(), "; echo 1 >/proc/real/sys/net/ipv6/conf/default/disable_ipv6"),
        findings: &["interface"],
        add: Add::Fails,
        by_hand: "echo 0 >/proc/real/sys/net/ipv6/conf/default/disable_ipv6",
    }
    the_kernel_ended_ipv6_on_the_interface {
        broken_by: concat!(dual_stack!(), "; ip -6 addr add fd00:10::4/64 dev eth0 nodad; ip -6 route add default via fe80::1 dev eth0; ip link set eth0 mtu 1200; COLUMNS=999 $OURS check | grep 'the kernel has ended IPv6 on eth0'"),
        findings: &["interface"],
    }
    a_second_interface_of_the_subnet_takes_the_default_route {
        broken_by: concat!(under_ptp!(), "; ", attach_eth1!(r#"<IPSubnet Prefix="10.224.0.0/16"><IPAddress Address="10.224.0.40" IsPrimary="true"/></IPSubnet>"#), "; ip addr add 10.224.0.40/16 dev eth1 noprefixroute; ip route add default via 10.224.0.1 dev eth1 onlink metric 50; ip route del default metric 0; ip route add default via 10.224.0.1 dev eth0 metric 100; COLUMNS=999 $OURS check | grep 'leave the node by .0.0.0.0/0 dev eth1 metric 50., and not by eth0'"),
        findings: &["interface"],
        by_hand: "ip route del default dev eth1",
    }
    the_default_route_leads_by_two_links {
        broken_by: concat!(under_ptp!(), "; ip link add eth1 up type bridge; ip addr add 10.225.0.4/24 dev eth1; ip route del default; ip route add default nexthop via 10.224.0.1 dev eth0 nexthop via 10.225.0.1 dev eth1; \
            COLUMNS=999 $OURS check | grep 'some packets of pods to other networks leave the node by .0.0.0.0/0 nexthop dev eth0 nexthop dev eth1., and not by eth0'"),
        findings: &["interface"],
        by_hand: "ip route del default; ip route add default via 10.224.0.1",
    }
    a_route_keeps_packets_for_a_pod_on_the_host {
        broken_by: concat!(pods_of_ptp!(), "; ip route add local 10.224.0.5 dev lo; ip route add local 10.224.16.0/28 dev lo; COLUMNS=999 $OURS check | grep 'makes a part of the subnet 10.224.0.0/16 of the pods addresses of this host'"),
        later: 120,
        findings: &["unrouted", "interface"],
        by_hand: "ip route del local 10.224.16.0/28 dev lo",
    }
    a_second_interface_was_moved_into_a_pod {
        broken_by: concat!("ip link add eth1 address 7c:1e:52:f9:f3:c5 up type veth peer name far; ip addr add 10.230.0.4/24 dev eth1; ", list_eth1!(r#"<IPSubnet Prefix="10.230.0.0/24"><IPAddress Address="10.230.0.4" IsPrimary="true"/></IPSubnet>"#), "; \
            ip link set eth1 netns web-2; ip -n web-2 addr add 10.230.0.4/24 dev eth1; COLUMNS=999 $OURS check | grep 'netns/web-2 has its address 10.230.0.4'"),
    }
    a_second_interface_with_addresses_of_pods_was_moved_into_a_pod {
        screen: true,
        broken_by: concat!("ip link add eth1 address 7c:1e:52:f9:f3:c5 up type veth peer name far; ip addr add 10.230.0.4/24 dev eth1; ", list_eth1!(r#"<IPSubnet Prefix="10.230.0.0/24"><IPAddress Address="10.230.0.4" IsPrimary="true"/><IPAddress Address="10.230.0.5" IsPrimary="false"/><IPAddress Address="10.230.0.6" IsPrimary="false"/></IPSubnet>"#), "; \
            add web-27 | grep -x 10.230.0.5; ip link set eth1 netns web-2; ip -n web-2 addr add 10.230.0.4/24 dev eth1; add web-28"),
        findings: &["interface"],
        by_hand: "cp $REPOSITORY/testdata/wire.xml /run/broken-node; del web-27",
    }
    an_interface_that_is_not_for_pods_is_no_finding {
        broken_by: concat!(attach_eth1!(r#"<IPSubnet Prefix="10.230.0.0/24"><IPAddress Address="10.230.0.4" IsPrimary="true"/></IPSubnet>"#), "; ip addr add 10.230.0.4/24 dev eth1"),
    }
    a_rule_leads_packets_for_the_subnet_to_a_vpn {
        broken_by: concat!(pods_of_ptp!(), "; ip link add tun0 up type bridge; ip route add 10.224.0.0/16 dev tun0 table 52; for n in 1 5 6 7; do ip route add throw 10.224.0.$n table 52; done; ip rule add pref 5270 lookup 52"),
        later: 120,
        findings: &["unrouted"],
        by_hand: "ip rule del pref 5270",
    }
    the_host_does_not_answer_pods_that_ask_for_their_gateway {
        broken_by: concat!(pods_of_ptp!(), "; echo 2 >/proc/sys/net/ipv4/conf/all/arp_ignore"),
        later: 120,
        findings: &["unrouted"],
    }
    the_host_checks_the_sources_of_packets_and_discards_test_networks {
        broken_by: concat!(pods_of_ptp!(), "; echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter; $OURS check | grep 'Nothing is wrong' || exit 1; ip route add blackhole 192.0.2.0/24; $OURS check | grep 'Nothing is wrong' || exit 1; echo 2 >/proc/sys/net/ipv4/conf/all/rp_filter"),
        later: 120,
    }
    new_pods_of_a_second_interface_leave_by_the_first {
        broken_by: concat!(pods_of_ptp!(), "; ", attach_eth1_for_pods!()),
        findings: &["interface"],
        by_hand: "ip rule add pref 90 from 10.230.0.0/24 lookup main suppress_prefixlength 31; ip rule add pref 91 from 10.230.0.0/24 lookup 200; ip route add default via 10.230.0.1 dev eth1 table 200; $OURS check",
    }
    pods_reach_the_subnet_of_another_interface_by_it {
        broken_by: concat!(pods_of_ptp!(), "; ", attach_eth1_for_pods!(), "; \
            COLUMNS=999 later 120 $OURS check | grep '10.230.0.0/24 dev eth1' || exit 1; \
            ip rule add pref 90 from 10.224.0.0/16 lookup main suppress_prefixlength 31; ip rule add pref 91 from 10.224.0.0/16 lookup 200; ip route add default via 10.224.0.1 dev eth0 table 200; \
            ip rule add pref 92 from 10.230.0.0/24 lookup 201; ip route add default via 10.230.0.1 dev eth1 table 201; \
            ! later 120 $OURS check | grep unrouted"),
        later: 120,
    }
    pods_leave_by_the_interface_of_another_pool {
        broken_by: concat!(pods_of_ptp!(), "; ", attach_eth1_for_pods!(), "; ip route add default via 10.224.0.1 metric 200; ip route del default via 10.224.0.1; ip route add default via 10.230.0.1; \
            sed -i 's/\"type\": \"ptp\"/&, \"ipMasq\": true/' /etc/cni/net.d/10-bridge.conflist; ! later 120 $OURS check | grep unrouted; sed -i 's/, \"ipMasq\": true//' /etc/cni/net.d/10-bridge.conflist"),
        later: 120,
        findings: &["unrouted"],
        by_hand: "ip route replace default dev eth0",
    }
    the_host_does_not_forward_packets_of_pods {
        screen: true,
        broken_by: concat!(pods_of_ptp!(), "; echo 0 >/proc/sys/net/ipv4/ip_forward"),
        later: 120,
        findings: &["unrouted"],
    }
    pods_of_a_bridge_need_no_routes_after_a_change_to_ptp {
        broken_by: under_ptp!(),
        later: 120,
    }
    a_vpn_takes_an_address_that_a_pod_and_the_host_have {
        broken_by: "ip link add tun0 up type bridge; ip route add 10.224.0.5/31 dev tun0 2>/dev/null || ip route add 10.224.0.4/31 dev tun0; ip addr add 10.224.0.5/32 dev eth0",
        findings: &["on-host", "interface"],
        by_hand: "ip link del tun0",
    }
    a_vpn_takes_a_part_of_the_subnet {
        broken_by: "ip link add tun0 up type bridge; ip addr add 10.8.0.6/24 dev tun0; ip route add 10.224.0.0/17 via 10.8.0.1 dev tun0; COLUMNS=999 $OURS check | grep '10.224.0.0/17 dev tun0. leads packets for a part of the subnet 10.224.0.0/16'",
        findings: &["interface"],
        by_hand: "ip link del tun0",
    }
    a_vpn_takes_all_packets_to_other_networks {
        broken_by: concat!("ip link add tun0 up type bridge; ip addr add 10.8.0.6/24 dev tun0; ip route add 0.0.0.0/1 via 10.8.0.1; ip route add 128.0.0.0/1 via 10.8.0.1; $OURS check | grep 'Nothing is wrong' || exit 1; ", under_ptp!()),
        findings: &["interface"],
        by_hand: "ip link del tun0",
    }
    the_default_route_of_another_interface_wins {
        screen: true,
        broken_by: concat!(under_ptp!(), "; ip route add default via 10.224.0.1 metric 200; ip route del default via 10.224.0.1; ip link add eth1 up type bridge; ip addr add 10.230.0.4/24 dev eth1; ip route add default via 10.230.0.1 metric 300; $OURS check | grep 'Nothing is wrong' || exit 1; ip route add default via 10.230.0.1 metric 100"),
        findings: &["interface"],
        by_hand: "ip route del default via 10.230.0.1 metric 100",
    }
    an_interface_with_a_pod_was_detached {
        broken_by: concat!(attach_eth1_for_pods!(), "; \
            cp /etc/cni/net.d/10-bridge.conflist /run/before; sed -i 's|\"type\": \"azure-vnet-ipam\"|\"subnet\": \"10.230.0.0/24\", &|' /etc/cni/net.d/10-bridge.conflist; add job | grep 10.230.0.5 || exit 1; mv /run/before /etc/cni/net.d/10-bridge.conflist; \
            ip link del eth1; cp $REPOSITORY/testdata/wire.xml /run/broken-node; COLUMNS=999 $OURS check | grep 'eth1, which the pools in the state are on, does not exist'"),
        findings: &["interface", "unlisted"],
        by_hand: attach_eth1_for_pods!(),
    }
    a_default_route_without_dev_leads_to_a_pod {
        broken_by: concat!(pods_of_ptp!(), "; ip route del default; ip route add default via 10.224.0.1; COLUMNS=999 $OURS check | grep 'set the route again with .dev eth0.'"),
        findings: &["interface"],
        by_hand: "ip route del default; ip route add default via 10.224.0.1 dev eth0",
    }
    two_interfaces_have_addresses_for_pods {
        broken_by: concat!(under_ptp!(), "; ", attach_eth1_for_pods!(), "; ip route add default via 10.224.0.1 metric 200; ip route del default via 10.224.0.1; ip route add default via 10.230.0.1"),
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
    the_address_in_azure_was_exchanged_for_a_free_one {
        broken_by: "sed -i 's/<IPAddress Address=\"10.224.0.4\"[^>]*>//; s/\"10.224.0.9\" IsPrimary=\"false\"/\"10.224.0.9\" IsPrimary=\"true\"/' /run/broken-node/wire.xml; COLUMNS=999 $OURS check | grep 'no link of this node has 10.224.0.9, .*; eth0 has 10.224.0.4/16, which the source does not list'",
        findings: &["interface"],
    }
    the_default_route_is_missing_on_a_virtual_interface {
        broken_by: concat!(virtual_eth0!(), "; ip addr add 10.224.0.4/16 dev eth0"),
        findings: &["interface"],
        by_hand: "ip route show default | grep -w 'via 10.224.0.1 dev eth0'",
    }
    the_default_route_leads_by_a_port_of_a_bridge {
        screen: true,
        broken_by: concat!(under_ptp!(), "; ", virtual_eth0!(), "; ip link add br0 address 7c:1e:52:f9:f3:c4 up type bridge; ip link set eth0 master br0; ip addr add 10.224.0.4/16 dev br0; \
            ip route add default via 10.224.0.1 dev br0; $OURS check | grep 'Nothing is wrong' || exit 1; ip route replace default via 10.224.0.1 dev eth0 onlink"),
        findings: &["interface"],
        by_hand: "ip route replace default via 10.224.0.1 dev br0",
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
        broken_by: "ip link add cni9 up type bridge; ip addr add 10.224.0.1/16 dev cni9; ip route del 168.63.129.16; ip addr flush dev eth0 scope global",
        findings: &["source", "interface", "interface"],
        by_hand: "ip link del cni9; ip addr add 10.224.0.4/16 dev eth0; ip route add default via 10.224.0.1; ip route add 168.63.129.16 dev wire0",
    }
    the_host_has_its_own_address_on_a_bridge {
        screen: true,
        broken_by: "ip addr flush dev eth0 scope global; ip link add name br0 up type bridge; ip addr add 10.224.0.4/16 dev br0; ip route add default via 10.224.0.1 dev br0",
        findings: &["interface"],
        by_hand: "ip link del br0; ip addr add 10.224.0.4/16 dev eth0; ip route add default via 10.224.0.1",
    }
    a_vpn_has_its_only_address_in_the_subnet {
        broken_by: "ip link add wg0 up type bridge; ip addr add 10.224.200.1/16 dev wg0; ip route add 10.9.0.0/16 dev wg0; COLUMNS=999 $OURS check | grep 'other addresses or routes would go with it'",
        findings: &["interface"],
        by_hand: "ip link del wg0",
    }
    routes_discard_packets_to_a_part_of_the_subnet {
        screen: true,
        broken_by: "ip route add blackhole 10.224.0.4/30 proto 80; ip route add unreachable 10.224.0.8/29",
        findings: &["interface", "interface"],
        by_hand: "ip route del blackhole 10.224.0.4/30; ip route del unreachable 10.224.0.8/29",
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
    docker_has_the_gateway_of_pods_that_the_host_routes {
        screen: true,
        broken_by: concat!(under_ptp!(), "; ip link add docker0 up type bridge; ip addr add 10.224.0.1/24 dev docker0 noprefixroute; $OURS check | grep 'Nothing is wrong' || exit 1; ip addr del 10.224.0.1/24 dev docker0; ip addr add 10.224.0.1/24 dev docker0"),
        findings: &["interface", "interface"],
    }
    two_links_are_in_the_subnet {
        broken_by: "ip link add old type bridge; ip link set old up; ip addr add 10.224.0.250/16 dev old",
        findings: &["interface"],
    }

    a_namespace_has_lost_its_path {
        broken_by: "ip netns exec web-1 sleep 600 </dev/null >/dev/null 2>&1 & ln -s real/$! /proc/$!; until [[ $(cat /proc/$!/comm) == sleep ]]; do sleep 0.05; done; \
            ip netns del web-1; COLUMNS=999 $OURS show web-1 | grep 'its network namespace exists, but its path does not lead there'",
    }
}
