//! Asks an executable for VERSION, which tells whether it works as a CNI plugin on this node.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use serde::Deserialize;

use crate::cni::{NAME, NAME_V6};
use crate::host::{
    LockOutcome, Paths, boot_now, io_reason, lock, overwrite, read_bounded, read_stream,
};

/// The original answers at the latest when it has waited 10 s for its lock (contract section 4).
const LIMIT: Duration = Duration::from_secs(12);
/// An answer is a line.
const MOST_BYTES: usize = 64 << 10;

/// Calls an executable with VERSION.
///
/// # Errors
/// It does not answer as a CNI plugin. The text says why, and continues a sentence that begins with its path.
pub fn ask_version(paths: &Paths, executable: &Path) -> Result<(), String> {
    ask_within(LIMIT, paths, executable)
}

fn ask_within(limit: Duration, paths: &Paths, executable: &Path) -> Result<(), String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        supported_versions: Vec<String>,
    }
    let before = [NAME, NAME_V6].map(|name| Traces::read(paths.of_plugin(name)));
    let mut child = Command::new(executable)
        .env_clear()
        .env("CNI_COMMAND", "VERSION")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| describe_start_error(&error, executable))?;
    let answer = read_answer(&mut child, limit);
    for traces in before {
        traces.restore(child.id());
    }
    let (status, answer) = match answer {
        Ok(answer) => answer,
        Err(e) if e.kind() == io::ErrorKind::TimedOut => {
            return Err(format!(
                "does not answer VERSION within {} s",
                limit.as_secs()
            ));
        }
        Err(e) => return Err(format!("does not answer VERSION: {}", io_reason(&e))),
    };
    match serde_json::from_slice::<Answer>(&answer) {
        Ok(answer) if status.success() && !answer.supported_versions.is_empty() => Ok(()),
        _ => {
            let answer = String::from_utf8_lossy(&answer);
            let line = answer.lines().next().unwrap_or_default();
            let line: String = line.chars().take(200).collect();
            Err(format!(
                "does not answer VERSION as a CNI plugin does: {status}, output {line:?}"
            ))
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

fn describe_start_error(error: &io::Error, executable: &Path) -> String {
    let (reason, path) = (io_reason(error), executable.display());
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "; it must have the mode of an executable, `findmnt -T {path} -o OPTIONS` must not have noexec, and a security module may forbid it"
        ),
        _ if error.raw_os_error() == Some(libc::ENOEXEC) => {
            "; it is damaged or was built for another machine than this, which `uname -m` tells"
                .to_owned()
        }
        _ => String::new(),
    };
    format!("cannot be executed: {reason}{remedy}")
}

/// What a call of the original leaves behind even if it only answers VERSION: it replaces the text of the lock file with its process
/// ID. That text is the record that proves the journal; and on a fresh node, a process ID there means that another program has
/// given addresses.
struct Traces {
    paths: Paths,
    text: Vec<u8>,
    lock_file: Option<u64>,
    /// A call that changes who holds what also replaces the state.
    state: Option<(u64, Option<SystemTime>)>,
}

impl Traces {
    fn read(paths: Paths) -> Traces {
        const LONGEST: usize = 128;
        let text = read_bounded(&paths.lock_file(), LONGEST).and_then(|read| read.required());
        let (lock_file, state) = (fs::metadata(paths.lock_file()), fs::metadata(paths.state()));
        Traces {
            text: text.unwrap_or_default(),
            lock_file: lock_file.ok().map(|meta| meta.ino()),
            state: state.ok().map(|meta| (meta.ino(), meta.modified().ok())),
            paths,
        }
    }

    /// Writes the former text back if this process wrote the present one, and no other call was made meanwhile.
    fn restore(&self, process: u32) {
        let is_its_trace = || {
            let now = Traces::read(self.paths.clone());
            now.text == process.to_string().as_bytes()
                && now.state == self.state
                && (self.lock_file.is_none() || now.lock_file == self.lock_file)
        };
        if is_its_trace()
            && let Ok(LockOutcome::Held(file)) = lock(&self.paths.lock_file(), Duration::ZERO)
            && is_its_trace()
        {
            // Without it, the journal proves less until the next call.
            let _ = overwrite(&file, &self.text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const ANSWER: &str = r#"{"cniVersion":"1.0.0","supportedVersions":["0.4.0"]}"#;

    /// A folder with an executable in it, and the paths of a node below it. Another process writes the file, as one that is open
    /// for writing cannot be executed.
    fn node_with_script(name: &str, script: &str) -> (Paths, PathBuf) {
        let root = std::env::temp_dir().join(format!("probe-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let paths = Paths::new(Some(root.clone()), NAME);
        fs::create_dir_all(paths.lock_folder()).unwrap();
        let executable = root.join("plugin");
        let mut write = Command::new("sh");
        write.args([
            "-c",
            "printf %s \"$1\" >\"$2\" && chmod 755 \"$2\"",
            "sh",
            script,
        ]);
        assert!(write.arg(&executable).status().unwrap().success());
        (paths, executable)
    }

    fn ask(name: &str, script: &str) -> Result<(), String> {
        let (paths, executable) = node_with_script(name, script);
        let asked = ask_within(Duration::from_secs(2), &paths, &executable);
        fs::remove_dir_all(paths.under_root("/")).unwrap();
        asked
    }

    #[test]
    fn only_a_plugin_answers() {
        let good = format!("#!/bin/sh\n[ $CNI_COMMAND = VERSION ] && echo '{ANSWER}'\n");
        assert_eq!(ask("good", &good), Ok(()));
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
            let found = ask(name, &script).unwrap_err();
            assert!(found.starts_with(expected), "{name}: {found}");
        }
    }

    /// The stand-in for the original writes its process ID as that does.
    #[test]
    fn lock_file_says_what_it_said_before() {
        const RECORD: &str =
            "azure-vnet-ipam 8f3c5c52-0000-4000-8000-000000000001 000000000000004711\n";
        let write_id = "printf %s $$ >\"$LOCK\"";
        for (name, before, what, expected) in [
            ("record", Some(RECORD), write_id, RECORD),
            ("fresh", None, write_id, ""),
            ("other", Some("4711"), write_id, "4711"),
            ("untouched", Some(RECORD), ":", RECORD),
            // Other calls were made meanwhile.
            ("later", Some(RECORD), "printf 12 >\"$LOCK\"", "12"),
            (
                "replaced",
                Some(RECORD),
                "rm \"$LOCK\"; printf %s $$ >\"$LOCK\"",
                "ID",
            ),
            (
                "saved",
                Some(RECORD),
                "printf %s $$ >\"$LOCK\"; echo >\"$STATE\"",
                "ID",
            ),
        ] {
            let (paths, _) = node_with_script(name, "");
            let lock_file = paths.of_plugin(NAME_V6).lock_file();
            if let Some(text) = before {
                fs::write(&lock_file, text).unwrap();
            }
            let script = format!(
                "#!/bin/sh\nLOCK='{}' STATE='{}'\n{what}\necho '{ANSWER}'\n",
                lock_file.display(),
                paths.of_plugin(NAME_V6).state().display()
            );
            // Another inode, whatever the file system does with those of removed files.
            let keeps = fs::hard_link(&lock_file, lock_file.with_extension("kept"));
            assert_eq!(keeps.is_ok(), before.is_some());
            let (paths, executable) = (
                paths,
                node_with_script(&format!("{name}-script"), &script).1,
            );
            ask_version(&paths, &executable).unwrap();
            let text = fs::read_to_string(&lock_file).unwrap();
            let is_id = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            assert!(
                text == expected || expected == "ID" && is_id,
                "{name}: {text:?}"
            );
        }
    }
}
