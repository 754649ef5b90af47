//! The manual page and the completions on the disk, for both names of the program.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::cni::{NAME, NAME_V6};
use crate::host::{ReadOutcome, io_reason, read_no_link, replace};
use crate::ops::cli::Shell;
use crate::ops::{completions, man};

/// Everybody may read them.
const MODE: u32 = 0o644;

/// Larger ones are not ours.
const LIMIT: usize = 4 << 20;

/// What a file holds.
enum Content {
    /// This text. Texts of other versions have the same part `sign`.
    Text { text: String, sign: String },
    /// Nothing: it is a link to a file in the same folder.
    LinkTo(String),
}

/// A file of the documentation.
struct Document {
    path: PathBuf,
    content: Content,
}

/// What became of the documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The files that were written or removed.
    pub files: Vec<PathBuf>,
    /// Why others were not.
    pub problems: Vec<String>,
}

/// Writes all files below `prefix`. Files of others at their paths stay as they are.
pub fn write(prefix: &Path) -> Outcome {
    each_document(prefix, |document| {
        if document.belongs_to_others()? {
            return Err(io::Error::other("it is not of this program and stays"));
        }
        document.write().map(|()| true)
    })
}

/// Removes those files below `prefix` that are ours.
pub fn remove(prefix: &Path) -> Outcome {
    each_document(prefix, |document| {
        let is_there = fs::symlink_metadata(&document.path).is_ok();
        if !is_there || document.belongs_to_others()? {
            return Ok(false);
        }
        fs::remove_file(&document.path).map(|()| true)
    })
}

fn each_document(prefix: &Path, act: impl Fn(&Document) -> io::Result<bool>) -> Outcome {
    let mut outcome = Outcome::default();
    for document in documents(prefix) {
        let path = document.path.display();
        match act(&document) {
            Ok(true) => outcome.files.push(document.path),
            Ok(false) => {}
            Err(e) => outcome.problems.push(format!("{path}: {}", io_reason(&e))),
        }
    }
    outcome
}

fn documents(prefix: &Path) -> Vec<Document> {
    let share = prefix.join("share");
    let text = |folder: &str, file: &str, text: String, sign: String| Document {
        path: share.join(folder).join(file),
        content: Content::Text { text, sign },
    };
    let link = |folder: &str, file: &str, to: &str| Document {
        path: share.join(folder).join(file),
        content: Content::LinkTo(to.to_owned()),
    };
    const MAN: &str = "man/man8";
    const BASH: &str = "bash-completion/completions";
    const ZSH: &str = "zsh/site-functions";
    const FISH: &str = "fish/vendor_completions.d";
    let (page, page_v6) = (format!("{NAME}.8"), format!("{NAME_V6}.8"));
    let (fish, fish_v6) = (format!("{NAME}.fish"), format!("{NAME_V6}.fish"));
    vec![
        text(
            MAN,
            &page,
            man::page().unwrap_or_default(),
            format!(".TH {} 8 ", NAME.to_ascii_uppercase()),
        ),
        link(MAN, &page_v6, &page),
        text(
            BASH,
            NAME,
            completions::script(Shell::Bash),
            format!(" -o bashdefault -o default {NAME_V6}\n"),
        ),
        // Both shells look for a file that has the name of the command.
        link(BASH, NAME_V6, NAME),
        text(
            ZSH,
            &format!("_{NAME}"),
            completions::script(Shell::Zsh),
            format!("#compdef {NAME} {NAME_V6}\n"),
        ),
        text(
            FISH,
            &fish,
            completions::script(Shell::Fish),
            format!("complete -c {NAME_V6} -w {NAME}\n"),
        ),
        link(FISH, &fish_v6, &fish),
    ]
}

impl Document {
    /// Returns whether somebody else's file is at its path.
    fn belongs_to_others(&self) -> io::Result<bool> {
        let meta = match fs::symlink_metadata(&self.path) {
            Ok(meta) => meta,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e),
        };
        Ok(match &self.content {
            Content::LinkTo(target) => {
                !meta.is_symlink() || fs::read_link(&self.path)? != Path::new(target)
            }
            Content::Text { sign, .. } if meta.is_file() => {
                match read_no_link(&self.path, LIMIT)? {
                    ReadOutcome::Read(bytes) => !String::from_utf8_lossy(&bytes).contains(sign),
                    ReadOutcome::TooLarge => true,
                    ReadOutcome::Missing => false,
                }
            }
            Content::Text { .. } => true,
        })
    }

    fn write(&self) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        match &self.content {
            Content::Text { text, .. } => replace(&self.path, text.as_bytes(), MODE),
            // One that is there is right.
            Content::LinkTo(target) => match symlink(target, &self.path) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
                _ => Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_files_are_replaced_and_removed() {
        let prefix = std::env::temp_dir().join(format!("docs-{}", std::process::id()));
        let _ = fs::remove_dir_all(&prefix);
        let written = write(&prefix);
        assert_eq!((written.files.len(), written.problems), (7, Vec::new()));
        assert_eq!(write(&prefix).files.len(), 7, "again");
        for link in written.files.iter().filter(|path| path.is_symlink()) {
            assert!(fs::metadata(link).unwrap().is_file(), "{link:?}");
        }
        let page = prefix.join("share/man/man8/azure-vnet-ipam.8");
        fs::write(&page, "another page").unwrap();
        let link = prefix.join("share/bash-completion/completions/azure-vnet-ipamv6");
        fs::remove_file(&link).unwrap();
        symlink("elsewhere", &link).unwrap();
        for outcome in [write(&prefix), remove(&prefix)] {
            assert_eq!(outcome.files.len(), 5);
            assert!(!outcome.files.contains(&page) && !outcome.files.contains(&link));
            assert!([0, 2].contains(&outcome.problems.len()), "{outcome:?}");
        }
        assert_eq!(fs::read(&page).unwrap(), b"another page");
        assert!(link.is_symlink());
        assert_eq!(remove(&prefix), Outcome::default());
        fs::remove_dir_all(&prefix).unwrap();
    }
}
