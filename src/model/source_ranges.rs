//! Who may use a Service's addresses: `spec.loadBalancerSourceRanges`, or its annotation.

use serde::{Deserialize, Serialize};

use super::net::{Family, NetError, Prefix};

/// The annotation that counts while `spec.loadBalancerSourceRanges` is empty.
pub const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// The ranges that a Service names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRanges {
    /// Where it names them.
    pub place: Place,
    /// Those that parse, in order, without those that lie within others.
    ranges: Vec<Prefix>,
    /// Those that do not parse, as they are written. They admit nobody.
    pub unread: Vec<String>,
}

/// Where a Service names its source ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// `spec.loadBalancerSourceRanges`.
    Field,
    /// The annotation [`SOURCE_RANGES`].
    Annotation,
}

impl Place {
    /// Its name, as it is written in a Service.
    pub fn name(self) -> &'static str {
        match self {
            Self::Field => "spec.loadBalancerSourceRanges",
            Self::Annotation => SOURCE_RANGES,
        }
    }
}

impl SourceRanges {
    /// Reads them as `k8s.io/cloud-provider` does: the annotation counts only while the field is empty,
    /// its ranges stand between commas, spaces around a range do not count, and neither do bits
    /// beyond its length nor zeros before a number. `None` when the Service names none.
    pub fn of(field: &[String], annotation: Option<&str>) -> Option<Self> {
        let annotation = annotation.map(str::trim).filter(|text| !text.is_empty());
        let (place, texts): (_, Vec<&str>) = match annotation {
            _ if !field.is_empty() => (Place::Field, field.iter().map(String::as_str).collect()),
            Some(text) => (Place::Annotation, text.split(',').collect()),
            None => return None,
        };
        let (mut read, mut unread) = (Vec::new(), Vec::new());
        for text in texts.into_iter().map(str::trim) {
            match range(text) {
                Some(range) => read.push(range),
                None => unread.push(text.to_owned()),
            }
        }
        read.sort();
        read.dedup();
        let is_within = |one: &Prefix, other: &Prefix| other.length() < one.length() && other.contains(one.address());
        let ranges = read.iter().filter(|one| !read.iter().any(|other| is_within(one, other))).copied().collect();
        Some(Self { place, ranges, unread })
    }

    /// Those that parse, in order, without those that lie within others.
    pub fn ranges(&self) -> &[Prefix] {
        &self.ranges
    }

    /// The ranges of one family, none of which overlap; `None` when everyone is admitted, which one range of
    /// length 0, of either family, says. A family of which there is no range admits nobody.
    pub fn admitted(&self, family: Family) -> Option<impl Iterator<Item = Prefix> + '_> {
        let is_everyone = self.ranges.iter().any(|range| range.length() == 0);
        (!is_everyone).then(|| self.ranges.iter().copied().filter(move |range| range.family() == family))
    }
}

fn range(text: &str) -> Option<Prefix> {
    // Rust refuses zeros before a number; Kubernetes took them as decimal, and Services still have them.
    let without_zeros = |part: &str| match part.trim_start_matches('0') {
        rest if rest.starts_with(|digit: char| digit.is_ascii_digit()) => rest.to_owned(),
        rest if part.starts_with('0') => format!("0{rest}"),
        _ => part.to_owned(),
    };
    let text = match text.contains(':') {
        true => text.to_owned(),
        false => text.split('.').map(without_zeros).collect::<Vec<_>>().join("."),
    };
    match text.parse() {
        Ok(prefix) | Err(NetError::HostBitsSet { network: prefix, .. }) => Some(prefix),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(field: &[&str], annotation: Option<&str>) -> Option<SourceRanges> {
        SourceRanges::of(&field.iter().map(ToString::to_string).collect::<Vec<_>>(), annotation)
    }

    fn texts(ranges: &SourceRanges) -> Vec<String> {
        ranges.ranges.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ranges_are_read_as_upstream_reads_them() {
        struct Case {
            name: &'static str,
            field: &'static [&'static str],
            annotation: Option<&'static str>,
            want: Option<(Place, &'static [&'static str], &'static [&'static str])>,
        }
        use Place::{Annotation, Field};
        for Case { name, field, annotation, want } in [
            Case { name: "none", field: &[], annotation: None, want: None },
            Case { name: "an empty annotation", field: &[], annotation: Some("  "), want: None },
            Case {
                name: "the field",
                field: &["10.0.0.0/8", "fd00::/8"],
                annotation: None,
                want: Some((Field, &["10.0.0.0/8", "fd00::/8"], &[])),
            },
            Case {
                name: "the annotation",
                field: &[],
                annotation: Some(" 10.0.0.0/8 , fd00::/8"),
                want: Some((Annotation, &["10.0.0.0/8", "fd00::/8"], &[])),
            },
            Case {
                name: "both: the field wins, and the annotation is not even looked at",
                field: &["10.0.0.0/8"],
                annotation: Some("nonsense"),
                want: Some((Field, &["10.0.0.0/8"], &[])),
            },
            Case {
                name: "spaces, host bits and zeros before numbers",
                field: &[" 10.1.2.3/8 ", "192.168.007.000/24", "000.0.0.0/0"],
                annotation: None,
                want: Some((Field, &["0.0.0.0/0"], &[])),
            },
            Case {
                name: "zeros before numbers",
                field: &["192.168.007.000/24", "010.0.0.0/08"],
                annotation: None,
                want: Some((Field, &["10.0.0.0/8", "192.168.7.0/24"], &[])),
            },
            Case {
                name: "one within another, and one twice",
                field: &["10.0.0.0/16", "10.0.0.0/8", "10.0.0.0/8", "10.9.0.0/16"],
                annotation: None,
                want: Some((Field, &["10.0.0.0/8"], &[])),
            },
            Case {
                name: "some that are none",
                field: &[],
                annotation: Some("10.0.0.1,,10.0.0.0/33,10.0.0.0/24, fd00::/129,a.0.0.0/8"),
                want: Some((Annotation, &["10.0.0.0/24"], &["10.0.0.1", "", "10.0.0.0/33", "fd00::/129", "a.0.0.0/8"])),
            },
        ] {
            let got = of(field, annotation);
            let got = got.as_ref().map(|ranges| (ranges.place, texts(ranges), ranges.unread.clone()));
            let strings = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
            assert_eq!(got, want.map(|(place, read, unread)| (place, strings(read), strings(unread))), "{name}");
        }
    }

    #[test]
    fn who_names_ranges_admits_nobody_else_of_either_family() {
        for (name, field, v4, v6) in [
            ("IPv4 alone", &["10.0.0.0/8"][..], Some(1), Some(0)),
            ("both", &["10.0.0.0/8", "fd00::/8", "fe00::/8"], Some(1), Some(2)),
            ("everyone of IPv4", &["0.0.0.0/0"], None, None),
            ("everyone of IPv6, and some", &["::/0", "10.0.0.0/8"], None, None),
            ("nothing that is a range", &["10"], Some(0), Some(0)),
        ] {
            let ranges = of(field, None).expect("ranges");
            let admitted = [Family::V4, Family::V6].map(|family| ranges.admitted(family).map(Iterator::count));
            assert_eq!(admitted, [v4, v6], "{name}");
        }
    }
}
