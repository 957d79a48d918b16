//! YAML as a tree whose nodes know where they stand.
//!
//! Errors of one file do not hide each other: duplicate keys are told and parsing goes on, and
//! documents before a syntax error are still there to be checked. Depth and the growth of aliases
//! are bounded, so that no text can exhaust the stack or the memory.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::path::Path;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};
use serde_json::{Number, Value as Json};

use super::fault::Step;
use super::{Fault, Faults, FieldPath, Position};

/// Values nested deeper than this are refused; no format here goes beyond eight.
const DEEPEST: usize = 64;
/// Values that anchors and aliases may add to a file.
const MOST_COPIED: usize = 100_000;
/// Bytes of text that they may add: as many as a file may have itself.
const MOST_COPIED_TEXT: usize = 8 * 1024 * 1024;

/// A value and where it starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its first character.
    pub position: Position,
    /// The value.
    pub value: Value,
}

/// A YAML value by the core schema (YAML 1.2.2 §10.3).
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// A number, and how it was written.
    Number(Number, String),
    /// Any other scalar, and every quoted one.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping.
    Mapping(Mapping),
}

/// The entries of a mapping in the order they were written; no key twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Mapping {
    entries: Box<[Entry]>,
    /// The places of the entries in the order of their keys; empty while there are few.
    by_key: Box<[u32]>,
}

impl Mapping {
    /// So many keys are found as fast by looking at each.
    const FEW: usize = 16;

    fn new(entries: Vec<Entry>) -> Self {
        let count = if entries.len() > Self::FEW { entries.len() } else { 0 };
        let mut by_key: Box<[u32]> = (0..).take(count).collect();
        by_key.sort_unstable_by_key(|index| entries[*index as usize].key.as_str());
        Self { entries: entries.into(), by_key }
    }

    /// The entry of a key.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        if self.entries.len() <= Self::FEW {
            return self.entries.iter().find(|entry| entry.key == key);
        }
        let key_at = |index: &u32| self.entries[*index as usize].key.as_str();
        let found = self.by_key.binary_search_by(|index| key_at(index).cmp(key)).ok()?;
        self.entries.get(self.by_key[found] as usize)
    }
}

impl Deref for Mapping {
    type Target = [Entry];

    fn deref(&self) -> &[Entry] {
        &self.entries
    }
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key as text.
    pub key: String,
    /// Where the key starts.
    pub key_position: Position,
    /// The value.
    pub value: Node,
}

/// What a file holds: documents that are not empty, and what is wrong with its YAML.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parsed {
    /// The documents up to the first syntax error.
    pub documents: Vec<Node>,
    /// Syntax errors, duplicate keys, and that there is nothing.
    pub faults: Faults,
}

/// Parses a text; `file` is the name that its faults get.
pub fn parse(file: &Path, text: &str) -> Parsed {
    load(Loader::new(file), text)
}

/// Parses a text as [`parse`] does, but hands out each entry of the list `field` at the top of a document as
/// soon as it is read, with the number of that document from 0: the list is empty in the documents.
///
/// So a long list takes the memory of one entry. A list that is repeated elsewhere in the file stays where it is.
pub fn parse_apart(file: &Path, text: &str, field: &str, take: &mut dyn FnMut(usize, Node)) -> Parsed {
    load(Loader { apart: Some(Apart { field, take }), ..Loader::new(file) }, text)
}

fn load(mut loader: Loader<'_>, text: &str) -> Parsed {
    let file = loader.file;
    // The byte order mark that some editors write is no content (YAML 1.2.2 §5.2).
    for event in Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text)) {
        let step =
            event.map_err(|error| syntax_fault(&error)).and_then(|(event, span)| loader.take(event, &span.start));
        if let Err(fault) = step {
            loader.parsed.faults.push(fault.in_file(file));
            return loader.parsed;
        }
    }
    if loader.parsed.documents.is_empty() && loader.parsed.faults.is_empty() {
        loader.parsed.faults.push(Fault::of_file(file, "is empty: it takes at least one YAML document"));
    }
    loader.parsed
}

impl Node {
    /// The value of a field, if this is a mapping that has it.
    pub fn get(&self, field: &str) -> Option<&Node> {
        match &self.value {
            Value::Mapping(mapping) => mapping.get(field).map(|entry| &entry.value),
            _ => None,
        }
    }

    /// The text of a field, if this is a mapping that has it as text.
    pub fn text(&self, field: &str) -> Option<&str> {
        match &self.get(field)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Where a field stands, or the innermost value around it that is there.
    pub fn position_of(&self, field: &FieldPath) -> Position {
        let mut node = self;
        for step in field.steps() {
            let inner = match (step, &node.value) {
                (Step::Field(name), Value::Mapping(_)) => node.get(name),
                (Step::Entry(index), Value::List(nodes)) => nodes.get(*index),
                _ => None,
            };
            match inner {
                Some(inner) => node = inner,
                None => break,
            }
        }
        node.position
    }

    /// The value as JSON, positions forgotten.
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Boolean(truth) => Json::Bool(*truth),
            Value::Number(number, _) => Json::Number(number.clone()),
            Value::Text(text) => Json::String(text.clone()),
            Value::List(nodes) => nodes.iter().map(Node::to_json).collect(),
            Value::Mapping(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), entry.value.to_json()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }

    /// What a copy of it takes.
    fn size(&self) -> Size {
        let mut size = Size { values: 1, text: 0 };
        match &self.value {
            Value::Null | Value::Boolean(_) => {}
            Value::Number(_, text) | Value::Text(text) => size.text = text.len(),
            Value::List(nodes) => nodes.iter().for_each(|node| size.add(node.size())),
            Value::Mapping(entries) => entries.iter().for_each(|entry| {
                size.text += entry.key.len();
                size.add(entry.value.size());
            }),
        }
        size
    }
}

/// How many values there are in one, and how many bytes of text.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    values: usize,
    text: usize,
}

impl Size {
    fn add(&mut self, other: Self) {
        self.values += other.values;
        self.text += other.text;
    }
}

/// A collection that is not closed yet.
struct Open {
    position: Position,
    anchor: usize,
    inside: Inside,
}

enum Inside {
    List(Vec<Node>),
    /// A list whose entries are handed out, and how many were.
    Apart(usize),
    Mapping {
        entries: Vec<Entry>,
        /// Where the keys of the entries stand.
        keys: HashMap<String, Position>,
        /// The key of the value that comes next.
        key: Option<(String, Position)>,
    },
}

/// Builds documents of the parser's events.
struct Loader<'a> {
    file: &'a Path,
    parsed: Parsed,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Node>,
    /// What anchors and aliases have added.
    copied: Size,
    apart: Option<Apart<'a>>,
}

/// The list at the top of a document whose entries are handed out.
struct Apart<'a> {
    field: &'a str,
    take: &'a mut dyn FnMut(usize, Node),
}

impl<'a> Loader<'a> {
    fn new(file: &'a Path) -> Self {
        let (open, anchors) = (Vec::new(), BTreeMap::new());
        Self { file, parsed: Parsed::default(), open, anchors, copied: Size::default(), apart: None }
    }

    fn take(&mut self, event: Event<'_>, marker: &Marker) -> Result<(), Fault> {
        let position = position(marker);
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => self.scalar(text, style, anchor, tag.as_deref(), position),
            Event::Alias(anchor) => self.alias(anchor, position),
            Event::SequenceStart(anchor, tag) => self.open(self.list(anchor), anchor, tag.as_deref(), position),
            Event::MappingStart(anchor, tag) => {
                let inside = Inside::Mapping { entries: Vec::new(), keys: HashMap::new(), key: None };
                self.open(inside, anchor, tag.as_deref(), position)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Open { position, anchor, inside } = self.open.pop().expect("the parser ends only what it started");
                let value = match inside {
                    Inside::List(mut nodes) => {
                        nodes.shrink_to_fit();
                        Value::List(nodes)
                    }
                    Inside::Apart(_) => Value::List(Vec::new()),
                    Inside::Mapping { entries, .. } => Value::Mapping(Mapping::new(entries)),
                };
                self.place(Node { position, value }, anchor)
            }
        }
    }

    fn scalar(
        &mut self,
        text: Cow<'_, str>,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        position: Position,
    ) -> Result<(), Fault> {
        if let Some(Open { inside: Inside::Mapping { key: key @ None, .. }, .. }) = self.open.last_mut() {
            *key = Some((text.into_owned(), position));
            return Ok(());
        }
        let is_text = style != ScalarStyle::Plain || is_string_tag(tag, position)?;
        let value = if is_text { Value::Text(text.into_owned()) } else { resolve(text) };
        self.place(Node { position, value }, anchor)
    }

    fn alias(&mut self, anchor: usize, position: Position) -> Result<(), Fault> {
        self.refuse_as_key(position)?;
        let node = self.anchors.get(&anchor).ok_or_else(|| {
            Fault::new(self.field(), "repeats a value from inside that value: write it out").at(position)
        })?;
        let size = node.size();
        self.may_copy(size, position)?;
        let node = self.anchors.get(&anchor).cloned().expect("it was just there");
        self.place(node, 0)
    }

    /// Refuses a copy that would be one too many, before it is made.
    fn may_copy(&mut self, size: Size, position: Position) -> Result<(), Fault> {
        self.copied.add(size);
        if self.copied.values <= MOST_COPIED && self.copied.text <= MOST_COPIED_TEXT {
            return Ok(());
        }
        let message = format!(
            "anchors and aliases repeat more than {MOST_COPIED} values or {} MiB of text: write them out or split the file",
            MOST_COPIED_TEXT / (1024 * 1024)
        );
        Err(Fault::new(FieldPath::ROOT, message).at(position))
    }

    fn open(&mut self, inside: Inside, anchor: usize, tag: Option<&Tag>, position: Position) -> Result<(), Fault> {
        self.refuse_as_key(position)?;
        is_string_tag(tag, position)?;
        if self.open.len() == DEEPEST {
            let message = format!("values are nested more than {DEEPEST} deep: no file for this program is that deep");
            return Err(Fault::new(FieldPath::ROOT, message).at(position));
        }
        self.open.push(Open { position, anchor, inside });
        Ok(())
    }

    /// The list that begins here.
    fn list(&self, anchor: usize) -> Inside {
        match (&self.apart, self.open.as_slice()) {
            (Some(apart), [Open { anchor: 0, inside: Inside::Mapping { key: Some((key, _)), .. }, .. }])
                if anchor == 0 && key == apart.field =>
            {
                Inside::Apart(0)
            }
            _ => Inside::List(Vec::new()),
        }
    }

    /// Puts a finished node where it belongs: into the innermost open collection.
    fn place(&mut self, node: Node, anchor: usize) -> Result<(), Fault> {
        if anchor > 0 {
            self.may_copy(node.size(), node.position)?;
            self.anchors.insert(anchor, node.clone());
        }
        if let Some(first) = self.known_key() {
            let message = format!("is already there at line {}: leave one of the two", first.line);
            let fault = Fault::new(self.field(), message).in_file(self.file);
            if let Some(Open { inside: Inside::Mapping { key, .. }, .. }) = self.open.last_mut()
                && let Some((_, position)) = key.take()
            {
                self.parsed.faults.push(fault.at(position));
            }
            return Ok(());
        }
        match self.open.last_mut().map(|open| &mut open.inside) {
            // Nothing between two `---` is no document, as kubectl has it.
            None if node.value == Value::Null => {}
            None => self.parsed.documents.push(node),
            Some(Inside::List(nodes)) => nodes.push(node),
            Some(Inside::Apart(count)) => {
                *count += 1;
                if let Some(apart) = &mut self.apart {
                    (apart.take)(self.parsed.documents.len(), node);
                }
            }
            Some(Inside::Mapping { entries, keys, key }) => {
                let (key, key_position) = key.take().expect("the parser gives a key before each value");
                keys.insert(key.clone(), key_position);
                entries.push(Entry { key, key_position, value: node });
            }
        }
        Ok(())
    }

    /// Where the key of the value that comes next stands already.
    fn known_key(&self) -> Option<Position> {
        let Inside::Mapping { keys, key: Some((key, _)), .. } = &self.open.last()?.inside else { return None };
        keys.get(key).copied()
    }

    /// The way to the value that comes next.
    fn field(&self) -> FieldPath {
        self.open.iter().fold(FieldPath::ROOT, |path, open| match &open.inside {
            Inside::List(nodes) => path.entry(nodes.len()),
            Inside::Apart(count) => path.entry(*count),
            Inside::Mapping { key: Some((key, _)), .. } => path.field(key),
            Inside::Mapping { key: None, .. } => path,
        })
    }

    fn refuse_as_key(&self, position: Position) -> Result<(), Fault> {
        match self.open.last() {
            Some(Open { inside: Inside::Mapping { key: None, .. }, .. }) => {
                let message = "has a list or mapping as the key of a field: it takes text";
                Err(Fault::new(self.field(), message).at(position))
            }
            _ => Ok(()),
        }
    }
}

fn position(marker: &Marker) -> Position {
    // The parser counts lines from 1 and columns from 0.
    Position { line: marker.line(), column: marker.col() + 1 }
}

/// Whether the tag makes text of what follows.
fn is_string_tag(tag: Option<&Tag>, position: Position) -> Result<bool, Fault> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.is_yaml_core_schema() && tag.suffix == "str" => Ok(true),
        Some(tag) if tag.is_yaml_core_schema() => Ok(false),
        Some(tag) => {
            Err(Fault::new(FieldPath::ROOT, format!("the tag {tag} has no meaning here: leave it out")).at(position))
        }
    }
}

/// What a plain scalar is (YAML 1.2.2 §10.3.2).
fn resolve(text: Cow<'_, str>) -> Value {
    match text.as_ref() {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Boolean(true),
        "false" | "False" | "FALSE" => Value::Boolean(false),
        written => match number(written) {
            Some(number) => Value::Number(number, text.into_owned()),
            None => Value::Text(text.into_owned()),
        },
    }
}

fn number(text: &str) -> Option<Number> {
    let of_radix = |digits: &str, radix| {
        let is_digits = digits.chars().all(|c| c.is_digit(radix));
        is_digits.then(|| u64::from_str_radix(digits, radix).ok()).flatten().map(Number::from)
    };
    if let Some(digits) = text.strip_prefix("0x") {
        return of_radix(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return of_radix(digits, 8);
    }
    if !text.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c)) || !text.contains(|c: char| c.is_ascii_digit())
    {
        return None;
    }
    let whole = text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
    whole.ok().or_else(|| Number::from_f64(text.parse().ok()?))
}

/// Whether a text is a number too large to be one here; such a plain scalar is text.
pub(super) fn is_beyond_numbers(text: &str) -> bool {
    let are_digits = |digits: &str, radix| !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    let is_whole = text.strip_prefix("0x").is_some_and(|digits| are_digits(digits, 16))
        || text.strip_prefix("0o").is_some_and(|digits| are_digits(digits, 8));
    let is_infinite = || text.parse::<f64>().is_ok_and(f64::is_infinite) && text.contains(|c: char| c.is_ascii_digit());
    number(text).is_none() && (is_whole || is_infinite())
}

fn syntax_fault(error: &ScanError) -> Fault {
    let info = error.info();
    let hint = if info.contains("tab") {
        "indent with spaces"
    } else if info.contains("anchor") || info.contains("alias") {
        "put a text that starts with & or * in quotes"
    } else if info.contains("quote") {
        "close the quotes"
    } else {
        "look at the indentation, colons and quotes here and on the line before"
    };
    Fault::new(FieldPath::ROOT, format!("is not YAML ({info}): {hint}")).at(position(error.marker()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Parsed {
        parse(Path::new("f.yaml"), text)
    }

    fn faults(text: &str) -> String {
        parsed(text).faults.to_string()
    }

    #[test]
    fn values_know_what_they_are_and_where() {
        let text = "a: 1\nb: [x, 'true', true, ~, 1.5, 0x10, fd00::1]\nc:\n  d: \"7\"\n  e: !!str 7\n";
        let document = &parsed(text).documents[0];
        let json = serde_json::json!({
            "a": 1, "b": ["x", "true", true, null, 1.5, 16, "fd00::1"], "c": {"d": "7", "e": "7"}
        });
        assert_eq!(document.to_json(), json);
        let at = |field: &FieldPath| document.position_of(field);
        assert_eq!(at(&FieldPath::of("b").entry(2)), Position { line: 2, column: 16 });
        assert_eq!(at(&FieldPath::of("c").field("d")), Position { line: 4, column: 6 });
        assert_eq!(at(&FieldPath::of("c").field("none")), at(&FieldPath::of("c")));
        assert_eq!(at(&FieldPath::of("none")), Position { line: 1, column: 1 });
    }

    #[test]
    fn each_key_of_a_mapping_is_found_however_many_there_are() {
        for count in [0, 1, Mapping::FEW, Mapping::FEW + 1, 1000] {
            // Not in the order of the keys.
            let lines: String = (0..count).map(|index| format!("k{}: {index}\n", index * 7 % 1000)).collect();
            let found = parsed(&format!("{{}}\n---\nlast: x\n{lines}last: y\n"));
            let document = &found.documents[1];
            for index in 0..count {
                let node = document.get(&format!("k{}", index * 7 % 1000)).expect("the key was written");
                assert_eq!((node.position.line, node.to_json()), (4 + index, index.into()), "{count}");
            }
            assert_eq!((document.text("last"), document.get("none"), document.get("")), (Some("x"), None, None));
            let want = format!("f.yaml:{}:1: last: is already there at line 3: leave one of the two", 4 + count);
            assert_eq!(found.faults.to_string(), want);
        }
    }

    #[test]
    fn the_entries_of_one_list_are_handed_out_one_by_one() {
        use serde_json::json;

        let text = "a: [x]\nb: 1\n---\n---\nb: [{a: [y]}]\na:\n- 1\n- &n {a: [z]}\n---\na: &l [1]\nb: *l\n---\n[a]\n--- &whole\na: [1]\n";
        let mut taken = Vec::new();
        let mut take = |document, node: Node| taken.push((document, node.position.line, node.to_json()));
        let left = parse_apart(Path::new("f.yaml"), text, "a", &mut take);
        assert_eq!(taken, [(0, 1, json!("x")), (1, 7, json!(1)), (1, 8, json!({"a": ["z"]}))]);
        let left: Vec<_> = left.documents.iter().map(Node::to_json).collect();
        let want = [
            json!({"a": [], "b": 1}),
            json!({"a": [], "b": [{"a": ["y"]}]}),
            json!({"a": [1], "b": [1]}),
            json!(["a"]),
            json!({"a": [1]}),
        ];
        assert_eq!(left, want);
        let broken = parse_apart(Path::new("f.yaml"), "a: [1, {b: 1, b: 2}]\n", "a", &mut |_, _| {});
        assert_eq!(broken.faults, parsed("a: [1, {b: 1, b: 2}]\n").faults);
    }

    #[test]
    fn a_file_holds_several_documents_and_empty_ones_do_not_count() {
        let several = parsed("---\na: 1\n---\n# nothing\n---\nb: 2\n");
        assert_eq!(several.documents.len(), 2);
        assert!(several.faults.is_empty());
        assert_eq!(several.documents[1].position, Position { line: 6, column: 1 });
    }

    #[test]
    fn aliases_repeat_what_they_name() {
        let document = &parsed("a: &x {k: 1}\nb: *x\n").documents[0];
        assert_eq!(document.to_json(), serde_json::json!({"a": {"k": 1}, "b": {"k": 1}}));
    }

    #[test]
    fn what_is_no_yaml_is_told_with_its_place() {
        for (text, want) in [
            ("", "f.yaml: is empty: it takes at least one YAML document"),
            ("# nothing\n---\n", "f.yaml: is empty: it takes at least one YAML document"),
            (
                "a:\n\t- b\n",
                "f.yaml:2:2: is not YAML (tabs disallowed within this context (block indentation)): indent with spaces",
            ),
            (
                "a: \"b\n",
                "f.yaml:1:4: is not YAML (while scanning a quoted scalar, found unexpected end of stream): close the quotes",
            ),
            (
                "a: 1\n b: 2\n",
                "f.yaml:2:3: is not YAML (mapping values are not allowed in this context): look at the indentation, colons and quotes here and on the line before",
            ),
            (
                "a: *none\n",
                "f.yaml:1:4: is not YAML (while parsing node, found unknown anchor): put a text that starts with & or * in quotes",
            ),
            ("a: &x [*x]\n", "f.yaml:1:8: a[0]: repeats a value from inside that value: write it out"),
            (
                "a: 1\nb: {c: 1, c: 2}\na: 3\n",
                "f.yaml:2:11: b.c: is already there at line 2: leave one of the two\nf.yaml:3:1: a: is already there at line 1: leave one of the two",
            ),
            ("? [a]\n: 1\n", "f.yaml:1:3: has a list or mapping as the key of a field: it takes text"),
            ("a: !secret b\n", "f.yaml:1:4: the tag !secret has no meaning here: leave it out"),
        ] {
            assert_eq!(faults(text), want, "{text:?}");
        }
    }

    #[test]
    fn documents_before_a_syntax_error_are_kept() {
        let broken = parsed("a: 1\n---\nb: [\n");
        assert_eq!(broken.documents.len(), 1);
        assert_eq!(broken.faults.len(), 1);
    }

    #[test]
    fn depth_and_repetition_are_bounded() {
        let told = faults(&"[".repeat(200));
        assert!(told.ends_with("nested more than 64 deep: no file for this program is that deep"), "{told}");
        assert_eq!(parsed(&"[".repeat(100_000)).faults.len(), 1);
        let bomb: String = (1..30).map(|i| format!("- &x{i} [*x{}, *x{}]\n", i - 1, i - 1)).collect();
        let told = faults(&format!("- &x0 [0, 0, 0, 0]\n{bomb}"));
        let want =
            "anchors and aliases repeat more than 100000 values or 8 MiB of text: write them out or split the file";
        assert!(told.ends_with(want), "{told}");
        let of_text = format!("- &a {}\n- [{}]\n", "x".repeat(1024 * 1024), "*a, ".repeat(10));
        assert!(faults(&of_text).ends_with(want), "{}", faults(&of_text));
        let nested: String = (0..60).map(|i| format!("&n{i} [")).collect();
        let nested = format!("- {nested}{}{}", "0, ".repeat(5_000), "]".repeat(60));
        assert!(faults(&nested).ends_with(want), "{}", faults(&nested));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}") {
            parsed(&text);
        }

        #[test]
        fn no_text_made_of_yaml_panics(text in "([-?:,\\[\\]{}#&*!|>'\"%@` \n\ta1~]|---\n|: |- ){0,100}") {
            parsed(&text);
        }
    }
}
