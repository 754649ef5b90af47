//! The texts that `--help` and the man page print below the options. Each one stands here as it is printed.
//!
//! A block whose first line ends in a colon is a section. No line is longer than 80 columns, and no indented one longer than
//! 70, as the man page indents it further.
//!
//! `{name}` stands for the name of the program, of which there are two.

/// The end of a text that has no exit statuses of its own.
const STATUSES: &str = r"
Exit status:
  0  success
  2  the command failed: stderr says why
";

/// Completes a text, with the name of the program.
pub fn complete(text: &str, name: &str) -> String {
    let statuses = if text.contains("Exit status:") {
        ""
    } else {
        STATUSES
    };
    text.replace("{name}", name) + statuses
}

/// What the program is.
pub const PROGRAM: &str = r"{name} allocates the IP addresses of pods on an Azure node. It is a CNI
IPAM plugin: a container runtime runs it, through a main plugin, with
CNI_COMMAND (ADD, DEL, CHECK, GC, STATUS or VERSION) and the other CNI variables
in the environment and the network configuration on stdin.

Installed or linked as azure-vnet-ipamv6, it keeps a separate state with IPv6
addresses, for main plugins that call one IPAM plugin per address family.

Without CNI_COMMAND it runs the commands of an operator, which show and repair
the state. `{name} COMMAND --help` describes a command in detail.
";

/// What all commands have in common.
pub const REFERENCE: &str = r"
Environment:
  AZURE_VNET_IPAM_ROOT=DIR
      find every file below DIR, except those of file: URLs; for
      experiments
  AZURE_VNET_IPAM_QUERY_URL=URL
      query URL (http: or file:) instead of ipam.queryUrl or the wire
      server
  AZURE_VNET_IPAM_KUBECONFIG=FILE
      reach the Kubernetes API with FILE instead of ipam.kubeconfig or
      the kubelet's kubeconfig
  NO_COLOR
      if set and not empty: no colours
  COLUMNS
      the width of the output, instead of that of the terminal

Files:
  /var/run/{name}.json
      the state
  /var/run/azure-vnet/
      locks and the last operations
  /var/log/{name}.log
      the log
  /etc/azure-vnet-ipam.json
      settings: defaults for the key ipam of network configurations
  /etc/cni/net.d/
      the network configurations of the node
  /var/lib/kubelet/kubeconfig
      access to the Kubernetes API, whose node object lists addresses

Examples:
  # what is wrong on this node, and what to do about it
  sudo {name} check
  # print the CNI versions that the plugin supports
  CNI_COMMAND=VERSION {name} </dev/null

Exit status:
  0  success, and nothing is wrong
  1  something is wrong or was refused; for a CNI call: it failed, and
     the error is on stdout
  2  usage error, or the command failed: stderr says why
";

/// `show`.
pub const SHOW: &str = r"Without SUBJECT, or with a subnet: shows each pool with its interface, its
gateway, and how many of its addresses are held, held in another pool, leaked,
in cooldown after their release, withheld, on the host, excluded and free. The
percentage counts the held ones. Then lists every holder: address, pod,
container, network, interface and age. If all holders have the same network and
interface, the heading has these instead. Several pools have totals at the end,
which count an address in two pools once.

With an address, a container ID or its first characters, or a pod as
namespace/name, name, or a part of these: prints what the state records, what
the node shows, what happened last, and what the plugin would do now.

An address is leaked if it is held, but nothing on the node shows its holder.
`show` and `check` judge that by the same scan of the node. Only root can see
all of the node.

In the bar, # is held, ! is leaked, ~ in cooldown, . free, and x not available:
excluded, on the host, withheld, or held in another pool. An age that begins
with > belongs to a record that the original plugin wrote. Such a record is at
least that old.

--pod lists only the pods with this NAME, with or without namespace. If there
are none, it lists those whose namespace/name contains NAME. --sort age lists
the oldest first. Long names are cut on a terminal, but not with -o wide.

Takes no lock, changes nothing and queries no source.

Examples:
  # everything
  sudo {name} show
  # one pool
  sudo {name} show 10.224.0.0/16
  # an address, a pod, a container
  sudo {name} show 10.224.0.9
  sudo {name} show default/web-1
  sudo {name} show 3f2a91c04d7e
  # the pods of a namespace, the oldest first
  sudo {name} show --namespace kube-system --sort age
  # who leaked an address
  sudo {name} show --leaked
  # for programs
  sudo {name} show --json | jq '.pools[].free'

Exit status:
  0  success; the address, container or pod is known
  1  nothing is known about it
  2  the command failed: stderr says why
";

/// `events`.
pub const EVENTS: &str = r"Shows the last 256 operations since the node started, newest last: ADD, DEL,
CHECK, GC, reclaim and release, with their result, their duration, the address
and the pod. Times are local, but those in JSON are UTC.

--since takes a duration before now, such as 90s, 15m, 2h30m or 1d, or a time:
21:00 for today, '2026-11-20 21:00', or 2026-11-20T21:00:00Z. --pod takes a
pod's name or a part of it, as in `show`. It also shows the operations that
freed an address of such a pod. --tail applies last.

Takes no lock and changes nothing.

Examples:
  # the last ten
  sudo {name} events --tail 10
  # what happened to a pod in the last hour
  sudo {name} events --since 1h --pod default/web-1
  # who had an address
  sudo {name} events --address 10.224.0.9
  # failures, for programs
  sudo {name} events --json | jq '.[] | select(.code != 0)'
";

/// `check`.
pub const CHECK: &str = r"Compares the state with every network namespace of the node, the routes of the
host, the records of the runtime and of azure-vnet, and the source. Examines the
disk, the lock, the log, the settings file, the conflists in /etc/cni/net.d, the
executables that they name, and conflists of other plugins with our subnets.
Prints each problem with its evidence, a remedy and commands, in the order in
which they must run. Also says whether an ADD would succeed now, for each
network configuration that names the plugin.

With --all, also prints what was examined and found in order, and leaves nothing
out of long lists. With --severity, only findings that are at least as bad are
printed and count for the exit status. With --quiet, prints nothing and only
sets the exit status. --dir names the folder of the plugins, if the runtime does
not use /opt/cni/bin.

To see whether a new state could be saved, creates, renames and removes an empty
file beside the state. Takes no lock, and changes nothing else.

Examples:
  # find problems
  sudo {name} check
  # what was examined, too
  sudo {name} check --all
  # for cron; with --severity error, it would ignore full pools
  sudo {name} check --quiet || echo 'run check'
  # for a monitoring agent
  sudo {name} check --json >/tmp/findings.json \
      || echo 'see the findings'

Exit status:
  0  nothing is wrong, or there are only notes
  1  there are warnings or errors; with --severity, findings as bad
  2  not everything could be examined, and there are no such findings
";

/// `reclaim`.
pub const RECLAIM: &str = r"Judges every holder by the rules that an ADD applies to an exhausted pool. A
holder is dead if its record is older than 15 minutes and the node shows no sign
of it. Two scans must find that, at least 60 seconds apart, unless the record is
older than an hour. For a sandbox that the runtime has replaced, one scan is
enough at any age. A record of an earlier boot is freed if a complete scan does
not show its address.

Without --yes, only prints what would be freed and why. With --yes, takes the
lock, frees the dead holders, and marks those that need a second scan. Holders
that change during the command are left alone. Freed addresses have a cooldown,
as released ones have. With --pod, only the holders of this pod are judged. POD
is the whole name, with or without namespace.

Examples:
  # what would be freed, and why
  sudo {name} reclaim
  # free it
  sudo {name} reclaim --yes
  # what the dead sandboxes of one pod hold
  sudo {name} reclaim --pod default/web-1 --yes
";

/// `release`.
pub const RELEASE: &str = r"Releases ADDRESS if ID names its holder. Without --force, refuses if the node
shows any sign of the holder, or if not everything could be examined. If a pod
gets an address that is still in use, both pods break. The log and the events
record who released the address, and from which terminal.

ID is the container ID or at least its first 4 characters, if no other holder
has them, or `unknown` for a record without a holder. `show` and `check` print
it.

With --pod, releases all addresses of this pod, or none. POD is the whole name,
with or without namespace. Fails if several sandboxes of the pod hold addresses,
or several namespaces have such a pod.

Examples:
  # release an address by its holder
  sudo {name} release 10.224.0.9 --container 3f2a91c04d7e
  # all addresses of a pod
  sudo {name} release --pod default/web-1

Exit status:
  0  the address is released, or all those of the pod
  1  it is not: another container holds it, it is free, or its holder
     shows signs of life
  2  the command failed: stderr says why
";

/// `export`.
pub const EXPORT: &str = r"Collects the state, the signs of life on the node, all that `check --all` finds,
the last events and the versions. Includes only the parts of configurations that
concern this plugin, and no credentials.

Examples:
  # a file to attach to a support case
  sudo {name} export --output /tmp/azure-vnet-ipam.json
";

/// `metrics`.
pub const METRICS: &str = r"Prints the pools, their usage, the age of the source's answer, and the counts
and durations of operations in the Prometheus text format. --output FILE is for
the textfile collector of the node exporter, which reads files that end in
.prom. FILE is replaced atomically.

Takes no lock and queries no source.

Examples:
  # print the metrics
  sudo {name} metrics
  # for a timer or cron
  sudo {name} metrics \
      --output /var/lib/prometheus/node-exporter/azure-vnet-ipam.prom
";

/// `node-loop`.
pub const NODE_LOOP: &str = r"Runs on every node of a cluster until it is stopped, as the container of a
DaemonSet or as a service. Allocation does not depend on it, so it may be
stopped at any time.

In every round, writes the metrics to FILE for the textfile collector of the
node exporter, and compares the installed plugin with this executable, as
`install --verify` does. After every --check-interval, runs `check` and adds its
result to the metrics. Intervals are between 1 second and a day.

Leaves out each plugin of --names that the node does not use.

With --is-alive, only checks whether a loop has written FILE within the last ten
intervals. Repeat the --output and the --interval of that loop.

With --reinstall, runs `install` if the plugin was replaced. A file that
`install` would replace only with --force stays.

With --reclaim, does what `reclaim --yes` does before each check. Without it,
dead holders keep their addresses until an ADD finds the pool exhausted.

A step that fails is tried again in the next round. Its error is reported on
stderr once, until it changes. SIGTERM and SIGINT end the loop at once.

Examples:
  # with the default intervals, as in the DaemonSet
  {name} node-loop \
      --output /var/lib/prometheus/node-exporter/azure-vnet-ipam.prom
  # is it alive?
  {name} node-loop --is-alive \
      --output /var/lib/prometheus/node-exporter/azure-vnet-ipam.prom

Exit status:
  0  stopped by SIGTERM or SIGINT, or alive
  1  not alive
  2  usage error, or FILE cannot be read
";

/// `install`.
pub const INSTALL: &str = r"Puts the running executable in the place of the plugin in one step, with pods
running and no restart. The new file is tried first: if it cannot run in DIR,
nothing is replaced.

Another plugin at that place is kept beside it as NAME.orig, which replaces an
older NAME.orig. A file that does not answer VERSION as a CNI plugin does is
replaced only with --force, and is not kept. Executables of this program are not
kept either. A symbolic link is replaced, not the file that it leads to.

With --verify, only compares the installed file with this executable, and says
what is there instead.

Examples:
  # install it, and say what was there before
  sudo ./{name} install
  # the same file for IPv6 addresses
  sudo ./{name} install --name azure-vnet-ipamv6
  # is it still there?
  ./{name} install --verify

Exit status:
  0  it is installed; with --verify: it is this executable
  1  refused; with --verify: it is another file, or missing
  2  the command failed: stderr says why
";

/// `uninstall`.
pub const UNINSTALL: &str = r"Brings the original back from NAME.orig in one step, with pods running. Does
this for both names, unless --name names one.

Refuses if no kept original answers VERSION as a CNI plugin does, because pods
whose configuration names the plugin would not start. With --force, removes the
plugin then. Without --force, also refuses to replace a file of another program
that does not answer, and to let the original start while the state is damaged,
or while only the backup has it.

State, log and settings stay for the original.

Examples:
  # the way back
  sudo {name} uninstall

Exit status:
  0  the original is back, the plugin was removed with --force, or this program
     was not installed
  1  refused, or done for only one of the two names
  2  the command failed: stderr says why
";

/// `version`.
pub const VERSION: &str = r"Prints the version, the commit that the executable was built from, its target
and its features. The source ipv6NodeIpam needs the feature tls. A build without
a repository has the commit `unknown`.

Examples:
  # which build is this?
  {name} version
  # for programs
  {name} version -o json | jq -r .commit
";

#[cfg(test)]
mod tests {
    use crate::cni::NAME;
    use crate::ops::cli::command;

    /// The name of each command with its text below the options.
    fn texts() -> Vec<(String, String)> {
        let program = command(NAME);
        let texts = program.get_subcommands().chain([&program]).map(|command| {
            let text = command.get_after_help().unwrap();
            (command.get_name().to_owned(), text.to_string())
        });
        texts.collect()
    }

    #[test]
    fn every_text_has_examples_and_exit_statuses() {
        for (name, text) in texts() {
            let (_, sections) = text.split_once("\n\nExamples:\n  # ").expect(&name);
            let (examples, statuses) = sections.split_once("\n\nExit status:\n").expect(&name);
            assert!(statuses.starts_with("  0  "), "{name}");
            if name != NAME {
                let call = format!("{NAME} {name}");
                assert!(examples.contains(&call), "{name}");
            }
        }
    }
}
