//! A plugin folder of a node, with the original or a stand-in for it.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::harness::{Node, binary, package, sh_with};

pub const MODULE: &str = "github.com/Azure/azure-container-networking";
pub const V4: &str = "azure-vnet-ipam";
pub const V6: &str = "azure-vnet-ipamv6";

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

    /// Puts a file there, executable for everybody. It replaces what is there, as a node upgrade does.
    pub fn put(&self, name: &str, content: &[u8]) {
        let new = self.file("test.new");
        fs::write(&new, content).unwrap();
        fs::set_permissions(&new, Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, self.file(name)).unwrap();
    }

    /// Puts an executable there that may be executed at once: no process of this test has it open for writing.
    pub fn put_executable(&self, name: &str, from: &Path) {
        let new = self.file("test.new");
        sh_with("install -m 755 \"$1\" \"$2\"", &[from, &new]);
        fs::rename(new, self.file(name)).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.file(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Returns whether the file is the program under test.
    pub fn is_ours(&self, name: &str) -> bool {
        self.read(name) == fs::read(binary()).unwrap()
    }

    /// The names of all files, in order.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.path).unwrap();
        let mut names: Vec<_> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// Makes the bytes of a Go executable of this module, which cannot be executed. `salt` makes different ones.
pub fn go_executable(module: &str, salt: &str) -> Vec<u8> {
    elf(".go.buildinfo", &go_build_info(module, salt))
}

/// The lines by which the original is recognised, in the order in which they stand in it.
pub fn build_lines(module: &str) -> [String; 2] {
    [
        format!("path\t{module}/cni/ipam/plugin\nmod\t{module}\t(devel)\t\n"),
        "build\t-ldflags=\"-X main.version=v1.4.59\"\n".to_owned(),
    ]
}

/// The build information that Go 1.18 and later put into executables.
pub fn go_build_info(module: &str, salt: &str) -> Vec<u8> {
    let [first, last] = build_lines(module);
    let modules = format!("0123456789abcdef{first}dep\t{salt:64}\n{last}0123456789abcdef");
    assert!(modules.len() > 0x7f && modules.len() < 0x3fff);
    let mut section = b"\xff Go buildinf:\x08\x02".to_vec();
    section.resize(32, 0);
    section.extend(b"\x08go1.23.2");
    let length = [modules.len() & 0x7f | 0x80, modules.len() >> 7];
    section.extend(length.map(|n| u8::try_from(n).unwrap()));
    section.extend(modules.bytes());
    section
}

/// An executable for amd64 with one section, as far as a reader of sections can tell.
fn elf(name: &str, content: &[u8]) -> Vec<u8> {
    let number = |n: usize| u64::try_from(n).unwrap().to_le_bytes();
    let names = format!("\0{name}\0.shstrtab\0");
    let table = 64 + content.len() + names.len();
    let mut out = b"\x7fELF\x02\x01\x01".to_vec();
    out.resize(40, 0);
    out.extend(number(table));
    out.resize(58, 0);
    for size in [64_u16, 3, 2] {
        out.extend(size.to_le_bytes());
    }
    out.extend(content);
    out.extend(names.bytes());
    out.resize(table + 64, 0);
    let name_of_names = name.len() + 2;
    for (name, start, length) in [
        (1, 64, content.len()),
        (name_of_names, 64 + content.len(), names.len()),
    ] {
        out.extend(u32::try_from(name).unwrap().to_le_bytes());
        out.extend([0; 20]);
        out.extend(number(start));
        out.extend(number(length));
        out.resize(out.len() + 24, 0);
    }
    out
}

/// The original. Where it was not built, a stand-in with the same build information takes its place.
pub struct Original {
    pub path: PathBuf,
    pub bytes: Vec<u8>,
    pub is_stand_in: bool,
}

impl Original {
    pub fn new(node: &Node) -> Original {
        let built = built(
            "AZURE_VNET_IPAM_ORIGINAL",
            "target/original/azure-vnet-ipam",
        );
        let is_stand_in = built.is_none();
        let path = built.unwrap_or_else(|| {
            say("tests/original/build did not build the original; a stand-in takes its place");
            working_original(node)
        });
        let bytes = fs::read(&path).unwrap();
        Original {
            path,
            bytes,
            is_stand_in,
        }
    }
}

/// The executable that a variable names, or the one at a path of the package.
fn built(variable: &str, path: &str) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(variable) {
        let named = PathBuf::from(named);
        assert!(named.is_file(), "{variable}: there is no {named:?}");
        return Some(named);
    }
    let path = package().join(path);
    path.is_file().then_some(path)
}

/// Says something that the test runner does not hide when the test succeeds.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Makes a plugin that works as this one, and looks like the original: without our section, and with Go's build information.
pub fn working_original(node: &Node) -> PathBuf {
    let info = node.path("/build-info");
    fs::write(&info, go_build_info(MODULE, "stand-in")).unwrap();
    let original = node.path("/original");
    sh_with(
        "objcopy --strip-debug --remove-section .azure_vnet_ipam --add-section .go.buildinfo=\"$1\" \"$2\" \"$3\"",
        &[&info, &binary(), &original],
    );
    original
}

/// Makes a plugin that works as this one, and says that it is of another version.
#[cfg(feature = "tls")]
pub fn working_other_version(node: &Node, version: &str) -> PathBuf {
    let (old, section) = (node.path("/old-section"), node.path("/new-section"));
    let other = node.path("/other-version");
    sh_with(
        "objcopy --dump-section .azure_vnet_ipam=\"$1\" \"$2\" /dev/null",
        &[&old, &binary()],
    );
    let mut content = fs::read(old).unwrap();
    let length = content.len();
    assert!((16 + version.len()..200).contains(&length), "{length}");
    content.truncate(16);
    content.extend(version.bytes());
    content.resize(length, 0);
    fs::write(&section, content).unwrap();
    sh_with(
        "objcopy --strip-debug --update-section .azure_vnet_ipam=\"$1\" \"$2\" \"$3\"",
        &[&section, &binary(), &other],
    );
    other
}
