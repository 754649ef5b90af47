//! What stands at a path: nothing, this program, or another file.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use crate::host::{io_reason, open};
use crate::ops::build_info;

/// Every executable of this program has this mark, with the version behind it.
#[repr(C)]
struct Mark {
    magic: [u8; 16],
    version: [u8; VERSION],
    end: u8,
}

const VERSION: usize = build_info::LINE.len();

static MARK: Mark = Mark {
    // Random. It must stay the same in all versions.
    magic: *b"\x8e\x31\xd7\x0c\xf2\x96\x4b\xa5\x1d\xe8\x73\xb0\x5f\xc4\x29\x9a",
    version: match build_info::LINE.as_bytes().first_chunk() {
        Some(version) => *version,
        None => [0; VERSION],
    },
    end: 0,
};

/// What stands at a path, or where a link at that path leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing, not even a link.
    Nothing,
    /// The executable that runs now, and it may be executed.
    This,
    /// This program in any other version, or with a mode that does not let it be executed.
    Ours,
    /// Any other file, or a link that leads nowhere.
    Other,
    /// A folder or a device.
    NotAFile,
}

/// Looks at a path. `own` is the path of this executable. Returns a description too, for a sentence.
///
/// # Errors
/// It exists but cannot be read.
pub fn look(path: &Path, own: &Path) -> io::Result<(Kind, String)> {
    let link = match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Ok((Kind::Nothing, "nothing".to_owned()));
        }
        Ok(meta) if meta.is_symlink() => Some(fs::read_link(path)?),
        found => found.map(|_| None)?,
    };
    let (kind, text) = match fs::metadata(path) {
        Ok(meta) if !meta.is_file() => (Kind::NotAFile, "a folder or a device".to_owned()),
        Ok(meta) => examine(path, own, meta.permissions().mode())?,
        Err(e) if link.is_some() => (Kind::Other, io_reason(&e)),
        Err(e) => return Err(e),
    };
    let text = match link {
        Some(link) => format!("a link to {} ({text})", link.display()),
        None => text,
    };
    Ok((kind, text))
}

fn examine(path: &Path, own: &Path, mode: u32) -> io::Result<(Kind, String)> {
    let Some(version) = marked_version(&open(path)?)? else {
        return Ok((Kind::Other, "another file".to_owned()));
    };
    let text = format!("this program, version {version}");
    match (mode & 0o111 != 0, is_same(open(path)?, open(own)?)?) {
        (true, true) => Ok((Kind::This, text)),
        (true, false) => Ok((Kind::Ours, text)),
        (false, _) => Ok((
            Kind::Ours,
            format!("{text}, with mode {:04o}", mode & 0o7777),
        )),
    }
}

/// Returns the version in the mark of an executable, such as `0.2.0 (commit abc1234, x86_64-unknown-linux-musl, tls)`. Returns
/// `None` for what is not an executable of this program, such as an archive with one in it.
fn marked_version(file: &File) -> io::Result<Option<String>> {
    /// Longer than a mark.
    const OVERLAP: usize = 512;
    const CHUNK: u64 = 64 << 10;
    let mut format = [0; 4];
    if file.read_at(&mut format, 0)? < format.len() || format != *b"\x7fELF" {
        return Ok(None);
    }
    // As a constant, it would stand in the executable a second time.
    let magic = &black_box(&MARK).magic;
    let mut bytes = Vec::new();
    loop {
        let read = file.take(CHUNK).read_to_end(&mut bytes)?;
        let mut places = bytes.windows(magic.len());
        let found = places.position(|place| place.first() == magic.first() && place == magic);
        let rest = found.and_then(|place| bytes.get(place + magic.len()..));
        if let Some(rest) = rest.filter(|rest| read == 0 || rest.len() >= OVERLAP - magic.len()) {
            let version = rest.split(|byte| *byte == 0).next().unwrap_or_default();
            return Ok(Some(String::from_utf8_lossy(version).into_owned()));
        }
        if read == 0 {
            return Ok(None);
        }
        bytes.drain(..bytes.len().saturating_sub(OVERLAP));
    }
}

/// Returns whether two files have the same content.
fn is_same(one: File, other: File) -> io::Result<bool> {
    let (mut one, mut other) = (BufReader::new(one), BufReader::new(other));
    loop {
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let length = left.len().min(right.len());
        if length == 0 {
            return Ok(left.len() == right.len());
        }
        if left.get(..length) != right.get(..length) {
            return Ok(false);
        }
        one.consume(length);
        other.consume(length);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    const OWN: &str = "/proc/self/exe";

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let folder =
                std::env::temp_dir().join(format!("occupant-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            Folder(folder)
        }

        fn put(&self, name: &str, content: &[u8], mode: u32) {
            let path = self.0.join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }

        fn look(&self, name: &str) -> (Kind, String) {
            look(&self.0.join(name), Path::new(OWN)).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn executables_of_this_program_are_recognised() {
        let folder = Folder::new("ours");
        let own = fs::read(OWN).unwrap();
        let this = format!("this program, version {}", build_info::LINE);
        folder.put("this", &own, 0o755);
        assert_eq!(folder.look("this"), (Kind::This, this.clone()));
        folder.put("this", &own, 0o644);
        assert_eq!(
            folder.look("this"),
            (Kind::Ours, this.clone() + ", with mode 0644")
        );
        folder.put("longer", &[&own[..], b"x"].concat(), 0o755);
        assert_eq!(folder.look("longer"), (Kind::Ours, this));
        folder.put("archive", &[b"x", &own[..]].concat(), 0o755);
        assert_eq!(folder.look("archive").0, Kind::Other);
    }

    #[test]
    fn mark_is_found_wherever_it_stands() {
        let folder = Folder::new("mark");
        let executable = |before: usize, mark: &[u8], after: usize| {
            [
                b"\x7fELF",
                &vec![0x8e; before][..],
                mark,
                &vec![0xff; after],
            ]
            .concat()
        };
        let mark = [&MARK.magic[..], b"0.1.9 (x)\0"].concat();
        for before in [
            0, 1, 65_000, 65_500, 65_520, 65_532, 65_536, 131_060, 200_000,
        ] {
            for after in [0, 1, 600, 70_000] {
                folder.put("x", &executable(before, &mark, after), 0o755);
                let expected = "this program, version 0.1.9 (x)".to_owned();
                assert_eq!(folder.look("x"), (Kind::Ours, expected), "{before} {after}");
                folder.put("x", &executable(before, &mark[..15], after), 0o755);
                assert_eq!(folder.look("x").0, Kind::Other, "{before} {after}");
            }
        }
    }

    #[test]
    fn links_are_followed() {
        let folder = Folder::new("links");
        folder.put("file", b"", 0o755);
        fs::create_dir(folder.0.join("folder")).unwrap();
        let other = (Kind::Other, "another file".to_owned());
        assert_eq!(folder.look("file"), other);
        assert_eq!(folder.look("gone"), (Kind::Nothing, "nothing".to_owned()));
        assert_eq!(folder.look("folder").0, Kind::NotAFile);
        for (target, kind, text) in [
            ("file", Kind::Other, "another file"),
            (OWN, Kind::This, "this program, version "),
            ("folder", Kind::NotAFile, "a folder or a device"),
            ("/dev/null", Kind::NotAFile, "a folder or a device"),
            ("gone", Kind::Other, "no such file or directory"),
            ("file/x", Kind::Other, "not a directory"),
            ("link", Kind::Other, "too many levels of symbolic links"),
        ] {
            let link = folder.0.join("link");
            symlink(target, &link).unwrap();
            let (found, found_text) = folder.look("link");
            let expected = format!("a link to {target} ({text}");
            assert!(
                found == kind && found_text.starts_with(&expected),
                "{found:?} {found_text}"
            );
            fs::remove_file(link).unwrap();
        }
    }
}
