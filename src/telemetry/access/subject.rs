//! Who a certificate is about: common name and organizations, as Kubernetes reads user and groups.
//!
//! Reads just as far into the DER as the subject (RFC 5280 §4.1). The certificate has been verified
//! before: what is not understood is no name.

/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.4.10
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

const INTEGER: u8 = 0x02;
const OID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// The version, `[0] EXPLICIT`; absent in version 1.
const VERSION: u8 = 0xa0;

/// The parts of a subject that name a user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    /// The last `CN`.
    pub common_name: String,
    /// Every `O`.
    pub organizations: Vec<String>,
}

/// The subject of a DER certificate; `None` when it is none.
pub fn subject(certificate: &[u8]) -> Option<Subject> {
    let mut certificate = Der(Der(certificate).expect(SEQUENCE)?);
    let mut signed = Der(certificate.expect(SEQUENCE)?);
    if signed.0.first() == Some(&VERSION) {
        signed.next()?;
    }
    signed.expect(INTEGER)?;
    for _signature_issuer_validity in 0..3 {
        signed.expect(SEQUENCE)?;
    }
    let mut names = Der(signed.expect(SEQUENCE)?);
    let mut subject = Subject::default();
    while !names.0.is_empty() {
        let mut set = Der(names.expect(SET)?);
        while !set.0.is_empty() {
            let mut attribute = Der(set.expect(SEQUENCE)?);
            let kind = attribute.expect(OID)?;
            let (_string_type, value) = attribute.next()?;
            let value = || String::from_utf8_lossy(value).into_owned();
            match kind {
                COMMON_NAME => subject.common_name = value(),
                ORGANIZATION => subject.organizations.push(value()),
                _ => {}
            }
        }
    }
    Some(subject)
}

/// The rest of a DER text.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The content of the next element, if it has this tag.
    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let length = if first < 0x80 {
            usize::from(first)
        } else {
            let (bytes, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
            rest = after;
            let is_short = (1..=4).contains(&bytes.len());
            is_short.then(|| bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))?
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    #[test]
    fn common_name_and_organizations_are_user_and_groups() {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        params.distinguished_name.push(DnType::CountryName, "AQ");
        params.distinguished_name.push(DnType::CommonName, "zoë");
        let certificate = params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate");
        let want = Subject { common_name: "zoë".to_owned(), organizations: vec!["system:masters".to_owned()] };
        assert_eq!(subject(certificate.der()), Some(want));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = subject(&bytes);
            let _ = subject(&[&[SEQUENCE, 0x82, 0x01, 0x00], bytes.as_slice()].concat());
        }
    }
}
