"use strict";

// Sorting and filtering of tables.  All values are in the page as JSON; only visible rows are elements.

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

// Sort key of a text: "< 0.001" sorts like 0.001, and text that is not a number sorts last.
function sortKey(text, isNumber) {
  if (!isNumber) return text;
  const value = Number(text.replace("< ", "").replace("inf", "Infinity"));
  return text === "" || Number.isNaN(value) ? null : value;
}

function compareKeys(a, b) {
  return typeof a === "string" ? collator.compare(a, b) : a < b ? -1 : Number(a > b);
}

// Rank of each text of a column, so that sorting compares integers; null sorts last.
function ranks({ texts, number }) {
  const keys = texts.map((text) => (text === "" ? null : sortKey(text, number)));
  const order = [...keys.keys()].filter((at) => keys[at] !== null).sort((a, b) => compareKeys(keys[a], keys[b]));
  const result = keys.map(() => null);
  let rank = 0;
  order.forEach((at, place) => {
    if (place && compareKeys(keys[order[place - 1]], keys[at])) rank += 1;
    result[at] = rank;
  });
  return result;
}

// Row numbers, sorted by a column; the sort is stable, and empty cells are last in both directions.
function sorted(lines, column, direction) {
  const rank = ranks(column);
  return [...lines].sort((a, b) => {
    const [first, second] = [rank[column.at[a]], rank[column.at[b]]];
    if (first === null || second === null) return Number(first === null) - Number(second === null);
    return direction * (first - second);
  });
}

class SearchTable {
  constructor(figure) {
    this.figure = figure;
    this.columns = JSON.parse(figure.querySelector("script").textContent);
    this.size = Number(figure.dataset.shown);
    this.long = Number(figure.dataset.long);
    this.wraps = Number(figure.dataset.wraps);
    this.frozen = Number(figure.dataset.frozen || 0);
    this.heads = [...figure.querySelectorAll("thead th")];
    this.body = figure.querySelector("tbody");
    this.controls = figure.querySelector(".controls");
    this.filter = this.controls.querySelector("input");
    this.order = this.columns[0].at.map((_, line) => line);
    this.words = this.order.map((line) => this.texts(line).join("\n").toLowerCase());
    this.page = 0;
    this.listen();
    this.controls.hidden = false;
    this.update();
  }

  texts(line) {
    return this.columns.map(({ texts, at }) => texts[at[line]]);
  }

  listen() {
    addEventListener("resize", () => this.freeze());
    this.filter.addEventListener("input", () => this.update());
    this.heads.forEach((head, place) => {
      head.querySelector("button").addEventListener("click", () => this.sort(place));
    });
    for (const button of this.controls.querySelectorAll("button")) {
      button.addEventListener("click", () => this.turn(button));
    }
  }

  // Ascending, descending, original order.
  sort(place) {
    const next = { none: "ascending", ascending: "descending", descending: "none" };
    const state = next[this.heads[place].getAttribute("aria-sort")];
    this.heads.forEach((head, at) => head.setAttribute("aria-sort", at === place ? state : "none"));
    if (state === "none") this.order.sort((a, b) => a - b);
    else this.order = sorted(this.order, this.columns[place], state === "ascending" ? 1 : -1);
    this.update();
  }

  // Keep rows that contain all words.
  update() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.kept = this.order.filter((line) => words.every((word) => this.words[line].includes(word)));
    this.page = 0;
    this.draw();
  }

  turn(button) {
    if (button.getAttribute("aria-disabled") === "true") return;
    this.page += Number(button.dataset.step);
    this.draw();
  }

  draw() {
    const start = this.page * this.size;
    const lines = this.kept.slice(start, start + this.size);
    this.body.replaceChildren(...lines.map((line) => this.row(line)));
    this.showCounts(start, start + lines.length);
    this.freeze();
  }

  // Position frozen columns side by side; on a phone only the first is frozen.
  freeze() {
    const count = matchMedia("(max-width: 40rem)").matches ? Math.min(1, this.frozen) : this.frozen;
    let left = 0;
    this.heads.slice(0, this.frozen).forEach((head, place) => {
      this.figure.style.setProperty(`--left-${place + 1}`, place < count ? `${left}px` : "auto");
      if (place < count) left += head.getBoundingClientRect().width;
    });
    this.figure.style.setProperty("--frozen", `${left}px`);
  }

  showCounts(start, end) {
    const count = this.kept.length;
    this.controls.querySelector("output").textContent = `${count} of ${this.order.length} rows`;
    this.controls.querySelector(".range").textContent = count > this.size ? `${start + 1}–${end}` : "";
    for (const button of this.controls.querySelectorAll("button")) {
      const possible = button.dataset.step === "1" ? end < count : start > 0;
      button.setAttribute("aria-disabled", String(!possible));
      button.hidden = count <= this.size;
    }
  }

  row(line) {
    const row = document.createElement("tr");
    this.texts(line).forEach((text, place) => {
      const cell = document.createElement(place ? "td" : "th");
      if (!place) cell.scope = "row";
      if (this.columns[place].number) cell.className = "number";
      else if (text.length > this.long) cell.className = "long";
      else if (text.length > this.wraps) cell.className = "wraps";
      cell.textContent = text;
      row.append(cell);
    });
    return row;
  }
}

document.querySelectorAll("figure[data-shown]").forEach((figure) => new SearchTable(figure));

// Open all details for printing.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  opened.forEach((fold) => { fold.open = true; });
});
addEventListener("afterprint", () => opened.forEach((fold) => { fold.open = false; }));
