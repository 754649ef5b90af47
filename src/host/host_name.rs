//! Reads the name of the host.

use std::io;

use super::{Paths, ReadOutcome, read_bounded};

/// Reads the name of the host, in its spelling.
///
/// # Errors
/// The file that has it is there but cannot be read.
pub fn host_name(paths: &Paths) -> io::Result<String> {
    const LONGEST: usize = 256;
    match read_bounded(&paths.host_name(), LONGEST)? {
        ReadOutcome::Read(bytes) => Ok(String::from_utf8_lossy(&bytes).trim().to_owned()),
        // Below a root there need be none.
        ReadOutcome::Missing => Ok(rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned()),
        ReadOutcome::TooLarge => Err(io::Error::other("it is too long")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_name_below_the_root_replaces_the_kernels() {
        let root = std::env::temp_dir().join(format!("host-name-{}", std::process::id()));
        let paths = Paths::new(Some(root.clone()), "azure-vnet-ipam");
        let own = host_name(&Paths::new(None, "azure-vnet-ipam")).unwrap();
        assert!(!own.is_empty() && own.trim() == own);
        assert_eq!(host_name(&paths).unwrap(), own);
        let path = paths.host_name();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "Node1\n").unwrap();
        assert_eq!(host_name(&paths).unwrap(), "Node1");
        std::fs::write(&path, "x".repeat(300)).unwrap();
        assert!(host_name(&paths).is_err());
        std::fs::remove_dir_all(root).unwrap();
    }
}
