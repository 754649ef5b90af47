//! The source of the pools.

use super::broken_nodes;
use crate::broken_nodes::Add;

broken_nodes! {
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
        broken_by: "ip link set dev eth0 address 00:0d:3a:9f:12:34",
        findings: &["interface"],
        by_hand: "ip link set dev eth0 address 7c:1e:52:f9:f3:c4",
    }
    hardware_address_was_changed_before_the_first_pod {
        screen: true,
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
}
