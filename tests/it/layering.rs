//! The house rules that a compiler does not check.

mod sources;

use std::collections::{BTreeMap, BTreeSet};

use sources::{Source, Sources, cut_tests, paths_in};

/// The rooms, each of which may use those before it and itself.
const ROOMS: [&str; 13] = [
    "codec", "ipam", "cni", "host", "source", "state", "evidence", "events", "log", "stdio",
    "failure", "plugin", "ops",
];

/// The most lines that a file has without its tests, unless its first line gives a reason.
const LONGEST: usize = 600;

fn room(name: &str) -> Option<usize> {
    ROOMS.iter().position(|room| *room == name)
}

#[test]
fn rooms_use_only_those_before_them() {
    let sources = Sources::read();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for source in sources.iter() {
        let Some(here) = source.module.first().and_then(|name| room(name)) else {
            continue;
        };
        for used in sources.used_by(source) {
            seen += 1;
            if room(&used[0]).is_none_or(|there| there > here) {
                wrong.push(format!(
                    "{} uses {}",
                    source.file.display(),
                    used.join("::")
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 300, "only {seen} uses were found");
}

#[test]
fn modules_of_a_folder_do_not_use_each_other_in_a_circle() {
    let sources = Sources::read();
    let mut circles = Vec::new();
    for folder in sources.folders() {
        // The name of the part of the folder that a module belongs to; the folder's own `mod.rs` is one of them.
        let part = |module: &[String]| {
            let inside = module.strip_prefix(&folder[..])?;
            Some(inside.first().map_or("mod", String::as_str).to_owned())
        };
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for source in sources.iter() {
            if let Some(here) = part(&source.module) {
                let used = sources.used_by(source);
                let parts = used.iter().filter_map(|module| part(module));
                uses.entry(here.clone())
                    .or_default()
                    .extend(parts.filter(|part| *part != here));
            }
        }
        let circle = parts_in_circles(uses);
        let name = folder.join("/");
        if !circle.is_empty() {
            circles.push(format!("{name}: {circle:?}"));
        }
    }
    assert!(circles.is_empty(), "{circles:#?}");
}

/// What is left when everything is taken away that uses nothing, or is used by nothing, of what is left.
fn parts_in_circles(
    mut uses: BTreeMap<String, BTreeSet<String>>,
) -> BTreeMap<String, BTreeSet<String>> {
    loop {
        let before = uses.len();
        let used: BTreeSet<String> = uses.values().flatten().cloned().collect();
        uses.retain(|part, uses| used.contains(part) && !uses.is_empty());
        let left: BTreeSet<String> = uses.keys().cloned().collect();
        for used in uses.values_mut() {
            used.retain(|part| left.contains(part));
        }
        if uses.len() == before {
            return uses;
        }
    }
}

#[test]
fn circles_are_found() {
    let graph = |edges: &[(&str, &[&str])]| {
        let edges = edges.iter().map(|(from, to)| {
            let to = to.iter().map(|part| (*part).to_owned());
            ((*from).to_owned(), to.collect())
        });
        let found = parts_in_circles(edges.collect());
        found.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(graph(&[("a", &["b"]), ("b", &["c"]), ("c", &[])]), [""; 0]);
    let circle = graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["b", "d"]), ("d", &[])]);
    assert_eq!(circle, ["b", "c"]);
}

#[test]
fn every_way_of_naming_a_module_is_seen() {
    let code = "use crate::plugin::Context;\nuse crate::{log, state::{self, Lock}};\n\
                pub use super::super::a::{B as C};\nlet x = crate::host::words(y::z); std::fs::read(&a.b)";
    let found: Vec<_> = paths_in(code).iter().map(|path| path.join("::")).collect();
    let expected = [
        "crate::plugin::Context",
        "crate::log",
        "crate::state",
        "crate::state::Lock",
        "super::super::a::B",
        "crate::host::words",
        "y::z",
        "std::fs::read",
    ];
    assert_eq!(found, expected);
}

#[test]
fn uses_are_found_where_they_lead_to() {
    let sources = Sources::read();
    let used_by = |file: &str| {
        let source = sources.iter().find(|source| source.file.ends_with(file));
        let used = sources.used_by(source.unwrap());
        used.iter().map(|m| m.join("::")).collect::<Vec<_>>()
    };
    assert_eq!(
        used_by("src/codec/values.rs"),
        ["codec::cursor", "codec::literals"]
    );
    assert_eq!(used_by("src/codec/mod.rs"), [""; 0], "it only passes on");
    assert!(used_by("src/host/clock.rs").contains(&"ipam::record".to_owned()));
}

#[test]
fn only_tests_are_cut_out_of_a_file() {
    let text = "a\n#[cfg(test)]\nmod tests;\nb\n    #[cfg(test)]\n    fn c() {\n        d;\n    }\n    e\n\
                #[cfg(test)]\n#[allow(x)]\nmod f {\n    g;\n}\nh\n";
    let (rest, modules) = cut_tests(text);
    assert_eq!(rest, "a\nb\n    e\nh\n");
    assert_eq!(modules, ["tests", "f"]);
}

#[test]
fn the_core_asks_nobody() {
    for source in Sources::read().iter() {
        if source.module.first().is_none_or(|room| room != "ipam") {
            continue;
        }
        for forbidden in [
            "std::fs",
            "std::env",
            "std::io",
            "std::process",
            "SystemTime",
            "Instant",
            "rustix",
            "tracing",
        ] {
            assert!(
                !source.code.contains(forbidden),
                "{} names {forbidden}",
                source.file.display()
            );
        }
    }
}

#[test]
fn files_stay_small() {
    let sources = Sources::read();
    let gives_reason = |source: &Source| source.first_line.contains("This file is long because");
    let too_long: Vec<_> = sources
        .iter()
        .filter(|source| source.lines > LONGEST && !gives_reason(source))
        .map(|source| format!("{}: {} lines", source.file.display(), source.lines))
        .collect();
    assert!(too_long.is_empty(), "without their tests: {too_long:#?}");
}

/// Where files are opened.
const OPENER: &str = "src/host/files.rs";

#[test]
fn files_are_opened_in_one_place() {
    let own = ["fs::read(", "fs::read_to_string", "fs::write", "fs::copy"];
    let types = ["File::open", "File::create", "File::options", "OpenOptions"];
    let crates = ["rustix::fs::open", "openat(", "libc::open"];
    let mut found = Vec::new();
    let mut seen = 0;
    for source in Sources::read().iter() {
        let calls = own.iter().chain(&types).chain(&crates);
        let calls: Vec<_> = calls.filter(|call| source.code.contains(**call)).collect();
        if source.file.ends_with(OPENER) {
            seen += calls.len();
        } else if !calls.is_empty() {
            found.push(format!("{}: {calls:?}", source.file.display()));
        }
    }
    assert!(
        found.is_empty(),
        "{found:#?}: a pipe or a device in the file's place would keep the call waiting"
    );
    assert!(seen > 0, "{OPENER} opens files");
}
