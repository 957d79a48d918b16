//! Whether what was typed of a BMC and of fencing can be right.

use std::time::Duration;

use super::document::{BmcDefaults, BmcEntry, CredentialsEntry, FencingDefaults, FencingEntry, IdentityEntry};
use super::document::{IpmiEntry, TimeoutsEntry, TlsEntry, TlsMode};
use super::{Bmc, CredentialsRef, Fencing, Ipmi, Protocol, Tls};
use crate::config::Faults;
use crate::inventory::SystemUuid;
use crate::inventory::place::FieldPlace;
use crate::model::NodeName;

const CONNECT: Duration = Duration::from_secs(5);
const REQUEST: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_secs(60);
/// Suite 17 first: 3 is what older boards have (IPMI 2.0 errata 7).
const CIPHER_SUITES: [u8; 2] = [17, 3];
const IPMI_PORT: u16 = 623;
/// Where a Secret is whose namespace is not said.
const NAMESPACE: &str = "kube-system";

/// Checks what the BMCs of a document have in common.
pub(in crate::inventory) fn check_defaults(entry: &BmcDefaults, place: &FieldPlace<'_>, faults: &mut Faults) {
    let BmcDefaults { protocol: _, credentials_ref, tls, ipmi, timeouts, poll } = entry.clone();
    credentials_ref.iter().for_each(|entry| drop(credentials(entry, &place.field("credentialsRef"), faults)));
    check_tls(tls.as_ref(), &place.field("tls"), faults);
    check_ipmi(ipmi.as_ref(), &place.field("ipmi"), faults);
    check_timeouts(timeouts.as_ref(), &place.field("timeouts"), faults);
    span(poll.as_deref(), POLL, &place.field("poll"), faults);
}

/// Checks a BMC. What the machine does not say comes from the defaults, whose faults are told there.
pub(in crate::inventory) fn check_bmc(
    entry: &BmcEntry,
    defaults: &BmcDefaults,
    own_uuid: Option<SystemUuid>,
    place: &FieldPlace<'_>,
    faults: &mut Faults,
) -> Option<Bmc> {
    let protocol = entry.protocol.or(defaults.protocol).unwrap_or(Protocol::None);
    // Before anything is inherited, so that a fault of the machine's own is told at the machine.
    let own = |faults: &mut Faults| {
        check_tls(entry.tls.as_ref(), &place.field("tls"), faults);
        check_ipmi(entry.ipmi.as_ref(), &place.field("ipmi"), faults);
        check_timeouts(entry.timeouts.as_ref(), &place.field("timeouts"), faults);
        span(entry.poll.as_deref(), POLL, &place.field("poll"), faults);
    };
    own(faults);
    let address =
        entry.address.as_deref().and_then(|text| check_address(text, protocol, &place.field("address"), faults));
    let identity = entry.identity.clone().unwrap_or_default();
    let expected_uuid = check_identity(&identity, own_uuid, &place.field("identity"), faults);
    let own_credentials = entry.credentials_ref.as_ref();
    let own_credentials = own_credentials.map(|entry| credentials(entry, &place.field("credentialsRef"), faults));
    if protocol == Protocol::None {
        return None;
    }
    if entry.address.is_none() {
        place.field("address").tell("is missing: it takes where the BMC is, or protocol: none", faults);
    }
    let mut unheard = Faults::NONE;
    let inherited = defaults.credentials_ref.as_ref().map(|entry| credentials(entry, place, &mut unheard));
    let Some(credentials) = own_credentials.or(inherited) else {
        place
            .field("credentialsRef")
            .tell("is missing: it takes where user and password are, here or in defaults", faults);
        return None;
    };
    let timeouts = merged_timeouts(entry.timeouts.clone(), defaults.timeouts.clone());
    let (connect_timeout, request_timeout) = check_timeouts(Some(&timeouts), place, &mut unheard);
    Some(Bmc {
        protocol,
        address: address?,
        system_id: entry.system_id.clone(),
        expected_uuid,
        expected_serial: identity.serial,
        credentials: credentials?,
        tls: check_tls(entry.tls.as_ref().or(defaults.tls.as_ref()), place, &mut unheard)?,
        ipmi: check_ipmi(Some(&merged_ipmi(entry.ipmi.clone(), defaults.ipmi.clone())), place, &mut unheard),
        connect_timeout,
        request_timeout,
        poll: span(entry.poll.as_deref().or(defaults.poll.as_deref()), POLL, place, &mut unheard),
    })
}

fn check_address(text: &str, protocol: Protocol, place: &FieldPlace<'_>, faults: &mut Faults) -> Option<String> {
    let message = match protocol {
        Protocol::None => return None,
        Protocol::Ipmi if is_host(text) => return Some(text.to_ascii_lowercase()),
        Protocol::Ipmi => format!(
            "{text:?} is not where an IPMI BMC is: it takes an IP address or host name, and its port in ipmi.port"
        ),
        Protocol::Redfish if text.contains('@') => {
            "holds a user or password, which never stand in this file: see credentialsRef".to_owned()
        }
        Protocol::Redfish => match text.strip_prefix("https://").map(|rest| rest.trim_end_matches('/')) {
            Some(rest) if is_host_and_port(rest) => return Some(format!("https://{}", rest.to_ascii_lowercase())),
            _ => format!(
                "{text:?} is not where a Redfish BMC is: it takes the form https://10.9.12.20 or https://bmc.example.net:8443"
            ),
        },
    };
    place.tell(message, faults);
    None
}

fn is_host_and_port(text: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((v6, port)) => {
            v6.parse::<std::net::Ipv6Addr>().is_ok() && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
        }
        None => match text.split_once(':') {
            Some((host, port)) => is_host(host) && is_port(port),
            None => is_host(text),
        },
    }
}

fn is_host(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok() || text.to_ascii_lowercase().parse::<NodeName>().is_ok()
}

fn check_identity(
    entry: &IdentityEntry,
    own_uuid: Option<SystemUuid>,
    place: &FieldPlace<'_>,
    faults: &mut Faults,
) -> Option<SystemUuid> {
    let place = place.field("systemUUID");
    match entry.system_uuid.as_deref()? {
        "same" if own_uuid.is_some() => own_uuid,
        "same" => {
            place.tell("is same, but match has no systemUUID: write the UUID in one of the two", faults);
            None
        }
        text => place.parse(text, faults),
    }
}

fn credentials(entry: &CredentialsEntry, place: &FieldPlace<'_>, faults: &mut Faults) -> Option<CredentialsRef> {
    let CredentialsEntry { secret, namespace, file, env } = entry;
    if namespace.is_some() && secret.is_none() {
        place.field("namespace").tell("is for a secret only: leave it out", faults);
        return None;
    }
    match (secret, file, env) {
        (Some(name), None, None) => {
            let namespace = namespace.clone().unwrap_or_else(|| NAMESPACE.to_owned());
            let name = place.field("secret").parse::<NodeName>(name, faults);
            let namespace = place.field("namespace").parse::<NodeName>(&namespace, faults);
            Some(CredentialsRef::Secret { name: name?.to_string(), namespace: namespace?.to_string() })
        }
        (None, Some(file), None) => Some(CredentialsRef::File(file.clone())),
        (None, None, Some(prefix)) => Some(CredentialsRef::Environment(prefix.clone())),
        _ => {
            place.tell("takes exactly one of secret, file and env", faults);
            None
        }
    }
}

fn check_tls(entry: Option<&TlsEntry>, place: &FieldPlace<'_>, faults: &mut Faults) -> Option<Tls> {
    let Some(TlsEntry { mode, ca_file, sha256 }) = entry else { return Some(Tls::Verify { ca_file: None }) };
    let message = match (mode, ca_file, sha256) {
        (TlsMode::Verify, _, None) => return Some(Tls::Verify { ca_file: ca_file.clone() }),
        (TlsMode::Insecure, None, None) => return Some(Tls::Insecure),
        (TlsMode::Pinned, None, Some(text)) => match digest(text) {
            Some(sha256) => return Some(Tls::Pinned { sha256 }),
            None => {
                let message =
                    format!("{text:?} is not a SHA-256: it takes 64 hexadecimal digits, with colons if you like");
                place.field("sha256").tell(message, faults);
                return None;
            }
        },
        (TlsMode::Pinned, None, None) => "is pinned without sha256: it takes the certificate's SHA-256",
        (TlsMode::Pinned | TlsMode::Insecure, Some(_), _) => "has a caFile, which only mode verify takes",
        (TlsMode::Verify | TlsMode::Insecure, _, Some(_)) => "has a sha256, which only mode pinned takes",
    };
    place.tell(message, faults);
    None
}

fn digest(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    (digits.len() == 64 && digits.chars().all(|c| c.is_ascii_hexdigit())).then(|| digits.to_ascii_lowercase())
}

fn check_ipmi(entry: Option<&IpmiEntry>, place: &FieldPlace<'_>, faults: &mut Faults) -> Ipmi {
    let IpmiEntry { cipher_suites, role, kg_ref, port } = entry.cloned().unwrap_or_default();
    let cipher_suites = cipher_suites.unwrap_or_else(|| CIPHER_SUITES.to_vec());
    if cipher_suites.is_empty() {
        place.field("cipherSuites").tell("is empty: it takes at least one, or leave it out for 17 and 3", faults);
    }
    let kg = kg_ref.and_then(|entry| credentials(&entry, &place.field("kgRef"), faults));
    Ipmi { cipher_suites, role: role.unwrap_or_default(), kg, port: port.unwrap_or(IPMI_PORT) }
}

fn merged_ipmi(own: Option<IpmiEntry>, inherited: Option<IpmiEntry>) -> IpmiEntry {
    let (own, inherited) = (own.unwrap_or_default(), inherited.unwrap_or_default());
    IpmiEntry {
        cipher_suites: own.cipher_suites.or(inherited.cipher_suites),
        role: own.role.or(inherited.role),
        kg_ref: own.kg_ref.or(inherited.kg_ref),
        port: own.port.or(inherited.port),
    }
}

fn merged_timeouts(own: Option<TimeoutsEntry>, inherited: Option<TimeoutsEntry>) -> TimeoutsEntry {
    let (own, inherited) = (own.unwrap_or_default(), inherited.unwrap_or_default());
    TimeoutsEntry { connect: own.connect.or(inherited.connect), request: own.request.or(inherited.request) }
}

fn check_timeouts(entry: Option<&TimeoutsEntry>, place: &FieldPlace<'_>, faults: &mut Faults) -> (Duration, Duration) {
    let TimeoutsEntry { connect, request } = entry.cloned().unwrap_or_default();
    (
        span(connect.as_deref(), CONNECT, &place.field("connect"), faults),
        span(request.as_deref(), REQUEST, &place.field("request"), faults),
    )
}

/// Checks how the machines of a document are fenced.
pub(in crate::inventory) fn check_fencing_defaults(
    entry: &FencingDefaults,
    place: &FieldPlace<'_>,
    faults: &mut Faults,
) -> Fencing {
    let FencingDefaults { enabled, confirm_reads, confirm_interval, off_deadline, after } = entry.clone();
    let entry = FencingEntry { enabled, group: None, confirm_reads, confirm_interval, off_deadline, after };
    check_fencing(&entry, &Fencing::default(), place, faults)
}

/// Checks how a machine is fenced; what it does not say is inherited.
pub(in crate::inventory) fn check_fencing(
    entry: &FencingEntry,
    inherited: &Fencing,
    place: &FieldPlace<'_>,
    faults: &mut Faults,
) -> Fencing {
    let FencingEntry { enabled, group, confirm_reads, confirm_interval, off_deadline, after } = entry;
    group.iter().for_each(|group| place.field("group").check_label_value(group, faults));
    let interval_place = place.field("confirmInterval");
    let deadline_place = place.field("offDeadline");
    Fencing {
        is_enabled: enabled.unwrap_or(inherited.is_enabled),
        group: group.clone(),
        confirm_reads: confirm_reads.unwrap_or(inherited.confirm_reads),
        confirm_interval: span(confirm_interval.as_deref(), inherited.confirm_interval, &interval_place, faults),
        off_deadline: span(off_deadline.as_deref(), inherited.off_deadline, &deadline_place, faults),
        after: after.unwrap_or(inherited.after),
    }
}

/// A span of time as people write it, `5s` or `1m30s`; between a second and a day.
fn span(text: Option<&str>, otherwise: Duration, place: &FieldPlace<'_>, faults: &mut Faults) -> Duration {
    let Some(text) = text else { return otherwise };
    match parse_span(text) {
        Some(span) if (1..=86_400).contains(&span.as_secs()) => span,
        _ => {
            place.tell(format!("{text:?} is not a span of time: it takes 1s to 24h, such as 5s or 1m30s"), faults);
            otherwise
        }
    }
}

/// Hours, minutes and seconds, each at most once and in that order.
fn parse_span(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = 0_u64;
    for (unit, seconds) in [('h', 3600), ('m', 60), ('s', 1)] {
        if let Some((digits, after)) = rest.split_once(unit) {
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            total = total.checked_add(digits.parse::<u64>().ok()?.checked_mul(seconds)?)?;
            rest = after;
        }
    }
    (rest.is_empty() && !text.is_empty()).then(|| Duration::from_secs(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time_are_written_as_go_writes_them() {
        for (text, want) in [
            ("5s", Some(5)),
            ("1m30s", Some(90)),
            ("24h", Some(86_400)),
            ("90", None),
            ("", None),
            ("s", None),
            ("30s1m", None),
            ("-5s", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(parse_span(text), want.map(Duration::from_secs), "{text:?}");
        }
    }

    #[test]
    fn a_redfish_host_may_have_a_port() {
        for (text, want) in [
            ("10.9.12.20", true),
            ("10.9.12.20:8443", true),
            ("[fd00::1]:8443", true),
            ("[fd00::1]", true),
            ("bmc.example.net", true),
            ("bmc.example.net:0", false),
            ("bmc/redfish", false),
            ("[10.0.0.1]", false),
            ("", false),
        ] {
            assert_eq!(is_host_and_port(text), want, "{text:?}");
        }
    }
}
