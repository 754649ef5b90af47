//! The command line of an operator: commands, their arguments and their help.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::slice;

use clap::builder::TypedValueParser;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use super::finding::Severity;
use super::outcome::OutputFormat;
use super::{help, version};
use crate::cni::{NAME, NAME_V6};

/// CNI IPAM plugin for Azure nodes
#[derive(Debug, Parser)]
#[command(
    name = NAME,
    version = version::LINE,
    after_help = [help::PROGRAM, help::REFERENCE].concat(),
    subcommand_value_name = "COMMAND",
    // The last one of a repeated option applies.
    args_override_self = true
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// A command of an operator.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the pools and their holders, or all about one of them
    #[command(after_help = help::SHOW)]
    Show(ShowArgs),
    /// Show the last operations
    #[command(after_help = help::EVENTS)]
    Events(EventsArgs),
    /// Compare the state with the node, and report problems
    #[command(after_help = help::CHECK)]
    Check(CheckArgs),
    /// Free the addresses of dead holders
    #[command(after_help = help::RECLAIM)]
    Reclaim(ReclaimArgs),
    /// Release one address by hand, or those of one pod
    #[command(after_help = help::RELEASE)]
    Release(ReleaseArgs),
    /// Print one JSON document for a support case
    #[command(after_help = help::EXPORT)]
    Export(OutputArgs),
    /// Print metrics for Prometheus
    #[command(after_help = help::METRICS)]
    Metrics(OutputArgs),
    /// Write metrics and watch the installation until stopped
    #[command(after_help = help::NODE_LOOP)]
    NodeLoop(NodeLoopArgs),
    /// Put this executable in the place of the original plugin
    #[command(after_help = help::INSTALL)]
    Install(InstallArgs),
    /// Bring the original plugin back
    #[command(after_help = help::UNINSTALL)]
    Uninstall(UninstallArgs),
    /// Print the version, commit, target and features
    #[command(after_help = help::VERSION)]
    Version(OutputFormat),
}

impl Command {
    /// The folder of the plugins that was typed.
    pub fn plugin_folder(&self) -> Option<&Path> {
        let folder = match self {
            Command::Check(args) => &args.folder,
            Command::NodeLoop(args) => &args.folder,
            Command::Install(args) => &args.folder,
            Command::Uninstall(args) => &args.folder,
            _ => return None,
        };
        folder.dir.as_deref()
    }
}

/// The arguments of `show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// A pool, an address, a container or a pod
    pub subject: Option<String>,
    #[command(flatten)]
    pub format: OutputFormat,
    /// Show only pods of this name or part of it
    #[arg(long, value_name = "NAME")]
    pub pod: Option<String>,
    /// Show only pods of this namespace
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Show only the holders that leaked their address
    #[arg(long)]
    pub leaked: bool,
    /// Sort the holders by address or age
    #[arg(
        long,
        value_name = "KEY",
        default_value = "address",
        hide_possible_values = true
    )]
    pub sort: Order,
    /// Show it again every 2 seconds until interrupted
    #[arg(long)]
    pub watch: bool,
}

impl ShowArgs {
    /// Whether an option chooses or orders the holders of pools.
    pub fn limits_holders(&self) -> bool {
        let names = self.pod.is_some() || self.namespace.is_some();
        names || self.leaked || self.sort != Order::default()
    }
}

/// An order of holders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// By address.
    #[default]
    #[value(help = None)]
    Address,
    /// The oldest first.
    #[value(help = None)]
    Age,
}

/// The arguments of `events`.
#[derive(Clone, Debug, Default, Args)]
pub struct EventsArgs {
    /// Show only the last N
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
    /// Show only those since a time, or within a duration
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Show only those of pods with this name or part of it
    #[arg(long, value_name = "NAME")]
    pub pod: Option<String>,
    /// Show only those on this address
    #[arg(long, value_name = "IP")]
    pub address: Option<String>,
    #[command(flatten)]
    pub format: OutputFormat,
}

/// The arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Also print what is in order, and every detail
    #[arg(long)]
    pub all: bool,
    /// Only findings of LEVEL or worse (error, warning, note)
    #[arg(long, value_name = "LEVEL", hide_possible_values = true)]
    pub severity: Option<Severity>,
    /// Print nothing; only set the exit status
    #[arg(long, conflicts_with = "all")]
    pub quiet: bool,
    #[command(flatten)]
    pub folder: FolderArgs,
    #[command(flatten)]
    pub format: OutputFormat,
}

/// The arguments of `reclaim`.
#[derive(Debug, Args)]
pub struct ReclaimArgs {
    /// Free the addresses instead of printing what would be freed
    #[arg(long)]
    pub yes: bool,
    /// Judge only the holders of this pod
    #[arg(long, value_name = "POD")]
    pub pod: Option<String>,
    #[command(flatten)]
    pub format: OutputFormat,
}

/// The arguments of `release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// The address to release
    #[arg(required_unless_present = "pod")]
    pub address: Option<String>,
    /// The container that holds it
    #[arg(long, value_name = "ID")]
    pub container: Option<String>,
    /// Release all addresses of this pod instead
    #[arg(long, value_name = "POD", conflicts_with_all = ["address", "container"])]
    pub pod: Option<String>,
    /// Release it in spite of signs of life
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub format: OutputFormat,
}

/// Where a command looks for plugins.
#[derive(Debug, Args)]
pub struct FolderArgs {
    /// Folder of the plugins [default: /opt/cni/bin]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// The arguments of a command that writes a document.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Replace FILE atomically instead of writing to stdout
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// The arguments of `install`.
#[derive(Debug, Args)]
pub struct InstallArgs {
    #[command(flatten)]
    pub folder: FolderArgs,
    /// azure-vnet-ipam or azure-vnet-ipamv6 [default: its own]
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    pub name: Option<PluginName>,
    /// Replace a file that does not answer as a CNI plugin
    #[arg(long)]
    pub force: bool,
    /// Only compare the installed file with this executable
    #[arg(long, conflicts_with = "force")]
    pub verify: bool,
    #[command(flatten)]
    pub format: OutputFormat,
}

/// The arguments of `uninstall`.
#[derive(Debug, Args)]
pub struct UninstallArgs {
    #[command(flatten)]
    pub folder: FolderArgs,
    /// azure-vnet-ipam or azure-vnet-ipamv6 [default: both]
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    pub name: Option<PluginName>,
    /// Remove it without an original, or replace a broken file
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub format: OutputFormat,
}

/// A name under which runtimes and main plugins look for the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PluginName {
    /// The plugin.
    #[value(name = NAME, help = None)]
    Ipam,
    /// The plugin for IPv6 addresses.
    #[value(name = NAME_V6, help = None)]
    Ipamv6,
}

impl PluginName {
    /// Returns the name of the file.
    pub fn as_str(self) -> &'static str {
        match self {
            PluginName::Ipam => NAME,
            PluginName::Ipamv6 => NAME_V6,
        }
    }
}

/// The arguments of `node-loop`.
#[derive(Debug, Args)]
pub struct NodeLoopArgs {
    /// Replace FILE with the metrics
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// Time between two rounds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = seconds())]
    pub interval: u64,
    /// Time between two checks
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = seconds())]
    pub check_interval: u64,
    #[command(flatten)]
    pub folder: FolderArgs,
    /// Plugins to watch, as A,B [default: its own]
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    pub names: Vec<PluginName>,
    /// Install the plugin again if it was replaced
    #[arg(long)]
    pub reinstall: bool,
    /// Free the addresses of dead holders
    #[arg(long)]
    pub reclaim: bool,
    /// Only check whether a loop writes FILE
    #[arg(long)]
    pub is_alive: bool,
}

/// A time in seconds, at most a day.
fn seconds() -> impl TypedValueParser<Value = u64> {
    clap::value_parser!(u64).range(1..=86_400)
}

/// Builds the definition of the command line, with the program's name in its help texts.
pub fn command(program: &str) -> clap::Command {
    let add_name = |command: clap::Command| {
        let text = command.get_after_help().map(ToString::to_string);
        command.after_help(help::complete(&text.unwrap_or_default(), program))
    };
    add_name(Cli::command()).mut_subcommands(add_name)
}

/// Parses the arguments of the program, which messages call `program`. Returns the command and its name.
///
/// # Errors
/// A usage error, or a request for help or the version. It holds the text to print.
pub fn parse(program: &'static str, args: &[OsString]) -> Result<(Command, String), clap::Error> {
    let args = match args {
        // The command `help`, which is clap's, has no options.
        [help, option] if help == "help" && (option == "--help" || option == "-h") => {
            slice::from_ref(help)
        }
        _ => args,
    };
    let parser = command(program).no_binary_name(true);
    let parser = parser.name(program).display_name(program).bin_name(program);
    let matches = parser.try_get_matches_from(args)?;
    let name = matches.subcommand_name().unwrap_or_default().to_owned();
    Ok((Cli::from_arg_matches(&matches)?.command, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Command, clap::Error> {
        let words: Vec<_> = line.split(' ').map(OsString::from).collect();
        parse(NAME, &words).map(|(command, _)| command)
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn arguments_may_come_in_any_order() {
        for line in [
            "release 10.1.0.5 --container c1 --force",
            "release --force --container=c1 10.1.0.5",
            "release --container c2 --container c1 10.1.0.5 --force --force",
        ] {
            let Command::Release(args) = parse_line(line).unwrap() else {
                panic!("{line}");
            };
            assert_eq!(args.address.as_deref(), Some("10.1.0.5"));
            assert_eq!(args.container.as_deref(), Some("c1"), "{line}");
            assert!(args.force && !args.format.is_json());
        }
    }

    #[test]
    fn last_output_format_applies() {
        for (options, expected) in [
            ("", false),
            (" --json", true),
            (" -o json", true),
            (" -ojson", true),
            (" -o text", false),
            (" --json -o text", false),
            (" -o text --json", true),
            (" -o json --json", true),
            (" -o json -o text", false),
            (" --json --json", true),
        ] {
            let Command::Check(args) = parse_line(&format!("check{options}")).unwrap() else {
                panic!("{options}");
            };
            assert_eq!(args.format.is_json(), expected, "{options}");
        }
    }
}
