//! A node in a folder, calls of the plugin on it, and a wire server.

pub mod strace;
pub mod wait;
mod wire;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ipnet::{Ipv4Net, Ipv6Net};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use serde_json::{Value, json};

use wait::{Process, output, wait_until};

pub use crate::histories::held;
#[cfg(feature = "tls")]
pub use wire::request_head;
pub use wire::{Gate, Reply, WireServer, http};

/// Whether LONG=1 is set. Some tests then run at full length.
pub fn is_long() -> bool {
    std::env::var_os("LONG").is_some_and(|value| value == "1")
}

/// Reports what is left out. Bypasses the output capture of the test runner.
pub fn skip(reason: impl Display) {
    let _ = writeln!(io::stderr(), "skipped: {reason}");
}

/// The program under test: the one just built, or AZURE_VNET_IPAM_UNDER_TEST.
pub fn binary() -> PathBuf {
    std::env::var_os("AZURE_VNET_IPAM_UNDER_TEST").map_or_else(
        || env!("CARGO_BIN_EXE_azure-vnet-ipam").into(),
        PathBuf::from,
    )
}

pub const MAC: &str = "7C1E52F9F3C4";
pub const SUBNET: &str = "10.224.0.0/16";

/// The file, below the root, with the offset of the boot clock in seconds.
const CLOCK: &str = "boottime-offset";

/// A node whose files are all in one folder.
pub struct Node {
    pub root: PathBuf,
    pub env: BTreeMap<String, String>,
}

impl Node {
    /// Creates a node with lo, eth0 and eth1, and without a wire server.
    pub fn new(name: &str) -> Node {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let root =
            std::env::temp_dir().join(format!("azure-vnet-ipam-{name}-{}-{n}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let node = Node {
            root: root.clone(),
            env: BTreeMap::new(),
        };
        for (index, name, mac) in [
            (1, "lo", "00:00:00:00:00:00"),
            (2, "eth0", "7c:1e:52:f9:f3:c4"),
            (3, "eth1", "7c:1e:52:f9:f3:c5"),
        ] {
            node.put(
                &format!("/sys/class/net/{name}/ifindex"),
                format!("{index}\n"),
            );
            node.put(
                &format!("/sys/class/net/{name}/address"),
                format!("{mac}\n"),
            );
        }
        node.put(
            "/proc/sys/kernel/random/boot_id",
            "8f3c5c52-0000-4000-8000-000000000001\n",
        );
        node.env("AZURE_VNET_IPAM_ROOT", root.to_str().unwrap())
            .env("AZURE_VNET_IPAM_QUERY_URL", "http://127.0.0.1:1/")
    }

    /// Creates a node with a wire server that sends this reply.
    pub fn with_wire(name: &str, reply: Reply) -> (Node, WireServer) {
        let wire = WireServer::on("127.0.0.1:0", reply);
        (
            Node::new(name).env("AZURE_VNET_IPAM_QUERY_URL", &wire.url()),
            wire,
        )
    }

    pub fn env(mut self, name: &str, value: &str) -> Node {
        self.env.insert(name.into(), value.into());
        self
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn state_path(&self) -> PathBuf {
        self.path("/var/run/azure-vnet-ipam.json")
    }

    pub fn state_bytes(&self) -> Vec<u8> {
        fs::read(self.state_path()).unwrap()
    }

    pub fn state(&self) -> Value {
        serde_json::from_slice(&self.state_bytes()).unwrap()
    }

    /// Container ID by address, for all held addresses.
    pub fn held(&self) -> BTreeMap<String, String> {
        held(&self.state())
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("/var/log/azure-vnet-ipam.log")).unwrap_or_default()
    }

    /// Advances the boot clock of the node. Calls that are waiting see it, too.
    pub fn advance_clock(&self, seconds: u64) {
        self.set_clock(self.clock() + seconds);
    }

    /// The offset of the node's boot clock, in seconds.
    fn clock(&self) -> u64 {
        let text = fs::read_to_string(self.root.join(CLOCK)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Sets the offset of the node's boot clock, in seconds.
    pub fn set_clock(&self, seconds: u64) {
        set_clock(&self.root, seconds);
    }

    /// Writes an entry of libcni's result cache.
    pub fn cache(
        &self,
        network: &str,
        container_id: &str,
        if_name: &str,
        netns: &str,
        addresses: &[&str],
    ) {
        let ips: Vec<_> = addresses
            .iter()
            .map(|a| json!({ "address": format!("{a}/16") }))
            .collect();
        let entry = json!({
            "kind": "cniCacheV1", "containerId": container_id, "config": "e30=", "ifName": if_name,
            "networkName": network, "netns": netns, "result": { "cniVersion": "1.0.0", "ips": ips },
        });
        self.put(
            &format!("/var/lib/cni/results/{network}-{container_id}-{if_name}"),
            entry.to_string(),
        );
    }

    /// Makes all files and folders accessible to every user.
    pub fn make_accessible_to_everybody(&self) {
        sh_with("chmod -R a+rwX \"$1\"", &[&self.root]);
    }

    /// The path of the state lock.
    pub fn lock_path(&self) -> PathBuf {
        self.path("/var/run/azure-vnet/azure-vnet-ipam.lock")
    }

    /// The line of /proc/locks while a process holds the lock.
    pub fn lock_line(&self, pid: u32) -> String {
        use std::os::unix::fs::MetadataExt;
        let meta = fs::metadata(self.lock_path()).unwrap();
        let (major, minor, inode) = ((meta.dev() >> 8) & 0xfff, meta.dev() & 0xff, meta.ino());
        format!("2: FLOCK  ADVISORY  WRITE {pid} {major:02x}:{minor:02x}:{inode} 0 EOF\n")
    }

    /// Removes the backup, so that a lost state cannot be restored from it.
    pub fn remove_backup(&self) {
        let _ = fs::remove_file(self.backup_path());
    }

    /// The path of the backup.
    pub fn backup_path(&self) -> PathBuf {
        self.path("/var/run/.azure-vnet-ipam.backup")
    }

    /// Makes the state one of the original, as on a node where this program has not run yet. Removes our key, the
    /// backup and the record.
    pub fn make_state_the_originals(&self) {
        let mut state = self.state();
        state.as_object_mut().unwrap().remove("azure-vnet-ipam");
        fs::write(self.state_path(), state.to_string()).unwrap();
        self.remove_backup();
        fs::write(self.lock_path(), "4711").unwrap();
    }

    /// The path of the fetch lock.
    pub fn fetch_lock_path(&self) -> PathBuf {
        self.path("/var/run/azure-vnet/azure-vnet-ipam.fetch")
    }

    /// Takes the state lock as another process would. Dropping the result releases it.
    pub fn hold_lock(&self) -> File {
        let lock = File::options().write(true).open(self.lock_path()).unwrap();
        lock.try_lock().unwrap();
        lock
    }

    /// Advances the clock past the lock timeout for these calls, which wait for the state lock.
    pub fn time_out_waiting_for_lock(&self, calls: &mut [Running]) {
        wait_until("calls that wait for the lock", || {
            lock_waiters(&self.lock_path()) == calls.len()
        });
        // The remaining ten seconds are enough for a busy machine. The sleep reveals a call that gives up too early.
        self.advance_clock(20);
        thread::sleep(Duration::from_millis(100));
        for call in calls {
            assert!(call.is_running(), "it waits for 30 s");
        }
        self.advance_clock(10);
    }

    /// Files in /var/run beside the state.
    pub fn leftover_files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("/var/run")).into_iter().flatten();
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        let known = [
            "azure-vnet-ipam.json",
            "azure-vnet",
            "netns",
            ".azure-vnet-ipam.backup",
        ];
        names.filter(|n| !known.contains(&n.as_str())).collect()
    }

    pub fn call(&self, command: &str, container_id: &str) -> Call<'_> {
        let set = [
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", container_id),
            ("CNI_NETNS", "/var/run/netns/pod"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
        ];
        let mut env = self.env.clone();
        env.extend(set.map(|(k, v)| (k.to_owned(), v.to_owned())));
        Call {
            _node: self,
            env,
            program: binary(),
            stdin: conf("0.3.0", json!({ "subnet": SUBNET })),
            under: Vec::new(),
            args: Vec::new(),
        }
    }

    /// An operator's command with its arguments.
    pub fn command<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Call<'_> {
        let call = self.call("", "").without("CNI_COMMAND");
        words.into_iter().fold(call, |call, word| call.arg(word))
    }

    /// Runs an operator's command with its arguments.
    pub fn run_command<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Outcome {
        self.command(words).run()
    }

    /// Runs an operator's command, with arguments that contain no blanks.
    pub fn run_line(&self, line: &str) -> Outcome {
        self.run_command(line.split(' '))
    }

    pub fn add(&self, container_id: &str) -> Outcome {
        self.call("ADD", container_id).run()
    }

    pub fn del(&self, container_id: &str) -> Outcome {
        self.call("DEL", container_id).run()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !thread::panicking() {
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// The network configuration that the main plugin sends, with these keys of `ipam`.
pub fn conf(version: &str, ipam: Value) -> String {
    let mut ipam = ipam;
    ipam["type"] = "azure-vnet-ipam".into();
    json!({ "cniVersion": version, "name": "azure", "type": "azure-vnet", "ipam": ipam })
        .to_string()
}

/// Merges the members of another object over those of the first one.
pub fn merged(mut object: Value, on_top: Value) -> Value {
    for (key, value) in on_top.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

/// One call of the plugin.
pub struct Call<'a> {
    _node: &'a Node,
    pub env: BTreeMap<String, String>,
    program: PathBuf,
    stdin: String,
    under: Vec<OsString>,
    args: Vec<String>,
}

impl Call<'_> {
    pub fn stdin(mut self, text: impl Into<String>) -> Self {
        self.stdin = text.into();
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.env.remove(name);
        self
    }

    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Calls another executable.
    pub fn with_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// Runs the call through a program that takes these arguments and then a command line.
    pub fn under<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.under = words.into_iter().map(|w| w.as_ref().to_owned()).collect();
        self
    }

    pub fn command(&self) -> Command {
        let program = self.program.as_os_str();
        let mut words = self.under.iter().map(OsString::as_os_str).chain([program]);
        let mut command = Command::new(words.next().unwrap());
        command.env_clear().envs(&self.env);
        if !self.under.is_empty() {
            command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        }
        command.args(words).args(&self.args);
        command
    }

    /// Starts the call with its output in files, so that many running calls do not use more open files. Calls in a
    /// shell and calls of runtimes have pipes.
    #[track_caller]
    pub fn start(self) -> Running {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = |stream: &str| {
            let name = format!("azure-vnet-ipam-{stream}-{}-{n}", std::process::id());
            std::env::temp_dir().join(name)
        };
        let (stdout, stderr) = (path("stdout"), path("stderr"));
        let start = Instant::now();
        let mut command = self.command();
        let _turn = OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner);
        command
            .stdin(Stdio::piped())
            .stdout(File::create(&stdout).unwrap())
            .stderr(File::create(&stderr).unwrap());
        let mut process = Process::start(&mut command);
        process.write_stdin(&self.stdin);
        Running {
            process: Some(process),
            stdout,
            stderr,
            start,
        }
    }

    #[track_caller]
    pub fn run(self) -> Outcome {
        self.start().finish()
    }

    /// Runs the call through a shell line. In it, `"$0"` is the plugin and `"$@"` are its arguments. The network
    /// configuration is on stdin.
    pub fn run_in_shell(self, line: &str) -> Outcome {
        let call = self.under(["sh", "-c", line]);
        run(&mut call.command(), &call.stdin)
    }

    /// Runs the call on a terminal, which neither sends input nor closes. Returns the text on the terminal.
    pub fn run_on_terminal(self) -> String {
        const FLAGS: OpenptFlags = OpenptFlags::RDWR.union(OpenptFlags::NOCTTY);
        let mut controller = File::from(openpt(FLAGS).unwrap());
        unlockpt(&controller).unwrap();
        let open = || ioctl_tiocgptpeer(&controller, FLAGS).unwrap();
        let mut command = self.command();
        let process = Process::start(command.stdin(open()).stdout(open()).stderr(open()));
        // Dropping the command closes its copies of the terminal.
        drop(command);
        assert!(process.status().success());
        let mut text = Vec::new();
        // Reading a terminal that no process has open ends with an error.
        let _ = controller.read_to_end(&mut text);
        String::from_utf8(text).unwrap()
    }
}

/// Locked while a call is started or its output is read, because both need a few open files for a moment.
static OPEN_FILES: Mutex<()> = Mutex::new(());

/// A running call. Dropping it early kills the call.
pub struct Running {
    process: Option<Process>,
    stdout: PathBuf,
    stderr: PathBuf,
    start: Instant,
}

impl Running {
    pub fn id(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    pub fn is_running(&mut self) -> bool {
        self.process.as_mut().unwrap().is_running()
    }

    pub fn kill(mut self) {
        self.process.take().unwrap().kill();
    }

    /// Waits for the call to end.
    #[track_caller]
    pub fn finish(mut self) -> Outcome {
        let status = self.process.take().unwrap().status();
        let took = self.start.elapsed();
        let _turn = OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner);
        let output = Output {
            status,
            stdout: fs::read(&self.stdout).unwrap(),
            stderr: fs::read(&self.stderr).unwrap(),
        };
        Outcome::new(output, took)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.stdout);
        let _ = fs::remove_file(&self.stderr);
    }
}

/// Sets the offset of the boot clock below a root, in seconds. Replaces the whole file, because calls may read it at
/// the same time.
pub fn set_clock(root: &Path, seconds: u64) {
    let new = root.join(format!("{CLOCK}.new"));
    fs::write(&new, seconds.to_string()).unwrap();
    fs::rename(new, root.join(CLOCK)).unwrap();
}

/// Runs a command with this stdin and waits for it.
#[track_caller]
pub fn run(command: &mut Command, stdin: &str) -> Outcome {
    let start = Instant::now();
    let mut process = Process::start_piped(command);
    process.write_stdin(stdin);
    Outcome::new(process.output(), start.elapsed())
}

/// The outcome of a call.
#[derive(Debug)]
pub struct Outcome {
    pub exit: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Outcome {
    fn new(output: Output, took: Duration) -> Outcome {
        Outcome {
            exit: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            took,
        }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The address of a successful ADD, without its prefix length.
    pub fn address(&self) -> String {
        assert_eq!(self.exit, Some(0), "{self:?}");
        address(&self.json()).unwrap_or_else(|| panic!("no address: {self:?}"))
    }

    /// Checks that the call failed with a complete error object. Returns code and message.
    pub fn error(&self) -> (i64, String) {
        assert_eq!(self.exit, Some(1), "{self:?}");
        let error = self.json();
        let object = error.as_object().unwrap();
        let known = ["cniVersion", "code", "msg", "details"];
        assert!(
            object.keys().all(|k| known.contains(&k.as_str())),
            "{self:?}"
        );
        assert!(
            object["cniVersion"].is_string()
                && object["details"].as_str().is_some_and(|d| !d.is_empty()),
            "{self:?}"
        );
        (
            object["code"].as_i64().unwrap(),
            object["msg"].as_str().unwrap().to_owned(),
        )
    }

    pub fn success(&self) -> &Self {
        assert_eq!(self.exit, Some(0), "{self:?}");
        self
    }

    /// Checks that the quarantine after a lost state refused the call.
    #[track_caller]
    pub fn assert_quarantined(&self) {
        let (code, msg) = self.error();
        assert!(
            code == 11 && msg.contains("the state is being rebuilt"),
            "{msg}"
        );
    }

    /// Checks that the call succeeded and printed nothing.
    pub fn assert_no_output(&self) {
        assert_eq!((self.exit, self.stdout.as_str()), (Some(0), ""), "{self:?}");
    }
}

pub fn address(result: &Value) -> Option<String> {
    let texts = [
        &result["ip4"]["ip"],
        &result["ip6"]["ip"],
        &result["ips"][0]["address"],
    ];
    let text = texts.into_iter().find_map(Value::as_str)?;
    Some(text.split('/').next().unwrap().to_owned())
}

/// A wire server answer whose primary interface has these secondary addresses in 10.224.0.0/16.
pub fn xml(last: impl IntoIterator<Item = u16>) -> String {
    xml_of(SUBNET.parse().unwrap(), last)
}

/// A wire server's answer like that of [`xml`], in another subnet.
pub fn xml_of(subnet: Ipv4Net, last: impl IntoIterator<Item = u16>) -> String {
    let address = |n: u16| Ipv4Addr::from(u32::from(subnet.network()) + u32::from(n));
    let one = |n: u16| format!(r#"<IPAddress Address="{}" IsPrimary="false"/>"#, address(n));
    let addresses: String = last.into_iter().map(one).collect();
    let primary = address(4);
    format!(
        r#"<Interfaces><Interface MacAddress="{MAC}" IsPrimary="true"><IPSubnet Prefix="{subnet}"><IPAddress Address="{primary}" IsPrimary="true"/>{addresses}</IPSubnet></Interface></Interfaces>"#
    )
}

/// A subnet of each family. It is reserved among all test processes of this machine until this value is dropped.
pub struct OwnSubnets {
    /// A /24 of 198.18.0.0/15, which is for tests of networks (RFC 2544).
    pub ipv4: Ipv4Net,
    /// A /120 of 2001:2::/48, which is for tests of networks (RFC 5180).
    pub ipv6: Ipv6Net,
    _claim: File,
}

impl OwnSubnets {
    pub fn claim() -> OwnSubnets {
        let claimed = (0..512u16).find_map(|n| {
            let path = std::env::temp_dir().join(format!("azure-vnet-ipam-subnets-{n}"));
            // This fails when another user has created the file.
            let claim = File::create(path).ok()?;
            claim.try_lock().ok()?;
            let ipv4 = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + (u32::from(n) << 8);
            let ipv6 = Ipv6Addr::new(0x2001, 2, 0, n, 0, 0, 0, 0);
            Some(OwnSubnets {
                ipv4: Ipv4Net::new(ipv4.into(), 24).unwrap(),
                ipv6: Ipv6Net::new(ipv6, 120).unwrap(),
                _claim: claim,
            })
        });
        claimed.expect("subnets that nobody uses")
    }

    /// The nth IPv4 address.
    pub fn ipv4(&self, n: u16) -> String {
        Ipv4Addr::from(u32::from(self.ipv4.network()) + u32::from(n)).to_string()
    }

    /// The nth IPv6 address.
    pub fn ipv6(&self, n: u16) -> String {
        Ipv6Addr::from(u128::from(self.ipv6.network()) + u128::from(n)).to_string()
    }
}

/// Runs a shell line that must succeed, and returns its stdout.
#[track_caller]
pub fn sh(line: &str) -> String {
    sh_with(line, &[])
}

/// Runs a shell line with arguments, which are `"$1"` and so on in the line. It must succeed. Returns its stdout.
#[track_caller]
pub fn sh_with(line: &str, args: &[&Path]) -> String {
    let output = output(Command::new("sh").args(["-c", line, "sh"]).args(args));
    assert!(
        output.status.success(),
        "{line}: {}{}",
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Installs the program, executable for every user. Another process writes the file, because a child that another
/// test starts at the same moment would inherit the open file. An executable that is open for writing cannot be
/// executed.
pub fn install(to: &Path) {
    sh_with("install -D -m 755 \"$1\" \"$2\"", &[&binary(), to]);
}

/// The number of processes that wait in flock(2) on a file. In /proc/locks their lines have an arrow.
pub fn lock_waiters(path: &Path) -> usize {
    use std::os::unix::fs::MetadataExt;
    let Ok(meta) = fs::metadata(path) else {
        return 0;
    };
    let file = format!(":{} 0 EOF", meta.ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let waits = |line: &&str| line.contains("-> FLOCK") && line.ends_with(&file);
    locks.lines().filter(waits).count()
}

/// The folder of this package.
pub fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns all Rust files below a folder.
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}
