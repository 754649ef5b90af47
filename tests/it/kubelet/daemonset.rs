//! The DaemonSet on a real node, from an image like that of a release. It installs the plugin, reports a replaced
//! plugin, is upgraded, rolled back and removed while pods are created and deleted. The commands are those of
//! `conflist-examples/kubernetes/README.md`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::churn::{Churn, Row, watch};
use super::controllers::{Controllers, text};
use super::faults::replace_plugin;
use super::lab::{Lab, NODE};
use crate::harness::wait::{output, wait_until};
use crate::harness::{Node, binary, package};
use crate::install::folder::{Original, working_other_version};
use crate::readme::section;
use crate::runtimes::{ctr, snapshotter};

const PLUGIN: &str = "/opt/cni/bin/azure-vnet-ipam";
const KEPT: &str = "/opt/cni/bin/azure-vnet-ipam.orig";
const METRICS: &str = "/var/lib/prometheus/node-exporter/azure-vnet-ipam.prom";
const IMAGE: &str = "registry.example.com/azure-vnet-ipam";
const MANIFEST: &str = "daemonset.yaml";
const APPLY: &str = "kubectl apply -k .";
const ROLLOUT: &str =
    "kubectl -n kube-system rollout status --timeout=150s daemonset/azure-vnet-ipam";
/// Prefix of the commands that the pod of the node runs.
const EXEC: &str =
    "kubectl -n kube-system exec daemonset/azure-vnet-ipam -c node-loop -- /azure-vnet-ipam";

/// Builds the image of an executable as a release does, and imports it into containerd with this tag.
fn make_image(lab: &Lab, executable: &Path, tag: &str) {
    let archive = lab.path(&format!("image-{tag}.tar"));
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let mut make = Command::new(package().join(".ci/oci-archive"));
    make.arg("--out").arg(&archive).args(["--created", "0"]);
    make.args(["--label", &format!("version={tag}")]);
    let made = output(make.arg(format!("{arch}={}", executable.display())));
    assert!(made.status.success(), "{made:?}");
    let import = ["images", "import", "--base-name", IMAGE];
    let more = ["--snapshotter", snapshotter(), archive.to_str().unwrap()];
    ctr(&[&import[..], &more].concat());
}

/// The commands in the shell blocks of a section.
#[track_caller]
fn commands_of(page: &str, heading: &str) -> Vec<String> {
    let section = section(page, heading);
    let blocks = section.split("\n```sh\n").skip(1);
    let blocks = blocks.map(|block| block.split("\n```").next().unwrap());
    let commands: Vec<_> = blocks.flat_map(str::lines).map(str::to_owned).collect();
    assert!(!commands.is_empty(), "no commands in {heading}");
    commands
}

/// A node with a control plane, on which the original is installed.
struct Installation {
    lab: Lab,
    controllers: Controllers,
    page: String,
    ours: Vec<u8>,
    original: Original,
    newer: PathBuf,
    _files: Node,
}

impl Installation {
    fn start() -> Installation {
        let lab = Lab::start(200);
        let files = Node::new("daemonset");
        let original = Original::new(&files);
        replace_plugin(&original.path);
        // The original does not support CNI 1.0.0, and cannot choose a pool.
        let conflist = Path::new("/etc/cni/net.d/bridge.conflist");
        let subnet = format!("{}/24", lab.host.subnets.ipv4(0));
        let text = fs::read_to_string(conflist).unwrap();
        let text = text.replace(r#""1.0.0""#, r#""0.4.0""#);
        // The plugin bridge takes the gateway address of the virtual network, and `check` reports that. ptp does not.
        let text = text.replace(r#""type": "bridge""#, r#""type": "ptp""#);
        let ipam = r#""type": "azure-vnet-ipam""#;
        assert!(text.contains(ipam), "{text}");
        let text = text.replace(ipam, &format!(r#"{ipam}, "subnet": "{subnet}""#));
        fs::write(conflist, text).unwrap();
        let newer = working_other_version(&files, "0.2.9");
        make_image(&lab, &binary(), env!("CARGO_PKG_VERSION"));
        make_image(&lab, &newer, "0.2.9");
        let controllers = Controllers::start(&lab);
        // Use shorter intervals than in production.
        controllers.edit(MANIFEST, "--interval=30", "--interval=1");
        controllers.edit(MANIFEST, "--check-interval=300", "--check-interval=3");
        let page = fs::read_to_string(controllers.folder.join("README.md")).unwrap();
        Installation {
            lab,
            controllers,
            page,
            ours: fs::read(binary()).unwrap(),
            original,
            newer,
            _files: files,
        }
    }

    fn apply(&self) {
        self.controllers.type_command(APPLY);
        self.wait_for_rollout();
    }

    #[track_caller]
    fn wait_for_rollout(&self) {
        let rollout = self.controllers.try_type(ROLLOUT);
        if !rollout.status.success() {
            let logs =
                "kubectl -n kube-system logs -l app.kubernetes.io/name=azure-vnet-ipam -c install";
            self.controllers.try_type(logs);
            panic!("{}", text(&rollout));
        }
    }

    /// Waits until there are metrics that begin with this name, and all of them have this value.
    #[track_caller]
    fn wait_for_metric(&self, name: &str, value: &str) {
        wait_until(format!("{name} {value}"), || {
            let metrics = fs::read_to_string(METRICS).unwrap_or_default();
            let mut found = metrics
                .lines()
                .filter(|line| line.starts_with(name))
                .peekable();
            let has_value = |line: &str| line.rsplit_once(' ').is_some_and(|(_, v)| v == value);
            found.peek().is_some() && found.all(has_value)
        });
    }

    #[track_caller]
    fn assert_installed(&self, expected: &[u8]) {
        assert!(fs::read(PLUGIN).unwrap() == expected, "another plugin");
        assert!(
            fs::read(KEPT).unwrap() == self.original.bytes,
            "another original"
        );
    }

    /// Replaces some pods, and checks that all others kept their address.
    #[track_caller]
    fn replace_pods(&mut self, churn: &mut Churn) {
        let before = self.lab.observe().sandboxes;
        churn.replace(&self.lab, 3);
        self.lab.wait_for_pods(&churn.wanted);
        let after = self.lab.observe().sandboxes;
        let kept = after.iter().filter(|(id, _)| before.contains_key(*id));
        assert_eq!(kept.clone().count(), churn.wanted.len() - 3);
        for (id, sandbox) in kept {
            assert_eq!(before[id], *sandbox);
        }
    }

    /// Runs `check` in the pod. Returns its exit status and its report.
    fn check(&self) -> (i32, Value) {
        let output = self
            .controllers
            .try_type(&format!("{EXEC} check -o json 2>/dev/null"));
        let report = serde_json::from_slice(&output.stdout);
        let report = report.unwrap_or_else(|e| panic!("{e}: {}", text(&output)));
        (output.status.code().unwrap(), report)
    }
}

/// Runs the whole scenario. Returns a row for the table of results.
pub fn run() -> Row {
    let mut node = Installation::start();
    let mut churn = Churn::start(&node.lab, 10);
    let ((), seen) = watch(|| {
        install(&mut node, &mut churn);
        every_privilege_is_needed(&node);
        replacement_is_reported(&mut node, &mut churn);
        upgrade_and_roll_back(&mut node, &mut churn);
        check_all_nodes(&node);
        delete(&mut node, &mut churn);
    });
    let refused = node.lab.refusals().len();
    let created = churn.created;
    let took = churn.end(&node.lab);
    let observation = node.lab.observe();
    assert_eq!(observation.held, Some([].into()));
    Row {
        scenario: "DaemonSet installed, upgraded, rolled back, removed".into(),
        pods: created,
        took,
        refused,
        seen,
        to_reclaim: 0,
        lost: observation.lost().len(),
        remark: if node.original.is_stand_in {
            "with a stand-in for the original".into()
        } else {
            "with the original itself before and after".into()
        },
    }
}

fn install(node: &mut Installation, churn: &mut Churn) {
    node.replace_pods(churn);
    let commands = commands_of(&node.page, "## Install");
    let [push, apply, label] = &commands[..] else {
        panic!("{commands:?}");
    };
    // The image is already on the node, so no registry is needed.
    assert!(push.starts_with("skopeo copy "), "{push}");
    // The DaemonSet runs only on nodes that have the label.
    node.controllers.type_command(apply);
    let scheduled = "kubectl -n kube-system get daemonset azure-vnet-ipam \
        -o jsonpath='{.status.observedGeneration} {.status.desiredNumberScheduled}'";
    wait_until("the controller to have seen it", || {
        text(&node.controllers.ask(scheduled)) == "1 0"
    });
    assert!(
        fs::read(PLUGIN).unwrap() == node.original.bytes,
        "a node without label"
    );
    node.controllers.type_command(&label.replace("NODE", NODE));
    node.wait_for_rollout();
    node.assert_installed(&node.ours);
    node.replace_pods(churn);
    node.wait_for_metric("azure_vnet_ipam_executable_matches", "1");
    // The pod has the privileges for a complete scan of the node.
    let (status, report) = node.check();
    assert_eq!(report["notSeen"], json!([]), "{report:#}");
    assert_eq!(status, 0, "{report:#}");
    assert_eq!(report["compared"], churn.wanted.len(), "{report:#}");
    node.wait_for_metric("azure_vnet_ipam_last_check_status", "0");
}

/// If one of the privileges that the manifest explains is missing, the pod reports that its scan is incomplete.
fn every_privilege_is_needed(node: &Installation) {
    let manifest = node.controllers.folder.join(MANIFEST);
    let whole = fs::read_to_string(&manifest).unwrap();
    for (with, without) in [
        ("                - SYS_ADMIN\n", ""),
        ("                - SYS_PTRACE\n", ""),
        ("hostPID: true", "hostPID: false"),
    ] {
        node.controllers.edit(MANIFEST, with, without);
        node.apply();
        let (status, report) = node.check();
        assert_ne!(report["notSeen"], json!([]), "without {with}: {report:#}");
        assert_ne!(status, 0, "without {with}: {report:#}");
        fs::write(&manifest, &whole).unwrap();
    }
    node.apply();
}

/// Puts the original back, as an upgrade of the node's image does.
fn replacement_is_reported(node: &mut Installation, churn: &mut Churn) {
    const FIRING: &str = "azure_vnet_ipam_executable_matches";
    replace_plugin(&node.original.path);
    node.wait_for_metric(FIRING, "0");
    let log = "kubectl -n kube-system logs daemonset/azure-vnet-ipam -c node-loop";
    let printed = node.controllers.type_command(log);
    assert!(printed.contains("there is another file"), "{printed}");
    // The original stays until an operator acts, and pods get addresses.
    node.replace_pods(churn);
    assert!(fs::read(PLUGIN).unwrap() != node.ours);
    node.controllers
        .edit(MANIFEST, "# - --reinstall", "- --reinstall");
    node.apply();
    node.assert_installed(&node.ours);
    node.wait_for_metric(FIRING, "1");
    replace_plugin(&node.original.path);
    wait_until("the plugin to be installed again", || {
        fs::read(PLUGIN).unwrap() == node.ours
    });
    node.assert_installed(&node.ours);
    node.wait_for_metric(FIRING, "1");
    node.replace_pods(churn);
    node.controllers
        .edit(MANIFEST, "- --reinstall", "# - --reinstall");
    node.apply();
}

fn upgrade_and_roll_back(node: &mut Installation, churn: &mut Churn) {
    const TAG: [&str; 2] = [
        "newTag: 0.2.9",
        concat!("newTag: ", env!("CARGO_PKG_VERSION")),
    ];
    let edit_tag =
        |node: &Installation, from, to| node.controllers.edit("kustomization.yaml", from, to);
    edit_tag(node, TAG[1], TAG[0]);
    node.apply();
    node.assert_installed(&fs::read(&node.newer).unwrap());
    node.wait_for_metric("azure_vnet_ipam_executable_matches", "1");
    node.replace_pods(churn);
    let commands = commands_of(&node.page, "## Upgrade and roll back");
    node.controllers.type_command(&commands.join("\n"));
    node.wait_for_rollout();
    node.assert_installed(&node.ours);
    node.replace_pods(churn);
    edit_tag(node, TAG[0], TAG[1]);
    // A version that cannot be installed stops the rollout, and the plugin stays.
    node.controllers.edit(
        MANIFEST,
        "args: [install]",
        "args: [install, --dir, /nowhere]",
    );
    node.controllers.type_command(APPLY);
    let state = "kubectl -n kube-system get pods -o jsonpath='{..initContainerStatuses[0].state}{..initContainerStatuses[0].lastState}'";
    wait_until("the init container to fail", || {
        thread::sleep(Duration::from_millis(500));
        text(&node.controllers.ask(state)).contains(r#""exitCode":2"#)
    });
    node.assert_installed(&node.ours);
    node.replace_pods(churn);
    node.controllers.edit(
        MANIFEST,
        "args: [install, --dir, /nowhere]",
        "args: [install]",
    );
    node.apply();
}

fn check_all_nodes(node: &Installation) {
    let command = commands_of(&node.page, "## Check all nodes").join("\n");
    let printed = node.controllers.type_command(&command);
    assert_eq!(printed, "0 of 1 nodes in trouble\n");
    let conflist = Path::new("/etc/cni/net.d/00-broken.conflist");
    fs::write(conflist, "{").unwrap();
    let failed = node.controllers.try_type(&command);
    fs::remove_file(conflist).unwrap();
    assert_eq!(failed.status.code(), Some(1));
    let printed = text(&failed);
    assert!(printed.starts_with(&format!("{NODE}: ")), "{printed}");
    assert!(printed.ends_with("1 of 1 nodes in trouble\n"), "{printed}");
}

fn delete(node: &mut Installation, churn: &mut Churn) {
    // The plugin stays installed when the DaemonSet is deleted.
    node.controllers.type_command("kubectl delete -k .");
    node.assert_installed(&node.ours);
    node.replace_pods(churn);
    node.apply();
    // The commands of the page bring the original back.
    node.controllers
        .edit(MANIFEST, "args: [install]", "args: [uninstall]");
    let commands = commands_of(&node.page, "## Remove");
    let (last, commands) = commands.split_last().unwrap();
    for command in commands {
        node.controllers.type_command(command);
    }
    assert!(fs::read(PLUGIN).unwrap() == node.original.bytes);
    // A node that boots before the last command runs the init container again.
    node.controllers.type_command(
        "kubectl -n kube-system delete pod -l app.kubernetes.io/name=azure-vnet-ipam",
    );
    node.wait_for_rollout();
    node.controllers.type_command(last);
    assert!(fs::read(PLUGIN).unwrap() == node.original.bytes);
    assert!(!fs::exists(KEPT).unwrap());
    node.replace_pods(churn);
}
