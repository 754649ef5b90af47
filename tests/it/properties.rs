//! Random histories of the core, compared with a simple model.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use azure_vnet_ipam::cni::{Call, Defaults, Environment};
use azure_vnet_ipam::ipam::{
    Attachment, Family, GrantKind, Hint, Inventory, Ipam, ListedPool, Moment, PoolSelector,
    Refusal, Request, TEARDOWN, Usage,
};
use azure_vnet_ipam::source::parse;
use azure_vnet_ipam::state::{State, WriteStamp};
use proptest::prelude::*;

/// An event on a node, in small numbers.
#[derive(Clone, Debug)]
enum Event {
    /// For each of three subnets, the source lists the addresses whose bits are set. A subnet without any is not listed.
    Source([u8; 3]),
    /// An ADD: container, interface, subnet (3 means none), address (8 means none).
    Add(u8, u8, u8, u8),
    /// An ADD whose result is lost.
    LostAdd(u8, u8),
    /// A DEL: container, interface, subnet (3 means none).
    Del(u8, u8, u8),
    /// The state is saved and loaded.
    Reload,
    /// The original reads the state, changes nothing and writes it.
    Original,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => any::<[u8; 3]>().prop_map(Event::Source),
        6 => (0..6u8, 0..2u8, 0..4u8, prop_oneof![4 => Just(8u8), 1 => 0..8u8]).prop_map(|(c, i, s, a)| Event::Add(c, i, s, a)),
        1 => (0..6u8, 0..2u8).prop_map(|(c, i)| Event::LostAdd(c, i)),
        4 => (0..6u8, 0..2u8, 0..4u8).prop_map(|(c, i, s)| Event::Del(c, i, s)),
        2 => Just(Event::Reload),
        1 => Just(Event::Original),
    ]
}

const COOLDOWN: Duration = Duration::from_secs(30);

fn subnet(n: u8) -> String {
    format!("10.{n}.0.0/24")
}

fn address(subnet: u8, n: u8) -> IpAddr {
    // Includes addresses whose text order differs from their numeric order.
    Ipv4Addr::new(10, subnet, 0, 7 + n).into()
}

fn attachment(container: u8, interface: u8) -> Attachment {
    Attachment {
        network: "azure".into(),
        container_id: format!("c{container}"),
        if_name: format!("eth{interface}"),
    }
}

/// The model: who holds what, and what the source lists.
#[derive(Default)]
struct Model {
    held: BTreeMap<IpAddr, Attachment>,
    listed: BTreeSet<IpAddr>,
    pools: BTreeSet<u8>,
    /// Release time by address.
    released: BTreeMap<IpAddr, Moment>,
}

impl Model {
    fn free_in(&self, subnet: u8) -> usize {
        let in_subnet = self
            .listed
            .iter()
            .filter(|a| matches!(a, IpAddr::V4(v4) if v4.octets()[1] == subnet));
        in_subnet.filter(|a| !self.held.contains_key(a)).count()
    }
}

struct Node {
    document: State,
    model: Model,
    clock: u64,
}

impl Node {
    fn ipam(&self) -> &Ipam {
        self.document.ipam()
    }

    fn step(&mut self, event: &Event) {
        self.clock += 1_000_000_000;
        let now = Moment(self.clock);
        match *event {
            Event::Source(bits) => self.source(bits),
            Event::Add(container, interface, subnet, address) => {
                self.add(container, interface, subnet, address, now)
            }
            Event::LostAdd(container, interface) => self.lost_add(container, interface, now),
            Event::Del(container, interface, subnet) => self.del(container, interface, subnet, now),
            Event::Reload => self.reload(false),
            Event::Original => self.reload(true),
        }
        self.agree();
    }

    fn source(&mut self, bits: [u8; 3]) {
        let mut inventory = Inventory::default();
        self.model.listed.clear();
        self.model.pools.clear();
        for (n, bits) in (0u8..3).zip(bits).filter(|(_, bits)| *bits != 0) {
            let addresses: Vec<_> = (0..8)
                .filter(|i| bits >> i & 1 == 1)
                .map(|i| address(n, i))
                .collect();
            self.model.listed.extend(&addresses);
            self.model.pools.insert(n);
            inventory.pools.push(ListedPool::new(
                subnet(n).parse().unwrap(),
                "eth0".into(),
                0,
                addresses,
            ));
        }
        self.document.ipam_mut().merge(&inventory);
    }

    fn take(
        &mut self,
        attachment: &Attachment,
        subnet: Option<&str>,
        address: Option<&str>,
        now: Moment,
    ) -> Result<azure_vnet_ipam::ipam::Grant, Refusal> {
        let request = Request {
            attachment,
            space: "local",
            pool: subnet.map_or(
                PoolSelector::Any {
                    family: Family::V4,
                    if_name: None,
                },
                PoolSelector::Named,
            ),
            address,
            pod: None,
            netns: None,
            cooldown: COOLDOWN,
            on_host: &BTreeSet::new(),
            exclude: &[],
        };
        self.document.ipam_mut().allocate(&request, now)
    }

    fn add(&mut self, container: u8, interface: u8, pool: u8, wanted: u8, now: Moment) {
        let attachment = attachment(container, interface);
        let name = (pool < 3).then(|| subnet(pool));
        let wanted = (wanted < 8).then(|| address(pool.min(2), wanted));
        let before = self
            .model
            .held
            .iter()
            .filter(|(_, a)| **a == attachment)
            .map(|(ip, _)| *ip)
            .collect::<Vec<_>>();
        let outcome = self.take(
            &attachment,
            name.as_deref(),
            wanted.map(|w| w.to_string()).as_deref(),
            now,
        );
        match outcome {
            Ok(grant) => {
                let got = grant.address.addr();
                if let Some(wanted) = wanted {
                    assert_eq!(got, wanted);
                }
                if pool < 3 {
                    assert!(
                        grant
                            .address
                            .to_string()
                            .starts_with(&format!("10.{pool}."))
                    );
                }
                match self.model.held.get(&got) {
                    Some(holder) => assert_eq!(
                        (holder, &grant.kind),
                        (&attachment, &GrantKind::Renewed),
                        "{got} has a holder"
                    ),
                    None => {
                        assert!(matches!(grant.kind, GrantKind::New(_)));
                        assert!(self.model.listed.contains(&got), "{got} is not listed");
                        if wanted.is_none() {
                            let same_pool = |ip: &&IpAddr| {
                                pool == 3
                                    || **ip == address(pool, 0)
                                    || ip.to_string().starts_with(&format!("10.{pool}."))
                            };
                            assert_eq!(before.iter().find(same_pool), None, "it had one already");
                        }
                        self.model.held.insert(got, attachment);
                    }
                }
            }
            Err(Refusal::Exhausted { .. }) => {
                let free: usize = (0..3)
                    .filter(|n| pool == 3 || pool == *n)
                    .map(|n| self.model.free_in(n))
                    .sum();
                assert_eq!(free, 0, "something is free");
            }
            Err(Refusal::AddressInUse { address, .. }) => {
                assert_ne!(self.model.held.get(&address), None);
                assert_ne!(self.model.held.get(&address), Some(&attachment));
            }
            Err(Refusal::AddressNotFound { .. }) => {
                let wanted = wanted.unwrap();
                assert!(
                    !self.model.listed.contains(&wanted) && !self.model.held.contains_key(&wanted)
                );
            }
            Err(Refusal::AddressInCooldown { address, .. }) => {
                assert_eq!(self.model.held.get(&address), None);
                assert!(now.since(self.model.released[&address]) < COOLDOWN);
            }
            Err(Refusal::NoPool { .. }) => assert!(!self.model.pools.contains(&pool)),
            Err(Refusal::NoSpace { .. } | Refusal::NoPools { .. }) => {
                assert!(self.model.pools.is_empty())
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn lost_add(&mut self, container: u8, interface: u8, now: Moment) {
        let attachment = attachment(container, interface);
        if let Ok(grant) = self.take(&attachment, None, None, now) {
            let revoked = self.document.ipam_mut().revoke(&attachment, &grant);
            assert_eq!(revoked, matches!(grant.kind, GrantKind::New(_)));
        }
    }

    fn del(&mut self, container: u8, interface: u8, pool: u8, now: Moment) {
        let attachment = attachment(container, interface);
        let name = (pool < 3).then(|| subnet(pool));
        let hint = Hint {
            space: Some("local"),
            subnet: name.as_deref(),
            address: None,
            previous: &[],
        };
        let freed: BTreeSet<_> = self
            .document
            .ipam_mut()
            .release(&attachment, hint, now)
            .into_iter()
            .map(|f| f.address)
            .collect();
        let expected: BTreeSet<_> = self
            .model
            .held
            .iter()
            .filter(|(_, a)| **a == attachment)
            .map(|(ip, _)| *ip)
            .collect();
        assert_eq!(freed, expected);
        self.model
            .released
            .extend(freed.iter().map(|ip| (*ip, now)));
        self.model.held.retain(|_, a| *a != attachment);
    }

    /// Saves and loads the state. The original changes only the time stamp.
    fn reload(&mut self, by_the_original: bool) {
        let time = self.clock.to_string();
        let mut text = self.document.print(WriteStamp {
            version: "v0",
            time: &time,
            boot_id: Some("b"),
        });
        if by_the_original {
            let old = format!("\t\t\"TimeStamp\": \"{time}\"");
            text = String::from_utf8(text)
                .unwrap()
                .replacen(&old, "\t\t\"TimeStamp\": \"x\"", 1)
                .into_bytes();
        }
        let now = Moment(self.clock);
        let parse = |text: &[u8]| State::parse(text, Some("b"), now).unwrap();
        let again = parse(&text);
        // An unusual layout is read by other code.
        let mut unusual = text.clone();
        unusual.retain(|b| !b"\n\t".contains(b));
        assert_eq!(parse(&unusual).ipam(), again.ipam());
        if by_the_original {
            // The original may have changed anything: all records count as first seen now.
            for pool in self.document.ipam_mut().pools_mut() {
                for record in &mut pool.records {
                    if let Usage::Held(held) = &mut record.usage {
                        held.since = Moment(self.clock);
                    }
                }
            }
        }
        let dropped = &mut self.document.ipam_mut().dropped;
        dropped.retain(|dropped| now.since(dropped.at) < TEARDOWN);
        assert_eq!(again.ipam(), self.document.ipam());
        self.document = again;
    }

    /// Checks that state and model agree.
    fn agree(&self) {
        assert_eq!(self.ipam().check(), []);
        let mut held = BTreeMap::new();
        for (_, _, pool) in self.ipam().pools() {
            for record in &pool.records {
                match record.held() {
                    Some(by) => {
                        let attachment = by.owner.attachment().unwrap();
                        assert_eq!(by.unlisted, !self.model.listed.contains(&record.key));
                        held.insert(record.address(), attachment);
                    }
                    None => assert!(
                        self.model.listed.contains(&record.key),
                        "{} is not listed",
                        record.key
                    ),
                }
            }
        }
        assert_eq!(held, self.model.held);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_history_breaks_an_invariant(events in prop::collection::vec(event(), 1..80)) {
        let mut node = Node { document: State::default(), model: Model::default(), clock: 0 };
        for event in &events {
            node.step(event);
        }
    }

    #[test]
    fn parsers_survive_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = State::parse(&bytes, None, Moment(0));
        let _ = parse::wire(&bytes[..]);
        let _ = parse::interfaces_file(&bytes);
        let environment = Environment {
            command: "ADD".into(), container_id: "c".into(), netns: "n".into(), if_name: "e".into(),
            args: String::from_utf8_lossy(&bytes).into_owned(),
        };
        let _ = Call::parse(&environment, &bytes, &Defaults::default());
    }

    #[test]
    fn parsers_survive_damaged_documents(at in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>()) {
        for text in [include_bytes!("../../testdata/wire.xml").to_vec(), include_bytes!("../../testdata/states/format-3.json").to_vec()] {
            let mut damaged = text.clone();
            *at.get_mut(&mut damaged) = byte;
            damaged.truncate(cut.index(text.len() * 4) + 1);
            let _ = parse::wire(&damaged[..]);
            let boot_id = Some("8f3c5c52-0000-4000-8000-000000000001");
            if let Ok(mut document) = State::parse(&damaged, boot_id, Moment(0)) {
                let again = document.print(WriteStamp { version: "v0", time: "t", boot_id });
                let again = State::parse(&again, boot_id, Moment(0)).unwrap();
                prop_assert_eq!(again.ipam(), document.ipam());
            }
        }
    }
}
