//! Faults: what is wrong, where, and what would be right.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A place in a text, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// One step from a value to a value inside it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Step {
    /// Into the field of this name.
    Field(String),
    /// Into the entry of this index, from 0.
    Entry(usize),
}

/// The way to a field, written `machines[2].addresses[0].address`; empty is the whole document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct FieldPath(Vec<Step>);

impl FieldPath {
    /// The path of the whole document.
    pub const ROOT: Self = Self(Vec::new());

    /// The path of a field at the top.
    pub fn of(field: &str) -> Self {
        Self::ROOT.field(field)
    }

    /// The path of a field of what this names.
    pub fn field(&self, name: &str) -> Self {
        self.with(Step::Field(name.to_owned()))
    }

    /// The path of an entry of what this names.
    pub fn entry(&self, index: usize) -> Self {
        self.with(Step::Entry(index))
    }

    /// The steps from the top.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// The name of the innermost field, entries skipped: `addresses` of `addresses[0]`.
    pub fn last_field(&self) -> Option<&str> {
        self.0.iter().rev().find_map(|step| match step {
            Step::Field(name) => Some(name.as_str()),
            Step::Entry(_) => None,
        })
    }

    /// The path that this one has when what `from` names is at `to`, or `None` when it is not inside.
    pub fn moved(&self, from: &Self, to: &Self) -> Option<Self> {
        let inner = self.0.strip_prefix(from.0.as_slice())?;
        Some(Self(to.0.iter().chain(inner).cloned().collect()))
    }

    fn with(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Entry(entry) => write!(f, "[{entry}]")?,
                Step::Field(name) if !is_plain(name) => write!(f, "[{name:?}]")?,
                Step::Field(name) if index == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
            }
        }
        Ok(())
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

/// One thing that is wrong.
///
/// Written `inventory.yaml:12:5: machines[2].state: "acitve" is not a state: it takes …`; what is not
/// known is left out, so that a fault of an object of the API server starts with the object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fault {
    /// The file, as the user named it.
    pub file: Option<PathBuf>,
    /// Where in the file.
    pub position: Option<Position>,
    /// The object, such as `AddressPool public`, where a file can hold several.
    pub object: Option<String>,
    /// The field.
    pub field: FieldPath,
    /// One sentence: what is wrong and what would be right.
    pub message: String,
}

impl Fault {
    /// A fault of a field; the place is added by whoever knows it.
    pub fn new(field: FieldPath, message: impl Into<String>) -> Self {
        Self { file: None, position: None, object: None, field, message: message.into() }
    }

    /// A fault of a file as a whole.
    pub fn of_file(file: &Path, message: impl Into<String>) -> Self {
        Self::new(FieldPath::ROOT, message).in_file(file)
    }

    /// The same fault, in this file.
    pub fn in_file(self, file: &Path) -> Self {
        Self { file: Some(file.to_owned()), ..self }
    }

    /// The same fault, at this position.
    pub fn at(self, position: Position) -> Self {
        Self { position: Some(position), ..self }
    }

    /// The same fault, of this object.
    pub fn of_object(self, object: impl Into<String>) -> Self {
        Self { object: Some(object.into()), ..self }
    }

    /// Where the fault is, without what it is: `inventory.yaml:12:5: machines[2].state`.
    pub fn place(&self) -> String {
        let mut place = String::new();
        if let Some(file) = &self.file {
            place.push_str(&file.display().to_string());
            if let Some(Position { line, column }) = self.position {
                place.push_str(&format!(":{line}:{column}"));
            }
        }
        let field = (!self.field.steps().is_empty()).then(|| self.field.to_string());
        for part in [self.object.clone(), field].into_iter().flatten() {
            if !place.is_empty() {
                place.push_str(": ");
            }
            place.push_str(&part);
        }
        place
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place();
        if place.is_empty() { f.write_str(&self.message) } else { write!(f, "{place}: {}", self.message) }
    }
}

/// Fields with a fault.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fields(HashSet<Vec<Step>>);

impl Fields {
    /// These and others.
    pub fn with(mut self, others: impl IntoIterator<Item = FieldPath>) -> Self {
        self.0.extend(others.into_iter().map(|field| field.0));
        self
    }

    /// Whether this field is one of them or inside one; how many there are does not matter to the time it takes.
    pub fn cover(&self, field: &FieldPath) -> bool {
        !self.0.is_empty() && (0..=field.0.len()).any(|depth| self.0.contains(&field.0[..depth]))
    }
}

/// Everything that is wrong, in the order of files and lines; displayed a line each.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// No fault yet.
    pub const NONE: Self = Self(Vec::new());

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many things are wrong.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Each fault.
    pub fn iter(&self) -> std::slice::Iter<'_, Fault> {
        self.0.iter()
    }

    /// The fields that they are of.
    pub fn fields(&self) -> Fields {
        Fields(self.0.iter().map(|fault| fault.field.0.clone()).collect())
    }

    /// Keeps the first `count`.
    pub fn truncate(&mut self, count: usize) {
        self.0.truncate(count);
    }

    /// Adds one.
    pub fn push(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// `value` when nothing is wrong, else all faults in order.
    pub fn or<T>(mut self, value: T) -> Result<T, Self> {
        if self.is_empty() {
            return Ok(value);
        }
        self.sort();
        Err(self)
    }

    /// Puts the faults into the order of files and positions.
    pub fn sort(&mut self) {
        self.0.sort_by(|a, b| (&a.file, a.position, &a.object).cmp(&(&b.file, b.position, &b.object)));
    }

    /// The value of a result; its faults are added to these.
    pub fn take<T>(&mut self, result: Result<T, Self>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(faults) => {
                self.0.extend(faults.0);
                None
            }
        }
    }

    /// The same faults, each changed.
    pub fn map(self, change: impl FnMut(Fault) -> Fault) -> Self {
        Self(self.0.into_iter().map(change).collect())
    }

    /// All in one line, for the condition of an object that nodes read themselves ([`last_good`](super::last_good)).
    pub fn in_a_condition(&self) -> String {
        format!("{}; nodes that know it from when it was right keep to that", self.in_one_line())
    }

    /// A sentence, and after it all of these, for a condition of what is right and has remarks.
    pub fn appended_to(&self, sentence: &str) -> String {
        if self.is_empty() { sentence.to_owned() } else { format!("{sentence}; {}", self.in_one_line()) }
    }

    /// All in one line, parted by `; `, for a condition or an Event.
    pub fn in_one_line(&self) -> String {
        self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Self(vec![fault])
    }
}

impl FromIterator<Fault> for Faults {
    fn from_iter<T: IntoIterator<Item = Fault>>(faults: T) -> Self {
        Self(faults.into_iter().collect())
    }
}

impl Extend<Fault> for Faults {
    fn extend<T: IntoIterator<Item = Fault>>(&mut self, faults: T) {
        self.0.extend(faults);
    }
}

impl IntoIterator for Faults {
    type Item = Fault;
    type IntoIter = std::vec::IntoIter<Fault>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Faults {
    type Item = &'a Fault;
    type IntoIter = std::slice::Iter<'a, Fault>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_what_is_known_of_its_place() {
        let field = FieldPath::of("machines").entry(2).field("labels").field("example.net/owner");
        let fault = Fault::new(field, "is wrong");
        assert_eq!(fault.to_string(), "machines[2].labels[\"example.net/owner\"]: is wrong");
        let fault = fault.in_file(Path::new("inventory.yaml"));
        assert_eq!(fault.to_string(), "inventory.yaml: machines[2].labels[\"example.net/owner\"]: is wrong");
        let fault = fault.at(Position { line: 12, column: 5 });
        assert_eq!(fault.to_string(), "inventory.yaml:12:5: machines[2].labels[\"example.net/owner\"]: is wrong");
        let fault = Fault::new(FieldPath::of("spec"), "is wrong").of_object("BgpPeer router");
        assert_eq!(fault.to_string(), "BgpPeer router: spec: is wrong");
        assert_eq!(Fault::new(FieldPath::ROOT, "is wrong").to_string(), "is wrong");
    }

    #[test]
    fn a_fault_covers_its_field_and_what_is_inside() {
        let machine = FieldPath::of("machines").entry(2);
        let faults: Faults =
            [Fault::new(machine.clone(), "x"), Fault::new(FieldPath::of("defaults"), "x")].into_iter().collect();
        for (field, want) in [
            (machine.clone(), true),
            (machine.field("addresses").entry(0), true),
            (FieldPath::of("defaults").field("region"), true),
            (FieldPath::of("machines"), false),
            (FieldPath::of("machines").entry(1), false),
            (FieldPath::of("machines").field("2"), false),
            (FieldPath::ROOT, false),
        ] {
            assert_eq!(faults.fields().cover(&field), want, "{field}");
        }
        assert!(Faults::from(Fault::new(FieldPath::ROOT, "x")).fields().cover(&machine));
        assert!(!Faults::NONE.fields().cover(&FieldPath::ROOT));
    }

    #[test]
    fn faults_come_in_the_order_of_files_and_lines() {
        let at = |file: &str, line| {
            Fault::of_file(Path::new(file), format!("{file} {line}")).at(Position { line, column: 1 })
        };
        let faults: Faults = [at("b", 1), at("a", 9), at("a", 2)].into_iter().collect();
        let told = faults.or(()).expect_err("faults");
        assert_eq!(told.to_string(), "a:2:1: a 2\na:9:1: a 9\nb:1:1: b 1");
    }
}
