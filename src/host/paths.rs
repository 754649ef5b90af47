//! Builds every path that the program reads or writes.

use std::path::{Path, PathBuf};

/// The paths of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    root: Option<PathBuf>,
    name: &'static str,
    /// The folder in which runtimes look for plugins, if an operator named one.
    plugin_folder: Option<PathBuf>,
}

impl Paths {
    /// Creates the paths of the plugin `name`. With a `root`, all of them are below that folder.
    pub fn new(root: Option<PathBuf>, name: &'static str) -> Self {
        Paths {
            root,
            name,
            plugin_folder: None,
        }
    }

    /// Returns the name that the plugin was started by, which is part of the names of its files.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the paths of the plugin `name` on the same node.
    pub fn of_plugin(&self, name: &'static str) -> Paths {
        Paths {
            name,
            ..self.clone()
        }
    }

    /// Returns the same paths with another folder of plugins, which is used as it was typed, not below the root.
    pub fn with_plugin_folder(&self, folder: Option<&Path>) -> Paths {
        Paths {
            plugin_folder: folder.map(Path::to_owned),
            ..self.clone()
        }
    }

    /// The state, `/var/run/azure-vnet-ipam.json`.
    pub fn state(&self) -> PathBuf {
        self.under_root(&format!("/var/run/{}.json", self.name))
    }

    /// The folder of locks and marks, shared with the original.
    pub fn lock_folder(&self) -> PathBuf {
        self.under_root("/var/run/azure-vnet")
    }

    /// The lock that the original takes too.
    pub fn lock_file(&self) -> PathBuf {
        self.lock_folder().join(format!("{}.lock", self.name))
    }

    /// The lock that an ADD holds from the query of the source until the answer is saved. The file
    /// records the last failure, and the interfaces of the last answer.
    pub fn fetch_lock(&self) -> PathBuf {
        self.lock_folder().join(format!("{}.fetch", self.name))
    }

    /// The second copy of the state. It is outside of the folder of locks, so that it survives the
    /// loss of that folder. It is hidden, so that `rm azure-vnet*` does not remove it too.
    pub fn backup(&self) -> PathBuf {
        self.under_root(&format!("/var/run/.{}.backup", self.name))
    }

    /// The journals and markers of versions that had no backup.
    pub fn of_earlier_versions(&self) -> [PathBuf; 6] {
        let in_lock_folder =
            |suffix: &str| self.lock_folder().join(format!("{}.{suffix}", self.name));
        [
            in_lock_folder("journal"),
            in_lock_folder("used"),
            in_lock_folder("other"),
            in_lock_folder("rebuild"),
            self.under_root(&format!("/var/run/.{}.boot", self.name)),
            self.under_root(&format!("/var/run/.{}.journal", self.name)),
        ]
    }

    /// The last operations.
    pub fn events(&self) -> PathBuf {
        self.lock_folder().join(format!("{}.events", self.name))
    }

    /// libcni's cache of results.
    pub fn cni_cache(&self) -> PathBuf {
        self.under_root("/var/lib/cni/results")
    }

    /// The state of the main plugin azure-vnet.
    pub fn azure_vnet(&self) -> PathBuf {
        self.under_root("/var/run/azure-vnet.json")
    }

    /// The kernel's folder of processes.
    pub fn processes(&self) -> PathBuf {
        self.under_root("/proc")
    }

    /// Returns whether the kernel's interfaces, addresses and routes belong to this node. They do not
    /// if a list of interfaces below a root replaces them.
    pub fn is_this_host(&self) -> bool {
        self.links().is_none()
    }

    /// The log, shared with the original.
    pub fn log(&self) -> PathBuf {
        self.under_root(&format!("/var/log/{}.log", self.name))
    }

    /// The socket of journald or of a syslog.
    pub fn syslog(&self) -> PathBuf {
        self.under_root("/dev/log")
    }

    /// The list of pools on Azure Stack.
    pub fn interfaces_file(&self) -> PathBuf {
        self.under_root("/etc/kubernetes/interfaces.json")
    }

    /// The kubelet's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.under_root("/var/lib/kubelet/kubeconfig")
    }

    /// The name of the host.
    #[cfg(feature = "tls")]
    pub fn host_name(&self) -> PathBuf {
        self.under_root("/proc/sys/kernel/hostname")
    }

    /// Defaults for the key `ipam` of every network configuration.
    pub fn settings(&self) -> PathBuf {
        self.under_root("/etc/azure-vnet-ipam.json")
    }

    /// The kernel's version.
    pub fn kernel_version(&self) -> PathBuf {
        self.under_root("/proc/version")
    }

    /// The network configurations that runtimes read.
    pub fn conf_folder(&self) -> PathBuf {
        self.under_root("/etc/cni/net.d")
    }

    /// The kernel's boot ID.
    pub fn boot_id(&self) -> PathBuf {
        self.under_root("/proc/sys/kernel/random/boot_id")
    }

    /// The file with the seconds by which the boot clock is ahead of the kernel's, below a root
    /// only.
    pub fn boot_clock_offset(&self) -> Option<PathBuf> {
        Some(self.root.as_ref()?.join("boottime-offset"))
    }

    /// A list of interfaces that replaces the kernel's, below a root only.
    pub fn links(&self) -> Option<PathBuf> {
        let folder = self.root.as_ref()?.join("sys/class/net");
        folder.is_dir().then_some(folder)
    }

    /// The kernel's folder of the device behind a network interface. A virtual interface has none.
    pub fn device_of_link(&self, link: &str) -> PathBuf {
        self.under_root(&format!("/sys/class/net/{link}/device"))
    }

    /// The folder in which runtimes look for plugins: the one that an operator named, or the usual one.
    pub fn plugin_folder(&self) -> PathBuf {
        let usual = || self.under_root("/opt/cni/bin");
        self.plugin_folder.clone().unwrap_or_else(usual)
    }

    /// Whether an operator named the folder in which runtimes look for plugins.
    pub fn has_named_plugin_folder(&self) -> bool {
        self.plugin_folder.is_some()
    }

    /// The executable of this process, even if the file was removed. It is never below the root,
    /// which has processes of another machine.
    pub fn own_executable(&self) -> PathBuf {
        PathBuf::from("/proc/self/exe")
    }

    /// A standard stream of this process. It is never below the root either.
    pub fn own_stream(stream: usize) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{stream}"))
    }

    /// The kernel's list of file locks on the whole node.
    pub fn locks(&self) -> PathBuf {
        self.under_root("/proc/locks")
    }

    /// The kernel's folder of a process.
    pub fn process(&self, pid: u32) -> PathBuf {
        self.under_root(&format!("/proc/{pid}"))
    }

    /// Prepends the root to `path`, if there is a root.
    pub fn under_root(&self, path: &str) -> PathBuf {
        match &self.root {
            Some(root) => root.join(path.trim_start_matches('/')),
            None => Path::new(path).to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_paths_are_the_originals() {
        let paths = Paths::new(None, "azure-vnet-ipam");
        assert_eq!(paths.state(), Path::new("/var/run/azure-vnet-ipam.json"));
        assert_eq!(
            paths.lock_file(),
            Path::new("/var/run/azure-vnet/azure-vnet-ipam.lock")
        );
        assert_eq!(paths.log(), Path::new("/var/log/azure-vnet-ipam.log"));
        assert_eq!(paths.links(), None);
        assert_eq!(paths.boot_clock_offset(), None);
    }
}
