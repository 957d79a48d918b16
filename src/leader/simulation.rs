//! Many processes, one Lease, and everything that can go wrong between them, from a seed.
//!
//! Requests and answers are late, lost or overtake each other, watches show the past, processes
//! stand still at any instruction, die, are told to stop and start again; their clocks differ in
//! what they say and in how fast they run. All the same there is at no step more than one process
//! that would begin a write now, and when the world calms down there is one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::election::{Election, Input, LeaseRecord, Output};
use super::timing::Timing;
use crate::model::{Leadership, Moment};

/// The Lease in the API server, whose writes happen one after the other.
#[derive(Default)]
struct Server {
    version: u64,
    lease: Option<(u64, String, Duration)>,
}

impl Server {
    fn record(&self) -> Option<LeaseRecord> {
        self.lease.as_ref().map(|(version, holder, lease_duration)| LeaseRecord {
            version: version.to_string(),
            holder: Some(holder.clone()).filter(|holder| !holder.is_empty()),
            lease_duration: *lease_duration,
            // The election acts the same whatever it is.
            transitions: 0,
        })
    }

    /// What a request does when it arrives, and the answer to it.
    fn take(&mut self, sender: &str, request: &Output, lease_duration: Duration) -> Input {
        let known = self.lease.as_ref().map(|(version, ..)| version.to_string());
        let holder = match request {
            Output::Create if known.is_none() => sender,
            Output::TakeOver { version } | Output::Renew { version } if known.as_ref() == Some(version) => sender,
            Output::Release { version } if known.as_ref() == Some(version) => "",
            Output::Read => return Input::Read(self.record()),
            _ => return Input::Conflict,
        };
        self.version += 1;
        let lease_duration = if holder.is_empty() { Duration::from_secs(1) } else { lease_duration };
        self.lease = Some((self.version, holder.to_owned(), lease_duration));
        Input::Written(self.record().expect("it was written"))
    }
}

/// One process: its machine, its clock, and what it knows of its right to write.
struct Process {
    identity: String,
    election: Election,
    /// What a room that is about to write would look at. Only told between steps, as by the shell.
    leadership: Leadership,
    /// Its clock at the beginning of the world, and how fast it runs.
    offset: Duration,
    rate: f64,
    /// It does nothing until then, though its memory stays as it is.
    stands_still_until: f64,
    request: Option<u64>,
}

/// Something under way. A request without an owner is one of a process that is gone.
enum Message {
    Request {
        id: u64,
        from: usize,
        identity: String,
        output: Output,
    },
    Answer {
        id: u64,
        to: usize,
        input: Input,
    },
    Sight {
        to: usize,
        seen: Option<LeaseRecord>,
    },
    /// No answer in time.
    Timeout {
        id: u64,
        to: usize,
    },
}

struct World {
    random: fastrand::Rng,
    now: f64,
    timing: Timing,
    server: Server,
    processes: Vec<Process>,
    under_way: BTreeMap<(u64, u64), Message>,
    ids: u64,
    is_calm: bool,
    terms: usize,
}

impl World {
    fn new(seed: u64, processes: usize, timing: Timing) -> Self {
        let mut world = Self {
            random: fastrand::Rng::with_seed(seed),
            now: 0.0,
            timing,
            server: Server::default(),
            processes: Vec::new(),
            under_way: BTreeMap::new(),
            ids: 0,
            is_calm: false,
            terms: 0,
        };
        for _ in 0..processes {
            let process = world.process();
            world.processes.push(process);
        }
        world
    }

    fn process(&mut self) -> Process {
        self.ids += 1;
        let identity = format!("host_{}", self.ids);
        let offset = Duration::from_secs(self.random.u64(0..1_000_000));
        let rate = 0.97 + 0.06 * self.random.f64();
        let now = clock(offset, rate, self.now);
        Process {
            election: Election::new(identity.clone(), self.timing, self.random.u64(..), now),
            identity,
            leadership: Leadership::Candidate,
            offset,
            rate,
            stands_still_until: 0.0,
            request: None,
        }
    }

    /// Puts something on its way that arrives after so long.
    fn send(&mut self, after: f64, message: Message) {
        self.ids += 1;
        let at = microseconds(self.now + after);
        self.under_way.insert((at, self.ids), message);
    }

    /// Mostly short, sometimes longer than anything waits.
    fn delay(&mut self) -> f64 {
        match self.random.u32(0..100) {
            _ if self.is_calm => 0.001 + 0.01 * self.random.f64(),
            0..80 => 0.05 * self.random.f64(),
            80..95 => 3.0 * self.random.f64(),
            _ => 40.0 * self.random.f64(),
        }
    }

    fn is_lost(&mut self) -> bool {
        !self.is_calm && self.random.f64() < 0.1
    }

    fn step_process(&mut self, index: usize, input: Input) {
        let process = &mut self.processes[index];
        let now = clock(process.offset, process.rate, self.now);
        let outputs = process.election.step(input, now);
        process.leadership = process.election.leadership();
        for output in outputs {
            match output {
                Output::Lead => self.terms += 1,
                // Its supervisor starts it again, with a name of its own.
                Output::Lose | Output::End => self.restart(index),
                request => self.ask(index, request),
            }
        }
    }

    fn restart(&mut self, index: usize) {
        self.processes[index] = self.process();
    }

    fn ask(&mut self, from: usize, output: Output) {
        self.ids += 1;
        let (id, identity) = (self.ids, self.processes[from].identity.clone());
        self.processes[from].request = Some(id);
        let delay = self.delay();
        if !self.is_lost() {
            self.send(delay, Message::Request { id, from, identity, output });
        }
        // As the shell: half the renew deadline.
        self.send(5.0 / self.processes[from].rate, Message::Timeout { id, to: from });
    }

    fn arrive(&mut self, message: Message) {
        match message {
            Message::Request { id, from, identity, output } => {
                let input = self.server.take(&identity, &output, self.timing.lease_duration);
                let is_write = matches!(input, Input::Written(_));
                if !self.is_lost() {
                    let delay = self.delay();
                    self.send(delay, Message::Answer { id, to: from, input });
                }
                for to in 0..self.processes.len() {
                    if is_write && !self.is_lost() {
                        let (delay, seen) = (self.delay(), self.server.record());
                        self.send(delay, Message::Sight { to, seen });
                    }
                }
            }
            Message::Answer { id, to, input } if self.processes[to].request == Some(id) => {
                self.deliver(to, Message::Answer { id, to, input })
            }
            Message::Timeout { id, to } if self.processes[to].request == Some(id) => {
                self.deliver(to, Message::Timeout { id, to })
            }
            Message::Sight { to, seen } => self.deliver(to, Message::Sight { to, seen }),
            // Nobody waits for it any more.
            Message::Answer { .. } | Message::Timeout { .. } => {}
        }
    }

    /// Hands something to a process, later if it stands still.
    fn deliver(&mut self, to: usize, message: Message) {
        let wakes = self.processes[to].stands_still_until;
        if wakes > self.now {
            return self.send(wakes - self.now, message);
        }
        let input = match message {
            Message::Answer { input, .. } => input,
            Message::Timeout { .. } => Input::Failed,
            Message::Sight { seen, .. } => return self.step_process(to, Input::Seen(seen)),
            Message::Request { .. } => return,
        };
        self.processes[to].request = None;
        self.step_process(to, input);
    }

    /// Something that nobody wished for.
    fn mischief(&mut self) {
        let index = self.random.usize(0..self.processes.len());
        match self.random.u32(0..1000) {
            0..4 => self.processes[index].stands_still_until = self.now + 30.0 * self.random.f64(),
            4..6 => self.restart(index),
            6..8 => self.step_process(index, Input::Stop),
            _ => {}
        }
    }

    fn tick(&mut self) {
        self.now += 0.05;
        while let Some(entry) = self.under_way.first_entry() {
            if entry.key().0 > microseconds(self.now) {
                break;
            }
            let message = entry.remove();
            self.arrive(message);
        }
        for index in 0..self.processes.len() {
            let process = &self.processes[index];
            let now = clock(process.offset, process.rate, self.now);
            let is_due = process.election.deadline().is_some_and(|deadline| deadline <= now);
            if is_due && process.stands_still_until <= self.now {
                self.step_process(index, Input::Tick);
            }
        }
        if !self.is_calm {
            self.mischief();
        }
    }

    /// Who would begin a write now: those who stand still too, if they go on at this instant.
    fn writers(&self) -> Vec<&str> {
        let may_write = |process: &&Process| process.leadership.permits(clock(process.offset, process.rate, self.now));
        self.processes.iter().filter(may_write).map(|process| process.identity.as_str()).collect()
    }
}

fn clock(offset: Duration, rate: f64, now: f64) -> Moment {
    Moment::since_boot(offset + Duration::from_secs_f64(now * rate))
}

fn microseconds(seconds: f64) -> u64 {
    u64::try_from(Duration::from_secs_f64(seconds).as_micros()).expect("the simulation is short")
}

#[test]
fn two_processes_never_would_begin_a_write_at_the_same_time() {
    let mut terms = 0;
    for seed in 0..60 {
        let mut world = World::new(seed, 4, Timing::default());
        for _ in 0..20_000 {
            world.tick();
            let writers = world.writers();
            assert!(writers.len() < 2, "seed {seed}, second {:.2}: {writers:?}", world.now);
        }
        terms += world.terms;
    }
    assert!(terms > 60 * 10, "leaders came and went: {terms} times");
}

#[test]
fn when_the_world_calms_down_one_process_leads_for_good() {
    for seed in 100..130 {
        let mut world = World::new(seed, 4, Timing::default());
        for _ in 0..4_000 {
            world.tick();
        }
        world.is_calm = true;
        // Late requests of before, a lease duration, and the wait of a candidate.
        for _ in 0..1_600 {
            world.tick();
        }
        let leader = world.writers().first().map(|leader| (*leader).to_owned());
        assert!(leader.is_some(), "seed {seed}: nobody leads");
        for _ in 0..1_000 {
            world.tick();
            assert_eq!(world.writers().first().copied(), leader.as_deref(), "seed {seed}, second {:.2}", world.now);
        }
    }
}

#[test]
fn the_simulation_notices_a_leader_that_goes_on_for_longer_than_others_wait() {
    let timing = Timing { renew_deadline: Duration::from_secs(60), ..Timing::default() };
    let is_noticed = (0..20).any(|seed| {
        let mut world = World::new(seed, 4, timing);
        (0..20_000).any(|_| {
            world.tick();
            world.writers().len() > 1
        })
    });
    assert!(is_noticed, "a simulation that finds nothing wrong with this proves nothing");
}
