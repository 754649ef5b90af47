//! The configuration of the daemons, for a node in its own namespaces.

use serde_json::json;

use super::lab::{Lab, NODE};
use crate::apiserver::ApiServer;
use crate::kubernetes::kubeconfig;
use crate::runtimes::{SOCKET, containerd_config};

impl Lab {
    /// Writes the configuration files of the daemons.
    pub fn configure(&self) {
        let folder = self.host.folder.display();
        let containerd = containerd_config(&folder);
        self.write("config.toml", &containerd);
        let kubelet = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            // kube-apiserver connects to this address for logs and to execute commands in containers.
            "address": self.host.subnets.ipv4(4).to_string(),
            "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
            "authorization": { "mode": "AlwaysAllow" },
            "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": false,
            "enforceNodeAllocatable": [],
            "failCgroupV1": false,
            "failSwapOn": false,
            "localStorageCapacityIsolation": false,
            "oomScoreAdj": 0,
            // The machine's disk may be nearly full.
            "evictionHard": {
                "imagefs.available": "0%", "memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
            },
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "maxPods": 250,
            "healthzPort": 0,
            "kubeAPIQPS": 500,
            "kubeAPIBurst": 1000,
            "eventRecordQPS": 500,
            "makeIPTablesUtilChains": false,
            "nodeStatusUpdateFrequency": "2s",
            "podLogsDir": "/var/log/pods",
            "resolvConf": "",
            "volumePluginDir": "/var/lib/kubelet/plugins-exec",
        });
        self.write("kubelet.json", &kubelet.to_string());
        self.write("kubeconfig", &self.kubeconfig(NODE));
    }

    pub fn kubeconfig(&self, user: &str) -> String {
        kubeconfig_of(&self.api, user)
    }
}

/// The kubeconfig of a user of the API server. The user has a certificate of this name.
pub fn kubeconfig_of(api: &ApiServer, user: &str) -> String {
    let path = |name: &str| api.folder.join(name).display().to_string();
    let own = path(&format!("{user}.pem"));
    kubeconfig(
        &json!({ "server": api.url, "certificate-authority": path("ca.crt") }),
        &json!({ "client-certificate": own, "client-key": own }),
    )
}
