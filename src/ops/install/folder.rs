//! The plugin folder: its lock, and the steps by which files in it are replaced. At every moment, a working plugin stands at
//! each path: files are never renamed away, only over.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{XattrFlags, fsetxattr, lgetxattr};
use rustix::io::Errno;

use super::trial::{self, TrialError};
use crate::host::{LockOutcome, create_new, lock_folder, open};

/// Another `install` takes a second on a slow disk.
const WAIT: Duration = Duration::from_secs(30);

/// Everybody may execute it, only its owner may write it.
const MODE: u32 = 0o755;

const LABEL: &str = "security.selinux";
/// Labels are shorter than a page.
const LONGEST_LABEL: usize = 4096;

/// The paths of one plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginPaths {
    /// Where the runtime looks for it.
    pub plugin: PathBuf,
    /// The newest original.
    pub newest: PathBuf,
    /// The one before.
    pub former: PathBuf,
    /// The new file, until it is in place.
    installing: PathBuf,
    /// The file that is saved, until it is at `newest`.
    saving: PathBuf,
}

impl PluginPaths {
    /// The paths of the plugin `name` in a folder.
    pub fn new(folder: &Path, name: &str) -> PluginPaths {
        PluginPaths {
            plugin: folder.join(name),
            newest: folder.join(format!("{name}.orig")),
            former: folder.join(format!("{name}.orig.1")),
            installing: folder.join(format!(".{name}.installing")),
            saving: folder.join(format!(".{name}.saving")),
        }
    }
}

/// A step that failed. The plugin is what it was, unless the error is `NotFlushed`.
#[derive(Debug)]
pub enum StepError {
    /// The system refused: what was tried, and its reason.
    Io(&'static str, io::Error),
    /// Others held the lock on the folder.
    Busy,
    /// The new executable does not work in this folder.
    Trial(TrialError),
    /// The last step was done, but the folder cannot be flushed to the disk.
    NotFlushed(io::Error),
}

/// Names the step that failed.
fn failed(step: &'static str) -> impl Fn(io::Error) -> StepError {
    move |error| StepError::Io(step, error)
}

/// The plugin folder, locked for this process.
#[derive(Debug)]
pub struct LockedFolder {
    folder: File,
}

impl LockedFolder {
    /// Waits until no other `install` or `uninstall` works in the folder.
    ///
    /// # Errors
    /// The folder cannot be opened, or others keep it locked.
    pub fn lock(folder: &Path) -> Result<LockedFolder, StepError> {
        match lock_folder(folder, WAIT).map_err(failed("failed to open the folder"))? {
            LockOutcome::Held(folder) => Ok(LockedFolder { folder }),
            LockOutcome::TimedOut => Err(StepError::Busy),
        }
    }

    /// Removes what a killed `install` left.
    ///
    /// # Errors
    /// The system refuses.
    pub fn remove_leftovers(&self, paths: &PluginPaths) -> Result<(), StepError> {
        let left = [&paths.installing, &paths.saving].into_iter();
        // On a read-only file system, removing fails even if there is nothing.
        for path in left.filter(|path| fs::symlink_metadata(path).is_ok()) {
            fs::remove_file(path)
                .map_err(failed("failed to remove the rest of a killed install"))?;
        }
        Ok(())
    }

    /// Writes the new executable beside the plugin and tries it. Returns a warning if it does not get the label of the replaced
    /// file.
    ///
    /// # Errors
    /// The system refuses, or the executable does not work there. Nothing is left then.
    pub fn prepare(
        &self,
        executable: &File,
        paths: &PluginPaths,
    ) -> Result<Option<String>, StepError> {
        let prepared = self.write_and_try(executable, paths);
        if prepared.is_err() {
            let _ = fs::remove_file(&paths.installing);
        }
        prepared
    }

    fn write_and_try(
        &self,
        mut executable: &File,
        paths: &PluginPaths,
    ) -> Result<Option<String>, StepError> {
        let failed = failed("failed to write the new file");
        let warning = {
            let mut new = create_new(&paths.installing, MODE).map_err(&failed)?;
            io::copy(&mut executable, &mut new).map_err(&failed)?;
            new.set_permissions(Permissions::from_mode(MODE))
                .map_err(&failed)?;
            let warning = copy_label(&paths.plugin, &new);
            new.sync_all().map_err(&failed)?;
            warning
            // It is closed here: a file that is open for writing cannot be executed.
        };
        trial::run(&paths.installing).map_err(StepError::Trial)?;
        Ok(warning)
    }

    /// Keeps the plugin as `.orig` too. With `rotate`, the former `.orig` becomes `.orig.1`.
    ///
    /// # Errors
    /// The system refuses. The plugin is where it was then.
    pub fn save(&self, paths: &PluginPaths, rotate: bool) -> Result<(), StepError> {
        let failed = failed("failed to save the original");
        keep(&paths.plugin, &paths.saving).map_err(&failed)?;
        if rotate {
            fs::rename(&paths.newest, &paths.former).map_err(&failed)?;
        }
        fs::rename(&paths.saving, &paths.newest).map_err(&failed)?;
        // It is on the disk before the plugin is replaced.
        self.folder.sync_all().map_err(&failed)
    }

    /// Puts the new executable in place of the plugin.
    ///
    /// # Errors
    /// The system refuses. The plugin is what it was then.
    pub fn put_in_place(&self, paths: &PluginPaths) -> Result<(), StepError> {
        self.rename(&paths.installing, &paths.plugin)
    }

    /// Renames a file over another one, so that it lasts.
    ///
    /// # Errors
    /// The system refuses.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), StepError> {
        fs::rename(from, to).map_err(failed("failed to replace the file"))?;
        self.sync()
    }

    /// Removes a plugin.
    ///
    /// # Errors
    /// The system refuses.
    pub fn remove(&self, path: &Path) -> Result<(), StepError> {
        fs::remove_file(path).map_err(failed("failed to remove the file"))?;
        self.sync()
    }

    fn sync(&self) -> Result<(), StepError> {
        self.folder.sync_all().map_err(StepError::NotFlushed)
    }
}

/// Gives the file at `path` a second name: the link or the file itself, never what a link leads to. Where the file system has no
/// second names, it makes a copy.
fn keep(path: &Path, second: &Path) -> io::Result<()> {
    match fs::hard_link(path, second) {
        Err(e) if has_no_links(&e) => match fs::read_link(path) {
            Ok(target) => std::os::unix::fs::symlink(target, second),
            Err(_) => copy(path, second),
        },
        linked => linked,
    }
}

fn has_no_links(error: &io::Error) -> bool {
    let errors = [Errno::PERM, Errno::OPNOTSUPP, Errno::MLINK, Errno::NOSYS];
    errors
        .iter()
        .any(|e| Some(e.raw_os_error()) == error.raw_os_error())
}

fn copy(path: &Path, second: &Path) -> io::Result<()> {
    let mut from = open(path)?;
    let mode = from.metadata()?.permissions().mode() & 0o7777;
    let mut to = create_new(second, mode)?;
    io::copy(&mut from, &mut to)?;
    to.set_permissions(Permissions::from_mode(mode))?;
    // A copy without the label is better than none.
    let _ = copy_label(path, &to);
    to.sync_all()
}

/// Gives `file` the SELinux label of the file at `path`. Where there is none, a new file has the label of its folder. Returns a
/// warning if the system refuses.
fn copy_label(path: &Path, file: &File) -> Option<String> {
    let mut label = [0; LONGEST_LABEL];
    let length = lgetxattr(path, LABEL, &mut label[..]).ok()?;
    let label = label.get(..length)?;
    let set = fsetxattr(file, LABEL, label, XattrFlags::empty());
    let error = set.err()?;
    Some(format!(
        "the SELinux label {} was not set: {error}; `restorecon {}` sets the one of the policy",
        String::from_utf8_lossy(label).trim_end_matches('\0'),
        path.display()
    ))
}
