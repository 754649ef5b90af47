//! A plugin folder of a node, with the original or a stand-in for it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::genuine_azure_vnet::host::{REPLACED, original_folder};
use crate::harness::{Node, binary, sh_with};

pub const V4: &str = "azure-vnet-ipam";
pub const V6: &str = "azure-vnet-ipamv6";
pub const KEPT: &str = "azure-vnet-ipam.orig";

/// These bytes mark an executable of this program. Its version follows them.
const MARK: &[u8] = b"\x8e\x31\xd7\x0c\xf2\x96\x4b\xa5\x1d\xe8\x73\xb0\x5f\xc4\x29\x9a";

/// The file at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Link(PathBuf),
    /// A file: whether it is the program under test, its first bytes, its length, and its mode.
    File(bool, String, usize, u32),
}

/// `/opt/cni/bin` of a node.
pub struct PluginFolder {
    pub node: Node,
    pub path: PathBuf,
}

impl PluginFolder {
    pub fn new(name: &str) -> PluginFolder {
        PluginFolder::on(Node::new(name))
    }

    pub fn on(node: Node) -> PluginFolder {
        let path = node.path("/opt/cni/bin");
        fs::create_dir_all(&path).unwrap();
        PluginFolder { node, path }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Installs a file, executable for every user. Replaces an existing file, as a node upgrade does.
    pub fn put(&self, name: &str, content: &[u8]) {
        let file = self.node.path("/content");
        fs::write(&file, content).unwrap();
        self.put_executable(name, &file);
    }

    /// Installs a copy of a file. It can be executed at once, because no process of this test has it open for
    /// writing.
    pub fn put_executable(&self, name: &str, from: &Path) {
        let new = self.file("test.new");
        sh_with("install -m 755 \"$1\" \"$2\"", &[from, &new]);
        fs::rename(new, self.file(name)).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.file(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Examines a path without following links.
    pub fn found(&self, name: &str) -> Found {
        let path = self.file(name);
        let Ok(meta) = fs::symlink_metadata(&path) else {
            return Found::Nothing;
        };
        if meta.is_symlink() {
            return Found::Link(fs::read_link(path).unwrap());
        }
        let content = fs::read(path).unwrap();
        let start = String::from_utf8_lossy(&content[..content.len().min(200)]).into_owned();
        let mode = meta.permissions().mode() & 0o7777;
        Found::File(self.is_ours(name), start, content.len(), mode)
    }

    /// Returns whether the file is the program under test.
    pub fn is_ours(&self, name: &str) -> bool {
        let (file, program) = (self.file(name), binary());
        let length = |path: &Path| fs::metadata(path).unwrap().len();
        length(&file) == length(&program) && fs::read(file).unwrap() == fs::read(program).unwrap()
    }

    /// The names of all files, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.path).unwrap();
        let mut names: Vec<_> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// A program that answers VERSION as the original does, and no other command. `salt` makes its content unique.
pub fn original(salt: &str) -> Vec<u8> {
    let answer = r#"{"cniVersion":"1.0.0","supportedVersions":["0.4.0"]}"#;
    format!("#!/bin/sh\n# {salt}\n[ \"$CNI_COMMAND\" = VERSION ] && echo '{answer}'\n").into_bytes()
}

/// The original, or a stand-in if the original was not built.
pub struct Original {
    pub path: PathBuf,
    pub bytes: Vec<u8>,
    pub is_stand_in: bool,
}

impl Original {
    pub fn new(node: &Node) -> Original {
        let mut path = original_folder(REPLACED).join(V4);
        let is_stand_in = !path.is_file();
        if is_stand_in {
            say("tests/original/build did not build the original; a stand-in takes its place");
            path = working_original(node);
        }
        let bytes = fs::read(&path).unwrap();
        Original {
            path,
            bytes,
            is_stand_in,
        }
    }
}

/// Prints a text that the test runner does not hide when the test succeeds.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// The program under test with other bytes at this offset from its mark.
fn with_other_mark(offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut program = fs::read(binary()).unwrap();
    let mut places = program.windows(MARK.len()).enumerate();
    let (place, _) = places.find(|(_, bytes)| *bytes == MARK).unwrap();
    assert!(places.all(|(_, bytes)| bytes != MARK), "two marks");
    program[place + offset..][..bytes.len()].copy_from_slice(bytes);
    program
}

/// The bytes of a plugin that works like this one, but has no mark and so counts as another program.
pub fn unmarked() -> Vec<u8> {
    with_other_mark(0, &[0; MARK.len()])
}

/// Creates a plugin that works like this one, but counts as another program.
pub fn working_original(node: &Node) -> PathBuf {
    let original = node.path("/original");
    fs::write(node.path("/unmarked"), unmarked()).unwrap();
    sh_with(
        "install -m 755 \"$1\" \"$2\"",
        &[&node.path("/unmarked"), &original],
    );
    original
}

/// Creates a plugin that works like this one, but reports another version.
pub fn working_other_version(node: &Node, version: &str) -> PathBuf {
    let other = node.path("/other-version");
    let program = with_other_mark(MARK.len(), format!("{version}\0").as_bytes());
    fs::write(node.path("/marked"), program).unwrap();
    sh_with(
        "install -m 755 \"$1\" \"$2\"",
        &[&node.path("/marked"), &other],
    );
    other
}
