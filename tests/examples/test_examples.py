"""The examples learn, at reduced size; compiled steps do what eager ones do."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weft

FOLDER = Path(__file__).parent.parent.parent / "examples"


def run(name: str, *arguments: str) -> Any:
    """What the main function of an example returns."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main(arguments)


@pytest.fixture(autouse=True)
def _same_numbers_later() -> Any:
    """Examples seed the generator; tests after them have their own."""
    state = weft.get_rng_state()
    yield
    weft.set_rng_state(state)


def test_linear_regression_finds_the_line_both_ways() -> None:
    for slope, intercept in run("linear_regression", "--steps", "100"):
        assert slope == pytest.approx(3, abs=0.02)
        assert intercept == pytest.approx(-2, abs=0.02)


@pytest.mark.rotating(2)
def test_gpt_learns_the_frequencies_of_characters_and_more() -> None:
    arguments = ["--steps", "100", "--width", "64", "--layers", "2", "--context", "64", "--batch", "8"]
    loss, written = run("char_gpt", *arguments)
    assert loss < 2.8  # single characters alone leave 3.1
    assert written.startswith("Alice ")
    assert len(written) == 64


@pytest.mark.rotating(3)
def test_parallel_gpt_learns_the_same_on_every_number_of_ranks() -> None:
    arguments = ["--steps", "6", "--width", "16", "--layers", "1", "--context", "16", "--batch", "8"]
    first, last, digest = run("parallel_gpt", *arguments)
    assert last < first - 0.2
    assert run("parallel_gpt", *arguments, "--simulate", "2") == (first, last, digest)
    staged = run("parallel_gpt", *arguments, "--pipe", "1", "--stages", "2")
    assert staged[:2] == pytest.approx((first, last), rel=1e-3)
    assert run("parallel_gpt", *arguments, "--pipe", "2", "--simulate", "2") == staged


@pytest.mark.rotating(2)
def test_sunspots_are_predicted_better_than_by_the_last_month() -> None:
    ours, naive = run("sunspots_lstm", "--epochs", "6")
    assert ours < 0.98 * naive


@pytest.mark.rotating(2)
def test_autoencoder_describes_digits_it_has_not_seen() -> None:
    before, after = run("vae", "--epochs", "8")
    assert after < 0.65 * before


@pytest.mark.rotating(2)
def test_network_solves_the_equation() -> None:
    assert run("physics_informed", "--steps", "300") < 0.08


@pytest.mark.rotating(2)
def test_pole_stands_longer() -> None:
    before, after = run("policy_gradient", "--rounds", "20")
    assert after > 1.7 * before


@pytest.mark.rotating(2)
def test_paddle_catches_the_ball() -> None:
    before, after = run("deep_q", "--rounds", "1200")
    assert before < 0.5
    assert after > 0.9


@pytest.mark.rotating(2)
def test_digits_are_found_among_bars_and_noise() -> None:
    before, after = run("unet", "--steps", "50", "--batch", "8")
    assert before < 0.3
    assert after > 0.6


def test_loops_are_solved_and_have_gradients() -> None:
    wrong, missed = run("newton_ode", "--steps", "60")
    assert wrong < 1e-5
    assert missed < 0.3


@pytest.mark.rotating(2)
def test_authors_are_told_apart() -> None:
    assert run("ragged_text", "--epochs", "2") > 0.8


def test_members_of_the_club_go_where_they_went() -> None:
    assert run("graph_convolution", "--steps", "60") > 0.9


@pytest.mark.rotating(2)
def test_convolutional_network_recognises_digits_and_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    first = run("digits_cnn", "--epochs", "2", "--directory", str(tmp_path))
    assert first > 0.9
    assert run("digits_cnn", "--epochs", "2", "--directory", str(tmp_path)) == first  # nothing is left to do


SMALL = {
    "vae": ["--epochs", "1"],
    "char_gpt": ["--steps", "8", "--width", "32", "--layers", "2", "--context", "32", "--batch", "4"],
    "deep_q": ["--rounds", "40"],
    "graph_convolution": ["--steps", "20"],
    "unet": ["--steps", "6", "--batch", "4"],
}


@pytest.mark.parametrize("name", SMALL)
def test_compiled_steps_lose_what_eager_steps_lose(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    losses: dict[bool, list[float]] = {True: [], False: []}
    compiler = weft.compile
    for compiled, seen in losses.items():

        def noted(
            function: Callable[..., Any], compiled: bool = compiled, seen: list[float] = seen
        ) -> Callable[..., Any]:
            step = compiler(function) if compiled else function

            def call(*arguments: Any) -> Any:
                loss = step(*arguments)
                seen.append(loss.item())
                return loss

            return call

        monkeypatch.setattr(weft, "compile", noted)
        run(name, *SMALL[name])
    assert len(losses[True]) >= 6
    assert losses[True] == pytest.approx(losses[False], rel=2e-3)


def test_demo_trains_saves_loads_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dynamic, compiled = run("demo", "--epochs", "4", "--directory", str(tmp_path))
    assert min(dynamic, compiled) > 0.85
    assert capsys.readouterr().out.count("taken for") == 4
    assert (tmp_path / "digits.svg").read_text().count("conv") >= 2
    assert "<canvas" in (tmp_path / "digits.html").read_text()
