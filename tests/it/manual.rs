//! Help and completions, as people and shells read them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::harness::binary;
use crate::harness::wait::{Process, output};

/// Every command of the program with its options, as the definition of the command line has them.
fn commands() -> Vec<(String, Vec<String>)> {
    let program = azure_vnet_ipam::ops::command_line("azure-vnet-ipam");
    let commands = program.get_subcommands().map(|command| {
        let options = command.get_arguments().filter_map(|argument| {
            let long = argument.get_long().map(|long| format!("--{long}"));
            long.or_else(|| argument.get_short().map(|short| format!("-{short}")))
        });
        (command.get_name().to_owned(), options.collect())
    });
    commands.collect()
}

fn run_command<S: AsRef<OsStr>>(args: &[S]) -> Output {
    output(Command::new(binary()).env_clear().args(args))
}

fn stdout_of(args: &[&str]) -> String {
    let output = run_command(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
    assert!(output.stderr.is_empty(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A program that reads this text and has nothing to say against it; gives what it prints.
#[track_caller]
fn piped(program: &str, args: &[&str], stdin: &str) -> String {
    let mut process = Process::start_piped(Command::new(program).args(args));
    let mut into = process.child().stdin.take().unwrap();
    let text = stdin.to_owned();
    let feeding = std::thread::spawn(move || into.write_all(text.as_bytes()));
    let output = process.output();
    feeding.join().unwrap().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && complaints.is_empty(),
        "{program}: {complaints}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Checks that a page is plain, fits a small terminal and has no blanks at the ends of lines.
fn assert_tidy(page: &str) {
    assert!(
        page.is_ascii() && page.ends_with('\n') && !page.contains("\n\n\n"),
        "{page}"
    );
    for line in page.lines() {
        assert!(line.len() <= 80 && line == line.trim_end(), "{line:?}");
    }
}

#[test]
fn help_is_tidy_however_it_is_asked_for() {
    let help = stdout_of(&["--help"]);
    assert_tidy(&help);
    for same in [&["-h"][..], &["help"]] {
        assert_eq!(stdout_of(same), help, "{same:?}");
    }
    for (name, _) in commands() {
        let help = stdout_of(&[&name, "--help"]);
        assert_tidy(&help);
        for same in [&[&*name, "-h"], &["help", &name]] {
            assert_eq!(stdout_of(same), help, "{same:?}");
        }
        let usage = format!("\nUsage: azure-vnet-ipam {name}");
        assert!(help.contains(&usage), "{help}");
    }
}

#[test]
#[ignore = "needs bash"]
fn examples_are_lines_that_a_shell_can_read() {
    for (name, _) in commands() {
        let help = stdout_of(&[&name, "--help"]);
        let (_, examples) = help.split_once("\nExamples:\n").unwrap();
        let (examples, _) = examples.split_once("\nExit status:").unwrap();
        piped("bash", &["-n"], examples);
    }
}

#[test]
fn usage_errors_go_to_stderr_and_suggest_what_may_be_meant() {
    for (args, suggested) in [
        (&["frobnicate"][..], "'frobnicate'"),
        (&["relase", "10.224.0.5"], "'release'"),
        (&["show", "--jsno"], "'--json'"),
        (&["completions", "fsh"], "'fish'"),
        (&["completions", "tcsh"], "bash, zsh, fish"),
        (&["release"], "<ADDRESS>"),
    ] {
        let output = run_command(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{args:?}: {output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.starts_with("error: "), "{args:?}: {stderr}");
        assert!(stderr.ends_with("try '--help'.\n"), "{args:?}: {stderr}");
        assert!(stderr.contains(suggested), "{args:?}: {stderr}");
    }
}

/// A folder with the completion script of a shell, and with files to choose from.
struct Completions {
    folder: PathBuf,
}

impl Completions {
    fn new(shell: &str, test: &str) -> Completions {
        let folder = std::env::temp_dir().join(format!(
            "azure-vnet-ipam-completions-{test}-{}",
            std::process::id()
        ));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("folder")).unwrap();
        fs::write(folder.join("script"), stdout_of(&["completions", shell])).unwrap();
        fs::write(folder.join("settings one.json"), "{}").unwrap();
        Completions { folder }
    }

    /// Returns what the function of bash offers for the last of these words. Without an offer, bash completes file names.
    fn offered(&self, words: &[&str]) -> Vec<String> {
        let script = r#"
            . ./script
            # It works only while bash completes.
            compopt() { :; }
            function=$(complete -p azure-vnet-ipam | sed 's/.*-F \([^ ]*\).*/\1/')
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
            "$function" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            ((${#COMPREPLY[@]} == 0)) || printf '%s\n' "${COMPREPLY[@]}"
        "#;
        let mut command = Command::new("bash");
        command.current_dir(&self.folder);
        command.args(["--norc", "-uc", script, "bash", "azure-vnet-ipam"]);
        let output = output(command.args(words));
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{words:?}: {output:?}"
        );
        let text = String::from_utf8(output.stdout).unwrap();
        let mut offered: Vec<_> = text.lines().map(str::to_owned).collect();
        offered.sort();
        offered
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
#[ignore = "needs bash"]
fn bash_completes_commands_options_and_files() {
    piped("bash", &["-n"], &stdout_of(&["completions", "bash"]));
    let completions = Completions::new("bash", "offers");
    let names = commands().into_iter().map(|(name, _)| name);
    let others = ["help", "--help", "--version", "-h", "-V"].map(str::to_owned);
    let all: BTreeSet<String> = names.chain(others).collect();
    assert_eq!(BTreeSet::from_iter(completions.offered(&[""])), all);
    for (name, mut options) in commands() {
        options.push("--help".to_owned());
        options.retain(|option| option.starts_with("--"));
        options.sort();
        assert_eq!(completions.offered(&[&name, "--"]), options, "{name}");
    }
    for (words, offered) in [
        (&["re"][..], &["reclaim", "release"][..]),
        (&["release", "10.224.0.5", "--f"], &["--force"]),
        (&["release", "--container", ""], &[""]),
        (
            &["completions", ""],
            &["--help", "-h", "bash", "fish", "zsh"],
        ),
        (&["completions", "z"], &["zsh"]),
        (&["show", "-o", "j"], &["json"]),
        (&["help", "ex"], &["explain", "export"]),
        (&["check-settings", "s"], &[]),
        (&["check-settings", "--"], &["--help"]),
        (&["metrics", "--output", "f"], &["folder"]),
        (
            &["metrics", "--output", ""],
            &["folder", "script", "settings one.json"],
        ),
        (&["metrics", "--output", "=", "f"], &[]),
    ] {
        assert_eq!(completions.offered(words), offered, "{words:?}");
    }
}

#[test]
#[ignore = "needs bash"]
fn bash_completes_both_names_and_falls_back_to_file_names() {
    let completions = Completions::new("bash", "names");
    for name in ["azure-vnet-ipam", "azure-vnet-ipamv6"] {
        let mut command = Command::new("bash");
        command.current_dir(&completions.folder);
        let output = output(command.args(["-c", ". ./script && complete -p \"$0\"", name]));
        let rule = String::from_utf8(output.stdout).unwrap();
        assert!(rule.contains(" -o default "), "{rule}");
        assert!(rule.ends_with(&format!(" {name}\n")), "{rule}");
    }
}

#[test]
fn zsh_and_fish_complete_both_names() {
    let (zsh, fish) = ["zsh", "fish"]
        .map(|shell| stdout_of(&["completions", shell]))
        .into();
    assert!(
        zsh.starts_with("#compdef azure-vnet-ipam azure-vnet-ipamv6\n"),
        "{zsh}"
    );
    assert!(
        fish.ends_with("complete -c azure-vnet-ipamv6 -w azure-vnet-ipam\n"),
        "{fish}"
    );
    for (name, _) in commands() {
        assert!(zsh.contains(&format!("\n'{name}:")), "{name}");
        assert!(
            fish.contains(&format!("needs_command\" -f -a \"{name}\" ")),
            "{name}"
        );
    }
}

#[test]
#[ignore = "needs zsh"]
fn zsh_reads_its_completions() {
    piped("zsh", &["-f", "-n"], &stdout_of(&["completions", "zsh"]));
}
