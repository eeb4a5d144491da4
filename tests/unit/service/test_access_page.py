import re
import tomllib

from tests.unit.service import access_table
from unifiednn_core.service.facade import PERMISSIONS
from unifiednn_core.service.roles import Role

TEXT = access_table.PAGE.read_text(encoding="utf-8")


def test_the_page_has_the_table_of_permissions_as_it_is() -> None:
    assert access_table.page(TEXT) == TEXT, "python -m tests.unit.service.access_table --write"
    assert sorted(access_table.named()) == sorted(PERMISSIONS), "each action stands behind one row"


def test_the_settings_on_the_page_can_be_read() -> None:
    [settings] = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    read = tomllib.loads(settings)
    assert set(read) == {"auth", "access"}
    assert set(read["access"]) == {"admins", "role_claim", "sign_in_hours", "roles"}
    assert [Role.of(role) for role in read["access"]["roles"].values()]
