//! The other parts of a cluster: controllers, a scheduler and kubectl. With them, tests run the commands of a page
//! for operators as they are written.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use super::lab::Lab;
use crate::harness::wait::{Process, output};
use crate::harness::{package, sh_with};

/// The controllers that a DaemonSet needs. The controller of nodes is left out, so that no pod is evicted when the
/// API server is slow.
const CONTROLLERS: &str =
    "daemonset-controller,serviceaccount-controller,garbage-collector-controller";

/// The folder with `kubectl`.
fn programs() -> PathBuf {
    package().join("target/apiserver")
}

/// Controllers and scheduler of the lab, and a copy of the examples for clusters.
pub struct Controllers {
    _daemons: [Process; 2],
    /// The working folder for the commands of the page.
    pub folder: PathBuf,
    kubeconfig: PathBuf,
}

impl Controllers {
    pub fn start(lab: &Lab) -> Controllers {
        lab.write("admin.kubeconfig", &lab.kubeconfig("admin"));
        let kubeconfig = lab.path("admin.kubeconfig");
        let daemon = |name: &str, more: &[&str]| {
            let mut args = vec![format!("--kubeconfig={}", kubeconfig.display())];
            args.extend(["--leader-elect=false", "--secure-port=0"].map(str::to_owned));
            args.extend(more.iter().map(|&arg| arg.to_owned()));
            lab.daemon(name, programs().join(name), &args)
        };
        let controllers = format!("--controllers={CONTROLLERS}");
        let daemons = [
            daemon("kube-controller-manager", &[&controllers]),
            daemon("kube-scheduler", &[]),
        ];
        let folder = lab.path("kubernetes");
        let examples = package().join("conflist-examples/kubernetes");
        sh_with("cp -r \"$1\" \"$2\"", &[&examples, &folder]);
        Controllers {
            _daemons: daemons,
            folder,
            kubeconfig,
        }
    }

    /// Runs a command as an operator types it, in the folder of the examples, and prints its output.
    pub fn try_type(&self, command: &str) -> Output {
        let output = self.ask(command);
        println!("$ {command}\n{}", text(&output));
        output
    }

    /// Runs a command like [`Controllers::try_type`], but prints nothing.
    pub fn ask(&self, command: &str) -> Output {
        let path = std::env::var("PATH").unwrap();
        let mut bash = Command::new("bash");
        bash.args(["-c", command])
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", programs().display()))
            .env("KUBECONFIG", &self.kubeconfig)
            // kubectl keeps its cache in the home folder.
            .env("HOME", self.folder.parent().unwrap());
        output(&mut bash)
    }

    /// Runs a command like [`Controllers::try_type`]. It must succeed. Returns its output.
    #[track_caller]
    pub fn type_command(&self, command: &str) -> String {
        let output = self.try_type(command);
        assert!(output.status.success(), "{command}: {}", text(&output));
        text(&output)
    }

    /// Replaces a text in a file of the examples. The file must contain `from`.
    #[track_caller]
    pub fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.folder.join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file}: {from}");
        fs::write(path, text.replace(from, to)).unwrap();
    }
}

/// The text that a command printed to stdout and stderr.
pub fn text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}
