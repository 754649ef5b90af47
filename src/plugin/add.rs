//! ADD: an address for an attachment.

use std::collections::BTreeSet;
use std::fs;
use std::mem::ManuallyDrop;
use std::net::IpAddr;

use tracing::{debug, info, warn};

use super::decide::{Decision, Event, Given, Host, Look, decide, loss};
use super::look::report;
use super::wish::{address_asked, told, wish};
use super::{Context, query_url};
use crate::cni::{AddResult, Call};
use crate::failure::{Failure, Fate};
use crate::host::{RouteLookup, boot_now, host_routes, netns, wall_now, words};
use crate::ipam::{Candidate, Grant, Novelty, PoolWish, Refusal, Request};
use crate::log::Milliseconds;
use crate::source::{Asked, Asker, Need, News, Source, SourceError};
use crate::state::{
    Document, Loaded, Locked, Own, StoreError, WAIT, is_rebuild_owed, last_use, note_use,
};
use crate::stdio;

/// What came of looking for an address in the pools as they are.
enum Attempt {
    Granted(Grant),
    /// The node must be looked at, which is not done under the lock; these records are to be judged.
    LookFirst(Vec<Candidate>),
    Refused {
        refusal: Refusal,
        again: Option<Need>,
    },
}

/// What the source had to say.
#[derive(Default)]
struct Inquiry {
    /// An answer that is not in the state yet.
    news: Option<Box<News>>,
    /// What to ask for before it is said that there is nothing.
    again: Option<Need>,
    /// Why there is no fresh answer.
    failed: Option<String>,
}

/// Gives the attachment an address and prints the result.
pub fn add(call: &Call, context: &Context) -> Result<(), Failure> {
    let ipam = &call.conf.ipam;
    let netns = netns(&context.paths, &call.netns);
    let pool = wish(call);
    let asked = address_asked(call, pool).map_err(|refusal| Failure::Refused {
        refusal,
        source: None,
    })?;
    let request = Request {
        attachment: &call.attachment,
        space: &ipam.address_space,
        pool,
        address: asked.as_deref(),
        pod: call.pod.as_deref(),
        netns: netns.as_ref(),
        rest: ipam.rest,
        wired: &BTreeSet::new(),
        exclude: &ipam.exclude,
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
    let mut inquiry = Inquiry::of(asker.ask(need), context);
    let mut look = None;
    let grant = loop {
        match attempt(&request, &mut inquiry, look.as_ref(), context)? {
            Attempt::Granted(grant) => break grant,
            Attempt::LookFirst(candidates) => look = Some(Look::at(candidates, context)),
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
    info!(target: "ipam", "{}.", describe(&grant));
    context.trail.address(grant.address.addr());
    let result = AddResult::of([&grant], ipam).print(call.conf.version);
    stdio::print(&result).map_err(|error| Failure::Output {
        error,
        fate: give_back(call, &grant, context),
    })
}

/// Whether there is a state to go on with while a source is asked. A guess, checked under the lock.
fn has_state(context: &Context) -> bool {
    fs::metadata(context.paths.state()).is_ok_and(|state| state.len() > 0)
}

impl Inquiry {
    fn of(asked: Asked, context: &Context) -> Inquiry {
        match asked {
            Asked::News(news) => {
                announce(&news);
                Inquiry {
                    news: Some(news),
                    ..Inquiry::default()
                }
            }
            Asked::Answered => Inquiry {
                again: Some(Need::Lost),
                ..Inquiry::default()
            },
            Asked::Skipped(why) => {
                debug!(target: "ipam", "the source is not asked: {why}.");
                Inquiry {
                    again: Some(Need::Newer),
                    ..Inquiry::default()
                }
            }
            Asked::Failed(error) => {
                warn!(target: "ipam", "Source refresh failed, err:{error}.");
                // Whoever asked tells of it.
                if !matches!(error, SourceError::OthersFailed) {
                    context.trail.refresh_failed();
                }
                Inquiry {
                    failed: Some(error.to_string()),
                    ..Inquiry::default()
                }
            }
        }
    }

    /// Drops an answer that would take everything away and has not stayed so for long (difference D6).
    fn weigh(&mut self, document: &Document, context: &Context) {
        let doubtful =
            |news: &News| news.is_doubtful() && !document.is_empty() && !news.is_persistent();
        let Some(news) = self.news.take_if(|news| doubtful(news)) else {
            return;
        };
        let why = format!(
            "the source lists {} subnets with no address for pods, and {} interfaces that this node does not have",
            news.matched.inventory.pools.len(),
            news.matched.unmatched.len()
        );
        warn!(target: "ipam", "Source refresh failed, err:{why}; the stored pools stay for now.");
        context.trail.refresh_failed();
        self.failed = Some(why);
        news.doubted();
    }
}

/// Tells the log what a source said.
fn announce(news: &News) {
    let matched = &news.matched;
    for mac in &matched.unmatched {
        info!(target: "ipam", "Failed to find interface with MAC address:{mac}.");
    }
    for pool in &matched.inventory.pools {
        let (count, if_name, subnet) = (pool.addresses.len(), &pool.if_name, pool.subnet);
        info!(target: "ipam", "got {count} addresses from interface {if_name}, subnet {subnet}.");
    }
    let took = Milliseconds(news.took);
    let (primary, skipped) = (matched.primary, matched.skipped);
    info!(target: "ipam", "the source answered in {took}; {primary} addresses are the host's, {skipped} unusable.");
}

/// One try with the pools as they are, under the lock, after whatever news there is was merged into them.
fn attempt(
    request: &Request<'_>,
    inquiry: &mut Inquiry,
    look: Option<&Look>,
    context: &Context,
) -> Result<Attempt, Failure> {
    let store = |error| Failure::Store {
        stage: stage(request),
        error,
    };
    let mut locked = Locked::acquire(&context.paths, WAIT)?;
    let last = last_use(&context.paths, context.boot_id.as_deref());
    let (document, lost) = read(&mut locked, request, last, context)?;
    // To take it apart takes a tenth of the time that the lock is held, and the process ends anyway.
    let mut document = ManuallyDrop::new(document);
    let was_lost = lost.is_some();
    inquiry.weigh(&document, context);
    // What somebody else's answer said may no longer be there.
    let again = inquiry
        .again
        .filter(|need| *need != Need::Lost || document.is_empty());
    let given = Given {
        request: request.clone(),
        news: inquiry.news.as_ref().map(|news| &news.matched.inventory),
        lost,
        last_generation: last.unwrap_or(0),
        look,
        may_ask_again: again.is_some(),
        now: boot_now(),
    };
    let mut events = Vec::new();
    let (taken, changed) = match decide(&mut document, &given, context, &mut events) {
        Decision::LookFirst(candidates) => return Ok(Attempt::LookFirst(candidates)),
        Decision::Broken(wrong) => return Err(Failure::Broken(wrong)),
        Decision::Done { taken, changed } => (taken, changed),
    };
    report(&events);
    let dead = events.iter().map(Event::dead).sum();
    if changed && let Err(error) = context.save(&mut locked, &mut document) {
        if error.is_in_place {
            take_back(&taken, request, &mut document, &mut locked, context);
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
    if let Ok(grant) = &taken
        && let Err(error) = note_use(&context.paths, context.boot_id.as_deref(), grant.generation)
    {
        take_back(&taken, request, &mut document, &mut locked, context);
        return Err(store(error));
    }
    Ok(match taken {
        Ok(grant) => Attempt::Granted(grant),
        Err(refusal) => Attempt::Refused { refusal, again },
    })
}

/// Undoes a grant that is in the state but must not be handed over, as far as the disk lets it.
fn take_back(
    taken: &Result<Grant, Refusal>,
    request: &Request<'_>,
    document: &mut Document,
    locked: &mut Locked<'_>,
    context: &Context,
) {
    if let Ok(grant) = taken
        && document.ipam_mut().revoke(request.attachment, grant)
    {
        let _ = context.save(locked, document);
    }
}

/// The state to work on, and why it has to be made anew, if it has.
fn read(
    locked: &mut Locked<'_>,
    request: &Request<'_>,
    last: Option<u64>,
    context: &Context,
) -> Result<(Document, Option<String>), Failure> {
    let store = |error: StoreError| Failure::Store {
        stage: stage(request),
        error,
    };
    let document = match locked.load(context.boot_id.as_deref()).map_err(store)? {
        Loaded::Read(document) => *document,
        Loaded::Missing => Document::default(),
        Loaded::Corrupt(why) => {
            let aside = locked.set_aside(&wall_now().to_string()).map_err(store)?;
            warn!(target: "ipam", "the state could not be read ({why}) and is now {}.", aside.display());
            return Ok((Document::default(), Some(why)));
        }
    };
    match &document.own {
        Own::Newer { format, .. } => return Err(Failure::NewerFormat { found: *format }),
        Own::Unreadable(why) => {
            warn!(target: "ipam", "our part of the state could not be read: {why}.");
        }
        Own::Absent | Own::Ours | Own::Overtaken => {}
    }
    let lost = loss(&document, is_rebuild_owed(&context.paths), last);
    Ok((document, lost.map(str::to_owned)))
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

/// Takes back an address whose result reached nobody: only what this very call took, and only if it is still so.
fn give_back(call: &Call, grant: &Grant, context: &Context) -> Fate {
    if grant.novelty == Novelty::Renewed {
        return Fate::HeldBefore;
    }
    let Ok(mut locked) = Locked::acquire(&context.paths, WAIT) else {
        return Fate::StillHeld;
    };
    let Ok(Loaded::Read(mut document)) = locked.load(context.boot_id.as_deref()) else {
        return Fate::StillHeld;
    };
    if document.ipam_mut().revoke(&call.attachment, grant)
        && context.save(&mut locked, &mut document).is_err()
    {
        return Fate::StillHeld;
    }
    warn!(target: "ipam", "{} was given back, as the result reached nobody.", grant.address);
    Fate::GivenBack
}
