//! Which Service gets which address: pure, and the same whatever the order of the input.
//!
//! Who has an address keeps it; only then do others choose. No address is looked for one by one: a
//! pool of /64 costs what a pool of ten does.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::request::Request;
use crate::config::Pool;
use crate::model::{Family, KeptReason, NodeName, Note, PoolName, ServiceKey};

/// The pools there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pools {
    /// Those that are valid, by name.
    pub valid: BTreeMap<PoolName, Pool>,
    /// Those that are not: nobody gets an address of them, and nobody loses one.
    pub invalid: BTreeSet<PoolName>,
    /// The addresses of Nodes, which no Service has whatever a pool or a status says: announced by
    /// others, a machine's own address would cut it off.
    pub of_nodes: BTreeMap<IpAddr, NodeName>,
}

/// What a Service has from now on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// Its addresses, at most one a family, in the order of its families.
    pub addresses: Vec<IpAddr>,
    /// Why it has less than it asks for, or something else.
    pub note: Option<Note>,
}

/// Gives every Service its addresses.
///
/// 1. Who has an address of a family it wants keeps it, unless a Node has it; of two who have the
///    same one, the older.
/// 2. Who asks for particular addresses gets them where they are free, the older first. Until then
///    it keeps what it has.
/// 3. Who still lacks a family gets the lowest free address of the pools it may use, in the order of
///    their names, the older first.
///
/// `blocked` are addresses that others have who are not asked here: Services of another class, or
/// ones that are being deleted. An address that a Service gives up is not given out in the same round.
pub fn allocate(
    pools: &Pools,
    requests: &[Request],
    blocked: &BTreeMap<IpAddr, ServiceKey>,
) -> BTreeMap<ServiceKey, Answer> {
    let mut in_order: Vec<_> = requests.iter().collect();
    in_order.sort_by_key(|request| (request.created_seconds, &request.key));
    let mut allocation = Allocation { pools, owners: BTreeMap::new(), taken: Taken::default() };
    for address in pools.of_nodes.keys() {
        allocation.taken.insert(*address);
    }
    let mut holdings: Vec<_> = in_order.iter().map(|request| allocation.keep(request)).collect();
    for (address, key) in blocked {
        allocation.take(*address, key);
    }
    for (request, holding) in in_order.iter().zip(&mut holdings) {
        allocation.grant_exact(request, holding);
    }
    for (request, holding) in in_order.iter().zip(&mut holdings) {
        allocation.fill(request, holding);
    }
    let answer = |(request, holding): (&Request, Holding)| (request.key.clone(), holding.answer(request));
    in_order.into_iter().zip(holdings).map(answer).collect()
}

/// What one Service has at some point of the allocation.
#[derive(Debug, Default)]
struct Holding {
    addresses: BTreeMap<Family, IpAddr>,
    note: Option<Note>,
}

impl Holding {
    fn answer(self, request: &Request) -> Answer {
        let addresses = request.families.iter().filter_map(|family| self.addresses.get(family).copied()).collect();
        Answer { addresses, note: self.note }
    }
}

struct Allocation<'a> {
    pools: &'a Pools,
    owners: BTreeMap<IpAddr, &'a ServiceKey>,
    taken: Taken,
}

impl<'a> Allocation<'a> {
    /// Takes an address, unless another one or a Node has it.
    fn take(&mut self, address: IpAddr, key: &'a ServiceKey) -> bool {
        if self.owners.contains_key(&address) || self.pools.of_nodes.contains_key(&address) {
            return false;
        }
        self.owners.insert(address, key);
        self.taken.insert(address);
        true
    }

    fn give_back(&mut self, address: IpAddr) {
        self.owners.remove(&address);
        self.taken.remove(address);
    }

    fn keep(&mut self, request: &'a Request) -> Holding {
        let mut holding = Holding::default();
        for &address in &request.held {
            let family = Family::of(address);
            let is_wanted = request.families.contains(&family) && !holding.addresses.contains_key(&family);
            if is_wanted && self.take(address, &request.key) {
                holding.addresses.insert(family, address);
            }
        }
        holding
    }

    /// Grants all the addresses a Service asks for by name, or none.
    fn grant_exact(&mut self, request: &'a Request, holding: &mut Holding) {
        let Ok(wish) = &request.wish else { return };
        let lacking: Vec<_> =
            wish.addresses.iter().copied().filter(|&ip| holding.addresses.get(&Family::of(ip)) != Some(&ip)).collect();
        if let Some(note) = lacking.iter().find_map(|&address| self.objection(request, address)) {
            holding.note = Some(note);
            return;
        }
        for address in lacking {
            // What it had stays taken: it is announced until the status says otherwise.
            self.take(address, &request.key);
            holding.addresses.insert(Family::of(address), address);
        }
    }

    fn objection(&self, request: &Request, address: IpAddr) -> Option<Note> {
        if let Some(owner) = self.owners.get(&address).filter(|owner| ***owner != request.key) {
            return Some(Note::AddressInUse { address, by: (*owner).clone() });
        }
        if let Some(node) = self.pools.of_nodes.get(&address) {
            return Some(Note::AddressOfNode { address, node: node.clone() });
        }
        let is_allowed = match self.pools_of(request) {
            Ok(pools) => pools.iter().any(|pool| pool.contains(address)),
            // Pools that give out nothing by themselves still have what is asked for by name.
            Err(Note::NoPool) => false,
            Err(note) => return Some(note),
        };
        (!is_allowed).then_some(Note::AddressNotInPool { address })
    }

    /// The pools a Service may use, in the order of their names.
    fn pools_of(&self, request: &Request) -> Result<Vec<&'a Pool>, Note> {
        let wish = request.wish.as_ref().map_err(Clone::clone)?;
        if let Some(name) = &wish.pool {
            return match self.pools.valid.get(name) {
                Some(pool) => Ok(vec![pool]),
                None if self.pools.invalid.contains(name) => Err(Note::PoolInvalid { pool: name.clone() }),
                None => Err(Note::PoolMissing { pool: name.clone() }),
            };
        }
        let is_particular = !wish.addresses.is_empty();
        let pools: Vec<_> = self.pools.valid.values().filter(|pool| pool.auto_assign || is_particular).collect();
        if pools.is_empty() { Err(Note::NoPool) } else { Ok(pools) }
    }

    /// Gives a Service the families it still lacks, if that is enough for it.
    fn fill(&mut self, request: &'a Request, holding: &mut Holding) {
        if holding.note.is_some() {
            return;
        }
        if let Err(note) = &request.wish {
            holding.note = Some(note.clone());
            return;
        }
        let lacking: Vec<_> =
            request.families.iter().copied().filter(|family| !holding.addresses.contains_key(family)).collect();
        if lacking.is_empty() {
            holding.note = self.held_outside(request, holding);
            return;
        }
        let pools = match self.automatic_pools_of(request) {
            Ok(pools) => pools,
            Err(note) => {
                holding.note = is_short(request, holding).then_some(note);
                return;
            }
        };
        let had: BTreeSet<_> = holding.addresses.keys().copied().collect();
        let mut refusal = None;
        for family in lacking {
            match self.lowest_free(&pools, family) {
                Ok(address) => {
                    self.take(address, &request.key);
                    holding.addresses.insert(family, address);
                }
                Err(note) => {
                    refusal.get_or_insert(note);
                }
            }
        }
        if is_short(request, holding) {
            holding.note = refusal;
            // All or nothing: what was just given goes back.
            let given: Vec<_> = holding.addresses.keys().copied().filter(|family| !had.contains(family)).collect();
            for address in given.iter().filter_map(|family| holding.addresses.remove(family)) {
                self.give_back(address);
            }
        }
    }

    /// As [`Self::pools_of`], but never one that gives out nothing by itself unless it was named.
    fn automatic_pools_of(&self, request: &Request) -> Result<Vec<&'a Pool>, Note> {
        let is_named = request.wish.as_ref().is_ok_and(|wish| wish.pool.is_some());
        let mut pools = self.pools_of(request)?;
        pools.retain(|pool| is_named || pool.auto_assign);
        if pools.is_empty() { Err(Note::NoPool) } else { Ok(pools) }
    }

    fn lowest_free(&self, pools: &[&Pool], family: Family) -> Result<IpAddr, Note> {
        let mut blocks = pools.iter().flat_map(|pool| &pool.blocks).filter(|block| block.family() == family).peekable();
        let names = || pools.iter().map(|pool| pool.name.clone()).collect();
        if blocks.peek().is_none() {
            return Err(Note::FamilyNotInPools { pools: names(), family });
        }
        blocks
            .find_map(|block| self.taken.lowest_free(family, block.first_number(), block.last_number()))
            .ok_or_else(|| Note::PoolExhausted { pools: names(), family })
    }

    /// Tells who asks for a pool and has an address of another one why nothing happens.
    fn held_outside(&self, request: &Request, holding: &Holding) -> Option<Note> {
        let wish = request.wish.as_ref().ok()?;
        let pool = self.pools.valid.get(wish.pool.as_ref()?)?;
        let mut outside = holding.addresses.values().filter(|address| !pool.contains(**address));
        outside.next().map(|&address| {
            let why = KeptReason::OutsidePool { pool: pool.name.clone() };
            Note::AddressKept { address, why }
        })
    }
}

/// Whether a Service has too little to be served at all.
fn is_short(request: &Request, holding: &Holding) -> bool {
    let enough = if request.needs_every_family { request.families.len() } else { 1.min(request.families.len()) };
    holding.addresses.len() < enough
}

/// The addresses in use, as intervals that neither touch nor overlap: first to last, by family.
#[derive(Debug, Default)]
struct Taken {
    v4: BTreeMap<u128, u128>,
    v6: BTreeMap<u128, u128>,
}

impl Taken {
    fn insert(&mut self, address: IpAddr) {
        let (intervals, number) = self.place(address);
        let before = intervals.range(..=number).next_back().map(|(first, last)| (*first, *last));
        let (mut first, mut last) = (number, number);
        match before {
            Some((_, before_last)) if before_last >= number => return,
            Some((before_first, before_last)) if before_last.checked_add(1) == Some(number) => first = before_first,
            _ => {}
        }
        let after = number.checked_add(1).and_then(|next| intervals.remove_entry(&next));
        if let Some((_, after_last)) = after {
            last = after_last;
        }
        intervals.insert(first, last);
    }

    fn remove(&mut self, address: IpAddr) {
        let (intervals, number) = self.place(address);
        let Some((first, last)) = intervals.range(..=number).next_back().map(|(first, last)| (*first, *last)) else {
            return;
        };
        if last < number {
            return;
        }
        intervals.remove(&first);
        if first < number {
            intervals.insert(first, number - 1);
        }
        if number < last {
            intervals.insert(number + 1, last);
        }
    }

    /// The lowest address from `first` to `last` that is not in use: one look at one interval.
    fn lowest_free(&self, family: Family, first: u128, last: u128) -> Option<IpAddr> {
        let intervals = match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        let free = match intervals.range(..=first).next_back() {
            Some((_, taken_last)) if *taken_last >= first => taken_last.checked_add(1)?,
            _ => first,
        };
        if free > last {
            return None;
        }
        match family {
            Family::V4 => Some(Ipv4Addr::from(u32::try_from(free).ok()?).into()),
            Family::V6 => Some(Ipv6Addr::from(free).into()),
        }
    }

    fn place(&mut self, address: IpAddr) -> (&mut BTreeMap<u128, u128>, u128) {
        match address {
            IpAddr::V4(address) => (&mut self.v4, u128::from(u32::from(address))),
            IpAddr::V6(address) => (&mut self.v6, u128::from(address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::api::AddressPoolSpec;
    use crate::service::request::{Sharing, Wish};

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new("default", name)
    }

    fn name(text: &str) -> PoolName {
        text.parse().expect("a name")
    }

    fn pool(pool: &str, addresses: &[&str], auto_assign: bool) -> Pool {
        let addresses = addresses.iter().map(ToString::to_string).collect();
        Pool::check(pool, &AddressPoolSpec { addresses, auto_assign, ..AddressPoolSpec::default() }).expect("a pool")
    }

    fn pools(all: Vec<Pool>) -> Pools {
        let valid = all.into_iter().map(|pool| (pool.name.clone(), pool)).collect();
        Pools { valid, invalid: BTreeSet::from([name("broken")]), of_nodes: BTreeMap::new() }
    }

    /// Two addresses of each family, and two more of a pool that gives out nothing by itself.
    fn small() -> Pools {
        pools(vec![
            pool("a", &["10.60.0.10-10.60.0.11", "fd60::10-fd60::11"], true),
            pool("b", &["10.60.1.10-10.60.1.11"], false),
        ])
    }

    fn request(service: &str) -> Request {
        Request {
            key: key(service),
            created_seconds: 100,
            families: vec![Family::V4],
            needs_every_family: true,
            uid: service.to_owned(),
            labels: BTreeMap::new(),
            allocation: None,
            assigned_seconds: None,
            sharing: Sharing::default(),
            may_move: false,
            held: Vec::new(),
            wish: Ok(Wish::default()),
        }
    }

    fn dual(service: &str) -> Request {
        Request { families: vec![Family::V4, Family::V6], ..request(service) }
    }

    fn asking(addresses: &[&str], pool: Option<&str>) -> Result<Wish, Note> {
        Ok(Wish { addresses: addresses.iter().map(|text| ip(text)).collect(), pool: pool.map(name) })
    }

    fn has(addresses: &[&str]) -> Answer {
        Answer { addresses: addresses.iter().map(|text| ip(text)).collect(), note: None }
    }

    fn refused(note: Note) -> Answer {
        Answer { addresses: Vec::new(), note: Some(note) }
    }

    fn keeps(addresses: &[&str], note: Note) -> Answer {
        Answer { note: Some(note), ..has(addresses) }
    }

    fn exhausted(family: Family) -> Note {
        Note::PoolExhausted { pools: vec![name("a")], family }
    }

    struct Case {
        name: &'static str,
        pools: Pools,
        requests: Vec<Request>,
        want: Vec<Answer>,
    }

    fn check(cases: Vec<Case>) {
        for Case { name, pools, requests, want } in cases {
            let answers = allocate(&pools, &requests, &BTreeMap::new());
            let got: Vec<_> = requests.iter().map(|request| answers[&request.key].clone()).collect();
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn the_lowest_free_address_goes_to_the_oldest() {
        check(vec![
            Case {
                name: "by age, then by name",
                pools: small(),
                requests: vec![
                    request("z"),
                    Request { created_seconds: 90, ..request("y") },
                    Request { created_seconds: 200, ..request("x") },
                ],
                want: vec![has(&["10.60.0.11"]), has(&["10.60.0.10"]), refused(exhausted(Family::V4))],
            },
            Case {
                name: "pools in the order of their names",
                pools: pools(vec![pool("n", &["10.1.0.1/32"], true), pool("m", &["10.2.0.1/32"], true)]),
                requests: vec![request("x"), request("y")],
                want: vec![has(&["10.2.0.1"]), has(&["10.1.0.1"])],
            },
            Case {
                name: "holders come before older newcomers",
                pools: small(),
                requests: vec![
                    Request { created_seconds: 1, ..request("old") },
                    Request { held: vec![ip("10.60.0.10")], ..request("holder") },
                ],
                want: vec![has(&["10.60.0.11"]), has(&["10.60.0.10"])],
            },
            Case {
                name: "no pool at all",
                pools: Pools::default(),
                requests: vec![request("x")],
                want: vec![refused(Note::NoPool)],
            },
            Case {
                name: "only pools that are to be asked for",
                pools: pools(vec![pool("b", &["10.60.1.0/24"], false)]),
                requests: vec![request("x")],
                want: vec![refused(Note::NoPool)],
            },
            Case {
                name: "no addresses of the family",
                pools: pools(vec![pool("a", &["10.60.0.0/24"], true)]),
                requests: vec![Request { families: vec![Family::V6], ..request("x") }],
                want: vec![refused(Note::FamilyNotInPools { pools: vec![name("a")], family: Family::V6 })],
            },
        ]);
    }

    #[test]
    fn no_service_has_the_address_of_a_node() {
        let node: NodeName = "n1".parse().expect("a name");
        let around_a_node = |addresses: &[&str]| Pools {
            of_nodes: BTreeMap::from([(ip("10.60.0.10"), node.clone())]),
            ..pools(vec![pool("a", addresses, true)])
        };
        let of_node = Note::AddressOfNode { address: ip("10.60.0.10"), node: node.clone() };
        check(vec![
            Case {
                name: "a newcomer",
                pools: around_a_node(&["10.60.0.10-10.60.0.11"]),
                requests: vec![request("x")],
                want: vec![has(&["10.60.0.11"])],
            },
            Case {
                name: "one that has it",
                pools: around_a_node(&["10.60.0.10-10.60.0.11"]),
                requests: vec![Request { held: vec![ip("10.60.0.10")], ..request("x") }],
                want: vec![has(&["10.60.0.11"])],
            },
            Case {
                name: "one that asks for it",
                pools: around_a_node(&["10.60.0.10-10.60.0.11"]),
                requests: vec![Request { wish: asking(&["10.60.0.10"], None), ..request("x") }],
                want: vec![refused(of_node)],
            },
            Case {
                name: "a pool of nothing else",
                pools: around_a_node(&["10.60.0.10/32"]),
                requests: vec![request("x")],
                want: vec![refused(exhausted(Family::V4))],
            },
        ]);
    }

    #[test]
    fn both_families_come_as_the_policy_says() {
        let v6_gone = || {
            vec![
                Request { created_seconds: 1, families: vec![Family::V6], held: vec![ip("fd60::10")], ..request("p") },
                Request { created_seconds: 1, families: vec![Family::V6], held: vec![ip("fd60::11")], ..request("q") },
            ]
        };
        let with = |request: Request| v6_gone().into_iter().chain([request]).collect::<Vec<_>>();
        let want = |answer: Answer| vec![has(&["fd60::10"]), has(&["fd60::11"]), answer];
        check(vec![
            Case {
                name: "both are there",
                pools: small(),
                requests: vec![dual("x")],
                want: vec![has(&["10.60.0.10", "fd60::10"])],
            },
            Case {
                name: "in the order of the service's families",
                pools: small(),
                requests: vec![Request { families: vec![Family::V6, Family::V4], ..request("x") }],
                want: vec![has(&["fd60::10", "10.60.0.10"])],
            },
            Case {
                name: "RequireDualStack takes both or nothing",
                pools: small(),
                requests: with(dual("x")),
                want: want(refused(exhausted(Family::V6))),
            },
            Case {
                name: "PreferDualStack takes what there is",
                pools: small(),
                requests: with(Request { needs_every_family: false, ..dual("x") }),
                want: want(has(&["10.60.0.10"])),
            },
            Case {
                name: "what it has stays when the second family cannot be had",
                pools: small(),
                requests: with(Request { held: vec![ip("10.60.0.11")], ..dual("x") }),
                want: want(keeps(&["10.60.0.11"], exhausted(Family::V6))),
            },
            Case {
                name: "a family it no longer wants is given up",
                pools: small(),
                requests: vec![Request { held: vec![ip("10.60.0.11"), ip("fd60::11")], ..request("x") }],
                want: vec![has(&["10.60.0.11"])],
            },
        ]);
        let rolled_back = allocate(
            &small(),
            &[
                dual("x"),
                Request {
                    families: vec![Family::V6],
                    created_seconds: 1,
                    held: vec![ip("fd60::10"), ip("fd60::11")],
                    ..request("p")
                },
                Request { families: vec![Family::V6], created_seconds: 1, held: vec![ip("fd60::11")], ..request("q") },
                Request { created_seconds: 900, ..request("young") },
            ],
            &BTreeMap::new(),
        );
        assert_eq!(rolled_back[&key("young")], has(&["10.60.0.10"]), "what a refused service was given is free again");
    }

    #[test]
    fn particular_addresses_are_given_where_they_are_free() {
        let holder = || Request { held: vec![ip("10.60.0.10")], ..request("holder") };
        check(vec![
            Case {
                name: "an address",
                pools: small(),
                requests: vec![Request { wish: asking(&["10.60.0.11"], None), ..request("x") }],
                want: vec![has(&["10.60.0.11"])],
            },
            Case {
                name: "an address of a pool that gives out nothing by itself",
                pools: small(),
                requests: vec![Request { wish: asking(&["10.60.1.10"], None), ..request("x") }],
                want: vec![has(&["10.60.1.10"])],
            },
            Case {
                name: "before an older one that takes any",
                pools: small(),
                requests: vec![
                    Request { created_seconds: 1, ..request("any") },
                    Request { wish: asking(&["10.60.0.10"], None), ..request("x") },
                ],
                want: vec![has(&["10.60.0.11"]), has(&["10.60.0.10"])],
            },
            Case {
                name: "in use",
                pools: small(),
                requests: vec![
                    holder(),
                    Request { created_seconds: 1, wish: asking(&["10.60.0.10"], None), ..request("x") },
                ],
                want: vec![
                    has(&["10.60.0.10"]),
                    refused(Note::AddressInUse { address: ip("10.60.0.10"), by: key("holder") }),
                ],
            },
            Case {
                name: "in no pool",
                pools: small(),
                requests: vec![Request { wish: asking(&["10.99.0.1"], None), ..request("x") }],
                want: vec![refused(Note::AddressNotInPool { address: ip("10.99.0.1") })],
            },
            Case {
                name: "not in the pool asked for",
                pools: small(),
                requests: vec![Request { wish: asking(&["10.60.0.10"], Some("b")), ..request("x") }],
                want: vec![refused(Note::AddressNotInPool { address: ip("10.60.0.10") })],
            },
            Case {
                name: "one family asked for, the other from the pools",
                pools: small(),
                requests: vec![Request { wish: asking(&["fd60::11"], None), ..dual("x") }],
                want: vec![has(&["10.60.0.10", "fd60::11"])],
            },
            Case {
                name: "it moves when asked to",
                pools: small(),
                requests: vec![Request { wish: asking(&["10.60.0.11"], None), ..holder() }, request("next")],
                want: vec![has(&["10.60.0.11"]), refused(exhausted(Family::V4))],
            },
            Case {
                name: "it keeps what it has until it can move",
                pools: small(),
                requests: vec![Request { wish: asking(&["10.99.0.1"], None), ..holder() }],
                want: vec![keeps(&["10.60.0.10"], Note::AddressNotInPool { address: ip("10.99.0.1") })],
            },
        ]);
    }

    #[test]
    fn a_pool_is_taken_at_its_name() {
        let asking_for = |pool| vec![Request { wish: asking(&[], Some(pool)), ..request("x") }];
        check(vec![
            Case { name: "named", pools: small(), requests: asking_for("b"), want: vec![has(&["10.60.1.10"])] },
            Case {
                name: "missing",
                pools: small(),
                requests: asking_for("c"),
                want: vec![refused(Note::PoolMissing { pool: name("c") })],
            },
            Case {
                name: "invalid",
                pools: small(),
                requests: asking_for("broken"),
                want: vec![refused(Note::PoolInvalid { pool: name("broken") })],
            },
            Case {
                name: "an address of another pool is kept, and said",
                pools: small(),
                requests: vec![Request { held: vec![ip("10.60.0.10")], wish: asking(&[], Some("b")), ..request("x") }],
                want: vec![keeps(
                    &["10.60.0.10"],
                    Note::AddressKept { address: ip("10.60.0.10"), why: KeptReason::OutsidePool { pool: name("b") } },
                )],
            },
        ]);
    }

    #[test]
    fn an_address_in_use_is_never_taken() {
        let holder = |service| Request { held: vec![ip("10.60.0.10")], ..request(service) };
        let malformed = Note::AddressMalformed { field: "spec.loadBalancerIP".to_owned(), text: "x".to_owned() };
        check(vec![
            Case {
                name: "pool gone",
                pools: Pools::default(),
                requests: vec![holder("x")],
                want: vec![has(&["10.60.0.10"])],
            },
            Case {
                name: "pool shrunk",
                pools: pools(vec![pool("a", &["10.60.0.11/32"], true)]),
                requests: vec![holder("x")],
                want: vec![has(&["10.60.0.10"])],
            },
            Case {
                name: "the wish no longer makes sense",
                pools: small(),
                requests: vec![Request { wish: Err(malformed.clone()), ..holder("x") }],
                want: vec![keeps(&["10.60.0.10"], malformed)],
            },
            Case {
                name: "of two who have it, the older keeps it",
                pools: small(),
                requests: vec![holder("a"), Request { created_seconds: 99, ..holder("b") }],
                want: vec![has(&["10.60.0.11"]), has(&["10.60.0.10"])],
            },
        ]);
        let blocked = BTreeMap::from([(ip("10.60.0.10"), key("deleting"))]);
        let answers = allocate(&small(), &[request("x")], &blocked);
        assert_eq!(answers[&key("x")], has(&["10.60.0.11"]), "what another still has is not free");
    }

    #[test]
    fn a_large_pool_costs_no_more_than_a_small_one() {
        let large = pools(vec![pool("a", &["fd60::/64", "10.0.0.0/8"], true)]);
        let requests: Vec<_> = (0..2000).map(|index| dual(&format!("s{index:04}"))).collect();
        let answers = allocate(&large, &requests, &BTreeMap::new());
        assert_eq!(answers[&key("s1999")], has(&["10.0.7.207", "fd60::7cf"]));
    }

    fn any_held() -> impl Strategy<Value = Vec<IpAddr>> {
        let v4 = (8_u8..16).prop_map(|last| IpAddr::from([10, 60, 0, last]));
        let v6 = (0_u16..8).prop_map(|last| IpAddr::from([0xfd60, 0, 0, 0, 0, 0, 0, last]));
        prop::collection::vec(prop_oneof![v4, v6], 0..3)
    }

    fn any_wish() -> impl Strategy<Value = Wish> {
        prop_oneof![
            6 => Just(Wish::default()),
            2 => (8_u8..16).prop_map(|last| Wish { addresses: vec![IpAddr::from([10, 60, 0, last])], pool: None }),
            1 => Just(Wish { addresses: Vec::new(), pool: Some(name("b")) }),
        ]
    }

    fn any_requests() -> impl Strategy<Value = Vec<Request>> {
        let families = prop_oneof![Just(vec![Family::V4]), Just(vec![Family::V6]), Just(vec![Family::V4, Family::V6])];
        let one = (families, any::<bool>(), any_held(), any_wish(), 0_i64..4).prop_map(
            |(families, needs_every_family, held, mut wish, created_seconds)| {
                wish.addresses.retain(|address| families.contains(&Family::of(*address)));
                Request { created_seconds, families, needs_every_family, held, wish: Ok(wish), ..request("s") }
            },
        );
        prop::collection::vec(one, 0..14).prop_map(|all| {
            let named = |(index, request)| Request { key: key(&format!("s{index}")), ..request };
            all.into_iter().enumerate().map(named).collect()
        })
    }

    fn any_pools() -> Pools {
        pools(vec![
            pool("a", &["10.60.0.8/30", "fd60::/126"], true),
            pool("b", &["10.60.0.12-10.60.0.14", "fd60::4/127"], false),
        ])
    }

    proptest! {
        #[test]
        fn no_address_is_given_twice(requests in any_requests()) {
            let answers = allocate(&any_pools(), &requests, &BTreeMap::new());
            let given: Vec<_> = answers.values().flat_map(|answer| &answer.addresses).collect();
            let distinct: BTreeSet<_> = given.iter().collect();
            prop_assert_eq!(given.len(), distinct.len());
        }

        #[test]
        fn the_order_of_the_input_does_not_matter(requests in any_requests()) {
            let reversed: Vec<_> = requests.iter().rev().cloned().collect();
            prop_assert_eq!(
                allocate(&any_pools(), &requests, &BTreeMap::new()),
                allocate(&any_pools(), &reversed, &BTreeMap::new())
            );
        }

        #[test]
        fn who_has_an_address_alone_keeps_it_or_has_the_one_it_asks_for(requests in any_requests()) {
            let answers = allocate(&any_pools(), &requests, &BTreeMap::new());
            for request in &requests {
                for family in &request.families {
                    let Some(held) = request.held.iter().find(|ip| Family::of(**ip) == *family) else { continue };
                    if requests.iter().any(|other| other.key != request.key && other.held.contains(held)) {
                        continue;
                    }
                    let addresses = &answers[&request.key].addresses;
                    let asked = request.wish.iter().flat_map(|wish| &wish.addresses).any(|ip| addresses.contains(ip));
                    prop_assert!(addresses.contains(held) || asked, "{} lost {held}", request.key);
                }
            }
        }

        #[test]
        fn asking_again_with_what_was_given_changes_nothing(requests in any_requests()) {
            let first = allocate(&any_pools(), &requests, &BTreeMap::new());
            let settle = |answers: &BTreeMap<ServiceKey, Answer>| -> Vec<_> {
                requests.iter().cloned().map(|request| Request { held: answers[&request.key].addresses.clone(), ..request }).collect()
            };
            // What someone gave up in the first round is free in the second.
            let second = allocate(&any_pools(), &settle(&first), &BTreeMap::new());
            let third = allocate(&any_pools(), &settle(&second), &BTreeMap::new());
            let fourth = allocate(&any_pools(), &settle(&third), &BTreeMap::new());
            prop_assert_eq!(&third, &fourth);
        }

        #[test]
        fn giving_back_leaves_no_trace(addresses in prop::collection::btree_set(0_u8..40, 0..30), gone in 0_u8..40) {
            let at = |last: u8| IpAddr::from([10, 0, 0, last]);
            let (mut used, mut fresh) = (Taken::default(), Taken::default());
            addresses.iter().for_each(|last| used.insert(at(*last)));
            used.remove(at(gone));
            addresses.iter().rev().filter(|last| **last != gone).for_each(|last| fresh.insert(at(*last)));
            prop_assert_eq!(&used.v4, &fresh.v4);
            let lowest = (5..40).map(at).find(|ip| !addresses.contains(&match ip { IpAddr::V4(ip) => ip.octets()[3], IpAddr::V6(_) => 0 }) || *ip == at(gone));
            let base = u128::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)));
            prop_assert_eq!(used.lowest_free(Family::V4, base + 5, base + 39), lowest);
        }
    }
}
