//! What makes a shell complete the commands, from their table.

use super::arguments::Arguments;
use super::commands::{COMMANDS, Command, Opt};
use super::help::add;
use super::node::Node;
use super::outcome::{CommandError, CommandOutput};

/// What stands for a path where an operand or the value of an option is told.
const FILE: &str = "FILE";

/// Prints the completions of the shell that is the operand.
///
/// # Errors
/// There are none for it.
pub fn run(_node: &Node, arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let shell = arguments.operand_text().unwrap_or_default();
    script(&shell).map(CommandOutput::well)
}

fn script(shell: &str) -> Result<String, CommandError> {
    match shell {
        "bash" => Ok(bash()),
        "zsh" => Ok(zsh()),
        other => Err(CommandError(format!(
            "there are completions for bash and zsh, not for {other:?}"
        ))),
    }
}

/// For bash, without the functions of the package bash-completion, which may not be there. Where `=` ends a word, as it does
/// unless that was set otherwise, `--output=FILE` is three words.
fn bash() -> String {
    let names = names();
    let (mut cases, mut values) = (String::new(), String::new());
    for command in COMMANDS {
        add(
            &mut cases,
            &["            ", command.name, ") words='--help"],
        );
        for option in command.options {
            add(&mut cases, &[" --", option.name]);
            let then = match option.value {
                None => continue,
                Some(FILE) => ") words= files=yes ;;\n",
                Some(_) => ") words= files= ;;\n",
            };
            let mut value = String::new();
            add(&mut value, &["        --", option.name, then]);
            if !values.contains(&value) {
                values.push_str(&value);
            }
        }
        if let Some(choices) = choices(command) {
            add(&mut cases, &[" ", &choices]);
        }
        cases.push_str(match command.operand {
            FILE => "' files=yes ;;\n",
            _ => "' ;;\n",
        });
    }
    let mut out = String::new();
    let texts = [
        BASH_COMMANDS,
        &names,
        BASH_HELP,
        &names,
        BASH_CASES,
        &cases,
        BASH_BEFORE,
        &values,
        BASH_END,
    ];
    add(&mut out, &texts);
    out
}

const BASH_COMMANDS: &str = "\
# Completions of azure-vnet-ipam for bash.
_azure_vnet_ipam() {
    local word=${COMP_WORDS[COMP_CWORD]} before= words= files=
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        words='";

const BASH_HELP: &str = " help --help --version'
    else
        case ${COMP_WORDS[1]} in
            help) words='";

const BASH_CASES: &str = "' ;;\n";

const BASH_BEFORE: &str = "        esac
        before=${COMP_WORDS[COMP_CWORD - 1]}
        if [[ $word == = ]]; then
            word=
        elif [[ $before == = ]]; then
            before=${COMP_WORDS[COMP_CWORD - 2]}
        fi
    fi
    case $before in
";

const BASH_END: &str = r#"    esac
    if [[ $files && $word != -* ]]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    fi
}
complete -F _azure_vnet_ipam azure-vnet-ipam azure-vnet-ipamv6
"#;

/// For zsh: a file for a folder of `fpath`, where it is the body of a function, or to be sourced.
fn zsh() -> String {
    let (mut commands, mut cases) = (String::new(), String::new());
    for command in COMMANDS {
        let about = escaped(command.about, "");
        add(
            &mut commands,
            &["        '", command.name, ":", &about, "'\n"],
        );
        add(
            &mut cases,
            &["        ", command.name, ")\n            _arguments $help"],
        );
        for option in command.options {
            add(&mut cases, &[ZSH_SPEC, &zsh_option(option), "'"]);
        }
        if let Some(operand) = zsh_operand(command) {
            add(&mut cases, &[ZSH_SPEC, &operand, "'"]);
        }
        cases.push_str("\n            ;;\n");
    }
    let mut out = String::new();
    let texts = [
        ZSH_COMMANDS,
        &commands,
        ZSH_HELP,
        &names(),
        ZSH_CASES,
        &cases,
        ZSH_END,
    ];
    add(&mut out, &texts);
    out
}

const ZSH_SPEC: &str = " \\\n                '";

const ZSH_COMMANDS: &str = "\
#compdef azure-vnet-ipam azure-vnet-ipamv6
# Completions of azure-vnet-ipam for zsh.
_azure-vnet-ipam() {
    local -a commands help
    local command
    commands=(
";

const ZSH_HELP: &str = "        'help:tell about a command'
    )
    help=('(- *)'{-h,--help}'[tell about the command]')
    if ((CURRENT == 2)); then
        if [[ $words[2] == -* ]]; then
            _arguments '--help[tell what the program does]' '--version[print its version]'
        else
            _describe command commands
        fi
        return
    fi
    command=$words[2]
    shift words
    ((CURRENT--))
    case $command in
        help)
            _arguments '1:command:(";

const ZSH_CASES: &str = ")'\n            ;;\n";

const ZSH_END: &str = r#"    esac
}
if [[ $funcstack[1] == _azure-vnet-ipam ]]; then
    _azure-vnet-ipam "$@"
else
    compdef _azure-vnet-ipam azure-vnet-ipam azure-vnet-ipamv6
fi
"#;

/// An option as zsh's `_arguments` takes it, within single quotes.
fn zsh_option(option: &Opt) -> String {
    let mut out = String::new();
    let sign = if option.value.is_some() { "=[" } else { "[" };
    let about = escaped(option.about, SPECIAL);
    add(&mut out, &["--", option.name, sign, &about, "]"]);
    if let Some(value) = option.value {
        add(&mut out, &[":", value, action(value)]);
    }
    out
}

/// The operand as zsh's `_arguments` takes it, within single quotes.
fn zsh_operand(command: &Command) -> Option<String> {
    let mut out = String::new();
    match (command.operand, choices(command)) {
        ("", _) => return None,
        (_, Some(choices)) => add(&mut out, &["1:what:(", &choices, ")"]),
        (operand, None) => add(&mut out, &["1:", operand, action(operand)]),
    }
    Some(out)
}

/// What a value is completed with: nothing but for files.
fn action(value: &str) -> &'static str {
    match value {
        FILE => ":_files",
        _ => ": ",
    }
}

/// All commands of the table, as words.
fn names() -> String {
    let mut names = String::new();
    for command in COMMANDS {
        let gap = if names.is_empty() { "" } else { " " };
        add(&mut names, &[gap, command.name]);
    }
    names
}

/// The words that the operand is one of, where it is told so, as `bash|zsh`. What is in capitals stands for something else.
fn choices(command: &Command) -> Option<String> {
    let operand = command.operand.as_bytes();
    let stands_for_others = operand.iter().any(u8::is_ascii_uppercase);
    (!operand.is_empty() && !stands_for_others).then(|| command.operand.replace('|', " "))
}

/// What means something to zsh's `_arguments`.
const SPECIAL: &str = r"[]:\";

/// Text within single quotes of a shell, with a backslash before each of the characters `special`.
fn escaped(text: &str, special: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if special.contains(c) {
            out.push('\\');
        }
        match c {
            '\'' => out.push_str(r"'\''"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::commands::named;
    use super::*;
    use crate::cni::NAME;

    #[test]
    fn an_unknown_shell_is_told_of_the_known_ones() {
        let CommandError(why) = script("fish").unwrap_err();
        assert!(
            why.contains("bash and zsh") && why.contains("fish"),
            "{why}"
        );
    }

    #[test]
    fn what_means_something_to_a_shell_is_escaped() {
        assert_eq!(escaped("a'b:", ""), r"a'\''b:");
        assert_eq!(escaped(r"a:[b]\", SPECIAL), r"a\:\[b\]\\");
    }

    #[test]
    fn the_scripts_are_for_this_program() {
        for script in [bash(), zsh()] {
            assert!(script.contains(&format!("Completions of {NAME} for")));
        }
        assert!(bash().ends_with(&format!(" {NAME} {NAME}v6\n")));
        assert!(zsh().starts_with(&format!("#compdef {NAME} {NAME}v6\n")));
    }

    #[test]
    fn operands_are_completed_as_far_as_the_table_tells() {
        let operand = |name| zsh_operand(named(name).unwrap());
        assert_eq!(operand("man"), None);
        assert_eq!(operand("show").unwrap(), "1:POOL: ");
        assert_eq!(operand("check-settings").unwrap(), "1:FILE:_files");
        assert_eq!(operand("completions").unwrap(), "1:what:(bash zsh)");
    }

    #[test]
    fn options_are_known_by_what_they_take() {
        let spec = |name, option| {
            let mut options = named(name).unwrap().options.iter();
            zsh_option(options.find(|o| o.name == option).unwrap())
        };
        let container = spec("release", "container");
        assert!(
            container.starts_with("--container=[") && container.ends_with("]:ID: "),
            "{container}"
        );
        assert!(spec("metrics", "output").ends_with("]:FILE:_files"));
        assert!(spec("show", "events").starts_with("--events["));
        assert_eq!(
            bash()
                .matches("\n        --output) words= files=yes ;;")
                .count(),
            1
        );
    }
}
