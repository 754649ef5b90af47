//! ADD: an address for an attachment, or one of each family.

use std::collections::BTreeSet;
use std::fs;
use std::mem::ManuallyDrop;
use std::net::IpAddr;

use tracing::{info, warn};

use super::Context;
use super::decide::{Decision, Event, Given, Host, Journaled, Look, decide, loss};
use super::inquiry::Inquiry;
use super::look::report;
use super::undo::{give_back, take_back};
use super::wish::{requests, told, wishes};
use crate::cni::{AddResult, Call};
use crate::failure::Failure;
use crate::host::{CookieLookup, RouteLookup, boot_now, host_routes, netns, wall_now, words};
use crate::ipam::{Candidate, Grant, Novelty, PoolWish, Refusal, Request, holdings};
use crate::source::{Asker, Need, News, Source};
use crate::state::{
    Document, Journal, Loaded, LockError, Locked, MOST_ROUNDS, Own, StoreError, WAIT,
    is_rebuild_owed, last_use, note_boot, note_use,
};
use crate::stdio;

/// What came of looking for an address in the pools as they are.
enum Attempt {
    Granted(Vec<Grant>),
    /// The node must be looked at, which is not done under the lock; these records are to be judged.
    LookFirst(Vec<Candidate>),
    /// The lock file was removed while it was held, so that somebody else may have decided on the same state. These addresses
    /// were given, unless that state has won.
    LockLost(Vec<Grant>),
    Refused {
        refusal: Refusal,
        again: Option<Need>,
    },
}

/// Gives the attachment what it asks for, all of it or nothing, and prints the result.
pub fn add(call: &Call, context: &Context) -> Result<(), Failure> {
    let ipam = &call.conf.ipam;
    let mut netns = netns(&context.paths, &call.netns);
    let known = netns.as_ref().is_some_and(|netns| netns.id.is_some());
    let cookie = known.then(|| CookieLookup::start(&context.paths, &call.netns));
    let wishes = wishes(call).map_err(|refusal| Failure::Refused {
        refusal,
        source: None,
    })?;
    let source = Source::of(ipam, &context.instead, &context.paths)?;
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
    let mut inquiry = Inquiry::of(asker.ask(need), context);
    if let (Some(netns), Some(cookie)) = (&mut netns, cookie) {
        netns.cookie = cookie.finish();
    }
    let none = BTreeSet::new();
    let mut requests = requests(&wishes, ipam, &call.attachment, &none);
    for request in &mut requests {
        request.pod = call.pod.as_deref();
        request.netns = netns.as_ref();
    }
    let mut look = None;
    let mut lost_grants = Vec::new();
    let mut rounds = 0;
    let mut grants = loop {
        match attempt(call, &requests, &mut inquiry, look.as_ref(), context)? {
            Attempt::Granted(grants) => break grants,
            Attempt::LookFirst(candidates) => look = Some(Look::at(candidates, context)),
            Attempt::LockLost(_) if rounds == MOST_ROUNDS || context.is_late() => {
                return Err(LockError::removed(&context.paths).into());
            }
            Attempt::LockLost(grants) => {
                rounds += 1;
                lost_grants.extend(grants);
                // The answer may be merged into the state that has lost.
                inquiry.again.get_or_insert(Need::Lost);
            }
            // Before anybody is told that there is nothing, the source is asked, once.
            Attempt::Refused {
                again: Some(again), ..
            } if again != need => {
                need = again;
                inquiry = Inquiry::of(asker.ask(need), context);
            }
            Attempt::Refused { refusal, .. } => {
                return Err(Failure::Refused {
                    refusal: told(refusal, call),
                    source: inquiry.failed,
                });
            }
        }
    };
    for grant in &mut grants {
        // Given by an earlier round of this very call, and so taken back with the rest if the result reaches nobody.
        let same = |earlier: &&Grant| {
            earlier.address == grant.address && earlier.novelty != Novelty::Renewed
        };
        if let Some(earlier) = lost_grants
            .iter()
            .find(same)
            .filter(|_| grant.novelty == Novelty::Renewed)
        {
            grant.novelty = earlier.novelty.clone();
        }
        info!(target: "ipam", "{}.", describe(grant));
        context.trail.address(grant.address.addr());
    }
    let result = AddResult::of(&grants, ipam).print(call.conf.version);
    stdio::print(&result).map_err(|error| Failure::Output {
        error,
        fate: give_back(call, &grants, context),
    })
}

/// Whether there is a state to go on with while a source is asked. A guess, checked under the lock.
fn has_state(context: &Context) -> bool {
    /// A state without pools is shorter, and one with a pool longer.
    const SHORT: u64 = 512;
    let path = context.paths.state();
    match fs::metadata(&path).map_or(0, |state| state.len()) {
        0 => false,
        SHORT.. => true,
        _ => !fs::read_to_string(&path).is_ok_and(|text| text.contains("\"lost\": {")),
    }
}

/// One try with the pools as they are, under the lock, after whatever news there is was merged into them.
fn attempt(
    call: &Call,
    requests: &[Request<'_>],
    inquiry: &mut Inquiry,
    look: Option<&Look>,
    context: &Context,
) -> Result<Attempt, Failure> {
    let store = |error| Failure::Store {
        stage: stage(requests),
        error,
    };
    let mut locked = Locked::acquire(&context.paths, WAIT)?;
    let last = last_use(&context.paths, context.boot_id.as_deref());
    let (document, lost, journal) = match read(&mut locked, requests, last, context) {
        Err(Failure::Store { error, .. }) if error.lock_was_lost => {
            return Ok(Attempt::LockLost(Vec::new()));
        }
        read => read?,
    };
    // To take it apart takes a tenth of the time that the lock is held, and the process ends anyway.
    let mut document = ManuallyDrop::new(document);
    let was_lost = lost.is_some();
    inquiry.weigh(&document, context);
    // One that was asked for later is in the state already (its lock file may have been removed meanwhile).
    let older = |news: &mut Box<News>| document.refreshed.is_some_and(|at| news.began() < at);
    if let Some(news) = inquiry.news.take_if(older) {
        info!(target: "ipam", "a newer answer of the source is in the state already.");
        drop(news);
        inquiry.again = Some(Need::Lost);
    }
    // What somebody else's answer said may no longer be there.
    let again = inquiry
        .again
        .filter(|need| *need != Need::Lost || document.is_empty());
    let given = Given {
        requests,
        news: inquiry.news.as_ref().map(|news| &news.matched.inventory),
        lost,
        last_generation: last.unwrap_or(0),
        look,
        may_ask_again: again.is_some(),
        journal: journal.as_ref(),
        now: boot_now(),
    };
    if let Some(news) = &inquiry.news {
        document.refreshed = Some(news.began());
    }
    let mut events = Vec::new();
    let (taken, changed) = match decide(&mut document, &given, context, &mut events) {
        Decision::LookFirst(candidates) => return Ok(Attempt::LookFirst(candidates)),
        Decision::Broken(wrong) => return Err(Failure::Broken(wrong)),
        Decision::Done { taken, changed } => (taken, changed),
    };
    report(&events);
    let dead = events.iter().map(Event::dead).sum();
    if changed && let Err(error) = context.save(&mut locked, &mut document) {
        if error.lock_was_lost {
            return Ok(Attempt::LockLost(Vec::new()));
        }
        if error.is_in_place {
            take_back(&taken, call, &mut document, &mut locked, context);
        }
        return Err(store(error));
    }
    context.trail.reclaimed(dead);
    if let Some(news) = inquiry.news.take() {
        news.merged();
    }
    if was_lost && !document.is_empty() {
        let _ = fs::remove_file(context.paths.rebuild_owed());
    }
    // Before anybody can be told of the address.
    if let Ok(grants) = &taken
        && let Some(newest) = grants.last()
    {
        let boot_id = context.boot_id.as_deref();
        let noted = match last.is_none() || !context.paths.boot_marker().exists() {
            true => note_boot(&context.paths, boot_id),
            false => Ok(()),
        };
        let noted = noted.and_then(|()| note_use(&context.paths, boot_id, newest.generation));
        // Somebody else who has loaded the state before it was replaced may yet replace it.
        if !locked.is_current() {
            return Ok(Attempt::LockLost(grants.clone()));
        }
        if let Err(error) = noted {
            take_back(&taken, call, &mut document, &mut locked, context);
            return Err(store(error));
        }
    }
    Ok(match taken {
        Ok(grants) => Attempt::Granted(grants),
        Err(refusal) => Attempt::Refused { refusal, again },
    })
}

/// The state to work on, and why it has to be rebuilt, if it has, with what the journal knows then.
fn read(
    locked: &mut Locked<'_>,
    requests: &[Request<'_>],
    last: Option<u64>,
    context: &Context,
) -> Result<(Document, Option<String>, Option<Journaled>), Failure> {
    let journaled = || {
        let journal = Journal::read(&context.paths, context.boot_id.as_deref());
        let complete = journal.check_complete(&context.paths, last, boot_now());
        if let Err(why) = &complete {
            info!(target: "ipam", "the journal does not tell everything: {why}.");
        }
        Journaled {
            holdings: holdings(&journal.entries),
            generation: journal.generation,
            is_complete: complete.is_ok(),
        }
    };
    let store = |error: StoreError| Failure::Store {
        stage: stage(requests),
        error,
    };
    let mut document = match locked.load(context.boot_id.as_deref()).map_err(store)? {
        Loaded::Read(document) => *document,
        Loaded::Missing => Document::default(),
        Loaded::Corrupt(why) => {
            let aside = locked.set_aside(&wall_now().to_string()).map_err(store)?;
            warn!(target: "ipam", "the state could not be read ({why}) and is now {}.", aside.display());
            return Ok((Document::default(), Some(why), Some(journaled())));
        }
    };
    match &document.own {
        Own::Newer { format, .. } => return Err(Failure::NewerFormat { found: *format }),
        Own::Unreadable(why) => {
            warn!(target: "ipam", "our part of the state could not be read: {why}.");
        }
        Own::Absent | Own::Ours | Own::Overtaken => {}
    }
    context.catch_up(&mut document);
    let lost = loss(&document, is_rebuild_owed(&context.paths), last).map(str::to_owned);
    let journal = lost.is_some().then(journaled);
    Ok((document, lost, journal))
}

impl Host for Context {
    fn has(&self, address: IpAddr) -> bool {
        if !self.paths.is_this_host() {
            return false;
        }
        RouteLookup::open().and_then(|lookup| lookup.has(address)).unwrap_or_else(|e| {
            warn!(target: "ipam", "the kernel does not tell whether the host has {address}: {}.", words(&e));
            false
        })
    }

    fn all(&self) -> BTreeSet<IpAddr> {
        host_routes().unwrap_or_default()
    }
}

/// What the original's messages begin with when the state cannot be written: without a subnet it saves first when it has
/// chosen a pool.
fn stage(requests: &[Request<'_>]) -> &'static str {
    match requests.first().map(|request| request.pool) {
        Some(PoolWish::Named(_)) => "Failed to allocate address",
        Some(PoolWish::Any { .. }) | None => "Failed to allocate pool",
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
