//! Help, man page and completions, as people, formatters and shells use them.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::harness::binary;
use crate::harness::wait::{Process, output};

/// All commands with their options. A second list, so that a missing one is noticed.
const COMMANDS: [(&str, &[&str]); 11] = [
    ("show", &["--json", "--events"]),
    ("check", &["--json"]),
    ("explain", &["--json"]),
    ("reclaim", &["--yes", "--json"]),
    ("release", &["--container", "--force", "--json"]),
    ("doctor", &["--json"]),
    ("export", &["--output"]),
    ("metrics", &["--output"]),
    ("check-settings", &[]),
    ("completions", &[]),
    ("man", &[]),
];

fn run_command<S: AsRef<OsStr>>(args: &[S]) -> Output {
    output(Command::new(binary()).env_clear().args(args))
}

fn stdout_of(args: &[&str]) -> String {
    let output = run_command(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
    assert!(output.stderr.is_empty(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Pipes the text into a program that must not complain, and returns its output.
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

/// The commands that the help lists.
fn listed() -> Vec<String> {
    let help = stdout_of(&["--help"]);
    let (_, after) = help.split_once("\nCommands:\n").unwrap();
    let lines = after.lines().take_while(|line| !line.is_empty());
    let entries = lines.filter(|line| !line.starts_with("   "));
    entries
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect()
}

/// Checks that the text is plain, fits 80 columns, and has no trailing blanks.
fn tidy(page: &str) {
    assert!(page.is_ascii() && page.ends_with('\n'), "{page}");
    for line in page.lines() {
        assert!(line.len() <= 80 && line == line.trim_end(), "{line:?}");
    }
}

/// The words of a page, without brackets and markup.
fn words(page: &str) -> Vec<&str> {
    let words = page.split(|c: char| c.is_whitespace() || "[]()|.,;:".contains(c));
    words.filter(|word| !word.is_empty()).collect()
}

#[test]
fn program_help_describes_the_usage() {
    let help = stdout_of(&["--help"]);
    tidy(&help);
    for same in [&["-h"][..], &["help"]] {
        assert_eq!(stdout_of(same), help, "{same:?}");
    }
    for phrase in [
        "CNI_COMMAND (ADD, DEL, CHECK, GC, STATUS or VERSION)",
        "CNI_COMMAND=VERSION azure-vnet-ipam </dev/null",
        "COMMAND --help",
        "--version",
        "AZURE_VNET_IPAM_ROOT=DIR",
        "AZURE_VNET_IPAM_QUERY_URL=URL",
        "NO_COLOR",
        "COLUMNS",
        "/var/run/azure-vnet-ipam.json",
        "/var/log/azure-vnet-ipam.log",
        "/etc/azure-vnet-ipam.json",
        "/etc/cni/net.d",
        "Exit status:\n  0  ",
        "\n  1  ",
        "\n  2  ",
    ] {
        let flowing = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            help.contains(phrase) || flowing.contains(phrase),
            "{phrase}"
        );
    }
    assert_eq!(listed(), COMMANDS.map(|(name, _)| name));
}

#[test]
fn command_help_has_options_and_an_example() {
    for (name, options) in COMMANDS {
        let help = stdout_of(&[name, "--help"]);
        tidy(&help);
        for same in [&[name, "-h"], &["help", name]] {
            assert_eq!(stdout_of(same), help, "{same:?}");
        }
        let usage = format!("Usage: azure-vnet-ipam {name}");
        assert!(help.starts_with(&usage), "{help}");
        let (_, listed) = help.split_once("\nOptions:\n").unwrap();
        let (listed, after) = listed.split_once("\n\n").unwrap();
        let first = |line: &str| Some(line.strip_prefix("  ")?.split(' ').next()?.to_owned());
        let listed: Vec<_> = listed.lines().filter_map(first).collect();
        let listed: Vec<_> = listed.iter().filter(|word| !word.is_empty()).collect();
        assert_eq!(
            listed,
            [options, &["-h,"]].concat().iter().collect::<Vec<_>>()
        );
        let (_, examples) = after.split_once("Examples:\n").unwrap();
        let called = format!("azure-vnet-ipam {name}");
        let (examples, exits) = examples.split_once("\nExit status:\n").unwrap();
        assert!(examples.contains(&called), "{help}");
        assert!(exits.starts_with("  0  "), "{help}");
    }
}

#[test]
#[ignore = "needs bash"]
fn help_examples_are_valid_shell() {
    for (name, _) in COMMANDS {
        let help = stdout_of(&[name, "--help"]);
        let (_, examples) = help.split_once("\nExamples:\n").unwrap();
        let (examples, _) = examples.split_once("\nExit status:").unwrap();
        piped("bash", &["-n"], examples);
    }
}

#[test]
fn unknown_commands_and_options_are_refused_in_one_line() {
    for args in [
        &["frobnicate"][..],
        &["--frobnicate"],
        &["-x"],
        &["help", "frobnicate"],
        &["show", "--frobnicate"],
        &["show", "-x"],
        &["man", "here"],
        &["release", "10.224.0.5", "--container"],
        &["explain"],
        &["completions"],
        &["completions", "fish"],
    ] {
        let output = run_command(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{args:?}: {output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
        assert!(
            stderr.starts_with("azure-vnet-ipam") && stderr.ends_with('\n'),
            "{stderr}"
        );
    }
    let fish = String::from_utf8(run_command(&["completions", "fish"]).stderr).unwrap();
    assert!(fish.contains("bash and zsh"), "{fish}");
}

#[test]
fn man_page_names_every_command_and_option() {
    let page = stdout_of(&["man"]);
    assert!(
        page.is_ascii() && page.starts_with(".TH AZURE\\-VNET\\-IPAM 8 "),
        "{page}"
    );
    for heading in [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "COMMANDS",
        "ENVIRONMENT",
        "FILES",
        "EXIT STATUS",
        "EXAMPLES",
        "SEE ALSO",
    ] {
        assert!(page.contains(&format!("\n.SH {heading}\n")), "{heading}");
    }
    let (_, commands) = page.split_once("\n.SH COMMANDS\n").unwrap();
    let (commands, _) = commands.split_once("\n.SH ").unwrap();
    let sections: Vec<_> = commands.split(".SS ").skip(1).collect();
    assert_eq!(sections.len(), COMMANDS.len());
    for ((name, options), section) in COMMANDS.into_iter().zip(sections) {
        let escaped = name.replace('-', "\\-");
        assert!(
            section.starts_with(&format!("azure\\-vnet\\-ipam {escaped}")),
            "{section}"
        );
        for option in options {
            let entry = format!("\n.TP\n\\fB{}", option.replace('-', "\\-"));
            assert!(section.contains(&entry), "{option}: {section}");
        }
    }
}

#[test]
#[ignore = "needs groff"]
fn man_page_is_formatted_without_warnings() {
    let page = stdout_of(&["man"]);
    let text = piped("groff", &["-ww", "-man", "-Tascii", "-P-cbou"], &page);
    let words = words(&text);
    for (name, options) in COMMANDS {
        for word in [name].iter().chain(options) {
            assert!(words.contains(word), "{word}: {text}");
        }
    }
    // Text that roff could read as a request or drop.
    let flowing = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for phrase in ["~ resting", ". free", "jq '.pools[].free'", "</dev/null"] {
        assert!(flowing.contains(phrase), "{phrase}: {text}");
    }
    let wide = text.lines().find(|line| line.len() > 80);
    assert_eq!(wide, None);
}

#[test]
#[ignore = "needs mandoc"]
fn mandoc_has_no_warnings_about_the_man_page() {
    let page = stdout_of(&["man"]);
    assert_eq!(piped("mandoc", &["-T", "lint", "-W", "warning"], &page), "");
}

/// A folder with the completions of a shell, and files to complete.
struct Completions {
    folder: PathBuf,
}

impl Completions {
    fn of(shell: &str) -> Completions {
        let folder = std::env::temp_dir().join(format!(
            "azure-vnet-ipam-completions-{shell}-{}",
            std::process::id()
        ));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("folder")).unwrap();
        fs::write(folder.join("script"), stdout_of(&["completions", shell])).unwrap();
        fs::write(folder.join("settings one.json"), "{}").unwrap();
        Completions { folder }
    }

    /// What bash offers for the last word.
    fn offered(&self, words: &[&str]) -> Vec<String> {
        let script = r#"
            . ./script
            function=$(complete -p azure-vnet-ipam | sed 's/.*-F \([^ ]*\).*/\1/')
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
            "$function" azure-vnet-ipam "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
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
    let completions = Completions::of("bash");
    let names = COMMANDS.map(|(name, _)| name);
    let mut all = [&names[..], &["help", "--help", "--version"]].concat();
    all.sort_unstable();
    assert_eq!(completions.offered(&[""]), all);
    for (name, options) in COMMANDS {
        let mut all = [options, &["--help"]].concat();
        all.sort_unstable();
        assert_eq!(completions.offered(&[name, "--"]), all, "{name}");
        assert!(completions.offered(&[name]).contains(&name.to_owned()));
    }
    for (words, offered) in [
        (&["re"][..], &["reclaim", "release"][..]),
        (&["release", "10.224.0.5", "--f"], &["--force"]),
        (&["release", "--container", ""], &[]),
        (&["release", "--container", "="], &[]),
        (&["completions", ""], &["--help", "bash", "zsh"]),
        (&["completions", "z"], &["zsh"]),
        (&["help", "ex"], &["explain", "export"]),
        (&["check-settings", "s"], &["script", "settings one.json"]),
        (&["check-settings", "--"], &["--help"]),
        (&["metrics", "--output", "f"], &["folder"]),
        (&["metrics", "--output", "=", "f"], &["folder"]),
        (
            &["metrics", "--output", "="],
            &["folder", "script", "settings one.json"],
        ),
        (&["frobnicate", ""], &[]),
    ] {
        assert_eq!(completions.offered(words), offered, "{words:?}");
    }
}

#[test]
fn zsh_completions_name_every_command_and_option() {
    let script = stdout_of(&["completions", "zsh"]);
    assert!(
        script.starts_with("#compdef azure-vnet-ipam azure-vnet-ipamv6\n"),
        "{script}"
    );
    for (name, options) in COMMANDS {
        assert!(script.contains(&format!("\n        '{name}:")), "{name}");
        assert!(script.contains(&format!("\n        {name})\n")), "{name}");
        for option in options {
            let taken = ["[", "=["].map(|end| format!("'{option}{end}"));
            assert!(taken.iter().any(|spec| script.contains(spec)), "{option}");
        }
    }
}

#[test]
#[ignore = "needs zsh"]
fn zsh_loads_its_completions() {
    piped("zsh", &["-f", "-n"], &stdout_of(&["completions", "zsh"]));
}
