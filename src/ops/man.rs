//! The manual page: the commands as clap_mangen renders them, and the texts of their help.

use std::io::{self, Write};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use super::build_info;
use super::cli;
use super::errors;
use super::{help, help_man};
use crate::cni::NAME;

/// The date of the last change to the texts. The date of the build would make builds differ.
const REVISED: &str = "2026-11-22";

/// The pages of related programs, all in section 8.
const SEE_ALSO: [&str; 3] = ["ip-address", "ip-netns", "ip-route"];

const SPECIFICATION: &str = "The CNI specification: https://www.cni.dev/docs/spec/";

/// How the sections of a help text appear on the page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Headings {
    /// As sections of the page.
    Sections,
    /// As paragraphs within a subsection.
    Paragraphs,
}

/// Renders the whole page.
///
/// # Errors
/// None in practice: it writes to memory.
pub fn page() -> io::Result<String> {
    let mut program = cli::command(NAME).disable_help_subcommand(true);
    program.build();
    let title = program.get_name().to_ascii_uppercase();
    let man = Man::new(program.clone()).title(title).section("8");
    // Without the commit, which would make every commit's page another one.
    let source = format!("{NAME} {}", build_info::VERSION);
    let man = man.date(REVISED).manual("CNI plugins").source(source);

    let mut page = Vec::new();
    man.render_title(&mut page)?;
    let mut layout = Roff::new();
    // No hyphenation and no justification: readers copy paths and options.
    layout.control("nh", []).control("ad", ["l"]);
    page.extend(layout.to_roff().bytes());
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;

    let mut description = Roff::new();
    description.control("SH", ["DESCRIPTION"]);
    let text = help::with_name(help::PROGRAM, NAME);
    add_text(&mut description, &text, Headings::Sections);
    description.to_writer(&mut page)?;
    man.render_options_section(&mut page)?;

    writeln!(page, ".SH COMMANDS")?;
    for command in program.get_subcommands() {
        render_command(command, &mut page)?;
    }

    let mut rest = Roff::new();
    let text = help::with_name(help::REFERENCE, NAME);
    add_text(&mut rest, &text, Headings::Sections);
    let errors = format!("Errors:\n{}", errors::text());
    for text in [help_man::FILES, &errors, help_man::JSON, help_man::TASKS] {
        add_text(&mut rest, text, Headings::Sections);
    }
    rest.control("SH", ["SEE ALSO"]);
    for name in SEE_ALSO {
        rest.text([bold(name), roman("(8),")]);
    }
    rest.text([roman(SPECIFICATION)]);
    rest.to_writer(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// Renders one command as a subsection.
fn render_command(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let man = Man::new(command.clone());
    writeln!(page, ".SS {}", command.get_name().replace('-', r"\-"))?;
    let mut sections = Vec::new();
    man.render_synopsis_section(&mut sections)?;
    man.render_options_section(&mut sections)?;
    for line in String::from_utf8_lossy(&sections).lines() {
        // A command is one subsection, so that its parts have no headings.
        if !line.starts_with(".SH ") {
            writeln!(page, "{line}")?;
        }
    }
    let mut text = Roff::new();
    if let Some(help) = command.get_after_help() {
        // The table of errors is a section of its own.
        let help = help.to_string().replace(&errors::text(), "");
        add_text(&mut text, &help, Headings::Paragraphs);
    }
    text.to_writer(page)
}

/// Adds a help text. Its indented lines keep their indentation and their breaks.
fn add_text(roff: &mut Roff, text: &str, headings: Headings) {
    for (n, block) in text.trim().split("\n\n").enumerate() {
        let (heading, body) = match block.split_once(":\n") {
            Some((heading, body)) if !heading.contains('\n') => (Some(heading), body),
            _ => (None, block),
        };
        match (heading, headings) {
            (Some(heading), Headings::Sections) => {
                roff.control("SH", [heading.to_ascii_uppercase().as_str()]);
            }
            (Some(heading), Headings::Paragraphs) => {
                roff.control("PP", []).text([bold(heading), roman(":")]);
            }
            // A paragraph right below a heading would be empty.
            (None, Headings::Sections) if n == 0 => {}
            (None, _) => {
                roff.control("PP", []);
            }
        }
        for line in body.lines() {
            roff.text(inlines(line));
        }
    }
}

/// Sets the words between backticks in bold.
fn inlines(line: &str) -> Vec<Inline> {
    let parts = line.split('`').enumerate();
    let parts = parts.map(|(n, part)| if n % 2 == 1 { bold(part) } else { roman(part) });
    parts.collect()
}
