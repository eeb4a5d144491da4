from itertools import combinations, product

import pytest

from unifiednn_core.base.errors import BadInput
from unifiednn_core.spec.sharing import DEFAULT, PERMISSION, Party, Sharing, SharingRule

PEOPLE = ("", "alice", "bob")
TEAMS = (None, "red", "blue")
SETS = [people for size in range(len(PEOPLE) + 1) for people in combinations(PEOPLE, size)]
RULES = [
    SharingRule(sharing, {person: team for person, team in zip(PEOPLE, teams, strict=True) if team is not None})
    for sharing in Sharing
    for teams in product(TEAMS, repeat=len(PEOPLE))
]


def together(rule: SharingRule, one: str, other: str) -> bool:
    """Whether two people may share a process, in the words of the documentation."""
    if one == other or rule.sharing is Sharing.EVERYONE:
        return True
    return rule.sharing is Sharing.TEAM and one in rule.teams and rule.teams[one] == rule.teams.get(other)


def test_people_may_share_a_process_if_each_two_of_them_may() -> None:
    for rule, people in product(RULES, SETS):
        assert rule.may_share(people) == all(together(rule, *pair) for pair in combinations(people, 2)), (rule, people)


def test_whoever_has_the_same_circle_may_share_so_hybrids_can_be_composed_by_it() -> None:
    for rule, one, other in product(RULES, PEOPLE, PEOPLE):
        assert (rule.circle(one) == rule.circle(other)) == rule.may_share((one, other))


def test_each_setting_allows_what_the_stricter_one_allows() -> None:
    for rule, people in product(RULES, SETS):
        allowed = [SharingRule(sharing, rule.teams).may_share(people) for sharing in Sharing]
        assert allowed == sorted(allowed)


def test_a_refusal_and_a_wait_name_the_people_and_exactly_the_forbidden_get_them() -> None:
    for rule, people in product(RULES, SETS):
        told = rule.permission_for(people)
        parties = [Party(person, f"submodels.{place}.owner") for place, person in enumerate(people)]
        if rule.may_share(people):
            rule.require(parties)
            assert told is None
            continue
        assert told is not None and told.startswith(PERMISSION)
        assert all((person or "the local operator") in told for person in people)
        with pytest.raises(BadInput) as raised:
            rule.require(parties)
        named = {finding.field: finding for finding in raised.value.findings}
        outside = [party for party in parties if not together(rule, parties[0].person, party.person)]
        assert list(named) == [party.field for party in outside]
        for party in outside:
            assert (party.person or "the local operator") in named[party.field].message and named[party.field].remedy


def test_a_wrong_setting_is_refused_with_the_valid_ones_and_the_default_is_a_team() -> None:
    assert [Sharing.of(name) for name in ("own", "team", "everyone")] == list(Sharing)
    assert SharingRule().sharing is DEFAULT is Sharing.TEAM
    with pytest.raises(BadInput, match="own, team, everyone"):
        Sharing.of("nobody")
