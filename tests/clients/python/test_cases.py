"""Every case of cases.json, on each of its transports, with threads and with asyncio."""
import json
import pathlib

import pytest

import answer_cases
import callback_cases
import cases
import declared_cases
import end_cases
import error_cases
import give_up_cases
import hand_over_cases
import leader_cases
import look_cases
import nested_cases
import object_cases
import priority_cases
import release_cases
import retry_cases
import secure_cases
import shared_cases
import sql_cases
import tick_cases
import together_cases
import torn_cases
import transaction_cases
from apis import APIS

MODULES = (answer_cases, callback_cases, cases, declared_cases, end_cases, error_cases, give_up_cases, hand_over_cases, leader_cases, look_cases, nested_cases, object_cases, priority_cases, release_cases, retry_cases, secure_cases, shared_cases, sql_cases, tick_cases, together_cases, torn_cases, transaction_cases)
TABLES = json.loads((pathlib.Path(__file__).resolve().parents[1] / "cases.json").read_text())
ALL = [(case["name"], f"{case['name']}-{transport}-{api}") for case in TABLES["cases"]
       if "python" in case.get("only", ["python"]) and case["name"] not in TABLES["left_out"]["python"]
       for transport in case["on"] for api in APIS]


@pytest.mark.parametrize("name", [pytest.param(name, id=words) for name, words in ALL])
def test_case(name, place):
    next(vars(module)[name] for module in MODULES if name in vars(module))(place)
