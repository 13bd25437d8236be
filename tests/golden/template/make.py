"""What transformers' apply_chat_template makes of the templates in programs.py.

python make.py writes cases.json beside it, python make.py DIR into DIR. Each case has a template, the number of its
variables, and the text and the spans of {% generation %} in characters, or "error": true. Errors of undefined variables
and of raise_exception have their "message" besides.

transformers 5.24.0, jinja2 3.1.6, Python 3.11.
"""
import datetime
import json
import os
import sys

import jinja2
from transformers.utils import chat_template_utils as utils

from programs import CASES


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 3, 9, 5, 7, 8)


utils.datetime = Clock
TIME = int(datetime.datetime(2025, 3, 9, 5, 7, 8, tzinfo=datetime.timezone.utc).timestamp())


def render(template, variables):
    """Text and spans of a case, or its error."""
    compiled = utils._cached_compile_jinja_template(template)
    variables = utils._plain_template_data(variables)
    blocks, spans = [], []
    with compiled.environment.activate_tracker(blocks, spans):
        for block in compiled.generate(**variables):
            blocks.append(block)
    text = "".join(blocks)
    text.encode("utf-8")
    return text, spans


def outcome(template, variables):
    try:
        text, spans = render(template, variables)
    except jinja2.exceptions.UndefinedError as error:
        return {"error": True, "message": str(error)}
    except jinja2.exceptions.TemplateError as error:
        raised = type(error) is jinja2.exceptions.TemplateError
        return {"error": True, "message": str(error)} if raised else {"error": True}
    except Exception:
        return {"error": True}
    return {"text": text, "spans": [list(span) for span in spans]} if spans else {"text": text}


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    sets, rows = [], []
    for template, variables in CASES:
        if variables not in sets:
            sets.append(variables)
        case = {"template": template, "variables": sets.index(variables), **outcome(template, variables)}
        rows.append(json.dumps(case, ensure_ascii=False))
    with open(os.path.join(folder, "cases.json"), "w", encoding="utf-8") as file:
        file.write('{"time": %d,\n"variables": [\n%s\n],\n"cases": [\n%s\n]}\n' % (
            TIME, ",\n".join(json.dumps(each, ensure_ascii=False) for each in sets), ",\n".join(rows)))


if __name__ == "__main__":
    main()
