//! The arguments of the commands that put the plugin on a node and keep it there.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum, ValueHint};

use super::outcome::OutputFormat;
use crate::cni::{NAME, NAME_V6};

/// The arguments of `install`.
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// The folder of the plugins [default: /opt/cni/bin]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
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
    /// The folder of the plugins [default: /opt/cni/bin]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// azure-vnet-ipam or azure-vnet-ipamv6 [default: both]
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    pub name: Option<PluginName>,
    /// Remove it, or replace a broken file, all the same
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
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Time between two rounds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = seconds())]
    pub interval: u64,
    /// Time between two checks
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = seconds())]
    pub check_interval: u64,
    /// Their folder [default: /opt/cni/bin]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Watched plugins, as A,B [default: its own]
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    pub names: Vec<PluginName>,
    /// Install again what was replaced
    #[arg(long)]
    pub reinstall: bool,
}

/// A time in seconds, at most a day.
fn seconds() -> impl TypedValueParser<Value = u64> {
    clap::value_parser!(u64).range(1..=86_400)
}
