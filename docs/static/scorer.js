// Search shows the methods of `.dp` before the functions of the same names: Sphinx sorts equal scores by name.
var Scorer = {
  score: ([page, title, anchor, description, score]) => score + (title.startsWith("polars.Expr.dp.") ? 1 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
