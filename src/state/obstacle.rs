//! Finds what would prevent a call from saving. It takes no lock, and does not change the state, the backup or the lock file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::files::{LockError, StoreError};
use crate::host::{Paths, check_room, create_new, replace_refusal, write_refusal};

/// Checks that a state of this length, in bytes, could be saved at this path now: a new file must fit beside it and be renamed over it.
///
/// # Errors
/// The error of such a save. Its path names the obstacle.
pub fn check_save(state: &Path, length: usize) -> Result<(), StoreError> {
    let found = existing_ancestor(state);
    // /var/run is a link. Its attributes differ from those of the folder.
    let folder = &fs::canonicalize(found).unwrap_or_else(|_| found.to_owned());
    check_room(folder, length).map_err(StoreError::at("cannot write", folder))?;
    // In a folder that is append-only, the trial would leave its file behind.
    let is_locked = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    if let Some(refusal) = replace_refusal(folder).filter(is_locked) {
        return Err(StoreError::at("cannot write", folder)(refusal));
    }
    check_replace(state)?;
    // The first call creates a missing folder.
    if state.parent() == Some(found) {
        try_rename(state).map_err(StoreError::at("cannot write", folder))?;
    }
    Ok(())
}

/// Checks that a file can be replaced. Neither the file nor the temporary file beside it may be something that the system does not let be
/// replaced.
///
/// # Errors
/// The error of such a save. Its path names the obstacle.
pub fn check_replace(path: &Path) -> Result<(), StoreError> {
    let new = suffixed(path, ".new");
    if let Some(refusal) = replace_refusal(path) {
        return Err(StoreError::at("cannot replace", path)(refusal));
    }
    let folder = || new.is_dir().then(|| io::ErrorKind::IsADirectory.into());
    match replace_refusal(&new).or_else(folder) {
        Some(refusal) => Err(StoreError::at("cannot create temp file", &new)(refusal)),
        None => Ok(()),
    }
}

/// Creates a file beside this one, renames it and removes it. No call uses its names. They end in digits, so that `remove_leftovers`
/// removes the file if this process is killed.
fn try_rename(beside: &Path) -> io::Result<()> {
    let id = std::process::id();
    let [from, to] = [format!("{id}0"), format!("{id}1")].map(|end| suffixed(beside, &end));
    let tried = create_new(&from, super::MODE).and_then(|_| fs::rename(&from, &to));
    for left in [from, to] {
        let _ = fs::remove_file(left);
    }
    match tried {
        // A process with the same ID, in another PID namespace, has removed the file.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        tried => tried,
    }
}

/// Why the lock could not be acquired even if no process holds it.
#[derive(Debug)]
pub struct LockObstacle {
    /// The obstacle: the lock file or a folder.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

impl LockObstacle {
    /// Returns the error that a call would report.
    pub fn into_error(self, paths: &Paths) -> LockError {
        LockError::Io {
            path: paths.lock_file(),
            source: self.source,
        }
    }
}

/// Returns why the lock could not be acquired even if no process holds it. `is_root` says whether this user has the permissions of a call.
pub fn lock_obstacle(paths: &Paths, is_root: bool) -> Option<LockObstacle> {
    let (folder, file) = (paths.lock_folder(), paths.lock_file());
    let obstacle = |path: &Path, source| LockObstacle {
        path: path.to_owned(),
        source,
    };
    match fs::metadata(&folder) {
        Ok(meta) if !meta.is_dir() => {
            return Some(obstacle(&folder, io::ErrorKind::NotADirectory.into()));
        }
        Err(error) if folder.is_symlink() && error.kind() != io::ErrorKind::PermissionDenied => {
            return Some(obstacle(&folder, error));
        }
        _ => {}
    }
    if fs::metadata(&file).is_ok_and(|meta| !meta.is_file()) {
        return Some(obstacle(&file, io::ErrorKind::IsADirectory.into()));
    }
    let opened_file = match followed_links(&file) {
        Ok(path) => path,
        Err(error) => return Some(obstacle(&file, error)),
    };
    // A call makes the lock folder, but not one that a link leads to.
    if opened_file != file {
        match fs::metadata(opened_file.parent().unwrap_or(&opened_file)) {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => return Some(obstacle(&file, io::ErrorKind::NotADirectory.into())),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Some(obstacle(&file, error)),
        }
    }
    let found = existing_ancestor_or_self(&opened_file);
    let opened = &fs::canonicalize(found).unwrap_or_else(|_| found.to_owned());
    let append_only =
        || replace_refusal(opened).filter(|e| e.kind() != io::ErrorKind::ResourceBusy);
    // A new lock file needs an inode.
    let full = || opened.is_dir().then(|| check_room(opened, 0).err())?;
    let refusal = write_refusal(opened).or_else(append_only).or_else(full)?;
    // The runtime calls the plugin as root. A permission that another user lacks is no obstacle.
    let is_judged = is_root || refusal.kind() != io::ErrorKind::PermissionDenied;
    is_judged.then(|| obstacle(opened, refusal))
}

/// Returns the path that opening this one leads to. The file at its end may be missing.
///
/// # Errors
/// The links lead round in a circle.
fn followed_links(path: &Path) -> io::Result<PathBuf> {
    /// The kernel follows as many links.
    const MOST_LINKS: usize = 40;
    let mut followed = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&followed) {
            // A relative target starts at the folder of the link.
            Ok(target) => followed = followed.parent().unwrap_or(path).join(target),
            Err(_) => return Ok(followed),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Returns the nearest existing folder above a path.
fn existing_ancestor(path: &Path) -> &Path {
    path.parent().map_or(path, existing_ancestor_or_self)
}

fn existing_ancestor_or_self(path: &Path) -> &Path {
    let mut ancestors = path.ancestors();
    ancestors.find(|path| path.exists()).unwrap_or(path)
}

/// Appends a text to the name of a path.
pub(super) fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_to_a_file_that_may_be_missing() {
        use std::os::unix::fs::symlink;

        let folder = std::env::temp_dir().join(format!("links-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let followed = |name: &str| followed_links(&folder.join(name));
        symlink("second", folder.join("first")).unwrap();
        symlink("missing/file", folder.join("second")).unwrap();
        symlink("circle", folder.join("circle")).unwrap();
        assert_eq!(followed("first").unwrap(), folder.join("missing/file"));
        assert_eq!(followed("none").unwrap(), folder.join("none"));
        let circle = followed("circle").unwrap_err();
        assert_eq!(circle.raw_os_error(), Some(libc::ELOOP));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn check_save_leaves_no_files() {
        let folder = std::env::temp_dir().join(format!("obstacle-{}", std::process::id()));
        let state = folder.join("state.json");
        let names = || {
            let entries = fs::read_dir(&folder).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort_unstable();
            names
        };
        check_save(&state, 10).unwrap();
        assert!(!folder.exists(), "the first call creates the folder");
        fs::create_dir(&folder).unwrap();
        fs::write(&state, "{}").unwrap();
        check_save(&state, 10).unwrap();
        assert_eq!(names(), ["state.json"]);
        assert_eq!(fs::read(&state).unwrap(), b"{}");
        let full = check_save(&state, usize::MAX).unwrap_err();
        assert_eq!(full.source.kind(), io::ErrorKind::StorageFull);
        fs::create_dir(folder.join("state.json.new")).unwrap();
        let obstacle = check_save(&state, 10).unwrap_err();
        assert_eq!(obstacle.source.kind(), io::ErrorKind::IsADirectory);
        assert_eq!(obstacle.path, folder.join("state.json.new"));
        fs::remove_dir_all(folder).unwrap();
    }
}
