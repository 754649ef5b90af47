//! Disks that are full or read-only.

use super::broken_nodes;
use crate::broken_nodes::Add;

broken_nodes! {
    run_is_full {
        screen: true,
        broken_by: "used=$(df -k --output=used /run | tail -n 1); mount -o remount,size=$((used + 64))k /run; head -c 10m /dev/zero >/run/filler 2>/dev/null || true",
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
        broken_by: "mount -t tmpfs -o size=64k tmpfs /run/azure-vnet; head -c 1m /dev/zero >/run/azure-vnet/filler 2>/dev/null || $OURS events 2>&1 | grep 'cannot be recorded'",
        findings: &["log"],
        by_hand: "rm /run/azure-vnet/filler",
    }
    the_lock_folder_has_no_inodes {
        broken_by: "mount -t tmpfs -o nr_inodes=5 tmpfs /run/azure-vnet; touch /run/azure-vnet/filler-{1..9} 2>/dev/null || true",
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
        broken_by: "mount -o remount,size=64k /var/log; head -c 1m /dev/zero >/var/log/filler 2>/dev/null || true",
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
}
