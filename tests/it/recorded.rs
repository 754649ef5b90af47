//! Replays the recorded cases of the original. A case must agree, or `testdata/recorded/deviations.txt` must list it
//! with its difference. A listed case that agrees fails too.
//!
//! Without root, the cases run in a folder, with a wire server on loopback. The second test runs all of them in
//! private namespaces, with built-in paths and the wire server on its real address. Some cases need mounts or routes,
//! and run only there.

mod compare;
mod world;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::thread;

use serde_json::Value;

use crate::harness::{package, skip};
use crate::privileged::in_private_namespaces;
use world::World;

/// All recorded cases.
pub fn cases() -> Vec<Value> {
    let mut paths: Vec<_> = fs::read_dir(package().join("testdata/recorded"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "json"));
    paths.sort();
    paths
        .iter()
        .map(|p| serde_json::from_slice(&fs::read(p).unwrap()).unwrap())
        .collect()
}

/// The listed difference of each case, for the cases that exist here.
fn deviations() -> BTreeMap<String, String> {
    let text = fs::read_to_string(package().join("testdata/recorded/deviations.txt")).unwrap();
    let mut listed = BTreeMap::new();
    let names: Vec<_> = cases()
        .iter()
        .map(|c| c["name"].as_str().unwrap().to_owned())
        .collect();
    for line in text.lines() {
        let line = line.split('#').next().unwrap();
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else {
            continue;
        };
        let code = words.next().unwrap_or_default();
        let number = code.strip_prefix('D').and_then(|n| n.parse::<u32>().ok());
        assert!(
            number.is_some_and(|n| (1..=26).contains(&n)),
            "{line}: a reason is a D-code"
        );
        assert!(words.next().is_some(), "{line}: and words");
        if names.iter().any(|n| n == name) {
            assert_eq!(
                listed.insert(name.to_owned(), code.to_owned()),
                None,
                "{name} is listed twice"
            );
        }
    }
    listed
}

/// The results of all cases.
#[derive(Default)]
struct Report {
    agree: usize,
    differ: usize,
    skipped: usize,
    wrong: Vec<String>,
}

/// Runs the cases in parallel worlds. Fails when the list of deviations is wrong.
fn run(worlds: Vec<World>) {
    let listed = deviations();
    let cases = Mutex::new(cases().into_iter());
    let report = Mutex::new(Report::default());
    thread::scope(|scope| {
        for mut world in worlds {
            let (cases, report, listed) = (&cases, &report, &listed);
            scope.spawn(move || {
                loop {
                    let Some(case) = cases.lock().unwrap().next() else {
                        return;
                    };
                    run_case(&mut world, &case, listed, report);
                }
            });
        }
    });
    let Report {
        agree,
        differ,
        skipped,
        wrong,
    } = report.into_inner().unwrap();
    println!("{agree} agree, {differ} differ as listed, {skipped} skipped");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(agree > 100, "hardly anything was compared");
}

fn run_case(
    world: &mut World,
    case: &Value,
    listed: &BTreeMap<String, String>,
    report: &Mutex<Report>,
) {
    let name = case["name"].as_str().unwrap();
    if let Some(why) = world.cannot(case) {
        skip(format_args!("{name}: {why}"));
        report.lock().unwrap().skipped += 1;
        return;
    }
    let outcome = world.run(case);
    let mut report = report.lock().unwrap();
    match (outcome, listed.get(name)) {
        (Ok(()), None) => report.agree += 1,
        (Err(why), Some(code)) => {
            println!("meant    {name} [{code}]: {why}");
            report.differ += 1;
        }
        (Err(why), None) => report.wrong.push(format!("differs  {name}: {why}")),
        (Ok(()), Some(code)) => {
            report
                .wrong
                .push(format!("agrees   {name}, though listed under {code}"));
        }
    }
}

#[test]
fn all_cases_agree_in_a_folder() {
    run((0..4).map(|_| World::in_a_folder()).collect());
}

#[test]
#[ignore = "needs root, unshare and iproute2: all cases with built-in paths in private namespaces"]
fn all_cases_agree_with_built_in_paths() {
    if in_private_namespaces("recorded::all_cases_agree_with_built_in_paths") {
        run(vec![World::in_private_namespaces()]);
    }
}
