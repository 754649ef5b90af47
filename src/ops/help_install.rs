//! The help texts of `install`, `uninstall` and `errors`, as those in [`help`](super::help).

/// `install`.
pub const INSTALL: &str = r"Puts the running executable in the place of the plugin in one step, with pods
running and no restart. The new file is tried first: if it cannot run in DIR,
nothing is replaced.

Another plugin that stands there is kept beside it as NAME.orig, in place of an
older one. So NAME.orig is the newest working plugin. What does not answer
VERSION as a CNI plugin does is never kept, and is replaced only with --force.
Executables of this program are not kept either. A symbolic link is replaced
itself, not what it leads to.

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
  1  refused; with --verify: it is another one
  2  the command failed: stderr says why
";

/// `uninstall`.
pub const UNINSTALL: &str = r"Brings the original back in one step, with pods running: NAME.orig. Does this
for both names, unless --name names one.

Refuses where no original is kept that answers VERSION as a CNI plugin does, as
pods whose configuration names the plugin would not start. With --force, removes
the plugin then. Refuses, too, to replace a file of another program that does
not answer, unless --force is given.

State, log and settings stay, so that the original goes on with them.

Examples:
  # the way back
  sudo {name} uninstall

Exit status:
  0  the original is back, or this program was not installed
  1  refused, or only one of both names could be done
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
