//! Writes the man pages into the folder that the argument names: one of the program, and one of each command.

use std::{env, io};

use clap_mangen::Man;

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).expect("a folder");
    let mut program =
        azure_vnet_ipam::ops::command_line("azure-vnet-ipam").disable_help_subcommand(true);
    program.build();
    let commands = program.get_subcommands().chain([&program]).cloned();
    commands.into_iter().try_for_each(|command| {
        Man::new(command)
            .section("8")
            .generate_to(&folder)
            .map(drop)
    })
}
