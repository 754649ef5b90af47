//! Compares the outcome of a step with its record.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::harness::address;

/// The outcome of the earlier steps of a case.
#[derive(Default)]
pub struct Past {
    /// The addresses that the program chose, by step.
    pub picks: Vec<Option<String>>,
    /// Maps pool and address of the original to our address, where the program chose another free address.
    swaps: BTreeMap<(String, String), String>,
    /// Whether the pool was a free choice. The states cannot be compared any more then.
    loose: bool,
}

/// The outcome of one step.
pub struct Seen {
    pub exit: Option<i32>,
    pub stdout: String,
    /// The state file, if there is one.
    pub state: Option<Vec<u8>>,
    pub state_mode: u32,
    /// Files beside the state whose names begin with its name.
    pub left_overs: BTreeSet<String>,
}

type Verdict = Result<(), String>;

/// Compares a step with its record.
pub fn step(step: &Value, seen: &Seen, past: &mut Past, had_state: bool) -> Verdict {
    let fine = step["exit"] == 0;
    if (seen.exit == Some(0)) != fine {
        return Err(format!(
            "exit {:?} instead of {}: {}",
            seen.exit, step["exit"], seen.stdout
        ));
    }
    let recorded = step["stdout"].as_str().unwrap_or_default();
    let document: Option<Value> = serde_json::from_str(recorded).ok();
    if !fine {
        past.picks.push(None);
        failure(step, document.as_ref(), seen)?;
    } else if step["cmd"] == "ADD" && step["stdout_closed"].is_null() {
        result(step, document, seen, past)?;
    } else {
        past.picks.push(None);
        if let ("VERSION", Some(document)) = (step["cmd"].as_str().unwrap_or_default(), &document) {
            let ours: Value = serde_json::from_str(&seen.stdout).map_err(|e| e.to_string())?;
            let versions = |v: &Value| {
                v["supportedVersions"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default()
            };
            if let Some(lost) = versions(document)
                .iter()
                .find(|v| !versions(&ours).contains(v))
            {
                return Err(format!("VERSION lacks {lost}"));
            }
        } else if recorded.trim().is_empty() != seen.stdout.trim().is_empty() {
            return Err(format!("stdout {recorded:?} became {:?}", seen.stdout));
        }
    }
    state(step, seen, past, had_state)
}

fn failure(step: &Value, recorded: Option<&Value>, seen: &Seen) -> Verdict {
    let ours: Value = serde_json::from_str(&seen.stdout).unwrap_or_default();
    let (Some(code), Some(msg)) = (ours["code"].as_i64(), ours["msg"].as_str()) else {
        return Err(format!(
            "stdout of a failure is not one JSON error: {:?}",
            seen.stdout
        ));
    };
    let Some(recorded) =
        recorded.filter(|r| r.is_object() && step["stdout_details_volatile"].is_null())
    else {
        return Ok(());
    };
    // The names of temporary files are random.
    let plain = |text: &str| {
        text.split(".json")
            .map(|p| p.trim_start_matches(|c: char| c.is_ascii_digit()))
            .collect::<Vec<_>>()
            .join(".json")
    };
    if recorded["code"] != code
        || !plain(msg).starts_with(&plain(recorded["msg"].as_str().unwrap_or_default()))
    {
        return Err(format!(
            "error {} {} became {code} {msg:?}",
            recorded["code"], recorded["msg"]
        ));
    }
    Ok(())
}

fn result(step: &Value, recorded: Option<Value>, seen: &Seen, past: &mut Past) -> Verdict {
    let Some(recorded) = recorded else {
        past.picks.push(None);
        return if seen.stdout.trim().is_empty() {
            Ok(())
        } else {
            Err(format!(
                "prints {:?} where nothing was printed",
                seen.stdout
            ))
        };
    };
    let ours: Value =
        serde_json::from_str(&seen.stdout).map_err(|e| format!("{e}: {:?}", seen.stdout))?;
    let (mine, theirs) = (
        address(&ours).unwrap_or_default(),
        address(&recorded).unwrap_or_default(),
    );
    past.picks.push(Some(mine.clone()));
    let texts = |key: &str| -> Vec<String> {
        step[key]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|v| v.as_str().map(str::to_owned))
            .collect()
    };
    if step["any_of_pool"] == true {
        past.loose = true;
        let mut allowed = texts("free_candidates");
        allowed.push(theirs);
        allowed.extend(
            step["distinct_outcomes_seen"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|o| o["picked"].as_str().map(str::to_owned)),
        );
        return if allowed.contains(&mine) {
            Ok(())
        } else {
            Err(format!("picked {mine}, which no run of the original did"))
        };
    }
    let pool = pool_of(&step["state_after"], &theirs);
    let swapped = |a: &String, past: &Past| {
        past.swaps
            .get(&(pool.clone(), a.clone()))
            .unwrap_or(a)
            .clone()
    };
    let now = swapped(&theirs, past);
    if step["any_of_free"] == true {
        let allowed: Vec<_> = texts("free_candidates")
            .iter()
            .map(|c| swapped(c, past))
            .collect();
        if !allowed.contains(&mine) {
            return Err(format!("picked {mine}, not one of the free {allowed:?}"));
        }
        if mine != now {
            let other = past
                .swaps
                .iter()
                .find(|((p, _), ours)| *p == pool && **ours == mine)
                .map(|((_, original), _)| original.clone());
            past.swaps
                .insert((pool.clone(), other.unwrap_or_else(|| mine.clone())), now);
            past.swaps.insert((pool, theirs.clone()), mine.clone());
        }
    } else if mine != now {
        return Err(format!("address {mine} instead of {now}"));
    }
    let recorded: Value = serde_json::from_str(
        &recorded
            .to_string()
            .replace(&format!("\"{theirs}/"), &format!("\"{mine}/")),
    )
    .unwrap();
    difference(&recorded, &ours, "result")
}

/// The pool in which an address is recorded.
fn pool_of(state: &Value, address: &str) -> String {
    for space in state["IPAM"]["AddressSpaces"]
        .as_object()
        .into_iter()
        .flat_map(Map::values)
    {
        for (key, pool) in space["Pools"].as_object().into_iter().flatten() {
            if pool["Addresses"].get(address).is_some() {
                return key.clone();
            }
        }
    }
    String::new()
}

fn state(step: &Value, seen: &Seen, past: &Past, had_state: bool) -> Verdict {
    let known: BTreeSet<String> = step["leftover_files_in_run"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|v| v.as_str().map(str::to_owned))
        .collect();
    if let Some(left) = seen.left_overs.difference(&known).next() {
        return Err(format!("left behind: {left}"));
    }
    if step["state_kind"] == "directory" || !step["state_after_raw"].is_null() || past.loose {
        return Ok(());
    }
    let recorded = &step["state_after"];
    if !recorded.is_object() {
        return if seen.state.is_some() && !had_state {
            Err("a state file exists where there was none".into())
        } else {
            Ok(())
        };
    }
    let bytes = seen.state.as_ref().ok_or("no state file")?;
    let ours: Value =
        serde_json::from_slice(bytes).map_err(|e| format!("the state is not JSON: {e}"))?;
    if step["state_written"] == true && step["state_mode"] == "0600" && seen.state_mode != 0o600 {
        return Err(format!("state mode {:04o}", seen.state_mode));
    }
    difference(
        &spaces(recorded, &past.swaps),
        &spaces(&ours, &BTreeMap::new()),
        "state",
    )?;
    for (key, value) in recorded.as_object().unwrap() {
        if key != "IPAM" && ours.get(key) != Some(value) {
            return Err(format!("top-level key {key:?} lost or changed"));
        }
    }
    Ok(())
}

/// The address spaces of a state. The original's choices are replaced by ours.
fn spaces(state: &Value, swaps: &BTreeMap<(String, String), String>) -> Value {
    let mut out = Map::new();
    for (name, space) in state["IPAM"]["AddressSpaces"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, s)| !s.is_null())
    {
        let mut space = space.clone();
        let mut pools = Map::new();
        for (key, pool) in space["Pools"].as_object().into_iter().flatten() {
            let swap = |address: &str| {
                swaps
                    .get(&(key.clone(), address.to_owned()))
                    .cloned()
                    .unwrap_or_else(|| address.to_owned())
            };
            let mut pool = pool.clone();
            let mut records = Map::new();
            for (address, record) in pool["Addresses"].as_object().into_iter().flatten() {
                let mut record = record.clone();
                record["Addr"] = swap(record["Addr"].as_str().unwrap_or_default()).into();
                records.insert(swap(address), record);
            }
            pool["Addresses"] = records.into();
            pools.insert(key.clone(), pool);
        }
        space["Pools"] = pools.into();
        out.insert(name.clone(), space);
    }
    out.into()
}

fn difference(recorded: &Value, ours: &Value, at: &str) -> Verdict {
    match (recorded.as_object(), ours.as_object()) {
        (Some(a), Some(b)) => {
            for key in a.keys().chain(b.keys()) {
                match (a.get(key), b.get(key)) {
                    (Some(x), Some(y)) => difference(x, y, &format!("{at}/{key}"))?,
                    (None, Some(extra)) => return Err(format!("{at}/{key}: extra {extra}")),
                    (lost, _) => return Err(format!("{at}/{key}: missing, was {lost:?}")),
                }
            }
            Ok(())
        }
        _ if recorded == ours => Ok(()),
        _ => Err(format!("{at}: {recorded} became {ours}")),
    }
}
