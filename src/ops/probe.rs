//! Asks an executable for VERSION, which shows whether it works as a CNI plugin on this node.

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use serde::Deserialize;

use crate::host::{boot_now, io_reason, is_noexec, read_stream};

/// The original answers at the latest when it has waited 10 s for its lock (contract section 4).
const LIMIT: Duration = Duration::from_secs(12);
/// An answer is a line.
const MOST_BYTES: usize = 64 << 10;

/// Why an executable does not answer as a CNI plugin. The text continues a sentence that begins with its path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// Programs on its file system must not be executed.
    #[error("cannot be executed, as its file system is mounted with noexec")]
    NoExec,
    /// A process has it open for writing.
    #[error("cannot be executed, as a process is writing it")]
    Busy,
    /// This process or the system lacks descriptors, memory or processes to start it.
    #[error("cannot be asked: {0}")]
    NoRoom(String),
    /// It cannot be started, or crashes.
    #[error("{0}")]
    Broken(String),
    /// It does something else.
    #[error("{0}")]
    Other(String),
}

/// Calls an executable with VERSION. Returns the CNI versions that it supports.
///
/// # Errors
/// It does not answer as a CNI plugin.
pub fn ask_version(executable: &Path) -> Result<Vec<String>, ProbeError> {
    ask_within(LIMIT, executable)
}

fn ask_within(limit: Duration, executable: &Path) -> Result<Vec<String>, ProbeError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        supported_versions: Vec<String>,
    }
    let mut child = Command::new(executable)
        .env_clear()
        .env("CNI_COMMAND", "VERSION")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| describe_start_error(&error, executable))?;
    let answer = read_answer(&mut child, limit);
    let (status, answer) = match answer {
        Ok(answer) => answer,
        Err(e) if e.kind() == io::ErrorKind::TimedOut => {
            let seconds = limit.as_secs();
            let why = format!("does not answer VERSION within {seconds} s");
            return Err(ProbeError::Other(why));
        }
        Err(e) => {
            let why = format!("does not answer VERSION: {}", io_reason(&e));
            return Err(ProbeError::Other(why));
        }
    };
    match serde_json::from_slice::<Answer>(&answer) {
        Ok(answer) if status.success() && !answer.supported_versions.is_empty() => {
            Ok(answer.supported_versions)
        }
        _ => {
            let answer = String::from_utf8_lossy(&answer);
            let line = answer.lines().next().unwrap_or_default();
            let line: String = line.chars().take(200).collect();
            let why =
                format!("does not answer VERSION as a CNI plugin does: {status}, output {line:?}");
            Err(match status.signal() {
                Some(_) => ProbeError::Broken(why),
                None => ProbeError::Other(why),
            })
        }
    }
}

/// Reads the output of a process until it ends. When this returns, the process has ended: it is killed if it takes too long.
fn read_answer(child: &mut Child, limit: Duration) -> io::Result<(ExitStatus, Vec<u8>)> {
    let deadline = boot_now().after(limit);
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read it may have ended already.
        let _ = stdin.write_all(br#"{"cniVersion":"1.0.0"}"#);
    }
    let answer = match child.stdout.take() {
        Some(stdout) => read_stream(stdout, 512, MOST_BYTES, deadline),
        None => Ok(Vec::new()),
    };
    let mut ended = child.try_wait();
    while answer.is_ok() && matches!(ended, Ok(None)) && !deadline.since(boot_now()).is_zero() {
        thread::sleep(Duration::from_millis(1));
        ended = child.try_wait();
    }
    // It does nothing to a process that has ended.
    let _ = child.kill();
    child.wait()?;
    let status = ended?.ok_or(io::ErrorKind::TimedOut)?;
    Ok((status, answer?))
}

fn describe_start_error(error: &io::Error, executable: &Path) -> ProbeError {
    let (reason, path) = (io_reason(error), executable.display());
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied if is_noexec(executable) => return ProbeError::NoExec,
        io::ErrorKind::ExecutableFileBusy => return ProbeError::Busy,
        _ if matches!(
            error.raw_os_error(),
            Some(libc::EMFILE | libc::ENFILE | libc::EAGAIN | libc::ENOMEM)
        ) =>
        {
            return ProbeError::NoRoom(reason);
        }
        io::ErrorKind::PermissionDenied => format!(
            "; it must have the mode of an executable, and a security module may forbid it: `ls -l {path}`, `dmesg`"
        ),
        _ if error.raw_os_error() == Some(libc::ENOEXEC) => {
            "; it is damaged, or was built for another machine (`uname -m` names this one)"
                .to_owned()
        }
        _ => String::new(),
    };
    ProbeError::Broken(format!("cannot be executed: {reason}{remedy}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    const ANSWER: &str = r#"{"cniVersion":"1.0.0","supportedVersions":["0.4.0"]}"#;

    /// A folder with an executable in it. Another process writes the file, as one that is open for writing cannot be executed.
    fn folder_with_script(name: &str, script: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("probe-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let executable = folder.join("plugin");
        let mut write = Command::new("sh");
        write.args([
            "-c",
            "printf %s \"$1\" >\"$2\" && chmod 755 \"$2\"",
            "sh",
            script,
        ]);
        assert!(write.arg(&executable).status().unwrap().success());
        folder
    }

    fn ask(name: &str, script: &str) -> Result<Vec<String>, ProbeError> {
        let folder = folder_with_script(name, script);
        let asked = ask_within(Duration::from_secs(2), &folder.join("plugin"));
        fs::remove_dir_all(folder).unwrap();
        asked
    }

    #[test]
    fn only_a_plugin_answers() {
        let good = format!("#!/bin/sh\n[ $CNI_COMMAND = VERSION ] && echo '{ANSWER}'\n");
        assert_eq!(ask("good", &good), Ok(vec!["0.4.0".to_owned()]));
        for row in [
            "silent | #!/bin/sh | does not answer VERSION as a CNI plugin does",
            "none | #!/bin/sh\necho '{\"supportedVersions\":[]}' | does not answer VERSION as",
            "failing | #!/bin/sh\necho 'ANSWER'\nexit 3 | does not answer VERSION as a CNI plugin does: exit status: 3",
            "text | \x7fELF and nothing else | cannot be executed: exec format error; it is damaged",
            "missing | #!/no/such/shell | cannot be executed: no such file or directory",
            "hangs | #!/bin/sh\nexec sleep 1000 | does not answer VERSION within 2 s",
            "orphan | #!/bin/sh\nsleep 5 & | does not answer VERSION within 2 s",
            "endless | #!/bin/sh\nexec yes | does not answer VERSION as a CNI plugin does: signal",
        ] {
            let (name, rest) = row.split_once(" | ").unwrap();
            let (script, expected) = rest.split_once(" | ").unwrap();
            let script = script.replace("ANSWER", ANSWER) + "\n";
            let found = ask(name, &script).unwrap_err().to_string();
            assert!(found.starts_with(expected), "{name}: {found}");
        }
    }
}
