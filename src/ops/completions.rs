//! The scripts that complete commands in shells.

use clap::CommandFactory;
use clap_complete::generate;
use clap_complete::shells::{Bash, Fish, Zsh};

use super::cli::{Cli, Shell};
use crate::cni::{NAME, NAME_V6};

/// Generates the script of a shell, for both names of the program.
pub fn script(shell: Shell) -> String {
    let mut command = Cli::command();
    let mut script = Vec::new();
    match shell {
        Shell::Bash => generate(Bash, &mut command, NAME, &mut script),
        Shell::Zsh => generate(Zsh, &mut command, NAME, &mut script),
        Shell::Fish => generate(Fish, &mut command, NAME, &mut script),
    }
    let script = String::from_utf8_lossy(&script);
    match shell {
        Shell::Bash => {
            let function = NAME.replace('-', "__");
            // clap_complete calls a command with hyphens by two names (clap-rs/clap issue 6421).
            let script = script.replace(&NAME.replace('-', "__subcmd__"), &function);
            format!("{script}complete -F _{function} -o bashdefault -o default {NAME_V6}\n")
        }
        Shell::Zsh => script.replacen(
            &format!("#compdef {NAME}\n"),
            &format!("#compdef {NAME} {NAME_V6}\n"),
            1,
        ),
        Shell::Fish => format!("{script}complete -c {NAME_V6} -w {NAME}\n"),
    }
}
