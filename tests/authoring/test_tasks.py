"""Tasks, their options and their order."""

import copy
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import dexaflow
import dexaflow.authoring
from dexaflow import DAG, bash, get_context, task
from dexaflow.authoring import AuthoringError, chain
from dexaflow.authoring.dag import dags_of
from dexaflow.kube.tolerations import Toleration
from dexaflow.model.dags import TaskSpec


@task
def extract(day: str = "today") -> list[int]:
    return [1, 2]


@task
def load(*rows: Any, **named: Any) -> None: ...


@pytest.fixture
def etl() -> Iterator[DAG]:
    with DAG("etl") as made:
        yield made


def specs(dag: DAG) -> dict[str, TaskSpec]:
    return {spec.task_id: spec for spec in dag.spec().tasks}


def test_passing_a_result_orders_the_tasks(etl: DAG) -> None:
    """Also where the result lies in lists and dicts."""
    first, second = extract(), extract("yesterday")
    load([first, {"more": (second,)}])

    assert specs(etl)["load"].upstream == ("extract", "extract__1")
    assert specs(etl)["load"].results_from == ("extract", "extract__1")


def test_arrows_order_tasks_and_lists_of_tasks(etl: DAG) -> None:
    a, b, c, d, e = (bash(name, "true") for name in "abcde")
    a >> [b, c] >> d
    e << [c, d]
    a.set_downstream(e)
    e.set_upstream([b])

    upstream = {task_id: spec.upstream for task_id, spec in specs(etl).items()}
    assert upstream == {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ("a", "b", "c", "d")}
    assert specs(etl)["e"].results_from == ()


def test_chain_is_arrows_between_all(etl: DAG) -> None:
    a, b, c, d = (bash(name, "true") for name in "abcd")
    chain(a, [b, c], d)

    assert [specs(etl)[t].upstream for t in "abcd"] == [(), ("a",), ("a",), ("b", "c")]


def test_the_same_function_called_again_gets_a_numbered_id(etl: DAG) -> None:
    """As in Airflow: the next number, whatever was called in between."""
    ids = [extract().task_id for _ in range(3)]
    named = extract.override(task_id="extract__7")()

    assert ids == ["extract", "extract__1", "extract__2"]
    assert named.task_id == "extract__7"
    assert extract().task_id == "extract__8"


def test_an_override_changes_only_what_it_names(etl: DAG) -> None:
    @task(retries=3, pool="slow")
    def send() -> None: ...

    send.override(task_id="send_eu", retries=1)()

    assert (specs(etl)["send_eu"].retries, specs(etl)["send_eu"].pool) == (1, "slow")


def test_two_bash_tasks_of_one_id_are_an_error(etl: DAG) -> None:
    bash("a", "true")

    with pytest.raises(AuthoringError, match="DAG 'etl' has a task 'a' already"):
        bash("a", "true")


def test_every_option_reaches_the_spec(etl: DAG) -> None:
    @task(
        task_id="all-of-them",
        retries=2,
        retry_delay=timedelta(seconds=1.5),
        execution_timeout=60,
        trigger_rule="none_failed",
        pool="gpu",
        pool_slots=2,
        image="ghcr.io/acme/etl:1",
        env={"A": "b"},
        resources={"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi", "cpu": 2}},  # type: ignore[dict-item]
        execution={
            "node_selector": {"zone": "a"},
            "tolerations": [{"key": "tenant", "operator": "Equal", "value": "acme", "effect": "NoSchedule"}],
            "labels": {"team": "data"},
            "annotations": {"note": "x"},
            "priority_class_name": "high",
            "service_account": "loader",
        },
    )
    def run() -> None: ...

    run()
    spec = specs(etl)["all-of-them"]

    assert (spec.retries, spec.retry_delay, spec.execution_timeout) == (2, 1.5, 60.0)
    assert (spec.trigger_rule, spec.pool, spec.pool_slots, spec.image) == (
        "none_failed",
        "gpu",
        2,
        "ghcr.io/acme/etl:1",
    )
    assert spec.env == {"A": "b"}
    assert spec.resources is not None
    assert (spec.resources.requests, spec.resources.limits) == ({"cpu": "500m"}, {"memory": "1Gi", "cpu": "2"})
    assert spec.execution.tolerations == (Toleration("tenant", "Equal", "acme", "NoSchedule"),)
    assert (spec.execution.service_account, spec.execution.priority_class_name) == ("loader", "high")
    assert spec.execution.node_selector == {"zone": "a"}
    assert (spec.execution.labels, spec.execution.annotations) == ({"team": "data"}, {"note": "x"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retries": -1}, "retries must be a whole number from 0, got int -1"),
        ({"retries": 1.5}, "retries must be a whole number from 0, got float 1.5"),
        ({"retries": 2**40}, "retries must be at most"),
        ({"retry_delay": -1}, "retry_delay must be from 0 seconds"),
        ({"retry_delay": "5m"}, "retry_delay must be seconds, got '5m'"),
        ({"execution_timeout": 0}, "execution_timeout must be above 0 seconds"),
        ({"trigger_rule": "all_sucess"}, "trigger_rule must be one of all_success, "),
        ({"pool": ""}, "pool must have 1 to 256"),
        ({"pool_slots": 0}, "pool_slots must be a whole number from 1, got int 0"),
        ({"resources": {"cpu": "1"}}, "resources has the unknown field 'cpu'; known are requests, limits"),
        ({"resources": {"requests": {"gpu": "1"}}}, "resources.requests has the unknown field 'gpu'"),
        ({"resources": {"limits": {"cpu": True}}}, "the quantity must be text, got bool True"),
        ({"execution": {"nodeSelector": {}}}, "execution has the unknown field 'nodeSelector'"),
        ({"execution": {"labels": {"a": 1}}}, "execution.labels['a']: the value must be text, got int 1"),
        ({"execution": {"tolerations": {"key": "a"}}}, "execution.tolerations must be a list"),
        (
            {"execution": {"tolerations": [{"seconds": "1"}]}},
            "execution.tolerations[0] has the unknown field 'seconds'",
        ),
        ({"env": {"A=B": "x"}}, "a name has 1 to 256 characters and no '='"),
        ({"env": {"A": "\0"}}, "holds a NUL character"),
        ({"owner": "me"}, "unknown option 'owner'; known are retries"),
    ],
)
def test_a_wrong_option_is_one_line_with_the_authors_line(etl: DAG, options: dict[str, Any], said: str) -> None:
    with pytest.raises(AuthoringError) as caught:
        bash("a", "true", **options)

    assert said in caught.value.cause
    assert "\n" not in str(caught.value)
    assert (caught.value.file, caught.value.line) == (__file__, caught.traceback[0].lineno + 1)


def test_a_task_cannot_depend_on_itself(etl: DAG) -> None:
    a = bash("a", "true")

    with pytest.raises(AuthoringError, match="'a' cannot depend on itself"):
        a >> [a]


def test_tasks_of_two_dags_cannot_be_ordered_nor_share_results(etl: DAG) -> None:
    a = extract()
    with DAG("other"):
        b = bash("b", "true")
        with pytest.raises(AuthoringError, match="tasks of two DAGs"):
            a >> b
        with pytest.raises(AuthoringError, match="a task of <DAG etl>"):
            load(a)


def test_what_is_no_task_cannot_be_ordered(etl: DAG) -> None:
    a = bash("a", "true")

    with pytest.raises(AuthoringError, match=">> takes tasks and lists of tasks, got 'b'"):
        a >> "b"
    with pytest.raises(AuthoringError, match=r"call it: extract\(\)"):
        a >> extract
    with pytest.raises(AuthoringError, match="extract is passed where its result is meant"):
        load(extract)


def test_arguments_must_fit_the_function(etl: DAG) -> None:
    with pytest.raises(AuthoringError, match=r"extract\(\): got an unexpected keyword argument 'dya'"):
        extract(dya="x")


def test_a_result_cannot_be_used_while_the_file_is_loaded(etl: DAG) -> None:
    """What would quietly put the handle's name into a command, or loop for ever, says so instead."""
    rows: Any = extract()
    uses: list[Callable[[], object]] = [
        lambda: f"echo {rows}",
        lambda: list(rows),
        lambda: rows[0],
        lambda: bool(rows),
        lambda: len(rows),
        lambda: "echo " + str(rows),
        lambda: f"echo {rows!s}",
        lambda: "{}".format(rows),  # noqa: UP032 - as authors write it
        lambda: rows == 3,
        lambda: rows != 3,
        lambda: rows > 3,
        lambda: rows <= 3,
        lambda: rows + 1,
        lambda: "echo " + rows,
        lambda: -rows * 2,
        lambda: range(rows),
        lambda: rows.append(4),
    ]
    for use in uses:
        with pytest.raises(AuthoringError, match="the result of 'extract' is not known while the file is loaded"):
            use()


def test_functions_that_nobody_calls_are_no_workflow() -> None:
    """Else its runs would succeed at once and do nothing."""
    with DAG("etl") as forgotten:

        @task
        def rows() -> None: ...

        @task(retries=2)
        def report() -> None: ...

    with pytest.raises(AuthoringError, match=r"DAG 'etl' has no tasks: call rows\(\), report\(\); under @task"):
        forgotten.spec()

    with forgotten:
        rows()
    assert [t.task_id for t in forgotten.spec().tasks] == ["rows"]


def test_a_task_is_itself_and_no_other(etl: DAG) -> None:
    """What an author does with tasks in lists and dicts of his own."""
    rows, other = extract(), extract.override(task_id="other")()

    assert rows == rows
    assert rows != other
    assert [other, rows].index(rows) == 1
    assert {rows: 1}[rows] == 1
    assert repr(rows) == "<Task etl.extract>"
    assert not hasattr(rows, "append")
    assert copy.copy(rows).task_id == "extract"


def test_a_result_cannot_lie_in_a_set_or_be_a_key(etl: DAG) -> None:
    with pytest.raises(AuthoringError, match="put the result of 'extract' in a list"):
        load({extract()})
    with pytest.raises(AuthoringError, match="cannot be the key of a dict"):
        load({extract(): 1})


def test_an_argument_that_holds_itself_is_an_error(etl: DAG) -> None:
    ring: list[Any] = []
    ring.append(ring)

    with pytest.raises(AuthoringError, match="holds itself"):
        load(ring)


def test_a_bash_variable_may_be_the_result_of_a_task(etl: DAG) -> None:
    rows = extract()
    bash("count", "echo $ROWS", env={"ROWS": rows, "A": "b"})

    spec = specs(etl)["count"]
    assert (spec.env, spec.env_from) == ({"A": "b"}, {"ROWS": "extract"})
    assert (spec.upstream, spec.results_from) == (("extract",), ("extract",))


def test_a_bash_task_has_no_result_to_pass(etl: DAG) -> None:
    with pytest.raises(AuthoringError, match="bash task 'a' leaves no result to pass to 'load'"):
        load(bash("a", "true"))


@pytest.mark.parametrize("name", ["", "A=B", "DEXAFLOW_X"])
def test_a_variable_that_is_a_result_obeys_the_rules_of_names(etl: DAG, name: str) -> None:
    with pytest.raises(AuthoringError, match=r"bash\('b'\): env"):
        bash("b", "true", env={name: extract()})


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("PASSWORD=hunter2", "env must be a mapping of text to text, got text"),
        ({"PASSWORD": b"hunter2"}, r"env\['PASSWORD'\]: the value must be text, got bytes; put it in quotes"),
        ({"PASSWORD": 734892}, r"env\['PASSWORD'\]: the value must be text, got int; put it in quotes"),
        ({"PASSWORD": None}, r"env\['PASSWORD'\]: the value must be text, got None; put it in quotes"),
        ({"PASSWORD": "hunter2\ud800"}, r"env\['PASSWORD'\]: holds a lone surrogate: text"),
        ({"PASSWORD": "hunter2\0"}, r"env\['PASSWORD'\]: holds a NUL character"),
        ({"PASSWORD: hunter2\0": ""}, r"env\['PASSWORD'\]: holds a NUL character"),
        ({"PASSWORD:hunter2\ud800": ""}, r"env\['PASSWORD'\]: holds a lone surrogate: text"),
        ({"PASSWORD hunter2" + 256 * "x": ""}, r"env\['PASSWORD'\]: a name has 1 to \d+ characters and no '='"),
        ({"PASSWORD: hunter2": 1}, r"env\['PASSWORD'\]: the value must be text, got int; put it in quotes"),
        ({"DEXAFLOW_X: hunter2": ""}, r"env\['DEXAFLOW_X'\]: names under DEXAFLOW_ are set by Dexaflow"),
        ({734892: ""}, "env has a key that is not text: int"),
        ({"PASSWORD=hunter2": ""}, r"env\['PASSWORD'\]: a name has 1 to \d+ characters and no '='"),
    ],
)
def test_what_is_wrong_with_an_environment_is_said_without_its_values(etl: DAG, env: Any, said: str) -> None:
    """Whoever reads a DAG's errors need not know its passwords."""
    for make in (lambda: bash("b", "true", env=env), lambda: DAG("other", env=env)):
        with pytest.raises(AuthoringError, match=said) as caught:
            make()
        assert not any(secret in str(caught.value) for secret in ("hunter2", "734892"))


def test_a_python_task_gets_results_as_arguments_only(etl: DAG) -> None:
    with pytest.raises(AuthoringError, match="pass its result as an argument instead"):
        task(env={"A": extract()})


@pytest.mark.parametrize("command", ["", None, b"true", "a\0b"])
def test_a_command_is_text(etl: DAG, command: Any) -> None:
    with pytest.raises(AuthoringError, match="command "):
        bash("a", command)


@pytest.mark.parametrize("thing", [3, "extract", DAG, print])
def test_task_goes_on_functions_only(thing: Any) -> None:
    with pytest.raises(AuthoringError, match="@task goes on a function"):
        task(thing)


def test_a_task_needs_a_dag_around_it_and_says_how_to_call_the_function() -> None:
    with pytest.raises(AuthoringError, match=r"needs a DAG .* itself, call extract.function"):
        extract()

    assert extract.function() == [1, 2]


def test_a_task_may_name_its_dag(etl: DAG) -> None:
    other = DAG("other")
    bash("a", "true", dag=other)

    @task(dag=other)
    def b() -> None: ...

    b()
    assert [t.task_id for t in other.tasks] == ["a", "b"]
    assert etl.tasks == ()


def test_a_task_knows_the_line_where_its_options_are_written() -> None:
    file = "/somewhere/lines.py"
    source = """from dexaflow import DAG, bash, task
from tests.authoring.test_tasks import extract

@task(
    retries=2)
def own(): ...

with DAG("lines") as dag:
    own()
    extract()
    bash("b",
        "true")
"""
    exec(compile(source, file, "exec"))

    assert [spec.line for spec in dags_of(file)[0].spec().tasks] == [4, 10, 11]


def test_there_is_no_context_while_a_file_is_loaded() -> None:
    with pytest.raises(AuthoringError, match="works inside a running task only"):
        get_context()


def test_everything_that_a_dag_file_needs_comes_from_the_package_itself() -> None:
    """As docs/dags.md writes it: nobody has to know where it lies."""
    for name in ("DAG", "bash", "chain", "dag", "get_context", "task"):
        assert getattr(dexaflow, name) is getattr(dexaflow.authoring, name)
        assert name in dexaflow.__all__
