//! ADD: an address for an attachment.

use std::fs;

use tracing::{debug, info, warn};

use super::{Context, query_url};
use crate::cni::{AddResult, Call};
use crate::failure::Failure;
use crate::host::{boot_now, netns, wall_now};
use crate::ipam::{Family, Grant, Ipam, Novelty, PoolWish, Refusal, Request};
use crate::source::{Asked, Asker, Need, News, Source};
use crate::state::{Document, Loaded, Locked, Own, StoreError, WAIT, is_rebuild_owed};
use crate::stdio;

/// How long a released address rests before it is one of the free ones again.
const REST: std::time::Duration = std::time::Duration::from_secs(30);

/// What came of looking for an address in the pools as they are.
enum Attempt {
    Granted(Grant),
    Refused {
        refusal: Refusal,
        again: Option<Need>,
        source: Option<String>,
    },
}

/// Gives the attachment an address and prints the result.
pub fn add(call: &Call, context: &Context) -> Result<(), Failure> {
    let ipam = &call.conf.ipam;
    let netns = netns(&context.paths, &call.netns);
    let family = if ipam.ipv6 { Family::V6 } else { Family::V4 };
    let request = Request {
        attachment: &call.attachment,
        space: &ipam.address_space,
        pool: match ipam.subnet.as_deref() {
            Some(subnet) => PoolWish::Named(subnet),
            None => PoolWish::Any {
                family,
                if_name: call.conf.master.as_deref(),
            },
        },
        address: ipam.ip_address.as_deref(),
        pod: call.pod.as_deref(),
        netns: netns.as_ref(),
        rest: REST,
    };
    let source = Source::of(ipam, query_url(context)?, &context.paths);
    let asker = Asker {
        paths: &context.paths,
        source: &source,
        started: context.started,
        boot_id: context.boot_id.as_deref(),
        interval: ipam.query_interval,
    };
    let mut need = if has_state(context) {
        Need::Ordinary
    } else {
        Need::First
    };
    let grant = loop {
        match attempt(&request, asker.ask(need), context)? {
            Attempt::Granted(grant) => break grant,
            // Before anybody is told that there is nothing, the source is asked, once.
            Attempt::Refused {
                again: Some(again), ..
            } if again != need => need = again,
            Attempt::Refused {
                refusal, source, ..
            } => return Err(Failure::Refused { refusal, source }),
        }
    };
    info!(target: "ipam", "{}.", describe(&grant));
    let result = AddResult::of([&grant]).print(call.conf.version);
    stdio::print(&result).map_err(|error| Failure::Output {
        error,
        given_back: give_back(call, &grant, context),
    })
}

/// Whether there is a state to go on with while a source is asked. A guess, checked under the lock.
fn has_state(context: &Context) -> bool {
    fs::metadata(context.paths.state()).is_ok_and(|state| state.len() > 0)
}

/// One look into the pools, under the lock, after whatever news there is was merged into them.
fn attempt(request: &Request<'_>, asked: Asked, context: &Context) -> Result<Attempt, Failure> {
    let mut locked = Locked::acquire(&context.paths, WAIT)?;
    let mut document = read(&mut locked, request, context)?;
    let mut source = None;
    let mut again = None;
    let mut news = None;
    match asked {
        Asked::News(answer) => news = merge(*answer, &mut document, &mut source),
        Asked::Answered => again = Some(Need::Lost),
        Asked::Skipped(why) => {
            debug!(target: "ipam", "the source is not asked: {why}.");
            again = Some(Need::Newer);
        }
        Asked::Failed(error) => {
            warn!(target: "ipam", "Source refresh failed, err:{error}.");
            source = Some(error.to_string());
        }
    }
    let flags = flags(document.ipam());
    let taken = document.ipam_mut().take(request, boot_now());
    if taken.is_ok() {
        let violations = document.ipam().check();
        if !violations.is_empty() {
            return Err(Failure::Broken(violations));
        }
    }
    if taken.is_ok() || news.is_some() || flags != self::flags(document.ipam()) {
        let stage = stage(request);
        context
            .save(&mut locked, &mut document)
            .map_err(|error| Failure::Store { stage, error })?;
    }
    if let Some(news) = news {
        news.merged();
    }
    // Somebody's answer is of no use when what it said is no longer there.
    let lost = document.ipam().pools().next().is_none();
    let again = again.filter(|need| *need != Need::Lost || lost);
    Ok(match taken {
        Ok(grant) => Attempt::Granted(grant),
        Err(refusal) => Attempt::Refused {
            refusal,
            again,
            source,
        },
    })
}

/// The state to work on.
fn read(
    locked: &mut Locked<'_>,
    request: &Request<'_>,
    context: &Context,
) -> Result<Document, Failure> {
    let store = |error: StoreError| Failure::Store {
        stage: stage(request),
        error,
    };
    let mark = context.paths.rebuild_owed();
    let document = match locked.load().map_err(store)? {
        Loaded::Read(document) => *document,
        Loaded::Missing if is_rebuild_owed(&context.paths) => {
            return Err(Failure::Lost {
                why: String::new(),
                aside: None,
                mark,
            });
        }
        Loaded::Missing => Document::default(),
        Loaded::Corrupt(why) => {
            let aside = locked.set_aside(&wall_now().to_string()).map_err(store)?;
            warn!(target: "ipam", "the state could not be read ({why}) and is now {}.", aside.display());
            return Err(Failure::Lost {
                why,
                aside: Some(aside),
                mark,
            });
        }
    };
    match &document.own {
        Own::Newer { format, .. } => return Err(Failure::NewerFormat { found: *format }),
        Own::Unreadable(why) => {
            warn!(target: "ipam", "our part of the state could not be read: {why}.")
        }
        Own::Absent | Own::Ours { .. } | Own::Overtaken => {}
    }
    Ok(document)
}

/// Merges an answer, unless it would take everything away and has not stayed so for long (difference D6).
fn merge(news: News, document: &mut Document, source: &mut Option<String>) -> Option<News> {
    let matched = &news.matched;
    let milliseconds = news.took.as_secs_f64() * 1e3;
    let (pools, addresses) = (matched.inventory.pools.len(), matched.inventory.addresses());
    for mac in &matched.unmatched {
        info!(target: "ipam", "Failed to find interface with MAC address:{mac}.");
    }
    for pool in &matched.inventory.pools {
        let (count, if_name, subnet) = (pool.addresses.len(), &pool.if_name, pool.subnet);
        info!(target: "ipam", "got {count} addresses from interface {if_name}, subnet {subnet}.");
    }
    let has_pools = document.ipam().pools().next().is_some();
    if news.is_doubtful() && has_pools && !news.is_persistent() {
        let why = format!(
            "the source lists {pools} subnets with no address for pods, and {} interfaces that this node does not have",
            matched.unmatched.len()
        );
        warn!(target: "ipam", "Source refresh failed, err:{why}; the stored pools stay for now.");
        *source = Some(why);
        news.doubted();
        return None;
    }
    let merged = document.ipam_mut().merge(&matched.inventory);
    info!(
        target: "ipam",
        "source answered in {milliseconds:.1} ms: {pools} pools, {addresses} addresses, {} of the host, {} unusable; {} new, {} gone, {} in use but not listed.",
        matched.primary, matched.skipped, merged.added, merged.removed, merged.unlisted
    );
    Some(news)
}

/// The pools' flags of having been handed out whole, the only thing that a refused request may change.
fn flags(ipam: &Ipam) -> Vec<i64> {
    ipam.pools().map(|(_, _, pool)| pool.ref_count).collect()
}

/// What the original's messages begin with when the state cannot be written: without a subnet it saves first when it has
/// chosen a pool.
fn stage(request: &Request<'_>) -> &'static str {
    match request.pool {
        PoolWish::Named(_) => "Failed to allocate address",
        PoolWish::Any { .. } => "Failed to allocate pool",
    }
}

fn describe(grant: &Grant) -> String {
    let how = match grant.novelty {
        Novelty::New(_) => "taken from",
        Novelty::Renewed => "held before in",
    };
    format!(
        "{} {how} pool {}, generation {}",
        grant.address, grant.pool, grant.generation
    )
}

/// Takes back an address whose result reached nobody: only what this very call took, and only if it is still so. Tells
/// whether it was given back.
fn give_back(call: &Call, grant: &Grant, context: &Context) -> bool {
    let Ok(mut locked) = Locked::acquire(&context.paths, WAIT) else {
        return false;
    };
    let Ok(Loaded::Read(mut document)) = locked.load() else {
        return false;
    };
    let revoked = document.ipam_mut().revoke(&call.attachment, grant)
        && context.save(&mut locked, &mut document).is_ok();
    if revoked {
        warn!(target: "ipam", "{} was given back, as the result reached nobody.", grant.address);
    }
    revoked
}
