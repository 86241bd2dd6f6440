// Which pages the site's search shows first: those that say how to do something before those that say why.
// Sphinx itself orders pages that have a word by their titles alone, so that decisions, whose titles begin with
// numbers, stood before everything else. docs/search.py reads the table below.
var Scorer = {
  rooms: {
    "tutorials/": 4,
    "how-to/": 4,
    "reference/": 3,
    "explanation/": 2,
    "project/": 1,
    "project/changelog": -4,
    "decisions/": -3,
    "": 0,
  },
  score: (result) => {
    const rooms = Object.keys(Scorer.rooms).filter((room) => result[0].startsWith(room));
    const longest = rooms.reduce((a, b) => (b.length > a.length ? b : a));
    return result[4] + Scorer.rooms[longest];
  },
  // What follows is Sphinx's.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
