//! Truth values as people write them.

/// Reads one as Go's `strconv.ParseBool` does, and with it Kubernetes' own components: `true`, `True`, `TRUE`, `t`, `T`, `1`,
/// and the same of false. `None` is neither.
pub fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truth_is_spelt_as_go_spells_it() {
        for (text, want) in [
            ("true", Some(true)),
            ("True", Some(true)),
            ("1", Some(true)),
            ("F", Some(false)),
            ("false", Some(false)),
            ("yes", None),
            ("tRUE", None),
            ("", None),
        ] {
            assert_eq!(truth(text), want, "{text:?}");
        }
    }
}
