//! Lists the mounts of network namespaces.

use std::io;
use std::path::{Path, PathBuf};

use super::proc::read_list;

/// A mount of a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NetnsMount {
    /// The mount point. Another mount may cover it.
    pub path: PathBuf,
    /// The inode of the namespace.
    pub inode: u64,
}

/// Lists the mounts of network namespaces in a file like /proc/self/mountinfo.
pub(super) fn list_netns_mounts(mountinfo: &Path) -> io::Result<Vec<NetnsMount>> {
    let text = read_list(mountinfo)?;
    let namespaces = text.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (root, path) = (fields.next()?, fields.next()?);
        let inode = inode(root)?;
        Some(NetnsMount {
            path: unescape(path).into(),
            inode,
        })
    });
    Ok(namespaces.collect())
}

/// Parses the inode in a name like `net:[4026532198]`.
fn inode(name: &str) -> Option<u64> {
    let inode = name.strip_prefix("net:[")?.strip_suffix(']')?;
    inode.parse().ok()
}

/// Replaces the characters that the kernel writes in octal digits, as they separate fields and lines.
fn unescape(path: &str) -> String {
    let path = path.replace(r"\040", " ").replace(r"\011", "\t");
    path.replace(r"\012", "\n").replace(r"\134", r"\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_unescaped() {
        assert_eq!(unescape("/run/netns/a\\040b\\134c"), "/run/netns/a b\\c");
        assert_eq!(unescape("/x\\"), "/x\\");
        assert_eq!(unescape("/x\\9zz"), "/x\\9zz");
    }

    #[test]
    fn only_mounted_network_namespaces_count() {
        let path = std::env::temp_dir().join(format!("mountinfo-{}", std::process::id()));
        let lines = "36 35 0:4 net:[4026532198] /run/netns/cni-1 rw shared:1 - nsfs nsfs rw\n\
                     37 35 0:4 mnt:[4026532199] /run/snapd/ns/x rw - nsfs nsfs rw\n\
                     38 35 0:4 net:[4026532200] /run/netns/a\\040b rw - nsfs nsfs rw\n\
                     short line\n";
        std::fs::write(&path, lines).unwrap();
        let found = list_netns_mounts(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            found,
            [
                ("/run/netns/cni-1", 4026532198),
                ("/run/netns/a b", 4026532200)
            ]
            .map(|(path, inode)| NetnsMount {
                path: path.into(),
                inode,
            })
        );
        assert!(list_netns_mounts(&path).is_err());
    }
}
