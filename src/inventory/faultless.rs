//! Files without a fault, read machine by machine.
//!
//! A tree of a whole file, in which every value knows its place, takes twenty times the memory of its text, and only
//! faults need places. So files are first read as if they had none: of each machine the tree is gone before the next
//! is read. Whatever is not right ends that, and [`file`](super::file) reads all again with all places.

use std::path::{Path, PathBuf};

use super::document::{MachineEntry, Sourced};
use super::file;
use super::{Extent, Inventory};
use crate::config::document::{self, Node};
use crate::config::{object, source};

/// The inventory of these files, if nothing is wrong with them.
pub(super) fn load(files: &[PathBuf]) -> Option<Inventory> {
    let mut sources = Vec::new();
    for file in files {
        sources.extend(read(file, &source::read(file).ok()?)?);
    }
    Inventory::merge(&sources, Extent::Whole).ok()
}

/// The documents of a file, with their machines but without the places of those.
fn read(file: &Path, text: &str) -> Option<Vec<Sourced>> {
    let schema = object::schema_of::<MachineEntry>();
    let mut machines: Vec<Vec<MachineEntry>> = Vec::new();
    let mut are_right = true;
    let mut take = |document: usize, node: Node| {
        machines.resize_with(machines.len().max(document + 1), Vec::new);
        match object::read_right(&node, &schema) {
            Some(machine) => machines[document].push(machine),
            None => are_right = false,
        }
    };
    let parsed = document::parse_apart(file, text, "machines", &mut take);
    if !are_right || !parsed.faults.is_empty() {
        return None;
    }
    let taken = machines.into_iter().chain(std::iter::repeat_with(Vec::new));
    let sourced = |(node, machines): (Node, Vec<MachineEntry>)| {
        let mut sourced = file::read(file, node).ok().filter(|sourced| sourced.faults.is_empty())?;
        sourced.document.machines.extend(machines);
        Some(sourced)
    };
    parsed.documents.into_iter().zip(taken).map(sourced).collect()
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;
    use crate::config::Faults;

    const HEAD: &str = "apiVersion: inventory.cairn.dev/v1\nkind: Inventory\n";

    /// As [`file`](super::file) reads texts that may have faults.
    fn with_places(texts: &[&str]) -> Result<Inventory, Faults> {
        let mut faults = Faults::NONE;
        let mut sources = Vec::new();
        for text in texts {
            let parsed = document::parse(Path::new("i.yaml"), text);
            faults.extend(parsed.faults);
            sources
                .extend(parsed.documents.into_iter().filter_map(|node| faults.take(file::read(Path::new("i"), node))));
        }
        let inventory = faults.take(Inventory::merge(&sources, Extent::Whole));
        match inventory {
            Some(inventory) => faults.or(inventory),
            None => Err(faults),
        }
    }

    fn without_places(texts: &[&str]) -> Option<Inventory> {
        let documents = texts.iter().map(|text| read(Path::new("i.yaml"), text)).collect::<Option<Vec<_>>>()?;
        Inventory::merge(&documents.concat(), Extent::Whole).ok()
    }

    #[test]
    fn what_has_no_fault_says_the_same_without_places() {
        let texts = [
            "machines: [{id: a, location: r1}, {id: b, unit: 3}]\nlocations: {r1: {zone: z1}}\n",
            "locations: {r1: {zone: z1}}\nmachines:\n- id: a\n  location: r1\n- {id: b, state: planned}\n",
            "machines: &all [{id: a}, {id: b}]\n",
            "machines:\n- &a {id: a, labels: &l {x: y}}\n- {id: b, labels: *l}\n",
            "acknowledgedRemovals: [c]\nmachines: [{id: a, match: {systemUUID: 4c4c4544-0035-3410-8050-c6c04f314733}}]\n",
        ];
        for text in texts.map(|text| format!("{HEAD}{text}")) {
            let inventory = without_places(&[&text]).expect("it has no fault");
            assert_eq!(Ok(inventory), with_places(&[&text]), "{text}");
            let other =
                text.replace("id: a", "id: m1").replace("id: b", "id: m2").replace("r1", "r2").replace("4c4c", "5c5c");
            let documents = format!("{text}---\n---\n{other}");
            let inventory = without_places(&[&documents]).expect("neither have both");
            assert_eq!(Ok(&inventory), with_places(&[&documents]).as_ref(), "{documents}");
            assert_eq!(without_places(&[&text, &other]), Some(inventory), "as two files");
        }
    }

    fn one_of<'a>(rng: &mut Rng, ways: &[&'a str]) -> &'a str {
        ways[rng.usize(0..ways.len())]
    }

    /// Machines as people write them, mostly without a fault.
    fn any_machines(rng: &mut Rng, next: &mut usize) -> String {
        let mut entry = |rng: &mut Rng| {
            *next += usize::from(rng.u8(0..40) > 0);
            let more = [
                "",
                ", unit: 3",
                ", location: r1",
                ", state: planned",
                ", labels: {x: 'y', z: \"1\"}",
                ", labels: &l {x: y}",
                ", match: {macs: []}",
                ", !!str region: !!str 7",
                ", maintenance: ~",
                ", addresses: [], taints: []",
            ];
            let wrong = [
                ", labels: *l",
                ", unit: 0",
                ", id: b",
                ", sate: x",
                ", <<: {unit: 1}",
                ", region: 7",
                ", labels: {x: 1}",
            ];
            let more = if rng.u8(0..40) == 0 { one_of(rng, &wrong) } else { one_of(rng, &more) };
            format!("{{id: m{next}{more}}}")
        };
        let entries: Vec<_> = (0..rng.usize(0..4)).map(|_| entry(rng)).collect();
        match rng.u8(0..6) {
            0 => format!("machines: &all [{}]\n", entries.join(", ")),
            1 => format!("\"machines\": !!seq [{}, ]  # them\n", entries.join(",\n  ")),
            2 => format!("? machines\n: [{}]\n", entries.join(", ")),
            _ if entries.is_empty() => "machines: []\n".to_owned(),
            3 => format!("machines:\n{}", entries.iter().map(|entry| format!("  - {entry}\n")).collect::<String>()),
            _ => {
                format!("machines:\n{}", entries.iter().map(|entry| format!("- {entry}\n# one\n")).collect::<String>())
            }
        }
    }

    fn any_document(rng: &mut Rng, next: &mut usize) -> String {
        let mut sections = vec![
            HEAD.to_owned(),
            one_of(rng, &["", "", "defaults: {region: eu}\n", "locations: {r2: {}}\n"]).to_owned(),
            one_of(rng, &["", "# nothing\n\n", "acknowledgedRemovals: [gone]\n", "instanceTypes: []\n"]).to_owned(),
        ];
        if rng.u8(0..8) > 0 {
            sections.push(any_machines(rng, next));
        }
        if rng.u8(0..30) == 0 {
            sections
                .push(one_of(rng, &["machines: []\n", "colour: x\n", "machines: ~\n", "a: [\n", "- a\n"]).to_owned());
        }
        rng.shuffle(&mut sections);
        let start = one_of(rng, &["---\n", "---\n", "--- # a rack\n", "--- &root\n", "---\n---\n", "--- !!map\n"]);
        format!("{start}{}", sections.concat())
    }

    #[test]
    fn both_readings_are_one_whatever_a_file_says() {
        let mut rng = Rng::with_seed(7);
        let (mut right, mut wrong) = (0, 0);
        for _ in 0..400 {
            let mut next = 0;
            let mut text = |rng: &mut Rng| {
                let text = (0..rng.usize(1..3)).map(|_| any_document(rng, &mut next)).collect::<String>();
                let text = if rng.bool() { text } else { text.replace('\n', "\r\n") };
                format!("{}{text}", one_of(rng, &["", "", "\u{feff}"]))
            };
            let first = format!("{}---\n{HEAD}locations: {{r1: {{zone: z1}}}}\n", text(&mut rng));
            let texts = [first, text(&mut rng)];
            let texts = texts.each_ref().map(String::as_str);
            let want = with_places(&texts).ok();
            assert_eq!(without_places(&texts), want, "{}", texts.join("\n=====\n"));
            *if want.is_some() { &mut right } else { &mut wrong } += 1;
        }
        assert!(right > 100 && wrong > 50, "{right} are right, {wrong} wrong: the test has something to say");
    }

    #[test]
    fn whatever_is_not_right_is_left_to_those_who_know_the_places() {
        for text in [
            "",
            "machines: [",
            "machines: []\n",
            "machines: [{id: a, sate: planned}]\n",
            "machines: [{id: a, unit: 0}]\n",
            "machines: [{id: a, id: b}]\n",
            "machines: [{id: a}]\nmachines: [{id: b}]\n",
            "machines: [{id: a}, {id: a}]\n",
            "machines: [{id: a, location: none}]\n",
            "machines: [{id: a}]\ncolour: x\n",
            "machines: [{id: a}]\n---\napiVersion: v1\nkind: Service\n",
        ] {
            let text = format!("{HEAD}{text}");
            assert_eq!((without_places(&[&text]), with_places(&[&text]).is_err()), (None, true), "{text}");
        }
        assert_eq!(without_places(&["machines: [{id: a}]\n"]), None, "it does not say what it is");
    }
}
