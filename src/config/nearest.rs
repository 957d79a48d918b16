//! The word someone most likely meant.

/// The candidate nearest to `word`, unless none is near enough to be a slip of the fingers.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    // A slip in three letters is likely, a whole different word is not.
    let limit = 1 + word.chars().count() / 4;
    let word: Vec<char> = word.chars().collect();
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= 4 * (word.len() + limit))
        .filter_map(|candidate| {
            let written: Vec<char> = candidate.to_lowercase().chars().collect();
            let distance = distance(&word, &written, limit)?;
            (distance < written.len()).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// A long text is no slip of anything; its table would be large.
const LONGEST: usize = 64;

/// Insertions, deletions, replacements and swaps of neighbours that make one text of the other
/// (optimal string alignment), unless they are more than `limit`.
fn distance(one: &[char], other: &[char], limit: usize) -> Option<usize> {
    if one.len() > LONGEST || other.len() > LONGEST || one.len().abs_diff(other.len()) > limit {
        return None;
    }
    // The last three rows of the table are all that the next one needs.
    let mut rows = [[0_usize; LONGEST + 1]; 3];
    (0..=other.len()).for_each(|j| rows[0][j] = j);
    for i in 1..=one.len() {
        let (row, above, two_above) = (i % 3, (i + 2) % 3, (i + 1) % 3);
        rows[row][0] = i;
        let mut least = i;
        for j in 1..=other.len() {
            let replaced = rows[above][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut best = replaced.min(rows[above][j] + 1).min(rows[row][j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                best = best.min(rows[two_above][j - 2] + 1);
            }
            rows[row][j] = best;
            least = least.min(best);
        }
        // A swap looks back two rows, and what is beyond the limit in both stays beyond it.
        if least > limit + 1 {
            return None;
        }
    }
    Some(rows[one.len() % 3][other.len()]).filter(|distance| *distance <= limit)
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
        assert_eq!(nearest("teir", ["rack", "tier"]), Some("tier"), "two letters swapped are one slip");
        assert_eq!(nearest(&"x".repeat(64), [&*"x".repeat(65)]), None);
        assert_eq!(nearest("peerASN", ["peerAsn", "localAsn"]), Some("peerAsn"));
    }
}
