"""The site on one copy of the fixed store, and requests to it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from starlette.testclient import TestClient

from holdfast.domain.access.roles import Role
from tests.snapshots.requests import Ask

BASE = "/api/v1"


class Site:
    """The site on one copy of the store."""

    def __init__(self, site: Any, tokens: dict[str, str]) -> None:
        address = ("127.0.0.1", 50000)
        self.client = TestClient(site, base_url="http://localhost", follow_redirects=False, client=address)
        self._site = site
        self._tokens = tokens
        self._words = {f"{{{role}}}": token for role, token in tokens.items()}

    def send(self, method: str, ask: Ask, base: str) -> Any:
        """The answer to one request."""
        self.client.cookies.clear()
        headers = {**self._door(ask.role), **ask.headers}
        if isinstance(ask.body, str):
            return self.client.request(method, base + ask.path, content=ask.body, headers=headers)
        body = self._filled(ask.body)
        if base or body is None:
            return self.client.request(method, base + ask.path, json=body, headers=headers)
        if ask.role is not None:
            body = {"form_token": self._form_token(headers), **body}
        return self.client.request(method, ask.path, data=body, headers=headers)

    def _door(self, role: str | None) -> dict[str, str]:
        """The headers of somebody with a role; who has a session signs in first."""
        if role is None:
            return {}
        if role == "session":
            assert self.client.post("/login", data={"token": self._tokens["admin"]}).status_code == 303
            return {}
        return {"authorization": f"Bearer {self._tokens[role]}"}

    def _form_token(self, headers: dict[str, str]) -> str:
        found = re.search(r'name="form_token" value="([^"]+)"', self.client.get("/inboxes", headers=headers).text)
        return found[1] if found else ""

    def _filled(self, body: Any) -> Any:
        """The body with the words in braces filled in."""
        if body is None:
            return None
        return {name: self._word(value) if isinstance(value, str) else value for name, value in body.items()}

    def _word(self, text: str) -> str:
        if text in ("{errors}", "{units}"):
            path = "/errors" if text == "{errors}" else "/batches/1"
            answer = self.client.get(f"{BASE}{path}", headers=self._door("admin"))
            return str(answer.json()["data"]["clusters"][0]["key"])
        if text == "{link}":
            return str(self._site.app.store.sessions.add_link(Role.ADMIN, lifetime=timedelta(hours=1)))
        return self._words.get(text, text)
