//! What was typed behind the name of a command, by the table of commands.

use std::ffi::{OsStr, OsString};

use lexopt::Arg;

use super::commands::Command;

/// What was typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    operand: Option<OsString>,
    options: Vec<(&'static str, OsString)>,
}

/// What is to be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Carry it out.
    Run(Arguments),
    /// Tell about the command.
    Help,
}

impl Arguments {
    /// Whether the option of this name was given.
    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// The value of the option of this name, the last one where it was given twice; empty for one that takes none.
    pub fn value(&self, name: &str) -> Option<&OsStr> {
        let mut given = self.options.iter().rev();
        let found = given.find(|(given, _)| *given == name);
        found.map(|(_, value)| value.as_os_str())
    }

    /// What is not an option.
    pub fn operand(&self) -> Option<&OsStr> {
        self.operand.as_deref()
    }

    /// The same as text; what is not UTF-8 is nothing that there could be.
    pub fn operand_text(&self) -> Option<String> {
        Some(self.operand()?.to_string_lossy().into_owned())
    }
}

/// Reads what was typed.
///
/// # Errors
/// It is not what the command takes.
pub fn parse(
    command: &Command,
    args: impl IntoIterator<Item = OsString>,
) -> Result<Parsed, String> {
    let mut parser = lexopt::Parser::from_args(args);
    let mut found = Arguments::default();
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        let option = match arg {
            Arg::Short('h') => return Ok(Parsed::Help),
            Arg::Long("help") => return Ok(Parsed::Help),
            Arg::Long(name) => command.options.iter().find(|o| o.name == name),
            Arg::Short(_) => None,
            Arg::Value(_) if command.operand.is_empty() || found.operand.is_some() => None,
            Arg::Value(value) => {
                found.operand = Some(value);
                continue;
            }
        };
        let Some(option) = option else {
            return Err(arg.unexpected().to_string());
        };
        let value = match option.value {
            Some(_) => parser.value().map_err(|e| e.to_string())?,
            None => OsString::new(),
        };
        found.options.push((option.name, value));
    }
    if found.operand.is_none() && !command.operand_is_optional {
        return Err(format!("{} is missing", command.operand));
    }
    Ok(Parsed::Run(found))
}

#[cfg(test)]
mod tests {
    use super::super::commands::named;
    use super::*;

    fn typed(line: &str) -> Result<Parsed, String> {
        let mut words = line.split(' ').filter(|w| !w.is_empty());
        let command = named(words.next().unwrap()).unwrap();
        parse(command, words.map(OsString::from))
    }

    fn ran(line: &str) -> Arguments {
        match typed(line).unwrap() {
            Parsed::Run(arguments) => arguments,
            Parsed::Help => panic!("{line} asks for help"),
        }
    }

    #[test]
    fn options_and_operands_may_come_in_any_order() {
        for line in [
            "release 10.1.0.5 --container c1 --force",
            "release --force --container=c1 10.1.0.5",
        ] {
            let found = ran(line);
            assert_eq!(found.operand_text().unwrap(), "10.1.0.5");
            assert_eq!(found.value("container"), Some(OsStr::new("c1")));
            assert!(found.has("force") && !found.has("json"));
        }
        assert_eq!(ran("show").operand(), None);
    }

    #[test]
    fn help_goes_before_everything_else() {
        for line in ["release --help", "release -h", "show x --json --help"] {
            assert_eq!(typed(line), Ok(Parsed::Help), "{line}");
        }
    }

    #[test]
    fn what_a_command_does_not_take_is_refused() {
        for line in [
            "show a b",
            "show --yes",
            "show -x",
            "check here",
            "release --container c1",
            "release 10.1.0.5 --container",
            "explain",
            "metrics --output",
            "show --json=1",
        ] {
            assert!(typed(line).is_err(), "{line}");
        }
    }
}
