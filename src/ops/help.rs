//! What `--help` tells of the program and of each command. The man page says the same at more length.

use super::commands::{COMMANDS, Command, Opt};
use super::screen::Screen;
use crate::cni::NAME;

/// The same on every screen and in every file, so that what is quoted from it looks the same everywhere.
const PAGE: Screen = Screen {
    width: Some(80),
    colours: false,
};

/// What the program is, a paragraph each.
pub const ABOUT: &[&str] = &[
    "azure-vnet-ipam gives pods on an Azure node their addresses. It is a CNI IPAM plugin: a container runtime starts it, through a main plugin, with CNI_COMMAND (ADD, DEL, CHECK, GC, STATUS or VERSION) and the other CNI variables in the environment and the network configuration on stdin.",
    "A link with the name azure-vnet-ipamv6 keeps a state of its own, with addresses of IPv6, for main plugins that call one IPAM plugin for each family.",
    "Without CNI_COMMAND it takes the commands of an operator, which show and repair what the plugin keeps in its state.",
];

/// What can be typed in place of a command or behind one.
pub const GENERAL: &[(&str, &str)] = &[
    ("help [COMMAND]", "the same as COMMAND --help, or --help"),
    (
        "-h, --help",
        "tell what the program does; behind a command, what that does",
    ),
    ("-V, --version", "print the version of the program"),
];

/// What can be set in the environment, as `NAME=VALUE` or `NAME`.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "AZURE_VNET_IPAM_ROOT=DIR",
        "look up every file below DIR: for trying by hand",
    ),
    (
        "AZURE_VNET_IPAM_QUERY_URL=URL",
        "ask URL (http: or file:) instead of the wire server",
    ),
    (
        "AZURE_VNET_IPAM_KUBECONFIG=FILE",
        "reach the Kubernetes API by FILE instead of the kubelet's kubeconfig",
    ),
    ("NO_COLOR", "when set and not empty: no colours"),
    (
        "COLUMNS",
        "how wide the terminal is, instead of what it says itself",
    ),
];

/// What is read or written.
pub const FILES: &[(&str, &str)] = &[
    ("/var/run/azure-vnet-ipam.json", "the state"),
    ("/var/run/azure-vnet/", "locks, and the last operations"),
    ("/var/log/azure-vnet-ipam.log", "the log"),
    (
        "/etc/azure-vnet-ipam.json",
        "settings: defaults for the key ipam of network configurations",
    ),
    ("/etc/cni/net.d/", "the network configurations of the node"),
    (
        "/var/lib/kubelet/kubeconfig",
        "how the Kubernetes API is reached, where the node object lists the addresses",
    ),
];

/// What exit statuses mean in general.
pub const EXITS: &[(u8, &str)] = &[
    (0, "it worked, and nothing is wrong"),
    (
        1,
        "it worked, and something is wrong or was refused; of a CNI call: it failed, and the error is on stdout",
    ),
    (
        2,
        "it could not be done, or what was typed is not a command: stderr says why",
    ),
];

/// How the plugin is tried without a runtime, and what for.
pub const VERSION_CALL: (&str, &str) = (
    "CNI_COMMAND=VERSION azure-vnet-ipam </dev/null",
    "the versions of CNI it speaks",
);

/// What the program does.
pub fn all() -> String {
    let mut out = String::new();
    add(&mut out, &["Usage: ", NAME, " COMMAND [OPTION...]\n"]);
    texts(&mut out, ABOUT);
    let commands = COMMANDS.iter();
    let commands = commands.map(|command| (command.name.to_owned(), command.about));
    list(&mut out, "Commands", commands.collect());
    let more = " COMMAND --help tells more about a command.\n";
    add(&mut out, &["\n", NAME, more]);
    for (heading, entries) in [
        ("Also", GENERAL),
        ("Environment", ENVIRONMENT),
        ("Files", FILES),
    ] {
        let entries = entries.iter();
        let entries = entries.map(|(term, text)| ((*term).to_owned(), *text));
        list(&mut out, heading, entries.collect());
    }
    examples(&mut out, &[VERSION_CALL]);
    exits(&mut out, EXITS);
    out
}

/// What a command does.
pub fn of(command: &Command) -> String {
    let mut out = PAGE.paragraph("Usage: ", 7, &usage(command));
    texts(&mut out, &[&sentence(command.about)]);
    texts(&mut out, command.text);
    let options = command.options.iter();
    let mut options: Vec<_> = options.map(|o| (spelled(o), o.about)).collect();
    options.push(("-h, --help".to_owned(), "print this"));
    list(&mut out, "Options", options);
    examples(&mut out, command.examples);
    exits(&mut out, command.exits);
    out
}

/// What is typed for a command, in a line: `azure-vnet-ipam show [POOL] [--json]`.
pub fn usage(command: &Command) -> String {
    let mut line = String::new();
    add(&mut line, &[NAME, " ", command.name]);
    match (command.operand, command.operand_is_optional) {
        ("", _) => {}
        (operand, true) => add(&mut line, &[" [", operand, "]"]),
        (operand, false) => add(&mut line, &[" ", operand]),
    }
    for option in command.options {
        add(&mut line, &[" [", &spelled(option), "]"]);
    }
    line
}

/// An option as it is typed: `--output FILE`.
pub fn spelled(option: &Opt) -> String {
    let mut out = String::new();
    add(&mut out, &["--", option.name]);
    if let Some(value) = option.value {
        add(&mut out, &[" ", value]);
    }
    out
}

/// A line of the table of commands as a sentence.
pub fn sentence(about: &str) -> String {
    let mut out = String::new();
    add(&mut out, &[about, "."]);
    if let Some(first) = out.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    out
}

/// Adds texts, one after the other: less code than formatting makes, of which long pages would need much.
pub fn add(out: &mut String, texts: &[&str]) {
    for text in texts {
        out.push_str(text);
    }
}

fn texts(out: &mut String, texts: &[&str]) {
    for text in texts {
        add(out, &["\n", &PAGE.paragraph("", 0, text)]);
    }
}

fn examples(out: &mut String, examples: &[(&str, &str)]) {
    out.push_str("\nExamples:\n");
    for (typed, purpose) in examples {
        out.push_str(&PAGE.paragraph("  # ", 4, purpose));
        for line in typed.lines() {
            add(out, &["  ", line, "\n"]);
        }
    }
}

fn exits(out: &mut String, exits: &[(u8, &'static str)]) {
    let exits = exits.iter();
    let exits = exits.map(|(status, meaning)| (status.to_string(), *meaning));
    list(out, "Exit status", exits.collect());
}

/// Terms and what they mean, which begins in one column.
fn list(out: &mut String, heading: &str, entries: Vec<(String, &str)>) {
    add(out, &["\n", heading, ":\n"]);
    let lengths = entries.iter().map(|(term, _)| term.len());
    let column = lengths.max().unwrap_or_default() + 4;
    for (term, text) in entries {
        out.push_str(&PAGE.paragraph(&format!("  {term}"), column, text));
    }
}

#[cfg(test)]
mod tests {
    use super::super::commands::named;
    use super::*;

    #[test]
    fn every_page_fits_and_is_plain() {
        let pages = COMMANDS.iter().map(of).chain([all()]);
        for page in pages {
            assert!(page.is_ascii() && !page.contains('\x1b'), "{page}");
            let wide = page.lines().find(|line| line.len() > 80);
            assert_eq!(wide, None);
            assert!(!page.contains("\n\n\n") && !page.contains(" \n"), "{page}");
        }
    }

    #[test]
    fn the_table_has_what_a_page_needs() {
        for command in COMMANDS {
            let name = command.name;
            assert!(!command.text.is_empty(), "{name}");
            assert!(!command.examples.is_empty(), "{name}");
            assert!(
                command.exits.iter().any(|(status, _)| *status == 0),
                "{name}"
            );
            let lines = command.options.iter().map(|o| o.about);
            for line in lines.chain([command.about]) {
                assert!(!line.ends_with('.'), "{name}: {line}");
            }
            for (typed, _) in command.examples {
                let called = format!("{NAME} {name}");
                assert!(
                    typed.contains(&called) && !typed.contains('`'),
                    "{name}: {typed}"
                );
                assert!(typed.lines().all(|line| line.len() <= 68), "{typed}");
            }
        }
    }

    #[test]
    fn a_usage_line_tells_what_may_be_left_out() {
        let usage = |name| usage(named(name).unwrap());
        assert!(usage("show").starts_with("azure-vnet-ipam show [POOL] [--json]"));
        assert!(usage("release").starts_with("azure-vnet-ipam release ADDRESS [--container ID]"));
        assert_eq!(usage("man"), "azure-vnet-ipam man");
    }

    #[test]
    fn meanings_begin_in_one_column() {
        let mut out = String::new();
        let entries = [("a", "one"), ("long", "two")];
        let entries = entries.map(|(term, text)| (term.to_owned(), text));
        list(&mut out, "H", entries.to_vec());
        assert_eq!(out, "\nH:\n  a     one\n  long  two\n");
    }

    #[test]
    fn a_sentence_begins_and_ends_as_one() {
        assert_eq!(sentence("show it"), "Show it.");
    }
}
