//! What failed, and what to do about it.

use std::io;
use std::path::Path;

use rustix::process::geteuid;

use super::folder::StepError;
use crate::failure::SUDO_REMEDY;
use crate::host::io_reason;
use crate::ops::outcome::CommandError;

/// Describes a step that failed at `path`.
pub fn step_error(verb: &str, path: &Path, error: &StepError) -> CommandError {
    let (plugin, folder) = (path.display(), folder_of(path).display());
    let why = match error {
        StepError::Io(step, error) => with_remedy(step, path, error),
        StepError::Busy => format!(
            "another install or uninstall works in {folder}; `fuser -v {folder}` names it, try again when it has ended"
        ),
        StepError::Trial(error) => {
            let why = error.to_string().replace("DIR", &folder.to_string());
            format!("the new executable does not work in {folder}: {why}")
        }
        StepError::NotFlushed(error) => {
            let reason = io_reason(error);
            return CommandError(format!(
                "{plugin} is replaced, but {folder} cannot be flushed to the disk: {reason}; a power cut may bring the old file back, so run the command again"
            ));
        }
    };
    CommandError(format!(
        "failed to {verb} {plugin}: {why}. The plugin there is unchanged"
    ))
}

/// Describes a path that cannot be looked at.
pub fn look_error(path: &Path, error: &io::Error) -> CommandError {
    let what = format!("failed to look at {}", path.display());
    CommandError(with_remedy(&what, path, error))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn with_remedy(step: &str, path: &Path, error: &io::Error) -> String {
    let (folder, reason) = (folder_of(path).display(), io_reason(error));
    let is_root = geteuid().is_root();
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{folder} must exist; name the folder in which the runtime looks for plugins with --dir"
        ),
        io::ErrorKind::NotADirectory => "--dir must name a folder".to_owned(),
        io::ErrorKind::IsADirectory => {
            format!("`ls -la {folder}` shows a folder where a file belongs; remove it")
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            format!("mount {folder} writable, or name another folder with --dir")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("`df -h {folder}` shows the space; free as much as the executable needs")
        }
        io::ErrorKind::PermissionDenied if is_root => {
            format!(
                "`lsattr -d {folder} {}` shows whether they are immutable, and a security module may forbid it",
                path.display()
            )
        }
        io::ErrorKind::PermissionDenied => SUDO_REMEDY.to_owned(),
        io::ErrorKind::ResourceBusy => {
            format!("something is mounted on it: `findmnt {}`", path.display())
        }
        _ => return format!("{step}: {reason}"),
    };
    format!("{step}: {reason}; {remedy}")
}
