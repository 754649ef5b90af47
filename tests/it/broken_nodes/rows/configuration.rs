//! Network configurations, plugins, and what runtimes make of them.

use super::{broken_nodes, dual_stack};
use crate::broken_nodes::Add;

broken_nodes! {
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
    dns_is_a_string {
        broken_by: "sed -i 's/\"type\": \"bridge\",/& \"dns\": \"1.1.1.1\",/' /etc/cni/net.d/10-bridge.conflist; $OURS check | grep 'runtimes refuse it: dns must be an object'",
        findings: &["conflist"],
        add: Add::Fails,
    }
    a_key_of_the_main_plugin_is_a_string {
        broken_by: "sed -i 's/\"type\": \"bridge\",/& \"ipmasq\": null, \"ipMasq\": \"true\",/' /etc/cni/net.d/10-bridge.conflist; COLUMNS=999 $OURS check | grep 'bridge refuses ipMasq, which must be true or false'",
        findings: &["conflist"],
        add: Add::Fails,
    }
    ipam_is_beside_plugins {
        broken_by: "printf '%s' '{\"cniVersion\": \"1.0.0\", \"name\": \"azure-bridge\", \"ipam\": {\"type\": \"azure-vnet-ipam\"}, \"plugins\": [{\"type\": \"bridge\"}]}' >/etc/cni/net.d/10-bridge.conflist; COLUMNS=999 $OURS check | grep 'ipam beside plugins has no effect' && ! $OURS check | grep 'took over'",
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
        broken_by: concat!(dual_stack!(), "; echo 1 >/proc/real/sys/net/ipv6/conf/all/disable_ipv6; ! $OURS check --all | grep 'ip address add' && \
            COLUMNS=999 $OURS check | grep 'switched off by net.ipv6.conf.default.disable_ipv6, net.ipv6.conf.eth0.disable_ipv6'"),
        findings: &["interface"],
        add: Add::Unknown,
        by_hand: "true",
    }
    ipv6_is_wanted_and_switched_off_on_the_link {
        broken_by: concat!(dual_stack!(), "; echo 1 >/proc/real/sys/net/ipv6/conf/eth0/disable_ipv6"),
        findings: &["interface"],
        by_hand: "true",
    }
    every_pod_is_to_have_one_address {
        broken_by: "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"ipAddress\": \"10.224.0.5\", &/' /etc/cni/net.d/10-bridge.conflist; COLUMNS=999 $OURS check | grep 'remove ipam.ipAddress from /etc/cni/net.d/10-bridge.conflist'",
        findings: &["add", "conflist"],
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
    keys_of_ipam_are_outside_of_it {
        screen: true,
        broken_by: "sed -i 's/\"plugins\"/\"ipam\": {\"exclude\": [\"10.224.0.9\"]}, &/; s/\"type\": \"bridge\"/\"exclude\": [\"10.224.0.10\"], &/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["conflist", "conflist"],
    }
    the_settings_file_is_a_link_that_leads_nowhere {
        broken_by: "ln -s /nowhere/settings.json /etc/azure-vnet-ipam.json",
        findings: &["settings"],
        by_hand: "rm /etc/azure-vnet-ipam.json",
    }
    all_users_can_change_the_settings_file {
        screen: true,
        broken_by: "echo '{}' >/etc/azure-vnet-ipam.json; chmod 666 /etc/azure-vnet-ipam.json",
        findings: &["settings"],
    }
    another_conflist_comes_first {
        broken_by: "echo '{\"cniVersion\": \"1.0.0\", \"name\": \"x\", \"type\": \"ptp\"}' >/etc/cni/net.d/05-x.conf; COLUMNS=999 $OURS check | grep '/opt/cni/bin/ptp, which /etc/cni/net.d/05-x.conf needs, is missing'; cp /opt/cni/bin/bridge /opt/cni/bin/ptp; COLUMNS=999 $OURS check | grep 'another plugin took over (ptp, in /etc/cni/net.d/05-x.conf), and 3 addresses are held'",
        findings: &["conflist"],
        add: Add::Unknown,
        by_hand: "rm /etc/cni/net.d/05-x.conf",
    }
    another_conflist_comes_first_and_the_own_one_is_broken {
        broken_by: "echo '{\"cniVersion\": \"1.0.0\", \"name\": \"x\", \"type\": \"ptp\"}' >/etc/cni/net.d/05-x.conf; cp /etc/cni/net.d/10-bridge.conflist /run/right; echo '{' >/etc/cni/net.d/10-bridge.conflist; COLUMNS=999 $OURS check | grep '/etc/cni/net.d/05-x.conf comes first by name'",
        findings: &["conflist"],
        add: Add::Fails,
        by_hand: "rm /etc/cni/net.d/05-x.conf; cp /run/right /etc/cni/net.d/10-bridge.conflist",
    }
    another_conflist_comes_first_and_the_address_space_is_unknown {
        broken_by: "echo '{\"cniVersion\": \"1.0.0\", \"name\": \"x\", \"type\": \"ptp\"}' >/etc/cni/net.d/05-x.conf; sed -i 's/\"type\": \"azure-vnet-ipam\"/\"addressSpace\": \"global\", &/' /etc/cni/net.d/10-bridge.conflist",
        findings: &["conflist"],
        add: Add::Unknown,
        by_hand: "rm /etc/cni/net.d/05-x.conf; sed -i 's/\"addressSpace\": \"global\", //' /etc/cni/net.d/10-bridge.conflist",
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
        broken_by: "(ulimit -n 6; $OURS check | grep 'this says nothing about the file' && ! $OURS check | grep -e '--force')",
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
    plugin_is_missing_and_its_folder_is_read_only {
        broken_by: "mkdir /run/kept; cp -a /opt/cni/bin/. /run/kept; rm /run/kept/azure-vnet-ipam; mount -t tmpfs none /opt/cni/bin; cp -a /run/kept/. /opt/cni/bin; mount -o remount,ro /opt/cni/bin",
        findings: &["disk", "executable"],
        add: Add::Fails,
        by_hand: "cp $OURS /opt/cni/bin/azure-vnet-ipam",
    }
    plugin_is_missing_and_its_folder_is_full {
        broken_by: "mkdir /run/kept; cp -a /opt/cni/bin/. /run/kept; rm /run/kept/azure-vnet-ipam; mount -t tmpfs -o size=1m none /opt/cni/bin; cp -a /run/kept/. /opt/cni/bin",
        findings: &["disk", "executable"],
        add: Add::Fails,
        by_hand: "mount -o remount,size=1g /opt/cni/bin; cp $OURS /opt/cni/bin/azure-vnet-ipam",
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
    another_plugin_that_speaks_no_cni_of_the_network_stands_in_the_place_of_this_one {
        broken_by: "sed 's/,\"1.1.0\"//' /run/broken-node/bridge >/run/older; chmod 755 /run/older; cp --remove-destination /run/older /opt/cni/bin/azure-vnet-ipam",
        findings: &["executable", "executable"],
        add: Add::Fails,
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
        broken_by: "mkdir /run/plugins; mv /opt/cni/bin/* /run/plugins; $OURS check --dir /run/plugins | grep 'new pods get addresses' && mv /run/plugins/* /opt/cni/bin",
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
        broken_by: "sed -i '/\"cniVersion\"/d' /etc/cni/net.d/10-bridge.conflist; COLUMNS=999 $OURS check | grep 'bridge does not speak CNI 0.1.0, which /etc/cni/net.d/10-bridge.conflist asks for without cniVersion' && COLUMNS=999 $OURS check | grep 'add \"cniVersion\": \"1.0.0\"'",
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
