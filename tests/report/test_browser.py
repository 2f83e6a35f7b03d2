"""The page in a real Chromium, without a network."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from otil_exp.report.columns import CORE
from otil_exp.report.command import main
from report.folders import make_grid, make_run

NAMES = ("google-chrome", "chromium", "chromium-browser")
APT = ("apt-get", "-o", "DPkg::Lock::Timeout=120", "--quiet=2")


@pytest.fixture(scope="module")
def chromium(one_installs: Path) -> str:
    """Path of a Chromium, installed where it may be; skips where it may not, unless REQUIRE_CHROMIUM is set."""
    if not any(map(shutil.which, NAMES)) and os.geteuid() == 0 and Path("/etc/debian_version").exists():
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "timeout": 200}
        with one_installs.open("w") as alone:
            fcntl.flock(alone, fcntl.LOCK_EX)
            subprocess.run([*APT, "update"], **quiet)
            subprocess.run([*APT, "install", "-y", "--no-install-recommends", "chromium"], **quiet)
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        words = "no Chromium on the PATH, and only root on Debian installs one: the report was not tried in a browser"
        pytest.fail(words) if os.environ.get("REQUIRE_CHROMIUM") else pytest.skip(words)
    return found


class Opened:
    """The report of a grid in a browser, and what the browser complained about or asked for."""

    def __init__(self, page, address: str) -> None:
        self.page, self.trouble, self.requests = page, [], []
        page.on("console", lambda message: self.trouble.append(message.text))
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(address)

    def column(self, number: int) -> list[str]:
        return self.page.locator(f"#runs tbody tr > :nth-child({number})").all_inner_texts()


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[object]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # The sandbox needs rights that root in a container has not.
        sandbox = [] if os.geteuid() else ["--no-sandbox"]
        opened = playwright.chromium.launch(executable_path=chromium, args=sandbox)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of the report of a small grid, which no test changes."""
    folder = tmp_path_factory.mktemp("report")
    make_grid(folder)
    make_run(folder, "3", method="guide", status="failed", failed_rank=1, error="<b>no</b>")
    assert main([str(folder)]) == 0
    return (folder / "report.html").as_uri()


@pytest.fixture
def opened(browser, report: str) -> Iterator[Opened]:
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    found = Opened(page, report)
    yield found
    assert found.trouble == []
    assert [url for url in found.requests if not url.startswith("data:")] == [report]
    page.close()


def test_a_heading_sorts_up_then_down_and_what_is_missing_stays_last(opened: Opened) -> None:
    time = opened.page.get_by_role("button", name="ms/step")
    time.click()
    assert [text.split("\n")[0] for text in opened.column(4)] == ["20.0", "32.0", "40.0", "-"]
    time.press("Enter")
    assert [text.split("\n")[0] for text in opened.column(4)] == ["40.0", "32.0", "20.0", "-"]
    assert opened.page.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
    opened.page.get_by_role("button", name="run", exact=True).click()
    assert [text.split()[0] for text in opened.column(2)] == ["full_sync", "guide", "otil", "reference"]


def first_row_of_pictures(opened: Opened) -> list[str]:
    """Numbers of the runs whose pictures of the first prompt are seen, from left to right, row by row."""
    figures = opened.page.locator("article").first.locator("figure.method:visible")
    boxes = [(figure.bounding_box(), figure.get_attribute("data-run")) for figure in figures.all()]
    return [number for box, number in sorted(boxes, key=lambda one: (round(one[0]["y"], -1), one[0]["x"]))]


def test_pictures_follow_the_table(opened: Opened) -> None:
    """Runs are 1 reference, 2 full_sync, 3 guide, 4 otil; the last is fastest, and guide has no time."""
    assert first_row_of_pictures(opened) == ["1", "2", "3", "4"]
    opened.page.get_by_role("button", name="ms/step").click()
    assert first_row_of_pictures(opened) == ["1", "4", "2", "3"]


def test_runs_are_filtered_and_their_pictures_chosen(opened: Opened) -> None:
    page = opened.page
    page.get_by_label("filter").fill("OTIL 4gpu")
    assert [text.split()[0] for text in page.locator("#runs tbody tr:visible th").all_inner_texts()] == [
        "reference",
        "otil",
    ]
    assert first_row_of_pictures(opened) == ["1", "2", "3", "4"]
    page.get_by_role("button", name="filtered only").click()
    assert first_row_of_pictures(opened) == ["1", "4"]
    page.get_by_label("filter").fill("")
    page.get_by_role("button", name="none", exact=True).click()
    assert page.locator("figure.method:visible").count() == 0
    page.locator("tr[data-run='2']").hover()
    page.locator(".only[value='2']").click()
    assert first_row_of_pictures(opened) == ["1", "2"]
    page.get_by_role("button", name="all", exact=True).click()
    assert first_row_of_pictures(opened) == ["1", "2", "3", "4"]


def test_the_head_and_the_reference_stay_while_a_long_table_scrolls(browser, tmp_path: Path) -> None:
    make_grid(tmp_path)
    for number in range(40):
        make_run(tmp_path, f"{number + 3}", metrics={"latency/step_ms": 50.0 + number})
    assert main([str(tmp_path)]) == 0
    opened = Opened(browser.new_page(viewport={"width": 1000, "height": 900}), (tmp_path / "report.html").as_uri())
    table = opened.page.locator("#runs .scroll")
    table.evaluate("e => e.scrollTop = 1000")
    top = table.bounding_box()["y"]
    head = opened.page.locator("#runs thead th").first.bounding_box()
    reference = opened.page.locator("#runs tr.is-reference th").bounding_box()
    assert abs(head["y"] - top) < 2
    assert abs(reference["y"] - head["y"] - head["height"]) < 2
    opened.page.close()


def test_no_column_is_cut_on_a4(browser, tmp_path: Path) -> None:
    """A4 landscape without its margins is 277 mm wide, 1047 CSS pixels."""
    make_grid(tmp_path)
    keys = [column.key for column in CORE]
    make_run(tmp_path, "3", metrics={key: {"value": 12.345, "standard_error": 1.25, "n": 10} for key in keys})
    assert main([str(tmp_path)]) == 0
    opened = Opened(browser.new_page(viewport={"width": 1047, "height": 718}), (tmp_path / "report.html").as_uri())
    opened.page.emulate_media(media="print")
    right = (
        "Math.max(...[...document.querySelectorAll('#runs th, #runs td')].map(e => e.getBoundingClientRect().right))"
    )
    assert opened.page.evaluate(right) <= 1047
    assert opened.page.locator("#runs thead th:visible").count() == len(keys) + 3
    assert not opened.page.locator(".toolbar").is_visible()
    opened.page.close()


def test_the_slider_lays_the_reference_over_the_picture(opened: Opened) -> None:
    slider = opened.page.get_by_role("slider").first
    slider.focus()
    for _ in range(3):
        slider.press("ArrowRight")
    frame = opened.page.locator(".frame:has(.slider)").first
    reference = opened.page.locator(".reference .own").first.get_attribute("src")
    wipe = frame.locator(".wipe")
    assert wipe.evaluate("e => e.style.backgroundImage") == f'url("{reference}")'
    assert wipe.evaluate("e => getComputedStyle(e).clipPath") == "inset(0px 97% 0px 0px)"
    box = frame.bounding_box()
    opened.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert abs(int(slider.input_value()) - 50) <= 3


def test_differences_boundaries_and_profiles_are_switched(opened: Opened) -> None:
    page = opened.page
    seam, profile, difference = (page.locator(what).first for what in (".frame i.row", ".profile.row", ".difference"))
    assert seam.is_visible()
    assert profile.is_visible()
    assert not difference.is_visible()
    page.get_by_label("slice boundaries").uncheck()
    page.get_by_label("seam profiles").uncheck()
    page.get_by_label("difference to the reference").check()
    assert not seam.is_visible()
    assert not profile.is_visible()
    assert difference.is_visible()


def test_a_run_s_pictures_can_be_hidden(opened: Opened) -> None:
    opened.page.locator(".show-run[value='2']").uncheck()
    assert opened.page.locator("figure.method:visible").count() == 6


def test_the_page_fits_1000_pixels_and_pictures_load(opened: Opened) -> None:
    opened.page.locator("#provenance").scroll_into_view_if_needed()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 1000
    # The page's own policy forbids what wait_for_function does; a picture that cannot be decoded is an error here.
    widths = "Promise.all([...document.querySelectorAll('img.own')].map((i) => i.decode().then(() => i.naturalWidth)))"
    assert all(width > 0 for width in opened.page.evaluate(widths))


def test_a_run_s_link_opens_its_provenance(opened: Opened) -> None:
    opened.page.get_by_role("link", name="otil 4gpu_split").click()
    assert opened.page.locator("#run-4 dl").is_visible()


def test_colours_follow_the_reader_s_scheme(opened: Opened) -> None:
    def background() -> str:
        return opened.page.evaluate("getComputedStyle(document.body).backgroundColor")

    assert background() == "rgb(255, 255, 255)"
    opened.page.emulate_media(color_scheme="dark")
    assert background() == "rgb(21, 25, 30)"


def test_nothing_but_tables_is_wider_than_a_phone(opened: Opened) -> None:
    opened.page.set_viewport_size({"width": 390, "height": 800})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
