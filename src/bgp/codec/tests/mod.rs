//! Tests of the whole codec: octets of real routers, malformed messages by RFC, and properties.

mod malformed;
mod oracle;
mod properties;

use super::*;
use crate::model::Prefix;

fn context(peering: Peering) -> Context {
    Context { four_octet_as: true, peering, families: Families { v4: true, v6: true } }
}

fn external() -> Context {
    context(Peering::External)
}

/// A whole message: header, then the octets written as hexadecimal digits and spaces.
fn frame(kind: u8, body: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write(kind, &mut out, |message| message.extend(octets(body)));
    out
}

fn octets(hexadecimal: &str) -> Vec<u8> {
    let digits: Vec<char> = hexadecimal.chars().filter(|c| !c.is_whitespace()).collect();
    let octet = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}

fn prefixes(texts: &[&str]) -> Vec<Prefix> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn decode_update(body: &str, context: &Context) -> Result<Update, Notification> {
    match Message::decode(&frame(UPDATE, body), context)? {
        Message::Update(update) => Ok(update),
        other => panic!("not an UPDATE: {other:?}"),
    }
}
