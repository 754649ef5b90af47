//! The state, its backup and its files.

use super::broken_nodes;
use crate::broken_nodes::Add;

broken_nodes! {
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
        broken_by: "rm /var/run/azure-vnet-ipam.json /var/run/.azure-vnet-ipam.backup; add x >/dev/null || true",
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
    old_copies_of_the_state_and_its_backup_are_restored {
        broken_by: "cd /var/run; add other >/dev/null; cp azure-vnet-ipam.json /run/old; cp .azure-vnet-ipam.backup /run/old-backup; del other; add web-4 >/dev/null; cp /run/old azure-vnet-ipam.json; cp /run/old-backup .azure-vnet-ipam.backup; \
            export COLUMNS=999; later 3700 $OURS check | tee /run/report | grep -A 1 '^note     leak       10.224.0.8$' | grep 'the next ADD keeps it held for an unknown holder' && ! grep unknown-holder /run/report",
        later: 3700,
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
        broken_by: "mount -o remount,nr_inodes=16 /var/lib/cni; mkdir /var/lib/cni/other; touch /var/lib/cni/other/{1..20} 2>/dev/null || true; \
            listed=$($OURS check | sed -n 's/^ *\\(du .*\\)/\\1/p'); eval \"$listed\" | grep '/var/lib/cni/other$'",
        findings: &["disk"],
        add: Add::Fails,
        by_hand: "rm -r /var/lib/cni/other",
    }
    folder_of_results_is_full {
        broken_by: "mount -o remount,size=64k /var/lib/cni; head -c 1m /dev/zero >/var/lib/cni/filler 2>/dev/null || true; \
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
}
