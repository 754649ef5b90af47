//! What stands at a path of the plugin folder: this program, the original, something foreign, or nothing.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::elf::Elf;
use super::{go_build_info, marker};
use crate::host::open;

/// The Go module of the original.
const ORIGINAL: &str = "github.com/Azure/azure-container-networking";

/// Whose file it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Nothing, or a link that leads nowhere.
    #[default]
    Nothing,
    /// This program, in any version.
    Ours,
    /// The original plugin, or another program of its module.
    Original,
    /// Any other file.
    Foreign,
    /// A folder or a device.
    NotAFile,
}

/// What stands at a path. Of a link, all but `link` and `identity` concern the file that it leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Occupant {
    /// Whose it is.
    pub kind: Kind,
    /// The version, if it names one.
    pub version: Option<String>,
    /// The SHA-256 of a file, in hexadecimal.
    pub sha256: Option<String>,
    /// Where a symbolic link leads.
    pub link: Option<PathBuf>,
    /// Whether it may be executed.
    pub executable: bool,
    /// The device and the inode of the path itself.
    #[serde(skip)]
    pub identity: Option<(u64, u64)>,
}

impl Occupant {
    /// Looks at a path.
    ///
    /// # Errors
    /// It exists but cannot be read.
    pub fn look(path: &Path) -> io::Result<Occupant> {
        let meta = match fs::symlink_metadata(path) {
            Ok(meta) => meta,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Occupant::default()),
            Err(e) => return Err(e),
        };
        let mut found = Occupant {
            identity: Some((meta.dev(), meta.ino())),
            ..Occupant::default()
        };
        if meta.is_symlink() {
            found.link = Some(fs::read_link(path)?);
        }
        match fs::metadata(path) {
            Ok(meta) if meta.is_file() => found.examine(open(path)?, &meta)?,
            Ok(_) => found.kind = Kind::NotAFile,
            Err(e) if leads_nowhere(&e) => {}
            Err(e) => return Err(e),
        }
        Ok(found)
    }

    /// Returns whether it is something other than this program that a runtime could execute.
    pub fn is_other_plugin(&self) -> bool {
        matches!(self.kind, Kind::Original | Kind::Foreign) && self.executable
    }

    /// Returns whether both are the same file, or files with the same content.
    pub fn is_same_as(&self, other: &Occupant) -> bool {
        let is_same_file = self.identity.is_some() && self.identity == other.identity;
        let has_same_content = self.sha256.is_some() && self.sha256 == other.sha256;
        is_same_file || has_same_content && self.link == other.link
    }

    /// Describes it, for a sentence.
    pub fn describe(&self) -> String {
        let version = self.version.as_deref();
        let what = match (self.kind, version) {
            (Kind::Nothing, _) if self.link.is_some() => "a link that leads nowhere".to_owned(),
            (Kind::Nothing, _) => "nothing".to_owned(),
            (Kind::Ours, version) => format!("this program, version {}", version.unwrap_or("?")),
            (Kind::Original, version) => format!("the original, {}", version.unwrap_or("?")),
            (Kind::Foreign, Some(module)) => format!("a Go program of {module}"),
            (Kind::Foreign, None) => "a file of neither this program nor the original".to_owned(),
            (Kind::NotAFile, _) => "a folder or a device".to_owned(),
        };
        match &self.link {
            Some(link) if self.kind != Kind::Nothing => {
                format!("a link to {} ({what})", link.display())
            }
            _ => what,
        }
    }

    fn examine(&mut self, file: File, meta: &Metadata) -> io::Result<()> {
        (self.kind, self.version) = classify(&file);
        self.executable = meta.permissions().mode() & 0o111 != 0 && meta.len() > 0;
        self.sha256 = Some(sha256(file)?);
        Ok(())
    }
}

/// Returns whether following a link failed because there is nothing at its end: it is missing, below a file, or in a circle.
fn leads_nowhere(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Finds out whose executable it is, and its version.
fn classify(file: &dyn super::elf::ReadAt) -> (Kind, Option<String>) {
    let Some(elf) = Elf::parse(file) else {
        return (Kind::Foreign, None);
    };
    if let Some(version) = marker::version(&elf) {
        return (Kind::Ours, Some(version));
    }
    match go_build_info::read(&elf) {
        Some(build) if build.module == ORIGINAL => (
            Kind::Original,
            Some(format!("{} built with {}", build.version, build.go)),
        ),
        Some(build) => (Kind::Foreign, Some(build.module)),
        None => (Kind::Foreign, None),
    }
}

/// Computes the SHA-256 of a file, in hexadecimal.
///
/// # Errors
/// It cannot be read.
pub fn sha256(mut file: File) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => digest.update(buffer.get(..read).unwrap_or_default()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let digest = digest.finalize();
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::super::go_build_info::testing::{go_executable, old_go_executable};
    use super::super::marker::testing::executable_of_version;
    use super::*;

    #[test]
    fn executables_are_told_apart() {
        let script = b"#!/bin/sh\nexec azure-vnet-ipam\n".to_vec();
        for (bytes, kind, version) in [
            (executable_of_version("0.2.0"), Kind::Ours, Some("0.2.0")),
            (
                go_executable(ORIGINAL),
                Kind::Original,
                Some("v1.4.59 built with go1.23.2"),
            ),
            (
                old_go_executable(ORIGINAL),
                Kind::Original,
                Some("v1.4.59 built with go1.17.13"),
            ),
            (
                go_executable("github.com/containernetworking/plugins"),
                Kind::Foreign,
                Some("github.com/containernetworking/plugins"),
            ),
            (
                go_executable(&format!("{ORIGINAL}/fork")),
                Kind::Foreign,
                Some("github.com/Azure/azure-container-networking/fork"),
            ),
            (script, Kind::Foreign, None),
            (Vec::new(), Kind::Foreign, None),
        ] {
            let (found, text) = classify(&bytes);
            assert_eq!((found, text.as_deref()), (kind, version));
        }
    }

    #[test]
    fn this_executable_is_recognised() {
        let own = open(Path::new("/proc/self/exe")).unwrap();
        let (kind, version) = classify(&own);
        assert_eq!(kind, Kind::Ours);
        assert_eq!(version.as_deref(), Some(crate::ops::build_info::LINE));
    }

    #[test]
    fn paths_are_looked_at_through_links() {
        let folder = std::env::temp_dir().join(format!("occupant-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("folder")).unwrap();
        let path = |name: &str| folder.join(name);
        fs::write(path("file"), "abc").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        std::os::unix::fs::symlink("gone", path("nowhere")).unwrap();
        fs::hard_link(path("file"), path("twin")).unwrap();
        let look = |name: &str| Occupant::look(&path(name)).unwrap();
        let (file, link) = (look("file"), look("link"));
        // As sha256sum prints it.
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(file.sha256.as_deref(), Some(sum));
        assert!(!file.executable && !file.is_other_plugin());
        assert_eq!((link.kind, &link.sha256), (Kind::Foreign, &file.sha256));
        assert_eq!(link.link.as_deref(), Some(Path::new("file")));
        assert!(file.is_same_as(&look("twin")) && !file.is_same_as(&link));
        for (name, target) in [("circle", "circle"), ("below", "file/x")] {
            std::os::unix::fs::symlink(target, path(name)).unwrap();
            let found = look(name);
            assert_eq!((found.kind, found.link.is_some()), (Kind::Nothing, true));
        }
        let (nowhere, gone) = (look("nowhere"), look("gone"));
        assert_eq!((nowhere.kind, gone.kind), (Kind::Nothing, Kind::Nothing));
        assert!(nowhere.link.is_some() && !nowhere.is_same_as(&gone));
        assert!(!gone.is_same_as(&gone), "a missing file equals nothing");
        assert_eq!(look("folder").kind, Kind::NotAFile);
        fs::remove_dir_all(&folder).unwrap();
    }
}
