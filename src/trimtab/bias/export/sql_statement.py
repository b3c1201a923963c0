"""SQL that applies biases where lists live: the rows, order and scores of `ItemBias.apply`.

A statement is a chain of steps, each a common table expression:

    trimtab_entries   entries of the lists, with bias, and whether they may be shown
    trimtab_places    the place of each entry by the engine's score, and whether it is re-ranked
    ...               keys: scores on the scale of the biases (see `kernels/`)
    trimtab_ranked    the ranking by key plus bias
    trimtab_scored    keys as scores again

Every operation on numbers is the one that the kernels do, in the same order, so that the results
are the same to the last bit wherever ln and exp are.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent, indent

import numpy as np

from trimtab.bias.depth import choose_depth
from trimtab.bias.export.sql_names import DIALECTS, Dialect, SqlNames, SqlTables, number
from trimtab.bias.export.sql_scales import Steps, key_steps, score_steps
from trimtab.bias.strength import require_strength
from trimtab.bias.table import BiasTable
from trimtab.checks import require_choice, require_k


def write_statement(
    bias: BiasTable, dialect: str, k: int, tables: SqlTables, depth: int | str | None,
    strength: float,
) -> str:  # fmt: skip
    """Return a statement that gives what `ItemBias.apply` gives.

    Args:
        bias: biases of the scale, depth and kind of ids that the table in the database has.
        dialect: name of the database.
        k: slots per user.
        tables: names in the database.
        depth: as in `ItemBias.apply`.
        strength: factor of all biases.
    """
    require_choice("dialect", dialect, tuple(DIALECTS))
    require_k(k)
    deepest = choose_depth(bias, depth)
    database = DIALECTS[dialect]
    names = SqlNames.of(tables, database)
    is_text = not isinstance(bias.item_ids, np.ndarray)
    item = f"item{database.by_code_point}" if is_text else "item"
    writer = _Writer(database, names, bias, k, deepest, require_strength(strength), item)
    steps = ",\n".join(f"{name} as (\n{indent(dedent(text).strip(), '  ')}\n)"
                       for name, text in writer.steps())  # fmt: skip
    about = f"-- The top {k} of every user, re-ranked with the biases (scale: {bias.scale})."
    return f"{about}\nwith\n{steps}\n{dedent(writer.result()).strip()}\n"


@dataclass(frozen=True)
class _Writer:
    """The steps of one statement."""

    database: Dialect
    names: SqlNames
    bias: BiasTable
    k: int
    depth: int | None
    strength: float
    item: str  # in the order of ids

    def steps(self) -> Steps:
        """Return the steps, each with its name."""
        steps = self._entries()
        steps.append(("trimtab_places", self._places(steps[-1][0])))
        steps += key_steps(self.bias.scale, self.bias.summary.k)
        steps.append(("trimtab_ranked", self._ranked()))
        return [*steps, *score_steps(self.bias.scale, self.k)]

    def result(self) -> str:
        """Return the last select. What lies below the depth never scores above what is above."""
        names, score = self.names, "score"
        if self.depth is not None:
            last = "over (partition by list_user order by part, place desc)"
            score = (
                f"case when part = 0 or first_value(part) {last} = 1 then score\n"
                f"    else least(score, first_value(score) {last}) end"
            )
        return (
            f"select list_user as {names.user}, item as {names.item},\n"
            f"  {score} as {names.score},\n  place as {names.rank}\n"
            f"from trimtab_scored\norder by 1, 4"
        )

    def _double(self, column: str) -> str:
        return f"cast({column} as {self.database.double})"

    def _bias(self) -> str:
        """The bias of a row of biases; it is NULL where a list has an item that is not there."""
        bias = f"coalesce({self._double('b.' + self.names.bias)}, 0e0)"
        return bias if self.strength == 1 else f"{number(self.strength)} * {bias}"

    def _may_be_shown(self, by_user: bool) -> str:
        """Whether a row may be shown; with strength 0, excluded items may be."""
        rules = []
        if self.strength:
            rules.append(f"not coalesce(b.{self.names.excluded}, false)")
        if self.names.allowed is not None:
            rules.append("a.allowed_item is not null")
        if self.names.exclude is not None and by_user:
            rules.append("h.hidden_item is null")
        return " and ".join(rules) or "true"

    def _join_allowed(self, item: str) -> str:
        names = self.names
        if names.allowed is None:
            return ""
        return (
            f"\nleft join (select distinct {names.item} as allowed_item from {names.allowed}) as a"
            f"\n  on a.allowed_item = {item}"
        )

    def _join_hidden(self, user: str, item: str) -> str:
        names = self.names
        if names.exclude is None:
            return ""
        return (
            f"\nleft join (\n  select distinct {names.user} as hidden_user, {names.item} as "
            f"hidden_item from {names.exclude}\n) as h "
            f"on h.hidden_user = {user} and h.hidden_item = {item}"
        )

    def _entries(self) -> Steps:
        names = self.names
        entries = (
            f"select l.{names.user} as list_user, l.{names.item} as item,\n"
            f"  {self._double('l.' + names.score)} as score,\n"
            f"  {self._bias()} as bias,\n"
            f"  {self._may_be_shown(by_user=True)} as may_be_shown\n"
            f"from {names.lists} as l\n"
            f"left join {names.biases} as b on b.{names.bias_item} = l.{names.item}"
            + self._join_allowed(f"l.{names.item}")
            + self._join_hidden(f"l.{names.user}", f"l.{names.item}")
        )
        steps = [("trimtab_entries", entries)]
        return [*steps, *self._unlisted()] if self.bias.unlisted == "zero" else steps

    def _unlisted(self) -> Steps:
        """Items with a positive bias, for all users whose list lacks them."""
        return [
            ("trimtab_raised", self._raised()),
            ("trimtab_users", self._users()),
            ("trimtab_widened", self._widened()),
        ]

    def _raised(self) -> str:
        names = self.names
        return (
            f"select item, bias, row_number() over (order by bias desc, {self.item}) as place\n"
            f"from (\n"
            f"  select b.{names.bias_item} as item, {self._bias()} as bias,\n"
            f"    {self._may_be_shown(by_user=False)} as may_be_shown\n"
            f"  from {names.biases} as b"
            + indent(self._join_allowed(f"b.{names.bias_item}"), "  ")
            + "\n) as every_bias\nwhere bias > 0 and may_be_shown"
        )

    def _users(self) -> str:
        """How many raised items hold the k best that a user neither has nor must not see."""
        names, hidden, join = self.names, "", ""
        if names.exclude is not None:
            hidden = " + coalesce(max(h.n_hidden), 0)"
            join = (
                f"\nleft join (\n  select {names.user} as hidden_user, count(*) as n_hidden\n"
                f"  from {names.exclude} group by {names.user}\n"
                f") as h on h.hidden_user = e.list_user"
            )
        return (
            f"select e.list_user, {self.k} + count(*){hidden} as enough\n"
            f"from trimtab_entries as e{join}\ngroup by e.list_user"
        )

    def _widened(self) -> str:
        hidden = "" if self.names.exclude is None else " and h.hidden_item is null"
        return (
            "select list_user, item, score, bias, may_be_shown from trimtab_entries\n"
            "union all\n"
            "select u.list_user, r.item, 0e0 as score, r.bias, true as may_be_shown\n"
            "from trimtab_users as u\n"
            "join trimtab_raised as r on r.place <= u.enough\n"
            "left join trimtab_entries as e on e.list_user = u.list_user and e.item = r.item"
            + self._join_hidden("u.list_user", "r.item")
            + f"\nwhere e.item is null{hidden}"
        )

    def _places(self, source: str) -> str:
        """The place by the engine's score, where needed, and part 1 for what is below the depth."""
        if self.depth is None and self.bias.scale != "list":
            return f"select e.*, 0 as part from {source} as e"
        place = f"row_number() over (partition by list_user order by score desc, {self.item})"
        part = "0" if self.depth is None else (
            f"case when engine_place > {self.depth} then 1 else 0 end"
        )  # fmt: skip
        return (
            f"select entries.*, {part} as part\nfrom (\n  select e.*, {place} as engine_place\n"
            f"  from {source} as e\n) as entries"
        )

    def _ranked(self) -> str:
        order = f"part, case when part = 0 then biased_key else score end desc, {self.item}"
        return (
            f"select biased.*,\n"
            f"  row_number() over (partition by list_user order by {order}) as place\n"
            f"from (select k.*, score_key + bias as biased_key from trimtab_keys as k) as biased\n"
            f"where may_be_shown"
        )
