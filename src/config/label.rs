//! Labels as Kubernetes takes them, so that a wrong one is told here and not by a refused patch.

/// What is wrong with the key of a label, or `None` when it is right.
pub fn key_fault(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let prefix_is_right = prefix.is_none_or(|prefix| prefix.len() <= 253 && prefix.split('.').all(is_dns_label));
    (!prefix_is_right || name.is_empty() || !is_label_text(name)).then(|| {
        format!(
            "{key:?} is not the key of a label: it takes 1 to 63 letters, digits, '-', '_' and '.', with a letter or \
             digit at both ends, and before it a domain and '/' if you like, such as example.net/owner"
        )
    })
}

/// What is wrong with the value of a label, or `None` when it is right.
pub fn value_fault(value: &str) -> Option<String> {
    (!is_label_text(value)).then(|| {
        format!(
            "{value:?} is not the value of a label: it takes up to 63 letters, digits, '-', '_' and '.', with a letter \
             or digit at both ends"
        )
    })
}

/// Whether the key belongs to Kubernetes itself.
pub fn is_reserved(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|domain| prefix.strip_suffix(domain).is_some_and(|below| below.is_empty() || below.ends_with('.')))
}

/// `k8s.io/apimachinery` `IsValidLabelValue`; empty is right.
fn is_label_text(text: &str) -> bool {
    let is_edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && is_edge(text.chars().next())
        && is_edge(text.chars().last())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// RFC 1123 label, the form of a namespace's name and of a Service's.
pub fn is_dns_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len()) && text.chars().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_kubernetes_are_known() {
        for (key, want) in [
            ("kubernetes.io/os", true),
            ("node.kubernetes.io/instance-type", true),
            ("node.k8s.io/x", true),
            ("notkubernetes.io/x", false),
            ("example.net/owner", false),
            ("owner", false),
        ] {
            assert_eq!(is_reserved(key), want, "{key}");
        }
    }

    #[test]
    fn keys_and_values_are_those_kubernetes_takes() {
        for (key, is_right) in [
            ("app", true),
            ("example.net/owner", true),
            ("a_b.c-d", true),
            ("", false),
            ("/owner", false),
            ("example.net/", false),
            ("Example.net/owner", false),
            ("a/b/c", false),
            ("-a", false),
        ] {
            assert_eq!(key_fault(key).is_none(), is_right, "{key:?}");
        }
        for (value, is_right) in [("", true), ("team-a", true), ("a b", false), ("-", false), (&"a".repeat(64), false)]
        {
            assert_eq!(value_fault(value).is_none(), is_right, "{value:?}");
        }
    }
}
