//! Pods stay alive while version 0.2.0, this version and the original take turns.

use std::path::PathBuf;
use std::time::Duration;

use super::churn::{Churn, Row, watch};
use super::faults::{IPAM, replace_plugin};
use super::lab::{Lab, MainPlugin};
use crate::genuine_azure_vnet::host::{original_folder, version};
use crate::harness::wait::wait_until;
use crate::harness::{binary, is_long, package};

/// The path to which `.ci/run kubelet` copies version 0.2.0, which has an older format of the state.
pub fn version_0_2() -> PathBuf {
    package().join("target/v0.2.0/azure-vnet-ipam")
}

/// Replaces pods under each of the programs in turn. At the end, version 0.2.0 must refuse an ADD, because it does
/// not know the format of the state. Its DEL must still release the address.
pub fn run() -> Row {
    let time = Duration::from_secs(if is_long() { 60 } else { 6 });
    let mut lab = Lab::start_with(200, MainPlugin::AzureVnet);
    replace_plugin(&version_0_2());
    let mut churn = Churn::start_at_random(&lab, 30);
    let (took, seen) = watch(|| {
        let original = original_folder(&version()).join(IPAM);
        for program in [binary(), original, binary()] {
            churn.burst(&lab);
            replace_plugin(&program);
            churn.run(&mut lab, time, |_| ());
            lab.wait_for_pods_only(&churn.wanted);
        }
        assert_eq!(lab.refusals(), [""; 0]);
        replace_plugin(&version_0_2());
        churn.replace(&lab, 1);
        wait_until("an ADD to be refused", || !lab.refusals().is_empty());
        let refusal = &lab.refusals()[0];
        let formats = "the state is of format 4, and this version of the plugin knows up to 3";
        assert!(refusal.contains(formats), "{refusal}");
        replace_plugin(&binary());
        lab.wait_for_pods(&churn.wanted)
    });
    let pods = churn.created;
    churn.end(&lab);
    assert_eq!(lab.observe().held, Some([].into()));
    Row {
        scenario: "0.2.0, this version, the original, this version, 0.2.0 in turns".to_owned(),
        pods,
        took,
        refused: lab.refusals().len(),
        seen,
        to_reclaim: 0,
        lost: 0,
        remark: "0.2.0 refuses the newer format".to_owned(),
    }
}
