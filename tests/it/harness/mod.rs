//! A node in a folder, calls of the plugin on it, and a wire server.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The program under test: the one just built, or another that is named, such as the static one that users install.
pub fn binary() -> PathBuf {
    std::env::var_os("AZURE_VNET_IPAM_UNDER_TEST").map_or_else(
        || env!("CARGO_BIN_EXE_azure-vnet-ipam").into(),
        PathBuf::from,
    )
}

pub const MAC: &str = "7C1E52F9F3C4";
pub const SUBNET: &str = "10.224.0.0/16";

/// A node whose files all lie in one folder.
pub struct Node {
    pub root: PathBuf,
    pub env: BTreeMap<String, String>,
}

impl Node {
    /// A node with lo, eth0 and eth1, and no wire server.
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

    /// The same with a wire server that answers with this.
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

    /// Container ID by address, of all that are in use.
    pub fn held(&self) -> BTreeMap<String, String> {
        held(&self.state())
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("/var/log/azure-vnet-ipam.log")).unwrap_or_default()
    }

    /// Lets seconds pass for the state, by moving every moment in it into the past.
    pub fn pass(&self, seconds: u64) {
        let text = String::from_utf8(self.state_bytes()).unwrap();
        let mut aged = String::new();
        for line in text.split_inclusive('\n') {
            let mut line = line.to_owned();
            for key in ["since", "suspect", "released", "quarantineUntil", "at"] {
                let name = format!("\"{key}\": ");
                if let Some((before, after)) = line.split_once(&name) {
                    let digits = after
                        .find(|c: char| !c.is_ascii_digit())
                        .unwrap_or(after.len());
                    let at: u64 = after[..digits].parse().unwrap();
                    line = format!(
                        "{before}{name}{}{}",
                        at.saturating_sub(seconds * 1_000_000_000),
                        &after[digits..]
                    );
                }
            }
            aged += &line;
        }
        fs::write(self.state_path(), aged).unwrap();
    }

    /// Writes an entry of libcni's cache.
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

    /// Files in /var/run beside the state.
    pub fn left_overs(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("/var/run")).into_iter().flatten();
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        names
            .filter(|n| !["azure-vnet-ipam.json", "azure-vnet", "netns"].contains(&n.as_str()))
            .collect()
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
            stdin: conf("0.3.0", json!({ "subnet": SUBNET })),
            args: Vec::new(),
        }
    }

    /// What an operator types: a command and what stands behind it.
    pub fn typed<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Outcome {
        let call = self.call("", "").without("CNI_COMMAND");
        words
            .into_iter()
            .fold(call, |call, word| call.arg(word))
            .run()
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

pub fn held(state: &Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for space in state["IPAM"]["AddressSpaces"].as_object().unwrap().values() {
        for pool in space["Pools"].as_object().unwrap().values() {
            for (address, record) in pool["Addresses"].as_object().unwrap() {
                if record["InUse"] == true {
                    found.insert(address.clone(), record["ID"].as_str().unwrap().to_owned());
                }
            }
        }
    }
    found
}

/// A network configuration as the main plugin sends it, with these members of `ipam`.
pub fn conf(version: &str, ipam: Value) -> String {
    let mut ipam = ipam;
    ipam["type"] = "azure-vnet-ipam".into();
    json!({ "cniVersion": version, "name": "azure", "type": "azure-vnet", "ipam": ipam })
        .to_string()
}

/// An object with the members of another on top of its own.
pub fn over(mut object: Value, on_top: Value) -> Value {
    for (key, value) in on_top.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

/// One call of the plugin.
pub struct Call<'a> {
    _node: &'a Node,
    pub env: BTreeMap<String, String>,
    stdin: String,
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

    fn command(&self) -> Command {
        let mut command = Command::new(binary());
        command.env_clear().envs(&self.env).args(&self.args);
        command
    }

    pub fn spawn(self) -> Child {
        let mut command = self.command();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A call that ends before it reads its input is part of some tests.
        let _ = child.stdin.take().unwrap().write_all(self.stdin.as_bytes());
        child
    }

    pub fn run(self) -> Outcome {
        let start = Instant::now();
        outcome(self.spawn(), start)
    }

    /// Runs it through a shell line in which `"$0"` is the plugin; stdin is the network configuration.
    pub fn run_in_shell(self, line: &str) -> Outcome {
        let start = Instant::now();
        let mut command = Command::new("sh");
        command
            .env_clear()
            .envs(&self.env)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.args(["-c", line]).arg(binary());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let _ = child.stdin.take().unwrap().write_all(self.stdin.as_bytes());
        outcome(child, start)
    }
}

pub fn outcome(child: Child, start: Instant) -> Outcome {
    let output = child.wait_with_output().unwrap();
    Outcome {
        exit: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        took: start.elapsed(),
    }
}

/// What a call came to.
#[derive(Debug)]
pub struct Outcome {
    pub exit: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Outcome {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The address of a successful ADD, without its prefix length.
    pub fn address(&self) -> String {
        assert_eq!(self.exit, Some(0), "{self:?}");
        address(&self.json()).unwrap_or_else(|| panic!("no address: {self:?}"))
    }

    /// Code and message of a failure, after checking that it is a proper one.
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

    /// A success that prints nothing.
    pub fn silent(&self) {
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

/// The answer of a wire server whose primary interface has these secondary addresses 10.224.x.y.
pub fn xml(last: impl IntoIterator<Item = u16>) -> String {
    let addresses: String = last
        .into_iter()
        .map(|n| {
            format!(
                r#"<IPAddress Address="10.224.{}.{}" IsPrimary="false"/>"#,
                n >> 8,
                n & 255
            )
        })
        .collect();
    format!(
        r#"<Interfaces><Interface MacAddress="{MAC}" IsPrimary="true"><IPSubnet Prefix="{SUBNET}"><IPAddress Address="10.224.0.4" IsPrimary="true"/>{addresses}</IPSubnet></Interface></Interfaces>"#
    )
}

/// What a wire server does with a request.
#[derive(Clone)]
pub enum Reply {
    /// Answers 200 with this body.
    Xml(String),
    /// Answers with this status and body.
    Status(u16, String),
    /// Writes these bytes and closes.
    Raw(Vec<u8>),
    /// Waits before the rest.
    After(Duration, Box<Reply>),
    /// Writes the first, waits, writes the second.
    InTwo(Vec<u8>, Duration, Vec<u8>),
    /// Accepts and never answers.
    Silent,
}

/// A wire server that really listens.
pub struct WireServer {
    address: SocketAddr,
    reply: Arc<Mutex<Reply>>,
    requests: Arc<Mutex<Vec<String>>>,
    stopped: Arc<AtomicBool>,
    accepting: Option<thread::JoinHandle<()>>,
}

impl WireServer {
    pub fn on(address: &str, reply: Reply) -> WireServer {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = WireServer {
            address,
            reply: Arc::new(Mutex::new(reply)),
            requests: Arc::default(),
            stopped: Arc::default(),
            accepting: None,
        };
        server.accept(listener);
        server
    }

    fn accept(&mut self, listener: TcpListener) {
        self.stopped = Arc::default();
        let (reply, requests, stopped) = (
            self.reply.clone(),
            self.requests.clone(),
            self.stopped.clone(),
        );
        self.accepting = Some(thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (reply, requests) = (reply.clone(), requests.clone());
                if let Ok(stream) = stream {
                    thread::spawn(move || serve(stream, &reply, &requests));
                }
            }
        }));
    }

    pub fn url(&self) -> String {
        format!(
            "http://{}/machine/plugins?comp=nmagent&type=getinterfaceinfov1",
            self.address
        )
    }

    pub fn set(&self, reply: Reply) {
        *self.reply.lock().unwrap() = reply;
    }

    /// How many requests there were so far.
    pub fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// The heads of the requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Refuses connections from now on.
    pub fn stop(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            self.stopped.store(true, Ordering::SeqCst);
            let _ = TcpStream::connect(self.address);
            accepting.join().unwrap();
        }
    }

    /// Accepts connections again.
    pub fn start(&mut self) {
        if self.accepting.is_none() {
            self.accept(TcpListener::bind(self.address).unwrap());
        }
    }
}

impl Drop for WireServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The head of an HTTP request; `None` when the client hangs up before its end.
pub fn request_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

fn serve(mut stream: TcpStream, reply: &Mutex<Reply>, requests: &Mutex<Vec<String>>) {
    let Some(head) = request_head(&mut stream) else {
        return;
    };
    requests.lock().unwrap().push(head);
    let reply = reply.lock().unwrap().clone();
    answer(&mut stream, reply);
}

fn answer(stream: &mut TcpStream, reply: Reply) {
    // Callers that hang up early are part of some tests.
    let _ = match reply {
        Reply::Xml(body) => stream.write_all(&http(200, body.as_bytes())),
        Reply::Status(status, body) => stream.write_all(&http(status, body.as_bytes())),
        Reply::Raw(bytes) => stream.write_all(&bytes),
        Reply::After(wait, then) => {
            thread::sleep(wait);
            answer(stream, *then);
            Ok(())
        }
        Reply::InTwo(first, wait, second) => stream.write_all(&first).and_then(|()| {
            thread::sleep(wait);
            stream.write_all(&second)
        }),
        Reply::Silent => {
            thread::sleep(Duration::from_secs(60));
            Ok(())
        }
    };
}

pub fn http(status: u16, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut bytes =
        format!("HTTP/1.1 {status} X\r\nContent-Type: text/xml\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")
            .into_bytes();
    bytes.extend(body);
    bytes
}

/// Runs a shell line, which must succeed.
pub fn sh(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    assert!(
        output.status.success(),
        "{line}: {}{}",
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Puts the program there, for everybody to execute. Another process writes it: what this one has open for writing, a child that
/// another test starts at the same moment has open too, and then it cannot be executed.
pub fn install(to: &Path) {
    let from = binary();
    sh(&format!(
        "install -D -m 755 {} {}",
        from.display(),
        to.display()
    ));
}

/// The folder of this package.
pub fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
