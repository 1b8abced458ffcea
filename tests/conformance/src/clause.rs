//! The clauses of `spec/protocol.md`, which failures quote.

/// The specification's page of clauses. In this folder it is a link to `spec/protocol.md`.
const PAGE: &str = include_str!("../protocol.md");

/// Returns the rule of clause `id`, such as `W-5`: its text without the notes on peers. `None` if there is no such clause.
pub fn rule(id: &str) -> Option<String> {
    let start = format!("**{id}** ");
    let mut lines = PAGE.lines().skip_while(|line| !line.starts_with(&start));
    let first = lines.next()?.strip_prefix(&start)?;
    // A line of the rule may begin with an emphasised word.
    let is_rule = |line: &&str| {
        !line.is_empty()
            && !["*page", "*peers", "*here", "|", "#"].iter().any(|other| line.starts_with(other))
    };
    let rest = lines.take_while(is_rule);
    Some([first].into_iter().chain(rest).collect::<Vec<_>>().join(" "))
}

/// How binding clause `id` is: the strongest of `MUST`, `SHOULD` and `MAY` in its rule. A rule without any of them describes
/// what is sent, and binds like `MUST`. `None` if there is no such clause.
pub fn level(id: &str) -> Option<&'static str> {
    let rule = rule(id)?;
    let said = |word: &&str| rule.split(|c: char| !c.is_ascii_alphabetic()).any(|other| other == *word);
    Some(["MUST", "SHOULD", "MAY"].into_iter().find(said).unwrap_or("MUST"))
}

/// What clause `id` rests on: `page` if Valkey's published page speaks of it; `practice` if that page is silent, and the rule
/// follows from what peers do and need; `unstated` if the clause does not say which. `None` if there is no such clause.
pub fn basis(id: &str) -> Option<&'static str> {
    let start = format!("**{id}** ");
    let entry = PAGE.lines().skip_while(|line| !line.starts_with(&start)).take_while(|line| !line.is_empty());
    let entry = entry.collect::<Vec<_>>().join(" ");
    if entry.is_empty() {
        return None;
    }
    let Some((_, page)) = entry.split_once("*page") else { return Some("unstated") };
    let said = page.split_once('*').map_or("", |(_, said)| said.trim_start());
    Some(if said.starts_with("silent") || said.starts_with("no ") { "practice" } else { "page" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_the_strongest_word_of_the_rule() {
        assert_eq!(
            [level("M-1"), level("H-4"), level("M-4"), level("Z-1")],
            [Some("MUST"), Some("SHOULD"), Some("MUST"), None]
        );
    }

    #[test]
    fn the_basis_is_practice_where_the_page_is_silent() {
        assert_eq!(
            [basis("M-1"), basis("H-1"), basis("H-6"), basis("H-4"), basis("Z-1")],
            [Some("page"), Some("practice"), Some("unstated"), Some("practice"), None]
        );
    }

    #[test]
    fn a_rule_is_its_clauses_text_without_the_notes() {
        let rule = rule("M-3").expect("the clause exists");
        assert_eq!(rule, "A SEND with an immediate is a SEND; its immediate is ignored.");
    }

    #[test]
    fn every_clause_that_a_case_cites_has_a_rule() {
        let server = crate::server::cases().map(|case| case.clause);
        let client = crate::client::CASES.iter().map(|case| case.clause);
        let without: Vec<_> = server.chain(client).filter(|id| rule(id).is_none()).collect();
        assert!(without.is_empty(), "{without:?}");
    }
}
