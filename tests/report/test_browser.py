"""Reports in a browser: they open, load nothing, are sorted and filtered, and fit a phone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gbwatt.experiments.row_io import read_csv
from gbwatt.report import render, report_of_rows

from . import results

pytestmark = pytest.mark.browser

REAL = Path(__file__).parents[2] / "results/mamem.csv"
BIG = 5000
EACH = 11  # rows of each model


def real_rows():
    """Real rows of two models, one of each subject, few enough to be seen at once; the file may grow."""
    found = read_csv(REAL)
    models = ("eegnet", "shallowconvnet")
    own = [{row.run["subject"]: row for row in found if row.run["model"] == model} for model in models]
    assert [len(rows) for rows in own] == [EACH, EACH]
    return [row for rows in own for row in rows.values()]


def start(width=1280, height=900):
    """Chromium without a window; a report of what is missing, if something is."""
    programs = {"chromium": shutil.which("chromium"), "chromium-driver": shutil.which("chromedriver")}
    missing = [package for package, path in programs.items() if path is None]
    if missing:
        pytest.fail(f"Debian packages are missing: apt-get install {' '.join(missing)}")
    try:
        from selenium import webdriver
    except ImportError:
        pytest.fail("selenium is missing: pip install 'gbwatt[browser]'")
    options = webdriver.ChromeOptions()
    options.binary_location = programs["chromium"]
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", f"--window-size={width},{height}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(programs["chromium-driver"]))


@pytest.fixture(scope="module")
def browser():
    driver = start()
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def real(folder, drawn):
    file = folder / "real.html"
    file.write_text(render(report_of_rows(real_rows(), [results.experiment()])), encoding="utf-8")
    return file.as_uri()


@pytest.fixture(scope="module")
def big(folder, drawn):
    found, rows = results.many(BIG)
    file = folder / "big.html"
    file.write_text(render(report_of_rows(rows, [found])), encoding="utf-8")
    assert file.stat().st_size < 6e6
    return file.as_uri()


class Runs:
    """The table of all runs, as a reader handles it."""

    def __init__(self, browser):
        self.browser = browser
        self.figure = self.find("section[aria-labelledby='all-runs'] figure", browser)

    def find(self, selector, inside=None):
        return (inside or self.figure).find_element("css selector", selector)

    def script(self, text, *arguments):
        return self.browser.execute_script(text, self.figure, *arguments)

    def column(self, name):
        """The texts of a column that are seen."""
        return self.script(
            "const place = [...arguments[0].querySelectorAll('thead button')].findIndex("
            "button => button.textContent === arguments[1]);"
            "return [...arguments[0].querySelectorAll('tbody tr')].map(row => row.cells[place].textContent)",
            name,
        )

    def head(self, name):
        xpath = f".//thead//button[normalize-space()='{name}']"
        return self.figure.find_element("xpath", xpath)

    def state(self, name):
        return self.head(name).find_element("xpath", "..").get_attribute("aria-sort")

    @property
    def count(self):
        return self.find("output").text

    @property
    def range(self):
        return self.find(".range").text


@pytest.fixture
def runs(browser, real):
    browser.get(real)
    return Runs(browser)


@pytest.fixture
def many(browser, big):
    browser.get(big)
    return Runs(browser)


def errors(browser):
    return [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def requests(browser):
    """Addresses that the browser asked for since the last call."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]


def test_a_report_opens_without_an_error_and_asks_for_nothing_but_itself(browser, real):
    errors(browser), requests(browser)
    browser.get(real)
    assert browser.title == "Results on mamem-ssvep-ii"
    assert errors(browser) == []
    asked = requests(browser)
    assert real in asked
    assert [address for address in asked if address != real and not address.startswith("data:")] == []


def test_the_policy_of_the_page_forbids_what_is_put_into_it(browser, real):
    browser.get(real)
    errors(browser)
    browser.execute_script(
        'const image = \'<img src="https://example.org/a.png" onerror="window.ran = 1">\';'
        "document.body.insertAdjacentHTML('beforeend', image);"
        "const own = document.createElement('script'); own.textContent = 'window.ran = 1'; document.body.append(own);"
    )
    assert browser.execute_script("return window.ran") is None
    assert len([entry for entry in errors(browser) if "Content Security Policy" in entry["message"]]) >= 2


def test_every_figure_is_seen(browser, real):
    browser.get(real)
    images = browser.find_elements("css selector", "figure img")
    assert len(images) >= 3
    for image in images:
        assert image.is_displayed()
        assert browser.execute_script("return arguments[0].complete && arguments[0].naturalWidth > 0", image)
        assert min(image.size.values()) > 100


def test_a_click_sorts_by_numbers_up_and_down_and_back(runs):
    numbers = [float(text) for text in runs.column("accuracy")]
    for state, expected in (
        ("ascending", sorted(numbers)),
        ("descending", sorted(numbers, reverse=True)),
        ("none", numbers),
    ):
        runs.head("accuracy").click()
        assert runs.state("accuracy") == state
        assert [float(text) for text in runs.column("accuracy")] == expected
    runs.head("subject").click()
    subjects = runs.column("subject")
    assert subjects == sorted(subjects, key=int)
    assert subjects != sorted(subjects)  # as texts, 10 would come before 2


def test_a_sort_keeps_the_order_of_what_is_equal(runs):
    runs.head("accuracy").click()
    accuracy = dict(zip(runs.column("key"), map(float, runs.column("accuracy")), strict=True))
    runs.head("model").click()
    assert runs.state("accuracy") == "none"
    pairs = [(model, accuracy[key]) for model, key in zip(runs.column("model"), runs.column("key"), strict=True)]
    assert pairs == sorted(pairs)
    assert len({model for model, _ in pairs}) == 2


def test_keys_sort_and_filter_as_clicks_do(runs):
    from selenium.webdriver import ActionChains, Keys

    field = runs.find("input")
    field.click()
    ActionChains(runs.browser).send_keys("shallow").perform()
    assert runs.count == f"{EACH} of {2 * EACH} rows"
    for _ in range(30):  # on to the head of the column, as a reader without a mouse
        ActionChains(runs.browser).send_keys(Keys.TAB).perform()
        if runs.browser.switch_to.active_element == runs.head("accuracy"):
            break
    assert runs.browser.switch_to.active_element == runs.head("accuracy")
    assert runs.browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    ActionChains(runs.browser).send_keys(Keys.ENTER).perform()
    assert runs.state("accuracy") == "ascending"
    ActionChains(runs.browser).send_keys(Keys.SPACE).perform()
    assert runs.state("accuracy") == "descending"
    found = [float(text) for text in runs.column("accuracy")]
    assert found == sorted(found, reverse=True)
    assert len(found) == EACH


def test_a_filter_keeps_rows_with_all_its_words_and_counts_them(runs):
    field = runs.find("input")
    field.send_keys("EEGNET done")
    assert runs.count == f"{EACH} of {2 * EACH} rows"
    assert set(runs.column("model")) == {"eegnet"}
    field.send_keys(" nowhere")
    assert runs.count == f"0 of {2 * EACH} rows"
    assert runs.column("model") == []
    field.clear()
    field.send_keys(" ")
    assert runs.count == f"{2 * EACH} of {2 * EACH} rows"


def test_thousands_of_rows_are_turned_page_by_page(many):
    assert many.count == f"{BIG} of {BIG} rows"
    assert len(many.column("key")) == 50
    previous, following = many.figure.find_elements("css selector", ".controls button")
    previous.click()  # there is nothing before
    assert many.range == "1–50"
    first = many.column("key")
    following.click()
    assert many.range == "51–100"
    assert not set(first) & set(many.column("key"))
    previous.click()
    assert many.column("key") == first


def test_thousands_of_rows_are_sorted_and_filtered_as_a_whole(many):
    many.head("accuracy").click()
    lowest = [float(text) for text in many.column("accuracy")]
    assert lowest == sorted(lowest)
    assert lowest[-1] < 3
    many.find("input").send_keys("simulated-ern eegnet")
    assert many.count == f"{16 * 40} of {BIG} rows"
    assert set(many.column("model")) == {"eegnet"}
    found = [float(text) for text in many.column("accuracy")]
    assert found == sorted(found)


def test_only_rows_that_are_seen_are_elements(many):
    assert many.script("return document.querySelectorAll('*').length") < 5000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(browser, real, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(real)
    for selector in ("body", ".notes", "nav a", "figcaption", "thead th"):
        colours = browser.execute_script(
            "return [getComputedStyle(document.querySelector(arguments[0])).color,"
            "getComputedStyle(document.body).backgroundColor]",
            selector,
        )
        assert contrast(*map(luminance, colours)) >= 4.5, (selector, colours)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def luminance(colour):
    """Relative luminance (WCAG 2.1) of ``rgb(r, g, b)``."""
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = max(one, other), min(one, other)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("width", [390, 800, 1400])
def test_a_page_does_not_scroll_sideways(browser, real, width):
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(real)
    assert browser.execute_script("return innerWidth") == width
    root = "document.documentElement"
    assert browser.execute_script(f"return {root}.scrollWidth <= {root}.clientWidth")
    box = Runs(browser).find(".scroll")
    assert browser.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth", box)  # it does, inside
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def sized(browser, width):
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@pytest.mark.parametrize("width, stay", [(390, ["model"]), (1200, ["model", "data set", "subject", "seed"])])
def test_columns_that_say_which_run_it_is_stay_while_the_others_scroll(browser, real, width, stay):
    sized(browser, width)
    browser.get(real)
    table = Runs(browser)
    before = {name: table.head(name).rect["x"] for name in ("model", "data set", "subject", "seed", "key")}
    table.script("arguments[0].querySelector('.scroll').scrollLeft = 600")
    moved = [name for name, x in before.items() if abs(table.head(name).rect["x"] - x) > 2]
    assert moved == [name for name in before if name not in stay]
    on_top = (
        "const box = arguments[1].getBoundingClientRect();"
        "return document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2) === arguments[1]"
    )
    table.script("arguments[0].querySelector('thead').scrollIntoView()")
    assert all(table.script(on_top, table.head(name)) for name in stay)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("width", [390, 1200])
def test_pictures_are_as_wide_as_they_can_be_and_never_cut(browser, real, width):
    sized(browser, width)
    browser.get(real)
    for picture in browser.find_elements("css selector", ".picture"):
        assert browser.execute_script("return arguments[0].scrollWidth <= arguments[0].clientWidth", picture)
        image = picture.find_element("css selector", "img")
        room = picture.size["width"] - 40
        assert image.size["width"] > min(room, 450)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_without_scripts_the_first_rows_are_there(browser, big):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get(big)
    rows = browser.find_elements("css selector", "section[aria-labelledby='all-runs'] tbody tr")
    controls = browser.find_elements("css selector", ".controls")
    assert len(rows) == 50
    assert not any(control.is_displayed() for control in controls)
    assert "The first 50 of 5000 rows" in browser.find_element("css selector", "noscript").text
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_on_paper_what_is_folded_is_open_and_closed_again_afterwards(browser, real):
    browser.get(real)
    count = "return [...document.querySelectorAll('details')].filter(fold => fold.open).length"
    assert browser.execute_script(count) == 0
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script(count) > 0
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert browser.execute_script(count) == 0
