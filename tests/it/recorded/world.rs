//! The nodes on which cases run.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::compare::{Past, Seen, step};
use crate::harness::wait::{Process, output, wait_until};
use crate::harness::{Reply, WireServer, binary, http, lock_waiters, set_clock, sh, sh_with};

/// Cases that need addresses of the host. A folder cannot provide them.
const NEED_THE_KERNEL: [&str; 3] = [
    "state_inuse_without_id",
    "wire_isprimary_0",
    "wire_isprimary_F",
];

const LOCK: &str = "/run/azure-vnet/azure-vnet-ipam.lock";

/// A host that runs cases one after another.
pub struct World {
    wire: WireServer,
    /// The root folder, or `None` when / is private.
    folder: Option<PathBuf>,
    scratch: PathBuf,
    links: Value,
}

impl World {
    pub fn in_a_folder() -> World {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let scratch = std::env::temp_dir().join(format!(
            "azure-vnet-ipam-recorded-{}-{n}",
            std::process::id()
        ));
        World {
            wire: WireServer::on("127.0.0.1:0", Reply::Xml(String::new())),
            folder: Some(scratch.join("root")),
            scratch,
            links: Value::Null,
        }
    }

    /// Creates a host in namespaces. Must be called in private mount and network namespaces.
    pub fn in_private_namespaces() -> World {
        let scratch =
            std::env::temp_dir().join(format!("azure-vnet-ipam-private-{}", std::process::id()));
        fs::create_dir_all(scratch.join("etc")).unwrap();
        sh_with(
            "cp -a /etc/. \"$1\"/etc && mount --bind \"$1\"/etc /etc",
            &[&scratch],
        );
        sh("ip addr add 168.63.129.16/32 dev lo");
        // A permanent network namespace for the other ends of links.
        sh_with(
            "touch \"$1\"/peer && unshare --net mount --bind /proc/self/ns/net \"$1\"/peer",
            &[&scratch],
        );
        World {
            wire: WireServer::on("168.63.129.16:80", Reply::Xml(String::new())),
            folder: None,
            scratch,
            links: Value::Null,
        }
    }

    /// The reason why a case cannot run here.
    pub fn cannot(&self, case: &Value) -> Option<String> {
        self.folder.as_ref()?;
        let name = case["name"].as_str().unwrap();
        if NEED_THE_KERNEL.contains(&name) {
            return Some("the kernel's addresses decide it".to_owned());
        }
        let setup_of_steps = case["steps"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|s| s["before"]["shell"].as_array().into_iter().flatten());
        let mut lines = case["setup"]
            .as_array()
            .into_iter()
            .flatten()
            .chain(setup_of_steps)
            .filter_map(Value::as_str);
        let line = lines.find(|l| l.contains("mount") || l.starts_with("ip "))?;
        Some(format!(
            "needs root for {:?}",
            line.chars().take(40).collect::<String>()
        ))
    }

    /// Runs a case. The error says where it differs.
    pub fn run(&mut self, case: &Value) -> Result<(), String> {
        self.reset(case);
        self.set_wire(&case["wire"]);
        if let Some(text) = content(&case["initial_state_text"]) {
            self.put("/run/azure-vnet-ipam.json", &text);
        }
        for (path, text) in case["files"].as_object().into_iter().flatten() {
            self.put(path, &content(text).unwrap());
        }
        for line in case["setup"].as_array().into_iter().flatten() {
            self.shell(line.as_str().unwrap());
        }
        let had_state = !case["initial_state_text"].is_null();
        let mut past = Past::default();
        for (n, recorded) in case["steps"].as_array().unwrap().iter().enumerate() {
            let seen = self.step(recorded, &past);
            step(recorded, &seen, &mut past, had_state)
                .map_err(|why| format!("step {} {}: {why}", n + 1, recorded["cmd"]))?;
        }
        Ok(())
    }

    /// Resets the host to the interfaces of the case.
    fn reset(&mut self, case: &Value) {
        let _ = fs::create_dir_all(self.scratch.join("lockdir"));
        match &self.folder {
            Some(folder) => {
                let _ = fs::remove_dir_all(folder);
                for (n, link) in case["interfaces"].as_array().unwrap().iter().enumerate() {
                    let folder = folder
                        .join("sys/class/net")
                        .join(link["name"].as_str().unwrap());
                    fs::create_dir_all(&folder).unwrap();
                    fs::write(folder.join("ifindex"), format!("{}\n", n + 1)).unwrap();
                    fs::write(
                        folder.join("address"),
                        format!("{}\n", link["mac"].as_str().unwrap()),
                    )
                    .unwrap();
                }
                fs::create_dir_all(folder.join("var/run")).unwrap();
                fs::create_dir_all(folder.join("var/log")).unwrap();
            }
            None => {
                for folder in ["/run", "/var/log", "/etc/kubernetes", "/var/lib/cni"] {
                    fs::create_dir_all(folder).unwrap();
                    let again = format!(
                        "while umount {folder}/azure-vnet 2>/dev/null || umount {folder} 2>/dev/null; do :; done"
                    );
                    sh(&format!(
                        "{again}; mkdir -p {folder}; mount -t tmpfs -o size=64m,mode=0755 none {folder}"
                    ));
                }
                sh("ip addr replace 168.63.129.16/32 dev lo");
                self.shell(
                    "ip route del 168.63.129.16/32 dev eth0; ip neigh del 168.63.129.16 dev eth0",
                );
                self.set_links(&case["interfaces"]);
            }
        }
    }

    fn set_links(&mut self, links: &Value) {
        if self.links == *links {
            return;
        }
        sh(
            "for l in $(ip -o link | awk -F'[ @:]+' '{print $2}'); do [ $l = lo ] || ip link del $l; done",
        );
        let peer = self.scratch.join("peer");
        for (n, link) in links
            .as_array()
            .unwrap()
            .iter()
            .filter(|l| l["name"] != "lo")
            .enumerate()
        {
            let (name, mac) = (
                link["name"].as_str().unwrap(),
                link["mac"].as_str().unwrap(),
            );
            let line = format!(
                "ip link add {name} address {mac} type veth peer name p{n} netns \"$1\" && ip link set {name} up"
            );
            sh_with(&line, &[&peer]);
        }
        self.shell("ip addr add 10.224.0.4/16 dev eth0");
        self.links = links.clone();
    }

    /// The local path of a path of the original.
    fn local(&self, path: &str) -> PathBuf {
        let Some(folder) = &self.folder else {
            return path.into();
        };
        let path = path
            .strip_prefix("/run/")
            .map_or_else(|| path.to_owned(), |rest| format!("/var/run/{rest}"));
        folder.join(path.trim_start_matches('/'))
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.local(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Runs a shell line of a case. Some lines fail on purpose.
    fn shell(&self, line: &str) {
        let mut line = line.replace("{{tmp}}", "\"$SCRATCH\"");
        let mut shell = Command::new("sh");
        if let Some(folder) = &self.folder {
            line = line
                .replace(" /run/", " var/run/")
                .replace(" /var/log/", " var/log/");
            shell.current_dir(folder);
        }
        output(shell.args(["-c", &line]).env("SCRATCH", &self.scratch));
    }

    fn set_wire(&mut self, spec: &Value) {
        if spec["unreachable"] == true {
            self.wire.stop();
            return;
        }
        self.wire.set(reply(spec));
        self.wire.start();
    }

    fn step(&mut self, step: &Value, past: &Past) -> Seen {
        let before = &step["before"];
        if !before["wire"].is_null() {
            self.set_wire(&before["wire"]);
        }
        if let Some(state) = before.get("state") {
            let path = self.local("/run/azure-vnet-ipam.json");
            let _ = fs::remove_file(path);
            if let Some(text) = content(state) {
                self.put("/run/azure-vnet-ipam.json", &text);
            }
        }
        for (path, text) in before["files"].as_object().into_iter().flatten() {
            self.put(path, &content(text).unwrap());
        }
        for line in before["shell"].as_array().into_iter().flatten() {
            self.shell(line.as_str().unwrap());
        }
        let holder = before
            .get("hold_lock")
            .and_then(|hold| self.hold_lock(hold));
        let waits_for_lock = holder.is_some() && step["cmd"].is_string();
        if let Some(folder) = self.folder.as_ref().filter(|_| waits_for_lock) {
            set_clock(folder, 0);
        }
        let seen = self.call(step, past, waits_for_lock);
        drop(holder);
        seen
    }

    /// Holds the lock as another process would, for this time or until the step ends.
    fn hold_lock(&self, hold: &Value) -> Option<File> {
        let path = self.local(LOCK);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .unwrap();
        match hold["kind"].as_str().unwrap() {
            "flock" => file.try_lock().unwrap(),
            "flock_shared" => file.try_lock_shared().unwrap(),
            other => panic!("no such lock: {other}"),
        }
        let Some(seconds) = hold["release_after_s"].as_f64() else {
            return Some(file);
        };
        thread::spawn(move || {
            thread::sleep(Duration::from_secs_f64(seconds));
            drop(file);
        });
        None
    }

    /// Waits for the lock timeout of a call. It passes at once where the clock can be advanced.
    fn time_out_waiting_for_lock(&self, call: &mut Process) {
        let Some(folder) = &self.folder else { return };
        let lock = self.local(LOCK);
        wait_until("a call that waits for the lock", || {
            !call.is_running() || lock_waiters(&lock) > 0
        });
        set_clock(folder, 31);
    }

    fn call(&self, step: &Value, past: &Past, waits_for_lock: bool) -> Seen {
        let fill = |text: &str| {
            let mut text = text.to_owned();
            for (n, pick) in past.picks.iter().enumerate() {
                text = text.replace(
                    &format!("{{{{ip:{n}}}}}"),
                    pick.as_deref().unwrap_or_default(),
                );
            }
            text
        };
        let closed = !step["stdout_closed"].is_null();
        let mut command = if closed {
            Command::new("sh")
        } else {
            Command::new(binary())
        };
        if closed {
            command.args(["-c", "exec \"$0\" >&-"]).arg(binary());
        }
        command.env_clear().current_dir("/");
        for (name, value) in step["env"].as_object().unwrap() {
            command.env(name, fill(value.as_str().unwrap()));
        }
        if let Some(folder) = &self.folder {
            command
                .env("AZURE_VNET_IPAM_ROOT", folder)
                .env("AZURE_VNET_IPAM_QUERY_URL", self.wire.url());
        }
        command.args(
            step["args"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str),
        );
        let stdin = step["stdin_template"]
            .as_str()
            .or(step["stdin"].as_str())
            .unwrap_or_default();
        let mut process = Process::start_piped(&mut command);
        process.write_stdin(&fill(stdin));
        if waits_for_lock {
            self.time_out_waiting_for_lock(&mut process);
        }
        let output = process.output();
        let state = self.local("/run/azure-vnet-ipam.json");
        let beside = fs::read_dir(state.parent().unwrap())
            .into_iter()
            .flatten()
            .map(|e| e.unwrap().file_name().into_string().unwrap());
        Seen {
            exit: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            state: fs::read(&state).ok(),
            state_mode: fs::metadata(&state).map_or(0, |m| m.permissions().mode() & 0o777),
            left_overs: beside
                .filter(|n| n.starts_with("azure-vnet-ipam.json") && n != "azure-vnet-ipam.json")
                .collect::<BTreeSet<_>>(),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// A text of a case: a string, or bytes in base64.
fn content(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.clone().into_bytes()),
        Value::Object(object) => Some(base64(object["b64"].as_str().unwrap())),
        _ => None,
    }
}

fn base64(text: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .unwrap()
}

/// The wire server's reply in a case.
fn reply(spec: &Value) -> Reply {
    let Some(object) = spec.as_object() else {
        return Reply::Xml(spec.as_str().unwrap_or_default().to_owned());
    };
    let body = match object.get("body_b64") {
        Some(b64) => base64(b64.as_str().unwrap()),
        None => spec["body"]
            .as_str()
            .unwrap_or_default()
            .as_bytes()
            .to_vec(),
    };
    let status = u16::try_from(spec["status"].as_u64().unwrap_or(200)).unwrap();
    let seconds = |key: &str| Duration::from_secs_f64(spec[key].as_f64().unwrap_or(0.0));
    let reply = if let Some(to) = spec["redirect_to"].as_str() {
        Reply::Redirect(to.to_owned(), body)
    } else if spec["chunked"] == true {
        let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in body.chunks(17) {
            bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
            bytes.extend(chunk);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"0\r\n\r\n");
        Reply::Raw(bytes)
    } else if let Some(extra) = spec["content_length_extra"].as_u64() {
        let length = body.len() as u64 + extra;
        let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        bytes.extend(&body);
        Reply::Raw(bytes)
    } else if spec.get("delay_body_s").is_some() {
        let whole = http(status, &body);
        let (first, second) = whole.split_at(whole.len() - body.len() / 2);
        Reply::InTwo(first.to_vec(), seconds("delay_body_s"), second.to_vec())
    } else {
        Reply::Raw(http(status, &body))
    };
    if seconds("delay_headers_s").is_zero() {
        reply
    } else {
        Reply::After(seconds("delay_headers_s"), Box::new(reply))
    }
}
