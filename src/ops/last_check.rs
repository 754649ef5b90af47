//! The result of the last `check` of this node that was recorded, for metrics. `check --record` and `node-loop` record it; nothing
//! else changes by a check.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;

use serde::{Deserialize, Serialize};

use super::outcome::CommandError;
use crate::host::{Paths, ReadOutcome, read_no_link, replace};

/// The result of a check: counts, and no names of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastCheck {
    /// When it was: seconds since 1970.
    pub time: i64,
    /// The exit status of `check`.
    pub status: u8,
    /// The number of findings by kind and severity.
    pub findings: Vec<FindingCount>,
}

/// The number of findings of one kind and severity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingCount {
    /// The kind, as `check` prints it.
    pub kind: String,
    /// The severity, as `check` prints it.
    pub severity: String,
    /// How many there are.
    pub count: usize,
}

impl LastCheck {
    /// Adds a finding.
    pub fn count(&mut self, kind: &str, severity: &str, by: usize) {
        let is_it = |c: &&mut FindingCount| c.kind == kind && c.severity == severity;
        match self.findings.iter_mut().find(is_it) {
            Some(known) => known.count += by,
            None => self.findings.push(FindingCount {
                kind: kind.to_owned(),
                severity: severity.to_owned(),
                count: by,
            }),
        }
    }

    /// Reads the recorded result. There is none when nobody recorded one in this boot, when this user may not read it, and when
    /// the file is broken.
    pub fn read(paths: &Paths) -> Option<LastCheck> {
        /// All kinds and severities take less.
        const LIMIT: usize = 16 << 10;
        match read_no_link(&paths.last_check(), LIMIT) {
            Ok(ReadOutcome::Read(bytes)) => serde_json::from_slice(&bytes).ok(),
            _ => None,
        }
    }

    /// Records the result, and creates the folder if it is missing.
    ///
    /// # Errors
    /// The system refuses.
    pub fn save(&self, paths: &Paths) -> Result<(), CommandError> {
        /// Only root may read it, as the other files of the folder.
        const MODE: u32 = 0o600;
        let path = paths.last_check();
        let failed = |error: io::Error| {
            let what = format!("failed to record the check in {}", path.display());
            CommandError::from_io(&what, &error)
        };
        let text = serde_json::to_vec(self).map_err(|e| failed(e.into()))?;
        match replace(&path, &text, MODE) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(paths.lock_folder())
                .and_then(|()| replace(&path, &text, MODE)),
            other => other,
        }
        .map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::cni::NAME;

    fn example() -> LastCheck {
        let mut check = LastCheck {
            time: 1_764_000_000,
            status: 1,
            findings: Vec::new(),
        };
        check.count("leak", "warning", 1);
        check.count("leak", "note", 1);
        check.count("leak", "warning", 2);
        check
    }

    #[test]
    fn findings_are_counted_by_kind_and_severity() {
        let counts: Vec<_> = example()
            .findings
            .into_iter()
            .map(|c| (c.kind, c.severity, c.count))
            .collect();
        let expected = [("leak", "warning", 3), ("leak", "note", 1)];
        let expected = expected.map(|(k, s, n)| (k.to_owned(), s.to_owned(), n));
        assert_eq!(counts, expected);
    }

    #[test]
    fn recorded_result_is_private_and_can_be_read_again() {
        let root = std::env::temp_dir().join(format!("last-check-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let paths = Paths::new(Some(root.clone()), NAME);
        assert_eq!(LastCheck::read(&paths), None);
        example().save(&paths).unwrap();
        assert_eq!(LastCheck::read(&paths), Some(example()));
        let mode = fs::metadata(paths.last_check())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o600);
        for broken in [&b"{"[..], b"[]", &[b' '; 20_000]] {
            fs::write(paths.last_check(), broken).unwrap();
            assert_eq!(LastCheck::read(&paths), None);
        }
        fs::remove_dir_all(root).unwrap();
    }
}
