//! The clauses of `spec/protocol.md`, which failures quote.

/// The specification's page of clauses. In this folder it is a link to `spec/protocol.md`.
const PAGE: &str = include_str!("../protocol.md");

/// Returns the rule of clause `id`, such as `W-5`: its text without the notes on peers. `None` if there is no such clause.
pub fn rule(id: &str) -> Option<String> {
    let start = format!("**{id}** ");
    let mut lines = PAGE.lines().skip_while(|line| !line.starts_with(&start));
    let first = lines.next()?.strip_prefix(&start)?;
    let rest = lines.take_while(|line| !line.is_empty() && !line.starts_with(['*', '|', '#']));
    Some([first].into_iter().chain(rest).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_its_clauses_text_without_the_notes() {
        let rule = rule("M-1").expect("the clause exists");
        assert_eq!(rule, "A control message MUST be exactly 32 bytes, sent as one SEND.");
    }

    #[test]
    fn every_clause_that_a_case_cites_has_a_rule() {
        let server = crate::server::cases().map(|case| case.clause);
        let client = crate::client::CASES.iter().map(|case| case.clause);
        let without: Vec<_> = server.chain(client).filter(|id| rule(id).is_none()).collect();
        assert!(without.is_empty(), "{without:?}");
    }
}
