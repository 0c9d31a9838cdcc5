"""headway config: the settings that hold here, and where each comes from."""

from __future__ import annotations

from headway.base.config import SETTINGS
from headway.cli import options
from headway.cli.output import print_json, stdout, table


def config(
    json: options.Json = False,
    store: options.Store = None,
    master: options.Master = None,
    file: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Print every setting with its value and where that comes from."""
    settings = options.settings_from(file, assignments, store=store, master=master)
    told = [
        {
            "name": each.name,
            "value": settings.text(each.name),
            "origin": settings.origin(each.name),
            "doc": each.doc,
        }
        for each in SETTINGS
    ]
    if json:
        print_json({"settings": told})
        return
    shown = table("setting", "value", "from", "what it does")
    for row in told:
        shown.add_row(row["name"], row["value"], row["origin"], row["doc"].replace("`", ""))
    stdout().print(shown)
