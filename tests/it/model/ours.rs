//! Calls of the plugin's own ADD, DEL, GC and reclaim on the node in memory, and the checks of their results.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Duration;

use azure_vnet_ipam::cni::{Call, Defaults, Environment, NAME, RawNetworkConfig};
use azure_vnet_ipam::events::OperationRecord;
use azure_vnet_ipam::failure::Failure;
use azure_vnet_ipam::ipam::{Family, Grant, GrantKind, Moment, Record, Refusal, Wanted};
use azure_vnet_ipam::plugin::add::take_back;
use azure_vnet_ipam::plugin::decide::reclaim;
use azure_vnet_ipam::plugin::del::del;
use azure_vnet_ipam::plugin::gc::gc;
use azure_vnet_ipam::plugin::{self, Context, Known, Scan};
use azure_vnet_ipam::source::{FreshAnswer, MatchedListing, Source};
use azure_vnet_ipam::state::{LockError, Locked, StateFile, WAIT};
use serde_json::json;

use super::events::{Blindness, Event, Who};
use super::losses::is_lost_on_disk;
use super::node::{Fault, Kill, MemoryNode};
use super::world::{Id, InFlight, Pod, SUBNET, User, World};

/// The runtime's call for an attachment. Cached, because parsing a call takes as long as deciding it.
fn call(verb: &'static str, id: Id, is_dual: bool) -> Rc<Call> {
    type Calls = BTreeMap<(&'static str, Id, bool), Rc<Call>>;
    thread_local! {
        static CALLS: RefCell<Calls> = RefCell::default();
    }
    CALLS.with_borrow_mut(|calls| {
        let made = calls.entry((verb, id, is_dual));
        Rc::clone(made.or_insert_with(|| {
            let families: &[&str] = if is_dual {
                &["IPv4", "IPv6"]
            } else {
                &["IPv4"]
            };
            let conf = json!({
                "cniVersion": "1.1.0",
                "name": "azure",
                "type": "bridge",
                "ipam": { "type": "azure-vnet-ipam", "families": families },
            });
            let environment = Environment {
                command: verb.to_owned(),
                container_id: id.container_id(),
                netns: id.container_id(),
                if_name: id.if_name(),
                args: id.args(),
            };
            let defaults = Defaults::default();
            let raw_config = RawNetworkConfig::read(conf.to_string().as_bytes()).unwrap();
            Rc::new(Call::parse(&environment, &raw_config, &defaults, NAME).unwrap())
        }))
    })
}

/// The outcome of an ADD.
enum Outcome {
    Granted(Vec<Grant>),
    /// The ADD has scanned the node, and continues later.
    Scanned(Rc<Scan>),
    Failed(Failure),
}

/// Runs an ADD on a node. With `may_rest`, it returns after the scan of the node.
fn allocate(world: &World, node: &MemoryNode, add: &mut InFlight, may_rest: bool) -> Outcome {
    let context = world.context(node);
    let mut call = call("ADD", add.id, world.is_dual());
    if let Some(named) = &add.named {
        let conf = &mut Rc::make_mut(&mut call).conf;
        conf.ipam.subnet = Some(SUBNET.to_owned());
        conf.ipam.ip_address = Some((&**named).into());
    }
    let netns = world.netns(add.id);
    node.begin(netns.clone(), may_rest);
    let mut record = OperationRecord::default();
    let granted = if may_rest || add.has_asked {
        let wanted = Wanted::from_call(&call, Some(netns)).unwrap();
        let mut known = if add.has_asked {
            known(add)
        } else {
            Known::of_source(source(), None, &context)
        };
        let granted = plugin::add::allocate(&wanted, &mut known, &context, &mut record);
        if may_rest && node.is_dead() {
            add.has_asked = true;
            return Outcome::Scanned(Rc::new(known.scan.unwrap()));
        }
        granted
    } else {
        plugin::add::add(&call, &context, &mut record)
    };
    match granted {
        Ok(grants) => Outcome::Granted(grants),
        Err(Failure::Broken(violations)) => panic!("{violations:?}"),
        Err(failure) => Outcome::Failed(failure),
    }
}

/// The source of every ADD.
fn source() -> &'static Source {
    static SOURCE: LazyLock<Source> = LazyLock::new(Source::wire_server);
    &SOURCE
}

/// The addresses that an answer lists.
fn listed(answer: &FreshAnswer) -> impl Iterator<Item = IpAddr> {
    let pools = answer.matched.inventory.pools.iter();
    pools.flat_map(|pool| &pool.addresses).copied()
}

/// The knowledge of an ADD that has queried the source.
fn known(add: &InFlight) -> Known<'static> {
    let answer = add.answer.clone().ok_or_else(|| "no answer".to_owned());
    Known {
        source: Some(source()),
        answer: Some(answer),
        scan: add.scan.as_deref().cloned(),
        ..Known::default()
    }
}

/// Runs a DEL.
fn release_all(call: &Call, context: &Context) -> Result<(), Failure> {
    del(call, context, &mut OperationRecord::default())
}

fn is_exhausted(failure: &Failure) -> bool {
    let Failure::Refused { refusal, .. } = failure else {
        return false;
    };
    matches!(refusal, Refusal::Exhausted { .. })
}

fn message_of(failure: &Failure) -> String {
    failure.to_cni("azure-vnet-ipam").msg
}

impl World {
    fn context(&self, node: &MemoryNode) -> Context {
        Context::on(Rc::new(node.clone()), self.now(), self.boot_id())
    }

    fn node(&self) -> MemoryNode {
        MemoryNode::new(self.disk.clone(), self.now(), self.evidence())
            .with_source(self.inventory(), self.doubtful_since)
    }

    fn node_with(&self, fault: Option<Fault>) -> MemoryNode {
        self.node().with_fault(fault)
    }

    /// Queries the source now.
    fn ask(&self) -> Option<FreshAnswer> {
        let matched = MatchedListing {
            inventory: self.inventory()?,
            ..MatchedListing::default()
        };
        let now = self.now();
        Some(FreshAnswer::new(matched, now, now, self.doubtful_since))
    }

    /// Starts an ADD, which may request a particular address.
    pub(crate) fn unchecked_start_add(&self, id: Id, named: Option<&str>) -> InFlight {
        InFlight {
            id,
            began: self.now(),
            answer: self.ask(),
            has_asked: false,
            scan: None,
            named: named.map(str::to_owned),
        }
    }

    /// Runs an ADD without the checks of the model, until it has scanned the node.
    pub(crate) fn unchecked_scan(&mut self, add: &mut InFlight) {
        let node = self.node();
        if let Outcome::Scanned(scan) = self.run(&node, add, true) {
            add.scan = Some(scan);
        }
        self.take_over(&node);
    }

    /// Runs an ADD without the checks of the model. Returns the address. With a world `before`, the ADD runs there,
    /// stops right before it replaces the state, and then continues in this world.
    pub(crate) fn unchecked_add(
        &mut self,
        mut add: InFlight,
        mut before: Option<World>,
        fault: Option<Fault>,
    ) -> Result<IpAddr, Failure> {
        let node = match &before {
            Some(before) => before.node(),
            None => self.node_with(fault),
        };
        if before.is_some() {
            node.stop_before_rename(self.disk.clone(), self.now());
        }
        let outcome = before.as_mut().unwrap_or(self).run(&node, &mut add, false);
        self.take_over(&node);
        match outcome {
            Outcome::Granted(grants) => Ok(grants[0].address.addr()),
            Outcome::Scanned(_) => unreachable!("it does not rest"),
            Outcome::Failed(failure) => Err(failure),
        }
    }

    /// Runs a DEL without the checks of the model. It may name the address as `ipAddress`.
    pub(crate) fn unchecked_del(
        &mut self,
        id: Id,
        named: Option<&str>,
        fault: Option<Fault>,
    ) -> Result<(), Failure> {
        let mut call = Call::clone(&call("DEL", id, self.is_dual()));
        call.conf.ipam.subnet = named.map(|_| SUBNET.to_owned());
        call.conf.ipam.ip_address = named.map(Into::into);
        let node = self.node_with(fault);
        let context = self.context(&node);
        let released = release_all(&call, &context);
        self.take_over(&node);
        released
    }

    /// Runs a GC without the checks of the model.
    pub(crate) fn unchecked_gc(&mut self, valid: impl Iterator<Item = Id>) -> Result<(), Failure> {
        let unknown = Id {
            container: 0,
            interface: 0,
            user: User::Pod(0),
        };
        let mut call = Call::clone(&call("DEL", unknown, self.is_dual()));
        call.valid = valid.map(|id| (id.container_id(), id.if_name())).collect();
        let node = self.node();
        let context = self.context(&node);
        let collected = gc(&call, &context, &mut OperationRecord::default());
        self.take_over(&node);
        match collected {
            Err(Failure::NotAllFreed { .. }) => Ok(()),
            collected => collected,
        }
    }

    /// Copies the changes of a call to the files of this world.
    fn take_over(&mut self, node: &MemoryNode) {
        let disk = node.disk();
        let (new, old) = (
            disk.text(StateFile::State),
            self.disk.text(StateFile::State),
        );
        if disk != self.disk {
            self.last_copy = Some(self.disk.clone());
            self.truth.called(&self.disk, &disk);
        }
        if new != old {
            self.original_wrote_last = false;
            self.old_state = self.disk.files.get(&StateFile::State).cloned();
        }
        self.disk = disk;
    }

    /// Whether no evidence shows to which interface of a container the original allocated an address. "Records of the
    /// original (container ID only) match by container ID" (D8).
    fn is_ambiguous(&self, id: Id) -> bool {
        let state = self.state().unwrap_or_default();
        let call = call("ADD", id, self.is_dual());
        let first = Id { interface: 0, ..id };
        let is_cached = self.blind != Blindness::Cache && self.cache.contains_key(&first);
        id.interface != 0 && !is_cached && state.ipam().lacks_interface(&call.attachment)
    }

    /// Starts an ADD, if the runtime would call it.
    fn start_add(&mut self, pod: u8) -> Option<InFlight> {
        // Calls of an attachment are sequential.
        if self.in_flight.contains_key(&pod) {
            return None;
        }
        let id = self.start(pod);
        if id.interface != 0 {
            // A runtime creates the interfaces of a container one after another.
            self.configure(pod - 1);
        }
        if self.is_ambiguous(id) {
            return None;
        }
        // A killed ADD may hold an address again.
        self.truth.released.remove(&id);
        Some(self.unchecked_start_add(id, None))
    }

    /// Runs a complete ADD of ours.
    pub(super) fn add(&mut self, pod: u8) {
        let Some(mut add) = self.start_add(pod) else {
            return;
        };
        let node = self.node();
        let outcome = self.run_whole(&node, &mut add);
        self.ended(add, outcome);
    }

    fn run_whole(&mut self, node: &MemoryNode, add: &mut InFlight) -> Outcome {
        let outcome = self.run(node, add, false);
        self.take_over(node);
        outcome
    }

    fn run(&mut self, node: &MemoryNode, add: &mut InFlight, may_rest: bool) -> Outcome {
        let asks = !add.has_asked;
        let outcome = allocate(self, node, add, may_rest);
        if asks {
            self.note_doubt(add);
        }
        outcome
    }

    /// Records when answers began to be implausible.
    fn note_doubt(&mut self, add: &InFlight) {
        if let Some(answer) = &add.answer {
            self.doubtful_since = answer.doubtful_since;
        }
    }

    fn ended(&mut self, add: InFlight, outcome: Outcome) {
        self.note_answer(&add);
        if self.rules.losses_are_seen_once && !matches!(outcome, Outcome::Scanned(_)) {
            self.loss_seen.get_or_insert(Moment(self.clock));
        }
        match outcome {
            Outcome::Granted(grants) => self.granted(add.id, &grants),
            Outcome::Scanned(_) => {}
            Outcome::Failed(failure) => self.failed(&failure, &add),
        }
        self.end_agents_namespace();
    }

    /// Records the answer that an ADD merged, unless a newer answer is merged already. That one may be from the original,
    /// or from a boot that cannot be distinguished from this one. An answer without addresses may be deferred.
    fn note_answer(&mut self, add: &InFlight) {
        let merged = self.state().and_then(|state| Some(state.refreshed?.at));
        let answer = add.answer.as_ref();
        let Some(answer) = answer.filter(|_| merged <= Some(add.began)) else {
            return;
        };
        let listed: BTreeSet<IpAddr> = listed(answer).collect();
        let newest = self.newest_answer.as_ref();
        if !listed.is_empty() && newest.is_none_or(|(began, _)| *began <= add.began) {
            self.newest_answer = Some((add.began, listed));
        }
    }

    /// Runs an ADD with this event between its scan and its decision.
    pub(super) fn slow_add(&mut self, pod: u8, event: &Event) {
        self.begin(pod);
        self.go_on(pod);
        if self.in_flight.contains_key(&pod) {
            self.step(event);
            // The event may have ended the pod.
            let add = self.in_flight.remove(&pod);
            if let Some(mut add) = add.filter(|add| !self.is_ambiguous(add.id)) {
                let node = self.node();
                let outcome = self.run(&node, &mut add, false);
                self.take_over(&node);
                self.ended(add, outcome);
            }
        }
    }

    /// Calls of a runtime for an attachment are sequential.
    pub(super) fn begin(&mut self, pod: u8) {
        if !self.in_flight.contains_key(&pod) {
            let Some(add) = self.start_add(pod) else {
                return;
            };
            self.note_doubt(&add);
            let has_asked = true;
            self.in_flight.insert(pod, InFlight { has_asked, ..add });
        }
    }

    pub(super) fn go_on(&mut self, pod: u8) {
        let Some(mut add) = self.in_flight.remove(&pod) else {
            return;
        };
        if self.is_ambiguous(add.id) {
            return;
        }
        let node = self.node();
        let outcome = self.run(&node, &mut add, true);
        self.take_over(&node);
        if let Outcome::Scanned(scan) = outcome {
            add.scan = Some(scan);
            self.in_flight.insert(pod, add);
        } else {
            self.ended(add, outcome);
        }
    }

    /// Runs an ADD that cannot print its result.
    pub(super) fn lost_add(&mut self, pod: u8) {
        let Some(mut add) = self.start_add(pod) else {
            return;
        };
        let node = self.node();
        let outcome = self.run(&node, &mut add, false);
        self.note_answer(&add);
        if let Outcome::Granted(grants) = &outcome {
            let call = call("ADD", add.id, self.is_dual());
            take_back(&call.attachment, grants, &self.context(&node));
        }
        self.take_over(&node);
        if let Outcome::Failed(failure) = outcome {
            self.failed(&failure, &add);
        }
    }

    /// Runs an ADD during which the file system refuses an operation. The ADD may fail, but an address that it
    /// returns must be held.
    pub(super) fn faulty_add(&mut self, pod: u8, fault: Fault) {
        let Some(mut add) = self.start_add(pod) else {
            return;
        };
        let node = self.node_with(Some(fault));
        let outcome = self.run_whole(&node, &mut add);
        match outcome {
            // The refusal may not have been saved.
            Outcome::Failed(failure)
                if !matches!(failure, Failure::Refused { .. }) || is_exhausted(&failure) =>
            {
                self.newest_answer = None;
            }
            outcome => self.ended(add, outcome),
        }
    }

    /// Runs a DEL during which the file system refuses an operation.
    pub(super) fn faulty_del(&mut self, pod: u8, fault: Fault) {
        self.end(pod);
        let id = self.named(pod);
        if self.unchecked_del(id, None, Some(fault)).is_ok() {
            self.released.insert(id);
        }
        self.cache.remove(&id);
    }

    /// Runs a DEL. The container still exists for this many seconds.
    pub(super) fn slow_del(&mut self, pod: u8, seconds: u64) {
        let id = self.named(pod);
        let was_whole = self.is_whole();
        self.start_teardown(pod, seconds);
        let released = self.released.clone();
        let in_loss = self.truth.released.clone();
        self.release(id, None);
        (self.released, self.truth.released) = (released, in_loss);
        // Without namespace cookies, the plugin cannot be sure for long that the namespace is the same.
        if was_whole && self.is_whole() && self.rules.has_cookies {
            let configured = self.strangers.configured.get(&id).into_iter().flatten();
            let held = self.held();
            let free = configured.filter(|address| !held.contains(address));
            self.withheld.extend(free.map(|address| (*address, id)));
        }
    }

    /// Runs an ADD that is killed. The runtime gets no result.
    pub(super) fn killed_add(&mut self, pod: u8, kill: Kill) {
        let Some(mut add) = self.start_add(pod) else {
            return;
        };
        let node = self.node();
        node.kill(Some(kill));
        self.run(&node, &mut add, false);
        self.take_over(&node);
        self.newest_answer = None;
    }

    /// Runs an ADD that is raced, and may be killed. The runtime gets no result of a killed call.
    pub(super) fn raced_add(&mut self, pod: u8, other: u8, step: u32, kill: Option<u32>) {
        if !self.may_lose_lock_folder() {
            return;
        }
        let (Some(mut add), Some(theirs)) = (self.start_add(pod), self.start_add(other)) else {
            return;
        };
        // Calls of a container are sequential.
        if add.id.container == theirs.id.container {
            return;
        }
        let node = self.node();
        let raced = self.race(&node, theirs.clone(), step, kill);
        let outcome = self.run(&node, &mut add, false);
        let raced = raced.take();
        self.take_over(&node);
        if kill.is_some() {
            self.newest_answer = None;
        }
        self.raced(theirs, raced);
        if !node.is_dead() {
            self.raced(add, Some(outcome));
        }
    }

    /// Checks one of two racing calls. The other call may have freed an address that an ADD found held.
    fn raced(&mut self, add: InFlight, outcome: Option<Outcome>) {
        match outcome {
            Some(Outcome::Failed(failure)) if is_exhausted(&failure) => {}
            // The runtime repeats the call.
            Some(Outcome::Failed(Failure::Lock(LockError::Removed { .. }))) => {
                self.newest_answer = None;
            }
            Some(outcome) => self.ended(add, outcome),
            None => {}
        }
    }

    /// Removes the lock folder after some steps of a call, then runs another ADD. Kills the call after this many
    /// further changes.
    fn race(
        &self,
        node: &MemoryNode,
        mut theirs: InFlight,
        step: u32,
        kill: Option<u32>,
    ) -> Rc<RefCell<Option<Outcome>>> {
        let outcome = Rc::new(RefCell::default());
        let (slot, world) = (Rc::clone(&outcome), self.clone());
        let raced = move |node: &MemoryNode| {
            node.change(|disk| disk.remove_lock_folder());
            let suspended = node.suspend();
            let result = allocate(&world, node, &mut theirs, false);
            node.resume(suspended);
            *slot.borrow_mut() = Some(result);
            if let Some(changes) = kill {
                node.kill_after(changes);
            }
        };
        node.interrupt(step, Box::new(raced));
        outcome
    }

    fn granted(&mut self, id: Id, grants: &[Grant]) {
        let addresses: Vec<IpAddr> = grants.iter().map(|g| g.address.addr()).collect();
        assert_eq!(addresses.len(), self.rules.families.len());
        for (other, theirs) in &self.pods {
            let both = theirs.addresses.iter().find(|a| addresses.contains(a));
            assert!(
                *other == id || both.is_none(),
                "{both:?} of {other:?} is allocated to {id:?}"
            );
        }
        // A repeated ADD gets the same address again while the state has it.
        let is_new = |grant: &Grant| matches!(grant.kind, GrantKind::New(_));
        for address in grants
            .iter()
            .filter(|g| is_new(g))
            .map(|g| g.address.addr())
        {
            let last = self.withheld.get(&address);
            assert!(
                last.is_none_or(|last| last.container == id.container),
                "{address} is allocated to {id:?}, and the sandbox of {last:?} still has it"
            );
        }
        if let Some((_, listed)) = &self.newest_answer {
            let new = grants.iter().filter(|grant| is_new(grant));
            let unlisted = new
                .map(|grant| grant.address.addr())
                .find(|a| !listed.contains(a));
            assert_eq!(unlisted, None, "the newest answer does not list it");
        }
        self.released.remove(&id);
        let configured = self.pods.get(&id).is_some_and(|mine| mine.configured);
        let pod = Pod {
            addresses,
            since: self.clock,
            configured: configured && !grants.iter().any(is_new),
        };
        self.pods.insert(id, pod);
    }

    fn failed(&self, failure: &Failure, add: &InFlight) {
        let Failure::Refused { refusal, .. } = failure else {
            panic!("{}", message_of(failure));
        };
        match refusal {
            Refusal::Exhausted { pools, .. } => {
                let state = self.view();
                let is_meant = |key: &str| pools.iter().any(|pool| pool.subnet == key);
                let meant = state.ipam().pools().filter(|(_, key, _)| is_meant(key));
                let records = meant.flat_map(|(_, _, pool)| &pool.records);
                let mut free = records.filter(|record| record.held().is_none());
                let still_has = |record: &Record| {
                    let mut configured = self.strangers.configured.values().flatten();
                    configured.any(|address| *address == record.address())
                };
                assert!(free.all(still_has), "something is free");
            }
            // A pool that is listed without addresses is dropped when its last address is released.
            Refusal::NoPools { family, .. } | Refusal::NoPoolOfFamily { family, .. } => {
                let of_family = |answer: &FreshAnswer| {
                    listed(answer)
                        .filter(|a| Family::from_address(*a) == *family)
                        .count()
                };
                let merged = self.state().and_then(|state| Some(state.refreshed?.at));
                let is_outdated = merged > Some(add.began);
                assert!(is_outdated || add.answer.as_ref().map_or(0, of_family) == 0);
            }
            Refusal::NoSpace { .. } => {
                assert!(add.answer.is_none() && self.state().is_none_or(|d| d.is_empty()));
            }
            Refusal::Quarantined { left } => {
                assert!(
                    self.truth.may_refuse,
                    "a quarantine, although the state or the backup survived"
                );
                let since = self
                    .loss_seen
                    .map_or(Duration::ZERO, |seen| self.now().since(seen));
                assert!(
                    since + *left <= Duration::from_secs(30),
                    "the quarantine is to last for {left:?} more, {since:?} after the loss was seen"
                );
            }
            other => panic!("{other}"),
        }
    }

    pub(super) fn del(&mut self, pod: u8, who: Who, kill: Option<Kill>) {
        // The main plugin removes the address from the link first.
        self.end(pod);
        let id = self.named(pod);
        if who == Who::TheOriginal {
            self.originals_del(id);
        } else {
            self.release(id, kill);
        }
        self.cache.remove(&id);
    }

    fn release(&mut self, id: Id, kill: Option<Kill>) {
        let (node, was_lost) = (self.node(), is_lost_on_disk(&self.view()));
        // "a released address that the kernel shows is free only in the namespace of the holder that released it". A
        // record of the original has no namespace.
        let view = self.view();
        let is_with_namespace = view.ipam().pools().all(|(_, _, pool)| {
            let held = pool.records.iter().filter_map(|record| record.held());
            let mut theirs = held.filter(|h| h.holder.is_container(&id.container_id()));
            theirs.all(|held| held.holder.netns.is_some())
        });
        // "Otherwise everything that evidence names is held, and 30 s of quarantine pass". Until then a holder may be
        // missing.
        let is_known = view.ipam().quarantine.is_none();
        let is_restorable = view.restored.is_some() && is_with_namespace && is_known;
        node.kill(kill);
        let call = call("DEL", id, self.is_dual());
        let context = self.context(&node);
        let released = release_all(&call, &context);
        if let Err(failure) = released {
            assert!(node.is_dead(), "{}", message_of(&failure));
        } else {
            self.released.insert(id);
            if is_restorable {
                self.truth.released.insert(id);
            }
        }
        self.take_over(&node);
        // The state that the DEL writes must not look like an old copy.
        assert!(
            was_lost || !self.is_old_copy(),
            "a DEL has made the state look lost"
        );
    }

    pub(super) fn raced_del(&mut self, pod: u8, other: u8, step: u32) {
        if !self.may_lose_lock_folder() {
            return;
        }
        self.end(pod);
        let id = self.named(pod);
        let Some(theirs) = self
            .start_add(other)
            .filter(|theirs| theirs.id.container != id.container)
        else {
            return;
        };
        let node = self.node();
        let raced = self.race(&node, theirs.clone(), step, None);
        let call = call("DEL", id, self.is_dual());
        let context = self.context(&node);
        let released = release_all(&call, &context);
        let is_repeated = match released {
            Ok(()) => false,
            Err(Failure::Lock(LockError::Removed { .. })) => true,
            Err(failure) => panic!("{}", message_of(&failure)),
        };
        let raced = raced.take();
        self.take_over(&node);
        self.raced(theirs, raced);
        if is_repeated {
            self.release(id, None);
        }
        self.cache.remove(&id);
    }

    /// Runs a DEL of the pod's previous container.
    pub(super) fn late_del(&mut self, pod: u8) {
        let id = self.named(pod);
        let before = (1..id.container)
            .rev()
            .map(|container| Id { container, ..id });
        let is_there = |id: &Id| self.containers.values().any(|c| c.number == id.container);
        let gone = before.into_iter().find(|id| !is_there(id));
        if let Some(id) = gone {
            self.release(id, None);
        }
    }

    pub(super) fn gc(&mut self, forgets: Option<u8>) {
        let forgotten = forgets.map(|pod| self.named(pod));
        let known = self.pods.keys().copied();
        let in_flight = self.in_flight.values().map(|add| add.id);
        let valid = known.chain(in_flight).filter(|id| Some(*id) != forgotten);
        let valid: Vec<Id> = valid.collect();
        let before = self.found_held();
        if let Err(failure) = self.unchecked_gc(valid.into_iter()) {
            panic!("{}", message_of(&failure));
        }
        // The address of a pod that the runtime knows stays held, even if the record names another holder.
        let held = self.found_held();
        let known = self.pods.iter().filter(|(id, _)| Some(**id) != forgotten);
        for address in known.flat_map(|(_, pod)| &pod.addresses) {
            assert!(
                held.contains(address) || !before.contains(address),
                "GC frees {address}, which a pod has"
            );
        }
    }

    /// Runs the steps of `reclaim --yes`.
    pub(super) fn reclaim(&mut self) {
        let state = self.view();
        if state.condition.lost().is_some() || state.is_empty() {
            return;
        }
        let node = self.node();
        let context = self.context(&node);
        let candidates = state.ipam().candidates(|_, _, _| true, None, self.now());
        let scan = Scan::at_node(candidates, &context);
        let mut locked = Locked::acquire(&node, WAIT).unwrap();
        let mut state = context.open(&mut locked).unwrap();
        reclaim(&mut state, &scan, self.now(), &mut Vec::new());
        context.commit(&mut locked, &mut state).unwrap();
        drop(locked);
        self.take_over(&node);
    }
}
