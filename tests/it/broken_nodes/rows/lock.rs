//! The lock on the state.

use super::broken_nodes;
use crate::broken_nodes::Add;

broken_nodes! {
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
        broken_by: "setsid perl -MFcntl=:flock -e 'open(F, \">>\", $ARGV[0]); flock(F, LOCK_EX); sleep 600' /var/run/azure-vnet/azure-vnet-ipam.lock </dev/null >/dev/null 2>&1 & echo $! >/run/holder; ln -s real/$! /proc/$!; while flock -n /var/run/azure-vnet/azure-vnet-ipam.lock true; do sleep 0.05; done",
        findings: &["lock"],
        add: Add::Unknown,
        by_hand: "kill $(cat /run/holder)",
    }
    lock_file_is_a_folder {
        broken_by: "rm /var/run/azure-vnet/azure-vnet-ipam.lock; mkdir /var/run/azure-vnet/azure-vnet-ipam.lock",
        findings: &["lock"],
        add: Add::Fails,
    }
    lock_file_is_a_link_into_a_missing_folder {
        broken_by: "cd /run/azure-vnet; rm azure-vnet-ipam.lock; ln -s ../lock-2 azure-vnet-ipam.lock; ln -s missing/deep/ipam.lock ../lock-2; netconf | CNI_COMMAND=STATUS CNI_PATH=/opt/cni/bin $OURS | grep 'no such file or directory'",
        findings: &["lock"],
        add: Add::Fails,
    }
    lock_file_is_a_link_to_a_file_that_is_still_missing {
        broken_by: "cd /run/azure-vnet; rm azure-vnet-ipam.lock; ln -s ../other.lock azure-vnet-ipam.lock",
    }
    lock_file_is_a_link_into_a_read_only_folder {
        broken_by: "mkdir /run/other; mount -t tmpfs -o ro none /run/other; ln -sf /run/other/ipam.lock /run/azure-vnet/azure-vnet-ipam.lock",
        findings: &["lock"],
        add: Add::Fails,
    }
    lock_file_is_a_link_through_a_file {
        broken_by: "touch /run/file; ln -sf /run/file/ipam.lock /run/azure-vnet/azure-vnet-ipam.lock",
        findings: &["lock"],
        add: Add::Fails,
    }
    lock_file_is_a_link_to_itself {
        broken_by: "ln -sf azure-vnet-ipam.lock /run/azure-vnet/azure-vnet-ipam.lock",
        findings: &["lock"],
        add: Add::Fails,
    }
    lock_file_is_a_link_that_only_the_node_can_follow {
        broken_by: "mkdir -p /run/locks/deep; ln -sf /run/locks/deep/ipam.lock /run/azure-vnet/azure-vnet-ipam.lock; ln -sfn real/$PPID /proc/1; \
            unshare -m --propagation private sh -c \"mount -t tmpfs none /run/locks; $OURS check\" | grep 'Nothing is wrong; new pods get addresses' && ln -sfn self /proc/1",
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
}
