//! Writes man pages and shell completions. The argument names a folder, and they go into its folders `man` and `completions`. There is one
//! man page for the program, and one for each command.

use std::path::PathBuf;
use std::{env, fs, io};

use clap_complete::{Shell, generate_to};
use clap_mangen::Man;

const NAME: &str = "azure-vnet-ipam";

fn main() -> io::Result<()> {
    let folder = PathBuf::from(env::args_os().nth(1).expect("a folder"));
    let [man, completions] = ["man", "completions"].map(|name| folder.join(name));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    let mut program = azure_vnet_ipam::ops::command_line(NAME).disable_help_subcommand(true);
    program.build();
    for command in program.get_subcommands().chain([&program]) {
        Man::new(command.clone()).section("8").generate_to(&man)?;
    }
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        let mut program = azure_vnet_ipam::ops::command_line(NAME);
        generate_to(shell, &mut program, NAME, &completions)?;
    }
    Ok(())
}
