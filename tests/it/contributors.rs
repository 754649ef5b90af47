//! The pages of documentation: everything that they name exists, and everything that comments cite is in them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::harness::{package, rust_files};

const CONTRACT: &str = "testdata/recorded/README.md";
const CONTRIBUTORS: &str = "src/README.md";
const BEHAVIOR: &str = ".github/BEHAVIOR.md";
const DIFFERENCES: &str = "testdata/recorded/differences.md";
const RECIPES: &str = ".github/CONTRIBUTING.md";
const TESTS: &str = "tests/README.md";
const PAGES: [&str; 15] = [
    "README.md",
    ".github/CHANGELOG.md",
    ".github/ERRORS.md",
    ".github/REFERENCE.md",
    ".github/RUNBOOK.md",
    ".github/SECURITY.md",
    "conflist-examples/README.md",
    "conflist-examples/kubernetes/README.md",
    DIFFERENCES,
    RECIPES,
    BEHAVIOR,
    CONTRIBUTORS,
    TESTS,
    "tests/kubelet/README.md",
    CONTRACT,
];

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn page(name: &str) -> String {
    read(&package().join(name))
}

/// The page without its blocks of code.
fn prose(page: &str) -> String {
    page.split("\n```").step_by(2).collect()
}

/// The anchors of a page: explicit ones, and those of headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let explicit = page.split("<a id=\"").skip(1);
    let explicit = explicit.map(|rest| rest.split('"').next().unwrap().to_owned());
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let headings = headings.map(|line| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words.replace(' ', "-");
        kept.chars()
            .filter(|c| c.is_alphanumeric() || "-_".contains(*c))
            .collect()
    });
    explicit.chain(headings).collect()
}

/// The targets of a page's links to other files and sections.
fn links(page: &str) -> Vec<String> {
    let targets = page.split("](").skip(1);
    targets
        .map(|rest| rest.split(')').next().unwrap().to_owned())
        .filter(|target| !target.starts_with("https://"))
        .collect()
}

/// The texts in backticks.
fn quoted(page: &str) -> Vec<String> {
    let parts = page.split('`').skip(1).step_by(2);
    parts.map(str::to_owned).collect()
}

#[test]
fn links_and_anchors_resolve() {
    let mut count = 0;
    for name in PAGES {
        let text = prose(&page(name));
        let here = package().join(name);
        let targets = links(&text);
        assert!(!targets.is_empty(), "{name}");
        count += targets.len();
        for target in targets {
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = match path {
                "" => here.clone(),
                path => here.parent().unwrap().join(path),
            };
            assert!(file.exists(), "{name}: {target} does not exist");
            if !anchor.is_empty() {
                let found = anchors(&prose(&read(&file)));
                assert!(
                    found.contains(anchor),
                    "{name}: {target} has no such anchor"
                );
            }
        }
    }
    assert!(count > 100, "{count}");
}

#[test]
fn files_named_for_contributors_exist() {
    let text = [CONTRIBUTORS, RECIPES]
        .map(|name| prose(&page(name)))
        .concat();
    let mut count = 0;
    for words in quoted(&text) {
        let path = words.split(' ').next().unwrap();
        let is_path =
            path.ends_with(".rs") || path.starts_with("tests/") || path.starts_with(".ci/");
        // The recipes create files whose names contain "example".
        if !is_path || path.contains("example") {
            continue;
        }
        let folder = match path.split('/').next() {
            Some("tests" | ".ci") => "",
            _ => "src",
        };
        let file = package().join(folder).join(path);
        assert!(file.exists(), "{path} does not exist");
        count += 1;
    }
    assert!(count > 40, "only {count} files are named");
}

/// The stages of a line such as `readonly GATE=(lint unit)` or `stage: [lint, unit]`.
fn stages(file: &str, before: &str, after: char) -> Vec<String> {
    let text = page(file);
    let list = text
        .split_once(before)
        .unwrap_or_else(|| panic!("{file}: {before} not found"))
        .1;
    list.split(after)
        .next()
        .unwrap()
        .split([' ', ','])
        .filter(|stage| !stage.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn workflows_run_every_stage() {
    let gate = stages(".ci/run", "readonly GATE=(", ')');
    assert_eq!(stages(".github/workflows/ci.yml", "stage: [", ']'), gate);
    let nightly = ".github/workflows/nightly.yml";
    let in_matrix = stages(nightly, "stage: [", ']');
    let text = page(nightly);
    let long = stages(".ci/run", "readonly LONG_STAGES=(", ')');
    for stage in &long {
        let has_a_job = text.contains(&format!("run: .ci/run {stage}\n"));
        assert!(in_matrix.contains(stage) || has_a_job, "{stage}");
    }
    // Stages of the gate also appear in the matrix, for LONG=1.
    for stage in &in_matrix {
        assert!(gate.contains(stage) || long.contains(stage), "{stage}");
    }
}

#[test]
fn every_stage_is_described() {
    let described = page(TESTS);
    for array in ["GATE", "LONG_STAGES"] {
        for stage in stages(".ci/run", &format!("readonly {array}=("), ')') {
            assert!(described.contains(&format!("\n| `{stage}` |")), "{stage}");
        }
    }
}

/// The numbers that a text cites after `word`: "sections 5, 9-12" cites 5, 9 and 12, "differences D4 and D5" 4 and 5.
fn cited(text: &str, word: &str, letter: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    for after in text.split(word).skip(1) {
        let words = after
            .split([' ', ',', '-'])
            .map(|w| w.trim_end_matches(['.', ')', ':', ';']));
        let mut words = words.skip_while(|w| ["", "s"].contains(w));
        let is_joint = |w: &&str| ["", "and"].contains(w);
        let number = |w: &str| w.strip_prefix(letter)?.parse::<u32>().ok();
        let all = words.by_ref().filter(|w| !is_joint(w)).map(number);
        numbers.extend(all.map_while(|number| number));
    }
    numbers
}

#[test]
fn citations_in_comments_resolve() {
    let contract = anchors(&page(CONTRACT));
    let promises = anchors(&page(BEHAVIOR));
    let differences = anchors(&page(DIFFERENCES));
    let mut count = 0;
    for folder in ["src", "tests/it"] {
        for path in rust_files(&package().join(folder)) {
            // A citation may continue on the next line.
            let text = read(&path)
                .lines()
                .map(|line| {
                    line.trim_start()
                        .trim_start_matches('/')
                        .trim_start_matches('!')
                })
                .map(str::trim)
                .collect::<Vec<_>>()
                .join(" ");
            for (word, letter, anchor, known) in [
                ("contract section", "", "section-", &contract),
                ("contract, section", "", "section-", &contract),
                ("promise", "P", "p", &promises),
                ("difference", "D", "d", &differences),
            ] {
                for number in cited(&text, word, letter) {
                    let anchor = format!("{anchor}{number}");
                    let path = path.display();
                    assert!(
                        known.contains(&anchor),
                        "{path} cites {word} {letter}{number}"
                    );
                    count += 1;
                }
            }
        }
    }
    assert!(count > 60, "only {count} citations were found");
}
