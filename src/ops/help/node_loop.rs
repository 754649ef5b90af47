//! The help text of `node-loop`.

/// `node-loop`.
pub const NODE_LOOP: &str = r"Runs on every node of a cluster until it is stopped, as the container of a
DaemonSet or as a service. Allocation does not depend on it: it serves nobody,
allocates nothing, and may be stopped at any time.

In every round, writes the metrics to FILE for the textfile collector of the
node exporter, and compares the installed plugin with this executable, as
`install --verify` does. After every --check-interval, runs `check` and adds its
result to the metrics. Intervals are between 1 second and a day.

With --reinstall, runs `install` where the plugin was replaced. A file that
`install` would replace only with --force stays.

A step that fails is reported on stderr, once until it changes, and is tried
again in the next round. SIGTERM and SIGINT end the loop at once.

Examples:
  # as the DaemonSet runs it
  {name} node-loop \
      --output /var/lib/prometheus/node-exporter/azure-vnet-ipam.prom

Exit status:
  0  stopped by SIGTERM or SIGINT
  2  usage error
";
