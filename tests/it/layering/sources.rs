//! The program's source files, and what each of them uses of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::harness::{package, rust_files};

/// A path in the module tree, such as `["host", "files"]`; empty for the crate itself.
pub type ModulePath = Vec<String>;

/// A source file without its tests and comments.
pub struct Source {
    pub file: PathBuf,
    pub module: ModulePath,
    /// Whether it is a `mod.rs`, so that `super` leads out of its folder.
    pub is_folder: bool,
    pub code: String,
}

/// All source files of the program; files of tests are left out.
pub struct Sources {
    all: BTreeMap<ModulePath, Source>,
}

impl Sources {
    pub fn read() -> Sources {
        let root = package().join("src");
        let mut all = BTreeMap::new();
        let mut tests = BTreeSet::new();
        for file in rust_files(&root) {
            // The build script is a program of its own.
            if file == root.join("build.rs") {
                continue;
            }
            let is_folder = file.ends_with("mod.rs") || file.ends_with("lib.rs");
            let mut module: ModulePath = file
                .strip_prefix(&root)
                .unwrap()
                .with_extension("")
                .iter()
                .map(|part| part.to_str().unwrap().to_owned())
                .collect();
            if is_folder {
                module.pop();
            }
            let (text, cut) = cut_tests(&fs::read_to_string(&file).unwrap());
            tests.extend(cut.into_iter().map(|name| [&module[..], &[name]].concat()));
            let source = Source {
                code: text
                    .lines()
                    .filter(|line| !line.trim_start().starts_with("//"))
                    .map(|line| format!("{line}\n"))
                    .collect::<String>()
                    .replace("pub(crate) use ", "pub use "),
                module: module.clone(),
                file,
                is_folder,
            };
            all.insert(module, source);
        }
        all.retain(|module, _| !tests.contains(module));
        Sources { all }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        self.all.values()
    }

    /// The folders of a room and of those inside it.
    pub fn folders(&self) -> impl Iterator<Item = &ModulePath> {
        let folders = self.iter().filter(|source| source.is_folder);
        folders
            .map(|source| &source.module)
            .filter(|module| !module.is_empty())
    }

    /// The modules that define what `source` uses. What a `mod.rs` passes on counts only where its own code names it too.
    pub fn used_by(&self, source: &Source) -> BTreeSet<ModulePath> {
        let code = match source.is_folder {
            true => without_reexports(&source.code),
            false => source.code.clone(),
        };
        let mut used: BTreeSet<ModulePath> = paths_in(&code)
            .iter()
            .filter_map(|path| self.absolute(source, path))
            .map(|path| self.definer(&path))
            .collect();
        if source.is_folder {
            for (name, path) in self.reexports(source) {
                if words(&code).any(|word| word == name) {
                    used.insert(self.definer(&path));
                }
            }
        }
        used.remove(&source.module);
        used.remove(&Vec::new());
        used
    }

    /// A path as it is written in a file, from the crate on; `None` for those of other crates and of local names.
    fn absolute(&self, source: &Source, path: &[String]) -> Option<ModulePath> {
        let mut here = source.module.clone();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([&here[..], &path[1..]].concat()),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                here.truncate(here.len().saturating_sub(up));
                Some([&here[..], &path[up..]].concat())
            }
            child => {
                let is_child = self
                    .all
                    .contains_key(&[&here[..], &[child.into()]].concat());
                is_child.then(|| [&here[..], path].concat())
            }
        }
    }

    /// The module that defines what a path leads to, whoever passes it on.
    fn definer(&self, path: &[String]) -> ModulePath {
        let mut module = ModulePath::new();
        for (n, part) in path.iter().enumerate() {
            let inner = [&module[..], std::slice::from_ref(part)].concat();
            if self.all.contains_key(&inner) {
                module = inner;
                continue;
            }
            let source = &self.all[&module];
            let passed_on = self
                .reexports(source)
                .into_iter()
                .find(|(name, _)| name == part);
            return match passed_on {
                Some((_, target)) => self.definer(&[&target[..], &path[n + 1..]].concat()),
                None => module,
            };
        }
        module
    }

    /// The names that a `mod.rs` passes on, each with the path that it stands for.
    fn reexports(&self, source: &Source) -> Vec<(String, ModulePath)> {
        if !source.is_folder {
            return Vec::new();
        }
        let statements = source.code.split("pub use ").skip(1);
        let trees = statements.flat_map(|text| use_tree(text.split(';').next().unwrap()));
        let paths = trees.filter_map(|path| self.absolute(source, &path));
        paths
            .filter_map(|path| Some((path.last()?.clone(), path)))
            .collect()
    }
}

/// Cuts out every item that only tests have. Returns the rest, and the names of the modules that were cut out.
pub fn cut_tests(text: &str) -> (String, Vec<String>) {
    let mut rest = String::new();
    let mut modules = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(indent) = line.strip_suffix("#[cfg(test)]") else {
            rest.push_str(line);
            rest.push('\n');
            continue;
        };
        let mut is_open = false;
        for line in lines.by_ref() {
            // The inside of an item is indented further.
            let Some(item) = line.strip_prefix(indent).filter(|l| !l.starts_with(' ')) else {
                continue;
            };
            if let Some(name) = item.strip_prefix("mod ") {
                modules.push(name.trim_end_matches([' ', ';', '{']).to_owned());
            }
            // What follows the brackets of a closed item, or an item of one line.
            if matches!(item, "}" | "};") || !is_open && item.ends_with(['}', ';']) {
                break;
            }
            is_open |= item.ends_with('{');
        }
    }
    (rest, modules)
}

/// The text without its `pub use` statements.
fn without_reexports(code: &str) -> String {
    let mut parts = code.split("pub use ");
    let first = parts.next().unwrap_or_default().to_owned();
    let after = parts.map(|part| part.split_once(';').map_or("", |(_, after)| after));
    first + &after.collect::<String>()
}

/// The paths in a text, whether in `use` statements or in code, with lists in braces taken apart.
pub fn paths_in(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut rest = code;
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if length > 0 && before != ':' && rest[length..].starts_with("::") {
            rest = read_tree(rest, &mut Vec::new(), &mut paths);
        } else {
            rest = &rest[length.max(c.len_utf8())..];
        }
        before = c;
    }
    paths
}

/// The paths of one `use` tree at the start of a text.
fn use_tree(text: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    read_tree(text, &mut Vec::new(), &mut paths);
    paths
}

/// Reads one tree, and returns what follows it.
fn read_tree<'a>(text: &'a str, above: &mut Vec<String>, paths: &mut Vec<Vec<String>>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = read_tree(rest, above, paths).trim_start();
            match rest.strip_prefix(',') {
                Some(after) => rest = after,
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let length = text.find(|c| !is_word(c)).unwrap_or(text.len());
    let (word, rest) = text.split_at(length);
    if word.is_empty() {
        return rest;
    }
    // Inside a list, `self` is the module itself.
    if word != "self" || above.is_empty() {
        above.push(word.to_owned());
    }
    let after = match rest.strip_prefix("::") {
        Some(inner) if inner.starts_with(|c| is_word(c) || c == '{') => {
            read_tree(inner, above, paths)
        }
        _ => {
            paths.push(above.clone());
            rest
        }
    };
    if word != "self" || above.len() == 1 && above[0] == "self" {
        above.pop();
    }
    after
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c| !is_word(c))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
