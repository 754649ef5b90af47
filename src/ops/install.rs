//! `install` and `uninstall`: put this executable in the place of the original plugin, and bring the original back.
//!
//! Another file at the path becomes `.orig` if it answers VERSION as a CNI plugin. What does not answer never becomes `.orig`, and is
//! replaced only with `--force`. So `.orig` is the newest working plugin, and `uninstall` brings it back.
//!
//! Files are never renamed away, only over others, so a working plugin stands at the path at every moment, whatever kills the command.
//! A symbolic link at the path is replaced itself, never what it leads to: other names may lead to the same file.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use tracing::warn;

use super::cli::{InstallArgs, UninstallArgs};
use super::node::Node;
use super::node_config::NodeConfig;
use super::outcome::{
    CommandError, CommandOutput, OutputFormat, describe_operator, needs_root, start_log,
};
use super::probe::ask_version;
use super::screen::join_first;
use super::state_view::StateView;
use super::version::LINE;
use crate::cni::{CniVersion, NAME, NAME_V6};
use crate::failure::SUDO_REMEDY;
use crate::host::{LockOutcome, Paths, create_new, io_reason, lock_folder, open};
use crate::log;

/// The most that another `install` takes: two calls of VERSION that do not end, on a slow disk.
const WAIT: Duration = Duration::from_secs(60);

/// Everybody may execute it, only its owner may write it.
const MODE: u32 = 0o755;

/// What a command did or found at one path.
#[derive(Debug, Serialize)]
struct Outcome {
    path: PathBuf,
    /// Whether it is as the command should make it or find it.
    ok: bool,
    /// Whether the file was replaced or removed.
    changed: bool,
    text: String,
}

#[derive(Serialize)]
struct Report<'a> {
    time: String,
    plugins: &'a [Outcome],
}

/// Runs `install` or `install --verify`.
///
/// # Errors
/// The system refuses something. The plugin is what it was then.
pub fn run(node: &Node, args: &InstallArgs) -> Result<CommandOutput, CommandError> {
    let name = args.name.map_or(node.paths().name(), |name| name.as_str());
    let installation = Installation::new(&node.paths().of_plugin(name));
    let outcome = if args.verify {
        installation.verify(node)?
    } else {
        installation.install(node, args.force)?
    };
    print(node, args.format, &[outcome])
}

/// Runs `uninstall`.
///
/// # Errors
/// The system refuses something.
pub fn run_uninstall(node: &Node, args: &UninstallArgs) -> Result<CommandOutput, CommandError> {
    // The IPv6 plugin, and the original that is kept of it, may be links to the other plugin, which comes back first.
    let names = match args.name {
        Some(name) => vec![name.as_str()],
        None => vec![NAME, NAME_V6],
    };
    let mut outcomes: Vec<Outcome> = Vec::new();
    for name in names {
        let installation = Installation::new(&node.paths().of_plugin(name));
        match installation.uninstall(node, args.force) {
            Ok(outcome) => outcomes.push(outcome),
            // An error would hide what was done already.
            Err(error) if outcomes.iter().any(|outcome| outcome.changed) => {
                outcomes.push(installation.outcome(false, false, error.0 + "."));
            }
            Err(error) => return Err(error),
        }
    }
    print(node, args.format, &outcomes)
}

fn print(
    node: &Node,
    format: OutputFormat,
    plugins: &[Outcome],
) -> Result<CommandOutput, CommandError> {
    let time = node.now.wall_time(node.now.boot);
    let paragraph = |plugin: &Outcome| node.screen.paragraph("", 0, &plugin.text);
    let status = u8::from(plugins.iter().any(|plugin| !plugin.ok));
    let print = || plugins.iter().map(paragraph).collect();
    format.output(status, &Report { time, plugins }, print)
}

/// The plugin of one name, in the folder in which runtimes look for it.
#[derive(Clone, Debug)]
pub struct Installation {
    folder: PathBuf,
    path: PathBuf,
    /// The newest original.
    kept: PathBuf,
    /// The new executable, until it is in place.
    installing: PathBuf,
    /// The original that is kept, until it is at its path.
    keeping: PathBuf,
}

impl Installation {
    /// The plugin of these paths.
    pub fn new(paths: &Paths) -> Installation {
        let (folder, name) = (paths.plugin_folder(), paths.name());
        Installation {
            path: folder.join(name),
            kept: folder.join(format!("{name}.orig")),
            installing: folder.join(format!(".{name}.installing")),
            keeping: folder.join(format!(".{name}.saving")),
            folder,
        }
    }

    /// Returns what stands there instead of this executable, as a sentence.
    ///
    /// # Errors
    /// The file exists but cannot be read.
    pub fn replaced_by(&self, node: &Node) -> Result<Option<String>, CommandError> {
        let (kind, found) = self.identify(node, &self.path)?;
        let path = self.path.display();
        let text = format!("{path} is not this executable: there is {found}");
        Ok((kind != Kind::This).then_some(text))
    }

    fn verify(&self, node: &Node) -> Result<Outcome, CommandError> {
        let path = self.path.display();
        Ok(match self.replaced_by(node)? {
            None => self.outcome(true, false, format!("{path} is this executable, {LINE}.")),
            Some(text) => self.outcome(false, false, text + "."),
        })
    }

    /// Installs this executable there. Returns why it was refused, if it was.
    ///
    /// # Errors
    /// The system refuses something. The plugin is what it was then.
    pub fn reinstall(&self, node: &Node) -> Result<Option<String>, CommandError> {
        let outcome = self.install(node, false)?;
        Ok((!outcome.ok).then_some(outcome.text))
    }

    fn install(&self, node: &Node, force: bool) -> Result<Outcome, CommandError> {
        let folder = self.lock()?;
        self.remove_leftovers()?;
        let (kind, found) = self.identify(node, &self.path)?;
        let (path, kept) = (self.path.display(), self.kept.display());
        let is_kept = match kind {
            Kind::This if ask_version(&self.path).is_ok() => {
                let text = format!("{LINE} is installed already as {path}.");
                return Ok(self.outcome(true, false, text));
            }
            Kind::NotAFile => {
                return Ok(self.refused(&format!("at {path} there is {found}; remove it")));
            }
            Kind::Nothing | Kind::Ours | Kind::This => false,
            Kind::Other => match ask_version(&self.path) {
                Ok(_) => true,
                Err(_) if force => false,
                Err(why) => {
                    return Ok(self.refused(&format!(
                        "at {path} there is {found}, which {why}; if it is to be replaced, add --force, which does not keep it"
                    )));
                }
            },
        };
        self.replace(node, &folder, is_kept).inspect_err(|_| {
            let _ = self.remove_leftovers();
        })?;
        self.flush(&folder)?;
        note(node, &format!("{LINE} was installed as {path}"));
        let fate = match (kind, is_kept) {
            (_, true) => format!("{found}, kept as {kept}"),
            (Kind::Other, false) => format!("{found}, not kept as it does not answer VERSION"),
            _ => found,
        };
        let text = format!("{LINE} is installed as {path}. Before: {fate}.");
        Ok(self.outcome(true, true, text))
    }

    /// Writes this executable beside the plugin, tries it, and puts it in place. Keeps the plugin before that.
    fn replace(&self, node: &Node, folder: &File, is_kept: bool) -> Result<(), CommandError> {
        let own =
            open(&node.paths().own_executable()).map_err(self.failed("read this executable"))?;
        copy_file(&own, &self.installing, MODE).map_err(self.failed("write the new file"))?;
        ask_version(&self.installing).map_err(|why| {
            CommandError(format!(
                "{}: the new executable {why}. The plugin there is unchanged",
                self.path.display()
            ))
        })?;
        if is_kept {
            copy(&self.path, &self.keeping)
                .and_then(|()| fs::rename(&self.keeping, &self.kept))
                .and_then(|()| folder.sync_all())
                .map_err(self.failed("keep the original"))?;
        }
        fs::rename(&self.installing, &self.path).map_err(self.failed("replace the file"))
    }

    fn uninstall(&self, node: &Node, force: bool) -> Result<Outcome, CommandError> {
        let folder = self.lock()?;
        self.remove_leftovers()?;
        let (kind, found) = self.identify(node, &self.path)?;
        let (kept_kind, kept) = self.identify(node, &self.kept)?;
        let (path, kept_path) = (self.path.display(), self.kept.display());
        let is_ours = matches!(kind, Kind::This | Kind::Ours);
        let is_another = match kind {
            Kind::Other => ask_version(&self.path).is_ok(),
            kind => kind == Kind::NotAFile,
        };
        if is_another || !is_ours && kept_kind == Kind::Nothing {
            let text = format!("Nothing to do at {path}: there is {found}.");
            return Ok(self.outcome(true, false, text));
        }
        let mut kept_versions = Vec::new();
        let obstacle = match kept_kind {
            Kind::Nothing => Some(format!("no original is kept beside {path}")),
            Kind::Other => match ask_version(&self.kept) {
                Ok(versions) => {
                    kept_versions = versions;
                    None
                }
                Err(why) => Some(format!("{kept_path} is {kept}, which {why}")),
            },
            _ => Some(format!("{kept_path} is {kept}")),
        };
        let text = match obstacle {
            None if kind == Kind::Other && !force => {
                return Ok(self.refused(&format!(
                    "at {path} there is {found}, which does not answer VERSION as a CNI plugin does; add --force to replace it by {kept_path}"
                )));
            }
            None if is_state_lost(node) && !force => {
                return Ok(self.refused(&format!(
                    "{} is damaged, or only the backup has it, so the original would allocate addresses that pods have; wait until an ADD has repaired it, or add --force",
                    node.paths().state().display()
                )));
            }
            None => {
                fs::rename(&self.kept, &self.path).map_err(self.failed("replace the file"))?;
                let warning = self.unspoken_version(node, &kept_versions);
                format!(
                    "The original is back as {path}: {kept}.{}",
                    warning.unwrap_or_default()
                )
            }
            Some(_) if is_ours && force => {
                fs::remove_file(&self.path).map_err(self.failed("remove the file"))?;
                format!("{path} is removed; no plugin is installed there now.")
            }
            Some(why) if is_ours => {
                return Ok(self.refused(&format!(
                    "{why}, so pods whose configuration names the plugin would not start; if no configuration names it any more, add --force"
                )));
            }
            Some(why) => return Ok(self.refused(&format!("{why}, so that it cannot come back"))),
        };
        self.flush(&folder)?;
        note(node, &format!("{LINE} was uninstalled from {path}"));
        Ok(self.outcome(true, true, text))
    }

    /// The network configurations that ask the original, which speaks these CNI versions, for another one.
    fn unspoken_version(&self, node: &Node, spoken: &[String]) -> Option<String> {
        let name = self.path.file_name()?.to_str()?;
        let config = NodeConfig::read(node.paths());
        let files: BTreeSet<String> = config
            .ours(name)
            .filter(|(file, _)| {
                let chosen = file.chosen_version.as_deref().unwrap_or(file.version());
                !spoken.iter().any(|version| version == chosen)
            })
            .map(|(file, _)| file.path.display().to_string())
            .collect();
        let is_spoken = |text: &&str| spoken.iter().any(|version| version == text);
        let newest = CniVersion::texts().into_iter().rev().find(is_spoken)?;
        if files.is_empty() {
            return None;
        }
        Some(format!(
            " It speaks CNI up to {newest}, so every ADD fails until cniVersion is lowered in {}.",
            join_first(files)
        ))
    }

    fn outcome(&self, ok: bool, changed: bool, text: String) -> Outcome {
        Outcome {
            path: self.path.clone(),
            ok,
            changed,
            text,
        }
    }

    fn refused(&self, why: &str) -> Outcome {
        self.outcome(false, false, format!("Nothing was changed: {why}."))
    }

    fn identify(&self, node: &Node, path: &Path) -> Result<(Kind, String), CommandError> {
        let identified = identify(path, &node.paths().own_executable());
        identified.map_err(self.failed("read the file"))
    }

    /// Waits until no other `install` or `uninstall` works in the folder.
    fn lock(&self) -> Result<File, CommandError> {
        let folder = self.folder.display();
        match lock_folder(&self.folder, WAIT).map_err(self.failed("open the folder"))? {
            LockOutcome::Held(folder) => Ok(folder),
            LockOutcome::TimedOut => Err(CommandError(format!(
                "another install or uninstall is running in {folder} (`fuser -v {folder}` shows it); try again when it has ended"
            ))),
        }
    }

    /// Removes what a killed `install` left.
    fn remove_leftovers(&self) -> Result<(), CommandError> {
        let left = [&self.installing, &self.keeping].into_iter();
        // On a read-only file system, removing fails even if there is nothing.
        for path in left.filter(|path| fs::symlink_metadata(path).is_ok()) {
            fs::remove_file(path).map_err(self.failed("remove the rest of a killed install"))?;
        }
        Ok(())
    }

    /// Makes a change last.
    fn flush(&self, folder: &File) -> Result<(), CommandError> {
        folder.sync_all().map_err(|error| {
            CommandError(format!(
                "{} is replaced, but {} cannot be flushed to the disk: {}; a power cut may bring the old file back, so run the command again",
                self.path.display(),
                self.folder.display(),
                io_reason(&error)
            ))
        })
    }

    /// Describes a step that failed, and what to do about it.
    fn failed(&self, step: &'static str) -> impl Fn(io::Error) -> CommandError {
        let (path, folder) = (self.path.display(), self.folder.display());
        move |error| {
            let remedy = match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                    "--dir must name the folder of the runtime's plugins".to_owned()
                }
                _ if needs_root(&error) => SUDO_REMEDY.to_owned(),
                _ => format!(
                    "`ls -la {folder}; df -h {folder}; findmnt -T {path}; lsattr -d {path}` shows the usual causes"
                ),
            };
            CommandError(format!(
                "{path}: failed to {step}: {}; {remedy}. The plugin there is unchanged",
                io_reason(&error)
            ))
        }
    }
}

/// Whether the original, which knows neither backup nor rebuild, would not see the addresses that pods have: the file is damaged, or only the
/// backup has them. Calls may replace the file while it is read, so it must be gone for that.
fn is_state_lost(node: &Node) -> bool {
    let state = StateView::load(node).state;
    let is_only_in_backup = state.restored.is_some() && !node.paths().state().exists();
    state.corrupt.is_some() || is_only_in_backup
}

/// Copies a file with its mode, or a link as a link.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if let Ok(target) = fs::read_link(from) {
        return symlink(target, to);
    }
    let from = open(from)?;
    let mode = from.metadata()?.permissions().mode() & 0o7777;
    copy_file(&from, to, mode)
}

/// Copies a file, and flushes the copy to the disk. It is closed then: a file that is open for writing cannot be executed.
fn copy_file(mut from: &File, to: &Path, mode: u32) -> io::Result<()> {
    let mut copy = create_new(to, mode)?;
    io::copy(&mut from, &mut copy)?;
    // Whatever the umask.
    copy.set_permissions(Permissions::from_mode(mode))?;
    copy.sync_all()
}

/// Writes what was done, and by whom, to the log.
fn note(node: &Node, what: &str) {
    start_log(node.paths());
    warn!(target: "ipam", "{what} by {}.", describe_operator());
    log::flush(&node.paths().log());
}

/// Every executable of this program has this mark, followed by the version.
#[repr(C)]
struct Mark {
    magic: [u8; 16],
    version: [u8; VERSION],
    end: u8,
}

const VERSION: usize = LINE.len();

static MARK: Mark = Mark {
    // Random. It must stay the same in all versions.
    magic: *b"\x8e\x31\xd7\x0c\xf2\x96\x4b\xa5\x1d\xe8\x73\xb0\x5f\xc4\x29\x9a",
    version: match LINE.as_bytes().first_chunk() {
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
pub fn identify(path: &Path, own: &Path) -> io::Result<(Kind, String)> {
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

/// Returns the version in the mark of an executable, such as `0.3.0 (commit abc1234, x86_64-unknown-linux-musl, tls)`. Returns
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

        fn put(&self, name: &str, content: &[u8]) {
            let path = self.0.join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(MODE)).unwrap();
        }

        fn identify(&self, name: &str) -> (Kind, String) {
            identify(&self.0.join(name), Path::new(OWN)).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn mark_is_found_at_any_position() {
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
                folder.put("x", &executable(before, &mark, after));
                let expected = "this program, version 0.1.9 (x)".to_owned();
                assert_eq!(
                    folder.identify("x"),
                    (Kind::Ours, expected),
                    "{before} {after}"
                );
                folder.put("x", &executable(before, &mark[..15], after));
                assert_eq!(folder.identify("x").0, Kind::Other, "{before} {after}");
            }
        }
    }

    #[test]
    fn links_are_followed() {
        let folder = Folder::new("links");
        folder.put("file", b"");
        fs::create_dir(folder.0.join("folder")).unwrap();
        let other = (Kind::Other, "another file".to_owned());
        assert_eq!(folder.identify("file"), other);
        assert_eq!(
            folder.identify("gone"),
            (Kind::Nothing, "nothing".to_owned())
        );
        assert_eq!(folder.identify("folder").0, Kind::NotAFile);
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
            let (found, found_text) = folder.identify("link");
            let expected = format!("a link to {target} ({text}");
            assert!(
                found == kind && found_text.starts_with(&expected),
                "{found:?} {found_text}"
            );
            fs::remove_file(link).unwrap();
        }
    }
}
