// The page that a reader means by a word, before all others that have it. Both are checked by tests/browser/check_docs.py.
const MEANT = {
  "confidence interval": "epsilon", guarantee: "ten_minutes", unbounded: "glossary", bounded: "glossary", clamp: "limits",
  clamping: "limits", clipping: "limits", contribution: "limits", "partition selection": "groups", median: "choose",
  "top k": "choose", noise: "mechanisms", budget: "budgets", ledger: "budgets", synthetic: "synthetic", join: "people",
  duckdb: "databases", postgres: "databases", spark: "spark", opendp: "opendp", cube: "cubes", epsilon: "epsilon",
};
const sought = (new URLSearchParams(location.search).get("q") ?? "").trim().toLowerCase().replaceAll(/\s+/g, " ");
// Methods of `.dp` come before the functions of the same names: Sphinx sorts equal scores by name.
var Scorer = {
  score: ([page, title, anchor, description, score]) =>
    score + (title.startsWith("polars.Expr.dp.") ? 1 : 0) + (page === MEANT[sought] ? (anchor ? 100 : 200) : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
