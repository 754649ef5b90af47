//! The help texts of `install`, `uninstall` and `errors`, as those in [`help`](super::help).

/// `install`.
pub const INSTALL: &str = r"Puts the running executable in the place of the plugin in one step, with pods
running and no restart. The new file is tried first: if it cannot run in DIR,
nothing is replaced.

The original plugin, or with --force any other file, is kept beside it as
NAME.orig. When a newer one is found there later, as after a node upgrade, that
becomes NAME.orig and the former one NAME.orig.1. Executables of this program
are never kept. A symbolic link is replaced itself, not what it leads to.

With --verify, compares the SHA-256 of this executable and of the installed one,
and says what is there instead.

Examples:
  # install it, and say what was there before
  sudo ./{name} install
  # the same file for IPv6 addresses
  sudo ./{name} install --name azure-vnet-ipamv6
  # is it still there?
  ./{name} install --verify

Exit status:
  0  it is installed; with --verify: it is this executable
  1  refused, or there were warnings; with --verify: it is another one
  2  the command failed: stderr says why
";

/// `uninstall`.
pub const UNINSTALL: &str = r"Brings the newest original back in one step, with pods running: NAME.orig, or
NAME.orig.1 if there is no other. Does this for both names, unless --name names
one.

Refuses to leave nothing behind where no original is kept, as pods whose
configuration names the plugin would not start. With --force, removes the
plugin.

State, log and settings stay, so that the original goes on with them.

Examples:
  # the way back
  sudo {name} uninstall

Exit status:
  0  the original is back, or this program was not installed
  1  refused, or there were warnings
  2  the command failed: stderr says why
";

/// `errors`, below the table.
pub const ERRORS: &str = r"
Examples:
  # all errors, and what to do about each
  {name} errors
  # one of them
  {name} errors | grep -A 4 'No available addresses'

Exit status:
  0  success
  2  the command failed: stderr says why
";
