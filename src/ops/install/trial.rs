//! Runs an executable once before it is put in place: a file system that forbids execution, or a wrong architecture, must show
//! before anything is replaced.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::host::{boot_now, io_reason, read_up_to};
use crate::ops::build_info::TARGET;

/// VERSION takes a millisecond and waits for nothing.
const LIMIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);
/// An answer is a line.
const MOST_BYTES: usize = 16 * 1024;

/// Why an executable does not work at a place.
#[derive(Debug)]
pub enum TrialError {
    /// The system does not start it.
    Start(io::Error),
    /// It did not end in time.
    TimedOut,
    /// It ended with this status, or was killed, or its answer was another one.
    BadAnswer(String),
}

impl fmt::Display for TrialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrialError::Start(error) if error.raw_os_error() == Some(libc::ENOEXEC) => write!(
                f,
                "this machine cannot execute it: it was built for {TARGET}, and `uname -m` tells what this machine is"
            ),
            TrialError::Start(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                f.write_str(
                    "the system forbids executing files there: `findmnt -T DIR -o OPTIONS` must not have noexec, and a security module such as SELinux must allow it",
                )
            }
            TrialError::Start(error) => f.write_str(&io_reason(error)),
            TrialError::TimedOut => {
                write!(f, "timed out after {} s waiting for its answer", LIMIT.as_secs())
            }
            TrialError::BadAnswer(what) => f.write_str(what),
        }
    }
}

/// Runs VERSION through the executable at `path`.
///
/// # Errors
/// It does not answer as the plugin does.
pub fn run(path: &Path) -> Result<(), TrialError> {
    let mut command = Command::new(path);
    command.env_clear().env("CNI_COMMAND", "VERSION");
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(TrialError::Start)?;
    let answer = answer(&mut child);
    if answer.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    match answer?.contains("\"supportedVersions\"") {
        true => Ok(()),
        false => Err(TrialError::BadAnswer(
            "it does not answer VERSION".to_owned(),
        )),
    }
}

fn answer(child: &mut Child) -> Result<String, TrialError> {
    let deadline = boot_now().after(LIMIT);
    let status = loop {
        match child.try_wait().map_err(TrialError::Start)? {
            Some(status) => break status,
            None if deadline.since(boot_now()).is_zero() => return Err(TrialError::TimedOut),
            None => thread::sleep(POLL),
        }
    };
    if !status.success() {
        return Err(TrialError::BadAnswer(format!(
            "its VERSION fails: {status}"
        )));
    }
    let stdout = child.stdout.take();
    let bytes = stdout.map_or(Ok(Vec::new()), |pipe| read_up_to(pipe, 512, MOST_BYTES));
    let bytes = bytes.map_err(TrialError::Start)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Runs a shell script in place of the plugin. Another process writes it, as one that is open for writing cannot be executed.
    fn try_script(name: &str, script: &str) -> Result<(), String> {
        let path = std::env::temp_dir().join(format!("trial-{name}-{}", std::process::id()));
        let mut write = Command::new("sh");
        write.args(["-c", "printf %s \"$1\" >\"$2\"", "sh", script]);
        assert!(write.arg(&path).status().unwrap().success());
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let tried = run(&path).map_err(|e| e.to_string());
        fs::remove_file(&path).unwrap();
        tried
    }

    #[test]
    fn only_a_plugin_that_answers_passes() {
        let good = "#!/bin/sh\n[ $CNI_COMMAND = VERSION ] && echo '{\"supportedVersions\": []}'\n";
        assert_eq!(try_script("good", good), Ok(()));
        for (name, script, expected) in [
            ("silent", "#!/bin/sh\n", "it does not answer VERSION"),
            (
                "failing",
                "#!/bin/sh\nexit 3\n",
                "its VERSION fails: exit status: 3",
            ),
            (
                "text",
                "\x7fELF and nothing else",
                "this machine cannot execute it",
            ),
            ("missing", "#!/no/such/shell\n", "no such file or directory"),
        ] {
            let found = try_script(name, script).unwrap_err();
            assert!(found.starts_with(expected), "{name}: {found}");
        }
    }

    #[test]
    fn a_plugin_that_hangs_is_killed() {
        let hangs = "#!/bin/sh\nexec sleep 1000\n";
        let found = try_script("hangs", hangs).unwrap_err();
        assert_eq!(found, "timed out after 5 s waiting for its answer");
    }
}
