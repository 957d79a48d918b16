//! Where in which document a field stands, so that its faults can say so.

use std::fmt;

use super::document::Sourced;
use crate::config::{Fault, Faults, FieldPath, label};

/// A field of a document.
#[derive(Clone)]
pub(super) struct FieldPlace<'a> {
    pub(super) source: &'a Sourced,
    pub(super) field: FieldPath,
}

impl<'a> FieldPlace<'a> {
    /// A field at the top of a document.
    pub(super) fn of(source: &'a Sourced, field: &str) -> Self {
        Self { source, field: FieldPath::of(field) }
    }

    pub(super) fn field(&self, name: &str) -> Self {
        Self { source: self.source, field: self.field.field(name) }
    }

    pub(super) fn entry(&self, index: usize) -> Self {
        Self { source: self.source, field: self.field.entry(index) }
    }

    pub(super) fn fault(&self, message: impl Into<String>) -> Fault {
        let position = self.source.node.position_of(&self.field);
        Fault::new(self.field.clone(), message).in_file(&self.source.file).at(position)
    }

    /// Whether what stands there is of the right shape: of one that is not, nobody knows what it means.
    pub(super) fn is_readable(&self) -> bool {
        !self.source.misshapen.cover(&self.field)
    }

    /// Tells a fault of what the field means, unless its very shape is wrong.
    pub(super) fn tell(&self, message: impl Into<String>, faults: &mut Faults) {
        if self.is_readable() {
            faults.push(self.fault(message));
        }
    }

    pub(super) fn check_label_value(&self, value: &str, faults: &mut Faults) {
        let message = match value {
            "" => Some("is empty: leave the field out for none".to_owned()),
            _ => label::value_fault(value),
        };
        message.into_iter().for_each(|message| self.tell(message, faults));
    }

    /// The value that a text stands for, or `None` and a fault.
    pub(super) fn parse<T: std::str::FromStr<Err: fmt::Display>>(&self, text: &str, faults: &mut Faults) -> Option<T> {
        text.parse().map_err(|error: T::Err| self.tell(error.to_string(), faults)).ok()
    }
}

impl FieldPlace<'_> {
    /// Tells that a value is already somewhere else.
    pub(super) fn tell_shared(&self, value: &impl fmt::Display, first: &FieldPlace<'_>, faults: &mut Faults) {
        let first = first.fault("");
        let place = match first.position {
            Some(position) if first.file.as_ref() == Some(&self.source.file) => {
                format!("{} in line {}", first.field, position.line)
            }
            _ => first.place(),
        };
        self.tell(format!("{value} is already at {place}: each takes its own"), faults);
    }
}
