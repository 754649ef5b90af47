//! Runs a history with a driver, and checks what must hold in every history.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use super::table::histories;
use super::{Damage, File, History, Pod, Refusal, Scan, Step, W, X, Y, Z};
use crate::model::{Answer, Fault, SUBNETS, original};

/// A node with its plugin. Drivers execute steps and check nothing.
pub(super) trait Driver {
    /// Starts again with a new node.
    fn reset(&mut self, scan: Scan);
    /// Whether it can run the history.
    fn can_run(&self, history: &History) -> bool;

    fn add(
        &mut self,
        pod: Pod,
        named: Option<&str>,
        fault: Option<Fault>,
    ) -> Result<String, CallError>;
    /// See [`Step::Looks`] and [`Step::Stops`].
    fn scan(&mut self, pod: Pod);
    fn stop(&mut self, pod: Pod);
    fn del(&mut self, pod: Pod, named: Option<&str>, fault: Option<Fault>)
    -> Result<(), CallError>;
    /// A DEL of another interface of the pod.
    fn del_other(&mut self, pod: Pod) -> Result<(), CallError>;
    fn gc(&mut self, valid: &[Pod]) -> Result<(), CallError>;

    fn container_id(&self, pod: Pod) -> String;
    fn boot_id(&self) -> String;
    fn read(&self, file: File) -> Option<Vec<u8>>;
    /// Replaces the content of a file, or removes the file.
    fn write(&mut self, file: File, text: Option<&[u8]>);
    /// The temporary files beside those of the plugin.
    fn leftovers(&self) -> Vec<String>;

    /// Creates the pod's network namespace if it does not exist.
    fn start(&mut self, pod: Pod);
    fn show(&mut self, pod: Pod, address: &str);
    fn cache(&mut self, pod: Pod, entry: CacheEntry<'_>);
    /// Replaces the endpoints in azure-vnet's state.
    fn set_endpoints(&mut self, endpoints: &BTreeMap<Pod, &'static str>);
    /// Removes the pod's namespace and cache entry.
    fn end(&mut self, pod: Pod);

    fn wait(&mut self, seconds: u64);
    fn reboot(&mut self);
    fn set_boot_id_readable(&mut self, is_readable: bool);
    /// Makes the source list these addresses in these subnets.
    fn set_source(&mut self, listed: &[&str], subnets: &'static [&'static str], answer: Answer);
}

/// An entry of libcni's cache.
#[derive(Clone, Copy, Debug)]
pub(super) enum CacheEntry<'a> {
    Address(&'a str),
    WithoutNamespace(&'a str),
    Empty,
}

/// The error object of a call.
#[derive(Debug)]
pub(super) struct CallError {
    pub code: i64,
    pub msg: String,
}

impl CallError {
    fn refusal(&self) -> Refusal {
        let has = |words: &str| self.msg.to_lowercase().contains(words);
        if self.code == 11 && has("the lock on the state was lost") {
            Refusal::LockLost
        } else if self.code == 11 && has("the state cannot be read now") {
            Refusal::NotNow
        } else if has("the state is being rebuilt") {
            Refusal::Quarantined
        } else if has("no available addresses") {
            Refusal::Exhausted
        } else if has("invalid address space") || has("no available address pools") {
            Refusal::NoPools
        } else {
            Refusal::Any
        }
    }
}

/// A history while it runs.
struct Run<'a> {
    driver: &'a mut dyn Driver,
    /// The damage that replaces [`Step::Lose`].
    damage: Damage,
    /// The addresses that ADDs returned to pods which are still alive and were not released.
    returned: BTreeMap<Pod, String>,
    kept: BTreeMap<(u8, File), Option<Vec<u8>>>,
    fault: Option<Fault>,
    listed: &'static [&'static str],
    subnets: &'static [&'static str],
    answer: Answer,
    endpoints: BTreeMap<Pod, &'static str>,
    originals_writes: u32,
}

macro_rules! ensure {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            return Err(format!($($message)*));
        }
    };
}

/// Checks that a call failed for this reason.
fn ensure_refused<T: std::fmt::Debug>(
    result: &Result<T, CallError>,
    expected: Refusal,
) -> Result<(), String> {
    ensure!(
        matches!(result, Err(error) if [error.refusal(), Refusal::Any].contains(&expected)),
        "{result:?}"
    );
    Ok(())
}

impl Run<'_> {
    fn run(mut self, steps: &[Step], scan: Scan) -> Result<(), String> {
        self.driver.reset(scan);
        self.set_source();
        self.steps(steps)
    }

    fn steps(&mut self, steps: &[Step]) -> Result<(), String> {
        for (n, step) in steps.iter().enumerate() {
            let failed = |why| format!("step {}, {step:?}: {why}", n + 1);
            self.step(step).map_err(failed)?;
        }
        Ok(())
    }

    fn set_source(&mut self) {
        self.driver
            .set_source(self.listed, self.subnets, self.answer);
    }

    /// The container ID by address, for all addresses in use. Empty when the state cannot be read.
    fn held(&self) -> BTreeMap<String, String> {
        let text = self.driver.read(File::State).unwrap_or_default();
        held(&serde_json::from_slice(&text).unwrap_or_default())
    }

    /// Runs a call. It must not free the address of a pod that is alive afterwards.
    fn call<T>(
        &mut self,
        call: impl FnOnce(&mut Self) -> Result<T, CallError>,
        ends: impl FnOnce(&mut Self),
    ) -> Result<Result<T, CallError>, String> {
        let before = self.held();
        let result = call(self);
        if result.is_ok() {
            ends(self);
        }
        let is_there = self.driver.read(File::State).is_some();
        let after = self.held();
        for (pod, address) in self.returned.iter().filter(|_| is_there) {
            ensure!(
                !before.contains_key(address) || after.contains_key(address),
                "{address} of {pod:?}, which lives, was freed"
            );
        }
        Ok(result)
    }

    fn add(&mut self, pod: Pod, named: Option<&str>) -> Result<Result<String, CallError>, String> {
        self.driver.start(pod);
        let fault = self.fault.take();
        let result = self.call(|run| run.driver.add(pod, named, fault), |_| ())?;
        if let Ok(address) = &result
            && self.note_returned(pod, address)?
        {
            let held = self.held();
            let lost = self.returned.iter().find(|(_, a)| !held.contains_key(*a));
            ensure!(lost.is_none(), "the state does not hold {lost:?}");
        }
        Ok(result)
    }

    fn refused(&mut self, pod: Pod, named: Option<&str>, expected: Refusal) -> Result<(), String> {
        ensure_refused(&self.add(pod, named)?, expected)
    }

    /// Records the address that an ADD returned to a pod. Returns whether the address is new to the pod.
    fn note_returned(&mut self, pod: Pod, address: &str) -> Result<bool, String> {
        let other = self
            .returned
            .iter()
            .find(|(p, a)| **p != pod && *a == address);
        ensure!(other.is_none(), "returned to {other:?} and to {pod:?}");
        let before = self.returned.insert(pod, address.to_owned());
        Ok(before.as_deref() != Some(address))
    }

    fn del(&mut self, pod: Pod, named: Option<&str>) -> Result<(), String> {
        let fault = self.fault.take();
        let del = |run: &mut Self| run.driver.del(pod, named, fault);
        let result = self.call(del, |run| drop(run.returned.remove(&pod)))?;
        result.map_err(|error| format!("{error:?}"))
    }

    fn originals_call(
        &mut self,
        change: impl FnOnce(&mut serde_json::Map<String, Value>),
    ) -> Result<(), String> {
        self.driver.write(File::Lock, Some(original::LOCK_TEXT));
        let text = self.driver.read(File::State).unwrap_or_default();
        let mut state = if text.is_empty() {
            original::empty_state()
        } else {
            serde_json::from_slice(&text).map_err(|e| format!("the original: {e}"))?
        };
        let listed: Vec<_> = self.listed.iter().map(|a| a.parse().unwrap()).collect();
        let records = original::records(&mut state).ok_or("the original finds no pool")?;
        original::merge(records, listed.iter());
        change(records);
        self.originals_writes += 1;
        let time = format!("2026-01-01T00:00:{:02}Z", self.originals_writes);
        state["IPAM"]["TimeStamp"] = time.into();
        let text = serde_json::to_vec_pretty(&state).unwrap();
        self.driver.write(File::State, Some(&text));
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Add(pod, expected) => {
                let result = self.add(*pod, None)?;
                ensure!(
                    matches!(&result, Ok(address) if address == expected),
                    "{result:?}"
                );
            }
            Step::Refused(pod, expected) => self.refused(*pod, None, *expected)?,
            Step::RefusedNaming(pod, address, expected) => {
                self.refused(*pod, Some(address), *expected)?;
            }
            Step::Looks(pod) => {
                self.driver.start(*pod);
                self.driver.scan(*pod);
            }
            Step::Stops(pod) => {
                self.driver.start(*pod);
                self.driver.stop(*pod);
            }
            Step::Del(pod) => self.del(*pod, None)?,
            Step::DelFails(pod, expected) => {
                let fault = self.fault.take();
                // A failed DEL may have released the address.
                self.returned.remove(pod);
                let result = self.call(|run| run.driver.del(*pod, None, fault), |_| ())?;
                ensure_refused(&result, *expected)?;
            }
            Step::DelOther(pod) => {
                let del = |run: &mut Self| run.driver.del_other(*pod);
                let result = self.call(del, |_| ())?;
                result.map_err(|error| format!("{error:?}"))?;
            }
            Step::DelNaming(pod, address) => self.del(*pod, Some(address))?,
            Step::Gc(valid) => {
                let gc = |run: &mut Self| run.driver.gc(valid);
                let result =
                    self.call(gc, |run| run.returned.retain(|pod, _| valid.contains(pod)))?;
                result.map_err(|error| format!("{error:?}"))?;
            }
            Step::Fails(fault) => self.fault = Some(*fault),
            Step::OriginalAdd(pod, address) => {
                self.driver.start(*pod);
                let id = self.driver.container_id(*pod);
                self.originals_call(|records| original::take(records, address, &id))?;
                self.note_returned(*pod, address)?;
            }
            Step::OriginalDel(pod) => {
                let id = self.driver.container_id(*pod);
                self.originals_call(|records| original::release(records, &id))?;
                self.returned.remove(pod);
            }
            Step::OriginalSave => self.originals_call(|_| ())?,
            Step::OriginalVersion => self.driver.write(File::Lock, Some(original::LOCK_TEXT)),
            Step::Configured(pod) => {
                let address = self
                    .returned
                    .get(pod)
                    .ok_or("no ADD returned an address")?
                    .clone();
                self.driver.show(*pod, &address);
                self.driver.cache(*pod, CacheEntry::Address(&address));
            }
            Step::Shown(pod, address) => {
                self.driver.start(*pod);
                self.driver.show(*pod, address);
            }
            Step::Cached(pod, address) => self.cache(*pod, CacheEntry::Address(address)),
            Step::CachedWithoutNamespace(pod, address) => {
                self.cache(*pod, CacheEntry::WithoutNamespace(address));
            }
            Step::CachedEmpty(pod) => self.cache(*pod, CacheEntry::Empty),
            Step::Endpoint(pod, address) => {
                self.driver.start(*pod);
                self.endpoints.insert(*pod, address);
                self.driver.set_endpoints(&self.endpoints);
            }
            Step::NoEndpoint(pod) => {
                self.endpoints.remove(pod);
                self.driver.set_endpoints(&self.endpoints);
            }
            Step::Gone(pod) => {
                self.driver.end(*pod);
                self.returned.remove(pod);
                self.step(&Step::NoEndpoint(*pod))?;
            }
            Step::Wait(seconds) => self.driver.wait(*seconds),
            Step::Reboot => {
                self.returned.clear();
                self.driver.reboot();
            }
            Step::BootIdReadable(is_readable) => self.driver.set_boot_id_readable(*is_readable),
            Step::Source(listed) => {
                self.listed = listed;
                self.set_source();
            }
            Step::Subnets(subnets) => {
                self.subnets = subnets;
                self.set_source();
            }
            Step::Answers(answer) => {
                self.answer = *answer;
                self.set_source();
            }
            Step::Remove(files) => {
                for file in *files {
                    self.driver.write(*file, None);
                }
            }
            Step::Lose(file) => {
                let text = self.driver.read(*file).ok_or("it is not there")?;
                let left = self.damage.apply(&text, &self.driver.boot_id());
                self.driver.write(*file, left.as_deref());
            }
            Step::Keep(name, files) => {
                let read = |file: &File| ((*name, *file), self.driver.read(*file));
                self.kept.extend(files.iter().map(read));
            }
            Step::PutBack(name, files) => {
                for file in *files {
                    let kept = self.kept.get(&(*name, *file)).ok_or("it was not kept")?;
                    self.driver.write(*file, kept.as_deref());
                }
            }
            Step::HeldBy(address, pod) => {
                self.expect_holder(address, Some(&self.driver.container_id(*pod)))?;
            }
            Step::HeldByNobodyKnown(address) => self.expect_holder(address, Some(""))?,
            Step::Free(address) => self.expect_holder(address, None)?,
            Step::Held(address) => {
                ensure!(self.held().contains_key(*address), "it is free");
            }
            Step::NoLeftovers => {
                let left = self.driver.leftovers();
                ensure!(left.is_empty(), "{left:?}");
            }
            Step::Repeat(times, steps) => {
                for _ in 0..*times {
                    self.steps(steps)?;
                }
            }
        }
        Ok(())
    }

    fn cache(&mut self, pod: Pod, entry: CacheEntry<'_>) {
        self.driver.start(pod);
        self.driver.cache(pod, entry);
    }

    fn expect_holder(&self, address: &str, expected: Option<&str>) -> Result<(), String> {
        let held = self.held();
        let holder = held.get(address).map(String::as_str);
        ensure!(holder == expected, "the holder is {holder:?}");
        Ok(())
    }
}

impl Damage {
    /// Returns the content of a file after the damage.
    fn apply(self, text: &[u8], boot_id: &str) -> Option<Vec<u8>> {
        Some(match self {
            Damage::Removed => return None,
            Damage::Emptied => Vec::new(),
            Damage::Halved => text[..text.len() / 2].to_vec(),
            Damage::Zeroed => vec![0; text.len()],
            Damage::Nulled => br#"{"IPAM":null}"#.to_vec(),
            Damage::Forgotten => {
                let mut state: Value = serde_json::from_slice(text).unwrap();
                state.as_object_mut().unwrap().remove("azure-vnet-ipam");
                for record in original::records(&mut state).unwrap().values_mut() {
                    record["ID"] = "".into();
                    record["InUse"] = false.into();
                }
                state.to_string().into_bytes()
            }
            Damage::Freed => String::from_utf8_lossy(text)
                .replace(r#""InUse": true"#, r#""InUse": false"#)
                .into_bytes(),
            Damage::OtherBoot => {
                let text = String::from_utf8_lossy(text);
                text.replacen(boot_id, "another", 1).into_bytes()
            }
        })
    }
}

/// Runs a history once with each of its damages.
fn run_row(driver: &mut dyn Driver, history: &History) -> Result<(), String> {
    let damages = match history.damages {
        [] => &[Damage::Removed],
        damages => damages,
    };
    for damage in damages {
        let run = Run {
            driver,
            damage: *damage,
            returned: BTreeMap::new(),
            kept: BTreeMap::new(),
            fault: None,
            listed: &[X, Y, Z, W],
            subnets: SUBNETS,
            answer: Answer::Good,
            endpoints: BTreeMap::new(),
            originals_writes: 0,
        };
        let ended = catch_unwind(AssertUnwindSafe(|| run.run(&history.steps, history.scan)));
        let ended = ended.unwrap_or_else(|_| Err("the driver panicked".to_owned()));
        ended.map_err(|why| format!("{damage:?}: {why}"))?;
    }
    Ok(())
}

/// Runs all histories.
pub(super) fn run_all(driver: &mut dyn Driver) {
    let wanted = std::env::var("AZURE_VNET_IPAM_HISTORY").unwrap_or_default();
    let mut wrong = BTreeSet::new();
    for history in histories() {
        if !history.name.contains(&wanted) || !driver.can_run(&history) {
            continue;
        }
        let result = run_row(driver, &history);
        let verdict = match &result {
            Ok(()) => "holds".to_owned(),
            Err(why) => format!("FAILS: {why}"),
        };
        println!("{}: {verdict}", history.name);
        if result.is_err() {
            wrong.insert(format!("{}: {verdict}", history.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Container ID by address, for all addresses in use in a state.
pub fn held(state: &Value) -> BTreeMap<String, String> {
    let members = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let spaces = members(&state["IPAM"]["AddressSpaces"]).into_iter();
    let pools = spaces.flat_map(|(_, space)| members(&space["Pools"]));
    let records = pools.flat_map(|(_, pool)| members(&pool["Addresses"]));
    let in_use = records.filter(|(_, record)| record["InUse"] == true);
    let id = |record: &Value| record["ID"].as_str().unwrap_or_default().to_owned();
    in_use
        .map(|(address, record)| (address, id(&record)))
        .collect()
}
