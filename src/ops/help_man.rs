//! Texts that only the manual page prints, so that an operator can work without network.

/// Every file that the program writes.
pub const FILES: &str = r"
Files that the program writes:
Under the name azure-vnet-ipamv6 they have that name instead.

  /var/run/azure-vnet-ipam.json
      the state, mode 0600. Removable: any time: it is rebuilt from
      the node
  /var/run/azure-vnet-ipam.json.new
      a new state being written; a killed call may leave one, the next
      call removes it. Removable: any time
  /var/run/azure-vnet-ipam.json.corrupt-*
      states that could not be read, three at most. Removable: after a
      look
  /var/run/azure-vnet/azure-vnet-ipam.lock
      flock on the state, shared with the original; holds the last
      holder's process ID. Removable: never while calls of the
      original run, which do not notice; otherwise any time, as a call
      that held it decides again
  /var/run/azure-vnet/azure-vnet-ipam.fetch
      lock for asking the source; holds the times of the last
      attempts, and the interfaces that the last answer was about.
      Removable: any time
  /var/run/azure-vnet/azure-vnet-ipam.rebuild
      exists from when a state could not be read until the next ADD
      rebuilt it. Removable: never while pods run
  /var/run/azure-vnet/azure-vnet-ipam.used
      the number of the last grant in this boot: tells a lost or old
      state from a fresh node. Removable: never while pods run
  /var/run/azure-vnet/azure-vnet-ipam.journal
      the journal of grants: all grants and releases of this boot,
      from which a lost state is rebuilt. Removable: never while pods
      run
  /var/run/azure-vnet/azure-vnet-ipam.other
      when another program, such as the original, last used the state.
      Removable: never while pods run
  /var/run/.azure-vnet-ipam.boot
      the ID of the last boot in which an address was given: tells
      when the folder above was removed. Removable: never while pods
      run
  /var/run/azure-vnet/azure-vnet-ipam.events, .events.1
      the last operations, and counts of all before them; 256 KiB
      each. Removable: any time; counts start again
  /var/log/azure-vnet-ipam.log, .1 to .7
      the log, rotated at 5 MiB; the first 900 and the last 100 lines
      of a call. Removable: any time
";

/// The shapes of all JSON documents.
pub const JSON: &str = r"
JSON:
export always prints JSON; other commands do with -o json or --json. The shapes
are stable: keys are only ever added. A ? marks what may be null, brackets mark
a list, and what is not marked otherwise is a string. Times are in UTC.

  show
      time; state: a condition; source: name?, answeredSeconds
      number?, failedSeconds number?; pools [space, subnet, interface,
      gateway?, the numbers size, held, heldPercent, suspect, resting,
      wired, excluded, free, and holders [holder]]
  events
      a list of events, the newest last; show --events is the same
  check
      time, summary, findings [kind, severity: error, warning or note,
      subject, text, cause: what several findings have in common, or
      empty, evidence [string], remedy, commands [string], holder: a
      holder?], notSeen [string], compared number: holders, adds
      [conflist?, network, succeeds bool, addresses [string], code?,
      msg?, details?, waits bool: it succeeds by itself later]
  explain
      time, subject, state: a condition, addresses [address, pool?,
      use, holder: a holder?, shown [string], alsoUsedBy [pod?,
      container?, place?], missing [string], verdict?, reasons
      [string], next [string]], entries [string], earlyDels [string],
      events [event], unknown: why it is not known who holds what?
  reclaim
      time, done boolean, freed [holder: a holder, reasons [string]],
      freedOfAnotherBoot [string], kept [as freed], alive number,
      young number
  release
      time, address, released boolean, refused?, holder: a holder?,
      signsOfLife [string]
  doctor
      time, version, summary, lines [line]
  install
      time, path, changed boolean, refused?, found: a file, version,
      sha256, saved?, files [string], warnings [string]
  install --verify
      time, path, same boolean, found: a file, version, sha256
  uninstall
      time, plugins [path, changed boolean, refused?, found: a file,
      restored: a file?], files [string], warnings [string]
  a file
      kind (nothing, ours, original, foreign or not-a-file), version?,
      sha256?, link?, executable boolean
  version
      program, version, commit, target, features [string]
  export
      time; versions: program, stateFormat number, cni [string],
      kernel; bootId?; state: the file as it is, or as a string where
      it is not JSON?; condition: a condition; source as in show;
      check as above; doctor [line]; evidence: incomplete?,
      networkNamespaces number, configured [address, places [string]],
      routes [string], lists [name, unreadable?, entries number,
      standing number, doubtful [string]]; configuration [file,
      error?, name?, cniVersion?, plugins [type, ipam object?]];
      events [event]; totals: operations [verb, code number, count
      number], reclaimed number, refreshFailures number, durations
      [verb, buckets [number], microseconds number], lockWaits number,
      lockMicroseconds number; log [string]
  a holder
      address, pool, pod?, container?, network?, interface?, netns?,
      since, ageSeconds number, firstSeen boolean, suspectSeconds
      number?, listed boolean
  a condition
      path, condition (ok, fresh, lost, corrupt, newer-format or
      doubtful), detail?, quarantineSeconds number?
  an event
      time, verb, code number, microseconds number; and where there is
      one: network, container, interface, pod, addresses [string],
      freed [address?, container and pod where they are known]: taken
      from these holders, lockMicroseconds number, msg, reclaimed
      number, refreshFailed boolean, by
  a line
      status (ok, note, warning or wrong), subject: the kind of
      finding, text, remedy?, about: the address, file or server, or
      empty, evidence [string], commands [string]

use is held, resting, free, wired, excluded, unlisted, elsewhere or unknown;
verdict is alive, dead, suspect or undecided; kind is one of the kinds that
check and doctor print. Texts are for people; another version may word them
differently.
";

/// Errors come before this: what to do on a node, step by step.
pub const TASKS: &str = r"
Tasks:
  # report problems and their remedies
  sudo azure-vnet-ipam check
  # a pod has no network, or a wrong address
  sudo azure-vnet-ipam explain default/web-1
  # no addresses are left: free those of dead pods
  sudo azure-vnet-ipam reclaim --yes
  # is this plugin still installed, after an upgrade of the node?
  ./azure-vnet-ipam install --verify
  # back to the original plugin
  sudo azure-vnet-ipam uninstall
  # a document for a bug report
  sudo azure-vnet-ipam export --output /tmp/azure-vnet-ipam.json
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_fits_the_man_page() {
        for text in [FILES, JSON, TASKS] {
            assert!(text.is_ascii() && !text.contains("\n\n\n"), "{text}");
            for line in text.lines() {
                let columns = if line.starts_with(' ') { 70 } else { 80 };
                assert!(line.len() <= columns, "{line}");
                assert_eq!(line, line.trim_end());
            }
        }
    }
}
