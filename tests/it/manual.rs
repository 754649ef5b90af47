//! Help texts, as users and shells read them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::process::{Command, Output};

use crate::harness::wait::{Process, output};
use crate::harness::{binary, package};

/// Every command of the program with its options, from the definition of the command line.
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

/// Runs a program with this text as its input. It must succeed without a message on stderr. Returns its stdout.
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
    let mut examples = help.lines().skip_while(|line| *line != "Examples:");
    assert_eq!(examples.nth(2), Some("  sudo azure-vnet-ipam check"));
    for same in [&["-h"][..], &["help"], &["help", "--help"]] {
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

/// The calls of the program on a page: the text after its name in code blocks and code spans.
fn shown_calls(page: &str) -> Vec<String> {
    let lines = page.split('`').skip(1).step_by(2).flat_map(str::lines);
    // Three backticks in a row begin a block. Its text is between the third and the fourth backtick.
    let blocks = page.split("```").skip(1).step_by(2).flat_map(str::lines);
    let calls = lines.chain(blocks).flat_map(|line| {
        let line = line.split(" #").next().unwrap_or(line);
        line.split(['|', '>', '&']).filter_map(|part| {
            let (_, arguments) = part.split_once("azure-vnet-ipam ")?;
            Some(arguments.trim().to_owned())
        })
    });
    let is_command = |call: &String| call.starts_with(|c: char| c.is_ascii_lowercase());
    calls.filter(is_command).collect()
}

#[test]
fn pages_show_commands_and_options_that_exist() {
    let commands: BTreeMap<_, _> = commands().into_iter().collect();
    let mut count = 0;
    for name in [
        "README.md",
        ".github/RUNBOOK.md",
        ".github/REFERENCE.md",
        ".github/SECURITY.md",
        "conflist-examples/kubernetes/README.md",
    ] {
        let page = fs::read_to_string(package().join(name)).unwrap();
        for call in shown_calls(&page) {
            let mut words = call.split([' ', '=']);
            let command = words.next().unwrap();
            let options = commands.get(command);
            let options = options.unwrap_or_else(|| panic!("{name}: no command {command}"));
            for word in words.filter(|word| word.starts_with('-')) {
                let is_known = options.iter().any(|option| option == word);
                assert!(is_known, "{name}: `{call}` has no option {word}");
                count += 1;
            }
        }
    }
    assert!(count > 8, "only {count} options are shown");
}
