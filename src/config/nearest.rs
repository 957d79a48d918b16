//! The word someone most likely meant.

/// The candidate nearest to `word`, unless none is near enough to be a slip of the fingers.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    // A slip in three letters is likely, a whole different word is not.
    let limit = 1 + word.chars().count() / 4;
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= limit && *distance < candidate.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours that make one text of the other
/// (optimal string alignment).
fn distance(one: &str, other: &str) -> usize {
    // A long text is no slip of anything; its table would be large.
    const LONGEST: usize = 64;
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    if one.len() > LONGEST || other.len() > LONGEST {
        return usize::MAX;
    }
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_other_words_are_not() {
        let states = ["planned", "active", "maintenance", "decommissioned"];
        for (word, want) in [
            ("acitve", Some("active")),
            ("Active", Some("active")),
            ("decomissioned", Some("decommissioned")),
            ("maintenence", Some("maintenance")),
            ("retired", None),
            ("", None),
            ("a", None),
        ] {
            assert_eq!(nearest(word, states), want, "{word:?}");
        }
        assert_eq!(nearest("peerASN", ["peerAsn", "localAsn"]), Some("peerAsn"));
    }
}
