//! What type a machine is of.

use std::collections::BTreeMap;

use regex_lite::Regex;

use super::document::{HardwareEntry, HardwarePatterns, InstanceTypeEntry, MachineEntry, Sourced};
use super::label::check_labels;
use super::place::FieldPlace;
use crate::config::{Faults, FieldPath};

/// The longest value of a label.
const LONGEST: usize = 63;

/// The types of all documents, in order.
pub(super) struct InstanceTypes(Vec<InstanceType>);

struct InstanceType {
    name: String,
    labels: BTreeMap<String, String>,
    manufacturer: Option<Regex>,
    model: Option<Regex>,
    cpu_model: Option<Regex>,
}

impl InstanceTypes {
    pub(super) fn of(sources: &[Sourced], faults: &mut Faults) -> Self {
        let mut types = Vec::new();
        for source in sources {
            for (index, entry) in source.document.instance_types.iter().enumerate() {
                let place = FieldPlace { source, field: FieldPath::of("instanceTypes").entry(index) };
                types.push(check_type(entry, &place, faults));
            }
        }
        Self(types)
    }

    /// A machine's type and the labels that come with it: what the machine says, else the first type
    /// that fits its hardware, else one made of its hardware.
    pub(super) fn of_machine(&self, entry: &MachineEntry) -> (Option<String>, BTreeMap<String, String>) {
        let hardware = entry.hardware.as_deref().cloned().unwrap_or_default();
        let found = match &entry.instance_type {
            Some(name) => self.0.iter().find(|kind| kind.name == *name),
            None => self.0.iter().find(|kind| kind.fits(&hardware)),
        };
        let name = entry.instance_type.clone().or_else(|| found.map(|kind| kind.name.clone()));
        (name.or_else(|| derived(&hardware)), found.map(|kind| kind.labels.clone()).unwrap_or_default())
    }
}

impl InstanceType {
    fn fits(&self, hardware: &HardwareEntry) -> bool {
        let fits = |pattern: &Option<Regex>, value: &Option<String>| match pattern {
            None => true,
            Some(pattern) => value.as_deref().is_some_and(|value| pattern.is_match(value)),
        };
        let HardwareEntry { manufacturer, model, cpu_model, .. } = hardware;
        let has_pattern = self.manufacturer.is_some() || self.model.is_some() || self.cpu_model.is_some();
        has_pattern
            && fits(&self.manufacturer, manufacturer)
            && fits(&self.model, model)
            && fits(&self.cpu_model, cpu_model)
    }
}

fn check_type(entry: &InstanceTypeEntry, place: &FieldPlace<'_>, faults: &mut Faults) -> InstanceType {
    let InstanceTypeEntry { name, patterns, labels } = entry;
    place.field("name").check_label_value(name, faults);
    check_labels(labels, &place.field("labels"), faults);
    let HardwarePatterns { manufacturer, model, cpu_model } = patterns;
    let place = place.field("match");
    if manufacturer.is_none() && model.is_none() && cpu_model.is_none() {
        place.tell("is empty and would fit every machine: it takes manufacturer, model or cpuModel", faults);
    }
    let mut compiled = |text: &Option<String>, name: &str| {
        let text = text.as_deref()?;
        // Flags such as (?i) hold for the group they stand in.
        let pattern = Regex::new(&format!("^(?:{text})$"));
        let told = pattern.as_ref().err().map(|error| format!("{text:?} is not a regular expression: {error}"));
        told.into_iter().for_each(|message| place.field(name).tell(message, faults));
        pattern.ok()
    };
    InstanceType {
        name: name.clone(),
        labels: labels.clone(),
        manufacturer: compiled(manufacturer, "manufacturer"),
        model: compiled(model, "model"),
        cpu_model: compiled(cpu_model, "cpuModel"),
    }
}

/// A type made of what is known: maker, model, processors and memory, as a label takes it.
fn derived(hardware: &HardwareEntry) -> Option<String> {
    let HardwareEntry { manufacturer, model, cpu_model: _, cpus, cores_per_cpu, memory_gib } = hardware;
    let cores = match (cpus, cores_per_cpu) {
        (Some(cpus), Some(cores)) => Some(format!("{cpus}x{cores}c")),
        (None, Some(cores)) => Some(format!("{cores}c")),
        (_, None) => None,
    };
    let memory = memory_gib.map(|gib| format!("{gib}g"));
    // Without a model the rest says too little to be a type.
    let parts = [manufacturer.clone(), Some(model.clone()?), cores, memory];
    let text = parts.into_iter().flatten().collect::<Vec<_>>().join("-").to_ascii_lowercase();
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.';
    let words: Vec<&str> = text.split(|c| !is_plain(c)).filter(|word| !word.is_empty()).collect();
    let cut: String = words.join("-").chars().take(LONGEST).collect();
    let trimmed = cut.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    (!trimmed.is_empty()).then(|| trimmed.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::catalog::tests::inventory;

    #[test]
    fn a_type_is_what_the_machine_says_else_the_first_that_fits_else_made_of_its_hardware() {
        let inventory = inventory(
            "instanceTypes:
            - {name: gpu, match: {manufacturer: '(?i)supermicro', model: 'SYS-821GE.*'}, labels: {accelerator: h100}}
            - {name: any-dell, match: {manufacturer: 'Dell Inc\\.'}}
            - {name: never, match: {manufacturer: 'Dell Inc\\.'}, labels: {never: 'true'}}
            - {name: whole, match: {model: R7}}
            machines:
            - {id: a, hardware: {manufacturer: SuperMicro, model: SYS-821GE-TNHR}}
            - {id: b, hardware: {manufacturer: Dell Inc., model: PowerEdge R750}}
            - {id: c, hardware: {manufacturer: Dell Inc., model: R7}, instanceType: own}
            - {id: d, hardware: {manufacturer: HPE, model: ProLiant  DL380 Gen10+, cpus: 2, coresPerCpu: 18, memoryGiB: 512}}
            - {id: e, instanceType: gpu, labels: {accelerator: none}}
            - {id: f, hardware: {manufacturer: HPE, cpus: 2}}
            - {id: g, hardware: {model: R70}}
            ",
        );
        let told: Vec<_> = inventory
            .machines()
            .map(|machine| (machine.instance_type.as_deref().unwrap_or("-"), machine.labels.clone()))
            .collect();
        let label = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let none = BTreeMap::new;
        assert_eq!(
            told,
            [
                ("gpu", label("accelerator", "h100")),
                ("any-dell", none()),
                ("own", none()),
                ("hpe-proliant-dl380-gen10-2x18c-512g", none()),
                ("gpu", label("accelerator", "none")),
                ("-", none()),
                ("r70", none()),
            ]
        );
    }

    #[test]
    fn a_derived_type_is_the_value_of_a_label() {
        let model = Some(format!("-.{}", "x".repeat(80)));
        let derived = derived(&HardwareEntry { model, ..HardwareEntry::default() }).expect("a type");
        assert_eq!(derived, "x".repeat(62));
        assert_eq!(crate::config::label::value_fault(&derived), None);
    }
}
