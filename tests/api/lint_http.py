"""Examine HTTP responses with REDbot: run by its own Python, without the service.

Standard input has one URL per line; standard output has a JSON object for each: the URL, the
status, and the notes as pairs of level and text.
"""

import json
import sys
from configparser import ConfigParser
from typing import Any

import thor
from redbot.resource import HttpResource


def examine(url: str, on_done: Any) -> None:
    config = ConfigParser()
    config.read_dict({"redbot": {"enable_local_access": "True"}})
    resource = HttpResource(config["redbot"])
    resource.set_request(url)

    def report() -> None:
        notes = [[note.level.value, note.summary] for note in resource.response.notes]
        status = resource.response.status_code
        print(json.dumps({"url": url, "status": status, "notes": notes}), flush=True)
        on_done()

    resource.on("check_done", report)
    resource.check()


def main() -> None:
    urls = [line.strip() for line in sys.stdin]

    def examine_next() -> None:
        if urls:
            examine(urls.pop(0), examine_next)
        else:
            thor.stop()

    thor.schedule(0, examine_next)
    thor.run()


if __name__ == "__main__":
    main()
