//! Locations that machines name: whether they can be right, and which there are.

use std::collections::BTreeMap;

use super::document::{Extent, Location, Sourced};
use super::place::FieldPlace;
use crate::config::{Faults, FieldPath};

/// Locations of all documents by name.
pub(super) struct Locations<'a> {
    pub(super) by_name: BTreeMap<&'a str, &'a Location>,
    pub(super) extent: Extent,
}

impl<'a> Locations<'a> {
    /// Checks and collects them.
    pub(super) fn of(sources: &'a [Sourced], extent: Extent, faults: &mut Faults) -> Self {
        let mut places: BTreeMap<&str, (FieldPlace<'_>, &Location)> = BTreeMap::new();
        for source in sources {
            for (name, location) in &source.document.locations {
                let place = FieldPlace { source, field: FieldPath::of("locations").field(name) };
                check_location(location, &place, faults);
                match places.get(name.as_str()) {
                    Some((first, _)) => place.tell_shared(&format!("location {name}"), first, faults),
                    None => drop(places.insert(name, (place, location))),
                }
            }
        }
        let by_name = places.into_iter().map(|(name, (_, location))| (name, location)).collect();
        Self { by_name, extent }
    }
}

fn check_location(location: &Location, place: &FieldPlace<'_>, faults: &mut Faults) {
    let Location { region, zone, room, row, rack, power_feeds } = location;
    for (name, value) in [("region", region), ("zone", zone), ("room", room), ("row", row), ("rack", rack)] {
        value.iter().for_each(|value| place.field(name).check_label_value(value, faults));
    }
    for (index, feed) in power_feeds.iter().enumerate() {
        place.field("powerFeeds").entry(index).check_label_value(feed, faults);
    }
}
