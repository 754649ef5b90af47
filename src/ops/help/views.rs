//! The texts of the commands that show what the plugin recorded.

/// `show`.
pub const SHOW: &str = r"Shows each pool, or only POOL, with its interface, its gateway, and how many of
its addresses are held, suspected leaks, resting after their release, excluded
and free; the percentage is that of the held ones. Then lists every holder:
address, pod, container, network, interface and age. Where all holders have the
same network and interface, these are in the heading of the pool instead.

In the bar, # is held, ! is held without any sign of life at the last check,
~ resting, x excluded (by the host or by the configuration), and . free. An age
that begins with > belongs to a record that the original plugin wrote. Such a
record is at least that old.

--pod lists only the holders whose pod begins with NAME, with or without its
namespace. --suspect lists only those of which the last reclaim, or an ADD that
found the pool empty, saw no sign of life on the node. The state keeps that mark
until the holder is seen alive or found dead again. `check` takes a new look.

With --events, shows what `events` shows.

Takes no lock, changes nothing and queries no source.

Examples:
  # everything
  {name} show
  # one pool
  {name} show 10.224.0.0/16
  # the pods of a namespace
  {name} show --pod kube-system/
  # who may have leaked an address
  {name} show --suspect
  # for programs
  {name} show --json | jq '.pools[].free'

Exit status:
  0  success
  2  the command failed: stderr says why
";

/// `events`.
pub const EVENTS: &str = r"Shows the last 256 operations since the node started, newest last: ADD, DEL,
CHECK, GC, reclaim and release, with their result, their duration, the address
and the pod. Times are local, but those in JSON are UTC.

--since takes a duration before now, such as 90s, 15m, 2h30m or 1d, or a time:
21:00 for today, '2026-11-20 21:00', or 2026-11-20T21:00:00Z. --pod takes the
beginning of a pod's name, with or without its namespace, and also shows the
operations that took an address from such a pod. --tail applies last.

Takes no lock and changes nothing.

Examples:
  # the last ten
  {name} events --tail 10
  # what happened to a pod in the last hour
  {name} events --since 1h --pod default/web-1
  # who had an address
  {name} events --address 10.224.0.9
  # failures, for programs
  {name} events --json | jq '.[] | select(.code != 0)'

Exit status:
  0  success
  2  the command failed: stderr says why
";
